"""Guided exploration: where a policy would act at random, a trained one that stays as it is often acts in its stead.

    epsilon-greedy:    1 - epsilon: the best action,   epsilon: any action
    guided:            1 - epsilon: the best action,   epsilon * share: the guide's best,   the rest: any action

Du et al. 2023 (arXiv 2302.06692), section 5.2: what was learned from suggested goals helps where rewards are rare, even
if its values are of no use for the task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from actors.acting import ActingPolicy
from envs.api import EnvSpec, Observation
from learner.group import Weights, build_policy
from learner.models.policy import Policy, PolicyConfig
from learner.models.q import LEAST

if TYPE_CHECKING:
    from actors.evaluate import Acting


@dataclass(frozen=True)
class Guidance:
    """What an actor needs for it."""

    weights: Weights  # of the guide, a policy of the same shape
    share: float  # of the actions that are not the policy's own best, in [0, 1]


class Guide:
    """A policy, `acting`, that helps another one, `explorer`, to explore the env in which both play."""

    def __init__(self, acting: ActingPolicy, explorer: ActingPolicy, share: float) -> None:
        self._acting, self._explorer, self._share = acting, explorer, share

    def play_in(self, explorer: Acting) -> Guide:
        """The same guide in another env, where `explorer` plays."""
        assert isinstance(explorer, ActingPolicy)
        return Guide(self._acting.play_in(explorer.env), explorer, self._share)

    def mix(
        self, logits: NDArray[np.float32], obs: Observation, state: NDArray[Any] | None = None
    ) -> NDArray[np.float32]:
        """Log-probabilities [B, A] of epsilon-greedy behaviour -> of guided behaviour.

        state: with which the explorer has seen `obs`, its last pictures if it keeps some.
        """
        assert self._explorer.policy.q is not None, "the configuration was checked: a guide needs action values"
        best = self._acting.step(obs, state)[0].argmax(-1)
        share = self._share * float(self._explorer.policy.q.epsilon)
        probability = np.exp(logits) - np.float32(share / logits.shape[-1])
        probability[np.arange(len(best)), best] += np.float32(share)
        mixed: NDArray[np.float32] = np.log(np.maximum(probability, np.float32(LEAST)))
        return mixed


def make(guidance: Guidance, config: PolicyConfig, spec: EnvSpec, explorer: Acting) -> Guide:
    """The guide of a policy that acts with `config` in worlds of `spec`."""
    policy = build_policy(config, spec, 0)
    assert isinstance(explorer, ActingPolicy)
    assert isinstance(policy, Policy), "the configuration was checked: a guide needs action values"
    acting = ActingPolicy(policy, explorer.env, explorer.alone)
    acting.load(guidance.weights, 0)
    return Guide(acting, explorer, guidance.share)
