"""trials: one transformer plays hidden tasks again and again, all at once, against one env with windows recomputed.

dark/Room-10x10, its 100 tasks, 40 episodes each (`--quick`: 4) without weight updates, memories empty at first. The
retrieving model has its default size, as has its encoder, and weights are random; actions are greedy, and each episode
has its own target. One thread, CPU time, float32; env steps a second, worlds, memories and searches included.

    published_loop    the same model with one env, and for each action a pass over the whole episode so far; at each
                      query, a second pass by the encoder; chunks kept as copies, their keys and values computed in
                      each pass. It plays one of the tasks, all its episodes, since its speed does not depend on how
                      many tasks there are

Every action of that task is compared. Limit: the decoder's arithmetic, for one step of 100 rows at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import envs
from actors.trials import Trials, seeds_of
from benchmarks.measure import Case, Options, Report, assert_equal, compare
from learner.context.config import RetrieveConfig, SequenceConfig, TrialsConfig
from learner.context.encoders.fitted import Fitted
from learner.models.sequence.history_steps import ChunkSteps, HistoryShape, StepInputs
from learner.models.sequence.history_transformer import HistoryTransformer

CASES = ("dark10",)
ENV_ID = "dark/Room-10x10"
QUICK_ROUNDS = 2
SETTINGS = TrialsConfig(target=40.0, deviation=20.0, temperature=0.0)
SEQUENCE, RETRIEVE = SequenceConfig(device="cpu"), RetrieveConfig()
LARGEST = 90.0
"""The largest return to go in the models' range."""


def build(sequence: SequenceConfig = SEQUENCE, chunk: int = 0, seed: int = 0) -> HistoryTransformer:
    """An untrained model whose actions depend visibly on its input.

    chunk: steps of the chunks that it attends to; 0: an encoder.
    """
    torch.manual_seed(seed)
    shape = HistoryShape.of(envs.spec(ENV_ID), sequence.band, reach=(LARGEST,), chunk=chunk)
    model = HistoryTransformer(shape, sequence)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1 and "norm" not in name:
                weight.mul_(5)
    return model.eval()


@dataclass(eq=False)
class Copy:
    """A chunk in the peer's memory."""

    key: NDArray[np.float64]
    total: float
    steps: list[tuple[int, int, float, int, float]]  # row, column, return to go, action, reward


class OneRow:
    """One task, played by a loop over one env."""

    def __init__(
        self, model: HistoryTransformer, encoder: HistoryTransformer, trials: TrialsConfig, retrieve: RetrieveConfig
    ) -> None:
        self.model, self.encoder, self.trials, self.retrieve = model, encoder, trials, retrieve
        self.copies: list[Copy] = []

    def play(self, root: int, seed: int, task: int) -> list[list[int]]:
        """Play all episodes. Returns the actions of each."""
        env = envs.make(ENV_ID, 1)
        named = seeds_of(env.env_spec, np.array([task]))
        played = []
        for trial in range(self.trials.trials):
            chance = np.random.default_rng([root, seed, task, trial])
            target = np.float32(self.trials.target + self.trials.deviation * chance.standard_normal())
            played.append(self._episode(env, named, target))
        return played

    def _episode(self, env: Any, named: NDArray[np.int64], target: np.float32) -> list[int]:
        shown: list[tuple[int, int, float, int, float]] = []  # row, column, return to go, last action, last reward
        looked: list[Copy | None] = []
        actions: list[int] = []
        rewards: list[float] = []
        obs, ended = env.begin(named), False
        while not ended:
            last = (actions[-1], rewards[-1]) if actions else (-1, 0.0)
            shown.append((int(obs["row"][0]), int(obs["column"][0]), float(target), *last))
            if (len(shown) - 1) % self.retrieve.every == 0:
                chunk = self._nearest(self._key(shown, len(shown) - 1)) if self.copies else None
            looked.append(chunk)
            actions.append(self._act(shown, looked))
            t = env.advance(np.array(actions[-1:]))
            rewards.append(float(t.reward[0]))
            target, obs, ended = target - t.reward[0], t.obs, len(t.final_index) > 0
        self._remember(shown, actions, rewards)
        return actions

    def _act(self, shown: list[Any], looked: list[Copy | None]) -> int:
        chunks = [chunk for i, chunk in enumerate(looked) if chunk is not None and chunk not in looked[:i]]
        memory = index = None
        if chunks:
            steps = [step for chunk in chunks for step in chunk.steps]
            lengths = [len(chunk.steps) for chunk in chunks]
            memory = self.model.remember(ChunkSteps(*_tensors(steps)), lengths)
            index = torch.tensor([-1 if chunk is None else chunks.index(chunk) for chunk in looked])
        hidden = self.model(StepInputs(*_tensors(shown)), [len(shown)], memory, index)
        return int(self.model.logits(hidden[-1]).argmax())

    def _key(self, shown: list[Any], at: int) -> NDArray[np.float64]:
        """The mean of the encoder's last hidden states at a step, of length 1."""
        hidden = self.encoder(StepInputs(*_tensors(shown[: at + 1])), [at + 1])
        mean = hidden[-self.retrieve.pool :].double().mean(0).numpy()
        key: NDArray[np.float64] = mean / np.linalg.norm(mean)
        return key

    def _nearest(self, query: NDArray[np.float64]) -> Copy:
        """The best of the nearest chunks, by similarity and return."""
        near = np.stack([copy.key for copy in self.copies]) @ query
        first = np.argsort(-near, kind="stable")[: self.retrieve.nearest]
        total = np.array([self.copies[i].total for i in first])
        score = sum((x - x.min()) / (np.ptp(x) or 1.0) for x in (near[first], total))
        return self.copies[int(first[np.argmax(score)])]

    def _remember(self, shown: list[Any], actions: list[int], rewards: list[float]) -> None:
        ahead = np.cumsum(rewards[::-1])[::-1]
        told = [(*step[:2], float(to_go), *step[3:]) for step, to_go in zip(shown, ahead, strict=True)]
        lived = [(*s[:2], s[2], action, paid) for s, action, paid in zip(told, actions, rewards, strict=True)]
        for at in range(0, len(told), self.retrieve.every):
            part = lived[max(0, at - self.retrieve.past) : at + self.retrieve.future]
            self.copies.append(Copy(self._key(told, min(max(at, 2), len(told) - 1)), sum(rewards), part))


def _tensors(steps: list[Any]) -> tuple[Any, ...]:
    """Rows, columns, returns to go, actions and rewards of steps, as model inputs."""
    row, column, to_go, action, reward = zip(*steps, strict=True)
    obs = {"row": torch.tensor(row), "column": torch.tensor(column)}
    return obs, torch.tensor(to_go), torch.tensor(action), torch.tensor(reward)


class Match:
    """Ours plays all tasks; the peer repeats one of them and must take the same actions."""

    def __init__(self, trials: int, sequence: SequenceConfig = SEQUENCE, retrieve: RetrieveConfig = RETRIEVE) -> None:
        self.settings, self.retrieve = SETTINGS.model_copy(update={"trials": trials}), retrieve
        self.model, self.encoder = build(sequence, retrieve.chunk), build(sequence, seed=1)
        self.tasks = np.arange(envs.spec(ENV_ID).tasks)
        self.round = 0
        self.found: list[NDArray[np.int64]] = []  # actions [steps, tasks] of each trial

    def play_ours(self) -> float:
        """Env steps a second."""
        self.round += 1
        begun, steps = time.process_time(), 0
        env = envs.make(ENV_ID, len(self.tasks))
        how = (self.settings, self.retrieve, self.round, np.zeros_like(self.tasks), self.tasks)
        trials = Trials(env, self.model, Fitted(self.encoder, self.retrieve.pool), *how)
        self.found = []
        for _ in range(self.settings.trials):
            steps += trials.play()
            self.found.append(trials.last.action)
        return steps / (time.process_time() - begun)

    @torch.no_grad()
    def play_published_loop(self) -> float:
        """Env steps a second of the peer.

        Raises:
            DifferentOutputs: its actions differ from ours.
        """
        task = int(np.random.default_rng(self.round).integers(len(self.tasks)))
        begun = time.process_time()
        played = OneRow(self.model, self.encoder, self.settings, self.retrieve).play(self.round, 0, task)
        seconds = time.process_time() - begun
        for trial, (ours, theirs) in enumerate(zip(self.found, played, strict=True)):
            assert_equal(f"task {task}, actions of trial {trial}", ours[:, task], np.array(theirs))
        return sum(map(len, played)) / seconds


def run(options: Options) -> Report:
    torch.set_num_threads(1)
    match = Match(4 if options.quick else 40)
    note = f"{len(match.tasks)} tasks, {match.settings.trials} trials; the peer plays one of the tasks"
    case = Case("trials", "dark10", "env_steps", frozenset({"published_loop"}), notes={"published_loop": note})
    peers: dict[str, Callable[[], float]] = {"published_loop": match.play_published_loop}
    return compare(case, match.play_ours, peers, options)
