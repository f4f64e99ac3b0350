"""A model of preferences with random weights, as a stage `prefer` saves it; the same model in PyTorch; and our engine
with each window encoded separately.

The published procedure (Zhang et al. 2024, arXiv 2407.03964) recomputes windows in PyTorch, 256 at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.peers.bk_loops import batches
from benchmarks.peers.bk_play import WINDOW, Play
from learner.files import sha256
from learner.knowledge.fitted_preference import ABOUT, SPREADS, WEIGHTS, About
from learner.knowledge.prefer_config import PreferConfig
from learner.models.sequence.segment_scores import SegmentScores
from learner.models.sequence.segment_transformer import Column, SegmentShape, SegmentTransformer, led_there
from learner.windows import Windows

WIDTH = 64


def drawn(play: Play, width: int = WIDTH) -> SegmentTransformer:
    """A model that reads the view and the direction."""
    fields = play.env.env_spec.fields
    columns = {
        "image": Column(kind="grid", shape=fields["image"].shape, sizes=(11, 6, 4)),
        "direction": Column(kind="category", sizes=(4,)),
    }
    torch.manual_seed(0)
    actions = len(play.env.env_spec.action_names)
    return SegmentTransformer(SegmentShape(window=WINDOW, actions=actions, columns=columns, width=width))


def model_folder(play: Play, folder: Path, width: int = WIDTH) -> tuple[Path, SegmentTransformer]:
    """Save a random model. Returns its folder and the model."""
    model = drawn(play, width)
    weights = {name: value.numpy() for name, value in model.payload().items()}
    scores = SegmentScores(model.shape, weights).of(play.chunks[0])
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.numpy.save_file(weights, folder / WEIGHTS)
    told: dict[str, Any] = {"shape": model.shape, "mean": float(scores.mean()), "spread": float(scores.std())}
    about = About(**told, weights=sha256(folder / WEIGHTS), labels={}, prefer=PreferConfig(width=width), seed=0)
    (folder / ABOUT).write_text(about.model_dump_json())
    return folder, model


class Recomputing(SegmentTransformer):
    """The same model in PyTorch at its best: each symbol's part in each cell is computed once, without gradients."""

    def __init__(self, model: SegmentTransformer, about: About) -> None:
        super().__init__(model.shape)
        self.load_state_dict(model.state_dict())
        self._about, self._tables = about, dict[str, Tensor]()

    def table(self, name: str, symbols: Tensor) -> Tensor:
        if name not in self._tables:
            self._tables[name] = super().table(name, symbols)
        return self._tables[name]

    def phi(self, windows: Windows, size: int) -> NDArray[np.float32]:
        """phi of windows, `size` at once. Each observation of each window is encoded."""
        with torch.inference_mode():
            parts = [self(Whole(self.shape, part), torch.arange(len(part))).numpy() for part in batches(windows, size)]
        return phi_of(np.concatenate(parts), self._about)


class Whole:
    """Windows in the form of `Encoded` for `SegmentTransformer`, with rows of whole tables: no search for symbols."""

    def __init__(self, shape: SegmentShape, windows: Windows) -> None:
        self.places = {
            name: (
                torch.from_numpy(column.codes(windows.rows[name]) + column.symbols * np.arange(column.places)),
                torch.arange(column.symbols),
            )
            for name, column in shape.whole.items()
        }
        self.numbers = torch.from_numpy(shape.numbers(windows.rows))
        self.actions = torch.from_numpy(led_there(windows.actions))


def unshared(scores: SegmentScores, about: About, windows: Windows) -> NDArray[np.float32]:
    """phi by our engine, 256 windows at once. Each observation of each window is encoded."""
    return phi_of(np.concatenate([scores.of_all(part) for part in batches(windows, 256)]), about)


def phi_of(scores: NDArray[np.float32], about: About) -> NDArray[np.float32]:
    """Scores on the model's fixed scale, clipped to [-1, 1]."""
    scaled = (scores - np.float32(about.mean)) / np.float32(SPREADS * about.spread)
    phi: NDArray[np.float32] = np.clip(scaled, np.float32(-1), np.float32(1))
    return phi
