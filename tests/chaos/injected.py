"""A command in a process of its own, in which a fault waits for a certain change to the files of a folder.

    start(words, folder, ...) ──> process      kill, exit code, and how many changes it made
    its k-th change           ──> the fault    SIGKILL, no room, a slow disk, another time of day

A change is what opens a file for writing, makes, renames or removes something, appends, or waits for the disk. So the
same fault meets the same process at the same point, also between two lines that belong together. Processes are forked
from one that has imported what commands need, which saves seconds each; SIGKILL and exit codes are as ever.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import multiprocessing
import os
import pkgutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BALLAST = "ballast"
"""The file that leaves no room for others, in the folder."""
COUNTED = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir")
WARM = ("launch", "cluster.run", "cluster.cli.start", "cluster.report.document", "llm_service.server.__main__")
WARM += ("matplotlib.pyplot", "scipy.stats", "sympy", "numba", "hydra", "grpc.aio", "redis.asyncio", "envs.toy")
WARM_PACKAGES = ("cluster.stages", "cluster.report.panels", "actors.players", "actors.wrappers", "learner.rewards")
WARM_PACKAGES += ("learner.potentials", "learner.algorithms", "learner.histories", "learner.methods")
WARM_PACKAGES += ("learner.models.networks", "llm_service.tasks", "llm_service.backends", "llm_service.durable")
"""What commands import, by name as well."""
OURS = ("actors", "cluster", "envs", "learner", "llm_service")
SLOWEST_S, FARTHEST_S = 0.05, 3 * 86400.0


@dataclass(frozen=True)
class Point:
    """A fault that waits in a process.

    at: before which change it comes, 1 is the first. 0: never, changes are only counted.
    kind: kill, full disk, slow disk, clock.
    amount: in [0, 1), of a delay, or of a jump of the clock: below 0.5 back, else forth.
    real: whether the folder is on a small disk that can be filled; else writing is refused in this process.
    """

    at: int
    kind: str = ""
    amount: float = 0.0
    real: bool = False


def start(command: Sequence[str], folder: Path, printed: Path, point: Point = Point(0), **environment: str) -> Any:
    """Start `launch.py ...`, or `service ...` for the LLM service. Returns a `multiprocessing` process.

    The number of its changes is in `printed` with `.changes`, if it was not killed.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.chaos.injected"])
    process = context.Process(target=_main, args=(tuple(command), folder, printed, point, environment))
    process.start()
    return process


def changes(printed: Path) -> int:
    """How many a process has made that was not killed."""
    return int(printed.with_suffix(".changes").read_text())


class Watch:
    """Counts changes in a folder, and lets the fault happen at its point."""

    def __init__(self, folder: Path, point: Point) -> None:
        self._inside, self._point, self._ballast = f"{folder.resolve()}/", point, folder / BALLAST
        self._busy, self._met, self.count = False, False, 0
        self._fsync, self._write, self._time = os.fsync, os.write, time.time

    def install(self) -> None:
        sys.addaudithook(self._audit)
        os.fsync, os.write = self._synced, self._written

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in COUNTED:
            return
        path = args[0]
        if event == "open" and (not isinstance(path, str | Path) or not args[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        if event in ("os.remove", "os.rmdir") and args[1] >= 0:
            path = f"{os.readlink(f'/proc/self/fd/{args[1]}')}/{os.fspath(path)}"
        self._changed(os.path.abspath(os.fspath(path)))

    def _synced(self, handle: int) -> None:
        inside = self._changed(os.readlink(f"/proc/self/fd/{handle}"))
        if inside and self._met and self._point.kind == "slow disk":
            time.sleep(SLOWEST_S * self._point.amount)
        self._fsync(handle)

    def _written(self, handle: int, content: bytes) -> int:
        self._changed(os.readlink(f"/proc/self/fd/{handle}"))
        return self._write(handle, content)

    def _changed(self, path: str) -> bool:
        if not path.startswith(self._inside) or self._busy:
            return False
        self.count += 1
        if self.count == self._point.at:
            self._met = self._busy = True
            self._happen()
            self._busy = False
        if self._met and self._point.kind == "full disk" and not self._point.real and self._ballast.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return True

    def _happen(self) -> None:
        match self._point.kind:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "full disk":
                with open(self._ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
                    while self._point.real:
                        file.write(b"\0" * 4096)
            case "clock":
                jump, real = FARTHEST_S * (2 * self._point.amount - 1), self._time
                time.time = lambda: real() + (jump if _asked_by_us() else 0.0)


def _asked_by_us() -> bool:
    """Whether our own code asks for the time. Libraries compare it with clocks in C, which this cannot set."""
    return str(sys._getframe(2).f_globals.get("__name__", "")).partition(".")[0] in OURS


def _main(command: Sequence[str], folder: Path, printed: Path, point: Point, environment: dict[str, str]) -> None:
    os.environ |= environment
    os.chdir(ROOT)
    log = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    program, *words = command
    sys.argv = [program, *words]
    watch = Watch(folder, point)
    watch.install()
    try:
        if program == "service":
            from llm_service.server.__main__ import main

            sys.exit(main())
        from cluster.cli.terminal import guard
        from launch import app

        guard(app)
    finally:
        sys.stdout.flush()
        printed.with_suffix(".changes").write_text(json.dumps(watch.count))


if "multiprocessing.forkserver" in " ".join(sys.orig_argv):  # in the process that all are forked from
    for name in (*WARM, *WARM_PACKAGES):
        module = importlib.import_module(name)
        if name in WARM_PACKAGES:
            for found in pkgutil.iter_modules(module.__path__):
                importlib.import_module(f"{name}.{found.name}")
