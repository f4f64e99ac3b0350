"""`launch.py export RUN FOLDER`: a run's language model as a Hugging Face folder, with a card that says what it is.
`launch.py export RUN FILE`: a run's behaviours as a table (`behaviour_table.py`).

run ── weights of its training, or newest checkpoint ──> policy ──> FOLDER: complete or absent
    └─ results, manifest, configuration ──> README.md, the model card
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.terminal import run_folder

CARD = "README.md"


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Name of a run, or the path of its folder.")],
    place: Annotated[
        Path,
        typer.Argument(metavar="FOLDER|FILE", help="A new folder; of behaviours a new .parquet, .arrow or .csv."),
    ],
) -> None:
    """Export a run's language model as a Hugging Face folder, or its behaviours as a table."""
    from cluster.cli import behaviour_table

    tabular = place.suffix in behaviour_table.KINDS
    print(behaviour_table.write(run_folder(run), place) if tabular else write(run_folder(run), place))


def write(run: Path, folder: Path) -> Path:
    """Export a run's policy into a new folder, and return it.

    Raises:
        RunError: the run's policy is not a language model, or it has no weights, or the folder exists.
    """
    from cluster.config import tree
    from cluster.report.card import card
    from cluster.runs.folder import RunError, RunFolder
    from cluster.runs.supply import make_model
    from cluster.runs.weights import assert_fits, read_checkpoint, trained
    from learner.files import sync_folder, write_file
    from learner.group import build_policy, set_weights
    from learner.models.config import LANGUAGE_MODEL
    from learner.models.language import exported
    from learner.models.language.llm_policy import LanguagePolicy

    config, own = tree.load(run / "config.yaml"), RunFolder(run)
    if config.policy.network != LANGUAGE_MODEL:
        name = config.policy.network
        raise RunError(f"the policy of {own.name!r} is a network, {name}: only language models can be exported")
    if folder.exists():
        raise RunError(f"{folder} exists: name a new folder, or remove it")
    weights = trained(own)
    if weights is None and (checkpoint := read_checkpoint(own)):
        weights = checkpoint.arrays["model"]
    if weights is None:
        raise RunError(f"{own.name!r} has no weights yet: export it once its training has saved a checkpoint")
    make_model(config)
    assert_fits(config, weights, f"run {own.name!r}")
    here = config.policy.lm.model_copy(update={"device": "cpu", "precision": "float32"})
    policy = build_policy(config.policy.model_copy(update={"lm": here}), config.spec, config.seed)
    assert isinstance(policy, LanguagePolicy)
    set_weights(policy, weights)
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    hidden = folder.with_name(f".{folder.name}.exporting")
    shutil.rmtree(hidden, ignore_errors=True)  # of an export that was killed
    try:
        hidden.mkdir()
        exported.write(policy, config.policy, hidden)
        write_file(hidden / CARD, card(run, config, policy, folder).encode())
        sync_folder(hidden)
        hidden.rename(folder)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
    sync_folder(folder.parent)
    return folder
