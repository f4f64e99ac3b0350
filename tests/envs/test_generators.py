"""Compiled generators draw Minigrid's levels: the same distribution, and levels that Minigrid itself finds in order."""

import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from minigrid.envs.babyai import goto, pickup
from minigrid.envs.babyai.core.levelgen import LevelGen
from minigrid.envs.babyai.core.verifier import PutNextInstr, SeqInstr

from envs.babyai.levels import HELD_OUT, Local, PickupLocal, Targets, build, names
from envs.babyai.symbols import COLOURS, EMPTY_CODE, WALL_CODE
from envs.native.babyai.generators import Generator
from envs.native.babyai.layout import (
    ANY_COLOUR,
    AT,
    CARRYING,
    CODE,
    CONTAINS,
    COUNT,
    DESCRIPTION,
    DIRECTION,
    DONE,
    KIND,
    KNOWN,
    LIMIT,
    LINK,
    MAP,
    MARGIN,
    MEMBER,
    NO_VERB,
    NONE,
    NOUNS,
    NOWHERE,
    ORDER,
    POSITION,
    PREVIOUS,
    PUT_NEXT,
    STRICT,
    STRIDE,
    THING,
    THINGS,
    VERB,
)
from envs.native.babyai.packing import pack, unpack

DOOR, KEY = 4, 5  # objects
LOCKED = 2

FAST = """
    GoToRedBallGrey GoToRedBall GoToRedBallNoDists GoToObj GoToLocal GoToRedBlueBall GoToDoor OpenRedDoor OpenDoor
    OpenTwoDoors OpenDoorsOrderN4 PickupLoc PickupLocal PickupDist PickupAbove PutNextLocal PutNextS5N2Carrying
    UnlockLocalDist KeyInBox UnlockPickupDist BlockedUnlockPickup UnlockToUnlock KeyCorridorS3R3 FindObjS5 ActionObjDoor
    OneRoomS8 MoveTwoAcrossS5N2 GoToObjMazeS4R2 MixedTrainLocal MiniBossLevel Text-GoTo-RedBallBlueBox-S20
"""
SLOW = """
    GoTo GoToImpUnlock GoToSeq GoToObjDoor GoToObjMazeOpen Open Pickup UnblockPickup Unlock PickUpSeqGoToLocal
    PickUpSeqPickUpLocal MixedTestLocal Synth SynthLoc SynthSeq BossLevel BossLevelNoUnlock
"""


# ---- rows as what is counted ----------------------------------------------------------------------------------------


def descriptions(row):
    """(number of the description, its clause) for each that the mission has."""
    clauses = [c for c in range(4) if row[VERB + c] != NO_VERB]
    return [(d, c) for c in clauses for d in range(2 * c, 2 * c + (2 if row[VERB + c] == PUT_NEXT else 1))]


def features(row, size):
    """What a level is like, {name: value}; nothing depends on the order of things."""
    stride, n, inner = int(row[STRIDE]), int(row[COUNT]), size - 1
    code, known = row[CODE : CODE + n].astype(int), row[KNOWN : KNOWN + n].astype(int)
    kind, colour, state = code // 18, code // 3 % 6, code % 3
    place = np.stack([known % stride - MARGIN, known // stride - MARGIN], 1)
    agent = np.array([row[AT] % stride - MARGIN, row[AT] // stride - MARGIN])
    room, home = place // inner, agent // inner
    far = np.abs(place - agent).sum(1)
    there = (known != NOWHERE) & (kind != DOOR)
    at_home = (room == home).all(1) & there
    doors, locked = kind == DOOR, (kind == DOOR) & (state == LOCKED)
    found = {
        "stride": stride,
        "limit": row[LIMIT],
        "kind": row[KIND],
        "sentence": tuple(row[[LINK, STRICT, *range(VERB, VERB + 4)]].tolist()),
        "direction": row[DIRECTION],
        "x": agent[0],
        "y": agent[1],
        "things": n,
        "carrying": row[CARRYING] != NONE,
        "contained": (row[CONTAINS : CONTAINS + n] != NONE).sum(),
        "different": len(set(code.tolist())),
        "red": (colour == 0).sum(),
        "grey": (colour == 5).sum(),
        "locked": locked.sum(),
        "open": (doors & (state == 0)).sum(),
        "colours of doors": len(set(colour[doors].tolist())),
        "doors at home": (doors & (room == home).all(1)).sum(),
        "where doors are": place[doors].sum() % 11,
        "nearest": far[there].min(initial=99),
        "farthest": far[there].max(initial=0),
        "things at home": at_home.sum(),
        "rooms with things": len({tuple(r) for r in room[there].tolist()}),
        "where things are": place[there].sum() % 7,
        "neighbours": (np.abs(place[there][:, None] - place[there]).sum(-1) == 1).sum(),
    }
    found |= {f"objects {k}": (kind == k).sum() for k in range(4, 8)}
    fits = [there & (kind == KEY) & (colour == colour[lock]) for lock in np.flatnonzero(locked)]
    ways = [np.abs(place[fit] - place[lock]).sum(1) for fit, lock in zip(fits, np.flatnonzero(locked), strict=True)]
    found |= {"keys": np.sum(fits), "ways to keys": sum(way.min(initial=99) for way in ways)}
    for d, _ in descriptions(row):
        meant = (row[MEMBER : MEMBER + n] >> d & 1 == 1) & (known != NOWHERE)
        rest, unique = divmod(int(row[DESCRIPTION + d]), 2)
        found |= {f"noun {d}": rest % 5, f"colour {d}": rest // 5 % 7, f"place {d}": rest // 35, f"the {d}": unique}
        found |= {f"meant {d}": meant.sum(), f"way {d}": far[meant].min(initial=99)}
        found[f"meant at home {d}"] = (meant & (room == home).all(1)).sum()
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in found.items()}


def p_value(one, other):
    """Chi-square: how likely samples at least so unlike are, if both come from one distribution."""
    a, b = Counter(one), Counter(other)
    share = len(one) / (len(one) + len(other))
    cells, rest = [], np.zeros(2)
    for value in sorted(a | b, key=lambda v: (a[v] + b[v], repr(v))):  # ties in an order that tells nothing of a and b
        rest += (a[value], b[value])
        if rest.sum() * min(share, 1 - share) >= 5:  # rare values are pooled until as many are expected
            cells.append(rest)
            rest = np.zeros(2)
    cells = np.array([*cells[:-1], cells[-1] + rest] if cells else [rest])
    freedom = len(cells) - 1
    if freedom == 0:
        return 1.0
    expected = cells.sum(1, keepdims=True) * (share, 1 - share)
    statistic = ((cells - expected) ** 2 / expected).sum()
    z = ((statistic / freedom) ** (1 / 3) - 1 + 2 / (9 * freedom)) / math.sqrt(2 / (9 * freedom))  # Wilson, Hilferty
    return math.erfc(z / math.sqrt(2)) / 2


def drawn(generator, n, first=0):
    rows = np.zeros((n, generator.row_size), np.int16)
    generator.fill(rows, np.arange(n), np.arange(first, first + n))
    return rows


def differences(simulator, generator, n):
    """Features of `n` Minigrid levels that are not distributed as those of the generator's, at 1 test in 10,000."""
    simulator.gen_obs = dict  # nobody looks
    row = np.zeros(generator.row_size, np.int16)
    theirs = []
    for seed in range(n):
        simulator.reset(seed=seed)
        pack(simulator, row)
        theirs.append(features(row, simulator.room_size))
    ours = [features(row, simulator.room_size) for row in drawn(generator, 3 * n)]
    every = set().union(*theirs, *ours)
    p = {f: p_value([level.get(f) for level in theirs], [level.get(f) for level in ours]) for f in every}
    return {f: value for f, value in p.items() if value < 1e-4 / len(every)}


# ---- distribution ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", FAST.split())
def test_levels_are_distributed_as_minigrids(level):
    simulator = build(level)
    assert differences(simulator, Generator.of(simulator), 300) == {}


@pytest.mark.slow
@pytest.mark.parametrize("level", SLOW.split())
def test_large_levels_are_distributed_as_minigrids(level):
    simulator = build(level)
    assert differences(simulator, Generator.of(simulator), 1000) == {}


@pytest.mark.parametrize(
    ("theirs", "ours", "seen"),
    [
        (goto.GoToLocal(), goto.GoToLocal(num_dists=7), "things"),
        (goto.GoToLocal(), goto.GoToLocal(room_size=9), "limit"),
        (build("GoToLocal"), pickup.PickupLoc(), "place 0"),
        (build("MiniBossLevel"), LevelGen(5, 2, 2, 7, locked_room_prob=0.5), "locked"),
        (PickupLocal(), LevelGen(8, 1, 1, 8, 0, False, False, True, ["pickup"], ["action"]), "colour 0"),
        (build("OpenDoor"), build("OpenDoorLoc"), "place 0"),
        (build("UnlockPickup"), build("UnlockPickupDist"), "nearest"),
    ],
)
def test_the_comparison_sees_a_difference(theirs, ours, seen):
    assert seen in differences(theirs, Generator.of(ours), 300)


def test_rejected_levels_are_not_drawn_and_others_are():
    """GoToRedBlueBall has one red or blue ball; UnblockPickup has something out of reach, Pickup has not."""
    for row in drawn(Generator.of(build("GoToRedBlueBall")), 500):
        codes = row[CODE : CODE + row[COUNT]]
        assert ((codes == 6 * 18) | (codes == 6 * 18 + 2 * 3)).sum() == 1
    simulator = build("UnblockPickup")
    for level, reachable in (("UnblockPickup", False), ("Pickup", True)):
        for row in drawn(Generator.of(build(level)), 50):
            unpack(row, 0, 1, simulator)
            assert simulator.check_objs_reachable(raise_exc=False) is reachable


def test_a_crowded_room_is_drawn_anew():
    """Of these levels one in 600 leaves the agent no cell from which it would not face a thing: Minigrid never ends."""
    rows = drawn(Generator.of(build("SynthS5R2")), 20_000)
    assert len(np.unique(rows, axis=0)) == len(rows)


# ---- every level ----------------------------------------------------------------------------------------------------


def test_every_level_has_a_compiled_generator():
    assert [name for name in names() if Generator.of(build(name)) is None] == []


@pytest.mark.parametrize("level", names())
def test_rows_agree_with_themselves(level):
    simulator = build(level)
    stride_of = set()
    for row in drawn(Generator.of(simulator), 200):
        stride, n = int(row[STRIDE]), int(row[COUNT])
        stride_of.add(stride)
        cells = row[MAP : MAP + (len(row) - MAP) // stride * stride].reshape(-1, stride)
        inner = cells[MARGIN : MARGIN + simulator.height, MARGIN:-MARGIN]
        assert (cells == WALL_CODE).sum() - (inner == WALL_CODE).sum() == cells.size - inner.size
        assert n <= THINGS
        assert row[MAP + row[AT]] == EMPTY_CODE
        assert 0 <= row[DIRECTION] < 4
        on_map = [t for t in range(n) if row[POSITION + t] != NOWHERE]
        for thing in on_map:
            assert row[MAP + row[POSITION + thing]] == row[CODE + thing] + THING * (thing + 1)
            assert row[KNOWN + thing] == row[POSITION + thing]
        assert (inner >= THING).sum() == len(on_map)
        held = {row[CARRYING]} | set(row[CONTAINS : CONTAINS + n].tolist()) - {NONE}
        assert set(range(n)) - set(on_map) == held - {NONE}
        for d, _ in descriptions(row):
            meant = row[MEMBER : MEMBER + n] >> d & 1 == 1
            noun, colour = int(row[DESCRIPTION + d]) // 2 % 5, int(row[DESCRIPTION + d]) // 10 % 7
            assert meant.any()
            for code in row[CODE : CODE + n][meant]:
                assert noun == 4 or 7 - code // 18 == noun
                assert colour in (ANY_COLOUR, code // 3 % 6)
        assert (row[PREVIOUS : PREVIOUS + 4] == NONE).all()
        assert (row[DONE : DONE + 4] == 0).all()
        assert row[ORDER] == 0
        assert (row[[CODE + n, MEMBER + n]] == 0).all()
        assert (row[[POSITION + n, KNOWN + n, CONTAINS + n]] == NONE).all()
    assert len(stride_of) == (2 if level.startswith("Mixed") else 1)


@pytest.mark.parametrize("level", names())
def test_minigrid_finds_the_levels_in_order(level):
    """Minigrid resolves the descriptions to the same things, accepts the mission, and gives it the same limit."""
    simulator = build(level)
    fixed = simulator.max_steps if simulator.fixed_max_steps else None
    reachable = isinstance(simulator, (goto.GoToLocal, goto.GoToRedBall, goto.GoTo, pickup.Pickup, Local, Targets))
    for row in drawn(Generator.of(simulator), 40, first=1000):
        unpack(row, 0, int(row[LIMIT]), simulator)
        if row[CARRYING] != NONE:  # Minigrid takes it off the map after it has looked
            y, x = divmod(int(row[KNOWN + row[CARRYING]]), int(row[STRIDE]))
            simulator.put_obj(simulator.carrying, x - MARGIN, y - MARGIN)
        for thing in filter(None, simulator.grid.grid):
            if thing.type == "door":
                simulator.room_from_pos(*thing.cur_pos).doors[0] = thing  # where the validation looks for locks
        for (d, _), meant in zip(descriptions(row), meanings(simulator.instrs), strict=True):
            ours = {id(thing) for thing in meant.obj_set}
            theirs, _ = meant.find_matching_objs(simulator)
            assert {id(thing) for thing in theirs if thing.type != "wall"} == ours
            assert row[DESCRIPTION + d] % 2 == (len(theirs) == 1)
        simulator.validate_instrs(simulator.instrs)
        rooms = simulator.num_rows * simulator.num_cols
        limit = simulator.num_navs_needed(simulator.instrs) * simulator.room_size**2 * rooms
        assert row[LIMIT] == (fixed or limit)
        assert not reachable or simulator.check_objs_reachable(raise_exc=False)


def meanings(instruction):
    """The descriptions of a Minigrid instruction, in the order of its sentence."""
    if isinstance(instruction, SeqInstr):
        return meanings(instruction.instr_a) + meanings(instruction.instr_b)
    if isinstance(instruction, PutNextInstr):
        return [instruction.desc_move, instruction.desc_fixed]
    return [instruction.desc]


@pytest.mark.parametrize(("level", "held_out"), [("MixedTrainLocal", False), ("MixedTestLocal", True)])
def test_held_out_pairs_are_named_in_tests_alone(level, held_out):
    pairs = Counter()
    for row in drawn(Generator.of(build(level)), 1000):
        for d, _ in descriptions(row):
            noun, colour = int(row[DESCRIPTION + d]) // 2 % 5, int(row[DESCRIPTION + d]) // 10 % 7
            pairs[(*COLOURS, None)[colour], NOUNS[noun]] += 1
    assert {pair in HELD_OUT for pair in pairs if pair[0]} == {held_out}
    assert set(pairs) == HELD_OUT if held_out else len(pairs) == 24 - len(HELD_OUT) + 1


# ---- the interface --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["GoToLocal", "MixedTrainLocal", "Unlock", "GoToDoor", "BossLevel", "Open"])
def test_a_level_is_a_function_of_its_seed(level):
    generator = Generator.of(build(level))
    rows = drawn(generator, 100)
    assert len(np.unique(rows, axis=0)) == 100
    again = np.full((130, generator.row_size + 50), 7, np.int16)  # longer rows, in another order, with gaps
    order = np.random.default_rng(0).permutation(130)[:100]
    generator.fill(again, order, np.arange(100))
    assert np.array_equal(again[order, : generator.row_size], rows)
    assert (again[order, generator.row_size :] == WALL_CODE).all()
    assert (np.delete(again, order, axis=0) == 7).all()
    assert np.array_equal(drawn(Generator.of(build(level)), 1, first=37)[0], rows[37])
    with ThreadPoolExecutor(4) as pool:
        assert all(np.array_equal(other, rows) for other in pool.map(lambda _: drawn(generator, 100), range(8)))


def test_the_limit_is_the_levels_own_or_the_given_one():
    assert set(drawn(Generator.of(build("GoToLocal")), 20)[:, LIMIT].tolist()) == {64}
    assert set(drawn(Generator.of(build("GoToLocal", max_steps=5)), 20)[:, LIMIT].tolist()) == {5}
    assert set(drawn(Generator.of(build("GoToLocal", max_steps=10**6)), 20)[:, LIMIT].tolist()) == {32767}
    assert set(drawn(Generator.of(build("MixedTrainLocal")), 200)[:, LIMIT].tolist()) == {64, 128}


def test_what_is_not_known_has_no_generator():
    class Changed(goto.GoToLocal):
        pass

    assert Generator.of(Changed()) is None
    assert Generator.of(goto.GoToLocal(num_dists=64)) is not None
    assert Generator.of(goto.GoToLocal(num_dists=65)) is None
    assert Generator.of(LevelGen(num_dists=51)) is not None
    assert Generator.of(LevelGen(num_dists=52)) is None  # with 12 doors and a key
    assert Generator.of(Local(["go to"] * 40)) is None


def test_wrong_arguments_are_refused():
    generator = Generator.of(build("GoToLocal"))
    rows, index, seeds = np.zeros((3, generator.row_size), np.int16), np.arange(2), np.arange(2)
    for wrong in (rows.astype(np.int32), rows[:, :-1].copy(), rows[0], rows[:, ::-1], np.asfortranarray(rows)):
        with pytest.raises(ValueError, match=r"rows must be contiguous int16 \[N, "):
            generator.fill(wrong, index, seeds)
    for wrong in (index.astype(np.int32), np.arange(4)[::2], index[:, None]):
        with pytest.raises(ValueError, match="index must be contiguous int64"):
            generator.fill(rows, wrong, seeds)
    for wrong in (seeds.astype(np.uint64), np.arange(3)):
        with pytest.raises(ValueError, match="seeds must be contiguous int64"):
            generator.fill(rows, index, wrong)
    for wrong in (np.array([0, 3]), np.array([-1, 0])):
        with pytest.raises(ValueError, match="there are 3 rows, but index goes from"):
            generator.fill(rows, wrong, seeds)
    generator.fill(rows, index[:0], seeds[:0])
    assert (rows == 0).all()
