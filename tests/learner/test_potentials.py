"""Shaping: windows, and what F leaves as it is: optimal policies and advantages."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envs
from envs.api import Transition
from learner import potentials
from learner.algorithms.ppo.advantages import next_values, vtrace
from learner.forms import FORMS, shaped
from learner.models.config import PolicyConfig, visible
from learner.potentials import PotentialSetup, ShapingConfig
from learner.windows import NO_ACTION, Trail

T, N, GAMMA = 13, 3, 0.97


class Walk:
    """Episodes of chance: an observation is (env, episode, step), so that every window can be told apart."""

    def __init__(self, rng, n=N, ends=0.25):
        self.rng, self.n, self.ends = rng, n, ends
        self.episode, self.step = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.seen = np.zeros((n, 3), np.int64)  # what an engine yields, it may use again
        self.log = [[[]] for _ in range(n)]  # actions, by env and episode

    def obs(self):
        self.seen[:] = np.stack([np.arange(self.n), self.episode, self.step], 1)
        return {"at": self.seen}

    def advance(self):
        actions = self.rng.integers(5, size=self.n)
        for env in range(self.n):
            self.log[env][-1].append(int(actions[env]))
        self.step += 1
        (ended,) = np.nonzero(self.rng.random(self.n) < self.ends)
        final = {"at": self.obs()["at"][ended]}
        terminated = np.zeros(self.n, np.bool_)
        terminated[ended] = self.rng.random(len(ended)) < 0.5
        truncated = np.zeros(self.n, np.bool_)
        truncated[ended] = ~terminated[ended]
        self.episode[ended] += 1
        self.step[ended] = 0
        for env in ended:
            self.log[env].append([])
        zeros = np.zeros(self.n, np.float32)
        return actions, Transition(self.obs(), zeros, terminated, truncated, ended.astype(np.int32), final, None)

    def window(self, env, episode, step, length):
        """By definition: observations and actions of the window of one state."""
        back = range(step - length + 1, step + 1)
        actions = [self.log[env][episode][s] if s >= 0 else NO_ACTION for s in back[:-1]]
        return [[env, episode, max(s, 0)] for s in back], actions


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), length=st.integers(1, 7), chunks=st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_every_window_is_what_its_definition_says(seed, length, chunks):
    walk, trail = Walk(np.random.default_rng(seed)), Trail(["at"], length)
    trail.begin(walk.obs())
    for steps in chunks:
        expected, finals = [], []
        for t in range(steps):
            actions, transition = walk.advance()
            trail.add(actions, transition)
            expected += transition.obs["at"].tolist()
            finals += [(t, *row) for row in transition.final_obs["at"].tolist()]
        windows, ended = trail.chunk()
        again = Trail(["at"], length)
        again.restore(trail.state())
        trail = again  # all that is carried is in the state
        assert ended.tolist() == [[t, env] for t, env, _, _ in finals]
        of = expected + [row for _, *row in finals]
        assert len(windows) == len(of)
        for k, (env, episode, step) in enumerate(of):
            obs, actions = walk.window(env, episode, step, length)
            assert windows.obs("at")[k].tolist() == obs
            assert windows.actions[k].tolist() == actions


def test_a_trail_of_another_length_is_refused():
    trail = Trail(["at"], 4)
    trail.begin({"at": np.zeros((2, 3))})
    with pytest.raises(ValueError, match="does not remember 5 observations of at"):
        Trail(["at"], 5).restore(trail.state())


# ---- what F leaves as it is ------------------------------------------------------------------------------------------


def chance(seed):
    """A chunk of chance: rewards, values and potentials of its states, and how episodes end."""
    rng = np.random.default_rng(seed)
    ends = rng.random((T, N)) < 0.2
    terminated = ends & (rng.random((T, N)) < 0.5)
    index = np.argwhere(ends).astype(np.int32)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    return terminated, ends & ~terminated, index, draw(T, N), draw(T + 1, N), draw(T + 1, N), draw(len(index), 2)


def after_steps(phi, index, last):
    after = phi[1:].copy()
    after[tuple(index.T)] = last
    return after


@pytest.mark.parametrize("lam", [0.0, 0.7, 0.95, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_advantages_of_shaped_rewards_are_those_of_values_with_the_potential_added(seed, lam):
    """At every place and border: (r + F, V) against (r, V + phi). A wrong sign, lag, reset or end shows here."""
    terminated, truncated, index, reward, value, phi, last = chance(seed)
    shaping = shaped(phi[:-1], after_steps(phi, index, last[:, 1]), terminated, GAMMA)

    def advantages(reward, value, final_value):
        following = next_values(value, terminated, truncated, index, final_value)
        return vtrace(reward, value[:-1], following, terminated | truncated, np.ones_like(reward), GAMMA, lam)[0]

    one = advantages(reward + shaping, value, last[:, 0])
    other = advantages(reward, value + phi, last[:, 0] + last[:, 1])
    np.testing.assert_allclose(one, other, atol=1e-5)
    assert np.abs(one - advantages(reward, value, last[:, 0])).max() > 0.1  # so it does pay


def grid(rng, states=25, actions=4):
    """Transitions of chance, some of them ends."""
    following = rng.integers(states, size=(states, actions))
    return following, rng.random((states, actions)) < 0.15, rng.normal(size=(states, actions))


def greedy(following, ends, reward):
    """The best action of each state, by exact value iteration."""
    value = np.zeros(len(following))
    for _ in range(4000):
        action_value = reward + GAMMA * np.where(ends, 0.0, value[following])
        value = action_value.max(1)
    return action_value.argmax(1), action_value


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_no_potential_changes_an_optimal_policy(seed):
    rng = np.random.default_rng(seed)
    following, ends, reward = grid(rng)
    phi = rng.normal(scale=5.0, size=len(following)).astype(np.float32)
    before = np.broadcast_to(phi[:, None], following.shape)
    shaping = shaped(before, phi[following], ends, GAMMA)
    best, value = greedy(following, ends, reward)
    shaped_best, shaped_value = greedy(following, ends, reward + shaping)
    np.testing.assert_allclose(shaped_value, value - phi[:, None], atol=1e-4)
    np.testing.assert_array_equal(shaped_best, best)


def test_a_potential_that_stays_at_an_end_does_change_it():
    """Two exits, equally good; what the last state is worth is never taken back, so the one that looks better wins."""
    following = np.array([[1, 2], [1, 1], [2, 2]])
    ends = np.array([[True, True], [True, True], [True, True]])
    reward = np.array([[1.0, 0.9], [0.0, 0.0], [0.0, 0.0]])
    phi = np.array([0.0, 0.0, 3.0], np.float32)
    before = np.broadcast_to(phi[:, None], following.shape)
    never = np.zeros_like(ends)
    assert greedy(following, ends, reward + shaped(before, phi[following], ends, GAMMA))[0][0] == 0
    assert greedy(following, ends, reward + shaped(before, phi[following], never, GAMMA))[0][0] == 1


# ---- forms that are there to be compared with ------------------------------------------------------------------------


def published(phi, discount, steps, epsilon=1e-4):
    """Step by step, what that code does: phi [S, N] of states before actions, in rollouts of these many steps."""
    n, paid, sums = phi.shape[1], [], []
    carried, running = np.zeros(n), np.zeros(n)
    for first in range(0, len(phi), steps):
        rows = [carried, *phi[first : first + steps].astype(np.float64)]
        for row in rows:
            running = running * discount + row
            sums += running.tolist()
        seen = np.array(sums)
        # all that was ever summed, and the usual grain of variance 1 around 0
        mean = seen.sum() / (len(seen) + epsilon)
        variance = (((seen - mean) ** 2).sum() + epsilon * (1 + mean**2)) / (len(seen) + epsilon)
        rows = [row / np.sqrt(variance) for row in rows]
        paid += [discount * now - before for before, now in itertools.pairwise(rows)]
        carried = rows[-1]
    return np.stack(paid)


@pytest.mark.parametrize("steps", [1, 4, 16])
def test_the_published_form_is_what_was_published_over_chunks_and_restarts(steps):
    rng = np.random.default_rng(0)
    phi = rng.random((33, N)).astype(np.float32) * (rng.random((33, N)) < 0.6)
    found, state = [], None
    for first in range(0, 32, steps):
        form = FORMS["published"](GAMMA, N)
        if state:
            form.restore(state)
        ends = rng.random((steps, N)) < 0.3  # they change nothing, as little as what an episode ended in
        found.append(form.pay(phi[first : first + steps + 1], rng.random((steps, N)).astype(np.float32), ends))
        state = form.state()
    np.testing.assert_allclose(np.concatenate(found), published(phi[:-1], GAMMA, steps), rtol=1e-6, atol=1e-6)


def test_after_a_long_time_of_nothing_the_published_form_pays_a_fortune():
    form = FORMS["published"](GAMMA, 1)
    for _ in range(50):
        form.pay(np.zeros((33, 1), np.float32), np.zeros((32, 1), np.float32), np.zeros((32, 1), np.bool_))
    phi = np.zeros((33, 1), np.float32)
    phi[10] = 0.5
    assert np.abs(form.pay(phi, phi[1:], np.zeros((32, 1), np.bool_))).max() > 5


def test_to_be_paid_phi_itself_changes_what_is_best():
    """An exit that pays, and a place where it is sensible to be: to stay there is best if phi itself is paid."""
    following = np.array([[0, 1], [1, 1]])  # stay, or leave
    ends = np.array([[False, True], [True, True]])
    reward = np.array([[0.0, 1.0], [0.0, 0.0]])
    phi = np.array([0.5, 0.0], np.float32)
    before = np.repeat(phi[:, None], 2, 1)
    best = {name: reward + FORMS[name](GAMMA, 2).pay(np.vstack([before, before[:1]]), phi[following], ends)
            for name in ("potential", "additive")}  # fmt: skip
    assert greedy(following, ends, reward)[0][0] == 1
    assert greedy(following, ends, best["potential"])[0][0] == 1
    assert greedy(following, ends, best["additive"])[0][0] == 0


# ---- potentials ------------------------------------------------------------------------------------------------------


def test_the_random_potential_is_a_function_of_the_present_observation_and_of_the_seed():
    fields = envs.spec("babyai/GoToLocal").fields
    rng = np.random.default_rng(0)
    world = envs.make("babyai/GoToLocal", 64, 1)
    trail = Trail(["image", "direction"], 3)
    trail.begin(world.begin())
    for _ in range(5):
        actions = rng.integers(7, size=64)
        trail.add(actions, world.advance(actions))
    windows, _ = trail.chunk()

    def phi(seed, windows=windows):
        return potentials.potential("random")(PotentialSetup(ShapingConfig(), fields, seed)).phi(windows)

    found = phi(1)
    assert found.dtype == np.float32
    assert len(found) >= 5 * 64
    assert 0.1 < found.std() < 1.5
    np.testing.assert_array_equal(found, phi(1))
    assert (found != phi(2)).mean() > 0.9
    _, first, same = np.unique(
        np.concatenate([windows.now(n).reshape(len(found), -1) for n in ("image", "direction")], 1),
        axis=0, return_index=True, return_inverse=True,
    )  # fmt: skip
    np.testing.assert_array_equal(found, found[first][same.ravel()])
    assert len(np.unique(found)) == len(first)


DISTANT = ("babyai/Text-GoToLocal-RedBall-S20", {"distance": True, "levels": "native"})


def test_the_oracle_is_minus_the_distance_and_wants_a_world_that_tells_it():
    world = envs.make(DISTANT[0], 16, 1, **DISTANT[1])
    trail = Trail(["distance"], 2)
    trail.begin(world.begin())
    trail.add(np.full(16, 2), world.advance(np.full(16, 2)))
    windows, _ = trail.chunk()
    oracle = potentials.potential("oracle")
    phi = oracle(PotentialSetup(ShapingConfig(), world.env_spec.fields, 0)).phi(windows)
    assert phi.dtype == np.float32
    assert -1 <= phi.min() < phi.max() <= 0
    np.testing.assert_array_equal(phi, -windows.obs("distance")[:, 1, 0])
    oracle.check(ShapingConfig(), world.env_spec)
    with pytest.raises(ValueError, match=r"toy/Line does not tell: set env.distance=true"):
        oracle.check(ShapingConfig(), envs.spec("toy/Line"))


def test_no_policy_sees_what_only_the_world_knows():
    spec = envs.spec(DISTANT[0], **DISTANT[1])
    assert "distance" in spec.fields
    assert visible(PolicyConfig(), spec) == visible(PolicyConfig(), envs.spec(DISTANT[0]))
    with pytest.raises(ValueError, match=r"'distance', which is privileged in "):
        visible(PolicyConfig(reads=["image", "distance"]), spec)
