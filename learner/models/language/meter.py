"""How fast a language model computes in a role: tokens a second, and model FLOP utilisation.

`learner/models/flops.py` has the formula. A backward pass counts by what is trained. Utilisation is told where the peak
of the device is known: on a GPU.
"""

from __future__ import annotations

import torch

from learner.models import flops
from learner.models.language.llm_policy import AnyPolicy, LanguagePolicy
from llm_service.scoring.computed import Computed

BACKWARD = {"all": 2, "lora": 1, "none": 0}
"""A backward pass, in forward passes: gradients of what passes between layers, and of weights if they are trained."""


class Meter:
    """Reads what a policy has computed, lap by lap. A policy that is no language model has no tokens.

    tokens: all that were computed in laps.
    """

    def __init__(self, policy: AnyPolicy) -> None:
        self._policy = policy if isinstance(policy, LanguagePolicy) else None
        self._before = self._learned_before = Computed()
        self.tokens = 0
        self._peak: float | None = None
        if self._policy:
            self._mark(self._policy)
            where = self._policy.device
            self._peak = flops.peak(torch.cuda.get_device_name(where)) if where.type == "cuda" else None

    def lap(self, seconds: float) -> dict[str, float]:
        """Of the seconds since the last lap: `tokens_per_second`, padding not counted, and `mfu` in [0, 1] where the
        peak is known; empty without a language model."""
        policy = self._policy
        if policy is None:
            return {}
        computed, learned = policy.scorer.computed - self._before, policy.scorer.learned - self._learned_before
        self._mark(policy)
        self.tokens += computed.tokens
        found = {"tokens_per_second": computed.tokens / seconds}
        if self._peak:
            backward = BACKWARD[policy.lm.tune] * flops.language(policy.model, learned)
            found["mfu"] = (flops.language(policy.model, computed) + backward) / seconds / self._peak
        return found

    def _mark(self, policy: LanguagePolicy) -> None:
        self._before, self._learned_before = policy.scorer.computed, policy.scorer.learned
