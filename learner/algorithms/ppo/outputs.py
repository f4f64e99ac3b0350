"""Outputs of a policy, a network or a language model, for the observations of a batch: logits, values, tokens.

    whole     of the whole batch at once, without gradients
    pieces    of a minibatch, with gradients, in as few pieces as fit in memory

Texts are encoded once per batch, and for a minibatch only the texts that it names. A language model gets its
observations as prompts, and splits them into micro-batches itself.

A batch of observations is on the network's device. The host selects the rows of a minibatch by sending a few indices,
without waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.batch import Batch, arrays
from learner.models.language.llm_policy import LanguagePolicy
from learner.models.policy import Policy
from learner.models.rows import Appearing
from learner.optim.device import read, send
from learner.optim.precision import arithmetic


class Piece(NamedTuple):
    """A policy's outputs for some env steps of a batch, with gradients."""

    at: NDArray[np.int64] | Tensor  # [b] indices of the steps, flat t * N + n
    logits: Tensor  # [b, A]
    value: Tensor  # [b]
    tokens: Tensor | None = None  # [b, L] log-probabilities of the actions' tokens, if the ratio is made of them
    entropy: Tensor | None = None  # [b] of what is written, the mean over an answer's tokens


class Outputs:
    """
    Args:
        half: networks compute in bfloat16.
        spelt: PPO's ratio is computed from the tokens of the actions' names, or of written answers.
    """

    def __init__(self, policy: Policy | LanguagePolicy, half: bool, spelt: bool) -> None:
        self.generated = isinstance(policy, LanguagePolicy) and policy.generated
        self.policy, self.half, self.device = policy, half, policy.device
        self.spelt = spelt or self.generated

    @torch.no_grad()
    def whole(self, batch: Batch) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """For a whole batch: logits [T * N, A], values [T+1, N], final values [D]."""
        final_value = torch.zeros(0)
        if isinstance(self.policy, LanguagePolicy):
            seen = {name: column.flatten(0, 1) for name, column in batch.obs.items()}
            flat, value = self.policy.decide(arrays(seen), batch.texts)
            if len(batch.final_index):
                final_value = self.policy.decide(arrays(batch.final_obs), batch.texts)[1]
            return flat[: batch.action.size].numpy(), value.view(len(batch.value), -1).numpy(), final_value.numpy()
        with arithmetic(self.half, self.device.type):
            codes = self.policy.codes(batch.texts)
            logits, value, states = self.policy.unroll(batch.obs, codes, batch.state, batch.episode_starts)
            if len(batch.final_index):
                state = None
                if states is not None:
                    at = send({"at": batch.final_index.astype(np.int64)}, self.device)["at"]
                    state = states[at[:, 0], at[:, 1]]
                final_value = self.policy.step(batch.final_obs, codes, state)[1]
        return numbers(logits[:-1].flatten(0, 1)), numbers(value), numbers(final_value)

    @torch.no_grad()
    def tokens(self, batch: Batch) -> NDArray[np.float32]:
        """Log-probabilities [T * N, L] of the tokens of each action's name, or of what was written."""
        assert isinstance(self.policy, LanguagePolicy)
        if batch.written is not None:
            told = batch.written.tokens.reshape(batch.action.size, -1)
            answers = np.zeros(told.shape, np.float32)
            for rows, _, tokens, _ in self.policy.written(arrays(batch.flat_obs), batch.texts, told):
                answers[rows, : tokens.shape[1]] = numbers(tokens)
            return answers
        found = np.zeros((batch.action.size, self.policy.lm.action_tokens), np.float32)
        for rows, _, _, tokens in self.policy.spelt(arrays(batch.flat_obs), batch.texts, batch.action.ravel()):
            found[rows, : tokens.shape[1]] = numbers(tokens)
        return found

    def pieces(self, batch: Batch, index: NDArray[np.int64]) -> Iterator[Piece]:
        """The policy's outputs for the env steps `index` [B], in micro-batches."""
        if isinstance(self.policy, LanguagePolicy):
            obs = {name: column.index_select(0, torch.from_numpy(index)) for name, column in batch.flat_obs.items()}
            if batch.written is not None:
                told = batch.written.tokens.reshape(batch.action.size, -1)[index]
                for rows, value, tokens, spread in self.policy.written(arrays(obs), batch.texts, told):
                    nothing = value[:, None] * 0  # there is no distribution of actions: one is certain
                    lengths = send({"lengths": (told[rows] >= 0).sum(1)}, spread.device)["lengths"]
                    yield Piece(self._place(index[rows]), nothing, value, tokens, spread.sum(-1) / lengths)
            elif self.spelt:
                for rows, *said in self.policy.spelt(arrays(obs), batch.texts, batch.action.ravel()[index]):
                    yield Piece(self._place(index[rows]), *said)
            else:
                for rows, *said in self.policy.pieces(arrays(obs), batch.texts):
                    yield Piece(self._place(index[rows]), *said)
            return
        with arithmetic(self.half, self.device.type):
            at, codes, obs = self._chosen(batch, index)
            if batch.state is None:
                logits, value, _ = self.policy.step(obs, codes, None)
            else:
                length = len(batch.terminated)
                columns = at[: len(at) // length]  # the envs: rows of t = 0
                obs = {name: column.view(length, -1, *column.shape[1:]) for name, column in obs.items()}
                starts = batch.episode_starts[:-1, columns]
                logits, value, _ = self.policy.unroll(obs, codes, batch.state[columns], starts)
                logits, value = logits.flatten(0, 1), value.flatten()
        yield Piece(index if self.device.type == "cpu" else at, logits, value)

    def _place(self, index: NDArray[np.int64]) -> NDArray[np.int64] | Tensor:
        """Indices of some env steps [b], on the device of the loss's inputs."""
        return index if self.device.type == "cpu" else send({"at": index}, self.device)["at"]

    def _chosen(self, batch: Batch, index: NDArray[np.int64]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The env steps `index` [B] on the device, codes of the distinct texts that they name, and observations."""
        assert isinstance(self.policy, Policy)
        columns: dict[str | None, NDArray[np.int64]] = {None: index}
        if batch.named and batch.texts is not None:
            named = {name: column[:-1].reshape(-1, *column.shape[2:])[index] for name, column in batch.named.items()}
            ids = np.concatenate([column.ravel() for column in named.values()])
            used, rows = Appearing(len(batch.texts))(ids)
            parts = np.split(rows, np.cumsum([column.size for column in named.values()])[:-1])
            columns |= {name: part.reshape(named[name].shape) for name, part in zip(named, parts, strict=True)}
            there = send(columns | {"": used}, self.device)
            codes = self.policy.codes(batch.texts[there.pop("")])
        else:
            there, codes = send(columns, self.device), self.policy.codes(None)
        at = there.pop(None)
        return at, codes, {n: there[n] if n in there else c.index_select(0, at) for n, c in batch.flat_obs.items()}


def numbers(x: Tensor) -> NDArray[np.float32]:
    """Values as NumPy's float32, without their gradients."""
    result: NDArray[np.float32] = read(x.float())
    return result
