"""What comes before a job: what can be known is checked, and its run's folder is made."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from cluster.config import tree as configuration
from cluster.config.tree import Config
from cluster.jobs.slurm.commands import SlurmError
from cluster.runs.folder import RunFolder
from cluster.topology import asks_a_language_model
from llm_service.server.guard import loopback


def check(config: Config) -> None:
    """Raise `UsageError` for what can be known before a job begins."""
    if shutil.which("sbatch") is None:
        raise SlurmError(
            "there is no sbatch on PATH: run this where jobs are submitted, or print the script with --dry-run"
        )
    llm = config.llm
    alone = config.cluster.slurm.all_nodes == 1 or not asks_a_language_model(config)
    if not alone and not llm.address and loopback(llm.server.listen):
        raise SlurmError(
            f"actors on other nodes cannot reach a language model's service on {llm.server.listen}: start one "
            "beside the run and set llm.address, set llm.server.listen, or use one node"
        )
    from cluster.runs.supply import assert_supplied, initial_weights  # both import PyTorch
    from cluster.runs.weights import assert_model, guide_weights

    assert_model(config)
    guide_weights(config)
    assert_supplied(config, initial_weights(config))


def prepare(config: Config) -> Path:
    """Make the folder of a run that a job will begin; its path."""
    folder = RunFolder.create(folder_of(config))
    configuration.save(config, folder.path / "config.yaml")
    folder.write_manifest(["python", "launch.py", *sys.argv[1:]])
    folder.write_status(state="queued", phase="", reason="")
    return folder.path


def folder_of(config: Config) -> Path:
    """The folder of a run, absolute: the job begins elsewhere."""
    return (Path(config.run.folder) / config.run.name).resolve()
