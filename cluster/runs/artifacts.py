"""What a finished stage leaves beside its files: a manifest of what they are and what they were made of."""

from __future__ import annotations

import hashlib

import safetensors.numpy

from cluster.runs.folder import provenance
from cluster.runs.stage import Outcome, Run
from learner.methods import Stage

MANIFEST = "manifest.json"


def finish(run: Run, stage: Stage, outcome: Outcome) -> None:
    """Write a stage's manifest: with it, the stage is done.

    Raises:
        Superseded: a newer attempt has begun; the stage is its own to finish.
    """
    folder = run.folder.stage(stage.name)
    files = sorted(p for p in folder.iterdir() if p.is_file() and p.name != MANIFEST)
    inputs = outcome.inputs | {"config.yaml": _sha256((run.folder.path / "config.yaml").read_bytes())}
    if outcome.weights is not None:
        inputs["weights"] = _sha256(safetensors.numpy.save(outcome.weights))
    run.folder.write_json(
        folder / MANIFEST,
        provenance()
        | {"stage": stage.name, "kind": stage.kind, "counts": outcome.counts, "from": run.config.from_}
        | {"inputs": inputs, "files": {p.name: _sha256(p.read_bytes()) for p in files}},
    )


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
