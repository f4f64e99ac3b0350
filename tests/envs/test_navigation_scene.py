"""What trajectories pass: places, sides, tiles, visits, against the plainest account of each."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.navigation import Map, Scene, Thing, load, simulate
from envs.navigation.scene import SIDES, WAYS

HOUSE = load()
SCENE = Scene(HOUSE)


def trajectory(*pixels):
    """Poses [1, T, 3] at places given in pixels."""
    places = np.array(pixels, np.float32) * 3
    return np.column_stack([places, np.zeros(len(places))])[None].astype(np.float32)


def at(x, y):
    """The annotation of one place."""
    return SCENE.annotation(SCENE.symbols(trajectory((x, y))), 0)[0]


@pytest.mark.parametrize(
    ("name", "tile"),
    [
        ("cactus", "white"),
        ("fan", "red"),
        ("sofa", "blue"),
        ("bed", "white"),
        ("fridge", "pink"),
        ("cabinet", "red"),
        ("chair", "gray"),
        ("statue", "orange"),
        ("file cabinet", "blue"),
        ("bathtub", "yellow"),
        ("table", "gray"),
        ("stove", "pink"),
    ],
)
def test_the_furniture_stands_on_its_tiles(name, tile):
    thing = next(thing for thing in HOUSE.objects if thing.name == name)
    here = at(thing.x, thing.y)
    assert here["tile"] == tile
    assert here["near"][0] == {"object": name, "robot is": "on it", "distance": 0}
    assert here["position"] == [thing.x, 200 - thing.y]


def test_sides_are_the_robots_as_seen_from_the_object():
    bed = (164, 174)
    assert at(bed[0], bed[1] - 10)["near"][0]["robot is"] == "north of it"  # up in the picture
    assert at(bed[0] + 10, bed[1])["near"][0]["robot is"] == "east of it"
    assert at(bed[0] - 8, bed[1] + 9)["near"][0]["robot is"] == "south west of it"
    assert at(bed[0] + 6, bed[1] - 6)["near"][0]["robot is"] == "on it"
    assert at(bed[0] + 7, bed[1] - 6)["near"][0]["robot is"] == "east of it"


@given(st.integers(0, 199), st.integers(0, 199))
def test_a_place_is_told_as_the_picture_shows_it(x, y):
    here = at(x, y)
    near = {thing.name: math.dist((x, y), thing[1:]) for thing in HOUSE.objects}
    told = {entry["object"]: entry["distance"] for entry in here["near"]}
    assert told == {name: round(far) for name, far in near.items() if far < 30}
    assert list(told.values()) == sorted(told.values())
    assert json.loads(json.dumps(here)) == here

    def colour(i, j):
        if not (0 <= i < 200 and 0 <= j < 200) or HOUSE.walls[j, i]:
            return "black"
        return HOUSE.tiles[(j - 10) // 60][(i - 10) // 60]

    assert here["tile"] == colour(x, y)
    for way, (dx, dy) in zip(WAYS, ((0, -1), (1, 0), (0, 1), (-1, 0)), strict=True):
        far = next(
            k for k in range(1, 300) if colour(x + k * dx, y + k * dy) != here["tile"] or not within(x, y, k, dx, dy)
        )
        assert here["ahead"][way] == [colour(x + far * dx, y + far * dy), far]


def within(x, y, k, dx, dy):
    return 0 <= x + k * dx < 200 and 0 <= y + k * dy < 200


def test_symbols_are_those_of_eleven_moments():
    actions = np.random.default_rng(0).uniform(0, 4, (5, 400, 2)).astype(np.float32)
    pose = simulate(HOUSE, None, actions)["pose"]
    symbols = SCENE.symbols(pose)
    assert symbols.step.tolist() == [*range(0, 400, 40), 399]
    assert {name: value.shape[1:] for name, value in symbols._asdict().items()} == {
        "step": (),
        "position": (11, 2),
        "side": (11, 12),
        "distance": (11, 12),
        "tile": (11,),
        "next_tile": (11, 4),
        "next_distance": (11, 4),
    }
    assert all(value.dtype.kind == "i" for value in symbols)
    for n in range(5):
        alone = SCENE.symbols(pose[n : n + 1])
        assert SCENE.annotation(alone, 0) == SCENE.annotation(symbols, n)
        for s, step in enumerate(symbols.step):
            x, y = pose[n, step, :2] / 3
            np.testing.assert_allclose(symbols.position[n, s], (x, 200 - y), atol=0.51)
    assert SCENE.symbols(pose[:, :7]).step.tolist() == [0, 0, 1, 2, 2, 3, 4, 4, 5, 6, 6]


def visited(pose, near):
    """Names in order, by walking along."""
    route, before = [], set()
    for x, y, _ in pose:
        i, j = (math.floor(v / 3 + 0.5) for v in (x, y))
        now = [f"{at(i, j)['tile']} tile"]
        now += [thing.name for thing in HOUSE.objects if math.dist((x / 3, y / 3), thing[1:]) < near]
        route += [name for name in now if name not in before]
        before = set(now)
    return route


def test_routes_name_what_is_visited_in_order():
    actions = np.tile(np.float32([(2.0, 2.2), (4, 3.8), (3.5, 3.9), (3, 3.3)])[:, None], (1, 300, 1))
    pose = simulate(HOUSE, None, actions)["pose"]
    for near in (30.0, 12.0):
        routes = SCENE.route(pose, near=near, again=True)
        once = SCENE.route(pose, near=near)
        for n in range(4):
            assert routes[n] == visited(pose[n].astype(np.float64), near)
            assert once[n] == list(dict.fromkeys(routes[n]))
    assert any(len(routes[n]) > len(once[n]) for n in range(4))
    visits = SCENE.visits(pose)
    assert (np.diff(visits.trajectory * 300 + visits.step) >= 0).all()
    assert (visits.step[np.unique(visits.trajectory, return_index=True)[1]] == 0).all()


def test_many_trajectories_are_those_of_each():
    pose = simulate(HOUSE, None, np.tile(np.float32([[[2.0, 2.2]]]), (300, 40, 1)))["pose"]
    pose[257:] = pose[257:, ::-1]
    routes = SCENE.route(pose)
    assert routes[0] == routes[256] == ["pink tile", "fridge", "stove"]
    assert routes[257:] == [SCENE.route(pose[257:258])[0]] * 43


def test_a_plain_house_has_no_tiles():
    walls = HOUSE.walls
    plain = Scene(Map(600, walls, HOUSE.start, HOUSE.goal, (Thing("big_plant", 30, 150),)))
    moment = plain.annotation(plain.symbols(trajectory((20, 140))), 0)[0]
    assert moment.keys() == {"step", "position", "near"}
    assert moment["near"] == [{"object": "big plant", "robot is": "north west of it", "distance": 14}]
    assert plain.route(trajectory((20, 140), (100, 100))) == [["big plant"]]
    empty = Scene(Map(600, walls, HOUSE.start, HOUSE.goal))
    assert empty.route(trajectory((20, 140))) == [[]]
    assert empty.annotation(empty.symbols(trajectory((20, 140))), 0)[0]["near"] == []
    assert plain.route(np.zeros((0, 5, 3), np.float32)) == []


def test_any_grid_of_tiles_divides_the_interior():
    scene = Scene(Map(600, HOUSE.walls, HOUSE.start, HOUSE.goal, (), (("red", "blue"),)))
    assert scene.colours == ("black", "red", "blue")
    assert (scene.tiles[HOUSE.walls] == 0).all()
    assert set(np.unique(scene.tiles[:, 10:100])) == {0, 1}
    assert set(np.unique(scene.tiles[:, 100:190])) == {0, 2}


def test_bad_poses_are_one_sentence():
    for wrong in (np.zeros((4, 3)), np.zeros((2, 0, 3))):
        with pytest.raises(ValueError, match=r"poses are \[N, T, 3\]"):
            SCENE.symbols(wrong)
        with pytest.raises(ValueError, match=r"poses are \[N, T, 3\]"):
            SCENE.visits(wrong)
    assert len(SIDES) == 9
