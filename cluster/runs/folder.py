"""The run folder: what is in it, who may write it, and what its files mean.

runs/<name>/  config.yaml  manifest.json  status.json  metrics.jsonl  run.log  error.txt (after a crash)
              checkpoints/  replay/ (while it trains)  stages/<stage>/  videos/  report.html  STOP (a request)  lock
              tensorboard/  trackers/ (with `run.sinks`)
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import platform
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cluster.config.overrides import ROOT
from cluster.roles.backend import is_full_disk
from learner.files import Attempt, is_finished, newest_attempt, replace_file, sync_folder, write_file
from learner.store.shards import EPISODES
from llm_service.errors import UsageError

LISTED = 5  # how many runs the message about a wrong name lists
KEPT = ("checkpoints/v*", "stages/*/manifest.json", "stages/*/[!.]*.arrow", "stages/*/checkpoints-*/v*")
"""Files from which a resume continues: checkpoints, finished stages, collected episodes."""


class RunError(UsageError):
    """A run folder cannot be used as asked. The message is one sentence that says what to do."""


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.attempt: Attempt | None = None  # this controller's attempt; None: it only reads, or adds a further stage
        self._beside: int | None = None  # the newest attempt when this controller started to add a further stage

    @staticmethod
    def assert_free(path: Path) -> None:
        """RunError if the name of a new run is taken."""
        if path.exists():
            raise RunError(
                f"run {path.name!r} exists in {path.parent}: continue it with 'python launch.py resume {path.name}', "
                "or choose another run.name"
            )

    @staticmethod
    def create(path: Path, files: Mapping[str, bytes] = MappingProxyType({})) -> RunFolder:
        """Make a new run folder that holds these files. It is complete or absent: a start that is killed takes no name.

        Raises:
            RunError: the name is taken, or the folder is not writable.
            OSError: the disk is full.
        """
        RunFolder.assert_free(path)
        hidden = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            made = hidden / path.name  # so deep that no list of runs finds it
            for name in ("checkpoints", "stages", "videos"):
                (made / name).mkdir(parents=True)
            for name, content in files.items():
                write_file(made / name, content)
            sync_folder(made)
            made.rename(path)
            sync_folder(path.parent)
        except OSError as error:
            if is_full_disk(error):
                raise
            RunFolder.assert_free(path)  # another took the name in the same moment
            raise RunError(f"cannot write the run folder {path}: {error.strerror}; choose another run.folder") from None
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
        return RunFolder(path)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder while a controller writes it; a second controller is refused."""
        with open(self.path / "lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunError(f"run {self.name!r} is being written by another process; stop that one first") from None
            yield

    def begin(self) -> None:
        """Begin an attempt: from now on no older controller, wherever it runs, can write to the run."""
        self.attempt = Attempt.begin(self.checkpoints)

    def stand_beside(self) -> None:
        """Add to the run without starting an attempt."""
        self._beside = -1 if is_running(self.read_status()) else newest_attempt(self.checkpoints)

    @property
    def is_anothers(self) -> bool:
        """Whether a controller elsewhere is working on the run; that one then writes the run's status."""
        return self._beside is not None and newest_attempt(self.checkpoints) > self._beside

    def claim(self, kind: str) -> str:
        """Create the folder of a further stage, `<kind>-<n>`. Returns its name, which no other process gets."""
        n = 1
        while True:
            try:
                (self.path / "stages" / f"{kind}-{n}").mkdir(parents=True)
            except FileExistsError:
                n += 1
            else:
                return f"{kind}-{n}"

    @property
    def number(self) -> int:
        """The number of the attempt, 0 without one."""
        return self.attempt.number if self.attempt else 0

    def assert_newest(self) -> None:
        """Check that this controller may still write.

        Raises:
            Superseded: a newer attempt has begun.
        """
        if self.attempt:
            self.attempt.assert_newest()

    def write(self, path: Path, content: bytes | str) -> None:
        """Write a file of the run: complete or absent, and only by the newest attempt.

        Raises:
            Superseded: a newer attempt has begun.
        """
        replace_file(path, content.encode() if isinstance(content, str) else content, self.attempt)

    def write_json(self, path: Path, value: Any) -> None:
        """Write JSON with `write`."""
        self.write(path, as_json(value))

    def forget(self, path: Path) -> None:
        """Delete a file or a folder of the run, if it exists, as the newest attempt.

        Raises:
            Superseded: a newer attempt has begun.
        """
        self.assert_newest()
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def replay(self) -> Path:
        """The folder of the learner's data between two checkpoints, if its method has a replay."""
        return self.path / "replay"

    @property
    def kept(self) -> bool:
        """Whether there is anything to continue from; otherwise a resume starts over."""
        return any(any(self.path.glob(pattern)) for pattern in KEPT)

    @property
    def stop_file(self) -> Path:
        return self.path / "STOP"

    def stage(self, name: str) -> Path:
        """Folder of a stage's artifact, created if needed."""
        folder = self.path / "stages" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def stage_done(self, name: str) -> bool:
        return is_finished(self.path / "stages" / name)

    def write_status(self, **values: Any) -> None:
        """Replace status.json, keeping the keys that are not named.

        Raises:
            Superseded: a newer attempt has begun.
        """
        if self.is_anothers:
            return
        status = self.read_status() | values | {"pid": os.getpid(), "updated": time.time()}
        self.write_json(self.path / "status.json", status)

    def write_last_status(self, **values: Any) -> None:
        """Write how the run ended, like `write_status`; on a full disk, into the space that status.json already has.

        So it is not atomic. But otherwise a run that has ended would be shown as running forever.
        """
        try:
            self.write_status(**values)
        except OSError as error:
            if not is_full_disk(error):
                raise
            self.assert_newest()
            status = self.read_status() | values
            status.pop("heartbeats", None)  # of roles that have ended: without them the text is not longer than before
            with open(self.path / "status.json", "r+b") as file:
                file.write(as_json(status).encode())
                file.truncate()

    def read_status(self) -> dict[str, Any]:
        try:
            result: dict[str, Any] = json.loads((self.path / "status.json").read_bytes())
            return result
        except (OSError, ValueError):
            return {}

    def log(self, line: str) -> None:
        """Append a line with the time to run.log."""
        with open(self.path / "run.log", "a") as file:
            file.write(f"{datetime.datetime.now():%H:%M:%S} {line}\n")


def finished_stage(run: Path, source: str, stage: str) -> Path | None:
    """The folder of a finished stage: of the run, otherwise of the run that its `from` names, and so on along the
    chain; None if none has it.

    run: the run's folder, next to the folders of other runs.
    source: what `from` says, run:NAME/stage or the path of a stage; empty if it names nothing.
    """
    stages, asked = run / "stages", set[Path]()
    while stages not in asked:
        asked.add(stages)
        if is_finished(stages / stage):
            return stages / stage
        if not source:
            return None
        other, _, named = source.removeprefix("run:").partition("/")
        given = stages.parents[1] / other / "stages" / named if source.startswith("run:") else Path(source)
        stages = given.parent
        source = json.loads((given / "manifest.json").read_bytes()).get("from", "") if is_finished(given) else ""
    return None


def needed_stage(run: Path, source: str, stage: str) -> Path:
    """As `finished_stage`, where a stage without its input cannot go on.

    Raises:
        RunError: none has it.
    """
    if found := finished_stage(run, source, stage):
        return found
    raise RunError(f"stage {stage} is missing: add it to stages, or set from=run:NAME/{stage} with a run that has it")


def assert_done(source: str, place: Path) -> None:
    """Check that the stage of another run that `from` names is done; for a store, the stage in whose folder it is.

    Raises:
        RunError: it is not done.
    """
    stage = place.parent if place.name == EPISODES else place  # a training's store is inside its stage
    if source.startswith("run:") and not is_finished(stage):
        raise RunError(f"from: {source} is not finished: resume that run first")


def write_json(path: Path, value: Any) -> None:
    """Write JSON so that a reader never sees only part of it."""
    replace_file(path, as_json(value).encode())


def as_json(value: Any) -> str:
    """JSON in the format of a run's files."""
    return json.dumps(value, indent=1, default=str)


def manifest(command: Sequence[str]) -> bytes:
    """The manifest of a run: which code began it, where and with which words."""
    about = provenance() | {"command": " ".join(command), "host": platform.node(), "cores": os.cpu_count()}
    return as_json(about).encode()


def provenance() -> dict[str, Any]:
    """The code version that made an artifact, and its libraries."""
    try:
        words = ["git", "describe", "--always", "--dirty"]
        commit = subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except OSError:  # no git in this image
        commit = ""
    names = ("torch", "ray", "numpy", "gymnasium", "minigrid")
    return {
        "commit": commit or "unknown",
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in names},
    }


def find(name_or_path: str, runs: Path = Path("runs"), sweeps: bool = False) -> Path:
    """The folder of a run by name (in `runs/`) or path; with `sweeps`, also the folder of a sweep.

    Raises:
        RunError: there is none.
    """
    for path in (Path(name_or_path), runs / name_or_path):
        if (path / "config.yaml").exists() or (sweeps and (path / "sweep.json").exists()):
            return path
        if (path / "sweep.json").exists():
            raise RunError(f"{name_or_path!r} is a sweep: name one of its members, or start the same sweep again")
    known = sorted(p.parent.name for p in runs.glob("*/config.yaml"))
    hint = f"runs here: {', '.join(known[-LISTED:])}" if known else f"there are no runs in {runs.resolve()}"
    if len(known) > LISTED:
        hint += f" and {len(known) - LISTED} more (python launch.py status)"
    raise RunError(f"no run {name_or_path!r}; {hint}")


def is_running(status: dict[str, Any]) -> bool:
    """Whether the process that wrote this status is alive on this machine."""
    running = status.get("state") == "running"
    if not running or status.get("host", platform.node()) != platform.node():
        return running
    try:
        os.kill(int(status["pid"]), 0)
    except (KeyError, ProcessLookupError):
        return False
    except PermissionError:  # another user's
        pass
    return True
