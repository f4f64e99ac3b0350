"""Weights & Biases. Its own variables say where: `WANDB_API_KEY`, `WANDB_PROJECT`, `WANDB_ENTITY`, `WANDB_MODE`, ...

Without a key, and with `WANDB_MODE=offline`, the run is written to `trackers/wandb/` for `wandb sync`. Steps may go
down after a return to a checkpoint, which W&B's own step may not: so `env_steps` is a metric, and the x axis.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence

from cluster.metrics.sinks import Followed, Sink
from cluster.metrics.tracker import FOLDER, About, Tracker, Update, without

EXIT_CODES = {"done": 0, "stopped": 3, "crashed": 1}


def missing() -> str:
    return without("wandb", "wandb")


def make(run: Followed) -> Sink:
    return Tracker("wandb", run)


class Client:
    """What runs in the tracker's process."""

    def __init__(self, about: About) -> None:
        folder = about.folder / FOLDER
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        os.environ.setdefault("WANDB_CACHE_DIR", str(folder / "wandb"))  # a pod can write to its run's folder alone
        import wandb

        try:
            wandb.login()  # reads a key from the environment or ~/.netrc; nobody is asked: stdin is no terminal
            mode = os.environ.get("WANDB_MODE", "online")
        except wandb.errors.UsageError:
            mode = os.environ.get("WANDB_MODE", "offline")
        settings = wandb.Settings(  # numbers and the configuration, nothing about this machine and its user
            console="off",
            silent=True,
            disable_git=True,
            disable_code=True,
            x_disable_meta=True,
            x_disable_machine_info=True,
            x_disable_stats=True,
            x_save_requirements=False,
        )
        about.remember(about.run or secrets.token_hex(4))
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "cairn"),
            mode=mode,
            id=about.run,
            resume="allow",
            name=about.name,
            config=about.config,
            allow_val_change=True,
            tags=[f"{key}={value}"[:64] for key, value in about.tags.items()],
            dir=folder,
            settings=settings,
        )
        self._run.define_metric("env_steps")
        self._run.define_metric("*", step_metric="env_steps")
        self.told = self._run.url or f"upload it with: wandb sync {folder / 'wandb'}/*run-*"

    def log(self, updates: Sequence[Update]) -> None:
        for update in updates:
            self._run.log({**update["numbers"], "env_steps": update["env_steps"]})

    def end(self, state: str) -> None:
        if state == "stopped":
            self._run.mark_preempting()  # W&B's name for a run that ended early, and goes on later
        self._run.finish(exit_code=EXIT_CODES[state])
