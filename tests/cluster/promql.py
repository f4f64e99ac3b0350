"""A small reader of PromQL: enough to find a query that Prometheus would not read.

    expression = unary (operator [on|ignoring (...) [group_left|group_right [(...)]]] unary)*
    unary      = [-] (number | (expression) | aggregation | function | selector[range] [offset range])

`selectors(text)` reads a query to its end and gives the name or the pattern of names of each series in it; `tree(text)`
gives its parts, nested as they bind, for `promql_values.py`.
"""

import re

TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?![\w.]))|(?P<word>[a-zA-Z_:][\w:]*)|(?P<text>\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<range>\[(?:\d+(?:ms|[smhdwy])|\$__rate_interval)\])|(?P<time>\d+[smhdwy])|(?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^<>(){},=]))"
)
AGGREGATIONS = {"sum", "max", "min", "avg", "count"}
OVER_TIME = {"rate", "increase", "avg_over_time", "last_over_time"}
FUNCTIONS = {"time": 0, "label_values": 2} | dict.fromkeys(OVER_TIME, 1)
BINDING = (("or",), ("and", "unless"), ("==", "!=", ">", "<", ">=", "<="), ("+", "-"), ("*", "/", "%"), ("^",))
COMPARED = {"=", "!=", "=~", "!~"}


class Wrong(ValueError):
    """Prometheus would not read it."""


class Reader:
    def __init__(self, text):
        self.text, self.at, self.found = text, 0, []
        self.tokens = []
        while self.at < len(text.rstrip()):
            match = TOKEN.match(text, self.at)
            if not match:
                raise Wrong(f"{text[self.at :]!r} in {text!r}")
            self.tokens.append((match.lastgroup, match[match.lastgroup]))
            self.at = match.end()
        self.tokens.append(("end", ""))

    @property
    def next(self):
        return self.tokens[0][1]

    def take(self, *wanted, kind=None):
        """The next token, which must be one of these, or of this kind."""
        group, value = self.tokens[0]
        if (wanted and value not in wanted) or (kind and group != kind):
            raise Wrong(f"{value!r} where {wanted or kind} is due, in {self.text!r}")
        self.tokens.pop(0)
        return value

    def labels(self):
        found = []
        self.take("(")
        while self.next != ")":
            found.append(self.take(kind="word"))
            if self.next != ")":
                self.take(",")
        self.take(")")
        return found

    def expression(self, level=0):
        """Parts that operators of this level join, from the left."""
        if level == len(BINDING):
            return self.unary()
        left = self.expression(level + 1)
        while self.next in BINDING[level]:
            operator, on = self.take(), None
            if self.next in ("on", "ignoring"):
                self.take()
                on = self.labels()
                if self.next in ("group_left", "group_right"):
                    self.take()
                    if self.next == "(":
                        self.labels()
            left = (operator, left, self.expression(level + 1), on)
        return left

    def unary(self):
        if self.next == "-":
            self.take()
            return ("-", ("number", 0.0), self.unary(), None)
        kind, value = self.tokens[0]
        if kind == "number":
            return ("number", float(self.take()))
        if value == "(":
            self.take()
            inner = self.expression()
            self.take(")")
            return inner
        if value in AGGREGATIONS:
            how, by = self.take(), []
            if self.next in ("by", "without"):
                self.take()
                by = self.labels()
            self.take("(")
            inner = self.expression()
            self.take(")")
            return (how, inner, by)
        if kind == "word" and self.tokens[1][1] == "(":
            return self.function()
        return self.selector(None)

    def function(self):
        name, inner = self.take(*FUNCTIONS), None
        self.take("(")
        if FUNCTIONS[name]:
            inner = self.selector(name in OVER_TIME)
        if FUNCTIONS[name] == 2:
            self.take(",")
            self.take(kind="word")
        self.take(")")
        return (name, inner)

    def selector(self, over_time):
        """A series, with a range if it must have one; without if it must not."""
        name, matchers = self.take(kind="word") if self.tokens[0][0] == "word" else "", []
        if not name and self.next != "{":
            raise Wrong(f"{self.next!r} where a series is due, in {self.text!r}")
        if name:
            matchers.append(("__name__", "=", name))
        if self.next == "{":
            self.take()
            while self.next != "}":
                label = self.take(kind="word")
                sign = self.take(*COMPARED)
                value = self.take(kind="text")[1:-1]
                if sign in ("=~", "!~"):
                    re.compile(value.replace("$run", ""))
                if label == "__name__":
                    name = value
                matchers.append((label, sign, value))
                if self.next != "}":
                    self.take(",")
            self.take("}")
        if not name:
            raise Wrong(f"a series without a name in {self.text!r}")
        if (self.tokens[0][0] == "range") != bool(over_time):
            raise Wrong(f"a range that is missing, or too many, after {name} in {self.text!r}")
        span = self.take(kind="range")[1:-1] if over_time else ""
        offset = ""
        if self.next == "offset":
            self.take()
            offset = self.take(kind="time")
        self.found.append(name)
        return ("series", matchers, span, offset)


def selectors(text):
    """Names, or patterns of names, of all series in a query. Raises `Wrong`."""
    reader = Reader(text)
    reader.expression()
    reader.take(kind="end")
    return reader.found


def tree(text):
    """The parts of a query, nested as they bind: tuples that begin with what they are. Raises `Wrong`."""
    reader = Reader(text)
    found = reader.expression()
    reader.take(kind="end")
    return found
