"""Houses play today as they were recorded: what is seen pixel by pixel, told, done, wanted and paid.

`python -m tests.envs.test_housekeep_golden` records anew, where the rules were changed on purpose.
"""

from pathlib import Path

import numpy as np
import pytest

import envs
from tests.envs.housekeep_play import busy

GOLDEN = Path(__file__).parents[1] / "golden" / "housekeep"
WORLDS = ("Task1", "Task3", "House")
STEPS, EACH, PLAYERS = 240, 8, 2
"""Sights are kept of each eighth step, all else of each."""
FIELDS = ("view", "seen", "held", "published")


def made(name):
    options = {"observe": [*FIELDS], "size": 32, "starts": "seed", "reward": "benchmark", "spawn": "all", "length": 150}
    return envs.make(f"housekeep/{name}", PLAYERS, seed=11, **options)


def played(env, actions):
    """What there is to see of a play, by name: arrays of plain numbers and texts."""
    told = {field: [] for field in (*FIELDS, "events", "reward", "over", "goals", "ids")}
    obs, reward, over = env.begin(), np.zeros(PLAYERS, np.float32), np.zeros((2, PLAYERS), np.bool_)
    for step in range(STEPS + 1):
        for field in FIELDS:
            told[field].append(env.texts.texts(obs[field]))
        told["events"].append([env.texts[event] if event >= 0 else "" for event in env.events.tolist()])
        told["reward"].append(np.array(reward))
        told["over"].append(np.array(over))
        if env.env_spec.goals:
            told["goals"].append(np.packbits(env.possible_goals(), axis=1))
        if step % EACH == 0:
            told["ids"].append(env.pictures.ids.copy())
        if step < STEPS:
            transition = env.advance(actions(step))
            obs, reward, over = transition.obs, transition.reward, (transition.terminated, transition.truncated)
    return {field: np.array(values) for field, values in told.items()}


@pytest.mark.parametrize("name", WORLDS)
def test_houses_play_as_they_were_recorded(name):
    with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as arrays:
        recorded = dict(arrays)
    taken = recorded.pop("actions")
    found = played(made(name), taken.__getitem__)
    texts = recorded.pop("texts")  # each once
    assert found.keys() == recorded.keys()
    for field, values in recorded.items():
        expected = texts[values] if field in (*FIELDS, "events") else values
        np.testing.assert_array_equal(found[field], expected, err_msg=field)


@pytest.mark.parametrize("name", WORLDS)
def test_what_was_recorded_has_something_of_everything(name):
    with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as arrays:
        texts = arrays["texts"]
        events = set(texts[arrays["events"]].ravel().tolist())
        assert any(event.startswith("pick ") for event in events)
        assert any(" in " in event for event in events)
        assert len(np.unique(arrays["reward"])) >= 4
        assert arrays["over"].any()
        assert len(np.unique(arrays["ids"])) > 15
        assert name == "House" or np.unpackbits(arrays["goals"], axis=2).any()
        assert len(np.unique(arrays["view"])) > 50
    assert sum(path.stat().st_size for path in GOLDEN.iterdir()) < 100_000


def record():
    for name in WORLDS:
        env = made(name)
        planned, taken = busy(env, STEPS, seed=5), []

        def act(step, planned=planned, taken=taken):
            taken.append(next(planned))
            return taken[-1]

        found = played(env, act)
        texts, numbers = np.unique(np.stack([found[field] for field in (*FIELDS, "events")]), return_inverse=True)
        numbers = numbers.reshape(len(FIELDS) + 1, STEPS + 1, PLAYERS).astype(np.int16)
        found |= dict(zip((*FIELDS, "events"), numbers, strict=True))
        np.savez_compressed(GOLDEN / f"{name}.npz", texts=texts, actions=np.array(taken, np.int8), **found)


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    record()
