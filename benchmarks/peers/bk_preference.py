"""A model of preferences with drawn weights, as a stage `prefer` leaves one, and the same model in plain PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch
from numpy.typing import NDArray

from benchmarks.peers.bk_loops import batches
from benchmarks.peers.bk_play import WINDOW, Play
from learner.files import sha256
from learner.knowledge.fitted_preference import ABOUT, SPREADS, WEIGHTS, About
from learner.knowledge.prefer_config import PreferConfig
from learner.models.sequence.segment_scores import SegmentScores
from learner.models.sequence.segment_transformer import Column, Encoded, SegmentShape, SegmentTransformer
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
    """Where the model is now, and the model."""
    model = drawn(play, width)
    weights = {name: value.numpy() for name, value in model.payload().items()}
    scores = SegmentScores(model.shape, weights).of(play.chunks[0])
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.numpy.save_file(weights, folder / WEIGHTS)
    told: dict[str, Any] = {"shape": model.shape, "mean": float(scores.mean()), "spread": float(scores.std())}
    about = About(**told, weights=sha256(folder / WEIGHTS), labels={}, prefer=PreferConfig(width=width), seed=0)
    (folder / ABOUT).write_text(about.model_dump_json())
    return folder, model


def in_pytorch(model: SegmentTransformer, about: About, windows: Windows) -> NDArray[np.float32]:
    """Phi by the model itself, 256 windows at once, each encoded for itself."""
    scores = []
    with torch.no_grad():
        for part in batches(windows, 256):
            scores.append(model(Encoded(model.shape, part), torch.arange(len(part))).numpy())
    scaled = (np.concatenate(scores) - np.float32(about.mean)) / np.float32(SPREADS * about.spread)
    phi: NDArray[np.float32] = np.clip(scaled, np.float32(-1), np.float32(1))
    return phi
