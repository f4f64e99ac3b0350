"""Data on each behaviour of a store besides its steps: one row each, in the order of the store's episodes.

Groups are split as a whole, and what drives near to a test is not learned from: tests never ask for near-duplicates of
training behaviours.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from learner.behaviours.twins import margin
from learner.files import Attempt, replace_file
from learner.hashing import uniform
from learner.store.episodes import StoreError

FILE = "behaviours.safetensors"
PARTS = ("train", "validation", "test", "margin")
"""Parts of a split. Behaviours of the margin are too near to a test to be learned from, and no trial asks for them."""


@dataclass(frozen=True)
class Behaviours:
    """E behaviours."""

    id: NDArray[np.int64]  # [E] the seed of its episode: place of its archive * 2^40 + copy * 2^36 + id there
    archive: NDArray[np.int32]  # [E] index of its archive
    group: NDArray[np.int64]  # [E] the smallest id of an original in its group
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


def split(
    place: NDArray[np.float32], group: NDArray[np.int64], asked: NDArray[np.intp], validation: float, within: float
) -> NDArray[np.int8]:
    """The part, an index into PARTS, of each of E behaviours.

    place: float32 [E, T, 2], where they drive, world units.
    group: int64 [E]; a group is in one part as a whole. Whether what remains is for training or validation follows
        from the group alone.
    asked: rows that trials ask for; their groups are the tests.
    validation: share of the other groups, in [0, 1).
    within: mean distance from a test up to which a behaviour, with its group, is of the margin, world units.
    """
    test = np.isin(group, group[asked])
    part = np.where(uniform(group) < validation, PARTS.index("validation"), PARTS.index("train"))
    part[margin(place, group, test, within)] = PARTS.index("margin")
    part[test] = PARTS.index("test")
    return part.astype(np.int8)
