"""Fitting a policy to a store of episodes: behavioural cloning (Pomerleau 1991), one rank of it.

    store ──> batch of steps ──> micro-batches: -log p(recorded action), gradients add up

The loss is the cross-entropy of the recorded actions under the policy's own distribution, a mean over the batch; a
language model that writes learns to write an action's name, and to end there. The
weights of the last step are what is kept: where the step size falls to 0 they are about the best, and they need no
choice by validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, nll_loss

from envs.api import EnvSpec, Field
from learner.config import LearnerConfig
from learner.group import build_policy
from learner.hashing import uniform
from learner.models.config import PolicyConfig
from learner.models.language.llm_policy import AnyPolicy, LanguagePolicy
from learner.optim.collective import Group
from learner.optim.device import device, read, send
from learner.optim.supervised import Supervised
from learner.parts import FitConfig
from learner.store.episodes import EpisodeStore, Steps, StoreError

VALIDATED = 16
"""Batches of held-out steps that are looked at each time, always the same ones."""


@dataclass(frozen=True)
class FitSetup:
    """All that a rank needs to build itself anew."""

    fit: FitConfig
    learner: LearnerConfig
    policy: PolicyConfig
    spec: EnvSpec  # what the policy sees
    seed: int
    store: Path  # that `assert_suits`
    exact: bool = False  # equal inputs give equal bits, on a GPU too


def held_out(seeds: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """Which episodes are for validation, bool [E]: a function of each seed."""
    return uniform(seeds) < share


def assert_suits(store: EpisodeStore, fields: Mapping[str, Field], spec: EnvSpec, config: FitConfig) -> None:
    """StoreError unless a policy that reads `fields` and acts in the world of `spec` can learn from the store."""
    for name, field in fields.items():
        if store.layout.fields.get(name) != field:
            held = ", ".join(store.layout.fields)
            raise StoreError(f"{store.folder} does not hold {name!r} as the policy reads it, but {held}: collect anew")
    if store.layout.actions != spec.action_names:
        raise StoreError(
            f"{store.folder} is of the actions {', '.join(store.layout.actions)}, "
            f"but {spec.id} has {', '.join(spec.action_names)}"
        )
    if not store.steps:
        raise StoreError(f"{store.folder} holds no steps: collect more episodes, or also those that were not solved")
    if held_out(store.seed, config.validation).all():
        raise StoreError(f"{store.folder} holds {len(store)} episodes, all for validation: lower method.fit.validation")


def forward(policy: AnyPolicy, store: EpisodeStore, rows: Steps) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
    """What a policy says of steps [B], in micro-batches: which they are [b], and logits [b, A]; gradients flow."""
    # Rows are ordered by hash: each text is encoded once.
    named = [rows.obs[name] for name in policy.text_fields]
    hashes = np.unique(np.concatenate([np.zeros(0, np.int64), *(column.ravel() for column in named)]))
    obs = {name: rows.obs[name] for name in policy.fields}
    obs |= {name: np.searchsorted(hashes, column) for name, column in zip(policy.text_fields, named, strict=True)}
    texts = store.texts(hashes)
    if isinstance(policy, LanguagePolicy):
        for index, logits, _ in policy.pieces(obs, texts):
            yield index, logits
        return
    prepared = policy.prepare(texts)
    seen = policy.inputs({name: torch.from_numpy(column) for name, column in obs.items()})
    columns = {("obs", name): column for name, column in seen.items()}
    there = send(columns if prepared is None else columns | {("texts", ""): prepared}, policy.device)
    codes = policy.codes(there.get(("texts", "")))
    yield np.arange(len(rows.action)), policy.step({name: there["obs", name] for name in seen}, codes, None)[0]


class Fitter(Supervised):
    """One rank. Its accuracy is the share of actions that were the most probable."""

    RATE: ClassVar[str] = "method.fit.learning_rate"

    def __init__(self, setup: FitSetup, rank: int = 0, address: str | None = None) -> None:
        torch.set_num_threads(setup.learner.threads)
        fit, self.store = setup.fit, EpisodeStore(setup.store)
        kept = np.repeat(held_out(self.store.seed, fit.validation), self.store.length)
        self.policy = build_policy(setup.policy, setup.spec, setup.seed)
        if not isinstance(self.policy, LanguagePolicy):  # that one is where its own configuration says
            self.policy.to(device(setup.learner.device, ranks=setup.learner.n))
        group = Group(rank, setup.learner.n, address)
        super().__init__(fit, group, self.policy, kept, VALIDATED * fit.batch, [setup.seed], exact=setup.exact)

    def ready(self) -> dict[str, int]:
        """What there is to learn from, once the rank is built."""
        steps, validation = len(self.training), len(self.validation)
        found = {"episodes": len(self.store), "steps": steps, "validation_steps": validation}
        return found | {"bytes": self.parameters.nbytes}

    def learn(self, batch: NDArray[np.int64]) -> tuple[Any, Any]:
        rows = self.store.rows(batch[self.group.rank :: self.group.size])
        share = self.group.size / len(batch)  # so that the mean over ranks is the sum over the batch, divided by it
        loss = hits = self.nothing
        for part, right in self._judged(rows) if len(rows.action) else ():
            part = part * share
            part.backward()  # type: ignore[no-untyped-call]
            loss = loss + self.number(part)
            hits = hits + self.number(right) * share
        return loss, hits

    def _judged(self, rows: Steps) -> Iterator[tuple[Tensor, Tensor]]:
        """Of steps in micro-batches: the summed cross-entropy, and how many actions were the most probable."""
        for index, logits in forward(self.policy, self.store, rows):
            action = send({"action": rows.action[index]}, logits.device)["action"]
            # A policy that writes gives log-probabilities, of all that it could write: they are not normalised again.
            loss = nll_loss if isinstance(self.policy, LanguagePolicy) and self.policy.generated else cross_entropy
            yield loss(logits.float(), action, reduction="sum"), (logits.argmax(-1) == action).sum()

    def validate(self) -> dict[str, float]:
        if not len(self.validation):
            return {}
        size = max(1, self.config.batch // self.group.size)
        own = self.validation[self.group.rank :: self.group.size]
        loss = hits = self.nothing
        with torch.no_grad():
            for begin in range(0, len(own), size):
                rows = self.store.rows(own[begin : begin + size])
                for part, right in self._judged(rows):
                    loss, hits = loss + self.number(part), hits + self.number(right)
        if not self.adam.on_host:
            loss, hits = read(torch.stack([loss, hits])).tolist()
        loss, hits = self.group.mean([loss, hits])
        n = len(self.validation) / self.group.size
        return {"fit/validation_loss": loss / n, "fit/validation_accuracy": hits / n}
