"""A language model's policy whose model is in the policy server; only the tokenizer is here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from actors.players.language_policy import Answer, PromptedPlayer, Wrote
from envs.api import EnvSpec
from learner.models.config import PolicyConfig
from learner.models.language.prompter import Asked, Prompter

if TYPE_CHECKING:
    from actors.setup import ActorSetup
    from learner.group import Weights


class ServedModel:
    """The policy server's model; `call` is `PolicyServer.answer`, wherever the server runs."""

    def __init__(self, config: PolicyConfig, spec: EnvSpec, call: Callable[..., Any]) -> None:
        from learner.models.language.language_model import inspect

        self.prompter = Prompter(config, spec, inspect(config.lm))
        self._call, self.version = call, -1

    def load(self, weights: Weights | None, version: int) -> None:
        self.version = version

    def answer(self, asked: Sequence[Asked]) -> Answer:
        logits, values, self.version = self._call(self.version, asked)
        return logits, values

    def write(self, asked: Sequence[Asked], random: NDArray[np.float32] | None) -> Wrote:
        raise NotImplementedError("the policy server writes no answers: see `check_language_policy`")


def suits(setup: ActorSetup) -> bool:
    return setup.server is not None


def make(setup: ActorSetup, caller: str) -> PromptedPlayer:
    assert setup.server is not None
    return PromptedPlayer(ServedModel(setup.policy, setup.spec, setup.server), setup.sync)
