"""What makes keys of chunks, and queries: an encoder, and the same of rows while they act.

    whole episodes  steps [S], lengths ──Encoder.of──> vectors [K, width] of chosen steps
    as it is lived  steps [B] ──Stream.add──> ... ──Stream.vectors──> [R, width] of some rows' last steps

fitted     the hidden states of a transformer that was fitted to the histories
hopfield   the hidden states of MiniLM, a frozen language model that reads steps as if they were words
random     a random projection of the steps: what remains without any model
merged     a step as one vector, for the two that are fitted to nothing

A vector is the mean over the last `pool` steps of its episode, and knows nothing of what comes later. So keys of whole
episodes and queries of a stream are the same numbers, to the last bits of products.
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
    """B rows that act, at first without a step."""

    def restart(self, rows: Tensor) -> None:
        """Rows, bool [B] or int64, begin a new episode with their next step."""

    def add(self, steps: StepInputs) -> None:
        """The next step of each row, [B]."""

    def vectors(self, rows: Tensor) -> Tensor:
        """Of the last steps of some rows, int64 [R], float32 [R, width]; zeros where a row has none."""


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
            at: int64 [K], which steps' vectors are wanted, numbered through all episodes.

        Returns:
            float32 [K, width].
        """

    def stream(self, rows: int) -> Stream:
        """Of B rows that have not begun."""


def make(
    sequence: SequenceConfig, retrieve: RetrieveConfig, spec: EnvSpec, weights: Weights, largest: float
) -> Encoder:
    """The encoder that `method.retrieve.encoder` names.

    Args:
        sequence: how large a transformer is, and where is computed.
        retrieve: which encoder, and how.
        spec: of the world.
        weights: of `fitted`; the others have none.
        largest: return to go, of the others, where they are told it.

    Raises:
        ValueError: weights are of another configuration or world.
        EmbedderMissing: `hopfield` without the package of MiniLM.
    """
    if retrieve.encoder == "fitted":
        return Fitted(HistoryTransformer.of(sequence.encoding, spec, weights), retrieve.pool)
    shape = HistoryShape.of(spec, band=1, conditioned=retrieve.told)
    return (Hopfield if retrieve.encoder == "hopfield" else Random)(shape, sequence, retrieve, largest)
