"""What a query of PromQL gives, of series that a test made up: enough of it for our alerts.

    scenario (format of `promtool test rules`) -> `Series` -> `value(tree(query), series, at)` -> `firing(rules, ...)`

A vector is `{labels: value}`, its labels without the name of the metric, as a sorted tuple of pairs. `increase` is the
sum of all steps up, without Prometheus's extrapolation.
"""

import itertools
import operator
import re

from tests.cluster.promql import AGGREGATIONS, tree

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}
LOOKBACK = 300  # seconds for which Prometheus holds a value that is not followed by another
COMPARE = {"==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt, ">=": operator.ge,
           "<=": operator.le}  # fmt: skip
COUNT = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
GATHER = {"sum": sum, "max": max, "min": min, "count": len, "avg": lambda values: sum(values) / len(values)}
_STEP = re.compile(r"(?P<first>-?[\d.]+)(?:(?P<add>[+-][\d.]+))?(?:x(?P<times>\d+))?|_(?:x(?P<gaps>\d+))?")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def seconds(text):
    """15m -> 900."""
    return int(text[:-1]) * SECONDS[text[-1]]


def labelled(text):
    """`name{a="b"}` -> its labels, with the name among them."""
    name, _, rest = text.partition("{")
    return {"__name__": name} | dict(_LABEL.findall(rest))


def samples(notation, interval):
    """`0+60x30 _x5 1x3` -> (time, value) of each sample there is."""
    found, n = [], 0
    for word in notation.split():
        match = _STEP.fullmatch(word)
        if match["first"] is None:
            n += int(match["gaps"] or 1)
            continue
        for k in range(int(match["times"] or 0) + 1):
            found.append((n * interval, float(match["first"]) + k * float(match["add"] or 0)))
            n += 1
    return found


def value(node, series, at):
    """A number or a vector. `series`: (labels, samples) of each."""
    kind = node[0]
    if kind == "number":
        return node[1]
    if kind == "time":
        return float(at)
    if kind == "series":
        return {labels: found[-1][1] for labels, found in _selected(node, series, at, LOOKBACK)}
    if kind in AGGREGATIONS:
        groups = {}
        for labels, number in value(node[1], series, at).items():
            groups.setdefault(tuple(pair for pair in labels if pair[0] in node[2]), []).append(number)
        return {labels: GATHER[kind](numbers) for labels, numbers in groups.items()}
    if kind in COUNT or kind in COMPARE or kind in ("and", "or", "unless"):
        return _joined(kind, value(node[1], series, at), value(node[2], series, at), node[3])
    over = {labels: [v for _, v in found] for labels, found in _selected(node[1], series, at, seconds(node[1][2]))}
    if kind == "last_over_time":
        return {labels: numbers[-1] for labels, numbers in over.items()}
    if kind == "avg_over_time":
        return {labels: sum(numbers) / len(numbers) for labels, numbers in over.items()}
    assert kind == "increase", f"{kind} cannot be evaluated here"
    steps = {labels: itertools.pairwise(numbers) for labels, numbers in over.items()}
    return {labels: sum(b - a if b >= a else b for a, b in pairs) for labels, pairs in steps.items()}


def _selected(node, series, at, span):
    """Of each series that is meant, the samples of the last `span` seconds, if there are any."""
    _, matchers, _, offset = node
    end = at - (seconds(offset) if offset else 0)
    for labels, found in series:
        if all(_matches(labels.get(label, ""), sign, wanted) for label, sign, wanted in matchers):
            inside = [sample for sample in found if end - span < sample[0] <= end]
            if inside:
                yield tuple(sorted(pair for pair in labels.items() if pair[0] != "__name__")), inside


def _matches(held, sign, wanted):
    same = held == wanted if sign in ("=", "!=") else bool(re.fullmatch(wanted, held))
    return same != sign.startswith("!")


def _joined(how, a, b, on):
    if not isinstance(a, dict) and not isinstance(b, dict):
        return COUNT[how](a, b)
    if not isinstance(b, dict):
        other = lambda labels: b  # noqa: E731
    else:
        key = lambda labels: tuple(p for p in labels if on is None or p[0] in on)  # noqa: E731
        by_key = {key(labels): number for labels, number in b.items()}
        assert len(by_key) == len(b), "several on the right match one on the left"
        other = lambda labels: by_key.get(key(labels))  # noqa: E731
    if not isinstance(a, dict):  # a number on the left: as each of those on the right has it
        assert how in COUNT or how in COMPARE
        pairs = {labels: (a, number) for labels, number in b.items()}
    elif how in ("and", "unless"):
        return {labels: number for labels, number in a.items() if (other(labels) is None) == (how == "unless")}
    else:
        pairs = {labels: (number, other(labels)) for labels, number in a.items() if other(labels) is not None}
    if how in COUNT:
        return {labels: COUNT[how](x, y) for labels, (x, y) in pairs.items()}
    return {labels: x if isinstance(a, dict) else y for labels, (x, y) in pairs.items() if COMPARE[how](x, y)}


def firing(rules, series, at):
    """(alert, run, severity) of all that fires at a time, looked at once a minute from 0 on."""
    found = set()
    for rule in rules:
        query, since = tree(rule["expr"]), {}
        for now in range(0, at + 1, 60):
            true = value(query, series, now)
            since = {labels: since.get(labels, now) for labels in true}
        waited = {labels for labels, first in since.items() if at - first >= seconds(rule["for"])}
        found |= {(rule["alert"], dict(labels)["run"], rule["labels"]["severity"]) for labels in waited}
    return found
