"""Processes with a house in habitat-sim each: `child` on their far side.

    requests to all that are asked ──> they work at the same time ──> answers, one after the other, each in its time

A child that is wrong in any way ends all: the episode of its player is gone, and the others wait for none.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from envs.housekeep.habitat import child

VERSION = "0.3.3"
CONDA = f"conda install habitat-sim={VERSION} withbullet headless -c conda-forge -c aihabitat"
UNTRIED = "this adapter was tested on a stand-in that records calls, not run on habitat-sim"
START_SECONDS, LOAD_SECONDS, STEP_SECONDS = 120.0, 900.0, 60.0
"""How long children may take to import habitat-sim, to load a scene, and to answer anything else."""
LAST_LINES, LAST_BYTES = 3, 4096
"""Of stderr, that are told of a child that ended."""

_OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")  # of this Python, and wrong for another one

Answer = tuple[dict[str, Any], dict[str, NDArray[Any]]]
"""A header, and arrays by name."""


class HabitatEnded(RuntimeError):
    """A process with habitat-sim is gone; the message says of which player, how, what it said last and what to do."""


class _Wrong(Exception):
    """What is wrong with a child, in words that follow its name."""


class Children:
    """A process for each player.

    Args:
        python: a Python that has habitat-sim.
        count: of players.
        folder: where they run.

    Raises:
        ValueError: it is no Python, or has no habitat-sim, or another one; says what to do.
        HabitatEnded: one ended while it began.
    """

    def __init__(self, python: str, count: int, folder: Path) -> None:
        found = shutil.which(python)
        if found is None:
            raise ValueError(f"env.python={python} is no program: name a Python in which `{CONDA}` was run")
        self._python = python
        self._said: list[IO[bytes]] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.end = weakref.finalize(self, _end, self.processes, self._said)
        quiet = {"HABITAT_SIM_LOG": "quiet", "MAGNUM_LOG": "quiet", "PYTHONNOUSERSITE": "1"}
        environment = {name: value for name, value in os.environ.items() if name not in _OURS} | quiet
        for _ in range(count):
            self._said.append(tempfile.TemporaryFile())  # noqa: SIM115 (open as long as the process)
            self.processes.append(
                subprocess.Popen(
                    [found, child.__file__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._said[-1],
                    cwd=folder,
                    env=environment,
                    start_new_session=True,  # Ctrl-C is for the run; and all that it starts can be ended together
                )
            )
        for i in range(count):
            self._assert_fits(self._answer(i, time.monotonic() + START_SECONDS)[0])

    def ask(self, requests: Mapping[int, dict[str, Any]], seconds: float) -> dict[int, Answer]:
        """Requests by player -> their answers.

        Args:
            seconds: how long they may take.

        Raises:
            HabitatEnded: one has no answer, or no sensible one.
        """
        if not self.end.alive:
            raise HabitatEnded("the processes with habitat-sim are gone: the env was closed")
        for i, request in requests.items():
            self._tell(i, request)
        deadline = time.monotonic() + seconds
        return {i: self._answer(i, deadline) for i in requests}

    def _tell(self, i: int, request: dict[str, Any]) -> None:
        pipe = self.processes[i].stdin
        assert pipe
        try:
            pipe.write(child.pack(request))
            pipe.flush()
        except OSError:  # it died with requests unread
            raise self._gone(i, "is gone") from None

    def _answer(self, i: int, deadline: float) -> Answer:
        try:
            (length,) = child.LENGTH.unpack(start := self._read(i, child.LENGTH.size, deadline))
            if length > child.LONGEST:
                raise _Wrong(f"wrote {start!r} where an answer begins: does a script before it print something?")
            try:
                header = json.loads(self._read(i, length, deadline))
                arrays = {}
                for name, dtype, shape in child.arrays_of(header):
                    content = self._read(i, dtype.itemsize * int(np.prod(shape)), deadline)
                    arrays[name] = np.frombuffer(content, dtype).reshape(shape)
            except (ValueError, TypeError, KeyError) as reason:
                raise _Wrong(f"gave an answer that is none ({reason})") from None
            if "error" in header:
                raise _Wrong(f"failed ({header['error']})")
        except _Wrong as what:
            raise self._gone(i, str(what)) from None
        return header, arrays

    def _read(self, i: int, count: int, deadline: float) -> bytes:
        pipe = self.processes[i].stdout
        assert pipe
        waiting, found = select.poll(), b""
        waiting.register(pipe, select.POLLIN)
        while len(found) < count:
            left = deadline - time.monotonic()
            if left <= 0 or not waiting.poll(left * 1000):
                raise _Wrong("gave no answer in time")
            more = os.read(pipe.fileno(), count - len(found))
            if not more:
                raise _Wrong("is gone")
            found += more
        return found

    def _assert_fits(self, header: dict[str, Any]) -> None:
        """ValueError unless the package is the right one."""
        what = ""
        if "missing" in header:
            what = f"cannot import habitat_sim ({header['missing']})"
        elif header.get("version") != VERSION:
            what = f"has habitat-sim {header.get('version')}, not {VERSION}"
        elif not header.get("bullet"):
            what = f"has a habitat-sim {VERSION} without Bullet"
        if what:
            self.end()
            raise ValueError(f"env.python={self._python} {what}: run `{CONDA}` there; {UNTRIED}")

    def _gone(self, i: int, what: str) -> HabitatEnded:
        """All end; what is to be told of player i's."""
        process, said = self.processes[i], self._said[i]
        with contextlib.suppress(subprocess.TimeoutExpired):  # whether it is ending by itself: then how is of interest
            process.wait(0.5 if what == "is gone" else 0)
        code = process.poll()
        how = "" if code is None else f" ({f'exit code {code}' if code >= 0 else signal.Signals(-code).name})"
        said.seek(max(0, said.seek(0, os.SEEK_END) - LAST_BYTES))
        lines = said.read().decode(errors="replace").strip().splitlines()[-LAST_LINES:]
        self.end()
        last = f"; it said last: {' | '.join(line.strip() for line in lines)}" if lines else ""
        return HabitatEnded(
            f"the process with habitat-sim of player {i} {what}{how}{last}; resume the run to go on from its last "
            f"checkpoint, or try {self._python} with fewer envs; {UNTRIED}"
        )


def _end(processes: list[subprocess.Popen[bytes]], said: list[IO[bytes]]) -> None:
    """Their stdin ends, and so do they; what does not is killed, with all that it started."""
    for process in processes:
        assert process.stdin
        with contextlib.suppress(BrokenPipeError):  # requests that it did not read
            process.stdin.close()
    deadline = time.monotonic() + 2
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout
        process.stdout.close()
    for file in said:
        file.close()
