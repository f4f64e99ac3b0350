"""PPO on chunks: the learner's inner loop.

    chunks ──> Batch (texts interned, rewards summed, arrays side by side)
           ──> values and importance ratios of the current policy (a forward pass, only if a chunk is stale)
           ──> advantages (V-trace; GAE when nothing is stale)
           ──> epochs of shuffled minibatches: loss, gradients averaged over ranks, Adam

On stale chunks the loss is the decoupled one (Hilton et al. 2021): the ratio is taken to the policy at the start of the
update, and each step is weighted by the clipped ratio of that policy to the one that acted.

Every random choice is a function of (seed, version, rank), so counters are all the random state there is to save.
The limit is arithmetic: `epochs` forward and backward passes a step; the rest is under 5 % of an update.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envs.api import Chunk
from envs.config import Part
from learner import losses
from learner.advantages import next_values, vtrace
from learner.collective import Group
from learner.models.policy import Policy


class LearnerConfig(Part):
    """The learner group and PPO (Schulman et al. 2017)."""

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
    """Env steps per gradient step, over all ranks (with memory: rounded to whole envs of a chunk)."""
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
    """Chunks made more than this many versions ago are dropped; younger stale ones are corrected by V-trace."""
    timeout_s: float = 600.0
    """An update that takes longer is taken for hung: the learner is restarted from the last checkpoint."""
    reward_scale: float = 1.0
    """Every reward is multiplied by this before learning; reported returns are not."""


@dataclass
class Batch:
    """Chunks side by side: N is the sum of their envs, D the sum of their ended episodes."""

    obs: dict[str, Tensor]  # [T+1, N, ...]; a text field holds rows of `texts`
    final_obs: dict[str, Tensor]  # [D, ...]
    texts: Tensor | None  # [U, ...] prepared, in the order of their hashes
    final_index: NDArray[np.int32]  # [D, 2]
    action: Tensor  # int64 [T, N]
    mask: Tensor | None  # bool [T+1, N, A]
    log_prob: NDArray[np.float32]  # [T, N]
    value: NDArray[np.float32]  # [T+1, N]
    final_value: NDArray[np.float32]  # [D]
    reward: NDArray[np.float32]  # [T, N] sum of the columns, scaled
    terminated: NDArray[np.bool_]  # [T, N]
    truncated: NDArray[np.bool_]  # [T, N]
    state: Tensor | None  # [N, hidden]
    fresh: bool  # every chunk was made by the current policy

    @property
    def done(self) -> NDArray[np.bool_]:
        return self.terminated | self.truncated

    @property
    def episode_starts(self) -> Tensor:
        """bool [T+1, N]: an episode ended right before this observation."""
        first = np.zeros((1, self.done.shape[1]), np.bool_)
        return torch.from_numpy(np.concatenate([first, self.done]))


def collate(chunks: Sequence[Chunk], policy: Policy, version: int, reward_scale: float) -> Batch:
    """Lay chunks side by side and turn text hashes into rows of prepared texts."""
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
    columns = [sum(c.rewards.values()) for c in chunks]
    return Batch(
        obs=_tensors(obs),
        final_obs=_tensors(final_obs),
        texts=policy.prepare([texts[h] for h in hashes.tolist()]) if policy.text_fields else None,
        final_index=final_index,
        action=torch.from_numpy(np.concatenate([c.action for c in chunks], 1).astype(np.int64)),
        mask=torch.from_numpy(np.concatenate(masks, 1)) if masks else None,
        log_prob=np.concatenate([c.log_prob for c in chunks], 1),
        value=np.concatenate([c.value for c in chunks], 1),
        final_value=np.concatenate([c.final_value for c in chunks]),
        reward=np.concatenate(columns, 1) * np.float32(reward_scale),
        terminated=np.concatenate([c.terminated for c in chunks], 1),
        truncated=np.concatenate([c.truncated for c in chunks], 1),
        state=torch.from_numpy(np.concatenate(states)) if states else None,
        fresh=all(c.version == version for c in chunks),
    )


def _tensors(obs: dict[str, NDArray[Any]]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(value) for name, value in obs.items()}


class PPO:
    """Owns the optimiser of a policy."""

    def __init__(self, config: LearnerConfig, policy: Policy, group: Group, seed: int) -> None:
        self.config, self.policy, self.group, self.seed = config, policy, group, seed
        self.optimiser = torch.optim.Adam(policy.parameters(), lr=config.learning_rate, eps=1e-5, fused=True)

    def update(self, batch: Batch, version: int, env_steps: int) -> dict[str, float]:
        """Learn from one batch; `env_steps` learned from so far set the step size. Returns losses and statistics."""
        config = self.config
        fraction = 1 - 0.9 * min(1.0, env_steps / config.env_steps) if config.anneal else 1.0
        for parameters in self.optimiser.param_groups:
            parameters["lr"] = config.learning_rate * fraction
        old_log_prob, value, final_value = self._current(batch)
        rho = np.exp(old_log_prob - batch.log_prob)
        following = next_values(value, batch.terminated, batch.truncated, batch.final_index, final_value)
        advantage, target = vtrace(
            batch.reward, value[:-1], following, batch.done, rho, config.discount, config.gae_lambda
        )
        if config.normalise_advantage:
            mean, mean_square = self.group.mean([float(advantage.mean()), float(np.square(advantage).mean())])
            advantage = (advantage - mean) / (np.sqrt(max(mean_square - mean * mean, 0.0)) + 1e-8)
        steps = {
            "advantage": torch.from_numpy(advantage.astype(np.float32)),
            "target": torch.from_numpy(target),
            "value": torch.from_numpy(value[:-1]),
            "log_prob": torch.from_numpy(old_log_prob),
            "weight": torch.from_numpy(np.minimum(rho, np.float32(1))),
        }
        totals: dict[str, float] = {}
        count = 0
        for epoch in range(config.epochs):
            kl = 0.0
            minibatches = list(self._minibatches(batch, version, epoch))
            for minibatch in minibatches:
                report = self._step(batch, steps, minibatch)
                kl += report["losses/approx_kl"] / len(minibatches)
                count += 1
                for name, number in report.items():
                    totals[name] = totals.get(name, 0.0) + number
            if config.target_kl is not None and self.group.mean([kl])[0] > config.target_kl:
                break
        if totals["losses/skipped"] == count:
            raise FloatingPointError("no gradient of this update was finite; rewards or observations may not be")
        unexplained = float(np.var(target - value[:-1])) / max(float(np.var(target)), 1e-8)
        return {name: number / count for name, number in totals.items()} | {
            "losses/explained_variance": 1 - unexplained,
            "losses/learning_rate": config.learning_rate * fraction,
            "policy/rho": float(rho.mean()),
        }

    @torch.no_grad()
    def _current(self, batch: Batch) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """The current policy's log-probabilities [T, N], values [T+1, N] and final values [D]."""
        if batch.fresh:
            return batch.log_prob, batch.value, batch.final_value
        codes = self.policy.codes(batch.texts)
        logits, value, states = self.policy.unroll(batch.obs, codes, batch.state, batch.episode_starts)
        mask = None if batch.mask is None else batch.mask[:-1]
        log_prob = losses.chosen(losses.categorical(logits[:-1], mask), batch.action)
        final_value = np.zeros(0, np.float32)
        if len(batch.final_index):
            at = torch.from_numpy(batch.final_index).long()
            state = None if states is None else states[at[:, 0], at[:, 1]]
            final_value = self.policy.step(batch.final_obs, codes, state)[1].numpy()
        return log_prob.numpy(), value.numpy(), final_value

    def _minibatches(self, batch: Batch, version: int, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Index pairs (t, n) of each minibatch; with memory, whole env columns so that time stays in order."""
        length, envs = batch.terminated.shape
        size = max(1, self.config.minibatch // self.group.size)
        random = np.random.default_rng([self.seed, version, epoch, self.group.rank])
        units = envs if batch.state is not None else length * envs
        parts = max(1, round(length * envs / size))
        for part in np.array_split(random.permutation(units), min(parts, units)):
            if batch.state is not None:
                columns = torch.from_numpy(part)
                yield torch.arange(length)[:, None].expand(length, len(part)), columns.expand(length, len(part))
            else:
                yield torch.from_numpy(part // envs), torch.from_numpy(part % envs)

    def _step(self, batch: Batch, steps: dict[str, Tensor], minibatch: tuple[Tensor, Tensor]) -> dict[str, float]:
        config, (t, n) = self.config, minibatch
        obs = {name: value[t, n] for name, value in batch.obs.items()}
        codes, obs = self._encode(batch.texts, obs)
        if batch.state is not None:
            logits, value, _ = self.policy.unroll(obs, codes, batch.state[n[0]], batch.episode_starts[t, n])
        else:
            logits, value, _ = self.policy.step(obs, codes, None)
        log_probs = losses.categorical(logits, None if batch.mask is None else batch.mask[t, n])
        log_prob = losses.chosen(log_probs, batch.action[t, n])
        old = steps["log_prob"][t, n]
        policy_loss = losses.policy_loss(log_prob, old, steps["advantage"][t, n], config.clip, steps["weight"][t, n])
        value_loss = losses.value_loss(value, steps["value"][t, n], steps["target"][t, n], config.value_clip)
        entropy = losses.entropy(log_probs).mean()
        loss = policy_loss + config.value_coefficient * value_loss - config.entropy_coefficient * entropy
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.group.average_gradients(self.policy.parameters())
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), config.gradient_clip)
        usable = bool(torch.isfinite(norm))  # equal on all ranks, since the gradients are
        if usable:
            self.optimiser.step()
        with torch.no_grad():
            return {
                "losses/policy": float(policy_loss),
                "losses/value": float(value_loss),
                "losses/entropy": float(entropy),
                "losses/approx_kl": float(losses.approximate_kl(log_prob, old)),
                "losses/clip_fraction": float(losses.clip_fraction(log_prob, old, config.clip)),
                "losses/gradient_norm": float(norm),
                "losses/skipped": float(not usable),
            }

    def _encode(self, texts: Tensor | None, obs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Encode only the texts that this minibatch names, each once."""
        names = self.policy.text_fields
        if texts is None or not names:
            return self.policy.codes(None), obs
        used, rows = torch.unique(torch.stack([obs[name] for name in names]), return_inverse=True)
        return self.policy.codes(texts[used]), obs | dict(zip(names, rows, strict=True))
