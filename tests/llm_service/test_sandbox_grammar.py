"""The grammar of written programs: what stays, what is refused and why. Nothing here runs the refused ones."""

import ast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llm_service.sandbox import grammar
from llm_service.sandbox.grammar import CodeRefused, normalise

GOOD = [
    "def potential(observation):\n    return 0.0",
    '''
def potential(observation):
    """How near the key is."""
    # distances are in cells
    best = 99
    for column, cells in enumerate(observation):
        for row, cell in enumerate(cells):
            if cell[0] == 5 and cell[1] in (0, 2):
                best = min(best, abs(column - 3) + abs(6 - row))
            elif cell[0] == 8:
                return 1.0
            else:
                continue
    return 1.0 / (1 + best) if best < 99 else 0.0
''',
    "def potential(observation):\n"
    "    return sum([1 for v in observation for c in v for cell in c if cell[0] == 5]) ** 2 / 49",
    "def potential(observation):\n    now, before = observation[-1], observation[-2]\n"
    "    return float(max([abs(a - b) for a, b in zip(now, before)], default=0))",
    "def potential(observation):\n    worth = {1: 0.5, 2: 1.0}\n"
    "    total = 0.0\n    for i in range(len(observation)):\n"
    "        total += worth[2] if not observation[i] else -worth[1]\n        if total > 3:\n            break\n"
    "    return round(total, 3)",
    "def potential(observation):\n    return float(any(cell[0] == 5 for cell in observation[::-1][1:]))",
]


@pytest.mark.parametrize("code", GOOD)
def test_honest_programs_stay_and_their_normal_form_is_stable(code):
    normal = normalise(code)
    assert normalise(normal) == normal
    assert "#" not in normal
    assert '"""' not in normal
    assert ast.dump(ast.parse(normalise("\n" + code.replace("    ", "\t") + "   # a remark"))) == ast.dump(
        ast.parse(normal)
    )


def inside(*statements):
    return "def potential(observation):\n" + "".join(f"    {line}\n" for line in statements) + "    return 0.0\n"


ESCAPES = {
    "import": inside("import os"),
    "import before": "import os\n" + inside("pass"),
    "import from": inside("from os import system"),
    "dunder import": inside("x = __import__('os')"),
    "import by subscript": inside("x = __builtins__['__import__']('os')"),
    "class walk": inside("x = ().__class__.__base__.__subclasses__()"),
    "class walk from the argument": inside("x = observation.__class__"),
    "method": inside("observation.clear()"),
    "harmless attribute": inside("x = observation.shape"),
    "globals of the function": inside("x = potential.__globals__"),
    "the function itself": inside("x = potential(observation)"),
    "eval": inside("eval('1')"),
    "eval as expression": inside("x = eval('1')"),
    "exec": inside("x = exec('import os')"),
    "compile": inside("x = compile('1', '', 'eval')"),
    "open": inside("x = open('/etc/passwd')"),
    "input": inside("x = input()"),
    "print": inside("print(observation)"),
    "getattr": inside("x = getattr(observation, 'a')"),
    "type": inside("x = type(observation)"),
    "vars": inside("x = vars()"),
    "globals": inside("x = globals()"),
    "breakpoint": inside("breakpoint()"),
    "str": inside("x = str(observation)"),
    "format method": inside("x = '{0.__class__}'.format(observation)"),
    "format string": inside("x = f'{observation!r:>99999999}'"),
    "percent format": inside("x = '%999999999d' % 1"),
    "percent format by name": inside("s = '%999999999d'", "x = s % 1"),
    "lambda": inside("x = (lambda: 0)()"),
    "function as value": inside("x = len"),
    "function out of a list": inside("x = [len][0](observation)"),
    "function as a key": inside("x = max(observation, key=len)"),
    "call of a call": inside("x = len(observation)()"),
    "call of the argument": inside("x = observation()"),
    "overwritten builtin": inside("len = 3"),
    "nested function": inside("def f(): return 1"),
    "class": inside("class A: pass"),
    "decorator": "@staticmethod\n" + inside("pass"),
    "default argument": "def potential(observation, x=[]):\n    return 0",
    "second argument": "def potential(observation, x):\n    return 0",
    "default of the argument": "def potential(observation=print()):\n    return 0",
    "star argument": "def potential(*observation):\n    return 0",
    "keyword arguments": "def potential(observation, **rest):\n    return 0",
    "keyword only": "def potential(*, observation):\n    return 0",
    "argument annotation": "def potential(observation: __import__('os')):\n    return 0",
    "return annotation": "def potential(observation) -> print():\n    return 0",
    "annotated assignment": inside("x: print() = 1"),
    "other name": "def reward(observation):\n    return 0",
    "async": "async def potential(observation):\n    return 0",
    "two functions": inside("pass") + "def other(x):\n    return x",
    "code after": inside("pass") + "potential([])",
    "no function": "x = 1",
    "nothing": "",
    "while": inside("while True: pass"),
    "try": inside("try:\n        pass\n    except Exception:\n        pass"),
    "raise": inside("raise ValueError"),
    "with": inside("with observation as x: pass"),
    "assert": inside("assert observation"),
    "delete": inside("del observation"),
    "global": inside("global x"),
    "nonlocal": inside("nonlocal x"),
    "yield": inside("yield 1"),
    "yield as value": inside("x = yield 1"),
    "await": inside("x = await observation"),
    "match": inside("match observation:\n        case []: pass"),
    "walrus": inside("x = (y := 1)"),
    "item assignment": inside("observation[0] = 1"),
    "attribute assignment": inside("observation.x = 1"),
    "item in a loop target": inside("for observation[0] in observation: pass"),
    "star target": inside("*x, y = observation"),
    "star call": inside("x = max(*observation)"),
    "double star call": inside("x = max(**{})"),
    "double star dictionary": inside("x = {**observation}"),
    "unknown name": inside("x = secret"),
    "private name": inside("_x = 1"),
    "dunder in a name": inside("a__b = 1"),
    "wide letters": inside("ｅｖａｌ('1')"),
    "letters of another alphabet": inside("х = 1"),
    "power of names": inside("x = 2", "y = x ** x"),
    "power tower": inside("x = 9 ** 9 ** 9"),
    "big power": inside("x = 2 ** 1000000"),
    "negative power": inside("x = 0 ** -1"),
    "augmented power": inside("x = 2", "x **= 99"),
    "shift": inside("x = 1 << 999999"),
    "matrix product": inside("x = observation @ observation"),
    "invert": inside("x = ~1"),
    "repeated list": inside("x = [0] * 1000000000"),
    "repeated list, other way": inside("x = 1000000000 * [0]"),
    "repeated text": inside("x = 'a' * 1000000000"),
    "big number": inside("x = 10000000000"),
    "infinite number": inside("x = 1e999"),
    "endless digits": inside("x = " + "9" * 3900),
    "complex": inside("x = 1j"),
    "bytes": inside("x = b'a'"),
    "ellipsis": inside("x = ..."),
    "long text": inside(f"x = '{'a' * 201}'"),
    "escape sequence": inside("x = '\\x41'"),
    "big range": inside("for i in range(1000000000): pass"),
    "range by name": inside("n = 1000000000", "for i in range(n): pass"),
    "range in a sum": inside("x = sum(range(10**9))"),
    "empty range": inside("x = range()"),
    "deep loops": inside("x = [1 for a in observation for b in a for c in b for d in c for e in d]"),
    "loop over text": inside("for c in 'abc': pass"),
    "loop over a product": inside("for i in observation * 9999999: pass"),
    "loop with else": inside("for i in observation:\n        pass\n    else:\n        pass"),
    "set": inside("x = {1, 2}"),
    "set comprehension": inside("x = {a for a in observation}"),
    "dictionary comprehension": inside("x = {a: a for a in observation}"),
    "async comprehension": inside("x = [a async for a in observation]"),
    "no return": "def potential(observation):\n    pass",
    "return of nothing": "def potential(observation):\n    return",
    "null character": inside("x = 1\0"),
    "line continuation": "def potential(observation):\n    return \\\n 1",
    "not Python": "potential = ((((",
    "surrogate": inside("x = '\ud800'"),
    "deep brackets": inside("x = " + "(" * 1900 + "1" + ")" * 1900),
    "deep lists": inside("x = " + "[" * 90 + "1" + "]" * 90),
    "deep signs": inside("x = " + "-" * 3900 + "1"),
    "deep not": inside("x = " + "not " * 900 + "1"),
    "deep indices": inside("x = observation" + "[0]" * 1200),
    "deep attributes": inside("x = a" + ".a" * 1800),
    "deep conditions": inside("x = " + "1 if 1 else " * 300 + "1"),
    "many parts": inside("x = " + "+".join(["1"] * 500)),
    "too long": inside("# " + "a" * 4000),
    "long only in normal form": "def potential(observation):\n"
    + "".join(" " * d + "if 1:\n" for d in range(1, 20))
    + (" " * 20 + "x=1\n") * 90
    + " return 0",
}


@pytest.mark.parametrize("name", ESCAPES)
def test_escapes_are_refused_with_a_reason(name):
    reason = why_refused(ESCAPES[name])
    assert 10 < len(reason) < 200
    assert "\n" not in reason


def test_the_corpus_of_escapes_is_large():
    assert len(ESCAPES) >= 100
    assert sum(why_refused(code).endswith("is not Python") for code in ESCAPES.values()) < 15


def why_refused(code):
    with pytest.raises(CodeRefused) as refused:
        normalise(code)
    return str(refused.value)


def test_the_reason_says_where():
    with pytest.raises(CodeRefused, match="line 3: an expression Attribute is not allowed"):
        normalise(inside("x = 1", "y = observation.shape"))


names = st.sampled_from(["x", "observation", "len", "potential", "_y", "__class__", "os"])
leaves = st.one_of(st.integers().map(str), st.floats().map(repr), st.text(max_size=3).map(repr), names)
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "<<", "@", "<", "==", "and", "or", "in", "is"]
expressions = st.recursive(
    leaves,
    lambda e: st.one_of(
        st.tuples(e, st.sampled_from(OPERATORS), e).map(" ".join),
        st.tuples(names, e).map(lambda t: f"{t[0]}({t[1]})"),
        st.tuples(e, e).map(lambda t: f"({t[0]})[{t[1]}]"),
        st.tuples(e, names).map(lambda t: f"({t[0]}).{t[1]}"),
        st.tuples(e, names, e).map(lambda t: f"[{t[0]} for {t[1]} in {t[2]}]"),
        e.map(lambda t: f"({t}, [{t}], {{1: {t}}})"),
        e.map(lambda t: f"lambda: {t}"),
    ),
    max_leaves=8,
)
FORBIDDEN = (
    ast.Attribute,
    ast.Import,
    ast.ImportFrom,
    ast.Lambda,
    ast.While,
    ast.Try,
    ast.With,
    ast.JoinedStr,
    ast.NamedExpr,
)


@settings(max_examples=600, deadline=None)
@given(st.lists(expressions, max_size=3))
@example(["[os for os in observation]"])  # a name of its own, whatever it means elsewhere
def test_what_stays_reaches_only_its_argument(lines):
    try:
        normal = normalise(inside(*(f"x = {line}" for line in lines)))
    except CodeRefused:
        return
    assert normalise(normal) == normal
    nodes = list(ast.walk(ast.parse(normal)))
    own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    assert not own & grammar.FUNCTIONS
    for node in nodes:
        assert not isinstance(node, FORBIDDEN)
        if isinstance(node, ast.Name):
            assert node.id in own | grammar.FUNCTIONS | {"observation"}
            assert not node.id.startswith("_")
        if isinstance(node, ast.Call):
            assert isinstance(node.func, ast.Name)
