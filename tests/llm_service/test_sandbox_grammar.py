"""The grammar of written programs: what stays, what is refused and why. Nothing here runs the refused ones."""

import ast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llm_service.sandbox import grammar
from llm_service.sandbox.grammar import CodeRefused, normalise
from tests.llm_service.escapes import CONTAINED, REFUSED, inside

GOOD = [
    "def potential(observations, actions):\n    return 0.0",
    '''
def potential(observations, actions):
    """How near the key is."""
    # distances are in cells
    best = 99
    for column, cells in enumerate(observations):
        for row, cell in enumerate(cells):
            if cell[0] == 5 and cell[1] in (0, 2):
                best = min(best, abs(column - 3) + abs(6 - row))
            elif cell[0] == 8:
                return 1.0
            else:
                continue
    return 1.0 / (1 + best) if best < 99 else 0.0
''',
    "def potential(observations, actions):\n"
    "    return sum([1 for v in observations for c in v for cell in c if cell[0] == 5]) ** 2 / 49",
    "def potential(observations, actions):\n    now, before = observations[-1], observations[-2]\n"
    "    return float(max([abs(a - b) for a, b in zip(now, before)], default=0))",
    "def potential(observations, actions):\n    worth = (0.0, 0.5, 1.0)\n"
    "    total = 0.0\n    for i in range(len(observations)):\n"
    "        total += worth[2] if not observations[i] else -worth[1]\n        if total > 3:\n            break\n"
    "    return round(total, 3)",
    "def potential(observations, actions):\n    return float(any(cell[0] == 5 for cell in observations[::-1][1:]))",
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


def why_refused(code):
    with pytest.raises(CodeRefused) as refused:
        normalise(code)
    return str(refused.value)


@pytest.mark.parametrize("name", REFUSED)
def test_escapes_are_refused_with_a_reason(name):
    reason = why_refused(REFUSED[name])
    assert 10 < len(reason) < 200
    assert "\n" not in reason
    plain = (
        "is not Python",
        "exactly one function",
        "the function must be",
        "only these can be called",
        "names are at most",
    )
    assert "; " in reason or any(words in reason for words in plain), reason


@pytest.mark.parametrize("name", CONTAINED)
def test_bombs_are_in_the_grammar(name):
    """So that the corpus tests the interpreter; one that is refused one day belongs to the others."""
    code, _ = CONTAINED[name]
    assert normalise(normalise(code)) == normalise(code)


def test_the_corpus_of_escapes_is_large():
    assert len(REFUSED) + len(CONTAINED) >= 300
    assert sum(why_refused(code).endswith("is not Python") for code in REFUSED.values()) < 20


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (
            ("x = 1", "y = observations.shape"),
            "line 3: an expression Attribute is not allowed; write nothing after a dot",
        ),
        (("while 1: pass",), "line 2: a statement While is not allowed; use for over a range and break"),
        (("import os",), "line 2: a statement Import is not allowed; use only the functions of the grammar"),
        (("x = {1: 2}",), "line 2: an expression Dict is not allowed; use if and elif, or a tuple"),
        (("x = actions[0, 1]",), r"line 2: an index is one number; write x\[i\]\[j\] instead of x\[i, j\]"),
        (("x = y",), "line 2: y is not a value that an earlier line assigned; assign it first"),
        (("x = None",), "line 2: a constant of type NoneType is not allowed; use a number, such as -1"),
        (("x = actions is actions",), "line 2: is and is not are not allowed; use == and !="),
        (("x = 2 ** 9",), "line 2: an exponent is one of 0, 1, 2, 3, 4, 0.5; multiply or divide instead"),
        (("actions = 1",), "line 2: actions cannot be assigned; use another name"),
        (("return",), "line 2: return needs a number; write return 0.0"),
    ],
)
def test_the_reason_says_where_and_what_to_write_instead(statements, reason):
    with pytest.raises(CodeRefused, match=reason):
        normalise(inside(*statements))


def test_other_arguments_are_refused():
    with pytest.raises(CodeRefused, match=r"the function must be potential\(observations, actions\)"):
        normalise("def potential(observation):\n    return 0.0")


def test_constants_above_the_function_move_into_it():
    code = "KEY = 5\nPLACES = [(1, 2), (3, 4)]\n\n" + inside("x = KEY")
    assert normalise(code).startswith("def potential(observations, actions):\n    KEY = 5\n    PLACES = ")
    assert "KEY is not" in why_refused(inside("x = KEY"))
    assert "exactly one function" in why_refused("if 1:\n    KEY = 5\n" + inside("pass"))


def test_names_of_comprehensions_end_with_them():
    normalise(inside("x = [sum(b * a for b in actions) for a in actions if a]", "y = [a for a in x]"))
    normalise(inside("a = 1", "x = [a for a in actions]", "y = a"))
    assert "b is not" in why_refused(inside("a = 1", "x = [b for a in actions]"))


def test_a_name_of_some_paths_is_known_after_them():
    normalise(inside("if actions: x = 1", "y = x", "for i in actions: z = i", "y = z + i"))
    assert "line 3: z is not" in why_refused(inside("for i in actions:", "    y = z", "    z = i"))


names = st.sampled_from(["x", "observations", "len", "potential", "_y", "__class__", "os"])
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
@example(["[os for os in observations]"])  # a name of its own, whatever it means elsewhere
def test_what_stays_reaches_only_its_argument(lines):
    try:
        normal = normalise(
            "def potential(observations, actions):\n"
            + "".join(f"    x = {line}\n" for line in lines)
            + "    return 0.0\n"
        )
    except CodeRefused:
        return
    assert normalise(normal) == normal
    nodes = list(ast.walk(ast.parse(normal)))
    own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    assert not own & set(grammar.FUNCTIONS)
    for node in nodes:
        assert not isinstance(node, FORBIDDEN)
        if isinstance(node, ast.Name):
            assert node.id in own | set(grammar.FUNCTIONS) | set(grammar.ARGUMENTS)
            assert not node.id.startswith("_")
        if isinstance(node, ast.Call):
            assert isinstance(node.func, ast.Name)
