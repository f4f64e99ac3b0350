"""Segments: pieces of episodes, as input of a potential, and as captions for a language model.

A segment ends with an observation of some episode: the last K observations and the actions between them, exactly a
potential's window in that state (`learner.windows`). One file of arrays, one of texts:

    segments.safetensors    fields of numbers, actions, and provenance
    captions.jsonl          a list of lines for each
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from envs.api import Observation
from learner.files import Attempt, replace_file
from learner.store.episodes import StoreError
from learner.windows import Windows

ARRAYS, CAPTIONS = "segments.safetensors", "captions.jsonl"
OBSERVED = "obs."


@dataclass(frozen=True)
class Segments:
    """S segments of K observations."""

    obs: Observation  # each [S, K, ...]: fields of numbers, oldest first
    actions: NDArray[np.int64]  # [S, K - 1], -1 before the first of the episode
    episode: NDArray[np.int64]  # [S] number of the episode in the store
    step: NDArray[np.int64]  # [S] step of the episode whose observation is the last
    source: NDArray[np.int64]  # [S] training step at which the episode ended, 0 where the store does not say
    to_come: NDArray[np.float32]  # [S] discounted return from that observation on
    captions: list[list[str]]  # the text for a language model, in order of time

    def __len__(self) -> int:
        return len(self.actions)

    def windows(self, index: NDArray[np.int64] | slice = slice(None)) -> Windows:
        """As windows of a potential."""
        return Windows.of({name: column[index] for name, column in self.obs.items()}, self.actions[index])

    def take(self, index: NDArray[np.int64]) -> Segments:
        """Some of the segments."""
        return Segments(
            {name: column[index] for name, column in self.obs.items()},
            self.actions[index],
            self.episode[index],
            self.step[index],
            self.source[index],
            self.to_come[index],
            [self.captions[i] for i in index.tolist()],
        )

    def save(self, folder: Path, attempt: Attempt | None = None) -> None:
        """Save into a folder, on behalf of an attempt: each file complete or absent."""
        arrays: dict[str, NDArray[np.generic]] = {OBSERVED + name: column for name, column in self.obs.items()}
        arrays |= {name: getattr(self, name) for name in ("actions", "episode", "step", "source", "to_come")}
        arrays = {name: np.ascontiguousarray(column) for name, column in arrays.items()}
        replace_file(folder / CAPTIONS, "".join(f"{json.dumps(c)}\n" for c in self.captions).encode(), attempt)
        replace_file(folder / ARRAYS, safetensors.numpy.save(arrays), attempt)

    @staticmethod
    def load(folder: Path) -> Segments:
        """Load what `save` wrote.

        Raises:
            StoreError: it is missing or damaged.
        """
        try:
            found: Mapping[str, NDArray[np.generic]] = safetensors.numpy.load_file(folder / ARRAYS)
            captions = [json.loads(line) for line in (folder / CAPTIONS).read_text(encoding="utf-8").splitlines()]
            obs = {name.removeprefix(OBSERVED): v for name, v in found.items() if name.startswith(OBSERVED)}
            rest = {name: v for name, v in found.items() if not name.startswith(OBSERVED)}
            segments = Segments(obs, **rest, captions=captions)  # type: ignore[arg-type]
            if len(captions) != len(segments):
                raise ValueError(f"{len(captions)} captions of {len(segments)} segments")
        except Exception as error:  # the library raises its own kinds for every way a file can be damaged
            raise StoreError(f"{folder} holds no segments that can be read: {error}; run its stage again") from None
        return segments
