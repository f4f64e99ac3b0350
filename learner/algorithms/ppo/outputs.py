"""What a policy, a network or a language model, says of the observations of a batch: logits, values, tokens.

    whole     of all of it at once, without gradients
    pieces    of a minibatch, with gradients, in as many pieces as memory takes

Texts are encoded once for each batch, and of a minibatch only those that it names. A language model gets its
observations as prompts, and cuts what it is asked into micro-batches itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.batch import Batch, arrays
from learner.models.language.llm_policy import LanguagePolicy
from learner.models.policy import Policy
from learner.optim.precision import arithmetic


class Outputs:
    """
    Args:
        half: networks compute in bfloat16.
        spelt: the ratio of PPO is that of the tokens of the actions' names.
    """

    def __init__(self, policy: Policy | LanguagePolicy, half: bool, spelt: bool) -> None:
        self.policy, self.half, self.spelt = policy, half, spelt

    @torch.no_grad()
    def whole(self, batch: Batch) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Of a whole batch: logits [T * N, A], values [T+1, N], final values [D]."""
        final_value = torch.zeros(0)
        if isinstance(self.policy, LanguagePolicy):
            seen = {name: column.flatten(0, 1) for name, column in batch.obs.items()}
            flat, value = self.policy.decide(arrays(seen), batch.texts)
            if len(batch.final_index):
                final_value = self.policy.decide(arrays(batch.final_obs), batch.texts)[1]
            return flat[: batch.action.size].numpy(), value.view(len(batch.value), -1).numpy(), final_value.numpy()
        with arithmetic(self.half):
            codes = self.policy.codes(batch.texts)
            logits, value, states = self.policy.unroll(batch.obs, codes, batch.state, batch.episode_starts)
            if len(batch.final_index):
                at = torch.from_numpy(batch.final_index).long()
                state = None if states is None else states[at[:, 0], at[:, 1]]
                final_value = self.policy.step(batch.final_obs, codes, state)[1]
        return numbers(logits[:-1].flatten(0, 1)), numbers(value), numbers(final_value)

    @torch.no_grad()
    def tokens(self, batch: Batch) -> NDArray[np.float32]:
        """Log-probabilities [T * N, L] of the tokens of each action's name."""
        assert isinstance(self.policy, LanguagePolicy)
        found = np.zeros((batch.action.size, self.policy.lm.action_tokens), np.float32)
        for rows, _, _, tokens in self.policy.spelt(arrays(batch.flat_obs), batch.texts, batch.action.ravel()):
            found[rows, : tokens.shape[1]] = numbers(tokens)
        return found

    def pieces(
        self, batch: Batch, index: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64] | None, Tensor, Tensor, Tensor | None]]:
        """What the policy says of the env steps `index` [B], in micro-batches.

        Which of them [b] (None: all), logits [b, A], values [b], and if the ratio is theirs, log-probabilities [b, L]
        of the tokens of the actions' names.
        """
        at = torch.from_numpy(index)
        obs = {name: column.index_select(0, at) for name, column in batch.flat_obs.items()}
        if isinstance(self.policy, LanguagePolicy):
            if self.spelt:
                yield from self.policy.spelt(arrays(obs), batch.texts, batch.action.ravel()[index])
            else:
                yield from ((*piece, None) for piece in self.policy.pieces(arrays(obs), batch.texts))
            return
        with arithmetic(self.half):
            codes, obs = self._encode(batch.texts, obs)
            if batch.state is None:
                logits, value, _ = self.policy.step(obs, codes, None)
            else:
                length = len(batch.terminated)
                columns = at[: len(at) // length]  # the envs: rows of t = 0
                obs = {name: column.view(length, -1, *column.shape[1:]) for name, column in obs.items()}
                starts = batch.episode_starts[:-1, columns]
                logits, value, _ = self.policy.unroll(obs, codes, batch.state[columns], starts)
                logits, value = logits.flatten(0, 1), value.flatten()
        yield None, logits, value, None

    def _encode(self, texts: Any, obs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Encode only the texts that this minibatch names, each once."""
        assert isinstance(self.policy, Policy)
        names = self.policy.text_fields
        if texts is None or not names:
            return self.policy.codes(None), obs
        used, rows = torch.unique(torch.cat([obs[name].flatten() for name in names]), return_inverse=True)
        parts = rows.split([obs[name].numel() for name in names])
        return self.policy.codes(texts[used]), obs | {
            name: part.view(obs[name].shape) for name, part in zip(names, parts, strict=True)
        }


def numbers(x: Tensor) -> NDArray[np.float32]:
    """Values as NumPy's float32, without their gradients."""
    result: NDArray[np.float32] = x.detach().float().cpu().numpy()
    return result
