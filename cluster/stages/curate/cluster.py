"""Cluster centres of each wheel's speed, from training data (`learner/behaviours/clusters.py`)."""

from __future__ import annotations

import numpy as np
import safetensors.numpy

from cluster.runs.stage import Outcome
from cluster.stages._shared.lgqd import BLOCK, CENTRES, BehaviourStage
from learner.behaviours.clusters import centres
from learner.behaviours.demonstrations import Sequences
from learner.store.episodes import EpisodeStore


def run(work: BehaviourStage) -> Outcome | None:
    settings, (place, episodes, table, rows) = work.method.sequence, work.shown("train")
    nothing = [[np.zeros(1, np.int32)]] * len(rows)  # texts do not matter here
    sequences = Sequences(EpisodeStore(place), episodes, nothing, table.descriptor[rows], settings.stride)
    blocks = (np.arange(begin, min(begin + BLOCK, len(rows))) for begin in range(0, len(rows), BLOCK))
    actions = np.concatenate([sequences.read(block).wished for block in blocks])
    found = {f"{d}": centres(actions[:, d], count) for d, count in enumerate(settings.clusters)}
    work.folder.write(work.place / CENTRES, safetensors.numpy.save(found))
    return Outcome({"actions": len(actions)} | {f"centres_{d}": value.tolist() for d, value in found.items()})
