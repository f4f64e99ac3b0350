"""The field `history`: beside a slow bookkeeping of strings, over the ends of episodes, and in a successor."""

from collections import deque

import numpy as np
import pytest

import envs
from actors.wrappers.history import History
from envs.api import Wrapper
from learner.models.config import HISTORY as FIELD
from tests.learner.doors import Doors


def world(n=4, **options):
    return envs.make("babyai/GoToLocal", n, 3, **{"captions": True, "max_steps": 9} | options)


def strings(env, ids):
    return [env.texts.texts(row) for row in ids]


def expected(past, steps, width):
    """Texts and actions of the last `steps` steps, with empty places before them."""
    rows = [[""] * width] * (steps - len(past)) + list(past)
    return [text for row in rows for text in row]


@pytest.mark.parametrize("observations", [1, 2, 3, 6])
@pytest.mark.parametrize("observation", [["caption"], ["mission", "caption"]])
def test_it_is_what_was_seen_and_done_in_this_episode(observation, observations):
    """Random play; each observation, and each last one, beside lists of strings."""
    env = world()
    names, width, steps = env.env_spec.action_names, len(observation) + 1, observations - 1
    history = History(env, observation, observations)
    obs = history.begin()
    past = [deque(maxlen=steps) for _ in range(4)]
    random = np.random.default_rng(0)
    ends = 0
    for _ in range(60):
        assert obs[FIELD].dtype == np.int32
        assert strings(env, obs[FIELD]) == [expected(rows, steps, width) for rows in past]
        action = random.integers(len(names), size=4)
        for i in range(4):
            past[i].append([*(env.texts[int(obs[name][i])] for name in observation), names[action[i]]])
        transition = history.advance(action)
        last = [expected(past[i], steps, width) for i in transition.final_index]
        assert strings(env, transition.final_obs.get(FIELD, [])) == last
        for i in transition.final_index:
            past[i].clear()
            ends += 1
        obs = transition.obs
    assert ends > 20


def test_what_was_handed_out_stays_as_it_was():
    env = world()
    history = History(env, ["caption"], 3)
    obs = history.begin()
    kept = []
    for _ in range(20):
        kept.append((obs[FIELD], obs[FIELD].copy()))
        transition = history.advance(np.zeros(4, np.int64))
        obs = transition.obs
    for handed_out, copy in kept:
        np.testing.assert_array_equal(handed_out, copy)


@pytest.mark.parametrize("steps", [0, 1, 9, 14])
def test_a_successor_continues_in_an_env_whose_texts_have_other_ids(steps):
    first, second = world(), world()
    for text in ("something else", "turn right", "pick up"):
        second.texts.intern(text)
    random = np.random.default_rng(steps)
    history = History(first, ["caption"], 4)
    obs = history.begin()
    for _ in range(steps):
        action = random.integers(7, size=4)
        transition = history.advance(action)
        obs = transition.obs

    state = history.state()
    assert all(isinstance(value, np.ndarray) for value in state.values())
    successor = History(second, ["caption"], 4)
    other = successor.restore(state)
    assert steps == 0 or not np.array_equal(obs[FIELD], other[FIELD]), "ids differ"
    for _ in range(15):
        assert strings(first, obs[FIELD]) == strings(second, other[FIELD])
        for name, value in history.state().items():
            np.testing.assert_array_equal(value, successor.state()[name], err_msg=name)
        action = random.integers(7, size=4)
        transition, again = history.advance(action), successor.advance(action)
        assert transition.final_index.tolist() == again.final_index.tolist()
        if len(transition.final_index):
            assert strings(first, transition.final_obs[FIELD]) == strings(second, again.final_obs[FIELD])
        obs, other = transition.obs, again.obs


class Odd(Wrapper):
    """Says other captions than the world does."""

    says = ('Tu vois une "boîte"\nà clef', "\\ 钥匙 {}, []")

    def begin(self, seeds=None):
        return self.env.begin(seeds) | {"caption": np.array([self.texts.intern(text) for text in self.says], np.int32)}


def test_texts_survive_whatever_characters_they_have():
    history = History(Odd(world(2, language="fr")), ["caption"], 2)
    history.begin()
    history.advance(np.array([0, 2]))
    successor = History(world(2, language="fr"), ["caption"], 2)
    successor.restore(history.state())
    told = [[Odd.says[0], "tourner à gauche"], [Odd.says[1], "aller tout droit"]]
    assert strings(successor, successor.given) == told


def test_a_state_of_other_envs_is_refused():
    history = History(world(), ["caption"], 3)
    history.begin()
    with pytest.raises(ValueError, match=r"the state remembers \[4, 4\] texts, these envs \[4, 2\]"):
        History(world(), ["caption"], 2).restore(history.state())


def test_where_actions_differ_the_name_that_was_offered_is_told():
    env = Doors(5, 1)
    history = History(env, ["caption"], 3)
    obs, random = history.begin(), np.random.default_rng(0)
    for _ in range(12):
        offered = [[env.texts[i] for i in row] for row in obs["candidates"].tolist()]
        action = np.array([random.choice([k for k, name in enumerate(names) if name]) for names in offered])
        done = [names[k] for names, k in zip(offered, action.tolist(), strict=True)]
        transition = history.advance(action)
        obs = transition.obs
        told = obs["history"].copy()
        told[transition.final_index] = transition.final_obs.get("history", told[:0])
        assert [env.texts[i] for i in told[:, -1].tolist()] == done
