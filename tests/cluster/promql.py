"""A small reader of PromQL: enough to find a query that Prometheus would not read.

    expression = unary (operator [on|ignoring (...) [group_left|group_right [(...)]]] unary)*
    unary      = [-] (number | (expression) | aggregation | function | selector[range])

`selectors(text)` reads a query to its end and gives the name or the pattern of names of each series in it.
"""

import re

TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?![\w.]))|(?P<word>[a-zA-Z_:][\w:]*)|(?P<text>\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<range>\[(?:\d+(?:ms|[smhdwy])|\$__rate_interval)\])|(?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^<>(){},=]))"
)
AGGREGATIONS = {"sum", "max", "min", "avg", "count"}
FUNCTIONS = {"time": 0, "rate": 1, "increase": 1, "label_values": 2}
OVER_TIME = {"rate", "increase"}
OPERATORS = {"+", "-", "*", "/", "%", "^", "==", "!=", ">", "<", ">=", "<=", "and", "or", "unless"}
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
        self.take("(")
        while self.next != ")":
            self.take(kind="word")
            if self.next != ")":
                self.take(",")
        self.take(")")

    def expression(self):
        self.unary()
        while self.next in OPERATORS:
            self.take()
            if self.next in ("on", "ignoring"):
                self.take()
                self.labels()
                if self.next in ("group_left", "group_right"):
                    self.take()
                    if self.next == "(":
                        self.labels()
            self.unary()

    def unary(self):
        if self.next == "-":
            self.take()
        kind, value = self.tokens[0]
        if kind == "number":
            self.take()
        elif value == "(":
            self.take()
            self.expression()
            self.take(")")
        elif value in AGGREGATIONS:
            self.take()
            if self.next in ("by", "without"):
                self.take()
                self.labels()
            self.take("(")
            self.expression()
            self.take(")")
        elif kind == "word" and self.tokens[1][1] == "(":
            self.function()
        else:
            self.selector(None)

    def function(self):
        name = self.take(*FUNCTIONS)
        self.take("(")
        if FUNCTIONS[name] == 1:
            self.selector(name in OVER_TIME)
        elif FUNCTIONS[name] == 2:
            self.selector(False)
            self.take(",")
            self.take(kind="word")
        self.take(")")

    def selector(self, over_time):
        """A series, with a range if it must have one; without if it must not."""
        name = self.take(kind="word") if self.tokens[0][0] == "word" else ""
        if not name and self.next != "{":
            raise Wrong(f"{self.next!r} where a series is due, in {self.text!r}")
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
                if self.next != "}":
                    self.take(",")
            self.take("}")
        if not name:
            raise Wrong(f"a series without a name in {self.text!r}")
        if (self.tokens[0][0] == "range") != bool(over_time):
            raise Wrong(f"a range that is missing, or too many, after {name} in {self.text!r}")
        if over_time:
            self.take(kind="range")
        self.found.append(name)


def selectors(text):
    """Names, or patterns of names, of all series in a query. Raises `Wrong`."""
    reader = Reader(text)
    reader.expression()
    reader.take(kind="end")
    return reader.found
