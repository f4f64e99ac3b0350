"""Tabular Q-learning of many tasks at once is that of each alone, and chance falls as it is told to."""

import sys

import numpy as np
import pytest

import envs
from actors.histories import Histories
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from envs.api import Episodes
from learner import histories as learners
from learner.histories import HistoriesConfig, training_tasks
from learner.histories.q import QLearning, states
from learner.store.pieces import Pieces


def alone(world, config, seed, task, **options):
    """One task's learner, written down step by step: its actions, and its table by state."""
    env, table, actions = envs.make(world, 1, **options), {}, []
    keyed = world.startswith("dark/KeyDoor")
    for number in range(config.episodes):
        random = np.random.default_rng([seed, task, number])
        obs, paid, ended = env.begin(np.array([task])), False, False
        while not ended:
            state = (int(obs["row"][0]), int(obs["column"][0]), keyed and paid)
            values = table.setdefault(state, [config.initial] * 5)
            chance, which = random.random(2)
            best = [a for a in range(5) if chance < config.epsilon(number) or values[a] == max(values)]
            actions.append(best[int(which * len(best))])
            t = env.advance(np.array(actions[-1:]))
            ended = len(t.final_index) == 1
            paid = paid or t.reward[0] > 0
            obs = t.obs
            seen = t.final_obs if ended else obs
            after = table.setdefault(
                (int(seen["row"][0]), int(seen["column"][0]), keyed and paid), [config.initial] * 5
            )
            found = float(t.reward[0]) + config.discount * max(after)
            values[actions[-1]] += config.learning_rate * (found - values[actions[-1]])
    return actions, table


@pytest.mark.parametrize("world", ["dark/Room-4x3", "dark/KeyDoor-4x3"])
@pytest.mark.parametrize("initial", [0.0, 1.0])
def test_each_of_many_learns_as_one_alone(world, initial):
    config = HistoriesConfig(episodes=12, initial=initial, learning_rate=0.3, epsilon_end=0.1)
    tasks = np.array([2, 0, 5, 4])
    histories = Histories(envs.make(world, len(tasks)), config, 7, tasks)
    assert sum(histories.play() for _ in range(12)) == 4 * 12 * 12
    pieces, steps = histories.take()
    np.testing.assert_array_equal(pieces.task, np.repeat(tasks, 12))
    for i, task in enumerate(tasks.tolist()):
        actions, table = alone(world, config, 7, task)
        np.testing.assert_array_equal(steps.action[i * 144 : (i + 1) * 144], actions)
        for (row, column, paid), values in table.items():
            state = (paid * 3 + row) * 4 + column
            np.testing.assert_array_equal(histories.learner.values[i, state], values)


def test_what_is_taken_is_forgotten_and_goes_on():
    config = HistoriesConfig(episodes=6)
    whole, parts = (Histories(envs.make("dark/Room-4x3", 3), config, 0, np.arange(3)) for _ in range(2))
    taken = []
    for number in range(6):
        whole.play()
        parts.play()
        if number in (1, 5):
            taken.append(parts.take())
    pieces, steps = whole.take()
    np.testing.assert_array_equal(pieces.episode.reshape(3, 6), np.tile(np.arange(6), (3, 1)))
    np.testing.assert_array_equal(taken[1][0].episode.reshape(3, 4)[0], [2, 3, 4, 5])
    ours = np.concatenate([of.source.reshape(3, -1) for of, _ in taken], 1)
    np.testing.assert_array_equal(ours.ravel(), pieces.source)
    ours = np.concatenate([of.action.reshape(3, -1) for _, of in taken], 1)
    np.testing.assert_array_equal(ours.ravel(), steps.action)


def test_rows_of_tasks_are_taken_one_by_one_and_held_in_few_bytes():
    config, tasks = HistoriesConfig(episodes=5), np.arange(9)[::-1]
    alone = Histories(envs.make("dark/Room-4x3", 9), config, 0, tasks)
    among = Histories(envs.make("dark/Room-4x3", 25), config, 0, np.concatenate([np.arange(9).repeat(2)[:16], tasks]))
    for _ in range(2):
        alone.play()
        among.play()
    assert (among.held(0), among.held(1)) == ((2, 2 * 16 * 12), (2, 2 * 9 * 12))
    among.take(0)
    for _ in range(3):
        alone.play()
        among.play()
    assert (among.held(0), among.held(1)) == ((3, 3 * 16 * 12), (5, 5 * 9 * 12))
    (pieces, steps), (expected, lived) = among.take(1), alone.take()
    for name, column in vars(expected).items():
        np.testing.assert_array_equal(getattr(pieces, name), column, err_msg=name)
    np.testing.assert_array_equal(expected.source.reshape(9, 5), 12 * np.tile(np.arange(1, 6), (9, 1)))
    for name, column in {**lived.obs, "action": lived.action, "reward": lived.reward}.items():
        np.testing.assert_array_equal(getattr(steps, name, steps.obs.get(name)), column, err_msg=name)
    assert sum(column.nbytes for column in (*steps.obs.values(), steps.action, steps.reward)) == 7 * 5 * 9 * 12
    assert among.held(1) == (0, 0)


@pytest.mark.parametrize("kind", [Episodes, Pieces])
def test_rows_are_taken_by_mask_number_or_slice(kind):
    columns = {name: 10 * i + np.arange(4) for i, name in enumerate(kind.__annotations__)}
    for which in (np.array([False, True, True, False]), np.array([1, 2]), slice(1, 3)):
        taken = kind(**columns).take(which)
        assert len(taken) == 2
        for name, column in columns.items():
            np.testing.assert_array_equal(getattr(taken, name), column[1:3], err_msg=name)


def test_the_values_of_a_room_are_what_its_goal_is_worth():
    """With chance alone and small steps the table comes to the optimum: discount to the power of the distance."""
    config = HistoriesConfig(episodes=400, epsilon_end=1.0, discount=0.5, learning_rate=1.0)
    histories = Histories(envs.make("dark/Room-3x3", 1), config, 0, np.array([3]))
    for _ in range(400):
        histories.play()
    env = envs.make("dark/Room-3x3", 1)
    env.begin(np.array([3]))
    rows, columns = np.divmod(np.arange(9), 3)
    distance = abs(rows - rows[env.goal[0]]) + abs(columns - columns[env.goal[0]])
    best = histories.learner.values[0].max(1)
    np.testing.assert_allclose(best, 2.0 * 0.5 ** np.maximum(0, distance - 1), rtol=1e-6)


@pytest.mark.parametrize("world", ["dark/Room-4x3", "dark/KeyDoor-3x4"])
def test_learning_from_coordinates_is_learning_from_cells(world):
    tasks, found = np.arange(5), []
    for observe in ("cells", "coordinates"):
        env = envs.make(world, 5, observe=observe)
        histories = Histories(env, HistoriesConfig(episodes=12), 0, tasks)
        for _ in range(12):
            histories.play()
        found.append((histories.learner.values, histories.take()[1]))
    (cells, theirs), (coordinates, ours) = found
    np.testing.assert_array_equal(ours.action, theirs.action)
    np.testing.assert_array_equal(ours.obs["position"], np.stack([theirs.obs["row"], theirs.obs["column"]], 1))
    assert np.unique(coordinates).tolist() == np.unique(cells).tolist()


def test_chance_falls_along_a_line_and_stays():
    config = HistoriesConfig(episodes=101, epsilon_begin=0.9, epsilon_end=0.1, anneal=0.5)
    np.testing.assert_allclose([config.epsilon(n) for n in (0, 25, 50, 100)], [0.9, 0.5, 0.1, 0.1])
    assert HistoriesConfig(episodes=1, epsilon_begin=0.3).epsilon(0) == 0.0  # one episode is the last one
    shares = [HistoriesConfig(episodes=9).epsilon(n) for n in range(9)]
    assert shares == sorted(shares, reverse=True)


def test_chance_is_as_often_as_it_says():
    config = HistoriesConfig(episodes=1, epsilon_end=0.5)
    learner = QLearning(config, envs.make("dark/Room-3x3", 1), 0, np.arange(20_000))
    learner.values[:, :, 4] = 1.0
    learner.begin(0)
    obs = {name: np.zeros(20_000, np.int64) for name in ("row", "column")}
    action = learner.act(obs, np.random.default_rng(0).random((20_000, 2)))
    counts = np.bincount(action, minlength=5) / len(action)
    np.testing.assert_allclose(counts, [0.1, 0.1, 0.1, 0.1, 0.6], atol=0.01)


def test_a_terminal_step_counts_nothing_on():
    learner = QLearning(HistoriesConfig(learning_rate=1.0, initial=4.0), envs.make("dark/Room-3x3", 1), 0, np.arange(2))
    learner.begin(0)
    obs = {name: np.zeros(2, np.int64) for name in ("row", "column")}
    action = learner.act(obs, np.zeros((2, 2)))
    learner.learn(np.arange(2), action, np.ones(2, np.float32), obs, np.array([True, False]), np.zeros(2, np.bool_))
    np.testing.assert_allclose(learner.values[[0, 1], 0, action], [1.0, 1.0 + 0.95 * 4.0])


def test_tables_and_tasks_are_those_of_the_world():
    room, door = envs.spec("dark/Room-7x6"), envs.spec("dark/KeyDoor-7x6")
    assert (states(room), states(door)) == (42, 84)
    assert training_tasks(room) == room.tasks - room.held_out == 34
    assert training_tasks(envs.spec("dark/Room-10x10", split="published_train")) == 80


STILL = """
import numpy as np

from envs.config import Part
from learner.histories import HistoryLearner


class Config(Part):
    \"\"\"Options of who does one thing.\"\"\"

    what: int = 4
    \"\"\"The action.\"\"\"


class Still(HistoryLearner):
    Config = Config

    @classmethod
    def check(cls, spec):
        pass

    def __init__(self, config, env, seed, tasks):
        self.action = np.full(len(tasks), config.part(Config).what)

    def begin(self, number):
        pass

    def act(self, obs, random):
        return self.action

    def learn(self, at, action, reward, obs, terminated, truncated):
        pass


LEARNER = Still
"""


def test_a_learner_is_one_module_found_by_its_name(tmp_path, monkeypatch):
    (tmp_path / "still.py").write_text(STILL)
    monkeypatch.setattr(learners, "__path__", [*learners.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "learner.histories.still", raising=False)
    words = ["method=radt", "env=dark", "env.id=dark/Room-4x3", "method.histories.learner=still"]
    config = compose([*words, "method.histories.still.what=1"]).method.part(HistoriesConfig)
    lived = Histories(envs.make("dark/Room-4x3", 2), config, 0, np.arange(2))
    lived.play()
    assert set(lived.take()[1].action) == {1}
    with pytest.raises(ConfigError, match=r"method\.histories\.still\.what: expected .* got 'up'"):
        compose([*words, "method.histories.still.what=up"])
    del sys.modules["learner.histories.still"]
