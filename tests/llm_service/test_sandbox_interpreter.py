"""Written programs run as Python would run them, for all rows together; Python itself is the reference."""

import importlib.util
import inspect
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from llm_service.sandbox.batch import MAX_STEPS
from llm_service.sandbox.grammar import CodeRefused
from llm_service.sandbox.interpreter import Program, run
from tests.llm_service.escapes import CONTAINED, inside

ROWS = 40


def windows(seed=0, rows=ROWS, shape=(5, 7, 7, 3)):
    """Views with few things, and actions."""
    random = np.random.default_rng(seed)
    observations = random.integers(0, 3, (rows, *shape), dtype=np.uint8)
    kinds = random.choice(np.array([1, 2, 4, 5, 8], np.uint8), (rows, *shape[:-1]))
    observations[..., 0] = np.where(random.random((rows, *shape[:-1])) < 0.93, 1, kinds)
    return observations, random.integers(0, 7, (rows, shape[0] - 1))


def outcomes(function, observations, actions):
    """What Python says of each row: a number, or None for an error."""

    def outcome(observation, action):
        try:
            return function(observation, action)
        except (ArithmeticError, LookupError, NameError, ValueError, TypeError):
            return None

    return [outcome(*row) for row in zip(observations.tolist(), actions.tolist(), strict=True)]


def agree(code, function, observations, actions):
    """The program gives what Python gives, and a row's value does not depend on the rows beside it."""
    expected = outcomes(function, observations, actions)
    got = run(code, observations, actions)
    assert got.values.dtype == np.float32
    for value, wanted in zip(got.values.tolist(), expected, strict=True):
        assert value == pytest.approx(0.0 if wanted is None else float(wanted), rel=1e-6, abs=1e-6)
    assert sum(got.faults.values()) == expected.count(None), (got.faults, expected)
    return got


def same_alone(code, observations, actions):
    """Bit by bit the same in other batches: reversed, in two parts, each row alone."""
    program = Program(code)
    whole = program(observations, actions)
    assert np.array_equal(program(observations[::-1], actions[::-1]).values[::-1], whole.values)
    third = len(observations) // 3
    parts = [program(observations[rows], actions[rows]) for rows in (slice(third), slice(third, None))]
    assert np.array_equal(np.concatenate([part.values for part in parts]), whole.values)
    alone = [program(observations[i : i + 1], actions[i : i + 1]) for i in range(len(observations))]
    assert np.array_equal(np.concatenate([one.values for one in alone]), whole.values)
    for kind, count in whole.faults.items():
        assert sum(one.faults.get(kind, 0) for one in alone) == count


# ---- programs as a language model writes them -----------------------------------------------------------------------


def nearest_key(observations, actions):
    best = 99
    for column, cells in enumerate(observations[-1]):
        for row, cell in enumerate(cells):
            if cell[0] == 5 and cell[1] in (0, 2):
                best = min(best, abs(column - 3) + abs(6 - row))
            elif cell[0] == 8:
                return 1.0
    return 1.0 / (1 + best) if best < 99 else 0.0


def things_seen(observations, actions):
    total = 0
    for view in observations:
        for column in view:
            for cell in column:
                if cell[0] == 5 or (cell[0] == 4 and cell[2] != 0):
                    total += 1
    return total / 10


def change(observations, actions):
    now, before = observations[-1], observations[0]
    changed = sum(1 for x in range(len(now)) for y in range(len(now[x])) if now[x][y][0] != before[x][y][0])
    return changed / 49 + 0.1 * len([move for move in actions if move == 2])


def approach(observations, actions):
    key = 5
    center = (3, 6)
    distances = []
    previous = 99
    gains = 0
    for view in observations:
        closest = 99
        for x in range(7):
            for y in range(7):
                if view[x][y][0] == key:
                    d = abs(x - center[0]) + abs(y - center[1])
                    if d < closest:
                        closest = d
        if closest < previous:
            gains += 1
        previous = closest
    return gains / len(observations) if not distances else 0.0


def counts_grow(observations, actions):
    counts = [sum(cell[0] == 5 for column in view for cell in column) for view in observations]
    for k in range(1, len(counts)):
        if counts[k] < counts[k - 1]:
            return -1.0
    return max(counts) / (1 + len(counts))


def first_channel(observations, actions):
    score = 0.0
    for view in observations:
        for column in view:
            for cell in column:
                for channel in cell:
                    if channel == 5:
                        score += 0.5
                        break
    return score


def find_then_stop(observations, actions):
    place = (-1, -1)
    for x, column in enumerate(observations[-1]):
        for y, cell in enumerate(column):
            if cell[0] == 8:
                place = (x, y)
                break
        if place[0] >= 0:
            break
    if place == (-1, -1):
        return 0
    x, y = place
    return 1 - (abs(x - 3) + abs(y - 6)) / 12


def place_of_nearest(observations, actions):
    best, bx, by = 1000, 0, 0
    for x, column in enumerate(observations[-1]):
        for y, cell in enumerate(column):
            d = (x - 3) ** 2 + (y - 6) ** 2
            if cell[0] in {4, 5} and d < best:
                best = d
                bx, by = x, y
    return best**0.5 + 10 * bx + by


def repeated_moves(observations, actions):
    same = 0
    for one, other in zip(actions, actions[1:]):  # noqa: B905, RUF007
        same += one == other
    return -same / max(1, len(actions) - 1)


def last_action(observations, actions):
    return float(actions[-1] == 2) if actions else 0.0


def any_door(observations, actions):
    return float(any(cell[0] == 4 and cell[2] == 0 for column in observations[-1] for cell in column))


def all_clear(observations, actions):
    return 1.0 if all(cell[0] != 2 for cell in observations[-1][3]) else 0.0


def column_sums(observations, actions):
    sums = [sum(cell[0] for cell in column) for column in observations[-1]]
    return max(sums) - min(sums) + 0.01 * sums[3]


def flattened(observations, actions):
    cells = [cell for column in observations[-1] for cell in column if cell[0] != 1]
    if not cells:
        return -1
    first = cells[0]
    return first[0] + 0.1 * len(cells) + cells[-1][1] * 0.01


def uneven_index(observations, actions):
    spots = [x * 7 + y for x in range(7) for y in range(7) if observations[-1][x][y][0] == 5]
    return spots[1]


def divide_by_seen(observations, actions):
    keys = sum(cell[0] == 5 for column in observations[-1] for cell in column)
    return 1 / keys


def set_on_some_paths(observations, actions):
    for column in observations[-1]:
        for cell in column:
            if cell[0] == 8:
                found = cell[1]
    return found


def halves(observations, actions):
    left = sum(c[0] == 5 for column in observations[-1][:3] for c in column)
    right = sum(c[0] == 5 for column in observations[-1][4:] for c in column)
    return round((left - right) / 3, 2)


def around_the_player(observations, actions):
    x, y = 3, 5
    score = 0
    for dx, dy in [(0, 1), (1, 0), (0, -1), (-1, 0)]:
        if 0 <= x + dx < 7 and 0 <= y + dy < 7:
            score += observations[-1][x + dx][y + dy][0]
    return score / 4


def weighted(observations, actions):
    weights = [0.1, 0.2, 0.3, 0.4, 0.5]
    total = 0.0
    for weight, view in zip(weights, observations):  # noqa: B905
        total += weight * sum(c[0] == 5 for column in view for c in column)
    return total


def skip_walls(observations, actions):
    score = 0
    for column in observations[-1]:
        for cell in column:
            if cell[0] == 2:
                continue
            if cell[0] == 1:
                score += 1
            else:
                score -= 2
    return score


def longest_run(observations, actions):
    best, run = 0, 0
    for action in actions:
        run = run + 1 if action == 2 else 0
        best = max(best, run)
    return best / 4


def default_of_extremes(observations, actions):
    far = max([abs(x - 3) for x in range(7) if observations[-1][x][6][0] == 5], default=-1)
    near = min((y for y in range(7) if observations[-1][3][y][0] == 5), default=9)
    return far * 10 + near


def nothing_seen(observations, actions):
    return min(y for y in range(7) if observations[-1][3][y][0] == 5)


def logic_of_values(observations, actions):
    first = observations[-1][0][0][0]
    second = observations[0][0][0][1]
    return (first and second) + 10 * (second or first) + (not second)


def integers(observations, actions):
    a = observations[-1][2][2][1] - 5
    return a // 2 + a % 3 + int(a / 2) + round(a / 2) + -a // 4 + a**3 * 0.001 + int(True)


def unchanged(observations, actions):
    return float(observations[-1] == observations[-2]) + 0.5 * (observations[-1][0] == observations[-2][0])


def reversed_search(observations, actions):
    for age, view in enumerate(observations[::-1]):
        if any(cell[0] == 8 for column in view for cell in column):
            return 1 / (1 + age)
    return 0


def index_by_row(observations, actions):
    scores = [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5]
    return sum(scores[action] for action in actions) + scores[observations[-1][0][0][1]]


def beyond_the_end(observations, actions):
    n = observations[-1][0][0][1] + 5
    return observations[-1][n][0][0]


def positions_as_pairs(observations, actions):
    doors = [(x, y) for x in range(7) for y in range(7) if observations[-1][x][y][0] == 4]
    keys = [(x, y) for x in range(7) for y in range(7) if observations[-1][x][y][0] == 5]
    return min([abs(a - c) + abs(b - d) for a, b in doors for c, d in keys], default=20) / 20


def last_seen_moves(observations, actions):
    value = 0
    seen = 0
    for view, action in zip(observations[1:], actions):  # noqa: B905
        for column in view:
            for cell in column:
                seen = cell[0]
        value = value * 0.5 + seen + action
    return value + seen


PROGRAMS = [
    function
    for name, function in list(globals().items())
    if inspect.isfunction(function) and list(inspect.signature(function).parameters) == ["observations", "actions"]
]


def text_of(function):
    return inspect.getsource(function).replace(f"def {function.__name__}(", "def potential(")


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_natural_programs_give_what_python_gives(function):
    code, (observations, actions) = text_of(function), windows()
    got = agree(code, function, observations, actions)
    assert np.ptp(got.values) > 0 or function in (all_clear, unchanged)
    same_alone(code, observations, actions)


def test_there_are_enough_natural_programs():
    assert len(PROGRAMS) >= 25


# ---- faults and budgets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONTAINED)
def test_bombs_end_with_finite_values_and_a_fault(name):
    code, fault = CONTAINED[name]
    observations, actions = windows(rows=3)
    got = run(code, observations, actions)
    assert np.isfinite(got.values).all()
    assert got.faults == ({fault: 3} if fault else {})
    if fault:
        assert not got.values.any()


def one_number(rows):
    """Windows of one number for each row, and no actions."""
    return np.array(rows)[:, None], np.zeros((len(rows), 0), int)


def body(*statements):
    return "def potential(observations, actions):\n" + "".join(f"    {line}\n" for line in statements)


@pytest.mark.parametrize(
    ("statements", "values", "faults"),
    [
        (["return 1 / observations[0]"], [0, 1, 0.5, 1 / 3], {"division": 1}),
        (["return (4, 5, 6)[observations[0]]"], [4, 5, 6, 0], {"index": 1}),
        (["if observations[0] > 1: x = 7", "return x"], [0, 0, 7, 7], {"unassigned": 2}),
        (["if observations[0] > 2: return 7"], [0, 0, 0, 7], {"no value": 3}),
        (
            ["x = 10", "for i in range(observations[0]): x = x**4 + x**4 * x**3", "return x"],
            [10, 10010000, 0, 0],
            {"too large": 2},
        ),
        (
            ["n, m = 0, 30000", "for i in range(observations[0] * m): n += 1", "return n"],
            [0, 30000, 60000, 0],
            {"steps": 1},
        ),
        (["return min([x for x in range(observations[0])])"], [0, 0, 0, 0], {"empty": 1}),
        (["x, y = [i for i in range(observations[0])]", "return x + y"], [0, 0, 1, 0], {"unpack": 3}),
        (["return (1 - observations[0]) ** 0.5"], [1, 0, 0, 0], {"root": 2}),
        (["return sum([1 / x for x in range(observations[0], 3)])"], [0, 1.5, 0.5, 0], {"division": 1}),
        (
            ["if observations[0]: x = 5", "else: x = (1, 2)", "return x[1] if observations[0] == 0 else x"],
            [2, 5, 5, 5],
            {},
        ),
        (["return len([][:: observations[0]])"], [0, 0, 0, 0], {"index": 1}),
        (["return sum((1, 2, 3)[:: observations[0]])"], [0, 6, 4, 1], {"index": 1}),
        (["return round(1234.5678, observations[0] - 1)"], [1230, 1235, 1234.6, 1234.57], {}),
        (["return round(1234.5678, observations[0] / 2)"], [1235, 0, 1234.6, 0], {"type": 2}),
        (["x = 1 if observations[0] else actions", "return x"], [0, 1, 1, 1], {"type": 1}),
        (["return observations[0] and 1 / observations[0]"], [0, 1, 0.5, 1 / 3], {}),
        (["return 1 / observations[0] if observations[0] != 0 else 9"], [9, 1, 0.5, 1 / 3], {}),
        (["return any(1 / x > 0.4 for x in (2, observations[0]))"], [1, 1, 1, 1], {}),
        (["for x in (2, observations[0]):", "    if 1 / x > 0.4: return 1 / x", "return 0"], [0.5] * 4, {}),
        (
            ["for x in (4, observations[0]):", "    if 1 / x > 0.4: return 1 / x", "return 8"],
            [0, 1, 0.5, 8],
            {"division": 1},
        ),
    ],
)
def test_a_fault_ends_its_row_alone(statements, values, faults):
    observations, actions = one_number([0, 1, 2, 3])
    got = run(body(*statements), observations, actions)
    assert got.values.tolist() == pytest.approx(values)
    assert got.faults == faults
    same_alone(body(*statements), observations, actions)


def test_steps_are_counted_for_each_row_alone():
    code = body("n = 0", "for i in range(observations[0]):", "    for j in range(255): n += 1", "return n")
    most = MAX_STEPS // 256
    observations, actions = one_number([most, most + 1, 3, 10**6])
    got = run(code, observations, actions)
    assert got.values.tolist() == [255 * most, 0, 3 * 255, 0]
    assert got.faults == {"steps": 2}
    same_alone(code, observations, actions)


def test_a_row_that_has_returned_spends_no_more():
    code = body(
        "if observations[0] == 0: return 7",
        "for i in range(256):",
        "    if i == 3 and observations[0] == 1: return 8",
        "    for j in range(256):",
        "        if j > 256: return 9",
        "for i in range(256): pass",
        "return 10",
    )
    got = run(code, *one_number([0, 1, 2, 0]))
    assert got.values.tolist() == [7, 8, 0, 7]
    assert got.faults == {"steps": 1}
    same_alone(code, *one_number([0, 1, 2, 0]))


def test_rows_that_go_on_together_spend_for_themselves_only():
    loops = [f"{'    ' * depth}for i{depth} in range(99):" for depth in range(3)]
    code = body("n = 0", "if observations[0] == 0: return 7", *loops, "            n += 1", "return n")
    got = run(code, *one_number([0, 1, 2, 0]))
    assert got.values.tolist() == [7, 0, 0, 7]
    assert got.faults == {"steps": 2}


def test_a_name_that_holds_a_list_is_not_added_to():
    code = body(
        "x = actions",
        "for i in range(3):",
        "    if i < observations[0]: x += 1",
        "return len(x)",
    )
    observations = np.array([[0, 0], [2, 0]])
    got = run(code, observations, np.zeros((2, 1), int))
    assert got.values.tolist() == [1, 0]
    assert got.faults == {"type": 1}


@pytest.mark.parametrize("n", [0.5, 1.5, 2.5, -0.5, -2.5, 1e5, 0.1, 2.675, 1.115, 5.015, -7.0])
def test_rounding_is_that_of_python(n):
    row = "observations[0]"
    for text, value in [
        (f"round({n} + {row} * 0)", round(n)),
        (f"round({n} + {row} * 0, 2)", round(n, 2)),
        (f"round({n} + {row} * 0, -1)", round(n, -1)),
        (f"int({n} + {row} * 0)", int(n)),
        (f"({n} + {row} * 0) // 0.7", n // 0.7),
        (f"({n} + {row} * 0) % -0.7", n % -0.7),
        (f"({n} + {row} * 0) ** 3", n**3),
    ]:
        assert run(body(f"return {text}"), *one_number([1, 2])).values[1] == np.float32(value), text


def test_many_rows_and_large_views_run_in_parts():
    code = text_of(things_seen)
    observations, actions = windows(rows=2_500)
    got = run(code, observations, actions)
    assert np.array_equal(got.values[2_000:], run(code, observations[2_000:], actions[2_000:]).values)
    observations, actions = windows(rows=100, shape=(2, 84, 84, 3))
    agree(code, things_seen, observations, actions)


def shared(rows=300, envs=8, seed=0):
    """Windows of several players side by side, some of whose episodes have just begun: observations and index."""
    random = np.random.default_rng(seed)
    observations, actions = windows(seed, rows + 4 * envs, (1, 7, 7, 3))[0][:, 0], random.integers(0, 7, (rows, 4))
    age = random.integers(0, 12, rows)
    back = np.minimum(np.arange(4, -1, -1), age[:, None])
    return observations, actions, np.arange(rows)[:, None] + envs * (4 - back)


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_rows_that_share_observations_are_as_rows_that_do_not(function):
    observations, actions, index = shared()
    program = Program(text_of(function))
    got, alone = program(observations, actions, index), program(observations[index], actions)
    assert np.array_equal(got.values, alone.values)
    assert got.faults == alone.faults
    mixed = np.random.default_rng(1).permutation(len(index))
    assert np.array_equal(program(observations, actions[mixed], index[mixed]).values, got.values[mixed])


@pytest.mark.parametrize("index", [np.array([[0, 3]]), np.array([[-1, 0]]), np.array([[0, 1, 2]]), np.array([0, 1])])
def test_an_index_of_other_observations_is_an_error(index):
    with pytest.raises(ValueError, match="observations"):
        Program(body("return 1"))(np.zeros((3, 2), int), np.zeros((1, 1), int), index)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint64])
def test_numbers_one_after_the_other_are_found_as_others_are(dtype):
    observations, actions = np.array([[3], [4], [7], [8], [0], [120]]).astype(dtype), np.zeros((6, 0), int)
    for members, found in (
        ("4, 5, 6, 7", [0, 1, 1, 0, 0, 0]),
        ("0,", [0, 0, 0, 0, 1, 0]),
        ("7, 6", [0, 0, 1, 0, 0, 0]),
    ):
        assert run(body(f"return observations[0] in ({members})"), observations, actions).values.tolist() == found


def test_arguments_are_not_changed_and_may_be_read_only():
    observations, actions = windows()
    observations.flags.writeable = actions.flags.writeable = False
    before = observations.copy(), actions.copy()
    for function in PROGRAMS:
        run(text_of(function), observations, actions)
    assert np.array_equal(before[0], observations)
    assert np.array_equal(before[1], actions)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.uint32, np.int64, np.uint64])
def test_any_integers_count_as_python_s(dtype):
    code = body("x = observations[-1][0]", "return x - 100 - observations[0][0] * x + (x == 300)")
    observations = np.array([[[100], [120]], [[7], [0]]]).astype(dtype)
    assert run(code, observations, np.zeros((2, 1), int)).values.tolist() == [20 - 12_000, -100]


@pytest.mark.parametrize(
    ("observations", "actions"),
    [
        (np.zeros((3, 2), int), np.zeros((3, 2), int)),
        (np.zeros((3, 2), int), np.zeros((2, 1), int)),
        (np.zeros(3, int), np.zeros((3, 0), int)),
        (np.zeros((3, 2)), np.zeros((3, 1), int)),
        (np.zeros((3, 2), int), np.zeros((3, 1))),
        (np.full((3, 2), 2**60), np.zeros((3, 1), int)),
        (np.full((3, 2), -(2**63)), np.zeros((3, 1), int)),
    ],
)
def test_other_arrays_are_errors(observations, actions):
    with pytest.raises(ValueError, match="observations"):
        run(inside("pass"), observations, actions)


def test_no_rows_have_no_values():
    got = run(text_of(nearest_key), *windows(rows=0))
    assert got.values.shape == (0,)
    assert got.faults == {}


def test_programs_outside_the_grammar_are_refused_here_too():
    with pytest.raises(CodeRefused):
        Program(inside("import os"))


# ---- any programs ---------------------------------------------------------------------------------------------------


class Writer:
    """Writes a program by drawing choices; knows which names hold numbers and which hold lists of numbers."""

    def __init__(self, draw):
        self.draw, self.numbers, self.lists, self.lines, self.names = draw, ["a", "b"], [], [], 0

    def pick(self, *choices):
        return self.draw(st.sampled_from(choices))

    def number(self, depth=3):
        if depth == 0:
            return self.pick("0", "1", "2", "-1", "3", "0.5", *self.numbers, *self.numbers)
        e = lambda: self.number(depth - 1)  # noqa: E731
        match self.pick(*range(18)):
            case 0 | 1:
                return f"({e()} {self.pick('+', '-', '*')} {e()})"
            case 2:
                return f"({e()} {self.pick('//', '%')} {self.pick('2', '-3', 'a', '(1 + abs(b))', e())})"
            case 3 | 4:
                return self.test(depth - 1)
            case 5:
                return f"({e()} if {self.test(depth - 1)} else {e()})"
            case 6:
                return f"({e()} {self.pick('and', 'or')} {e()})"
            case 7:
                return f"{self.pick('min', 'max')}({e()}, {e()})"
            case 8:
                digits = self.pick("", f", {self.index(depth)}")
                return self.pick(f"round({e()}{digits})", f"{self.pick('int', 'abs', 'float')}({e()})", f"{e()} ** 2")
            case 9:
                return f"len({self.list(depth - 1)})"
            case 10:
                return f"sum({self.list(depth - 1)})"
            case 11:
                return f"{self.pick('min', 'max')}({self.list(depth - 1)}, default={e()})"
            case 12:
                return f"max({self.pick('[0, 2]', 'actions', self.list(depth - 1))})"
            case 13:
                return f"{self.list(depth - 1)}[{self.index(depth)}]"
            case 14:
                return f"actions[{self.index(depth)}]"
            case 15:
                view = f"observations[{self.pick('-1', '0', '1')}]"
                return f"{view}[{self.index(depth)}][{self.index(1)}][{self.pick('0', '1', '-1')}]"
            case 16:
                return f"{self.pick('any', 'all', 'sum')}({self.comprehension(depth - 1)})"
            case _:
                return self.number(0)

    def index(self, depth):
        number = f"int({self.number(depth - 1)})"
        return self.pick("0", "-1", f"{number} % 2", f"{number} % 2", number)

    def test(self, depth):
        e = lambda: self.number(max(0, depth - 1))  # noqa: E731
        match self.pick(*range(6)):
            case 5:
                one, other = (  # to Python a tuple never equals a list; here they are one kind
                    self.pick("[1, 0]", "actions", "observations[-1][0][1]", f"[{self.comprehension(1)}]") for _ in "ab"
                )
                return f"({one} {self.pick('==', '!=')} {other})"
            case 0:
                return f"(not {self.pick(e(), self.list(0))})"
            case 1:
                return f"({e()} in ({e()}, 2, {e()}))"
            case 2:
                return f"({e()} < {e()} <= {e()})"
            case 3:
                return f"({e()} {self.pick('in', 'not in')} {self.list(max(0, depth - 1))})"
            case _:
                return f"({e()} {self.pick('<', '<=', '>', '>=', '==', '!=')} {e()})"

    def list(self, depth=2):
        if depth == 0:
            row = "observations[-1][0][1]"
            return self.pick("[1, 2, 0]", "actions", row, "(2, 0.5)", "[]", *self.lists, *self.lists)
        match self.pick(*range(6)):
            case 0:
                return f"[{self.comprehension(depth - 1)}]"
            case 1:
                bound = f":{self.index(1)}:{self.pick('', '-1', 'int(b)')}"
                return f"{self.list(depth - 1)}[{self.pick('1:', ':-1', '::-1', 'int(a):', '-2:2', '::2', bound)}]"
            case 2:
                step = self.pick("", "", ", 2", ", -1", f", {self.index(1)}")
                return f"range(int({self.number(0)}), int({self.number(0)}) + 2{step})"
            case 3:
                return f"observations[{self.pick('-1', '0')}][{self.index(depth)}][{self.pick('0', '1')}]"
            case 4:
                return f"[{self.number(depth - 1)}, {self.number(depth - 1)}]"
            case _:
                return self.list(0)

    def comprehension(self, depth):
        self.names += 1
        name, over, before = f"i{self.names}", self.list(depth), list(self.numbers)
        self.numbers = [*before, name, name]
        second = ""
        if self.pick(False, False, True):
            second = f" for {name}x in {self.list(0)}"
            self.numbers.append(name + "x")
        condition = f" if {self.test(depth)}" if self.pick(True, False) else ""
        text = f"{self.number(depth)} for {name} in {over}{second}{condition}"
        self.numbers = before
        return text

    def block(self, indent, depth, in_loop):
        for _ in range(self.draw(st.integers(1, 3))):
            self.statement("    " * indent, indent, depth, in_loop)

    def statement(self, space, indent, depth, in_loop):
        kind = self.pick(*range(12 if depth else 6))
        name = self.pick("a", "b", "c", "d")
        match kind:
            case 0 | 1:
                self.lines.append(f"{space}{name} = {self.number()}")
                self.numbers.append(name)
            case 2:
                name = self.pick(*self.numbers)
                self.lines.append(f"{space}{name} {self.pick('+=', '-=', '*=')} {self.number(2)}")
            case 3:
                name = self.pick(*self.numbers)
                self.lines.append(f"{space}{name} = {self.pick('min', 'max')}({name}, {self.number(2)})")
            case 4:
                name = self.pick("p", "q")
                self.lines.append(f"{space}{name} = {self.list()}")
                self.lists.append(name)
            case 5:
                self.lines.append(f"{space}{name}, b = {self.number(1)}, {self.number(1)}")
                self.numbers += [name, "b"]
            case 6 | 7:
                self.lines.append(f"{space}if {self.test(2)}:")
                self.block(indent + 1, depth - 1, in_loop)
                if in_loop and self.pick(True, False):
                    self.lines.append(f"{space}    {self.pick('break', 'continue')}")
                if self.pick(True, False):
                    self.lines.append(f"{space}else:")
                    self.block(indent + 1, depth - 1, in_loop)
            case 8:
                self.lines += [f"{space}if {self.test(2)}:", f"{space}    return {self.number(2)}"]
            case _:
                self.names += 1
                name = f"k{self.names}"
                match self.pick(*range(6)):
                    case 4:
                        target, over = name + "r", f"observations[{self.pick('-1', '0')}]"
                        self.lines.append(f"{space}for {target} in {over}:")
                        space, indent = space + "    ", indent + 1
                        target, over = f"{name}, {name}x", f"{name}r[{self.index(1)}:]"
                    case 5:
                        target, over = f"{name}, {name}x", f"[({self.comprehension(1).replace(' for', ', 1) for', 1)}]"
                    case 0:
                        target, over = f"{name}, {name}x", f"enumerate({self.list()})"
                    case 1:
                        target, over = f"{name}, {name}x", f"zip({self.list(1)}, {self.list(1)})"
                    case 2:
                        target, over = f"{name}, {name}x", f"observations[-1][{self.index(1)}]"
                    case _:
                        target, over = name, self.list()
                self.lines.append(f"{space}for {target} in {over}:")
                self.numbers += target.split(", ")
                self.block(indent + 1, depth - 1, True)


@st.composite
def programs(draw):
    writer = Writer(draw)
    writer.lines += ["def potential(observations, actions):", "    a, b = actions"]
    writer.block(1, 2, False)
    writer.block(1, 2, False)
    writer.lines.append(f"    return {writer.number()}")
    return "\n".join(writer.lines) + "\n"


def imported(code):
    """The function, from a module of its own; nothing evaluates text here."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "written.py"
        path.write_text(code)
        spec = importlib.util.spec_from_file_location("written", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module.potential


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.integers(0, 10**6))
def test_any_program_gives_what_python_gives(code, seed):
    try:
        program = Program(code)
    except CodeRefused:
        assume(False)
    random = np.random.default_rng(seed)
    observations = random.integers(0, 4, (7, 3, 3, 3, 2), dtype=np.int16)
    actions = random.integers(0, 3, (7, 2))
    got, expected = program(observations, actions), outcomes(imported(code), observations, actions)
    same_alone(code, observations, actions)
    if "too large" in got.faults or "steps" in got.faults:
        return
    for value, wanted in zip(got.values.tolist(), expected, strict=True):
        assert value == pytest.approx(0.0 if wanted is None else float(wanted), rel=1e-6, abs=1e-6)
    assert sum(got.faults.values()) == expected.count(None), (got.faults, expected)
