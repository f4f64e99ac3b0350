"""PPO on chunks: the learner's inner loop.

    chunks ──> Batch (texts interned, rewards summed, arrays side by side)
           ──> values and importance ratios of the current policy (a forward pass, only if a chunk is stale)
           ──> advantages (V-trace; GAE when nothing is stale)
           ──> epochs of shuffled minibatches: loss, gradients averaged over ranks, Adam

On stale chunks the loss is the decoupled one (Hilton et al. 2021): the ratio is taken to the policy at the start of the
update, and each step is weighted by the clipped ratio of that policy to the one that acted.

Every random choice is a function of (seed, version, rank), so counters are all the random state there is to save.
PyTorch differentiates the networks; the loss on top of them and Adam below are machine code of their own, since on the
small minibatches of PPO what costs is the number of operations. The limit is arithmetic: `epochs` forward and backward
passes a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, field_validator
from torch import Tensor

from envs.api import Chunk
from envs.config import Part
from learner import losses
from learner.adam import Adam
from learner.advantages import next_values, vtrace
from learner.checkpoint import Arrays
from learner.collective import Group
from learner.descent import descend, side_by_side
from learner.intrinsic import Intrinsic
from learner.models.policy import Policy

REPORT = (*losses.REPORT, "gradient_norm", "skipped")
COLUMNS = ("env", "goal", "intrinsic", "shaping")
"""Columns of rewards that there may be."""


class LearnerConfig(Part):
    """The learner group and PPO (Schulman et al. 2017)."""

    algorithm: Literal["ppo", "dqn"] = "ppo"
    """What turns chunks into better weights; `method=NAME` chooses it. `dqn` has further keys of its own."""
    n: int = 1
    """Ranks. Chunks are dealt by rank, gradients are averaged, rank 0 saves."""
    threads: int = 1
    """Torch threads of each rank."""
    env_steps: int = 1_000_000
    """Train until this many env steps have been learned from."""
    learning_rate: float = 3e-4
    """Adam step size at the start."""
    anneal: bool = True
    """Let the step size fall linearly to a tenth of its start over `env_steps`."""
    epochs: int = 4
    """Passes over each batch of chunks."""
    minibatch: int = 256
    """Env steps per gradient step, over all ranks (with memory: rounded to whole envs of a chunk; dqn: replayed)."""
    chunks: int = 0
    """Chunks per update; 0 means one from each actor."""
    discount: float = 0.99
    """Gamma."""
    gae_lambda: float = 0.95
    """Lambda of GAE (Schulman et al. 2016), and of V-trace's corrected form of it."""
    clip: float = 0.2
    """Clip range of the probability ratio."""
    value_clip: float | None = 0.2
    """Clip range of the value update; none switches it off."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy bonus."""
    gradient_clip: float = 0.5
    """Largest global norm of a gradient."""
    target_kl: float | None = None
    """Stop the epochs of an update once the approximate KL exceeds this; none never stops."""
    normalise_advantage: bool = True
    """Zero mean and unit variance over each batch (over all ranks)."""
    max_lag: int = 4
    """Chunks made more than this many versions ago are dropped; younger stale ones are corrected by V-trace. To dqn no
    chunk is too old."""
    timeout_s: float = 600.0
    """An update that takes longer is taken for hung: the learner is restarted from the last checkpoint."""
    reward_scale: float = 1.0
    """Every reward is multiplied by this before learning; reported returns are not."""
    reward_weights: dict[str, float] = Field(default={})
    """What columns of rewards (`env`, `goal`, `intrinsic`) are multiplied by before they are summed; 1 where none is
    named. `learner.reward_weights.env=0` learns from the others only."""
    autocast: Literal["none", "auto", "bfloat16"] = "none"
    """Arithmetic of the networks while learning: float32, or bfloat16 (`auto`: where the processor has it). On one core
    bfloat16 makes `film`, and minibatches of thousands, a quarter to a half faster, and the `mlp` in minibatches of 256
    slower."""

    @field_validator("reward_weights")
    @classmethod
    def _of_columns(cls, weights: dict[str, float]) -> dict[str, float]:
        for name in weights:
            if name not in COLUMNS:
                known = ", ".join(COLUMNS)
                raise ValueError(f"learner.reward_weights.{name}: there is no such reward: choose from {known}")
        return weights

    def step_size(self, env_steps: int) -> float:
        """Adam's step size once `env_steps` have been learned from."""
        return self.learning_rate * (1 - 0.9 * min(1.0, env_steps / self.env_steps) if self.anneal else 1.0)


@dataclass
class Batch:
    """Chunks side by side: N is the sum of their envs, D the sum of their ended episodes."""

    obs: dict[str, Tensor]  # [T+1, N, ...] what the network reads; a text field holds rows of `texts`
    final_obs: dict[str, Tensor]  # [D, ...]
    texts: Tensor | None  # [U, ...] prepared, in the order of their hashes
    final_index: NDArray[np.int32]  # [D, 2]
    action: NDArray[np.int64]  # [T, N]
    mask: NDArray[np.bool_] | None  # [T+1, N, A]
    log_prob: NDArray[np.float32]  # [T, N]
    value: NDArray[np.float32]  # [T+1, N]
    final_value: NDArray[np.float32]  # [D]
    reward: NDArray[np.float32]  # [T, N] weighted sum of the columns, scaled
    terminated: NDArray[np.bool_]  # [T, N]
    truncated: NDArray[np.bool_]  # [T, N]
    state: Tensor | None  # [N, hidden]
    fresh: bool  # every chunk was made by the current policy

    @cached_property
    def flat_obs(self) -> dict[str, Tensor]:
        """[T * N, ...] of the steps taken."""
        return {name: column[:-1].flatten(0, 1) for name, column in self.obs.items()}

    @property
    def done(self) -> NDArray[np.bool_]:
        return self.terminated | self.truncated

    @property
    def episode_starts(self) -> Tensor:
        """bool [T+1, N]: an episode ended right before this observation."""
        first = np.zeros((1, self.done.shape[1]), np.bool_)
        return torch.from_numpy(np.concatenate([first, self.done]))


def weigh(rewards: Mapping[str, NDArray[np.float32]], weights: Mapping[str, float]) -> NDArray[np.float32]:
    """The sum of columns of rewards, each [...], by their `weights`, 1 where none is named."""
    total: NDArray[np.float32] = sum(
        (np.float32(weights.get(name, 1.0)) * column for name, column in rewards.items()), np.zeros((), np.float32)
    )
    return total


def collate(
    chunks: Sequence[Chunk], policy: Policy, version: int, reward_scale: float, weights: Mapping[str, float] = {}
) -> Batch:
    """Lay chunks side by side, turn text hashes into rows of prepared texts and observations into network inputs."""
    starts = np.cumsum([0, *[len(c.env_index) for c in chunks]])
    final_index = np.concatenate(
        [c.final_index + np.array([0, start], np.int32) for c, start in zip(chunks, starts, strict=False)]
    )
    obs = {n: np.concatenate([c.obs[n] for c in chunks], 1) for n in policy.fields}
    final_obs = {n: np.concatenate([c.final_obs[n] for c in chunks]) for n in policy.fields}
    # Rows are ordered by hash: the order in which texts arrived must not reach the arithmetic.
    named = [part[n].ravel() for part in (obs, final_obs) for n in policy.text_fields]
    hashes = np.unique(np.concatenate([np.zeros(0, np.int64), *named]))
    for part in (obs, final_obs):
        part.update({n: np.searchsorted(hashes, part[n]) for n in policy.text_fields})
    texts = {key: text for c in chunks for key, text in c.texts.items()}
    masks = [c.action_mask for c in chunks if c.action_mask is not None]
    states = [c.policy_state for c in chunks if c.policy_state is not None]
    rewards = [weigh(c.rewards, weights) for c in chunks]
    return Batch(
        obs=policy.inputs(_tensors(obs)),
        final_obs=policy.inputs(_tensors(final_obs)),
        texts=policy.prepare([texts[h] for h in hashes.tolist()]) if policy.text_fields else None,
        final_index=final_index,
        action=np.concatenate([c.action for c in chunks], 1).astype(np.int64),
        mask=np.concatenate(masks, 1) if masks else None,
        log_prob=np.concatenate([c.log_prob for c in chunks], 1),
        value=np.concatenate([c.value for c in chunks], 1),
        final_value=np.concatenate([c.final_value for c in chunks]),
        reward=np.concatenate(rewards, 1) * np.float32(reward_scale),
        terminated=np.concatenate([c.terminated for c in chunks], 1),
        truncated=np.concatenate([c.truncated for c in chunks], 1),
        state=torch.from_numpy(np.concatenate(states)) if states else None,
        fresh=all(c.version == version for c in chunks),
    )


def _tensors(obs: dict[str, NDArray[Any]]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(value) for name, value in obs.items()}


class PPO:
    """Owns the optimiser of a policy.

    All parameters are views of one flat array, and all gradients of another: averaging over ranks, clipping and Adam
    are one operation each.
    """

    def __init__(
        self, config: LearnerConfig, policy: Policy, group: Group, seed: int, intrinsic: Intrinsic | None = None
    ) -> None:
        if config.autocast == "bfloat16":
            require_bfloat16()
        self.half = config.autocast != "none" and has_bfloat16()
        self.config, self.policy, self.group, self.seed = config, policy, group, seed
        self.intrinsic = intrinsic
        self.loss = losses.Loss(config.clip, config.value_clip, config.value_coefficient, config.entropy_coefficient)
        parameters, self.gradient = side_by_side([p for p in policy.parameters() if p.requires_grad])
        self.adam = Adam(parameters.numpy())

    def learn(self, version: int, env_steps: int, chunks: Sequence[Chunk]) -> dict[str, Any]:
        """Learn from the chunks that are at most `max_lag` versions old, and drop the others."""
        lags = [version - chunk.version for chunk in chunks]
        young = sorted((lag, i) for i, lag in enumerate(lags) if lag <= self.config.max_lag)
        # Every rank must learn from equally many, or some would wait for the others' gradients for ever.
        used = sorted(i for _, i in young[: self.group.minimum(len(young))])
        report: dict[str, Any] = {"dropped": len(chunks) - len(used), "learned": sum(chunks[i].steps for i in used)}
        if self.intrinsic is not None:
            chunks = [self.intrinsic.mark(chunk) for chunk in chunks]
        if used:
            chunks = [chunks[i] for i in used]
            if self.intrinsic is not None:
                chunks = self.intrinsic.pay(chunks)
                report |= self.intrinsic.report()
            config = self.config
            batch = collate(chunks, self.policy, version, config.reward_scale, config.reward_weights)
            report |= self.update(batch, version, env_steps)
        return report

    def begin(self) -> None:
        """The policy was given other weights: nothing here depends on them."""

    def state(self) -> dict[str, Arrays]:
        """The memory of the optimiser, and of the intrinsic reward."""
        return {"optimiser": self.adam.state()} | (self.intrinsic.state() if self.intrinsic else {})

    def rank_state(self) -> Arrays:
        """A rank keeps nothing to itself but what its intrinsic reward does."""
        return self.intrinsic.rank_state() if self.intrinsic else {}

    def restore(self, state: dict[str, Arrays], own: Arrays) -> None:
        """Continue with both as they were."""
        self.adam.restore(state["optimiser"])
        if self.intrinsic:
            self.intrinsic.restore(state, own)

    def update(self, batch: Batch, version: int, env_steps: int) -> dict[str, float]:
        """Learn from one batch; `env_steps` learned from so far set the step size. Returns losses and statistics."""
        config = self.config
        rate = config.step_size(env_steps)
        old_log_prob, value, final_value = self._current(batch)
        rho = np.exp(old_log_prob - batch.log_prob)
        following = next_values(value, batch.terminated, batch.truncated, batch.final_index, final_value)
        advantage, target = vtrace(
            batch.reward, value[:-1], following, batch.done, rho, config.discount, config.gae_lambda
        )
        if config.normalise_advantage:
            mean, mean_square = self.group.mean([float(advantage.mean()), float(np.square(advantage).mean())])
            advantage = (advantage - mean) / (np.sqrt(max(mean_square - mean * mean, 0.0)) + 1e-8)
        steps = losses.Steps(
            action=batch.action.ravel(),
            mask=None if batch.mask is None else batch.mask[:-1].reshape(rho.size, -1),
            log_prob=old_log_prob.ravel(),
            advantage=advantage.astype(np.float32).ravel(),
            weight=np.minimum(rho, np.float32(1)).ravel(),
            value=value[:-1].ravel(),
            target=target.ravel(),
        )
        reports: list[NDArray[np.float64]] = []
        for epoch in range(config.epochs):
            minibatches = self._minibatches(batch, version, epoch)
            epoch_reports = [self._step(batch, steps, index, rate) for index in minibatches]
            reports += epoch_reports
            kl = float(np.mean(epoch_reports, 0)[REPORT.index("approx_kl")])
            if config.target_kl is not None and self.group.mean([kl])[0] > config.target_kl:
                break
        means = dict(zip(REPORT, np.mean(reports, 0).tolist(), strict=True))
        if means["skipped"] == 1:
            raise FloatingPointError("no gradient of this update was finite; rewards or observations may not be")
        unexplained = float(np.var(target - value[:-1])) / max(float(np.var(target)), 1e-8)
        return {f"losses/{name}": number for name, number in means.items()} | {
            "losses/explained_variance": 1 - unexplained,
            "losses/learning_rate": rate,
            "policy/rho": float(rho.mean()),
        }

    @torch.no_grad()
    def _current(self, batch: Batch) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """The current policy's log-probabilities [T, N], values [T+1, N] and final values [D]."""
        if batch.fresh:
            return batch.log_prob, batch.value, batch.final_value
        with self._precision():
            codes = self.policy.codes(batch.texts)
            logits, value, states = self.policy.unroll(batch.obs, codes, batch.state, batch.episode_starts)
            final_value = torch.zeros(0)
            if len(batch.final_index):
                at = torch.from_numpy(batch.final_index).long()
                state = None if states is None else states[at[:, 0], at[:, 1]]
                final_value = self.policy.step(batch.final_obs, codes, state)[1]
        mask = None if batch.mask is None else batch.mask[:-1].reshape(batch.action.size, -1)
        log_prob = losses.log_prob(logits[:-1].flatten(0, 1).float().numpy(), batch.action.ravel(), mask)
        return log_prob.reshape(batch.action.shape), value.float().numpy(), final_value.float().numpy()

    def _minibatches(self, batch: Batch, version: int, epoch: int) -> Iterator[NDArray[np.int64]]:
        """Of each minibatch, the flat indices t * N + n; with memory, of whole env columns so that time is in order."""
        length, envs = batch.terminated.shape
        size = max(1, self.config.minibatch // self.group.size)
        random = np.random.default_rng([self.seed, version, epoch, self.group.rank])
        units = envs if batch.state is not None else length * envs
        parts = max(1, round(length * envs / size))
        for part in np.array_split(random.permutation(units), min(parts, units)):
            yield part if batch.state is None else (np.arange(length)[:, None] * envs + part).ravel()

    def _step(self, batch: Batch, steps: losses.Steps, index: NDArray[np.int64], rate: float) -> NDArray[np.float64]:
        """One gradient step of size `rate` on the env steps `index` [B]. Returns the numbers that `REPORT` names."""
        rows = torch.from_numpy(index)
        obs = {name: column.index_select(0, rows) for name, column in batch.flat_obs.items()}
        with self._precision():
            codes, obs = self._encode(batch.texts, obs)
            if batch.state is None:
                logits, value, _ = self.policy.step(obs, codes, None)
            else:
                length = len(batch.terminated)
                columns = rows[: len(rows) // length]  # the envs: rows of t = 0
                obs = {name: column.view(length, -1, *column.shape[1:]) for name, column in obs.items()}
                starts = batch.episode_starts[:-1, columns]
                logits, value, _ = self.policy.unroll(obs, codes, batch.state[columns], starts)
                logits, value = logits.flatten(0, 1), value.flatten()
        d_logits, d_value, report = self.loss.gradient(_numbers(logits), _numbers(value), steps.at(index))
        self.gradient.zero_()
        torch.autograd.backward((logits, value), (_like(d_logits, logits), _like(d_value, value)))
        norm, usable = descend(self.adam, [self.gradient], self.group, self.config.gradient_clip, rate)
        return np.array([*report, norm, not usable])

    def _encode(self, texts: Tensor | None, obs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Encode only the texts that this minibatch names, each once."""
        names = self.policy.text_fields
        if texts is None or not names:
            return self.policy.codes(None), obs
        used, rows = torch.unique(torch.cat([obs[name].flatten() for name in names]), return_inverse=True)
        parts = rows.split([obs[name].numel() for name in names])
        return self.policy.codes(texts[used]), obs | {
            name: part.view(obs[name].shape) for name, part in zip(names, parts, strict=True)
        }

    def _precision(self) -> AbstractContextManager[Any]:
        """The networks' arithmetic: float32, or what `autocast` says."""
        return torch.autocast("cpu", torch.bfloat16) if self.half else nullcontext()


def _numbers(x: Tensor) -> NDArray[np.float32]:
    result: NDArray[np.float32] = x.detach().float().numpy()
    return result


def _like(x: NDArray[np.float32], other: Tensor) -> Tensor:
    return torch.from_numpy(x).to(other.dtype)


def has_bfloat16() -> bool:
    """Does this processor multiply bfloat16?"""
    found = torch.cpu.get_capabilities()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16") or found.get("bf16"))


def require_bfloat16() -> None:
    """ValueError unless this processor multiplies bfloat16 numbers itself: emulated, they are slower than float32."""
    if not has_bfloat16():
        raise ValueError("learner.autocast: bfloat16 needs a processor with avx512_bf16 or amx_bf16: set it to auto")
