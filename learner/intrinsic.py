"""The column `intrinsic`: the learner's own reward for novel steps, and how algorithms use it.

    chunk ──> mark: the share of each step's reward that counts ──> replay, or an update
    steps, whenever they are used ──> the term's reward, by scale and share ──> the column [T, N], [B, n]

The term is a module of `learner/rewards`; with `method.intrinsic.name=none` there is none, and nothing happens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from envs.api import Chunk, EnvSpec, Field
from learner import rewards
from learner.checkpoint import Arrays
from learner.curiosity.steps import COLUMN, Steps, of_chunks, of_walk
from learner.goals import FIELD
from learner.optim.collective import Group
from learner.rewards import NONE, IntrinsicConfig, RewardSetup, RewardTerm
from learner.store.replay import Floats, Replay, Walk


def views(config: IntrinsicConfig, fields: Mapping[str, Field]) -> list[tuple[dict[str, Field], float]]:
    """Groups of the policy's `fields` that are evaluated together, each with its weight: texts separate from the rest.

    Raises:
        ValueError: no field is left to evaluate, or a field does not exist.
    """
    for name in config.reads:
        if name not in fields:
            raise ValueError(f"method.intrinsic.reads names {name!r}, but the policy reads {', '.join(fields)}")
    chosen = {name: fields[name] for name in config.reads or fields if config.reads or name != FIELD}
    texts = {name: field for name, field in chosen.items() if field.kind == "text" and config.language != "none"}
    rest = {name: field for name, field in chosen.items() if field.kind != "text" and config.language != "only"}
    if not texts and not rest:
        raise ValueError(
            f"method.intrinsic.language={config.language} leaves nothing to judge of {', '.join(chosen) or 'no field'}"
        )
    return [(part, weight) for part, weight in ((rest, 1.0), (texts, config.language_weight if rest else 1.0)) if part]


def check_intrinsic(config: IntrinsicConfig, fields: Mapping[str, Field], found: int) -> None:
    """Check that this reward works with a policy that reads `fields`, if `found` steps are evaluated together on a
    rank.

    Raises:
        ValueError: it does not; one sentence.
    """
    if config.name != NONE:
        views(config, fields)
        rewards.term(config.name).check(config, found)


def build_intrinsic(
    config: IntrinsicConfig,
    spec: EnvSpec,
    by_words: bool,
    minibatch: int,
    group: Group,
    seed: int,
    device: str = "cpu",
) -> Intrinsic:
    """The intrinsic reward of a rank.

    Args:
        spec: the policy's view of the environment.
        by_words: read texts by the environment's vocabulary; False: by MiniLM.
        minibatch: walks of a gradient step, on this rank.
        seed: root of weights and shuffles.
        device: of a term's networks.
    """
    if config.name == NONE:
        return Intrinsic(config)
    words, actions = spec.words if by_words else None, len(spec.action_names)
    setup = RewardSetup(config, views(config, spec.fields), actions, words, minibatch, group, seed, device)
    return Intrinsic(config, rewards.term(config.name)(setup), setup.fields)


class Intrinsic:
    """The interface for algorithms. Without a term it marks and rewards nothing.

    Args:
        fields: the fields that the term evaluates.
    """

    def __init__(self, config: IntrinsicConfig, term: RewardTerm | None = None, fields: Sequence[str] = ()) -> None:
        self.config, self.term, self.fields = config, term, list(fields)
        self._told: list[tuple[float, float]] = []  # mean reward and loss of the calls since the last report

    def mark(self, chunk: Chunk) -> Chunk:
        """Every incoming chunk passes here once; its column `intrinsic` gives the share of each step's reward that
        counts."""
        share = self.term.mark(chunk) if self.term else None
        return chunk if share is None else dataclasses.replace(chunk, rewards=chunk.rewards | {COLUMN: share})

    def pay_chunks(self, chunks: Sequence[Chunk]) -> list[Chunk]:
        """Marked chunks with the rewards themselves in the column `intrinsic`."""
        if not self.term:
            return list(chunks)
        paid = self(of_chunks(chunks, self.fields)).reshape(len(chunks[0].terminated), -1)
        parts = np.split(paid, np.cumsum([len(chunk.env_index) for chunk in chunks])[:-1], 1)
        return [
            dataclasses.replace(chunk, rewards=chunk.rewards | {COLUMN: part})
            for chunk, part in zip(chunks, parts, strict=True)
        ]

    def pay_walk(self, walk: Walk, replay: Replay) -> dict[str, Floats]:
        """The column `intrinsic` [B, n] of a sample from a replay of marked chunks; no column without a term."""
        return {COLUMN: self(of_walk(walk, replay))} if self.term else {}

    def __call__(self, steps: Steps) -> NDArray[np.float32]:
        """Rewards float32 [B, n], 0 where no step was taken; then the term learns from the steps."""
        assert self.term, "there is nothing to pay"
        paid = np.zeros(steps.live.shape, np.float32)
        paid[steps.live] = self.config.scale * self.term.pay(steps)
        if steps.share is not None:
            paid *= steps.share
        self._told.append((float(paid[steps.live].mean()), self.term.update(steps)))
        return paid

    def report(self) -> dict[str, float]:
        """Means since the last report; empty if there was no call."""
        if not self._told:
            return {}
        reward, loss = np.mean(self._told, 0).tolist()
        self._told = []
        return {"intrinsic/reward_mean": reward, "intrinsic/loss": loss}

    def state(self) -> dict[str, Arrays]:
        """The checkpoint's contents, by file; equal on all ranks."""
        return {COLUMN: self.term.state()} if self.term else {}

    def rank_state(self) -> Arrays:
        """The checkpoint's contents for this rank alone."""
        return self.term.rank_state() if self.term else {}

    def restore(self, state: Mapping[str, Arrays], own: Arrays) -> None:
        """Continue from both; a checkpoint without this reward changes nothing.

        Raises:
            ValueError: they belong to another term.
        """
        if self.term and COLUMN in state:
            self.term.restore(state[COLUMN], own)
