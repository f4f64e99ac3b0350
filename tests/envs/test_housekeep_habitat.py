"""Houses in habitat-sim, by a stand-in that records calls: real processes, a simulator of a few boxes.

What is tested is our adapter. Nothing here was run on habitat-sim itself.
"""

import ast
import os
import random
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

import envs
from cluster import run as controller
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from cluster.runs.folder import RunError
from envs.housekeep.habitat import child, children
from envs.housekeep.habitat.children import HabitatEnded
from envs.housekeep.habitat.engine import direction
from envs.native.housekeep.hands import OUTCOMES
from envs.native.housekeep.layout import NOWHERE, OBJECT
from tests.envs import habitat_world as own
from tests.envs.habitat_world import BED, CABINET, SHELF, SINK, TABLE, WINDOW

FORWARD, LEFT, RIGHT, UP, DOWN, GRIP = range(6)


@pytest.fixture
def folder(tmp_path):
    own.write(tmp_path)
    return tmp_path


@pytest.fixture
def world(folder):
    """Makes worlds, and ends their processes."""
    made = []

    def build(n=1, wrong="", number=0, seed=3, python=None, **more):
        python = python or own.python(folder, wrong)
        made.append(
            envs.make("housekeep/House", n, seed=seed, python=str(python), **own.options(folder, number, **more))
        )
        return made[-1]

    yield build
    for env in made:
        env.close()


def play(env, *actions):
    """All players do the same; what the last step gave."""
    for action in actions:
        step = env.advance(np.full(env.num_envs, action))
    return step


def outcome(env, i=0):
    return OUTCOMES[env.players.outcome[i]]


def told(env, obs, field, i=0):
    return env.texts[int(obs[field][i])]


# ---- what is called -------------------------------------------------------------------------------------------------


def test_calls_are_the_published_ones_by_their_names_of_version_0_3_3(world, folder):
    env = world(size=16, observe=["rgb"])
    env.begin()
    play(env, FORWARD, LEFT, RIGHT, UP, DOWN, GRIP)
    calls = own.recorded(folder)
    assert {name for name, *_ in calls if name.startswith("body.")} == {
        f"body.{name}" for name in ("translation", "rotation", "motion_type", "semantic_id")
    }  # the stand-in refuses all that 0.3.3 has not; and nothing of it is stepped
    values = {name: rest for name, *rest in calls}
    igibson = folder / "data/scene_datasets/igibson"
    expected = {
        "scene_id": str(igibson / "scenes/Own_int.glb"),
        "gpu_device_id": 0,
        "allow_sliding": True,
        "enable_physics": True,
        "physics_config_file": str(folder / "data/default.physics_config.json"),
    }
    assert {name: values[f"SimulatorConfiguration.{name}"] for name in expected} == {
        name: [value] for name, value in expected.items()
    }
    floor = {"agent_radius": 0.18, "agent_height": 1.5, "agent_max_climb": 0.1, "include_static_objects": True}
    assert {name: values[f"NavMeshSettings.{name}"] for name in floor} == {name: [v] for name, v in floor.items()}
    sensors = [rest for name, *rest in calls if name.startswith("CameraSensorSpec.")]
    sensor = [["PINHOLE"], [[16, 16]], [[0, 1.5, 0]], [90]]
    assert sensors == [["ids"], ["SEMANTIC"], *sensor, ["rgb"], ["COLOR"], *sensor]
    assert [rest for name, *rest in calls if name == "ActionSpec"] == [
        ["move_forward", 0.25, None],
        ["turn_left", 20, None],
        ["turn_right", 20, None],
        ["look_up", 10, 30],
        ["look_down", 10, 30],
    ]
    assert [rest for name, *rest in calls if name == "act"] == [[name] for name in child.ACTIONS]
    assert [rest for name, *rest in calls if name in ("unproject", "cast_ray")] == [[[8, 8]], [3.0]]
    files = [Path(rest[0]).relative_to(folder / "data") for name, *rest in calls if name == "load_configs"]
    assert files[1] == Path(
        "scene_datasets/igibson/assets_assemble/Own_int/bottom_cabinet_2_0/bottom_cabinet_2_0.object_config.json"
    )
    assert files[-2:] == [Path("objects/pan.object_config.json"), Path("objects/lamp.object_config.json")]
    assert [rest[0] for name, *rest in calls if name == "body.semantic_id"] == [*range(1, 7), OBJECT, OBJECT + 1]
    wires = [rest for name, *rest in calls if name == "register_template"]
    assert wires[BED - 1] == [[0.5, 0.6, 0.5], "around_1"]
    assert len(wires) == sum(name == "remove_object_by_id" for name, *_ in calls) == 6
    kinds = [rest[0] for name, *rest in calls if name == "body.motion_type"]
    assert kinds == ["KINEMATIC"] * 6 + ["STATIC"] * 6 + ["KINEMATIC"] * 2
    assert [rest for name, *rest in calls if name == "set_state"] == [[[0, 0, 0], [0, 0, 0, 1], True]]


def test_a_new_episode_adds_nothing_to_the_simulator(world, folder):
    env = world(length=3)
    env.begin()
    play(env, GRIP, LEFT)
    added = sum(name == "add_object_by_template_handle" for name, *_ in own.recorded(folder))
    step = play(env, UP)
    assert step.truncated[0]
    assert told(env, step.final_obs, "held") == "You hold the pan"
    assert told(env, step.obs, "view") == "You see the pan on the bedroom bed, the bedroom bed and the window"
    assert (env.players.tilt[0], env.players.holding[0]) == (0, NOWHERE)
    assert sum(name == "add_object_by_template_handle" for name, *_ in own.recorded(folder)) == added


def test_the_script_is_plain_and_of_python_3_9():
    text = Path(child.__file__).read_text()
    tree = ast.parse(text, feature_version=(3, 9))
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    standard = {"__future__", "json", "math", "os", "struct", "sys", "traceback", "typing"}
    assert modules == standard | {"numpy", "habitat_sim", "magnum"}


# ---- an episode -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pays", ["placed", "benchmark"])
def test_an_episode_is_played_to_its_end(world, pays):
    env = world(reward=pays, observe=["view", "seen", "held", "published"])
    obs = env.begin()
    spec = env.env_spec
    assert len(spec.goals) == 2 + 2 * 6
    assert not spec.expert
    paid, events = [], []

    def goals():
        return {spec.goals[g] for g in np.flatnonzero(env.possible_goals()[0])}

    def do(*actions):
        step = play(env, *actions)
        paid.append(float(step.reward[0]))
        events.append(env.texts[int(env.events[0])] if env.events[0] >= 0 else "")
        return step

    assert told(env, obs, "view") == "You see the pan on the bedroom bed, the bedroom bed and the window"
    assert told(env, obs, "seen") == "You have seen the pan. You know of the bedroom bed and the window"
    assert goals() == {"pick pan"}
    step = do(GRIP)
    assert told(env, step.obs, "view") == "You see the bedroom bed and the window"  # the grip's effect is seen at once
    assert told(env, step.obs, "held") == "You hold the pan"
    assert goals() == set()  # no right place is known
    step = play(env, *[RIGHT] * 4)
    assert goals() == {"pan in kitchen bottom cabinet"}
    step = do(GRIP)
    assert told(env, step.obs, "view").startswith("You see the pan on the kitchen bottom cabinet, ")
    assert goals() == set()  # it was put right
    play(env, *[LEFT] * 8, UP)
    assert goals() == {"pick lamp"}
    do(GRIP)
    step = play(env, DOWN, *[LEFT] * 5)
    assert told(env, step.obs, "published") == (
        "objects: lamp, pan.receptacles: bedroom bed, kitchen bottom cabinet, kitchen sink, living room shelf, window."
        "you are holding: lamp."
    )
    do(GRIP)
    assert (outcome(env), bool(env.failed[0])) == ("far", True)
    play(env, *[FORWARD] * 3)
    step = do(GRIP)
    assert events == ["pick pan", "pan in kitchen bottom cabinet", "pick lamp", "", "lamp in living room shelf"]
    benchmark = [2.5, 2.5, 2.5, -0.2, 2.5]
    assert paid == pytest.approx(benchmark if pays == "benchmark" else [0, 0.5, 0, 0, 0.5])
    assert step.terminated[0]
    assert step.episodes.success[0]
    assert step.episodes.length[0] == 1 + 4 + 1 + 9 + 1 + 6 + 1 + 3 + 1


def test_a_player_walks_turns_looks_and_slides(world):
    env = world()
    env.begin()
    play(env, LEFT)
    assert (env.players.heading[0], env.players.tilt[0]) == (6, 0)  # 110 degrees from x, between two of ours
    play(env, RIGHT, RIGHT, UP, UP, UP, UP)
    assert (env.players.heading[0], env.players.tilt[0]) == (4, 3)
    play(env, *[DOWN] * 9)
    assert env.players.tilt[0] == -3
    play(env, *[FORWARD] * 7)
    x, y = float(env.players.x[0]), float(env.players.y[0])
    assert 1.5 - 0.18 - 0.25 < y <= 1.5 - 0.18  # the bed is in the way
    assert x == pytest.approx(7 * 0.25 * np.sin(np.radians(20)), abs=1e-5)  # along it
    play(env, *[LEFT] * 18)
    assert env.players.heading[0] == 4


def test_directions_are_counted_as_in_our_own_houses():
    for degrees in range(0, 360, 20):
        for tilt in range(-30, 40, 10):
            turn, look = np.radians(degrees - 90) / 2, np.radians(tilt) / 2
            quaternion = [
                np.cos(turn) * np.sin(look),
                np.sin(turn) * np.cos(look),
                -np.sin(turn) * np.sin(look),
                np.cos(turn) * np.cos(look),
            ]
            assert direction(quaternion) == (degrees // 20, tilt // 10)


def test_all_objects_are_there_on_request_and_all_of_the_house_is_told(world, folder):
    env = world(spawn="all", size=64)
    env.begin()
    assert env.houses.objects[0] == 3
    play(env, *[RIGHT] * 4)
    assert env.players.seen[0] == 0b100
    assert env.right[0, :3, 1:7].tolist() == own.suits().tolist()
    assert {name for name, *rest in own.recorded(folder)} >= {"load_configs"}
    assert "pick spoon" in env.env_spec.goals


def test_published_numbers_name_episodes_by_the_published_order(world):
    order = list(range(5))
    random.Random(100).shuffle(order)
    assert order != sorted(order)
    for number in (0, 3):
        by_file, published = world(number=number), world(number=number, numbering="published")
        for env, index in ((by_file, number), (published, order[number])):
            env.begin()
            assert env.players.x[0] == np.float32(index / 64)


def test_pictures_and_frames_show_what_the_player_sees(world):
    colour, plain = world(observe=["rgb"], size=64), world(size=64)
    obs = colour.begin()
    plain.begin()
    assert obs["rgb"].shape == (1, 64, 64, 3)
    assert np.array_equal(colour.pictures.ids, plain.pictures.ids)
    assert set(np.unique(plain.pictures.ids)) == {0, BED, WINDOW, OBJECT}
    assert np.array_equal(colour.frame(0)[::4, ::4], obs["rgb"][0])
    painted = plain.frame(0)[::4, ::4]
    assert painted.shape == (64, 64, 3)
    for instance in (0, BED, WINDOW, OBJECT):
        assert len(np.unique(painted[plain.pictures.ids[0] == instance], axis=0)) == 1
    assert len(np.unique(painted.reshape(-1, 3), axis=0)) == 4


def test_depth_is_scaled_as_published(world, folder):
    env = world()
    asked = env._engine._children
    scene = {"do": "load", **loaded(folder), "pictures": ["ids", "depth"]}
    asked.ask({0: scene}, 60)
    _, pictures = asked.ask({0: {"do": "reset"}}, 60)[0]
    assert pictures["depth"].dtype == np.float32
    assert pictures["depth"][16, 16] == pytest.approx((1.85 - 0.5) / 4.5, abs=1e-5)  # the pan's face


def loaded(folder):
    from envs.housekeep.habitat.scene import scene
    from envs.housekeep.people import episodes

    episode = episodes.chosen(f"{folder / own.SCENE}.json.gz:0", "file")
    return scene(folder / "data", episode, 2, 32, rgb=False)


# ---- the hand -------------------------------------------------------------------------------------------------------


def test_a_grip_fails_in_the_published_order(world):
    env = world(spawn="all", size=64)
    env.begin()

    def fails(why, *actions):
        before = [array.copy() for array in (env.players.place, env.players.holding, env.pictures.ids)]
        play(env, *actions, GRIP)
        assert outcome(env) == why
        assert env.failed[0]
        assert env.events[0] == -1
        assert env.players.target[0].tolist() == [NOWHERE, 0]
        if not actions:
            after = (env.players.place, env.players.holding, env.pictures.ids)
            assert all(map(np.array_equal, before, after))

    env.players.holding[0] = 0  # never in play, as nobody sees what it holds
    fails("in hand")
    env.players.holding[0] = NOWHERE
    seen = [array[0].copy() for array in (env.players.visible, env.players.seen)]
    env.players.visible[0] = env.players.seen[0] = 0
    fails("hidden")
    env.players.visible[0] = seen[0]
    play(env, GRIP)
    assert outcome(env) == "picked"  # what it lies on is seen, which is enough
    fails("nothing there", RIGHT, RIGHT)  # only a wall, or nothing within reach
    play(env, LEFT, LEFT)
    fails("no room", *[LEFT] * 4)  # on the sink is the lamp
    fails("hand full", UP)  # the lamp itself
    fails("far", DOWN, *[LEFT] * 5)  # the shelf's corners and its middle
    play(env, *[LEFT] * 5, GRIP)
    assert outcome(env) == "dropped"
    fails("hand empty")
    assert env.players.place[0, :3].tolist() == [CABINET, SINK, CABINET]


@pytest.mark.parametrize("see_through", [False, True])
def test_hands_reach_through_walls_only_on_request(world, see_through):
    env = world(see_through=see_through)
    env.begin()
    play(env, LEFT, LEFT, GRIP)
    assert not int(env.players.visible[0, 0]) >> TABLE & 1
    assert outcome(env) == ("hand empty" if see_through else "nothing there")
    env = world(see_through=see_through)
    env.begin()
    play(env, GRIP, LEFT, LEFT, GRIP)
    assert outcome(env) == ("hidden" if see_through else "nothing there")


def test_what_is_dropped_lies_on_top_beside_what_lay_there(world, folder):
    env = world(spawn="all")
    env.begin()
    play(env, GRIP, *[RIGHT] * 4)
    lifted = [rest[0] for name, *rest in own.recorded(folder) if name == "body.translation"][-1]
    assert lifted == [0, 10, 0]  # above the player
    play(env, GRIP)
    assert outcome(env) == "dropped"
    dropped = [rest[0] for name, *rest in own.recorded(folder) if name == "body.translation"][-1]
    assert dropped == pytest.approx([1.57 + 0.15, 1.6 + 0.25, -0.747 + 0.15])  # the first place of the first row
    assert env.players.place[0, :3].tolist() == [CABINET, SINK, CABINET]


def test_a_shelf_is_filled_in_rows_and_turns_what_fits_otherwise():
    box = child.Box(np.array([0.0, 0.0, 0.0]), np.array([1.0, 0.7, 0.5]), None)
    shelf = child.Shelf(box)
    placed = []
    while (place := shelf.room(0.45, 0.2)) is not None:
        x, z, turned = place
        along, across = (0.2, 0.45) if turned else (0.45, 0.2)
        shelf.taken[len(placed)] = (x - along / 2, z - across / 2, x + along / 2, z + across / 2)
        placed.append(place)
    assert placed[0] == (0.225, 0.1, False)
    assert len(placed) == 4
    rectangles = np.array(list(shelf.taken.values()))
    for a in range(len(placed)):
        for b in range(a):
            gaps = np.maximum(rectangles[a, :2] - rectangles[b, 2:], rectangles[b, :2] - rectangles[a, 2:])
            assert gaps.max() >= child.PAD - 1e-9
    assert rectangles.min() >= 0
    assert (rectangles[:, 2:] <= [1, 0.5]).all()
    narrow = child.Shelf(child.Box(np.array([0.0, 0.0, 0.0]), np.array([0.2, 0.7, 0.5]), None))
    assert narrow.room(0.45, 0.2) == (0.1, 0.225, True)
    assert narrow.room(0.6, 0.1) is None


# ---- state ----------------------------------------------------------------------------------------------------------


def test_players_of_two_processes_go_on_from_a_state_as_they_were(world):
    generator = np.random.default_rng(7)
    actions = generator.choice(6, (90, 2), p=(0.3, 0.15, 0.15, 0.1, 0.1, 0.2))
    actions[:6, 0] = GRIP, *[RIGHT] * 4, GRIP
    first, second = (world(2, observe=["rgb", "view", "seen", "held"], spawn="all", length=70) for _ in range(2))
    first.begin()
    for action in actions[:40]:
        first.advance(action)
    assert first.gripped[0]
    obs = second.restore(first.state())
    assert told(second, obs, "seen") == told(first, first._observe(slice(None)), "seen")
    for action in actions[40:]:
        steps = [env.advance(action) for env in (first, second)]
        for name in ("reward", "terminated", "truncated"):
            assert np.array_equal(*(getattr(step, name) for step in steps))
        for name in ("view", "seen", "held"):
            assert told(first, steps[0].obs, name, 1) == told(second, steps[1].obs, name, 1)
        for one, other in zip((*first.players, *first.pictures), (*second.players, *second.pictures), strict=True):
            assert np.array_equal(one, other)
    assert not np.array_equal(first.pictures.rgb[0], first.pictures.rgb[1])
    with pytest.raises(ValueError, match="the state has an episode of 20 steps"):
        world(2, length=20).restore(first.state())


# ---- what goes wrong ------------------------------------------------------------------------------------------------


def gone(folder):
    """Whether every process that was started is, or is within seconds."""
    pids = [rest[0] for name, *rest in own.recorded(folder) if name == "process"]
    assert pids
    for _ in range(50):
        if not any(map(running, pids)):
            return True
        time.sleep(0.1)
    return False


def running(pid):
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()  # what nobody waited for has ended, too
    except (FileNotFoundError, ProcessLookupError):
        return False


def one_sentence(error, *words):
    text = str(error.value)
    assert "\n" not in text
    assert "not run on habitat-sim" in text
    for word in words:
        assert word in text


def test_a_child_that_is_killed_is_named(world, folder):
    env = world(3)
    env.begin()
    os.kill(env._engine._children.processes[1].pid, signal.SIGKILL)
    with pytest.raises(HabitatEnded) as error:
        play(env, LEFT, LEFT)
    one_sentence(error, "of player 1 is gone (SIGKILL)", "resume the run")
    assert gone(folder)
    with pytest.raises(HabitatEnded, match="the env was closed"):
        env.advance(np.zeros(3, int))


def test_a_child_that_dies_says_what_it_said_last(world, folder):
    env = world(2, wrong="die:3")
    env.begin()
    play(env, LEFT, LEFT)
    with pytest.raises(HabitatEnded) as error:
        play(env, LEFT)
    one_sentence(error, "player 0 is gone (exit code 7); it said last: a first line | out of graphics memory")
    assert gone(folder)


def test_a_child_that_fails_says_why(world, folder):
    env = world(wrong="raise:1")
    env.begin()
    with pytest.raises(HabitatEnded) as error:
        play(env, LEFT)
    one_sentence(error, "failed (RuntimeError: the mesh is broken)")
    assert gone(folder)


@pytest.mark.parametrize("last", ["exec", ""])
def test_a_child_that_hangs_is_ended_with_all_that_it_started(world, folder, monkeypatch, last):
    monkeypatch.setattr("envs.housekeep.habitat.engine.STEP_SECONDS", 2.0)
    env = world(2, python=own.python(folder, "hang:2", last=last))
    env.begin()
    play(env, LEFT)
    with pytest.raises(HabitatEnded) as error:
        play(env, LEFT)
    one_sentence(error, "of player 0 gave no answer in time")
    assert gone(folder)


def test_what_the_simulator_prints_is_no_answer(world):
    env = world(wrong="print:1")
    env.begin()
    play(env, LEFT, GRIP)
    assert outcome(env) == "nothing there"


def test_a_script_that_prints_first_is_told(world, folder):
    with pytest.raises(HabitatEnded) as error:
        world(python=own.python(folder, before="echo activating"))
    one_sentence(error, "wrote b'acti' where an answer begins", "does a script before it print something?")


CONDA = "conda install habitat-sim=0.3.3 withbullet headless -c conda-forge -c aihabitat"


@pytest.mark.parametrize(
    ("wrong", "stub", "words"),
    [
        ("", False, "cannot import habitat_sim (No module named 'habitat_sim')"),
        ("version", True, "has habitat-sim 0.2.5, not 0.3.3"),
        ("no bullet", True, "has a habitat-sim 0.3.3 without Bullet"),
    ],
)
def test_another_package_is_one_sentence(world, folder, wrong, stub, words):
    python = own.python(folder, wrong, stub=stub)
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        world(2, python=python)
    one_sentence(error, f"env.python={python}", CONDA)


def test_a_python_that_is_none_is_one_sentence(world, folder):
    with pytest.raises(
        ValueError, match=re.escape(f"{folder}/no-python is no program: name a Python in which `{CONDA}`")
    ):
        world(python=folder / "no-python")


def test_a_house_without_a_floor_is_one_sentence(world, folder):
    with pytest.raises(HabitatEnded) as error:
        world(wrong="no floor")
    one_sentence(error, "habitat-sim finds no floor to walk on in ", "Own_int.glb")
    assert gone(folder)


@pytest.mark.parametrize(
    "path",
    [
        "scene_datasets/igibson/scenes/Own_int.glb",
        "scene_datasets/igibson/assets/Own_int/metadata_assembled.yaml",
        "scene_datasets/igibson/assets_assemble/Own_int/sink_3_0/sink_3_0.object_config.json",
        "objects/lamp.object_config.json",
    ],
)
def test_a_missing_file_is_one_sentence_and_nothing_is_started(world, folder, path):
    (folder / "data" / path).unlink()
    with pytest.raises(ValueError, match=re.escape(f"env.data={folder / 'data'} lacks {path}: ")) as error:
        world()
    assert "\n" not in str(error.value)
    assert not (folder / "record").exists()


METADATA = "scene_datasets/igibson/assets/Own_int/metadata_assembled.yaml"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "cannot read .*metadata_assembled.yaml: while parsing"),
        ("a: !!python/object/apply:os.system [touch broken]", "cannot read .*could not determine a constructor"),
        ("other: 3", "has no urdfs"),
        ("urdfs: {bed_1_0.urdf: {pos: [0, 0], rot: [0, 0, 0, 1]}}", "the position of bed_1_0.urdf .* is not 3 numbers"),
        ("urdfs: {bed_1_0.urdf: {pos: [0, 0, .nan], rot: [0, 0, 0, 1]}}", "the position of .* is not 3 numbers"),
        ("urdfs: {bed_1_0.urdf: {pos: [0, 0, 0], rot: up}}", "the rotation of .* is not 4 numbers"),
        ("urdfs: {bed_1_0.urdf: {pos: [0, 0, 0], rot: [0, 0, 0, 1]}}", "has no bottom_cabinet_2_0.urdf"),
    ],
)
def test_metadata_that_make_no_sense_are_one_sentence(world, folder, text, words):
    (folder / "data" / METADATA).write_text(text)
    with pytest.raises(ValueError, match=words) as error:
        world()
    assert "\n" not in str(error.value)
    assert not (folder / "broken").exists()


def test_doors_stand_where_their_own_file_says(folder):
    path = (folder / "data" / METADATA).with_name("metadata_v2_readjusted_with_outer_doors_v2.yaml")
    path.write_text(
        "urdfs: {bed_1_0.urdf: {pos: [9, 9, 9], rot: [0, 0, 0, 1]}, door_8_0.urdf: {pos: [1, 2, 3], rot: [0, 0, 0, 1]}}"
    )
    assert loaded(folder)["pieces"][BED - 1]["position"] == [0, 0.6, -2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"objs_files": ["data/objects/pan.object_config.json"]}, "objs_files is no list of its objects"),
        ({"objs_files": ["data/../secret"] * 3}, "'data/../secret' is no file of the folder data"),
        ({"objs_files": [7] * 3}, "7 is no file of the folder data"),
        ({"objs_pos": [[0, 0]] * 3}, "the position of object 0 of env.episode is not 3 numbers"),
    ],
)
def test_episodes_without_places_are_one_sentence(tmp_path, changes, words):
    own.write(tmp_path, changes)
    with pytest.raises(ValueError, match=re.escape(words)):
        loaded(tmp_path)


def test_houses_that_pictures_cannot_tell_are_refused(folder):
    from envs.housekeep.habitat.scene import row
    from envs.housekeep.people import episodes

    episode = episodes.chosen(f"{folder / own.SCENE}.json.gz:0", "file")
    vars(episode)["pieces"] = np.zeros(128, np.int16)
    with pytest.raises(ValueError, match="128 pieces of furniture and 2 objects: 127 and 10 are the most"):
        row(episode, 2)


@pytest.mark.parametrize("lacking", ["episode", "data", "python"])
def test_what_is_not_named_is_told_before_anything_begins(folder, lacking):
    named = own.options(folder, python="python") | {lacking: ""}
    with pytest.raises(
        ValidationError, match=f"env.engine=habitat needs env.{lacking}: docs/housekeep.md says what they are"
    ):
        envs.spec("housekeep/House", **named)
    words = [f"env.{name}={named[name]}" for name in ("engine", "episode", "data", "python") if named[name]]
    with pytest.raises(ConfigError, match=f"needs env.{lacking}") as error:
        compose(["env=housekeep", "env.id=housekeep/House", *words])
    assert error.value.exit_code == 2


@pytest.mark.parametrize("starts", ["seed", "exploring"])
def test_starts_that_habitat_would_ignore_are_refused(folder, starts):
    with pytest.raises(ValidationError, match=f"env.starts={starts} is for our own houses, and habitat-sim begins"):
        envs.spec("housekeep/House", **own.options(folder, python="python", starts=starts))
    assert envs.spec("housekeep/House", **own.options(folder, python="python", starts="fixed"))


def test_what_is_missing_is_told_before_a_run_begins(folder):
    def missing(**more):
        return envs.registry.missing("housekeep/House", **own.options(folder) | more)

    assert missing(python=str(own.python(folder))) == ""
    assert gone(folder)
    assert "cannot import habitat_sim" in missing(python=str(own.python(folder, stub=False)))
    assert "is no program" in missing(python="/nowhere/python")
    assert "lacks scene_datasets" in missing(python="/nowhere/python", data=str(folder))
    assert envs.registry.missing("housekeep/House") == ""
    words = [f"env.{name}={value}" for name, value in own.options(folder).items() if isinstance(value, str)]
    config = compose(["env=housekeep", "env.id=housekeep/House", "method=random", *words, "env.python=/nowhere/python"])
    with pytest.raises(RunError, match="is no program") as error:
        controller.run(config)
    assert error.value.exit_code == 2


def test_a_specification_needs_no_python_and_no_scenes(folder):
    named = own.options(folder, data="nowhere", python="nowhere")
    spec = envs.spec("housekeep/House", **named)
    assert spec.goals[:3] == ("pick pan", "pick lamp", "pan in bedroom bed")
    with pytest.raises(ValueError, match="plays published episodes, not housekeep/Task1: choose housekeep/House"):
        envs.spec("housekeep/Task1", **named)
    with pytest.raises(ValidationError, match=r"env\.observe names pose, which only our own houses tell"):
        envs.spec("housekeep/House", **named | {"observe": ["view", "pose"]})


def test_processes_end_with_the_env(world, folder):
    env = world(2)
    env.begin()
    assert all(running(process.pid) for process in env._engine._children.processes)
    env.close()
    assert gone(folder)
    assert [process.returncode for process in env._engine._children.processes] == [0, 0]


def test_no_setting_of_this_python_reaches_the_other(world, monkeypatch):
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    env = world()
    assert "view" in env.begin()
    assert child.OBJECT == OBJECT
    assert children.VERSION == "0.3.3"
    assert SHELF == 4
