"""Start a run here, or submit it to a queue that starts it elsewhere.

    launch.py run, resume ──> cluster=local, inline ──────────────────────────────────────────> cluster.run
                          └─> cluster=slurm, kubernetes ──> render, submit ──> a job: launch.py ──^

In a job, which sets `CAIRN_JOB`, everything begins here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cluster import jobs
from cluster.config import limits, unread
from cluster.config import tree as configuration
from cluster.config.tree import Config


def run(config: Config) -> int:
    """Run a new experiment, or queue it. Returns the exit code."""
    if queue := _queue(config):
        return int(queue.submit(config))
    from cluster.run import run as run_here

    return run_here(config)


def resume(path: Path, words: list[str], allow_change: bool) -> int:
    """Resume a run, or queue it again. Returns the exit code."""
    if "CAIRN_JOB" not in os.environ:
        config = configuration.update(configuration.load(path / "config.yaml"), words)
        unread.tell_words(config, words)
        if queue := _queue(config):
            return int(queue.resume(path, words, allow_change))
        if before := jobs.launcher_of(path):
            before.forget(path)
    from cluster.run import resume as resume_here

    return resume_here(path, words, allow_change)


def dry_run(config: Config) -> str:
    """What would be started, or submitted, and where it would compute; in a script, as comments."""
    from cluster.roles.placement import describe
    from cluster.topology import draw

    placed = describe(config)
    if queue := _queue(config):
        return "\n".join([str(queue.render(config)).rstrip("\n"), *(f"# {line}" for line in placed.splitlines())])
    limits.assert_fits(config)
    return f"{draw(config)}\n\n{placed}"


def _queue(config: Config) -> Any:
    return None if "CAIRN_JOB" in os.environ else jobs.launcher(config.cluster.name)
