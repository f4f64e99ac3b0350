"""Where a run begins: here, or in a queue that begins it elsewhere.

    launch.py run, resume ──> cluster=local, inline ──────────────────────────────────────────> cluster.run
                          └─> cluster=slurm, kubernetes ──> render, submit ──> a job: launch.py ──^

A module that queues publishes `render(config)`, the text that `--dry-run` prints, and `submit(config)`, which returns
an exit code. In a job, which sets `CAIRN_JOB`, everything begins here.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from cluster import config as configuration
from cluster import limits, unread
from cluster.config import Config
from llm_service.errors import UsageError

QUEUES = {"slurm": "cluster.slurm", "kubernetes": "cluster.kubernetes"}
"""`cluster.name` -> the module that queues."""


def run(config: Config) -> int:
    """Run a new experiment, or have it queued. Returns the exit code."""
    queue = _queue(config)
    if queue:
        return int(queue.submit(config))
    from cluster.run import run as run_here

    return run_here(config)


def resume(path: Path, words: list[str], allow_change: bool) -> int:
    """Continue a run, or have it queued again. Returns the exit code."""
    if "CAIRN_JOB" not in os.environ:
        from cluster import slurm

        config = configuration.update(configuration.load(path / "config.yaml"), words)
        unread.tell_words(config, words)
        name = config.cluster.name
        if name == "slurm":
            return slurm.resume(path, words, allow_change)
        if name == "kubernetes":
            raise UsageError(f"on Kubernetes {path.name} goes on by the 'launch.py run' that it began with")
        slurm.forget(path)
    from cluster.run import resume as resume_here

    return resume_here(path, words, allow_change)


def dry_run(config: Config) -> str:
    """What would be started, or handed over."""
    queue = _queue(config)
    if queue:
        return str(queue.render(config))
    from cluster.topology import draw

    limits.assert_fits(config)
    return draw(config)


def _queue(config: Config) -> Any:
    name = QUEUES.get(config.cluster.name)
    return importlib.import_module(name) if name and "CAIRN_JOB" not in os.environ else None
