"""A language model's policy at work: the face of `ActingPolicy`, for a policy that reads prompts.

    texts of N states ──> known under these weights? ──> logits [N, A], values [N]
                      └──> prompts ──> the model, here or in the policy server

Worlds show the same state again and again, so what was computed is remembered until the weights change. In `sync` mode
it is not: the last bits of a score depend on what else is in the batch, and that must not depend on what an actor
happened to meet before it was stopped and resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from actors.sampling import Step
from envs.api import DenseEnv, EnvSpec, Observation
from learner.models.config import PolicyConfig
from learner.models.prompter import Asked, Prompter

if TYPE_CHECKING:
    from learner.group import Weights
    from learner.models.llm_policy import LanguagePolicy

Answer = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Logits [B, A] and values [B] of B states."""

REMEMBERED = 100_000
"""States whose logits are kept, some 20 MB; beyond, they are begun anew."""


class Model(Protocol):
    """Who answers."""

    prompter: Prompter

    def load(self, weights: Weights | None, version: int) -> None:
        """Answer by other weights."""

    def answer(self, asked: Sequence[Asked]) -> Answer:
        """What the policy says of B states."""


class LocalModel:
    """A model in this process."""

    def __init__(self, policy: LanguagePolicy) -> None:
        policy.eval()
        self._policy, self.prompter = policy, policy.prompter

    def load(self, weights: Weights | None, version: int) -> None:
        from learner.group import set_weights

        assert weights is not None
        set_weights(self._policy, weights)

    def answer(self, asked: Sequence[Asked]) -> Answer:
        logits, values = self._policy.answer(asked)
        return logits.numpy(), values.numpy()


class ServedModel:
    """The policy server's model: what is here is its tokenizer.

    Args:
        config, spec: of the policy.
        call: `PolicyServer.answer`, wherever that is.
    """

    def __init__(self, config: PolicyConfig, spec: EnvSpec, call: Callable[..., Any]) -> None:
        from learner.models.language_model import inspect

        self.prompter = Prompter(config, spec, inspect(config.lm))
        self._call, self._version = call, -1

    def load(self, weights: Weights | None, version: int) -> None:
        self._version = version

    def answer(self, asked: Sequence[Asked]) -> Answer:
        answer: Answer = self._call(self._version, asked)
        return answer


class LanguageActing:
    """A language policy that only acts: weights by version, and every state computed once per version.

    With `alone`, nothing is remembered.

    Args:
        prompter: asks the model; None: the model's own.

    Attributes:
        varied: prompts are varied as in training; false where the policy is evaluated.
    """

    def __init__(self, model: Model, env: DenseEnv, alone: bool, prompter: Prompter | None = None) -> None:
        self.model, self.env, self.alone = model, env, alone
        self.prompter = prompter or model.prompter
        self.fields, self.text_fields = self.prompter.fields, self.prompter.text_fields
        self.version = -1
        self.varied = True
        self._known: dict[bytes, tuple[NDArray[np.float32], np.float32]] = {}

    def initial_state(self, n: int) -> None:
        """It remembers nothing: earlier observations are part of an observation."""

    def load(self, weights: Weights | None, version: int) -> None:
        """Take new weights, which a policy server has already; equal versions are skipped."""
        if version != self.version:
            self.model.load(weights, version)
            self.version = version
            self._known.clear()

    def play_in(self, env: DenseEnv, prompter: Prompter | None = None) -> LanguageActing:
        """The same policy at work in another env, whose texts have other ids, and maybe asked by another prompter."""
        other = LanguageActing(self.model, env, self.alone, prompter or self.prompter)
        other.version, other.varied = self.version, self.varied
        return other

    def step(self, obs: Observation, state: NDArray[Any] | None = None) -> Step:
        """Logits [B, A] and values [B] of dense observations [B, ...].

        Raises:
            UsageError: a prompt does not fit the model's context.
        """
        told = {name: obs[name] for name in self.fields}
        if self.alone:
            return *self._ask(told), None
        keys = _keys(told)
        if len(self._known) > REMEMBERED:
            self._known.clear()
        new = {key: row for row, key in enumerate(keys) if key not in self._known}
        if new:
            rows = np.array(list(new.values()))
            logits, values = self._ask({name: column[rows] for name, column in told.items()})
            self._known |= {key: (logits[i], values[i]) for i, key in enumerate(new)}
        found = [self._known[key] for key in keys]
        return np.stack([logits for logits, _ in found]), np.stack([value for _, value in found]), None

    def reasons(self, obs: Observation, row: int, logits: NDArray[np.float32], action: int) -> dict[str, Any]:
        """For people: the prompt of one of B states, the probability of each action, and the action, by their names.

        logits: [A], of that state.
        """
        self.prompter.prompt.varied = self.varied
        prompt, names = self.prompter.told({name: obs[name] for name in self.fields}, row, self.env.texts)
        weights = np.exp(logits - logits.max(), dtype=np.float64)
        shares = (weights / weights.sum()).tolist()
        shown = {name: round(shares[place], 6) for name, place in names.items()}
        taken = next((name for name, place in names.items() if place == action), "")
        return {"prompt": prompt, "probabilities": shown, "action": taken}

    def _ask(self, told: Observation) -> Answer:
        self.prompter.prompt.varied = self.varied
        logits, values = self.model.answer(self.prompter.ask(told, self.env.texts))
        return logits[:, : self.prompter.size], values  # the model's own world may have more actions


def _keys(told: dict[str, NDArray[Any]]) -> list[bytes]:
    """Of each of B states, what tells it from others: the ids of its texts."""
    n = len(next(iter(told.values())))
    ids = np.ascontiguousarray(np.concatenate([column.reshape(n, -1) for column in told.values()], 1))
    return [row.tobytes() for row in ids]
