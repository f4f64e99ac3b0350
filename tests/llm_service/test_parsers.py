"""Whatever a model says, a parser returns a value of its grammar or raises `Malformed`, in time linear in the reply.

The values are checked by code that shares nothing with the parsers.
"""

import ast
import hashlib
import json
import random
import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_service import tasks
from llm_service.errors import Malformed
from llm_service.records import Reply, canonical
from llm_service.world import NOWHERE, Goal, World

HOUSE = World(
    name="house",
    about="A house.",
    actions=["go"],
    slots={"colour": ["red", "blue"], "thing": ["key", "ball"]},
    goals=[Goal(goal="pick up the {colour} {thing}"), Goal(goal="open a door")],
)
KNOWN = {f"pick up the {c} {t}" for c in ("red", "blue") for t in ("key", "ball")} | {"open a door"}
STEPS = {"observations": [["You see a red key"]], "actions": ["pick up"]}
QUESTIONS = {  # task -> (inputs, world); some tasks have several grammars
    "goals of a world": ("suggest_goals", {"observation": ["a"]}, HOUSE),
    "goals of a list": ("suggest_goals", {"observation": ["a"], "candidates": ["open a door", "rest"]}, HOUSE),
    "free goals": ("suggest_goals", {"observation": ["a"], "free": True}, HOUSE),
    "any goals": ("suggest_goals", {"observation": ["a"]}, NOWHERE),
    "preference": ("label_preference", {"first": ["a"], "second": ["b"]}, HOUSE),
    "instruction": ("caption_trajectory", {**STEPS, "style": "instruction"}, HOUSE),
    "request": ("caption_trajectory", {**STEPS, "style": "request"}, HOUSE),
    "potential": ("write_potential", {}, HOUSE),
    "judgement": ("judge_trajectory", {**STEPS, "instruction": "a", "rubric": ["speed", "goal reached"]}, HOUSE),
}
CODE = """def potential(observations, actions):
    best = 0
    for cell in observations:
        best += cell[0] == 5
    return best / 7"""
VALID = {
    "suggest_goals": [
        "- open the door\n- pick up the red key",
        "1. rest\n2) open door\n",
        "- nothing",
        "- find water",
    ],
    "label_preference": ["It is better.\nverdict: first", "**Verdict:** tie.", "verdict: unsure\n"],
    "caption_trajectory": ["caption: Go and get the key, then rest.", 'Sure.\nCaption: "Turn left 2 times."'],
    "write_potential": [f"```python\n{CODE}\n```", f"Here:\n```py\n{CODE}  # near\n```\nDone."],
    "judge_trajectory": [
        '{"scores": {"speed": 7, "goal reached": "8/10"}, "overall": 9.0, "reason": "Good."}',
        'So: ```json\n{"scores": {"Speed": 0, "Goal reached": 10}, "overall": "3"}\n``` {',
    ],
}
WORDS = (
    "\0 \ud800 \udfff \u202e \u2028 \u200b \x1b \x85 \ufeff \U000e0041 \u0301 \u0130 \xdf \ufb01 \uff11 \xb2 "
    "{ } {} [ ] ( ) ``` ` \" ' \\ \\u0000 : , . / // - * 1. -1 0 10 11 1e999 1e5 NaN Infinity true null "
    "verdict: caption: first second tie unsure nothing http://a.b ../ <|im_end|> "
    '{"scores": "overall": "speed": def potential(observations, actions): return import lambda __class__ .__class__ '
    "% ** 9**9"
)
ODD = [
    *WORDS.split(" "),
    "\n",
    "\r\n",
    "\t",
    "    ",
    " ",
    "",
    "9" * 5000,
    "{" * 3000,
    "[" * 3000,
    "`" * 3000,
    "(" * 300,
]


# ---- independent checkers -------------------------------------------------------------------------------------------


def check_goals(value, question):
    allowed = {"goals of a world": KNOWN, "goals of a list": {"open a door", "rest"}}.get(question)
    assert set(value) == {"goals", "dropped"}
    assert len(value["goals"]) == len(set(value["goals"])) <= 5
    assert type(value["dropped"]) is int
    assert value["dropped"] >= 0
    for goal in value["goals"]:
        if allowed is None:
            assert re.fullmatch(r"[^\W_]?[^\W_]*(?:[ ,'-]+[^\W_]+)*[ ,'-]*", goal), goal
            assert 1 <= len(goal.split()) <= 12
            assert len(goal) <= 120
        else:
            assert goal in allowed


def check_preference(value, question):
    assert value in ("first", "second", "tie", "unsure")


def check_caption(value, question):
    caption = value.pop("caption")
    assert not value
    assert 1 <= len(caption.split()) <= 60
    assert len(caption) <= 600
    assert not set("/\\{}[]<>`@#$%&=|~^_\n\t") & set(caption)
    assert not re.search(r"\w[.:]\w", caption)
    assert all(c.isprintable() for c in caption)
    if question == "request":
        assert not re.search(r"[0-9]", caption)


NODES = (
    "Module FunctionDef arguments arg Assign AugAssign If For Return Pass Break Continue Constant Name Load Store "
    "BinOp Add Sub Mult Div FloorDiv Mod Pow UnaryOp USub UAdd Not BoolOp And Or Compare Eq NotEq Lt LtE Gt GtE In "
    "NotIn Is IsNot IfExp Subscript Slice Tuple List Set Dict ListComp GeneratorExp comprehension Call keyword"
)
PURE = {"len", "min", "max", "abs", "sum", "any", "all", "range", "enumerate", "float", "int", "round", "zip"}


def check_potential(value, question):
    tree = ast.parse(value["code"])
    assert set(value) == {"code", "hash"}
    assert len(value["code"]) <= 4000
    assert [type(node).__name__ for node in tree.body] == ["FunctionDef"]
    stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for node in ast.walk(tree):
        assert type(node).__name__ in NODES.split()
        if isinstance(node, ast.Call):
            assert node.func.id in PURE
        elif isinstance(node, ast.Name):
            assert node.id in stored | PURE | {"observations", "actions"}
            assert not node.id.startswith("_")
    size = len(value["code"].encode()).to_bytes(8, "little")
    assert value["hash"] == hashlib.blake2b(size + value["code"].encode(), digest_size=16).hexdigest()


def check_judgement(value, question):
    assert set(value) == {"scores", "overall", "reason"}
    assert set(value["scores"]) == {"speed", "goal reached"}
    assert all(type(points) is int and 0 <= points <= 10 for points in [*value["scores"].values(), value["overall"]])
    assert len(value["reason"]) <= 500
    assert not set("/\\{}[]<>`@#$%&=|~^_\n\t") & set(value["reason"])
    assert not re.search(r"\w[.:]\w", value["reason"])


CHECK = {
    "suggest_goals": check_goals,
    "label_preference": check_preference,
    "caption_trajectory": check_caption,
    "write_potential": check_potential,
    "judge_trajectory": check_judgement,
}


def outcome(question, text):
    """The value, checked, or None if the reply is malformed."""
    name, asked, world = QUESTIONS[question]
    module = tasks.task(name)
    try:
        value = module.parse(Reply(text), module.Inputs(**asked), 0, world)
    except Malformed as malformed:
        message = str(malformed)
        assert message.startswith("expected ")
        assert len(message) < 300
        assert "\n" not in message
        return None
    again = json.loads(canonical(value))
    assert again == value
    assert canonical(value).encode()  # no surrogates
    CHECK[name](again, question)
    return value


# ---- fuzzing: 9 questions x (250 + 750 + 260) replies ---------------------------------------------------------------

characters = st.characters(codec=None)  # surrogates too
raw = st.text(characters, max_size=60)
jsons = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(["7", "7/10", "-1", "", "speed"])),
    lambda inner: st.dictionaries(st.sampled_from(["scores", "overall", "reason", "speed", "goal reached"]), inner),
    max_leaves=8,
).map(json.dumps)
structured = st.one_of(jsons, st.lists(st.sampled_from(ODD), max_size=24).map("".join))
seeds = st.integers(0, 2**64)


def mutated(name, seed):
    """A valid reply with a few edits."""
    draw = random.Random(seed)
    text = draw.choice(VALID[name])
    for _ in range(draw.randrange(5)):
        start = draw.randrange(len(text) + 1)
        end = min(len(text), start + draw.randrange(7))
        edit = draw.choice([draw.choice(ODD), text[start:end] * 2, text, chr(draw.randrange(sys.maxunicode + 1))])
        text = text[:start] + edit + text[end:]
    return text


def fuzz(question, replies, examples):
    """Values of that many replies, None for malformed ones."""
    found = []

    @settings(max_examples=examples, deadline=None, derandomize=True, database=None)
    @given(replies)
    def one(text):
        found.append(outcome(question, text))

    one()
    assert len(found) >= examples
    return found


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_raw_reply_surprises(question):
    fuzz(question, raw, 250)


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_mutated_reply_surprises(question):
    found = fuzz(question, seeds.map(lambda seed: mutated(QUESTIONS[question][0], seed)), 750)
    assert 50 < sum(value is None for value in found) < 700  # both branches are met


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_structured_reply_surprises(question):
    fuzz(question, structured, 260)


@given(st.lists(st.floats(), max_size=4))
@settings(max_examples=400, deadline=None)
def test_no_scores_surprise(scores):
    module = tasks.task("yes_no")
    inputs = module.Inputs(question="is it?")
    try:
        odds = module.parse(Reply(scores=tuple(scores)), inputs, 0, HOUSE)
    except Malformed:
        assert len(scores) != 2 or any(s != s or s == float("inf") for s in scores)
        return
    assert 0.0 <= module.combine([odds, 0.0], inputs)["probability"] <= 1.0


# ---- size -----------------------------------------------------------------------------------------------------------

HUGE = {
    "backticks": "`" * 1_000_000,
    "fences": "```python\n" * 100_000,
    "null characters": "\0" * 200_000,
    "surrogates": "\ud800" * 200_000,
    "accents": "e" + "\u0301\u0316" * 100_000,
    "braces": "{" * 200_000,
    "objects": '{"scores":' * 20_000,
    "empty objects": "{}" * 100_000,
    "brackets": "[" * 10_000 + "]" * 10_000,
    "object of brackets": '{"scores": ' + "[" * 50_000,
    "open strings": '{"' * 100_000,
    "escapes": '{"scores": "' + "\\u0041" * 30_000,
    "digits": '{"overall": ' + "9" * 200_000 + "}",
    "keys": '{"scores": {' + ",".join(f'"{i}": 1' for i in range(20_000)) + "}}",
    "bullets": "- " * 100_000,
    "goals": "- open a door\n" * 20_000,
    "unknown goals": "- pick up the red red red\n" * 8_000,
    "long line": "- " + "open a door " * 20_000,
    "numbers": "1" * 200_000 + ". rest",
    "verdicts": "verdict: first\n" * 15_000,
    "colons": "verdict" + ":" * 200_000,
    "captions": "caption: " + "a." * 100_000,
    "words": "caption: " + "A " * 100_000,
    "blanks": " " * 200_000 + "caption: a",
    "line ends": "\r\n\u2028\x85" * 60_000,
    "parentheses": "```python\n" + "(" * 200_000 + "\n```",
    "deep program": "```python\ndef potential(observations, actions):\n    return " + "-" * 3_900 + "1\n```",
    "stars": "*_" * 100_000,
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_huge_replies_are_answered(question):
    for text in HUGE.values():
        outcome(question, text)


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_stands_beyond_the_limit_is_not_read(question):
    limit = 65_536
    valid = VALID[QUESTIONS[question][0]][0]
    assert outcome(question, valid.ljust(limit) + "\nverdict: second\n- rest\n```\ncaption: no {") == outcome(
        question, valid
    )
    assert outcome(question, "\n".ljust(limit) + valid) is None


def steps(question, text):
    """How many lines of Python a parse runs."""
    name, asked, world = QUESTIONS[question]
    module = tasks.task(name)
    inputs = module.Inputs(**asked)
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        module.parse(Reply(text), inputs, 0, world)
    except Malformed:
        pass
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("question", QUESTIONS)
def test_twice_the_reply_is_at_most_twice_the_work(question):
    for name in (
        "braces",
        "objects",
        "open strings",
        "bullets",
        "goals",
        "verdicts",
        "colons",
        "words",
        "accents",
        "fences",
    ):
        once, twice = (steps(question, HUGE[name][:size]) for size in (8_000, 16_000))
        assert twice <= 2.2 * once + 50, name
