"""Guided exploration: where a policy would act at random, a fixed, trained policy often acts instead.

    epsilon-greedy:    1 - epsilon: the best action,   epsilon: any action
    guided:            1 - epsilon: the best action,   epsilon * share: the guide's,   the rest: any action

The guide takes its best action if it has action values; otherwise its action is sampled.

Du et al. 2023 (arXiv 2302.06692), section 5.2: a policy trained on suggested goals helps where rewards are rare, even
if its values are useless for the task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from actors.players import LogitsPlayer, Player, Step
from envs.api import DenseEnv, Observation
from learner.models.config import with_head_of

if TYPE_CHECKING:
    from actors.players.policy import TorchPlayer
    from actors.setup import ActorSetup
    from learner.group import Weights


def suits(setup: ActorSetup) -> bool:
    return setup.guidance is not None


def make(setup: ActorSetup, caller: str) -> GuidedPlayer:
    from actors.players import policy
    from learner.group import build_policy
    from learner.models.policy import Policy

    assert setup.guidance is not None
    explorer = policy.make(setup, caller)
    trained = build_policy(with_head_of(setup.policy, setup.guidance.weights), setup.spec, 0)
    assert isinstance(trained, Policy)
    guide = policy.TorchPlayer(trained, setup.sync)
    guide.load(setup.guidance.weights, 0)
    return GuidedPlayer(explorer, guide, setup.guidance.share)


class GuidedPlayer(LogitsPlayer):
    """A player, `explorer`, whose exploration another one, `guide`, supports. In evaluations it plays alone.

    Args:
        share: share of the guide in actions that are not the explorer's own best, in [0, 1].
    """

    def __init__(self, explorer: TorchPlayer, guide: TorchPlayer, share: float) -> None:
        from learner.models.q import LEAST

        assert explorer.policy.q is not None, "the configuration was checked: a guide needs action values"
        self.explorer, self.guide, self._share, self._least = explorer, guide, share, np.float32(LEAST)
        self._epsilon = explorer.policy.q.epsilon  # loaded with the weights
        self.fields, self.text_fields = explorer.fields, explorer.text_fields

    def load(self, weights: Weights | None, version: int) -> None:
        """Take new weights of the explorer; the guide does not change."""
        self.explorer.load(weights, version)

    def begin(self, env: DenseEnv, seeds: NDArray[np.int64] | None = None) -> NDArray[Any] | None:
        self.env = env
        self.guide.begin(env, seeds)
        return self.explorer.begin(env, seeds)

    def step(self, obs: Observation, state: NDArray[Any] | None = None) -> Step:
        """Log-probabilities [B, A] of guided behaviour, and the explorer's values and state."""
        logits, value, after = self.explorer.step(obs, state)
        guided = self.guide.step(obs, state)[0]  # it reads the pictures in the explorer's memory
        share = np.float32(self._share * float(self._epsilon))
        probability = np.exp(logits) - share / np.float32(logits.shape[-1])
        if self.guide.policy.q is None:
            drawn = np.exp(guided - guided.max(-1, keepdims=True))
            probability += share * drawn / drawn.sum(-1, keepdims=True)
        else:
            probability[np.arange(len(guided)), guided.argmax(-1)] += share
        return np.log(np.maximum(probability, self._least)), value, after

    def value(self, obs: Observation, state: NDArray[Any] | None) -> NDArray[np.float32]:
        return self.explorer.value(obs, state)

    def twin(self, elsewhere: ActorSetup | None = None) -> Player:
        return self.explorer.twin(elsewhere)
