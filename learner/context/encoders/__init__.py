"""Encoders of chunks' keys and of queries: for whole episodes, and for rows while they act.

    whole episodes  steps [S], lengths ──Encoder.of──> vectors [K, width] of chosen steps
    while acting    steps [B] ──Stream.add──> ... ──Stream.vectors──> [R, width] of some rows' last steps

fitted     the hidden states of a transformer that was fitted to the histories
hopfield   the hidden states of MiniLM, a frozen language model that reads steps as if they were words
random     a random projection of the steps: what remains without any model
merged     a step as one vector, for the two that are fitted to nothing

A vector is the mean over the last `pool` steps of its episode, and does not depend on later steps. So keys of whole
episodes and queries of a stream are the same numbers, up to the last bits of products.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from envs.api import EnvSpec
from learner.context.config import RetrieveConfig, SequenceConfig
from learner.context.encoders.fitted import Fitted
from learner.context.encoders.hopfield import Hopfield
from learner.context.encoders.random import Random
from learner.models.sequence.history_steps import HistoryShape, StepInputs
from learner.models.sequence.history_transformer import HistoryTransformer
from learner.models.weights import Weights


class Stream(Protocol):
    """B acting rows, at first without a step."""

    def restart(self, rows: Tensor) -> None:
        """Rows, bool [B] or int64, begin a new episode with their next step."""

    def add(self, steps: StepInputs) -> None:
        """The next step of each row, [B]."""

    def vectors(self, rows: Tensor) -> Tensor:
        """Vectors of the last steps of some rows, int64 [R]: float32 [R, width]; zeros where a row has none."""


class Encoder(Protocol):
    """See the top of this file. It computes without gradients."""

    @property
    def width(self) -> int:
        """Of a vector."""

    def of(self, steps: StepInputs, lengths: Sequence[int], at: Tensor) -> Tensor:
        """Vectors of whole episodes.

        Args:
            steps: [S], of each episode in turn.
            lengths: of the episodes; their sum is S.
            at: int64 [K], the steps whose vectors are returned, numbered through all episodes.

        Returns:
            float32 [K, width].
        """

    def stream(self, rows: int) -> Stream:
        """A stream of B rows that have not begun."""


def make(
    sequence: SequenceConfig, retrieve: RetrieveConfig, spec: EnvSpec, weights: Weights, largest: float
) -> Encoder:
    """The encoder that `method.retrieve.encoder` names.

    Args:
        sequence: the size of a transformer, and the device.
        retrieve: the encoder and its options.
        spec: of the world.
        weights: of `fitted`; the others have none.
        largest: return to go, for the others, if they read it.

    Raises:
        ValueError: the weights belong to another configuration or environment.
        EmbedderMissing: `hopfield` without MiniLM's package.
    """
    if retrieve.encoder == "fitted":
        return Fitted(HistoryTransformer.of(sequence.encoding, spec, weights), retrieve.pool)
    shape = HistoryShape.of(spec, band=1, conditioned=retrieve.told)
    return (Hopfield if retrieve.encoder == "hopfield" else Random)(shape, sequence, retrieve, largest)
