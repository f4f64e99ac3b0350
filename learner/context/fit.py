"""Fitting a transformer of an arm to learning histories: one rank of it.

    histories ──> batch of episodes ──> pieces of some thousand steps ──> -log p(recorded action), gradients add up;
                                  of actions that are vectors the squared error, a mean over their numbers ──^
    Lookup: which chunk each stretch looks at ──> Memory of the chunks of a piece, each once ──^

All arms have the same sampler: each episode once an epoch, in an order that follows from the seed. A sequence is an
episode; with two episodes a sequence, an earlier one of the task comes before it, and actions of both are learned
(Laskin et al. 2022, arXiv 2210.14215). The loss is a mean over the steps of the batch, whoever computes them.

The limit is the decoder's arithmetic, 14 products of width by width a block for a step, and two more for each token of
a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from envs.api import EnvSpec
from learner.config import LearnerConfig
from learner.context.chunks import Integers
from learner.context.config import Arm, RetrieveConfig, SequenceConfig
from learner.context.lookup import Lookup, keys_by, look_up
from learner.context.reader import Reader
from learner.hashing import uniform
from learner.models.sequence.history_transformer import HistoryShape, HistoryTransformer
from learner.models.sequence.memory import Memory
from learner.models.weights import Weights
from learner.optim.collective import Group
from learner.optim.precision import arithmetic, halves
from learner.optim.supervised import Supervised
from learner.store.episodes import EpisodeStore, StoreError

VALIDATED = 512
"""Held-out episodes that are looked at each time, always the same ones."""


@dataclass(frozen=True)
class HistorySetup:
    """All that a rank needs to build itself anew."""

    sequence: SequenceConfig
    retrieve: RetrieveConfig
    arm: Arm
    spec: EnvSpec
    learner: LearnerConfig
    seed: int
    store: Path
    encoder: Weights | None = None  # of a transformer of the same configuration, for arms that look at what is nearest


def held_out(task: NDArray[np.int64], number: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """Which episodes are for validation, bool [E]: a function of each one's task and number."""
    return uniform(task * 2**32 + number) < share


class HistoryFitter(Supervised):
    """One rank. Its accuracy is the share of actions that were the most probable; nan where actions are vectors.

    Raises:
        StoreError: there is nothing to learn from.
        ValueError: the transformer cannot be built.
    """

    RATE: ClassVar[str] = "method.sequence.learning_rate"
    WHAT: ClassVar[str] = "transformer of histories"
    model: HistoryTransformer

    def __init__(self, setup: HistorySetup, rank: int = 0, address: str | None = None) -> None:
        torch.set_num_threads(setup.learner.threads)
        config, arm, store = setup.sequence, setup.arm, EpisodeStore(setup.store)
        if not len(store):
            raise StoreError(f"{setup.store} holds no episodes: run the stage histories again")
        kept = held_out(store.task, store.episode, config.validation)
        if kept.all():
            raise StoreError(
                f"{setup.store} holds {len(store)} episodes, all for validation: lower method.sequence.validation"
            )
        self.setup, self.reader = setup, Reader(store)
        self.lookup: Lookup | None = None
        band = arm.episodes * int(store.length.max()) if arm.episodes > 1 else config.band
        chunk = 0 if arm.looks == "nowhere" else setup.retrieve.chunk
        largest = self.reader.largest
        if arm.conditioned and largest <= 0:
            raise StoreError(f"{setup.store} holds no episode that was paid for: there are no returns to tell apart")
        shape = HistoryShape.of(setup.spec, band, arm.conditioned, max(1.0, largest), chunk)
        torch.manual_seed(setup.seed)
        group, model = Group(rank, setup.learner.n, address), HistoryTransformer(shape, config)
        self.half = config.autocast != "none" and (model.device.type != "cpu" or halves(config.autocast))
        super().__init__(config, group, model, kept, VALIDATED, [setup.seed, 0])

    def ready(self) -> dict[str, int]:
        """What there is to learn from, once the rank is built."""
        length = self.reader.store.length
        training, validation = (int(length[rows].sum()) for rows in (self.training, self.validation))
        return {"episodes": len(length), "steps": training, "validation_steps": validation}

    def look_up(self) -> dict[str, float]:
        """Find what each stretch of each episode looks at. Returns how that went; empty if the arm looks nowhere."""
        setup = self.setup
        if setup.arm.looks == "nowhere":
            return {}
        keys = None
        if setup.arm.looks == "nearest":
            assert setup.encoder is not None, "what is nearest is found by an encoder's keys"
            encoder = HistoryTransformer.of(setup.sequence, setup.spec, setup.encoder).eval()
            keys = keys_by(encoder, self.reader, setup.retrieve.pool)
        tokens = setup.sequence.tokens
        self.lookup = look_up(self.reader, setup.retrieve, setup.arm.looks, keys, setup.seed, tokens)
        return self.lookup.report(self.reader)

    def learn(self, batch: NDArray[np.int64]) -> tuple[float, float]:
        config, seed = self.setup.sequence, self.setup.seed
        # So that the mean over ranks is the sum over the batch, divided by its steps.
        share = self.group.size / int(self._steps(batch).sum())
        blind = np.random.default_rng([seed, 1, self.step]).random(len(batch)) < self.setup.retrieve.nothing
        drops = np.random.SeedSequence([seed, self.step, self.group.rank])
        torch.manual_seed(int(drops.generate_state(1)[0]))
        self.model.train()
        loss = hits = 0.0
        own = slice(self.group.rank, None, self.group.size)
        for rows, unseeing in self._pieces(batch[own], blind[own], config.tokens):
            total, right = self.loss(rows, unseeing)
            (total * share).backward()  # type: ignore[no-untyped-call]
            loss += float(total.detach()) * share
            hits += float(right) * share
        return loss, hits

    def validate(self) -> dict[str, float]:
        if not len(self.validation):
            return {}
        self.model.eval()
        own = self.validation[self.group.rank :: self.group.size]
        loss = hits = 0.0
        with torch.no_grad():
            for rows, unseeing in self._pieces(own, np.zeros(len(own), np.bool_), self.setup.sequence.tokens):
                total, right = self.loss(rows, unseeing)
                loss += float(total)
                hits += float(right)
        loss, hits = self.group.mean([loss, hits])
        n = int(self._steps(self.validation).sum()) / self.group.size
        found = {"fit/validation_loss": loss / n}
        return found if self.model.shape.bounds else found | {"fit/validation_accuracy": hits / n}

    def loss(self, episodes: Integers, blind: NDArray[np.bool_]) -> tuple[Tensor, Tensor]:
        """Of the sequences that end with these episodes [B]: the sum of -log p over all their actions, and how many of
        these were the most probable ones. Where actions are vectors: the sum of the mean squared errors, and nan.

        blind: bool [B], those that look at nothing.
        """
        rows, lengths = self._sequences(episodes)
        steps, action, _ = self.reader.episodes(rows)
        action = action.to(self.model.device)
        with arithmetic(self.half, self.model.device.type):
            hidden = self.model(steps, lengths, *self._memory(episodes, blind))
            logits = self.model.logits(hidden)
        logits = logits.float()
        if self.model.shape.bounds:
            return (logits - action).square().mean(-1).sum(), torch.tensor(torch.nan)
        return cross_entropy(logits, action, reduction="sum"), (logits.argmax(-1) == action).sum()

    def _sequences(self, episodes: Integers) -> tuple[Integers, list[int]]:
        """The episodes that make up the sequences that end with these [B], in order, and lengths of the sequences."""
        if self.setup.arm.episodes == 1:
            return episodes, self._steps(episodes).tolist()
        both = np.stack([self.reader.earlier(episodes, self.setup.sequence.skip), episodes], 1).ravel()
        return both[both >= 0], self._steps(episodes).tolist()

    def _steps(self, episodes: Integers) -> Integers:
        """Steps of the sequences that end with these episodes, int64 [B]."""
        length = self.reader.store.length.astype(np.int64)
        if self.setup.arm.episodes == 1:
            return length[episodes]
        before = self.reader.earlier(episodes, self.setup.sequence.skip)
        return length[episodes] + np.where(before >= 0, length[before], 0)

    def _memory(self, episodes: Integers, blind: NDArray[np.bool_]) -> tuple[Memory | None, Tensor | None]:
        """The chunks that these episodes look at, each once, and which of them each step looks at."""
        if self.setup.arm.looks == "nowhere":
            return None, None
        table, every = self.lookup, self.setup.retrieve.every
        assert table is not None, "chunks are looked up before anything is learned"
        length = self.reader.store.length[episodes].astype(np.int64)
        counts = table.first[episodes + 1] - table.first[episodes]
        of = np.repeat(np.arange(len(episodes)), counts)  # of each point, which episode of the batch
        number = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
        point = table.first[episodes][of] + number
        seen = (table.episode[point] >= 0) & ~blind[of]
        chunk = np.stack([table.episode[point], table.start[point], table.stop[point]], 1)
        chunks, which = np.unique(chunk[seen], axis=0, return_inverse=True)
        if not len(chunks):
            return None, None
        index = np.full(len(point), -1)
        index[seen] = which.ravel()
        stretch = np.minimum(length[of] - number * every, every)  # steps that look at what this point found
        memory = self.model.remember(*self.reader.chunks(chunks[:, 0], chunks[:, 1], chunks[:, 2]))
        return memory, torch.from_numpy(np.repeat(index, stretch))

    def _pieces(
        self, episodes: Integers, blind: NDArray[np.bool_], tokens: int
    ) -> Iterator[tuple[Integers, NDArray[np.bool_]]]:
        """Sequences that are computed together: of about `tokens` steps, at least one. Those of one episode and those
        of two are apart, since sequences of equal length attend faster."""
        steps = self._steps(episodes)
        longer = steps > self.reader.store.length[episodes]
        for kind in (np.flatnonzero(~longer), np.flatnonzero(longer)):
            piece = np.maximum(0, np.cumsum(steps[kind]) - 1) // tokens
            for each in np.unique(piece):
                own = kind[piece == each]
                yield episodes[own], blind[own]
