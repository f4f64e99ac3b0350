"""A language model as a player: it reads the goal and the observation, and scores the names of the actions.

    captions, mission ──> prompt ──> LLM service: score ──> log-probability of each action name ──> action

One request for the whole batch of envs; equal prompts are one call, and known prompts none. Envs whose episode is over
need no call.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from actors.language import PASSING, PAUSE_S
from actors.players import Acted, Player
from envs.api import DenseEnv, Observation, Transition
from llm_service.errors import AwayTooLong, BudgetExhausted, UsageError
from llm_service.interface import LLMClient
from llm_service.records import Answer, Parameters, Status

if TYPE_CHECKING:
    from actors.setup import ActorSetup

MEMORY = 3
"""How many of the last observations a prompt shows."""


class LanguageModelAway(RuntimeError):
    """The model gave no score. The message says why."""


class LanguagePlayer(Player):
    """Acts by a language model's scores of the action names, in each env until its first episode is over. It generates
    its random numbers itself, from the first seed.

    patience_s: how long it keeps asking while the model is unavailable or overloaded, seconds.
    stop: end the run if the model is still unavailable, rather than let another actor try.
    """

    def __init__(self, client: LLMClient, patience_s: float = 0.0, stop: bool = False) -> None:
        self.client, self.patience_s, self.stop = client, patience_s, stop

    def begin(self, env: DenseEnv, seeds: NDArray[np.int64] | None = None) -> None:
        self.env = env
        self.random = np.random.default_rng(0 if seeds is None else int(seeds[0]))
        self.playing = np.ones(env.num_envs, np.bool_)
        self.past: list[deque[tuple[str, str]]] = [deque(maxlen=MEMORY - 1) for _ in range(env.num_envs)]

    def act(self, obs: Observation, state: NDArray[Any] | None, random: NDArray[np.float32] | None) -> Acted:
        env = self.env
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
            actions[i] = self._choose(answer, None if random is None else draws[i])
            self.past[i].append((sentence, names[actions[i]]))
        unknown = np.zeros(env.num_envs, np.float32)
        return Acted(actions, unknown, unknown, None)

    def _ask(self, prompts: Sequence[str], names: Sequence[str]) -> list[Answer]:
        """Scores of the names after each prompt."""
        ends = time.monotonic() + self.patience_s
        answers = self.client.score(prompts, names, Parameters(normalise="tokens"))
        while missing := [i for i, answer in enumerate(answers) if answer.status in PASSING]:
            if time.monotonic() + PAUSE_S > ends:
                break
            time.sleep(PAUSE_S)
            again = self.client.score([prompts[i] for i in missing], names, Parameters(normalise="tokens"))
            for i, answer in zip(missing, again, strict=True):
                answers[i] = answer
        return answers

    def _choose(self, answer: Answer, draw: float | None) -> int:
        """An action by its scores: the best, or a sampled one."""
        if not answer.ok:
            reason = f"the language model gave no scores ({answer.status.name.lower()}): {answer.reason}"
            if answer.status is Status.BUDGET:
                raise BudgetExhausted(reason)
            if answer.status not in (*PASSING, Status.EXPIRED):
                raise UsageError(reason)
            raise AwayTooLong(reason) if self.stop else LanguageModelAway(reason)
        scores = answer.scores
        if draw is None:
            return int(scores.argmax())
        share = np.exp(scores - scores.max()).cumsum()
        return int(np.searchsorted(share, draw * share[-1], side="right"))

    def observe(self, transition: Transition) -> None:
        """Only an env's first episode counts."""
        self.playing[transition.final_index] = False


def prompt(actions: Sequence[str], goal: str, past: Sequence[tuple[str, str]], seen: str) -> str:
    """The prompt before an action name. Parts that change least come first, so that prefixes are shared."""
    lines = [f"Actions you can take: {', '.join(actions)}.", f"Goal: {goal}."]
    for sentence, action in past:
        lines += [f"You saw: {sentence}.", f"You chose: {action}."]
    lines += [f"You see: {seen}.", "You choose:"]
    return "\n".join(lines)


def make(setup: ActorSetup, caller: str) -> LanguagePlayer:
    language = setup.language
    assert language is not None, "the controller starts the service for stages that ask it"
    stop = language.when_away == "stop"
    # With `stop` the reason comes from the answers, which also say if the service cannot be reached.
    client = language.client(caller, "wait" if language.when_away == "wait" else "none")
    return LanguagePlayer(client, language.patience_s, stop)
