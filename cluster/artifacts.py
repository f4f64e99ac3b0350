"""What a finished stage leaves beside its files: a manifest of what they are and what they were made of."""

from __future__ import annotations

import hashlib
from typing import Any

import safetensors.numpy

from cluster.config import Config
from cluster.folder import RunFolder, provenance
from learner.group import Weights
from learner.methods import Stage

MANIFEST = "manifest.json"


def finish(
    run: RunFolder,
    config: Config,
    stage: Stage,
    counts: dict[str, Any],
    weights: Weights | None,
    inputs: dict[str, str],
) -> None:
    """Write a stage's manifest: with it, the stage is done.

    weights: what the stage began from, None if from nothing.
    inputs: hashes of what else it was made of, by name.

    Raises:
        Superseded: a newer attempt has begun; the stage is its own to finish.
    """
    folder = run.stage(stage.name)
    files = sorted(p for p in folder.iterdir() if p.is_file() and p.name != MANIFEST)
    inputs = inputs | {"config.yaml": _sha256((run.path / "config.yaml").read_bytes())}
    if weights is not None:
        inputs["weights"] = _sha256(safetensors.numpy.save(weights))
    run.write_json(
        folder / MANIFEST,
        provenance()
        | {"stage": stage.name, "kind": stage.kind, "counts": counts, "from": config.from_}
        | {"inputs": inputs, "files": {p.name: _sha256(p.read_bytes()) for p in files}},
    )


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
