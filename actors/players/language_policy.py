"""A language model's policy as a player: its prompts, and a model that answers them.

    texts of N states ──> known under these weights? ──> logits [N, A], values [N]
                      └──> prompts ──> the model, here or in the policy server

Environments repeat states, so results are cached until the weights change. In `sync` mode they are not: the last bits
of a score depend on the rest of the batch, which must not depend on what an actor met before it was stopped and
resumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from actors.players import Acted, LogitsPlayer, Step
from envs.api import DenseEnv, Observation, Written
from learner.models.config import LANGUAGE_MODEL
from learner.models.language import written
from learner.models.language.prompter import Asked, Prompter

if TYPE_CHECKING:
    from actors.setup import ActorSetup
    from learner.group import Weights
    from learner.models.language.llm_policy import LanguagePolicy

Answer = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Logits [B, A] and values [B] of B states."""

REMEMBERED = 100_000
"""States whose logits are cached, some 20 MB; beyond that, the cache is cleared."""


Wrote = tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]
"""Tokens [B, L], their log-probabilities [B, L] and values [B] of B states."""


class Model(Protocol):
    """A model that answers prompts.

    Attributes:
        version: that of the weights which it answered with last.
    """

    prompter: Prompter
    version: int

    def load(self, weights: Weights | None, version: int) -> None:
        """Answer with other weights."""

    def answer(self, asked: Sequence[Asked]) -> Answer:
        """The policy's outputs for B states."""

    def write(self, asked: Sequence[Asked], random: NDArray[np.float32] | None) -> Wrote:
        """Answers that it writes for B states, from a random number of each; None: the most probable ones."""


class LocalModel:
    """A model in this process."""

    def __init__(self, policy: LanguagePolicy) -> None:
        policy.eval()
        self._policy, self.prompter, self.version = policy, policy.prompter, -1

    def load(self, weights: Weights | None, version: int) -> None:
        from learner.group import set_weights

        assert weights is not None
        set_weights(self._policy, weights)
        self.version = version

    def answer(self, asked: Sequence[Asked]) -> Answer:
        logits, values = self._policy.answer(asked)
        return logits.numpy(), values.numpy()

    def write(self, asked: Sequence[Asked], random: NDArray[np.float32] | None) -> Wrote:
        return self._policy.write(asked, random)


def suits(setup: ActorSetup) -> bool:
    return setup.policy.network == LANGUAGE_MODEL and setup.server is None


def make(setup: ActorSetup, caller: str) -> PromptedPlayer:
    import torch

    from learner.group import build_policy
    from learner.models.language.llm_policy import LanguagePolicy

    torch.set_num_threads(1)  # actors share the cores with each other
    policy = build_policy(setup.policy, setup.spec, setup.seed)
    assert isinstance(policy, LanguagePolicy)
    return (WritingPlayer if policy.generated else PromptedPlayer)(LocalModel(policy), setup.sync)


class PromptedPlayer(LogitsPlayer):
    """A language policy that only acts: weights by version, and every state computed once per version.

    With `alone`, nothing is cached.

    Args:
        prompter: asks the model; None: the model's own.
    """

    def __init__(self, model: Model, alone: bool, prompter: Prompter | None = None) -> None:
        self.model, self.alone = model, alone
        self.prompter = prompter or model.prompter
        self.fields, self.text_fields = self.prompter.fields, self.prompter.text_fields
        self.version = -1
        self._varied = True  # prompts, as in training; not in evaluations
        self._known: dict[bytes, tuple[NDArray[np.float32], np.float32]] = {}

    def load(self, weights: Weights | None, version: int) -> None:
        """Take new weights, which a policy server already has; equal versions are skipped."""
        if version != self.version:
            self.model.load(weights, version)
            self.version = version
            self._known.clear()

    def begin(self, env: DenseEnv, seeds: NDArray[np.int64] | None = None) -> None:
        """It has no memory: earlier observations are part of an observation."""
        self.env, self._varied = env, seeds is None
        self._known.clear()  # by ids of texts, which differ between envs

    def twin(self, elsewhere: ActorSetup | None = None) -> PromptedPlayer:
        prompter = self.prompter.within(elsewhere.policy, elsewhere.spec) if elsewhere else self.prompter
        other = type(self)(self.model, self.alone, prompter)
        other.version = self.version
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
            before = self._known
            if self.model.version != self.version:  # newer weights: what is known is by older ones, and is used up
                self.version, self._known = self.model.version, {}
            self._known |= {key: (logits[i], values[i]) for i, key in enumerate(new)}
            found = [self._known.get(key) or before[key] for key in keys]
        else:
            found = [self._known[key] for key in keys]
        return np.stack([logits for logits, _ in found]), np.stack([value for _, value in found]), None

    def explain(self, obs: Observation, i: int, action: Any) -> dict[str, Any]:
        """The prompt, the probability of each action, and the action, by their names."""
        self.prompter.prompt.varied = self._varied
        prompt, names = self.prompter.told({name: obs[name] for name in self.fields}, i, self.env.texts)
        logits = self.logits[i]
        weights = np.exp(logits - logits.max(), dtype=np.float64)
        shares = (weights / weights.sum()).tolist()
        shown = {name: round(shares[place], 6) for name, place in names.items()}
        taken = next((name for name, place in names.items() if place == action), "")
        return {"prompt": prompt, "probabilities": shown, "action": taken}

    def _ask(self, told: Observation) -> Answer:
        self.prompter.prompt.varied = self._varied
        logits, values = self.model.answer(self.prompter.ask(told, self.env.texts))
        return logits[:, : self.prompter.size], values  # the model's own environment may have more actions


class WritingPlayer(PromptedPlayer):
    """A language policy that writes its answers. The names' probabilities are computed for people alone."""

    def act(self, obs: Observation, state: NDArray[Any] | None, random: NDArray[np.float32] | None) -> Acted:
        self.prompter.prompt.varied = self._varied
        asked = self.prompter.ask({name: obs[name] for name in self.fields}, self.env.texts)
        tokens, log_prob, value = self.model.write(asked, random)
        named = self.prompter.read(written.answers(tokens), asked)
        action = np.empty(len(asked), np.int64)
        for i, (place, question) in enumerate(zip(named, asked, strict=True)):
            own = None if random is None else random[i]
            action[i] = written.instead(question.places, question.prompt, own) if place is None else place
        self.written = Written(tokens, log_prob, np.array([place is not None for place in named]))
        return Acted(action, log_prob.sum(-1), value, None)

    def explain(self, obs: Observation, i: int, action: Any) -> dict[str, Any]:
        """The prompt, what was written, whether that named an action, and the action."""
        assert self.written is not None
        self.prompter.prompt.varied = self._varied
        prompt, names = self.prompter.told({name: obs[name] for name in self.fields}, i, self.env.texts)
        said = self.prompter.text(written.answers(self.written.tokens[i : i + 1])[0])
        taken = next((name for name, place in names.items() if place == action), "")
        return {"prompt": prompt, "written": said, "valid": bool(self.written.valid[i]), "action": taken}


def _keys(told: dict[str, NDArray[Any]]) -> list[bytes]:
    """A key for each of B states: the ids of its texts."""
    n = len(next(iter(told.values())))
    ids = np.ascontiguousarray(np.concatenate([column.reshape(n, -1) for column in told.values()], 1))
    return [row.tobytes() for row in ids]
