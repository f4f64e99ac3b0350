"""Keys from a language model that never saw an environment: steps become words of MiniLM, and it reads the last ones.

    steps ──merged──> x [S, size] ──P──> [S, 384] ──cosines with all words──softmax──> mix of words e [S, 384]
    the last `pool` e of a step ──MiniLM, each attends to all──> hidden states ──mean──> vectors [K, 384]

The mapping is FrozenHopfield (Paischer et al. 2022, arXiv 2205.12258): e = E^T softmax(beta cos(E, P x)) with the word
embeddings E, one step of retrieval in a modern Hopfield network whose patterns are the words. As keys for retrieval:
Schmied et al. 2024, arXiv 2410.07071, there of four tokens a step, here of one. Nothing is fitted.

If steps are categories, few distinct ones exist: the mix of each is computed once and cached. Equal windows are read
once. The limit is MiniLM, 22 million operations per step of a window, and 47 million more for new steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize, pad

from learner.context.config import RetrieveConfig, SequenceConfig
from learner.context.encoders.merged import Merged, projection
from learner.models.sequence.history_steps import HistoryShape, StepInputs
from learner.optim.device import device
from llm_service.embedding import MINILM_WIDTH, minilm_folder
from llm_service.minilm import MiniLM

BLOCK = 16
"""Steps that are mapped together, always as many, so that the bits of a mix do not depend on the batch."""
MOST = 2**16
"""Maximum number of cached mixes, 100 MB; beyond it, the cache is cleared."""
WINDOWS = 64
"""Windows that are read together."""


class Hopfield:
    """An `Encoder`.

    Args:
        shape: the fields of a step, and whether it includes the return to go.
        sequence: bins of the return to go, and the device.
        retrieve: `pool`, `beta`, and the seed of the projection.
        largest: return to go.

    Raises:
        EmbedderMissing: the package of MiniLM is not installed.
    """

    width = MINILM_WIDTH

    def __init__(self, shape: HistoryShape, sequence: SequenceConfig, retrieve: RetrieveConfig, largest: float) -> None:
        self.pool, self._beta = retrieve.pool, retrieve.beta
        self.merged = Merged(shape, sequence.bins, largest, sequence.reward_scale)
        self._device = device(sequence.device, "method.sequence.device")
        self._model = MiniLM(Path(minilm_folder()), self._device.type)
        self._directions = normalize(self._model.words)
        self._projection = projection(self.merged.size, self.width, retrieve.projection).to(self._device)
        self._place: dict[bytes, int] = {}  # row of each known step among the mixes
        self._mixes = torch.zeros(0, self.width, device=self._device)

    def of(self, steps: StepInputs, lengths: Sequence[int], at: Tensor) -> Tensor:
        """Vectors [K, 384] of steps `at` of whole episodes."""
        ages = torch.cat([torch.arange(0), *(torch.arange(1, n + 1) for n in lengths)])
        return self.read(self.merged(steps), at, ages[at].clamp(max=self.pool))

    def stream(self, rows: int) -> HopfieldStream:
        """A stream of rows that have not begun."""
        return HopfieldStream(self, rows)

    def read(self, x: Tensor, last: Tensor, sizes: Tensor) -> Tensor:
        """Vectors [K, 384] of windows.

        Args:
            x: merged steps, [S, size].
            last: int64 [K], the last step of each window.
            sizes: int64 [K], its number of steps; an empty window has a zero vector.
        """
        vectors = torch.zeros(len(last), self.width, device=self._device)
        for size in sorted(set(sizes.tolist()) - {0}):
            own = (sizes == size).nonzero()[:, 0]
            steps = x[last[own, None] + torch.arange(1 - size, 1)]  # [k, size, ...]
            distinct, places = torch.unique(steps.flatten(0, 1), dim=0, return_inverse=True)
            windows, which = torch.unique(places.view(len(own), size), dim=0, return_inverse=True)
            mixes = self._known(distinct)
            parts = (mixes[part.to(self._device)] for part in torch.split(windows, WINDOWS))
            means = torch.cat([self._model.read(part).mean(1) for part in parts])
            vectors[own.to(self._device)] = means[which.to(self._device)]
        return vectors

    def mix(self, x: Tensor) -> Tensor:
        """The words that merged steps [n, size] become, [n, 384]."""
        whole = pad(x, (0, 0, 0, -len(x) % BLOCK)).to(self._device)
        return torch.cat([self._mix(block) for block in torch.split(whole, BLOCK)])[: len(x)]

    def _mix(self, block: Tensor) -> Tensor:
        cosines = normalize(block @ self._projection.T) @ self._directions.T
        return (self._beta * cosines).softmax(1) @ self._model.words

    def _known(self, distinct: Tensor) -> Tensor:
        """`mix` of distinct merged steps [n, size]; new ones are computed and cached."""
        if len(self._place) > MOST:
            self._place, self._mixes = {}, self._mixes[:0]
        names = [step.tobytes() for step in _array(distinct)]
        new = [i for i, name in enumerate(names) if name not in self._place]
        if new:
            self._place |= {names[i]: len(self._mixes) + n for n, i in enumerate(new)}
            self._mixes = torch.cat([self._mixes, self.mix(distinct[new])])
        return self._mixes[[self._place[name] for name in names]]


class HopfieldStream:
    """A `Stream`: it keeps the last steps, and reads them on demand."""

    def __init__(self, encoder: Hopfield, rows: int) -> None:
        self._encoder = encoder
        self._kept = torch.zeros(rows, encoder.pool, encoder.merged.size)  # the newest is the last
        self._ages = torch.zeros(rows, dtype=torch.int64)

    def restart(self, rows: Tensor) -> None:
        """Rows begin a new episode."""
        self._ages[rows] = 0

    def add(self, steps: StepInputs) -> None:
        """The next step of each row."""
        self._kept = torch.cat([self._kept[:, 1:], self._encoder.merged(steps)[:, None]], 1)
        self._ages += 1

    def vectors(self, rows: Tensor) -> Tensor:
        """Vectors of the last steps of some rows, [R, 384]."""
        pool = self._encoder.pool
        last = torch.arange(1, len(rows) + 1) * pool - 1
        return self._encoder.read(self._kept[rows].flatten(0, 1), last, self._ages[rows].clamp(max=pool))


def _array(x: Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = x.cpu().numpy()
    return found
