"""BabyAI behind the contract is Minigrid's own episode, on every level; and the levels that Minigrid lacks."""

import json
from collections import Counter
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel

import envs
from envs.babyai import levels, names, parse, translate
from envs.babyai.levels import HELD_OUT, OWN, build, published

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "babyai_text_missions.json").read_text())
TURN_AND_GO = np.array([0.1, 0.1, 0.35, 0.15, 0.1, 0.19, 0.01])  # a walk that meets, moves and opens things

GLAM = {
    "MixedTrainLocal": {"go to", "pick up", "open", "put next", "sequence"},
    "MixedTestLocal": {"go to", "pick up", "open", "put next", "sequence"},
    "MixedTrainLocalFrench": {"go to", "pick up", "open", "put next", "sequence"},
    "PickUpSeqGoToLocal": {"sequence"},
    "PickUpThenGoToLocal": {"sequence"},
    "GoToAfterPickUpLocal": {"sequence"},
    "PickUpSeqPickUpLocal": {"sequence"},
    "GoToFrench": {"go to"},
    "PickupLocal": {"pick up"},
    "GoToLocalS8N16": {"go to"},
}
TEXT_LEVELS = sorted(name for name in OWN if name.startswith("Text-"))


def missions(name, number):
    """English missions of seeds 0 ... number - 1, and the task kinds that they count as."""
    env = envs.make(f"babyai/{name}", number, language="en")
    texts = env.texts.texts(env.begin(np.arange(number))["mission"])
    return texts, [env.env_spec.task_kinds[k] for k in env._kinds()]


def play_beside(name, seeds, steps):
    """Step our env and Minigrid's with the same actions and compare all that they return."""
    env, raw = envs.make(f"babyai/{name}", 1, language="en"), build(name)
    generator = np.random.default_rng(sum(map(ord, name)))
    for seed in seeds:
        obs, (expected, _) = env.begin(np.array([seed])), raw.reset(seed=seed)
        for _ in range(steps):
            assert np.array_equal(obs["image"][0], expected["image"])
            assert obs["direction"][0] == expected["direction"]
            assert env.texts[obs["mission"][0]] == expected["mission"]
            action = int(generator.choice(7, p=TURN_AND_GO))
            transition = env.advance(np.array([action]))
            expected, reward, terminated, truncated, _ = raw.step(action)
            assert transition.reward[0] == np.float32(reward)
            assert (transition.terminated[0], transition.truncated[0]) == (terminated, truncated)
            obs = transition.obs
            if terminated or truncated:
                assert np.array_equal(transition.final_obs["image"][0], expected["image"])
                assert transition.episodes.seed[0] == seed
                break


@pytest.mark.parametrize("name", names())
def test_episodes_are_minigrids_own(name):
    play_beside(name, seeds=(0, 1), steps=25)


def test_levels_by_gymnasiums_maker():
    """Not only `build`: the ids resolve to what a user of Minigrid gets."""
    for name in ("GoToLocal", "BossLevel", "GoToObjS6"):
        env, user = envs.make(f"babyai/{name}"), gymnasium.make(published()[name])
        obs, _ = env.reset(seed=11)
        expected, _ = user.reset(seed=11)
        assert np.array_equal(obs["image"][0], expected["image"])
        assert obs["mission"] == (expected["mission"],)


def test_every_registered_level_is_listed():
    registered = [i for i in gymnasium.registry if i.startswith("BabyAI-")]
    assert len(registered) == len(published()) >= 90
    assert {*published(), *OWN} == set(names())
    assert len(TEXT_LEVELS) == 17


def test_a_used_simulator_starts_like_a_fresh_one():
    for name in ("MixedTrainLocal", "BossLevel", "PutNextS5N2Carrying"):
        used = envs.make(f"babyai/{name}", 1)
        for seed in range(8):
            first = used.begin(np.array([seed]))
            fresh = envs.make(f"babyai/{name}", 1)
            again = fresh.begin(np.array([seed]))
            assert np.array_equal(first["image"], again["image"])
            assert used.texts[first["mission"][0]] == fresh.texts[again["mission"][0]]
            used.advance(np.array([2]))


@pytest.mark.parametrize("name", GLAM)
def test_task_kinds_are_drawn_per_episode(name):
    _, kinds = missions(name, 48 if len(GLAM[name]) > 1 else 8)
    assert set(kinds) == GLAM[name]


def test_task_kinds_are_about_as_likely():
    counts = Counter(missions("MixedTrainLocal", 250)[1])
    assert all(30 <= counts[kind] <= 70 for kind in GLAM["MixedTrainLocal"])


def test_the_global_generator_has_no_say():
    results = []
    for state in (0, 1):
        np.random.seed(state)
        results.append([missions(name, 12)[0] for name in ("MixedTrainLocal", "Text-GoToLocal-Pretraining-S20")])
    assert results[0] == results[1]


def pairs(mission):
    return [(thing.colour, thing.noun) for thing in parse(mission).things()]


@pytest.mark.parametrize("name", [n for n in GLAM if n.startswith(("MixedTrain", "PickUp", "GoToAfter"))])
def test_training_missions_name_no_held_out_pair(name):
    assert not HELD_OUT & {pair for mission in missions(name, 60)[0] for pair in pairs(mission)}


def test_testing_missions_name_nothing_else():
    named = {pair for mission in missions("MixedTestLocal", 60)[0] for pair in pairs(mission)}
    assert named == HELD_OUT


@pytest.mark.parametrize("level", [n for n in GLAM if f"BabyAI-{n}-v0" in GOLDEN])
def test_recorded_missions_obey_the_rules_of_the_level(level):
    """The recordings of the published levels are of our grammar, vocabulary and forms."""
    recorded = GOLDEN[f"BabyAI-{level}-v0"]
    ours = [parse(mission) for mission in missions(level, 200)[0]]

    def form(mission):
        return mission.link, tuple(action.verb for action in mission.actions)

    assert {form(parse(mission)) for mission in recorded} == {form(mission) for mission in ours}
    named = {pair for mission in recorded for pair in pairs(mission)}
    assert named <= {(t.colour, t.noun) for m in ours for t in m.things()}
    if level == "MixedTestLocal":
        assert named <= HELD_OUT
    elif level != "GoToFrench":
        assert not named & HELD_OUT


@pytest.mark.parametrize("level", sorted({*GOLDEN} - {f"BabyAI-{name}-v0" for name in GLAM}))
def test_recorded_missions_of_minigrids_levels_are_of_our_vocabulary(level):
    spec = envs.spec(f"babyai/{level.removeprefix('BabyAI-').removesuffix('-v0')}")
    for mission in GOLDEN[level]:
        assert set(mission.replace(",", "").split()) <= set(spec.words)


def test_open_tasks_have_the_agent_and_the_key_before_the_locked_door():
    seen = Counter()
    for seed in range(60):
        level = build("MixedTrainLocal")
        level.reset(seed=seed)
        assert level.max_steps == 64 * {"go to": 1, "pick up": 1}.get(level.kind, 2)
        assert (level.width, level.grid.width) == ((15, 15) if level.kind == "open" else (8, 8))
        if level.kind != "open":
            objects = [o for o in level.grid.grid if o and o.type != "wall"]
            assert len(objects) == (9 if level.kind in ("go to", "pick up") else 10)
            continue
        (door,) = level.instrs.desc.obj_set
        room = level.room_from_pos(*level.agent_pos)
        assert door.is_locked
        assert door.color in levels.TRAIN_DOORS
        assert any((o.type, o.color) == ("key", door.color) for o in room.objs)
        assert len(room.objs) == 9
        seen[room.top, level.mission == "open the door"] += 1
    assert len(seen) == 4  # either side, with and without a colour


def test_all_levels_of_background_knowledge_are_there():
    large = [f"Text-GoToLocal-{target}-S{size}" for target in ("RedBall", "PurpleKey") for size in (20, 23, 25, 28, 30)]
    rest = """
        Text-GoToLocal-Pretraining-S20 Text-GoToLocal-PurpleBall-S20 Text-GoToLocal-RedKey-S20
        Text-GoTo-RedBallBlueBox-S20 Text-GoTo-PurpleBallPurpleBox-S20
        Text-PickUp-RedBall-S20 Text-PickUp-PurpleKey-S20
    """
    assert sorted([*large, *rest.split()]) == TEXT_LEVELS
    assert len(TEXT_LEVELS) == 17


@pytest.mark.parametrize(
    ("name", "room", "others", "limit", "expected"),
    [
        ("Text-GoToLocal-RedBall-S20", 20, 7, 400, {"go to red ball"}),
        ("Text-GoToLocal-PurpleKey-S23", 23, 12, 529, {"go to purple key"}),
        ("Text-GoToLocal-RedBall-S25", 25, 15, 625, {"go to red ball"}),
        ("Text-GoToLocal-PurpleKey-S28", 28, 20, 784, {"go to purple key"}),
        ("Text-GoToLocal-RedBall-S30", 30, 25, 900, {"go to red ball"}),
        ("Text-PickUp-PurpleKey-S20", 20, 8, 400, {"pick up purple key"}),
        (
            "Text-GoTo-PurpleBallPurpleBox-S20",
            20,
            7,
            800,
            {
                "go to purple ball, then go to purple box",
                "go to purple box after you go to purple ball",
            },
        ),
        (
            "Text-GoToLocal-Pretraining-S20",
            20,
            7,
            400,
            {f"go to {c} {n}" for c in ("red", "green", "blue") for n in ("ball", "box")},
        ),
    ],
)
def test_background_knowledge_levels(name, room, others, limit, expected):
    level, seen = build(name), set()
    for seed in range(40):
        level.reset(seed=seed)
        seen.add(level.mission.replace("the ", "").replace(" a ", " "))
        objects = [o for o in level.grid.grid if o and o.type != "wall"]
        assert level.grid.width == level.grid.height == room
        assert len(objects) == others + (2 if " ball, " in level.mission or " after " in level.mission else 1)
        assert level.max_steps == limit
    assert seen == expected


def test_pickup_local_always_names_a_colour():
    assert all(colour for mission in missions("PickupLocal", 60)[0] for colour, _ in pairs(mission))


def test_french_levels_speak_french_unless_asked_not_to():
    for name in ("GoToFrench", "MixedTrainLocalFrench"):
        env = envs.make(f"babyai/{name}", 20, captions=True)
        obs = env.begin(np.arange(20))
        english = missions(name, 20)[0]
        assert env.texts.texts(obs["mission"]) == [translate(mission) for mission in english]
        assert all(text.startswith("Tu ") for text in env.texts.texts(obs["caption"]))
        assert env.env_spec.action_names[0] == "tourner à gauche"
    assert envs.spec("babyai/GoToFrench", language="en").action_names[0] == "turn left"
    assert "wall" in envs.spec("babyai/GoToLocal").words
    assert "mur" in envs.spec("babyai/GoToLocal", language="fr").words


def test_action_options():
    spec = envs.spec("babyai/GoToLocal", actions=6, idle_actions=["sleep", "think"])
    assert spec.action_names == ("turn left", "turn right", "go forward", "pick up", "drop", "toggle", "sleep", "think")
    env = envs.make("babyai/GoToLocal", 1, actions=6, idle_actions=["sleep", "think"])
    first = env.begin(np.array([3]))
    for action in (6, 7):
        assert np.array_equal(env.advance(np.array([action])).obs["image"], first["image"])
    for action in (8, -1):
        with pytest.raises(ValueError, match="0 to 7"):
            env.advance(np.array([action]))


def test_the_step_limit_truncates():
    env = envs.make("babyai/GoToLocal", 2, max_steps=3)
    env.begin(np.arange(2))
    for step in range(1, 4):
        transition = env.advance(np.full(2, 6))
        assert transition.truncated.tolist() == [step == 3] * 2
    assert not transition.terminated.any()
    assert not transition.episodes.success.any()


def test_generation_is_silent(capfd):
    envs.make("babyai/MixedTestLocal", 4).begin(np.arange(4))
    assert capfd.readouterr() == ("", "")


def test_frames_show_the_whole_map():
    env = envs.make("babyai/GoToLocal", 2)
    env.begin(np.arange(2))
    frame = env.frame(0)
    assert frame.dtype == np.uint8
    assert frame.shape == (256, 256, 3)
    assert not np.array_equal(frame, env.frame(1))


def test_unknown_levels_are_refused_with_a_suggestion():
    with pytest.raises(envs.UnknownEnv, match="babyai/GoToLocal"):
        envs.make("babyai/GoToLocl")
    with pytest.raises(LookupError, match="no level 'Nowhere'"):
        build("Nowhere")


def test_simulators_are_room_grid_levels():
    assert all(isinstance(build(name), RoomGridLevel) for name in ("GoToLocal", "MixedTrainLocal", "PickupLocal"))
