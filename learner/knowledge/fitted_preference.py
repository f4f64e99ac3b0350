"""A preference model on disk: the artifact of a stage of kind `prefer`, which a potential loads.

    preference.json    shape, fixed scale, provenance        preference.safetensors    weights

phi is the score minus its mean over the training segments, divided by three standard deviations, and clipped to [-1,
1]: the scale of an environment's reward. The scale is fixed once, because a moving scale would create reward.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from envs.config import Part
from learner.files import sha256
from learner.knowledge.prefer_config import PreferConfig
from learner.models.sequence.segment_scores import SegmentScores
from learner.models.sequence.segment_transformer import SegmentShape
from learner.models.weights import Weights
from learner.store.episodes import StoreError
from learner.windows import Windows

ABOUT, WEIGHTS = "preference.json", "preference.safetensors"
SPREADS = 3.0
"""Standard deviations of the score that make phi 1."""


class About(Part):
    """A model's metadata, as JSON."""

    shape: SegmentShape
    """Its architecture and input."""
    mean: float
    """Mean of its scores over the segments."""
    spread: float
    """Their standard deviation."""
    weights: str
    """SHA-256 of the file of weights."""
    labels: dict[str, str]
    """SHA-256 of the files of labels, by name."""
    prefer: PreferConfig
    """How it was fitted."""
    seed: int
    """The run's."""


@dataclass(frozen=True)
class FittedPreference:
    """A model that judges windows."""

    about: About
    scores: SegmentScores

    def phi(self, windows: Windows) -> NDArray[np.float32]:
        """Float32 [M] in [-1, 1], bit for bit independent of the rest of the batch."""
        scores, about = self.scores.of(windows), self.about
        scaled = (scores - np.float32(about.mean)) / np.float32(SPREADS * about.spread)
        phi: NDArray[np.float32] = np.clip(scaled, np.float32(-1), np.float32(1))
        return phi

    @staticmethod
    def load(folder: Path) -> FittedPreference:
        """Load a stage's artifact.

        Raises:
            StoreError: it is missing or damaged, or the weights do not match the metadata.
        """
        about, path = read_about(folder), folder / WEIGHTS
        try:
            weights: Weights = safetensors.numpy.load_file(path)
            return FittedPreference(about, SegmentScores(about.shape, weights))
        except (OSError, ValueError) as error:
            raise StoreError(f"{path} cannot be read: {error}; run its stage again") from None


def read_about(folder: Path) -> About:
    """The metadata of a folder's model.

    Raises:
        StoreError: it is missing or damaged, or does not match the weights beside it.
    """
    path, weights = folder / ABOUT, folder / WEIGHTS
    try:
        about = About.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise StoreError(f"{folder} holds no {ABOUT}: name the folder of a stage prefer that is done") from None
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise StoreError(f"{path} is damaged: {reason}; run its stage again") from None
    try:
        if sha256(weights) != about.weights:
            raise ValueError(f"it is not the one that {ABOUT} tells of")
    except (OSError, ValueError) as error:
        raise StoreError(f"{weights} cannot be read: {error}; run its stage again") from None
    return about
