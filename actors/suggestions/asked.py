"""Goals that a language model suggests, by situation. Each situation is asked about once, and in the background.

    situation ──> known? ──> its goals
                  └─ no: asked, together with other new ones ──> `poll` returns new answers

Only a few requests are in flight at once, so a slow or unavailable service gets a few large requests rather than many
small ones. The service stores every answer, whoever asked: answers for another actor, or for this one before it died,
are not paid for again.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from actors.language import PASSING, PAUSE_S
from learner.goals import GoalsConfig
from llm_service.errors import AwayTooLong, BudgetExhausted, UsageError
from llm_service.interface import LLMClient
from llm_service.records import Answer, Status

UNDER_WAY = 4
"""Maximum number of requests in flight per actor; further situations wait and are sent together."""
REACHED = "\nReached: "
"""Between a situation and the names of the goals that were reached before it, where the model is told these."""
PATIENCE_S = 240.0
"""Seconds that `wait` waits for a further answer: less than `actors.timeout_s`, after which an actor counts as hung."""

Goals = tuple[str, ...]


class Suggestions:
    """A language model's suggestions for each situation.

    Args:
        goals: the environment's goals, for the closed form.
        stop: raise if the model is unavailable, rather than ask again.
    """

    def __init__(self, client: LLMClient, config: GoalsConfig, goals: Sequence[str], stop: bool) -> None:
        self.client, self.config, self.goals, self.stop = client, config, tuple(goals), stop
        self._waiting: dict[str, None] = {}  # in the order of arrival
        self._under_way: dict[Future[list[Answer]], list[str]] = {}  # requests in flight, and their situations
        self._pause_until = 0.0
        self._trouble = "it is slow"

    def ask(self, situations: Sequence[str]) -> None:
        """Ask about these situations; waiting ones are not asked about twice."""
        self._waiting |= dict.fromkeys(situations)
        self._send()

    def poll(self) -> dict[str, Goals]:
        """The goals that arrived since the last call, by situation.

        Raises:
            AwayTooLong: the model is unavailable, and `stop` is set.
            BudgetExhausted: the budget of the model is exhausted.
            UsageError: the model cannot be asked like this.
        """
        found: dict[str, Goals] = {}
        for answers in [answers for answers in self._under_way if answers.done()]:
            found |= self._read(self._under_way.pop(answers), answers.result())
        self._send()
        return found

    def wait(self) -> dict[str, Goals]:
        """Wait for the goals of all situations that were asked about.

        Raises:
            AwayTooLong: there was no answer for `PATIENCE_S`, or the model is unavailable and `stop` is set.
            BudgetExhausted, UsageError: as `poll`.
        """
        found: dict[str, Goals] = {}
        ends = time.monotonic() + PATIENCE_S
        while self._waiting or self._under_way:
            if time.monotonic() > ends:
                raise AwayTooLong(f"the language model suggested no goals for {PATIENCE_S:.0f} s: {self._trouble}")
            if self._under_way:
                next(iter(self._under_way)).exception()  # waits; `poll` reads it
            else:
                time.sleep(max(0.0, self._pause_until - time.monotonic()))
            if came := self.poll():
                ends = time.monotonic() + PATIENCE_S
                found |= came
        return found

    def _send(self) -> None:
        if self._waiting and len(self._under_way) < UNDER_WAY and time.monotonic() >= self._pause_until:
            situations, self._waiting = list(self._waiting), {}
            self._under_way[self.client.later(self._question, situations)] = situations

    def _question(self, situations: Sequence[str]) -> list[Answer]:
        """Answers about each situation: one each, or one for each goal of the environment."""
        if self.config.source == "model":
            return self.client.ask("suggest_goals", [self._item(situation) for situation in situations])
        sentences = [situation.split(". ") for situation in situations]
        each = itertools.product(sentences, self.goals)
        items = [{"question": f"Does it make sense to {goal} now?", "context": seen} for seen, goal in each]
        return self.client.ask("yes_no", items)

    def _item(self, situation: str) -> dict[str, Any]:
        seen, _, reached = situation.partition(REACHED)
        item = {"observation": seen.split(". "), "free": True, "limit": self.config.most, "prompt": self.config.prompt}
        return item | ({"achieved": reached.split(", ")} if reached else {})

    def _read(self, situations: Sequence[str], answers: Sequence[Answer]) -> dict[str, Goals]:
        """The answers; situations without an answer are put back."""
        each = len(answers) // len(situations)  # for each of them
        found: dict[str, Goals] = {}
        for i, situation in enumerate(situations):
            own = answers[i * each : (i + 1) * each]
            if any(self._must_be_asked_again(answer) for answer in own):
                self._waiting[situation] = None
                self._pause_until = time.monotonic() + PAUSE_S
            else:
                found[situation] = self._goals(own)
        return found

    def _must_be_asked_again(self, answer: Answer) -> bool:
        """True after a temporary failure. An answer without any goal is an answer: there are no goals."""
        if answer.ok or answer.status is Status.MALFORMED:
            return False
        self._trouble = f"{answer.status.name.lower()}: {answer.reason}"
        reason = f"the language model suggests no goals: {self._trouble}"
        if answer.status is Status.BUDGET:
            raise BudgetExhausted(reason)
        if answer.status not in (*PASSING, Status.EXPIRED):
            raise UsageError(reason)
        if self.stop:
            raise AwayTooLong(reason)
        return True

    def _goals(self, answers: Sequence[Answer]) -> Goals:
        if self.config.source == "model":
            return tuple(answers[0].value["goals"]) if answers[0].ok else ()
        yes = (answer.ok and answer.value["probability"] > self.config.probability for answer in answers)
        return tuple(goal for goal, wanted in zip(self.goals, yes, strict=True) if wanted)
