"""Goals that depend on facts, which never change: such questions are asked once, not in each situation.

    situation ──patterns of the environment──> goals, each with a question and the answer that it needs
    question  ──> known? ──> is it that answer?
                  └─ no: asked, once per service, in whatever situation

"You see the lamp on the bathroom sink" makes "pick lamp" a goal if the answer to "Would people keep the lamp on the
bathroom sink?" is no. So for M objects and P places at most M * P questions are asked, however long a run is (Du et al.
2023 ask for Housekeep in this way).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from actors.suggestions.asked import Goals, Suggestions
from envs.knowledge import Knowledge
from learner.goals import GoalsConfig
from llm_service.interface import LLMClient
from llm_service.patterns import Binding, Pattern, joined
from llm_service.records import Answer

YES: Goals = ("yes",)
"""What is stored for a question that was answered with yes; for no, nothing is stored."""
SHUFFLED = 0
"""Seed of the permutation of questions, for a control."""


@dataclass(frozen=True)
class Rule:
    """Conditions of a goal: patterns in the situation, and a question."""

    goal: Pattern
    stand: tuple[Pattern, ...]
    unless: tuple[Pattern, ...]
    premise: Pattern
    wanted: bool

    def of(self, situation: Sequence[str]) -> list[tuple[str, str, bool]]:
        """Goals, their questions and the answers that they need, in a situation of these sentences."""
        return [
            (self.goal.fill(binding), self.premise.fill(binding), self.wanted)
            for binding in joined(self.stand, situation)
            if not any(joined([pattern], situation, binding) for pattern in self.unless)
        ]

    def question(self, goal: str) -> str | None:
        """The question of a goal by its name, if the name determines it."""
        binding: Binding | None = self.goal.whole(goal)
        return None if binding is None or set(self.premise.slots) - binding.keys() else self.premise.fill(binding)


def rules(known: Knowledge) -> list[Rule]:
    """Rules for the environment's goals that have a premise."""
    slots = known.get("slots", {})

    def patterns(texts: Sequence[str]) -> tuple[Pattern, ...]:
        return tuple(Pattern(text, slots) for text in texts)

    return [
        Rule(
            Pattern(goal["goal"], slots),
            patterns([*goal.get("seen", ()), *goal.get("needs", ())]),
            patterns(goal.get("unless", ())),
            Pattern(goal["premise"], slots),
            goal.get("wanted", True),
        )
        for goal in known.get("goals", ())
        if "premise" in goal
    ]


class Reachable:
    """Every goal that a situation allows, whatever a model would answer: the novelty baseline.

    As if a model answered no for each thing at its place, and yes for each place where it could be put.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._found: dict[str, Goals] = {}

    def ask(self, situations: Sequence[str]) -> None:
        for situation in situations:
            sentences = situation.split(". ")
            self._found[situation] = tuple(goal for rule in self._rules for goal, _, _ in rule.of(sentences))

    def poll(self) -> dict[str, Goals]:
        found, self._found = self._found, {}
        return found

    wait = poll


class Premises(Suggestions):
    """A language model's suggestions if goals have premises.

    Args:
        rules: the environment's rules.
        others: as for `Suggestions`. With `config.shuffled` each question gets another one's answer: equally many yes,
            but without sense.
    """

    def __init__(
        self, client: LLMClient, config: GoalsConfig, goals: Sequence[str], stop: bool, rules: Sequence[Rule]
    ) -> None:
        super().__init__(client, config, goals, stop)
        self._rules = rules
        self._situations: dict[str, list[tuple[str, str, bool]]] = {}  # situations with unanswered questions
        self._answers: dict[str, bool] = {}
        self._asked: set[str] = set()
        questions = dict.fromkeys(q for goal in goals for rule in self._rules if (q := rule.question(goal)))
        self._stands_for = dict(zip(questions, questions, strict=True))
        if config.shuffled:
            mixed = np.random.default_rng(SHUFFLED).permutation(len(questions)).tolist()
            self._stands_for = dict(zip(questions, np.array([*questions])[mixed].tolist(), strict=True))

    def ask(self, situations: Sequence[str]) -> None:
        """As in `Suggestions`; only new questions are asked."""
        for situation in situations:
            sentences = situation.split(". ")
            self._situations[situation] = [goal for rule in self._rules for goal in rule.of(sentences)]
        asked = dict.fromkeys(self._meant(q) for found in self._situations.values() for _, q, _ in found)
        super().ask([question for question in asked if question not in self._asked])
        self._asked |= asked.keys()

    def poll(self) -> dict[str, Goals]:
        """As in `Suggestions`: situations whose questions are all answered."""
        self._answers |= {question: answer == YES for question, answer in super().poll().items()}
        ready = {
            situation: found
            for situation, found in self._situations.items()
            if all(self._meant(question) in self._answers for _, question, _ in found)
        }
        for situation in ready:
            del self._situations[situation]
        return {
            situation: tuple(goal for goal, question, wanted in found if self._answers[self._meant(question)] == wanted)
            for situation, found in ready.items()
        }

    def wait(self) -> dict[str, Goals]:
        found = super().wait()
        return found | self.poll()  # situations without new questions

    def _meant(self, question: str) -> str:
        return self._stands_for.get(question, question)

    def _question(self, situations: Sequence[str]) -> list[Answer]:
        return self.client.ask("yes_no", [{"question": question} for question in situations])

    def _goals(self, answers: Sequence[Answer]) -> Goals:
        said = answers[0]
        return YES if said.ok and said.value["probability"] > self.config.probability else ()
