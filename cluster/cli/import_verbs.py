"""`launch.py import radt`: recorded learning histories become a run that has completed the stage `histories`.

    FILE.npz ... ──> read ──> whose task? ──> played again ──> runs/<name>/stages/histories/episodes/, results, manifest

All files are read and played again before anything is written.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llm_service.errors import UsageError

if TYPE_CHECKING:  # they import PyTorch, which the overview does not need
    from cluster.config.tree import Config
    from learner.store.pieces import Pieces, Steps

imports = typer.Typer(help="Import data from elsewhere.", no_args_is_help=True)

RECORDED = "recorded"
"""The name given to the unknown learner of imported histories."""


@imports.callback()
def group() -> None:
    """Import data from elsewhere."""


@imports.command()
def radt(
    words: Annotated[list[str], typer.Argument(metavar="FILE.npz... [GROUP=NAME|KEY=VALUE]", show_default=False)],
    tasks: Annotated[
        str, typer.Option(help="The files' tasks in order, such as 3,0,7; otherwise they are found.")
    ] = "",
) -> None:
    """Import recorded learning histories, one file per task."""
    files = [Path(word) for word in words if "=" not in word or Path(word).exists()]
    chosen = [word for word in words if Path(word) not in files]
    print(bring(files, chosen, tasks))


def bring(files: Sequence[Path], words: Sequence[str], tasks: str = "") -> Path:
    """Make a run from recorded histories. Returns the folder of its stage.

    files: .npz, of one task each.
    words: configuration: the world and its options, run.name.
    tasks: numbers of the files' tasks, with commas between them; "" finds them.

    Raises:
        UsageError: what is wrong with the words or a file; nothing was written.
    """
    import numpy as np

    import envs
    from actors.recordings import pieces_of, task_of
    from cluster.config import tree
    from learner.histories import kept_fields, training_tasks
    from learner.store.recordings import read

    stated = ["method=radt", "stages=[histories]", "method.histories.learner=ppo"]  # it reads every world of tasks
    config = tree.named(tree.compose([*stated, *words]))
    spec, options = config.spec, config.env.options
    if not files:
        raise UsageError("name the .npz files of the histories, one per task")
    recordings = [read(path, spec, kept_fields(spec)) for path in files]
    every = np.arange(training_tasks(spec))

    def make(count: int) -> envs.VectorEnv:
        return envs.make(config.env.id, count, **options)

    named = _named(tasks, files, len(every)) if tasks else [task_of(each, make, every) for each in recordings]
    for i, task in enumerate(named):
        if task in named[:i]:
            raise UsageError(f"{files[named.index(task)]} and {files[i]} are both of task {task}: remove one")
    steps = [recording.steps for recording in recordings]
    pieces = pieces_of(recordings, make, np.array(named))
    return _write(config, files, list(zip(named, pieces, steps, strict=True)))


def _named(tasks: str, files: Sequence[Path], count: int) -> list[int]:
    """Task numbers, one for each file, each below `count`."""
    named = [int(number) if number.strip().isdecimal() else -1 for number in tasks.split(",")]
    if len(named) != len(files) or not all(0 <= task < count for task in named):
        raise UsageError(f"--tasks={tasks}: name {len(files)} tasks, as many as files, each of 0 to {count - 1}")
    return named


def _write(config: Config, files: Sequence[Path], histories: Sequence[tuple[int, Pieces, Steps]]) -> Path:
    """A run whose stage `histories` is done, with one shard per task; complete or absent. It is made in a place where
    nobody looks for runs, because a resume of a half-imported run would add histories of its own."""
    from cluster.config import tree
    from cluster.report.document import write
    from cluster.runs.controller import Controller
    from cluster.runs.folder import RunFolder, manifest
    from cluster.runs.stage import Outcome
    from cluster.stages.histories import line, told
    from learner.files import sha256
    from learner.histories import kept_fields
    from learner.methods import selected
    from learner.store.episodes import EPISODES, EpisodeStore, EpisodeWriter, Layout, digest

    (stage,), spec = selected(config), config.spec
    path = Path(config.run.folder) / config.run.name
    RunFolder.assert_free(path)
    hidden = path.with_name(f".{path.name}.importing")
    shutil.rmtree(hidden, ignore_errors=True)  # of an import that was killed
    folder = RunFolder.create(hidden / path.name)
    try:
        place = folder.stage(stage.name)
        about = {"env": config.env.id, "learner": RECORDED, "options": config.env.options}
        writer = EpisodeWriter(place / EPISODES, Layout.of(spec, kept_fields(spec)), about, pieces=True)
        for task, pieces, steps in sorted(histories, key=lambda history: history[0]):
            writer.write(f"{task:05d}-00000", pieces, steps, {})
        found = told(EpisodeStore(place / EPISODES))
        tree.save(config, folder.path / "config.yaml")
        folder.write(folder.path / "manifest.json", manifest(["python", "launch.py", *sys.argv[1:]]))
        folder.write_json(place / "results.json", {"env": config.env.id, "learner": RECORDED} | found)
        inputs = {"episodes": digest(place / EPISODES)} | {str(path): sha256(path) for path in files}
        counts = {name: found[name] for name in ("tasks", "episodes", "steps")}
        Controller(config, folder, None, None).finish(stage, Outcome(counts, inputs=inputs))
        folder.write_status(state="done", phase="", reason="", report=str(path / write([folder.path]).name))
        RunFolder.assert_free(path)
        folder.path.rename(path)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
    print(line(stage.name, found))
    return RunFolder(path).stage(stage.name)
