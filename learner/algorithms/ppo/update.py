"""One rank of PPO: advantages, minibatches, the gradient step.

PyTorch differentiates the networks. The loss and Adam are separate compiled code, because with PPO's small minibatches
the cost is the number of operations. The limit is arithmetic: `epochs` forward and backward passes per step.

On a device other than the CPU, the batch is sent once and the report is read once, at the end: in between, the host
only queues operations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envs.api import Chunk, EnvSpec
from learner.algorithms import Algorithm, AlgorithmSetup
from learner.algorithms.ppo import losses
from learner.algorithms.ppo.advantages import next_values, vtrace
from learner.algorithms.ppo.config import PPOConfig, check_ppo
from learner.algorithms.ppo.groups import credit
from learner.algorithms.ppo.outputs import Outputs, numbers
from learner.algorithms.ppo.reference import Reference
from learner.algorithms.ppo.steps import Steps
from learner.algorithms.ppo.value_scale import ValueScale
from learner.batch import Batch, collate
from learner.checkpoint import Arrays
from learner.config import Configuration, own
from learner.models.language.llm_policy import LanguagePolicy
from learner.models.language.written import of_answers
from learner.optim.adam import Adam, optimiser_step, side_by_side
from learner.optim.device import read_mean
from learner.optim.precision import halves

REPORT = (*losses.REPORT, "reference_kl", "gradient_norm", "skipped")
HOLD = 1.0
"""Weight of KL(policy || initial policy) while the critic warms up."""


class Terms(NamedTuple):
    """The coefficients of one update."""

    loss: losses.Loss
    pull: float  # weight of KL(policy || reference)
    advantage: float  # what advantages are multiplied by


class PPO(Algorithm):
    """Owns the optimiser of a policy.

    All parameters are views of one flat array, and all gradients of another: averaging over ranks, clipping and Adam
    are one operation each.
    """

    Config = PPOConfig

    @classmethod
    def check(cls, config: Configuration, spec: EnvSpec) -> None:
        check_ppo(config, spec)

    @classmethod
    def max_lag(cls, config: Configuration) -> int | None:
        return config.learner.part(PPOConfig).max_lag

    @classmethod
    def describe(cls, config: Configuration) -> str:
        return f"{config.learner.part(PPOConfig).epochs} epochs"

    def __init__(self, setup: AlgorithmSetup) -> None:
        config, policy, ppo = setup.config, setup.policy, own(setup.options, PPOConfig)
        self.config, self.ppo, self.policy, self.group, self.seed = config, ppo, policy, setup.group, setup.seed
        self.intrinsic = setup.intrinsic
        self.outputs = Outputs(policy, halves(config.autocast, policy.device), ppo.ratio == "token")
        parameters, self.gradient = side_by_side([p for p in policy.parameters() if p.requires_grad])
        self.adam = Adam(parameters)
        self.scale = ValueScale(policy.value_layer) if ppo.normalise_value else None
        self.reference = Reference(policy) if ppo.reference_kl or ppo.critic_warmup else None

    def learn(self, version: int, env_steps: int, chunks: Sequence[Chunk]) -> dict[str, Any]:
        """Learn from the chunks that are at most `max_lag` versions old, and drop the others."""
        lags = [version - chunk.mean_version for chunk in chunks]
        young = sorted((lag, i) for i, lag in enumerate(lags) if lag <= self.ppo.max_lag)
        # Every rank must use equally many chunks, or some ranks would wait forever for the others' gradients.
        used = sorted(i for _, i in young[: self.group.minimum(len(young))])
        report: dict[str, Any] = {"dropped": len(chunks) - len(used), "learned": sum(chunks[i].steps for i in used)}
        chunks = [self.intrinsic.mark(chunk) for chunk in chunks]  # dropped ones too: their episodes continue
        if used:
            config, paid = self.config, self.intrinsic.pay_chunks([chunks[i] for i in used])
            batch = collate(paid, self.policy, version, config.reward_scale, config.weights_at(env_steps))
            report |= self.intrinsic.report() | self.update(batch, version, env_steps)
        return report

    def begin(self) -> None:
        if self.reference:
            self.reference.begin()

    def state(self) -> dict[str, Arrays]:
        """The state of the optimiser, of the intrinsic reward and of the value scale; the initial weights."""
        state = {"optimiser": self.adam.state()} | self.intrinsic.state()
        if self.scale:
            state["value_scale"] = self.scale.state()
        if self.reference:
            state["reference"] = self.reference.weights
        return state

    def rank_state(self) -> Arrays:
        return self.intrinsic.rank_state()

    def restore(self, state: dict[str, Arrays], own: Arrays) -> None:
        self.adam.restore(state["optimiser"])
        if self.scale:
            self.scale.restore(state["value_scale"])
        if self.reference:
            self.reference.restore(state["reference"])
        self.intrinsic.restore(state, own)

    def update(self, batch: Batch, version: int, env_steps: int) -> dict[str, float]:
        """Learn from one batch; `env_steps`, the number used so far, sets the step size. Returns losses and
        statistics."""
        config, ppo = self.config, self.ppo
        rate = config.step_size(env_steps)
        terms = self._terms(env_steps)
        language = isinstance(self.policy, LanguagePolicy)
        states = batch.equal_states() if language or ppo.advantage == "gigpo" else None
        if not language:  # which makes prompts of them, on the host
            batch = batch.on(self.policy.device)
        old_log_prob, value, final_value = self._current(batch)
        if self.scale:
            value, final_value = self.scale.restore_units(value), self.scale.restore_units(final_value)
        rho = np.exp(old_log_prob - batch.log_prob)
        weight, target = np.minimum(rho, np.float32(1)), value[:-1]
        if ppo.advantage == "gae":
            following = next_values(value, batch.terminated, batch.truncated, batch.final_index, final_value)
            advantage, target = vtrace(
                batch.reward, value[:-1], following, batch.done, rho, config.discount, ppo.gae_lambda
            )
            if ppo.normalise_advantage:
                mean, mean_square = self.group.mean([float(advantage.mean()), float(np.square(advantage).mean())])
                advantage = (advantage - mean) / (np.sqrt(max(mean_square - mean * mean, 0.0)) + 1e-8)
            unexplained = float(np.var(target - value[:-1])) / max(float(np.var(target)), 1e-8)
            said = {"losses/explained_variance": 1 - unexplained}
        else:
            alike = np.zeros_like(batch.action) if states is None else states.reshape(batch.action.shape)
            given = (batch.reward, batch.done, batch.episode, batch.group, alike)
            advantage, counts = credit(ppo.advantage, *given, config.discount, ppo.omega)
            weight, said = weight * counts, {"policy/unfinished": 1 - float(counts.mean())}
        advantage *= terms.advantage
        told, wanted = value[:-1], target
        if self.scale:
            self.scale.follow(target, self.group)
            told, wanted = self.scale.normalise(told), self.scale.normalise(wanted)
        reference = None
        if terms.pull:
            assert self.reference
            with self.reference.in_place():
                generated = self.outputs.generated
                reference = self.outputs.tokens(batch) if generated else self.outputs.whole(batch)[0]
        written = batch.written is not None  # tokens have the ratio, and an action is certain: `Outputs.pieces`
        steps: Steps[Any] = Steps(
            action=batch.action.ravel() * (not written),
            log_prob=old_log_prob.ravel() * np.float32(not written),
            advantage=advantage.astype(np.float32).ravel(),
            weight=weight.ravel(),
            value=told.ravel(),
            target=wanted.ravel(),
            reference=reference,
            tokens=self._tokens(batch),
        ).on(self.policy.device)
        reports: list[Any] = []
        for epoch in range(ppo.epochs):
            minibatches = self._minibatches(batch, states if language else None, version, epoch)
            epoch_reports = [self._step(batch, steps, index, rate, terms) for index in minibatches]
            reports += epoch_reports
            if ppo.target_kl is not None:
                kl = float(read_mean(epoch_reports)[REPORT.index("approx_kl")])
                if self.group.mean([kl])[0] > ppo.target_kl:
                    break
        means = dict(zip(REPORT, read_mean(reports).tolist(), strict=True))
        if not self.reference:
            del means["reference_kl"]
        means["ratio_spread"] = math.sqrt(means.pop("ratio_square"))
        if means["skipped"] == 1:
            raise FloatingPointError("no gradient of this update was finite; rewards or observations may not be")
        return {f"losses/{name}": number for name, number in means.items()} | {
            "losses/learning_rate": rate,
            "policy/rho": float(rho.mean()),
            **said,
            **({} if batch.written is None else of_answers(batch.written)),
        }

    def _current(self, batch: Batch) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """The current policy's log-probabilities [T, N], values [T+1, N] and final values [D]."""
        if batch.fresh:
            return batch.log_prob, batch.value, batch.final_value
        logits, value, final_value = self.outputs.whole(batch)
        if self.outputs.generated:
            log_prob = self.outputs.tokens(batch).sum(-1)
        else:
            log_prob = losses.log_prob(logits, batch.action.ravel())
        return log_prob.reshape(batch.action.shape), value, final_value

    def _tokens(self, batch: Batch) -> NDArray[np.float32] | None:
        """Log-probabilities [T * N, L] of the actions' tokens at the start of the update; None: ratios need none."""
        if batch.written is not None and batch.fresh:
            return batch.written.log_prob.reshape(batch.action.size, -1)
        return self.outputs.tokens(batch) if self.outputs.spelt else None

    def _terms(self, env_steps: int) -> Terms:
        """The coefficients of an update after `env_steps`."""
        ppo = self.ppo
        if env_steps < ppo.critic_warmup:
            return Terms(losses.Loss(ppo.clip, None, ppo.value_coefficient, 0.0), max(HOLD, ppo.reference_kl), 0)
        weights = ppo.value_coefficient if ppo.advantage == "gae" else 0.0, ppo.entropy_coefficient
        return Terms(losses.Loss(ppo.clip, ppo.value_clip, *weights), ppo.reference_kl, 1)

    def _minibatches(
        self, batch: Batch, states: NDArray[np.int64] | None, version: int, epoch: int
    ) -> Iterator[NDArray[np.int64]]:
        """The flat indices t * N + n of each minibatch; with memory, whole env columns, so that time is in order.

        Equal states [T * N], if given, go into the same minibatch: a language model computes them once there.
        """
        length, envs = batch.terminated.shape
        size = max(1, self.config.minibatch // self.group.size)
        random = np.random.default_rng([self.seed, version, epoch, self.group.rank])
        units = envs if batch.state is not None else length * envs
        order = random.permutation(units)
        if states is not None:
            order = order[np.argsort(random.permutation(units)[states[order]], kind="stable")]
        parts = max(1, round(length * envs / size))
        for part in np.array_split(order, min(parts, units)):
            yield part if batch.state is None else (np.arange(length)[:, None] * envs + part).ravel()

    def _step(
        self, batch: Batch, steps: Steps[Any], index: NDArray[np.int64], rate: float, terms: Terms
    ) -> NDArray[np.float64] | Tensor:
        """One gradient step of size `rate` on the env steps `index` [B]. Returns the numbers that `REPORT` names."""
        self.gradient.zero_()
        on_host = self.adam.on_host
        report: Any = 0.0
        apart: Any = 0.0 if on_host else self.gradient.new_zeros(())
        for at, logits, value, tokens, spread in self.outputs.pieces(batch, index):
            some, share = steps.at(at), len(at) / len(index)  # gradients of micro-batches add up
            outputs = [logits, value] if tokens is None else [logits, value, tokens]
            seen: list[Any] = [numbers(x) if on_host else x.detach().float() for x in outputs]
            paid = some if tokens is None else some.unpaid()
            d_logits, d_value, found = terms.loss.gradient(seen[0], seen[1], paid)
            gradients = [d_logits, d_value]
            if some.tokens is not None:
                before = some.tokens[:, : seen[2].shape[1]]
                whole = self.ppo.ratio == "action"
                d_tokens, said = losses.token_gradient(seen[2], before, some, self.ppo.clip, whole)
                found = losses.of_tokens(said, found)
                gradients.append(d_tokens)
            if spread is not None:  # written: entropy and distance to the reference are those of tokens
                outputs.append(spread)
                gradients.append(np.float32(-terms.loss.entropy_coefficient / len(at)) * (seen[1] * 0 + 1))
                found[2] = float(spread.detach().mean()) if on_host else spread.detach().mean()
                if some.reference is not None:
                    near = some.reference[:, : seen[2].shape[1]]
                    pulled, divergence = losses.token_pull(seen[2], near, terms.pull)
                    gradients[2], apart = gradients[2] + pulled, apart + share * divergence
            elif some.reference is not None:
                pulled, divergence = losses.pull(seen[0], some.reference, terms.pull)
                gradients[0], apart = d_logits + pulled, apart + share * divergence
            if share < 1:
                gradients = [each * np.float32(share) for each in gradients]
            slopes = [torch.as_tensor(g).to(o.dtype) for g, o in zip(gradients, outputs, strict=True)]
            torch.autograd.backward(outputs, slopes)
            report = report + found * share
        norm, usable = optimiser_step(self.adam, [self.gradient], self.group, self.config.gradient_clip, rate)
        if not on_host:
            return torch.cat([report, torch.stack([apart, norm, (~usable).float()])])
        return np.array([*report, apart, norm, not usable])
