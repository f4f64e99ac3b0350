"""A small store of learning histories, of a world that does not exist."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from envs.api import EnvSpec, Field
from learner.store.episodes import EpisodeStore, EpisodeWriter, Layout, Steps
from learner.store.pieces import Pieces

FIELDS = {"cell": Field("category", (), 5), "sensors": Field("vector", (3,))}
SPEC = EnvSpec("nowhere/Room", FIELDS, ("left", "right", "stay"), tasks=9)


VECTORS = replace(SPEC, action_names=(), action_shape=(2,), action_bounds=((-1.0, 1.0), (-2.0, 4.0)))
"""The same, where actions are vectors."""


def written(folder: Path, lengths, seed=0, action=None, spec=SPEC) -> EpisodeStore:
    """A store of tasks whose episodes have these lengths, each a row; all else by chance.

    action: of all S steps, int64 [S], in order of task and number, or a function of what is observed; by chance if
        None.
    """
    random = np.random.default_rng(seed)
    task = np.repeat(np.arange(len(lengths)), [len(row) for row in lengths])
    number = np.concatenate([np.arange(len(row)) for row in lengths])
    length = np.concatenate([np.asarray(row) for row in lengths]).astype(np.int32)
    total = int(length.sum())
    reward = (random.random(total) < 0.3).astype(np.float32)
    paid = np.array([part.sum() for part in np.split(reward, np.cumsum(length))[:-1]], np.float32)
    zeros, ones = np.zeros(len(task), np.int64), np.ones(len(task), np.bool_)
    pieces = Pieces(
        seed=task,
        length=length,
        total=paid,
        success=paid > 0,
        kind=zeros.astype(np.int16),
        env=task.astype(np.int32),
        episode=number,
        first=zeros.astype(np.int32),
        ended=ones,
        source=zeros,
        task=task,
    )
    obs = {
        "cell": random.integers(5, size=total),
        "sensors": random.random((total, 3)).astype(np.float32),
    }
    done = random.integers(3, size=total) if action is None else action(obs) if callable(action) else action
    writer = EpisodeWriter(folder, Layout.of(spec, spec.fields), {}, pieces=True)
    writer.write("00000-00000", pieces, Steps(obs, done, reward), {})
    return EpisodeStore(folder)
