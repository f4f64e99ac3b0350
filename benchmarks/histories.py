"""histories: learning histories of a dark room's tasks side by side, against one env a task and a Python loop.

dark/Room-10x10 with its 80 tasks of `split=own`; tabular Q-learning of each from scratch, every step kept on disk. One
thread, CPU time; transitions a second, writing included.

    one_env_a_task   a Gymnasium env for each task, with our world behind it; Q-learning on lists, one NumPy file for
                     each task. It plays four of the tasks, since its speed does not depend on their number

Both sides use the same random numbers: every observation, action and reward of the four tasks is compared.

Limit: a step of 80 envs is some thirty NumPy calls, two thirds of them in the learner.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import envs
from actors.histories import Historian, HistorianSetup, HistoryShare, rows_of
from benchmarks.measure import Case, Options, Report, assert_equal, compare
from learner.histories import HistoriesConfig, training_tasks
from learner.store.episodes import EpisodeStore

CASES = ("dark10",)
ENV_ID, GYMNASIUM_ID = "dark/Room-10x10", "cairn/dark-Room-10x10-v0"
ASKED = 4
"""Tasks that the peer plays in a round."""

History = dict[str, NDArray[Any]]


class OneEnv:
    """One task's learner, as a loop over one env."""

    def __init__(self, env: gymnasium.Env[Any, Any], config: HistoriesConfig, seed: int, task: int) -> None:
        self.env, self.config, self.seed, self.task = env, config, seed, task
        rows, columns = (env.observation_space[name].n for name in ("row", "column"))  # type: ignore[index]
        self.columns, self.actions = int(columns), range(5)
        self.values = [[config.initial] * len(self.actions) for _ in range(int(rows * columns))]

    def play(self) -> History:
        """All steps of all episodes."""
        config, kept = self.config, []
        for number in range(config.episodes):
            random, epsilon = np.random.default_rng([self.seed, self.task, number]), config.epsilon(number)
            obs, _ = self.env.reset(seed=self.task)
            ended = False
            while not ended:
                row, column = int(obs["row"]), int(obs["column"])
                values = self.values[row * self.columns + column]
                explores, which = random.random(2)
                among = list(self.actions)
                if explores >= epsilon:
                    most = max(values)
                    among = [action for action in among if values[action] == most]
                action = among[int(which * len(among))]
                obs, reward, terminated, truncated, _ = self.env.step(action)
                after = self.values[int(obs["row"]) * self.columns + int(obs["column"])]
                found = float(reward) + config.discount * (0.0 if terminated else max(after))
                values[action] += config.learning_rate * (found - values[action])
                kept.append((row, column, action, float(reward)))
                ended = terminated or truncated
        columns = np.array(kept)
        return {name: columns[:, i] for i, name in enumerate(("row", "column", "action", "reward"))}


class Match:
    """Ours plays all tasks; the peer repeats some of them and must get the same histories."""

    def __init__(self, episodes: int) -> None:
        self.config, self.seed = HistoriesConfig(episodes=episodes), 0
        self.tasks = training_tasks(envs.spec(ENV_ID))
        self.kept: dict[int, History] = {}
        envs.register_all()

    def play_ours(self) -> float:
        """Transitions a second."""
        self.seed += 1
        with tempfile.TemporaryDirectory() as place:
            folder, share = Path(place) / "store", HistoryShare(tuple(range(rows_of(self.tasks))))
            begun = time.process_time()
            historian = Historian(HistorianSetup(ENV_ID, {}, self.config, self.seed, self.tasks, folder, {}, None))
            while historian.play(share).number < self.config.episodes:
                pass
            seconds = time.process_time() - begun
            store = EpisodeStore(folder)
            self.kept = {task: self._history(store, task) for task in self._asked()}
        return store.steps / seconds

    def play_one_env_a_task(self) -> float:
        """Transitions a second of the peer.

        Raises:
            DifferentOutputs: its history differs from ours.
        """
        steps, seconds = 0, 0.0
        for task, expected in self.kept.items():
            with tempfile.TemporaryDirectory() as place:
                begun = time.process_time()
                env: gymnasium.Env[Any, Any] = gymnasium.make(GYMNASIUM_ID, disable_env_checker=True)
                found = OneEnv(env, self.config, self.seed, task).play()
                np.savez(Path(place) / "history.npz", **found)  # type: ignore[arg-type]
                seconds += time.process_time() - begun
            steps += len(found["action"])
            for name, column in found.items():
                assert_equal(f"task {task} {name}", expected[name].astype(np.float64), column)
        return steps / seconds

    def _asked(self) -> list[int]:
        random = np.random.default_rng(self.seed)
        return sorted(random.choice(self.tasks, min(ASKED, self.tasks), replace=False).tolist())

    @staticmethod
    def _history(store: EpisodeStore, task: int) -> History:
        own = np.flatnonzero(store.task == task)
        steps = store.rows(np.arange(store.first[own[0]], store.first[own[-1] + 1]))
        return {**steps.obs, "action": steps.action, "reward": steps.reward}


def run(options: Options) -> Report:
    warm, match = Match(1), Match(30 if options.quick else 200)
    for warm_up in (warm.play_ours, warm.play_one_env_a_task):
        warm_up()
    note = f"{match.tasks} tasks, {match.config.episodes} episodes each; the peer plays {ASKED} of the tasks"
    case = Case("histories", "dark10", "transitions", frozenset({"one_env_a_task"}), notes={"one_env_a_task": note})
    return compare(case, match.play_ours, {"one_env_a_task": match.play_one_env_a_task}, options)
