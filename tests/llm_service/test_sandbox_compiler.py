"""Machine code of written programs: bit by bit what the interpreter gives, values and faults."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.peers import bk_programs
from llm_service.sandbox.compiler import emitter
from llm_service.sandbox.compiler.kinds import NotCompiled
from llm_service.sandbox.compiler.machine import Compiled
from llm_service.sandbox.grammar import CodeRefused, normalise
from llm_service.sandbox.interpreter import Program
from tests.llm_service.escapes import CONTAINED, looped
from tests.llm_service.test_sandbox_interpreter import PROGRAMS, body, programs, text_of, windows

KNOWLEDGE = Path(__file__).resolve().parents[2] / "configs" / "knowledge" / "babyai"


def recorded():
    """The programs of the extraction that comes with the project."""
    lines = (KNOWLEDGE / "programs.jsonl").read_text().splitlines()
    written = {json.loads(line)["code"] for line in lines} | {normalise((KNOWLEDGE / "program.py").read_text())}
    return sorted(code for code in written if code)


BENCHMARK = [bk_programs.text_of(function) for function in bk_programs.PROGRAMS]
NATURAL = {function.__name__: text_of(function) for function in PROGRAMS}


def flat(observations):
    """The observations of windows one after the other, and the index of each window."""
    return observations.reshape(-1, *observations.shape[2:]), np.arange(
        observations.shape[0] * observations.shape[1]
    ).reshape(observations.shape[:2])


def compiled(code, observations, actions):
    """The machine code for rows like these, which lie in windows, and a list of how many rows it has given up."""
    found = Compiled(code, (observations.dtype.str, observations.shape[1:]), (actions.dtype.str, actions.shape))
    given_up, program = [], found._program

    def asked(observations, actions, index):
        given_up.append(len(actions))
        return program(observations, actions, index)

    found._program = asked
    return found, given_up


def same(code, observations, actions):
    """Compare; returns how many rows were left to the interpreter, and how many have a fault."""
    found, given_up = compiled(code, observations, actions)
    got, wanted = found(observations, actions), Program(code)(observations, actions)
    assert got.values.dtype == np.float32
    assert got.values.tobytes() == wanted.values.tobytes(), code
    assert got.faults == wanted.faults, code
    return sum(given_up), sum(wanted.faults.values())


# ---- programs that there are ----------------------------------------------------------------------------------------


def test_all_recorded_programs_and_the_benchmark_s_have_machine_code():
    observations, actions = windows(rows=200)
    found = [same(code, observations, actions) for code in [*recorded(), *BENCHMARK]]
    assert len(recorded()) == 6
    assert len(found) == 11
    assert all(given_up == 0 for given_up, _ in found)


@pytest.mark.parametrize("name", NATURAL)
def test_natural_programs_give_what_the_interpreter_gives(name):
    """And nothing is left to that but rows with a fault."""
    given_up, faults = same(NATURAL[name], *windows(rows=300))
    assert given_up == faults


@pytest.mark.parametrize("name", CONTAINED)
def test_bombs_end_as_they_do_interpreted(name):
    observations, actions = windows(rows=3)
    code, fault = CONTAINED[name]
    try:
        given_up, faults = same(code, observations, actions)
    except NotCompiled:
        assert fault in ("steps", "memory", "type")  # of those that end by themselves, none is refused
    else:
        assert given_up == faults or "rounded" in name


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("code", BENCHMARK[1:4:2])
def test_numbers_of_any_size(code, dtype):
    observations, actions = windows(rows=60)
    same(code, observations.astype(dtype), actions.astype(np.int8 if dtype == np.uint64 else dtype))


def test_rows_may_share_observations_and_lie_in_any_order():
    observations, actions = windows(rows=80)
    views, index = observations[:, 0], np.random.default_rng(1).integers(0, 80, (80, 5))
    for code in BENCHMARK:
        found, _ = compiled(code, observations, actions)
        wanted = Program(code)(views, actions, index)
        assert found(views, actions, index).values.tobytes() == wanted.values.tobytes()
        alone = [found(views, actions[i : i + 1], index[i : i + 1]).values[0] for i in range(80)]
        assert np.array_equal(alone, wanted.values)


# ---- what is easily got wrong ---------------------------------------------------------------------------------------

TENTHS = "e = observations[-1][0][0] / 10 + 0.1"
VIEWS = ["for view in observations:", "    for row in view:", "        for cell in row:"]
DIFFICULT = {
    "sums of loops at once": ["x = 0.3", *VIEWS, "            x += cell / 10", "return x"],
    "two sums of one name": [
        "x = 0.1",
        *VIEWS,
        "            x += cell / 10",
        "        x -= row[0] / 7",
        "    x = x + view[0][1] / 3",
        "return x",
    ],
    "sums that begin anew": [
        "best = -1",
        "for view in observations:",
        "    mine = 0.7",
        "    for row in view:",
        "        for cell in row:",
        "            if cell: mine += cell / 10",
        "    best = max(best, mine)",
        "return best",
    ],
    "sums up to a break": [
        "x = 0.1",
        "for view in observations:",
        "    for row in view:",
        "        for cell in row:",
        "            x += cell / 10",
        "            if cell == 1: break",
        "        if row[1] == 2: continue",
        "        x += 0.1",
        "return x",
    ],
    "sums up to a return": [
        "x = 0.1",
        *VIEWS,
        "            x += cell / 7",
        "            if cell == 7: return x",
        "return x",
    ],
    "sums of whole numbers": ["n = 0", *VIEWS, "            n += cell * 3 - 1", "return observations[0][0][n % 3]"],
    "sums one after the other": [
        "x = y = 0.1",
        *VIEWS,
        "            y = x",
        "            x = x + cell / 10",
        "return x - y",
    ],
    "sums of a list": ["return sum([cell / 10 for view in observations for row in view for cell in row], 0.3)"],
    "lists exchanged": ["p, q = [1, 2, 3], [4, 5, 6]", "for a in actions: p, q = q, p", "return p[0] + 10 * q[1]"],
    "a list turned": [
        "p = [a + 1 for a in actions]",
        "p = p[::-1]",
        "p = p[1:] if p[0] > 1 else p",
        "return p[0] + len(p)",
    ],
    "a list changed in a loop over it": [
        "p, n = [1, 2, 3], 0",
        "for a in p:",
        "    n = n * 10 + a",
        "    p = [7, 8, 9, 10]",
        "return n + p[0]",
    ],
    "a list changed in a loop over pairs of it": [
        "p, n = [1, 2, 3], 0",
        "for a, b in zip(p, p[1:]):",
        "    n = n * 10 + a - b",
        "    p = [7, 8, 9, 10]",
        "return n + p[0]",
    ],
    "lists of unlike lengths": [
        "p = [[x for x in row if x > 0] for row in observations[-1]]",
        "return sum([len(x) * 10 + sum(x) for x in p]) + (p[0] == p[1])",
    ],
    "pairs": [
        "p = [(x, y) for x in range(3) for y in range(3) if observations[-1][x][y] > 1]",
        "return sum([x * 3 + y for x, y in p]) + ((1, 2) in p) + len(p[1:])",
    ],
    "a name of one and of many": ["x = 3", "for row in observations[-1]:", "    x = row[0]", "return x"],
    "a name from the last round": ["for row in observations[-1]:", "    y = row[1]", "return y + row[2]"],
    "a name from some rounds": ["for row in observations[-1]:", "    if row[0] > 1: y = row[1]", "return y"],
    "indices from the end": ["i = observations[-1][0][0] - 3", "return observations[i][i][i] + actions[i]"],
    "indices that are no whole numbers": ["return actions[observations[-1][0][0] / 2]"],
    "slices by number": ["i = observations[0][0][0] - 1", "return sum(actions[i:]) + len(actions[:: i]) * 10"],
    "ranges by number": [
        "i = observations[0][0][0] - 1",
        "return sum(range(5, i, -1)) + sum([x * x for x in range(i * 3)])",
    ],
    "choice among values": [TENTHS, "a, b = actions[0], e - 0.1", "return (a and b) + 10 * (b or a or 5)"],
    "truth of lists": ["p = [a for a in actions if a > 4]", "return 1 if p and p[0] > 5 else 2 if not p else 3"],
    "division": [TENTHS, "return e // 0.3 + e % 0.7 + -e // 0.3 + -e % 0.7 + (-7 // 2) + (7 % -3) + actions[0] // 2"],
    "remainders of whole numbers": [
        "a = actions[0] - 3",
        "return a // 2 + 10 * (a % 2) + 100 * (a // -2) + 1000 * (a % -2)",
    ],
    "rounding": [
        "x = actions[0] / 7 - 0.4",
        "return round(x) + round(x * 100) + int(x * 10) + round(2.5) + round(x, 1)",
    ],
    "powers": [TENTHS, "return e ** 3 + e ** 0.5 + (actions[0] - 1) ** 2 + e ** 0"],
    "extremes": [
        "p = [x for x in actions if x > 5]",
        "return max(p, default=-0.5) + min([x / 3 for x in p], default=7) + max(actions[0], 1.5, 2) + min(2, 1)",
    ],
    "any and all": [
        "x = any(1 / x > 0.3 for x in actions if x)",
        "return x + 2 * all([x < 6 for x in actions]) + 4 * any([]) + 8 * all(actions)",
    ],
    "comparison by chain": ["return 0 < actions[0] <= actions[1] < 6 and (1 if 1 / actions[0] < 1 else 0)"],
    "views compared": [
        "n = 0",
        "for one, other in zip(observations, observations[1:]): n += one == other",
        "return n + 10 * (observations[0][0] == [0, 1, 2]) + 100 * (observations[0] in observations[1:])",
    ],
    "numbers from enumerate": [
        "return sum([i * x for i, (x, y) in enumerate(zip(actions, actions[1:]), 3) if x != y or i > 4])"
    ],
    "zeros without a sign": ["return -0.0 * (actions[0] + 1)"],
    "large numbers": ["x = 10 ** 4 * 10 ** 4 * (actions[0] + 1)", "for i in range(actions[1]): x = x * 10", "return x"],
    "steps": ["n = 0", "for i in range(actions[0] * 40):", "    for j in range(255): n += 1", "return n"],
    "no value": ["if actions[0] > 3: return 1"],
}


@pytest.mark.parametrize("name", DIFFICULT)
def test_difficult_programs_are_the_same_to_the_bit(name):
    code = body(*DIFFICULT[name])
    random = np.random.default_rng(3)
    observations = random.integers(0, 4, (400, 3, 3, 3)).astype(np.uint8)
    observations[::5, 1] = observations[::5, 0]
    given_up, faults = same(code, observations, random.integers(0, 7, (400, 2)))
    assert given_up == faults or name in ("steps", "large numbers")
    assert faults < 400


def test_rounding_to_digits_is_that_of_python():
    random = np.random.default_rng(0)
    numbers = random.integers(-(10**6), 10**6, 3_000)
    numbers[:100] = np.arange(100) * 5  # halves
    for digits in (0, 1, 2, 3, 9):
        for divisor in (8, 10, 1000, 7):
            code = body(f"return round(observations[0] / {divisor}, {digits}) * 4096 % 1")
            found, given_up = compiled(code, numbers[:, None], np.zeros((3_000, 0), int))
            got = found(numbers[:, None], np.zeros((3_000, 0), int)).values
            assert got.tolist() == [np.float32(round(n / divisor, digits) * 4096 % 1) for n in numbers.tolist()]
            assert sum(given_up) == 0


# ---- any programs ---------------------------------------------------------------------------------------------------

DTYPES = [np.uint8, np.int8, np.int16, np.int64, np.uint32]
SHAPES = [(3, 3, 2), (4, 3, 3), (3, 5, 2)]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.integers(0, 10**6), st.sampled_from(DTYPES), st.sampled_from(SHAPES))
def test_any_program_gives_what_the_interpreter_gives(code, seed, dtype, shape):
    random = np.random.default_rng(seed)
    observations = random.integers(0, 4, (40, 3, *shape)).astype(dtype)
    try:
        same(code, observations, random.integers(0, 3, (40, 2)))
    except (CodeRefused, NotCompiled):
        assume(False)


# ---- what it refuses ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        body("x = actions[0]", "if x: x = (1, 2)", "return 1"),
        body("x = 1 if actions[0] else (1, 2)", "return 1"),
        looped("n += 1"),
        body("l = 0", "for i in range(9): l = (l, l)", "return 1"),
    ],
)
def test_what_has_no_machine_code_says_so(code):
    with pytest.raises(NotCompiled):
        compiled(code, *windows(rows=2))


def test_long_code_is_not_made(monkeypatch):
    monkeypatch.setattr(emitter, "MAX_BLOCKS", 20)
    compiled(body("return 1"), *windows(rows=2))
    with pytest.raises(NotCompiled, match="too long"):
        compiled(BENCHMARK[0], *windows(rows=2))


@pytest.mark.parametrize("shape", [(2, 3, 0), (2, 200, 3)])
def test_there_is_no_machine_code_for_rows_of_odd_shapes(shape):
    with pytest.raises(NotCompiled, match="shape"):
        compiled(body("return 1"), np.zeros(shape, int), np.zeros((2, shape[1] - 1), int))


def test_other_rows_are_errors():
    observations, actions = windows(rows=4)
    views, index = flat(observations)
    found, _ = compiled(BENCHMARK[0], observations, actions)
    for wrong in (index + 1, index - 1, index[:, 1:], index[1:]):
        with pytest.raises(ValueError, match="observations"):
            found(views, actions, wrong)
    for rows in ((views.astype(int), actions), (views[:, 1:], actions), (views, actions[:, 1:])):
        with pytest.raises(ValueError, match="no code"):
            found(*rows, index)
    found, _ = compiled(BENCHMARK[0], observations.astype(int), actions)
    with pytest.raises(ValueError, match="integers up to"):
        found(np.full(views.shape, 2**40), actions, index)
