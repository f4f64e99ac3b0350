"""A model of preferences on disk: what a stage of kind `prefer` leaves, and a potential begins with.

    preference.json    shape, fixed scale, whence it is        preference.safetensors    weights

phi is the score less its mean over the segments that the model was fitted to, in three standard deviations of it, cut
off at -1 and 1: scaled like a world's reward. It is fixed once, for a scale that moves would be paid for.
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
"""Standard deviations of the score that are 1 of phi."""


class About(Part):
    """What a model says of itself, as JSON."""

    shape: SegmentShape
    """What it is built of, and reads."""
    mean: float
    """Of its scores over the segments."""
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
        """Float32 [M] in [-1, 1], the same to the bit whatever else is asked."""
        scores, about = self.scores.of(windows), self.about
        scaled = (scores - np.float32(about.mean)) / np.float32(SPREADS * about.spread)
        phi: NDArray[np.float32] = np.clip(scaled, np.float32(-1), np.float32(1))
        return phi

    @staticmethod
    def load(folder: Path) -> FittedPreference:
        """What a stage has left.

        Raises:
            StoreError: it is not there, damaged, or of other weights than it says.
        """
        about, path = read_about(folder), folder / WEIGHTS
        try:
            weights: Weights = safetensors.numpy.load_file(path)
            return FittedPreference(about, SegmentScores(about.shape, weights))
        except (OSError, ValueError) as error:
            raise StoreError(f"{path} cannot be read: {error}; run its stage again") from None


def read_about(folder: Path) -> About:
    """What the model of a folder says of itself.

    Raises:
        StoreError: it is not there, damaged, or beside other weights than it says.
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
