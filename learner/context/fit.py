"""Fitting an arm's transformer to learning histories: one rank of it.

    histories ──> batch of episodes ──> pieces of some thousand steps ──> -log p(recorded action), gradients add up;
                                  for vector actions, the squared error, a mean over their numbers ──^
    Lookup: which chunk each stretch attends to ──> Memory of the chunks of a piece, each once ──^

All arms have the same sampler: each episode once per epoch, in an order that depends on the seed. A sequence is an
episode; with two episodes per sequence, an earlier one of the task comes before it, and the actions of both are learned
(Laskin et al. 2022, arXiv 2210.14215). If only the best episodes are learned, as if their learner knew the task (Lee et
al. 2023, arXiv 2306.14892), an epoch consists of these. The loss is a mean over the steps of the batch, whichever rank
computes them.

The limit is the decoder's arithmetic: per block, 14 products of width by width for a step, and two more for each token
of a chunk.
"""

from __future__ import annotations

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
from learner.context import encoders
from learner.context.chunks import Integers
from learner.context.config import Arm, RetrieveConfig, SequenceConfig
from learner.context.lookup import Lookup, keys_by, look_up
from learner.context.reader import Reader
from learner.hashing import uniform
from learner.models.sequence.history_steps import HistoryShape
from learner.models.sequence.history_transformer import HistoryTransformer
from learner.models.sequence.memory import Memory
from learner.models.weights import Weights
from learner.optim.collective import Group
from learner.optim.device import send
from learner.optim.precision import arithmetic, halves
from learner.optim.sequences import VALIDATED, Floats, SequenceSupervised
from learner.store.episodes import EpisodeStore, StoreError


@dataclass(frozen=True)
class HistorySetup:
    """Everything that a rank needs to build itself again."""

    sequence: SequenceConfig
    retrieve: RetrieveConfig
    arm: Arm
    spec: EnvSpec
    learner: LearnerConfig
    seed: int
    store: Path
    encoder: Weights | None = None  # of the encoder, none if frozen; for arms that look at the nearest chunk
    exact: bool = False  # equal inputs give equal bits, on a GPU too


def held_out(task: NDArray[np.int64], number: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """Which episodes are for validation, bool [E]: a function of each episode's task and number."""
    return uniform(task * 2**32 + number) < share


class HistoryFitter(SequenceSupervised):
    """One rank. Its accuracy is the share of actions that were the most probable; nan where actions are vectors.

    Raises:
        StoreError: there is no training data.
        ValueError: the transformer cannot be built.
    """

    RATE: ClassVar[str] = "method.sequence.learning_rate"
    WHAT: ClassVar[str] = "transformer of histories"
    DRAWN: ClassVar[int] = 2
    model: HistoryTransformer

    def __init__(self, setup: HistorySetup, rank: int = 0, address: str | None = None) -> None:
        torch.set_num_threads(setup.learner.threads)
        config, arm, store = setup.sequence, setup.arm, EpisodeStore(setup.store)
        if not len(store):
            raise StoreError(f"{setup.store} holds no episodes: run the stage histories again")
        self.setup, self.seed, self.reader = setup, setup.seed, Reader(store)
        kept = held_out(store.task, store.episode, config.validation)
        used = self.reader.best if arm.best else np.ones(len(store), np.bool_)
        if kept[used].all():
            raise StoreError(
                f"{setup.store} holds {len(store)} episodes, all for validation: lower method.sequence.validation"
            )
        self.lookup: Lookup | None = None
        longest = int(store.length.max())
        band = 1 if arm.alone else arm.episodes * longest if arm.episodes > 1 else config.band
        self.retrieve = setup.retrieve.whole(longest) if arm.whole else setup.retrieve
        chunk = 0 if arm.looks == "nowhere" else self.retrieve.chunk
        reach = self.reader.reach.tolist()
        if arm.conditioned and max(reach) <= 0:
            raise StoreError(f"{setup.store} holds no episode that was paid for: there are no returns to tell apart")
        shape = HistoryShape.of(setup.spec, band, arm.conditioned, reach, chunk, not arm.alone)
        torch.manual_seed(setup.seed)
        group, model = Group(rank, setup.learner.n, address), HistoryTransformer(shape, config)
        self.half = halves(config.autocast, model.device)
        super().__init__(config, group, model, kept, VALIDATED, [setup.seed, 0], among=used, exact=setup.exact)

    def ready(self) -> dict[str, int]:
        """Counts of the training data, once the rank is built."""
        length = self.reader.store.length
        training, validation = (int(length[rows].sum()) for rows in (self.training, self.validation))
        found = {"episodes": len(length), "steps": training, "validation_steps": validation}
        return found | {"bytes": self.parameters.nbytes}

    def look_up(self) -> dict[str, float]:
        """Find the chunk that each stretch of each episode looks at. Returns statistics; empty if the arm looks
        nowhere."""
        setup = self.setup
        if setup.arm.looks == "nowhere":
            return {}
        keys = None
        if setup.arm.looks == "nearest":
            assert setup.encoder is not None, "what is nearest is found by an encoder's keys"
            largest = float(self.model.largest)
            encoder = encoders.make(setup.sequence, setup.retrieve, setup.spec, setup.encoder, largest)
            keys = keys_by(encoder, self.reader)
        tokens = setup.sequence.tokens
        self.lookup = look_up(self.reader, self.retrieve, setup.arm.looks, keys, setup.seed, tokens)
        return self.lookup.report(self.reader)

    def losses(self, rows: Integers, uniform: Floats | None) -> dict[str, Tensor]:
        """Losses of the sequences that end with these episodes [B], or of a window of each. The random numbers of a
        sequence decide whether it looks at nothing, and where its window ends; in validation it ends with the episode.
        If steps are alone, each distinct step is learned once: otherwise a player that waits at a goal would teach the
        model to wait anywhere."""
        blind = np.zeros(len(rows), np.bool_) if uniform is None else uniform[:, 0] < self.retrieve.nothing
        steps, action, lengths = self.reader.episodes(self._sequences(rows))
        counts, ends = self.steps_of(rows, uniform), self._ends(rows, uniform) if self.model.windowed else None
        memory, index = self._memory(rows, blind, ends)
        if ends is not None:
            stop = np.cumsum(lengths) - lengths + ends
            within = np.arange(counts.sum()) + np.repeat(stop - np.cumsum(counts), counts)
            index = None if index is None else index[np.repeat(stop - 1, counts)]
            steps, action = steps.take(torch.from_numpy(within)), action[within]
        if self.setup.arm.alone:
            within = np.flatnonzero(self.reader.new(rows)[0])
            index = None if index is None else index[within]
            steps, action = steps.take(torch.from_numpy(within)), action[within]
        action = send({"action": action}, self.model.device)["action"]
        with arithmetic(self.half, self.model.device.type):
            logits = self.model.logits(self.model(steps, counts.tolist(), memory, index))
        logits = logits.float()
        if self.model.shape.bounds:
            return {"loss": (logits - action).square().mean(-1).sum(), "hits": logits.new_full((), torch.nan)}
        return {"loss": cross_entropy(logits, action, reduction="sum"), "hits": (logits.argmax(-1) == action).sum()}

    def steps_of(self, rows: Integers, uniform: Floats | None) -> Integers:
        if self.model.windowed:
            return np.minimum(self._ends(rows, uniform), self.model.shape.band)
        if self.setup.arm.alone:
            return self.reader.new(rows)[1]
        length = self.reader.store.length.astype(np.int64)
        if self.setup.arm.episodes == 1:
            return length[rows]
        before = self.reader.earlier(rows, self.setup.sequence.skip)
        return length[rows] + np.where(before >= 0, length[before], 0)

    def _ends(self, rows: Integers, uniform: Floats | None) -> Integers:
        """Steps of each episode up to the end of its window, [B]; windows are short as often as in acting."""
        length = self.reader.store.length[rows].astype(np.int64)
        return length if uniform is None else 1 + (uniform[:, 1] * length).astype(np.int64)

    def apart(self, rows: Integers) -> list[NDArray[np.intp]]:
        """Sequences of one episode and of two, separately, since sequences of equal length are computed faster."""
        longer = self.steps_of(rows, None) > self.reader.store.length[rows]
        return [np.flatnonzero(~longer), np.flatnonzero(longer)]

    def _sequences(self, episodes: Integers) -> Integers:
        """The episodes of the sequences that end with these [B], in order."""
        if self.setup.arm.episodes == 1:
            return episodes
        both = np.stack([self.reader.earlier(episodes, self.setup.sequence.skip), episodes], 1).ravel()
        return both[both >= 0]

    def _memory(
        self, episodes: Integers, blind: NDArray[np.bool_], ends: Integers | None = None
    ) -> tuple[Memory | None, Tensor | None]:
        """The distinct chunks that these episodes look at, and the chunk of each step; with windows, only the chunks of
        their last steps."""
        if self.setup.arm.looks == "nowhere":
            return None, None
        table, every = self.lookup, self.retrieve.every
        assert table is not None, "chunks are looked up before anything is learned"
        length = self.reader.store.length[episodes].astype(np.int64)
        counts = table.first[episodes + 1] - table.first[episodes]
        of = np.repeat(np.arange(len(episodes)), counts)  # the batch's episode of each point
        number = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
        point = table.first[episodes][of] + number
        seen = (table.episode[point] >= 0) & ~blind[of]
        if ends is not None:
            seen &= number == (ends[of] - 1) // every
        chunk = np.stack([table.episode[point], table.start[point], table.stop[point]], 1)
        chunks, which = np.unique(chunk[seen], axis=0, return_inverse=True)
        if not len(chunks):
            return None, None
        index = np.full(len(point), -1)
        index[seen] = which.ravel()
        stretch = np.minimum(length[of] - number * every, every)  # steps that use what this point found
        memory = self.model.remember(*self.reader.chunks(chunks[:, 0], chunks[:, 1], chunks[:, 2]))
        return memory, torch.from_numpy(np.repeat(index, stretch))
