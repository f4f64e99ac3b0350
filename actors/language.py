"""A language model as a player: it reads the goal and what is seen, and scores the names of the actions.

    captions, mission ──> prompt ──> LLM service: score ──> log-probability of each action name ──> action

One request for the whole batch of envs; equal prompts are one call, and known ones none. Envs whose episode is over
are not asked about.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from envs.api import DenseEnv, Observation
from llm_service.door import Door
from llm_service.errors import BudgetExhausted, UsageError
from llm_service.records import Answer, Parameters, Status

MEMORY = 3
"""How many of the last observations a prompt shows."""
DEADLINE_S = 300.0
"""How long a step may wait for its scores."""
PAUSE_S = 1.0
"""Before a model that is away is asked again."""
PASSING = (Status.AWAY, Status.BUSY)
"""Failures after which the same question may be answered."""


class LanguageModelAway(RuntimeError):
    """The model gave no score. The message says why."""


WhenAway = Literal["none", "cached", "wait", "stop"]


@dataclass(frozen=True)
class LanguageSetup:
    """How a player finds the service. Plain data, sent to actors."""

    service: str  # its address, or its folder, which holds address and token
    when_away: WhenAway

    @property
    def patience_s(self) -> float:
        """How long to ask again while the model is away; seconds."""
        return DEADLINE_S if self.when_away == "wait" else 0.0

    def door(self, caller: str, when_away: Literal["none", "wait", "stop"]) -> Door:
        """A connection of its own."""
        from llm_service.client import connect  # needs gRPC, which other players do without

        return connect(self.service, caller=caller, when_away=when_away, deadline=DEADLINE_S)


class LanguagePlayer:
    """Acts by a language model's scores of the action names.

    Args:
        door: to the service.
        greedy: take the most probable action; else sample.
        patience_s: how long it asks again while the model is away or overrun; seconds.
    """

    def __init__(self, door: Door, greedy: bool, patience_s: float = 0.0) -> None:
        self.door, self.greedy, self.patience_s = door, greedy, patience_s

    def begin(self, env: DenseEnv, seeds: NDArray[np.int64]) -> None:
        self.random = np.random.default_rng(int(seeds[0]))
        self.playing = np.ones(env.num_envs, np.bool_)
        self.past: list[deque[tuple[str, str]]] = [deque(maxlen=MEMORY - 1) for _ in range(env.num_envs)]

    def act(self, env: DenseEnv, obs: Observation) -> NDArray[np.int64]:
        names = env.env_spec.action_names
        index = np.flatnonzero(self.playing)
        captions = env.captions({name: value[index] for name, value in obs.items()})
        seen = [". ".join(sentences) or "nothing of note" for sentences in captions]
        goals = env.texts.texts(obs["mission"][index])
        prompts = [prompt(names, g, list(self.past[i]), s) for i, g, s in zip(index, goals, seen, strict=True)]
        answers = self._ask(prompts, names)
        actions = np.zeros(env.num_envs, np.int64)
        draws = self.random.random(env.num_envs)
        for i, sentence, answer in zip(index, seen, answers, strict=True):
            actions[i] = self._choose(answer, draws[i])
            self.past[i].append((sentence, names[actions[i]]))
        return actions

    def _ask(self, prompts: Sequence[str], names: Sequence[str]) -> list[Answer]:
        """Scores of the names after each prompt."""
        ends = time.monotonic() + self.patience_s
        answers = self.door.score(prompts, names, Parameters(normalise="tokens"))
        while missing := [i for i, answer in enumerate(answers) if answer.status in PASSING]:
            if time.monotonic() + PAUSE_S > ends:
                break
            time.sleep(PAUSE_S)
            again = self.door.score([prompts[i] for i in missing], names, Parameters(normalise="tokens"))
            for i, answer in zip(missing, again, strict=True):
                answers[i] = answer
        return answers

    def _choose(self, answer: Answer, draw: float) -> int:
        if not answer.ok:
            reason = f"the language model gave no scores ({answer.status.name.lower()}): {answer.reason}"
            if answer.status is Status.BUDGET:
                raise BudgetExhausted(reason)
            raise LanguageModelAway(reason) if answer.status in (*PASSING, Status.EXPIRED) else UsageError(reason)
        scores = answer.scores
        if self.greedy:
            return int(scores.argmax())
        share = np.exp(scores - scores.max()).cumsum()
        return int(np.searchsorted(share, draw * share[-1], side="right"))

    def forget(self, index: NDArray[np.int32]) -> None:
        """Only an env's first episode counts: it is through."""
        self.playing[index] = False


def prompt(actions: Sequence[str], goal: str, past: Sequence[tuple[str, str]], seen: str) -> str:
    """What the model continues with an action name. What changes least comes first, so that prefixes are shared."""
    lines = [f"Actions you can take: {', '.join(actions)}.", f"Goal: {goal}."]
    for sentence, action in past:
        lines += [f"You saw: {sentence}.", f"You chose: {action}."]
    lines += [f"You see: {seen}.", "You choose:"]
    return "\n".join(lines)
