"""A captioner in use: the artifact of a stage of kind `captioner`, which `method.captioning.captioner` names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import safetensors.numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.captions.about import WEIGHTS, CaptionerShape, read
from learner.captions.network import CaptionNetwork
from learner.models.weights import Weights, set_weights


class Captioner:
    """Predicts facts and events. It is not trained further."""

    def __init__(self, shape: CaptionerShape, weights: Weights) -> None:
        self.shape, self._network = shape, CaptionNetwork(shape)
        set_weights(self._network, weights, "captioner")

    @torch.no_grad()
    def states(self, pictures: NDArray[np.uint8]) -> tuple[NDArray[np.int64], Tensor]:
        """Facts [n, F] and codes [n, C] of pictures [n, side, side, 3]."""
        said = self._network(torch.from_numpy(pictures))
        return self._network.facts(said), said.codes

    @torch.no_grad()
    def events(self, before: Tensor, after: Tensor) -> NDArray[np.int64]:
        """[n] events between states with these codes [n, C], places in `shape.events`; its length for none."""
        found: NDArray[np.int64] = self._network.event_logits(before, after).argmax(1).numpy()
        return found

    @staticmethod
    def load(folder: Path) -> Captioner:
        """Load a stage's artifact.

        Raises:
            StoreError: as `about.read`.
        """
        return Captioner(read(folder).shape, safetensors.numpy.load_file(folder / WEIGHTS))
