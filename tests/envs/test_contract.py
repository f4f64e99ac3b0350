"""What every world promises, for every id that can be listed. A new world is tested by being there.

Each property is checked on all worlds outside `babyai` and `procgen`, and on a sample of theirs; the slow runs take all
of them.
"""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import envs
from envs import HELD_OUT_FIRST, TextTable, episode_seed
from envs.registry import family, resolve

SAMPLE = {
    "babyai/GoToLocal",
    "babyai/MixedTrainLocal",
    "babyai/PutNextS5N2Carrying",
    "babyai/UnlockToUnlock",
    "babyai/MiniBossLevel",
    "babyai/Text-GoTo-RedBallBlueBox-S20",
    "babyai/GoToFrench",
    "procgen/bigfish",
    "procgen/maze",
}
ALL = envs.ids()
ELSEWHERE = family("procgen").python(family("procgen").Config()) is None
MARKS = {"babyai": pytest.mark.slow, "procgen": pytest.mark.slow}
EXTRAS = {
    "control": pytest.mark.mujoco,
    "metaworld": pytest.mark.mujoco,
    "procgen": pytest.mark.skipif(
        ELSEWHERE, reason="Procgen has no Python here: docs/procgen.md says how to set it up"
    ),
}


def marks(env_id):
    family = env_id.partition("/")[0]
    slow = MARKS.get(family) if env_id not in SAMPLE else None
    return [mark for mark in (slow, EXTRAS.get(family)) if mark]


worlds = pytest.mark.parametrize("env_id", [pytest.param(i, marks=marks(i), id=i) for i in ALL])


def options(env_id):
    """Short episodes where the world can be told so, and every field that it can have."""
    family = env_id.partition("/")[0]
    every = ["symbols", "counts", "pixels", "view", "items", "feelings", "around"]
    return {
        "babyai": {"max_steps": 9, "captions": True},
        "crafter": {"length": 9, "observe": every, "task": "gardening", "subgoals": "shown"},
        "dark": {"length": 9, "start": [1, 2], "observe": "coordinates" if "KeyDoor" in env_id else "cells"},
        "housekeep": {
            "length": 9,
            "starts": "seed",
            "observe": ["rgb", "view", "seen", "held", "published"],
            "size": 16,
        },
        "maze": {"length": 9},
        "control": {"length": 9},
        "metaworld": {"length": 9, "training": ["reach", "push", "door-open"], "held_out": []},
        "navigation": {"length": 9, "start": "anywhere", "captions": True},
        "procgen": {"length": 9},
    }.get(family, {})


def action_table(spec, steps, num_envs):
    """Actions [steps, num_envs, ...] that do not depend on how the envs are split."""
    generator = np.random.default_rng(8)
    if spec.discrete:
        return generator.integers(0, len(spec.action_names), (steps, num_envs))
    return generator.normal(size=(steps, num_envs, *spec.action_shape)).astype(np.float32)


def readable(env, obs):
    """Observation with strings for text ids, so that two envs can be compared."""
    texts = {name for name, field in env.env_spec.fields.items() if field.kind == "text"}
    return {n: np.array(env.texts.texts(v), object) if n in texts else v.copy() for n, v in obs.items()}


def record(env, actions, first=None):
    """All that `advance` yields, one entry per step; readable and copied."""
    steps = [{"obs": readable(env, first)}] if first is not None else []
    for action in actions:
        t = env.advance(action)
        ends = {name: getattr(t.episodes, name).copy() for name in ("env", "episode", "seed", "length", "total")}
        steps.append(
            {
                "obs": readable(env, t.obs),
                "reward": t.reward.copy(),
                "terminated": t.terminated.copy(),
                "truncated": t.truncated.copy(),
                "final_index": t.final_index.copy(),
                "final_obs": readable(env, t.final_obs) if len(t.final_index) else {},
                "episodes": ends | {"success": t.episodes.success.copy(), "kind": t.episodes.kind.copy()},
            }
        )
    return steps


def same(one, other):
    """Equality of nested dicts and lists of arrays."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return np.array_equal(one, other)


def rows(steps, chosen):
    """The part of a recording that is about envs `chosen` (local indices)."""
    cut = []
    for step in steps:
        part = {"obs": {n: v[chosen] for n, v in step["obs"].items()}}
        if "reward" in step:
            ended = np.flatnonzero(np.isin(step["final_index"], chosen))
            part |= {name: step[name][chosen] for name in ("reward", "terminated", "truncated")}
            part["final_obs"] = {n: v[ended] for n, v in step["final_obs"].items()} if len(ended) else {}
            part["episodes"] = {n: v[ended] for n, v in step["episodes"].items()}
        cut.append(part)
    return cut


@worlds
def test_episodes_do_not_depend_on_how_envs_are_split(env_id):
    spec = envs.spec(env_id, **options(env_id))
    actions = action_table(spec, 25, 4)
    whole = envs.make(env_id, 4, seed=3, first_index=10, **options(env_id))
    expected = record(whole, actions, whole.begin())
    for split in ([slice(0, 1), slice(1, 4)], [slice(0, 2), slice(2, 4)]):
        for part in split:
            env = envs.make(env_id, part.stop - part.start, seed=3, first_index=10 + part.start, **options(env_id))
            found = record(env, actions[:, part], env.begin())
            for step in found[1:]:
                step.pop("final_index")
            assert same(found, rows(expected, np.arange(part.start, part.stop)))


@worlds
def test_the_root_seed_matters(env_id):
    spec = envs.spec(env_id, **options(env_id))
    recordings = []
    for seed in (3, 3, 4):
        env = envs.make(env_id, 8, seed=seed, **options(env_id))
        recordings.append(record(env, action_table(spec, 12, 8), env.begin()))
    assert same(recordings[0], recordings[1])
    assert not same(recordings[0], recordings[2])


@worlds
def test_restore_continues_as_if_nothing_had_happened(env_id):
    spec = envs.spec(env_id, **options(env_id))
    actions = action_table(spec, 40, 3)
    env = envs.make(env_id, 3, seed=1, **options(env_id))
    env.begin()
    before = record(env, actions[:23])[-1]["obs"]
    state = env.state()
    expected = record(env, actions[23:])
    after = envs.make(env_id, 3, seed=99, **options(env_id))
    assert same(readable(after, after.restore(state)), before)
    assert same(record(after, actions[23:]), expected)
    assert same(readable(env, env.restore(state)), before)  # into an env that has gone on


@worlds
def test_observations_are_what_the_spec_says_and_stay_as_they_were(env_id):
    env = envs.make(env_id, 3, **options(env_id))
    obs = env.begin()
    held = []
    for action in action_table(env.env_spec, 20, 3):
        assert obs.keys() == env.env_spec.fields.keys()
        for name, field in env.env_spec.fields.items():
            assert obs[name].shape == (3, *field.shape)
            assert obs[name].dtype == field.dtype
            if field.kind == "category":
                assert obs[name].min() >= 0
                assert obs[name].max() < field.size
        held.append((obs, {name: value.copy() for name, value in obs.items()}))
        transition = env.advance(action)
        if len(transition.final_index):
            held.append((transition.final_obs, {n: v.copy() for n, v in transition.final_obs.items()}))
        obs = transition.obs
    assert all(same(now, then) for now, then in held)


@worlds
def test_final_observations_are_those_of_the_episode_that_ended(env_id):
    """The same episode, played alone with a longer memory of it, ends in the same observation."""
    spec = envs.spec(env_id, **options(env_id))
    steps = 1000 if not env_id.startswith("babyai/") else 12
    actions = action_table(spec, steps, 2)
    env = envs.make(env_id, 2, seed=5, **options(env_id))
    env.begin()
    for action in actions:
        transition = env.advance(action)
        if len(transition.final_index):
            break
    else:
        pytest.fail(f"no episode ended in {steps} steps")
    i = int(transition.final_index[0])
    assert transition.terminated[i] or transition.truncated[i]
    length = int(transition.episodes.length[0])
    alone = envs.make(env_id, 1, seed=5, first_index=i, **options(env_id))
    alone.begin()
    for action in actions[:length]:
        alone._advance(action[i : i + 1])
    final = readable(alone, alone._observe(np.array([0])))
    assert same(final, {n: v[:1] for n, v in readable(env, transition.final_obs).items()})
    second = envs.make(env_id, 1, **options(env_id)).begin(np.array([episode_seed(5, i, 1)]))
    for name, field in spec.fields.items():
        if field.kind != "text":
            assert np.array_equal(second[name][0], transition.obs[name][i])


@worlds
def test_a_seed_names_an_episode_whatever_came_before(env_id):
    env = envs.make(env_id, 2, **options(env_id))
    env.begin()
    record(env, action_table(env.env_spec, 5, 2))
    again, _ = env.reset(seed=[7, 7])
    fresh, _ = envs.make(env_id, 2, seed=50, **options(env_id)).reset(seed=7)
    for name in env.env_spec.fields:
        assert np.array_equal(again[name][0], again[name][1])
        assert np.array_equal(again[name][0], fresh[name][0])


@worlds
def test_texts_are_of_the_vocabulary(env_id):
    env = envs.make(env_id, 4, **options(env_id))
    obs = env.begin()
    for action in action_table(env.env_spec, 12, 4):
        for name, field in env.env_spec.fields.items():
            if field.kind == "text":
                for text in env.texts.texts(obs[name]):
                    words = text.lower().replace(",", " ").replace(".", " ").split()
                    assert words
                    assert set(words) <= set(env.env_spec.words)
        obs = env.advance(action).obs
    assert isinstance(env.texts, TextTable)
    assert tuple(sorted(env.env_spec.words)) == env.env_spec.words


@worlds
def test_check_env(env_id):
    envs.register_all()
    env = gymnasium.make(f"cairn/{env_id.replace('/', '-')}-v0")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        check_env(env.unwrapped, skip_render_check=env_id.startswith("gym/"))
    # Vectors and Box actions have no bounds here, of which Gymnasium warns. It has nothing else to say.
    assert all("infinity" in str(w.message) or "symmetric and normalized" in str(w.message) for w in found)


@worlds
def test_ids_resolve_and_unknown_names_do_not(env_id):
    module, name = resolve(env_id)
    assert module.has(name)
    assert name in module.names()
    assert envs.spec(env_id).id == env_id
    with pytest.raises(envs.UnknownEnv):
        envs.make(f"{env_id}xyz")


@pytest.mark.parametrize("name", envs.families())
def test_a_family_refuses_unknown_options(name):
    with pytest.raises(ValueError, match="nonsense"):
        envs.make(f"{name}/{family(name).names()[0]}", nonsense=1)


def test_training_seeds_stay_below_the_held_out_ones():
    seeds = {episode_seed(seed, i, k) for seed in range(5) for i in range(20) for k in range(20)}
    assert len(seeds) == 2000
    assert 0 <= min(seeds) <= max(seeds) < HELD_OUT_FIRST


def test_restore_refuses_another_number_of_envs():
    three = envs.make("toy/Line", 3)
    three.begin()
    state = three.state()
    with pytest.raises(ValueError, match="of 3 envs, this env has 2"):
        envs.make("toy/Line", 2).restore(state)


def test_the_state_of_equal_moments_is_equal_whatever_came_before():
    """A long first episode must not show in the state of a short second one."""
    env = envs.make("toy/Line", 2, seed=0)
    env.begin()
    for action in (1, 1, 1, 1, 0):  # env 0 and 1 stay four steps, then end on the left
        env.advance(np.full(2, action))
    env.advance(np.array([1, 1]))
    env.advance(np.array([0, 1]))  # env 0 begins anew, env 1 goes on
    env.advance(np.array([1, 1]))
    state = env.state()
    again = envs.make("toy/Line", 2, seed=0)
    again.restore(state)
    for name, value in state.items():
        np.testing.assert_array_equal(value, again.state()[name], err_msg=name)
    assert state["log"].shape == (2, 3)
    assert state["log"][0].tolist() == [1, 0, 0]
