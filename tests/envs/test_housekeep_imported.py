"""Published episodes as houses: what the file says is kept, what it does not say makes a house that can be played."""

import math
import subprocess
import sys

import numpy as np
import pytest

import envs
from envs.housekeep import Expert, imported
from envs.housekeep.names import OBJECTS
from envs.housekeep.people import Preferences, episodes
from envs.native.housekeep.access import can_grip, can_lift, obstruct
from envs.native.housekeep.layout import CELL, EDGE, HEADINGS, NOWHERE, STACKED, houses
from envs.native.housekeep.motion import stands
from tests.envs.housekeep_data import DATA, SCENES, needs_data
from tests.envs.scenes import FLAT, Piece, episode, written


@pytest.fixture
def flat(tmp_path):
    """Three episodes in a flat of two rooms: as it is, with another one right from the start, and empty of wrongs."""
    second = episode(objects=(("herring_fillets", 7, (1,)), ("pan", 2, (0, 2))), position=(7.0, 0.15, 3.0), turned=1.0)
    return written(tmp_path / "Rs_int.json.gz", episode(), second, episode(objects=(("herring_fillets", 1, (1,)),)))


def world(path, number, n=1, **options):
    return envs.make(
        "housekeep/House", n, seed=3, **{"episode": f"{path}:{number}", "numbering": "file", "size": 32} | options
    )


def row(found, spawn="all"):
    rows = houses(1)
    imported.build(rows, 0, found, spawn)
    return rows


def one(tmp_path, **changed):
    """The house of an episode that was changed."""
    return row(episodes.read(written(tmp_path / "Rs_int.json.gz", episode(**changed)))[0])


def corners(rows):
    """bool [rows, columns]: where players can stand, found cell by cell."""
    free = rows.room[0] > 0
    for n in range(1, int(rows.pieces[0]) + 1):
        if rows.bottom[0, n] < 1.5 and rows.top[0, n] > 0.1:
            r0, c0, r1, c1 = rows.box[0, n]
            free[r0:r1, c0:c1] = False
    found = np.zeros_like(free)
    found[1:, 1:] = free[1:, 1:] & free[:-1, 1:] & free[1:, :-1] & free[:-1, :-1]
    return found


def check(rows, found, objects):
    """What every imported house is."""
    size, count = rows.size[0], int(rows.pieces[0])
    assert count == len(found.pieces)
    np.testing.assert_array_equal(rows.name[0, 1 : count + 1], found.pieces)
    inside = np.zeros((EDGE, EDGE), bool)
    inside[1 : size[0] - 1, 1 : size[1] - 1] = True
    assert not rows.room[0][~inside].any()  # closed
    free = corners(rows)
    first = tuple((rows.start[0, ::-1] / CELL).astype(int))
    assert (rows.start[0] == np.array(first[::-1]) * CELL).all()
    assert free[first]
    assert stands(rows, 0, *rows.start[0].tolist())
    left, waiting = free.copy(), [first]
    while waiting:
        r, c = waiting.pop()
        if left[r, c]:
            left[r, c] = False
            waiting += [(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)]
    assert not left.any()  # all floor hangs together
    over = np.zeros((EDGE, EDGE), int)
    for n in range(1, count + 1):
        r0, c0, r1, c1 = rows.box[0, n]
        over[r0:r1, c0:c1] += 1
        assert rows.room[0, r0:r1, c0:c1].all()
        assert 0 <= rows.bottom[0, n] < rows.top[0, n]
        slots = rows.slots[0, n, : rows.capacity[0, n]].tolist()
        assert len(set(slots)) == len(slots) >= 1
        for s, cell in enumerate(slots):
            r, c = divmod(cell, EDGE)
            assert (r0 <= r < r1, c0 <= c < c1) == (True, True)
            assert rows.slot[0, r, c, rows.stacked[0, r, c].tolist().index(n)] == s
    assert over.max() <= STACKED
    assert (rows.slot[0] != NOWHERE).sum() == rows.capacity[0, 1 : count + 1].sum()
    for stack in rows.stacked[0].reshape(-1, STACKED):
        there = stack[stack > 0]
        assert (rows.top[0, there[:-1]] <= rows.bottom[0, there[1:]] + 1e-6).all()
    assert rows.object[0, :objects].tolist() == found.objects[:objects].tolist()
    assert rows.lies[0, :objects].tolist() == (found.start[:objects] + 1).tolist()
    assert rows.objects[0] == objects
    assert (np.bincount(rows.lies[0, :objects], minlength=128) <= rows.capacity[0]).all()


def test_a_flat_is_what_its_file_says(flat):
    for found in episodes.read(flat)[:2]:
        for spawn in ("all", "misplaced"):
            rows = row(found, spawn)
            check(rows, found, 2 if spawn == "all" else found.misplaced)
            solid = np.empty((EDGE, EDGE), np.uint8)
            obstruct(rows, 0, solid)
            assert all(can_grip(rows, 0, solid, n) for n in range(1, len(FLAT) + 1))
            assert all(can_lift(rows, 0, solid, int(n), 0) for n in rows.lies[0, : rows.objects[0]])


def test_footprints_and_the_start_are_where_they_were(flat):
    """To half a cell; x along columns, z against rows. The first piece has the lowest x and z."""
    (found, *_) = episodes.read(flat)
    rows = row(found)
    left, back = rows.box[0, 1, 1] * CELL, rows.box[0, 1, 2] * CELL
    for n, piece in enumerate(FLAT, 1):
        r0, c0, r1, c1 = rows.box[0, n] * CELL
        real = piece.x, piece.x + piece.dx, piece.z, piece.z + piece.dz
        np.testing.assert_allclose((c0 - left, c1 - left, back - r1, back - r0), real, atol=0.26)
    start = rows.start[0, 0] - left, back - rows.start[0, 1]
    np.testing.assert_allclose(start, (2.0, 1.5), atol=0.26)


ROOM = (
    Piece("kitchen_0", "counter", 1.5, -1, 1, 0.5, 0.4),
    Piece("kitchen_0", "bottom_cabinet_no_top", -1, 1.5, 0.5, 1, 0.4),
    Piece("kitchen_0", "chair", 1.75, 4.5, 0.5, 0.5, 0.5),
    Piece("kitchen_0", "fridge", 4.5, 1.5, 0.75, 0.75, 0.85),
)
"""Around somebody at (2, 2): before who looks along -z, on the left, behind and on the right."""


@pytest.mark.parametrize("quarters", range(4))
def test_left_stays_left(tmp_path, quarters):
    """The player looks along -z, or is turned to the left from there by quarters."""
    turned = quarters * math.pi / 2
    entry = episode(ROOM, (("pan", 3, (1,)),), position=(2.0, 0.15, 2.0), turned=turned)
    env = world(written(tmp_path / "Rs_int.json.gz", entry), 0)
    env.begin()

    def columns(piece):
        """Of the picture, in which piece 0 to 3 is seen."""
        return np.nonzero(env.pictures.ids[0] == piece % 4 + 1)[1]

    assert abs(columns(quarters).mean() - 15.5) < 5
    for _ in range(3):  # by 60 degrees to the left
        env.advance(np.array([1]))
    assert columns(quarters + 1).mean() < 15.5
    assert not len(columns(quarters + 3))
    away = abs(env.players.heading[0] - 3 - (turned + math.pi / 2) / math.tau * HEADINGS)
    assert min(away, HEADINGS - away) <= 0.5


def test_rooms_are_apart_and_doors_lead_through(flat):
    rows = row(episodes.read(flat)[0])
    of_piece = [int(rows.room[0, r, c]) for r, c in rows.box[0, 1 : len(FLAT) + 1, :2]]
    assert len(set(of_piece[:5])) == len(set(of_piece[5:9])) == 1
    assert of_piece[0] != of_piece[5]
    assert of_piece[9:] == [of_piece[0], of_piece[5]]  # windows are in the nearest room
    r0, r1 = rows.box[0, 1, 2], rows.box[0, 10, 0]
    walls = [(rows.room[0, r1:r0, c] == 0).sum() for c in range(rows.box[0, 2, 3], rows.box[0, 7, 1])]
    assert max(walls) >= 2  # the rooms do not stand open to each other from end to end


def test_rooms_far_apart_and_a_start_between_are_joined(tmp_path):
    rooms = tuple(
        Piece(f"{name}_0", "shelf", x, z, 0.8, 0.3, 1.0)
        for name, x, z in (("kitchen", 0, 0), ("bedroom", 9, 0), ("closet", 0, 9), ("garage", 9, 9))
    )
    path = written(tmp_path / "Rs_int.json.gz", episode(rooms, (("pan", 1, (0,)),), position=(4.5, 0.15, 4.5)))
    (found,) = episodes.read(path)
    check(row(found), found, 1)


def test_a_closed_ring_of_furniture_around_the_start_keeps_it_inside(tmp_path):
    """What cannot be walked to is no floor; and the start is inside."""
    ring = (
        Piece("kitchen_0", "counter", 0, 0, 4, 0.5),
        Piece("kitchen_0", "counter", 0, 3.5, 4, 0.5),
        Piece("kitchen_0", "counter", 0, 0.5, 0.5, 3),
        Piece("kitchen_0", "counter", 3.5, 0.5, 0.5, 3),
        Piece("bedroom_0", "bed", 6, 0, 1.8, 2.1),
    )
    path = written(tmp_path / "Rs_int.json.gz", episode(ring, (("pan", 0, (4,)),), position=(2.0, 0.15, 2.0)))
    (found,) = episodes.read(path)
    rows = row(found)
    check(rows, found, 1)
    assert corners(rows).sum() == 11 * 11


def heap(path, seed):
    """An episode of pieces of any size anywhere."""
    random = np.random.default_rng(seed)
    kinds = ["counter", "bed", "shelf", "chair", "carpet", "top_cabinet", "table", "sink", "microwave", "window"]
    rooms = ["kitchen_0", "bedroom_0", "closet_0", "lobby_0", "None"]
    width = random.uniform(5, 12)
    pieces = []
    for _ in range(random.integers(1, 3 * width)):
        x, z, dx, dz, y = (*random.uniform(0, width, 2), *random.uniform(0.02, 2, 2), random.uniform(0, 2))
        pieces.append(Piece(str(random.choice(rooms)), str(random.choice(kinds)), x, z, dx, dz, y))
    x, z = random.uniform(-1, width + 1, 2)
    objects = [(OBJECTS[k].replace(" ", "_"), int(random.integers(len(pieces))), ()) for k in range(3)]
    return episodes.read(written(path, episode(pieces, objects, (x, 0.15, z))))[0]


@pytest.mark.parametrize("seed", range(12))
def test_any_heap_of_furniture_is_a_house(tmp_path, seed):
    found = heap(tmp_path / "Rs_int.json.gz", seed)
    check(row(found), found, 3)


def test_boards_over_one_another_stay_apart(tmp_path):
    """A counter and two shelves of it over each other, and a cabinet that the counter hides: all have room on them."""
    boards = (
        Piece("kitchen_0", "bottom_cabinet", 0, 0, 1, 0.5, 0.44),
        Piece("kitchen_0", "counter", 0, 0, 1, 0.5, 0.91),
        Piece("kitchen_0", "counter", 0, 0, 1, 0.5, 1.35),
        Piece("kitchen_0", "chair", 3, 3, 0.5, 0.5, 0.5),
    )
    rows = one(tmp_path, pieces=boards, objects=(("pan", 3, (0,)),), position=(2.0, 0.15, 2.0))
    assert (rows.bottom[0, 2:4] - rows.top[0, 1:3] >= 0.2).all()
    assert rows.top[0, 3] < 1.5
    assert rows.capacity[0, 1:4].tolist() == [6, 6, 6]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_small_piece_has_room_for_what_lies_on_it(tmp_path, count):
    """A chair of less than two cells, on which published episodes have two objects; all can be lifted."""
    chair = Piece("kitchen_0", "chair", 2.01, 0.98, 0.36, 0.36, 0.5)
    objects = tuple((name, len(FLAT), (0,)) for name in ("pan", "knife", "fork")[:count])
    rows = one(tmp_path, pieces=(*FLAT, chair), objects=objects, position=(2.0, 0.15, 2.5))
    r0, c0, r1, c1 = rows.box[0, len(FLAT) + 1]
    assert count <= (r1 - r0) * (c1 - c0) <= count + 1  # and no larger than that needs
    solid = np.empty((EDGE, EDGE), np.uint8)
    obstruct(rows, 0, solid)
    assert all(can_lift(rows, 0, solid, len(FLAT) + 1, slot) for slot in range(count))


def test_a_world_of_an_episode_lists_its_goals(flat):
    spec = envs.spec("housekeep/House", episode=f"{flat}:1", numbering="file", spawn="all")
    places = sorted({f"{piece.room[:-2]} {piece.kind}".replace("_", " ") for piece in FLAT if piece.room != "None"})
    places = sorted([*places, "window"])
    things = ["herring fillets", "pan"]
    assert spec.goals == (
        *(f"pick {thing}" for thing in things),
        *(f"{thing} in {place}" for thing in things for place in places),
    )
    assert spec.id == "housekeep/House"
    fewer = envs.spec("housekeep/House", episode=f"{flat}:1", numbering="file")
    assert fewer.goals == tuple(goal for goal in spec.goals if "pan" not in goal)


def test_a_description_needs_no_compiler(flat):
    code = (
        "import sys, envs; "
        f"print(len(envs.spec('housekeep/House', episode={f'{flat}:0'!r}, numbering='file').goals), "
        "'numba' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["11", "False"]


@pytest.mark.parametrize("starts", ["fixed", "seed"])
def test_an_episode_is_played_and_put_in_order(flat, starts):
    """The same things in each episode; goals come up as the expert goes, and it ends in success."""
    env = world(flat, 1, n=4, starts=starts, spawn="all")
    env.begin()
    assert len({(float(x), float(y)) for x, y in zip(env.players.x, env.players.y, strict=True)}) == (
        1 if starts == "fixed" else 4
    )
    expert, offered, won = Expert(), set(), np.zeros(4, bool)
    for _ in range(400):
        found = env.possible_goals()
        assert found.shape == (4, len(env.env_spec.goals))
        offered |= {env.env_spec.goals[g] for g in np.nonzero(found)[1]}
        transition = env.advance(expert.act(env))
        won[transition.final_index] |= transition.episodes.success
        if won.all():
            break
    assert won.all()
    assert {"pick herring fillets", "herring fillets in kitchen fridge"} <= offered
    assert not any("pan" in goal for goal in offered)


def test_numbers_are_those_of_the_published_commands(tmp_path):
    path = written(tmp_path / "Rs_int.json.gz", *(episode(episode_id=n) for n in range(1000)))
    assert [episodes.chosen(f"{path}:{n}", "published").number for n in (2, 8, 12, 14)] == [929, 721, 526, 569]
    assert episodes.chosen(f"{path}:2", "file").number == 2


def test_a_file_is_read_once_until_it_changes(flat, monkeypatch):
    options = {"episode": f"{flat}:0", "numbering": "file"}
    read, times = episodes.read, []
    monkeypatch.setattr(episodes, "read", lambda path: times.append(path) or read(path))
    goals = [envs.spec("housekeep/House", **options).goals for _ in range(5)]
    assert len(times) <= 1
    written(flat, episode(objects=(("lamp", 5, (0,)),)))
    assert envs.spec("housekeep/House", **options).goals[0] == "pick lamp" != goals[0][0]


REFUSED = {
    "nowhere": ({"recs_packers": None}, "recs_packers"),
    "a place less": ({"recs_pos": [[0.0, 0.4, 0.0]]}, "recs_pos"),
    "no size": ({"recs_packers": {}}, "kitchen_0-bottom_cabinet_0_0.urdf"),
    "an endless place": ({"recs_pos": [[float("nan"), 0, 0]] * len(FLAT)}, "kitchen_0-bottom_cabinet_0_0.urdf"),
    "a wide house": ({"pieces": (*FLAT, Piece("kitchen_0", "chair", 40, 0, 0.5, 0.5))}, "40 m across: 22 m"),
    "many pieces": ({"pieces": FLAT + (FLAT[4],) * 117}, "128 pieces and 2 objects: 127 and 10"),
    "a heap": ({"pieces": FLAT + (Piece("kitchen_0", "table", 0, 0, 4, 3.5),) * 4}, "more than 3 pieces"),
    "a full piece": (
        {
            "pieces": (*FLAT, Piece("kitchen_0", "chair", 2, 1, 0.2, 0.2)),
            "objects": tuple((name, 11, (0,)) for name in ("pan", "knife", "fork", "spoon", "mug", "bowl", "cup")),
        },
        "7 objects on kitchen_0-chair_11_0.urdf, on which 6 fit",
    ),
    "nothing to do": ({"objects": (("herring_fillets", 1, (1,)),)}, "lie right from the start"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_house_is_one_sentence(tmp_path, case):
    changed, words = REFUSED[case]
    path = written(tmp_path / "Rs_int.json.gz", episode(**changed))
    with pytest.raises(ValueError, match=words) as refused:
        world(path, 0, spawn="all")
    assert "episode 7 of Rs_int" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("{flat}:3", "episodes 0 to 2"),
        ("{flat}", "PATH:NUMBER"),
        ("{flat}:-1", "PATH:NUMBER"),
        ("{flat}.missing:0", "cannot read the episodes of .*missing"),
    ],
)
def test_an_episode_that_is_not_there_is_one_sentence(flat, where, words):
    for made in (envs.spec, envs.make):
        arguments = ("housekeep/House",) if made is envs.spec else ("housekeep/House", 1)
        with pytest.raises(ValueError, match=words) as refused:
            made(*arguments, episode=where.format(flat=flat))
        assert "\n" not in str(refused.value)


def test_a_task_has_no_episode(flat):
    with pytest.raises(ValueError, match=r"play env\.episode in housekeep/House"):
        envs.make("housekeep/Task1", 1, episode=f"{flat}:0")


def test_other_people_may_find_that_all_is_well(flat, tmp_path):
    Preferences(np.ones((269, 128, 10), np.int8), "anybody").save(tmp_path / "anybody.npz")
    with pytest.raises(ValueError, match="lie right from the start"):
        world(flat, 0, preferences=str(tmp_path / "anybody.npz"))


# ---- the published files ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scenes():
    return {path: episodes.read(path) for path in SCENES}


@needs_data
def test_every_published_scene_is_a_house(scenes):
    """Each set of pieces of each file, and some episodes in it; nearly all can be lifted and gripped in the house."""
    random = np.random.default_rng(0)
    for found in scenes.values():
        layouts = {}
        for one in found:
            layouts.setdefault(one.keys, []).append(one)
        for alike in layouts.values():
            for k in random.choice(len(alike), 3, replace=False).tolist():
                rows = row(alike[k])
                check(rows, alike[k], len(alike[k].objects))
                solid = np.empty((EDGE, EDGE), np.uint8)
                obstruct(rows, 0, solid)
                gripped = [can_grip(rows, 0, solid, n) for n in range(1, int(rows.pieces[0]) + 1)]
                assert sum(gripped) >= len(gripped) - 1  # a carpet under a table with its chairs


@needs_data
def test_published_episodes_are_put_in_order(scenes):
    """25 of each file, by the published preferences, within 1,000 steps."""
    for path, found in scenes.items():
        solved = []
        for number in np.random.default_rng(0).choice(len(found), 25, replace=False).tolist():
            env = world(path, number, observe=["view"], size=16, preferences=str(DATA))
            env.begin()
            assert env.houses.objects[0] == found[number].misplaced
            right = env.right[0, : found[number].misplaced, 1 : len(found[number].pieces) + 1]
            np.testing.assert_array_equal(right, found[number].end.T[: found[number].misplaced])
            expert, success = Expert(), False
            for _ in range(1000):
                transition = env.advance(expert.act(env))
                if len(transition.final_index):
                    success = bool(transition.terminated[0])
                    break
            solved.append(success)
        assert np.mean(solved) >= 0.95, path
