"""What a configuration names of other runs: `run:NAME/stage`, or a path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cluster.config.overrides import ROOT, ConfigError
from learner.captions.config import CaptioningConfig
from learner.files import is_finished
from learner.options import ARTIFACT
from learner.potentials import ShapingConfig


def path_of(runs: str, key: str, name: str) -> Path:
    """Where the artifact is that `key` names; `runs` is the folder of all runs.

    Raises:
        ConfigError: the name has another form, or nothing is there.
    """
    run, slash, stage = name.removeprefix("run:").partition("/")
    path = Path(name)
    if name.startswith("run:"):
        if not (run and slash and stage):
            raise ConfigError(f"{key}: expected run:NAME/stage or a path, got {name!r}")
        path = Path(runs) / run / "stages" / stage
    if not path.exists():
        raise ConfigError(f"{key}: {name} is not there: {path} does not exist")
    return path


def named() -> list[str]:
    """Keys of options that name another run's artifact."""
    parts = [("shaping", part) for part in ShapingConfig.modules()] + [("captioning", CaptioningConfig)]
    return [
        f"method.{section}.{name}"
        for section, part in parts
        for name, field in part.model_fields.items()
        if ARTIFACT in field.metadata
    ]


def place(values: dict[str, Any]) -> None:
    """Resolve the artifacts that options name, `run:NAME/stage` or a file or folder of the project, to paths."""
    for key in named():
        name = values.get(key)
        if not isinstance(name, str) or not name or "\n" in name:  # a program's own text has lines
            continue
        if name.startswith("run:"):
            path = path_of(values["run.folder"], key, name)
            if not is_finished(path):
                raise ConfigError(f"{key}: {name} is not finished: resume that run first")
            values[key] = str(path.resolve())
        elif os.path.exists(here := os.path.expanduser(name)):
            values[key] = os.path.abspath(here)  # a later resume may start in another folder
        elif os.path.exists(ROOT / name):
            values[key] = str(ROOT / name)
