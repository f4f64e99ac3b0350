"""Data on each behaviour of a store besides its steps: one row each, in the order of the store's episodes.

Groups are split as a whole: tests never ask for near-duplicates of training behaviours.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from learner.files import Attempt, replace_file
from learner.hashing import uniform
from learner.store.episodes import StoreError

FILE = "behaviours.safetensors"
PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Behaviours:
    """E behaviours."""

    id: NDArray[np.int64]  # [E] the seed of its episode: place of its archive * 2^40 + copy * 2^36 + id there
    archive: NDArray[np.int32]  # [E] index of its archive
    group: NDArray[np.int64]  # [E] hash of the route of the group's first
    descriptor: NDArray[np.float32]  # [E, 2] the last position, world units
    start: NDArray[np.float32]  # [E, 3] x, y, heading
    effort: NDArray[np.float32]  # [E] mean square of a wheel's speed
    weights: NDArray[np.float32]  # [E, P] of the small policy that produced it

    def __len__(self) -> int:
        return len(self.id)

    def save(self, folder: Path, attempt: Attempt | None = None) -> None:
        """Save into a folder, on behalf of an attempt: complete or absent."""
        arrays = {field.name: np.ascontiguousarray(getattr(self, field.name)) for field in fields(self)}
        replace_file(folder / FILE, safetensors.numpy.save(arrays), attempt)

    @staticmethod
    def load(folder: Path) -> Behaviours:
        """Read what `save` wrote.

        Raises:
            StoreError: the file is missing or damaged.
        """
        try:
            found: dict[str, Any] = safetensors.numpy.load_file(folder / FILE)
            return Behaviours(**found)
        except Exception as error:  # the library raises its own kinds for every way a file can be damaged
            raise StoreError(f"{folder / FILE} cannot be read: {error}; run the stage merge again") from None


def split(group: NDArray[np.int64], shares: tuple[float, float, float]) -> NDArray[np.int8]:
    """The part, an index into PARTS, of each behaviour [E]: a function of its group alone, so that adding behaviours
    does not move existing ones.

    shares: of PARTS; they add up to 1.
    """
    edges = np.cumsum(shares)[:-1]
    part: NDArray[np.int8] = np.searchsorted(edges, uniform(group), side="right").astype(np.int8)
    return part
