"""Trackers: sinks whose client may be slow, away or broken. It runs in a process of its own, and no run waits for it.

    run ── rows ──> queue ── a thread, JSON lines ──> python -m cluster.metrics.tracker_process NAME ──> the service
        <── notes ──────────  a thread, JSON lines ──

The queue is bounded: what does not fit is missing in the tracker, and a note at the end says how much. `metrics.jsonl`
has every row in any case. If this process is killed, the other one reads the end of its input and reports a crash.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from cluster.metrics.sinks import Followed, numbers

FOLDER = "trackers"
"""Folder of a run for what its trackers keep: the id of the tracked run, W&B's files."""
INSTALL = "pip install -r requirements-trackers.txt"
WAITING = 10_000
"""Rows that may wait for a tracker."""
TOGETHER = 100
"""Rows that are handed over at once, if so many wait."""
END_S, CLOSE_S = 60.0, 10.0
"""How long a run that ends in peace waits for its rows to be handed on, and any run for its tracker to finish."""
ROOT = Path(__file__).resolve().parents[2]


class Update(TypedDict):
    """The numbers of one row. `time`: seconds since 1970."""

    numbers: dict[str, float]
    env_steps: int
    time: float


@dataclass
class About:
    """What a client is told about its run. `run`: the id of the tracked run to continue; "" begins one."""

    name: str
    folder: Path
    config: dict[str, Any]
    tags: dict[str, str]
    run: str
    keep: Callable[[str], None]

    def remember(self, run: str) -> None:
        """Keep the id of the tracked run in the run's folder, so that a resume continues it."""
        self.run = run
        self.keep(run)


class Tracker:
    """A sink that hands numbers to the client of a tracker.

    Args:
        name: of the module in `cluster/metrics/sinks` that publishes the `Client`. It is built from an `About`, and has
            `told`, a line for people, `log(updates)` and `end(state)`. What raises an error is tried again.
    """

    def __init__(self, name: str, run: Followed) -> None:
        self._name, self._note, self._state = name, run.note, "crashed"
        self._given = self._stored = 0
        self._troubled = False
        self._waiting: queue.SimpleQueue[Update | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cluster.metrics.tracker_process", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # clients are talkative, and may say what nobody may know
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            start_new_session=True,  # Ctrl-C is for the run, which then tells its tracker
            text=True,
        )
        about = {"name": run.name, "folder": str(run.folder.resolve()), "config": run.config, "tags": run.tags}
        self._writer = threading.Thread(target=self._write, args=(about,), name=f"to {name}", daemon=True)
        self._reader = threading.Thread(target=self._read, name=f"from {name}", daemon=True)
        self._writer.start()
        self._reader.start()

    def __call__(self, row: dict[str, Any]) -> None:
        if row["kind"] == "end":
            self._state = row["state"]
        elif found := numbers(row):
            self._given += 1
            if self._waiting.qsize() < WAITING:
                self._waiting.put({"numbers": found, "env_steps": int(row["env_steps"]), "time": time.time()})

    def end(self, hurried: Callable[[], bool]) -> None:
        """Wait until the rows are handed on, unless the tracker is in trouble, or the run is `hurried`."""
        until = time.monotonic() + END_S
        while self._stored < self._given and time.monotonic() < until:
            if self._troubled or self._process.poll() is not None or hurried():
                return
            time.sleep(0.02)

    def close(self) -> None:
        """Tell how the run ended, and what is missing in the tracker."""
        self._waiting.put(None)
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        if missing := self._given - self._stored:
            self._note(f"{self._name} lacks {missing} of {self._given} rows; metrics.jsonl has them all")

    def _write(self, about: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as pipe:
            print(json.dumps(about, default=str), file=pipe, flush=True)
            while (update := self._waiting.get()) is not None:
                updates = [update]
                while len(updates) < TOGETHER and not self._waiting.empty():
                    if (update := self._waiting.get()) is None:
                        self._waiting.put(None)
                        break
                    updates.append(update)
                print(json.dumps(updates), file=pipe, flush=True)
            print(json.dumps(self._state), file=pipe, flush=True)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            for answer in map(json.loads, pipe):
                self._stored += answer.get("stored", 0)
                self._troubled = answer.get("troubled", self._troubled)
                if "told" in answer:
                    self._note(f"{self._name}: {answer['told']}")


def without(module: str, package: str) -> str:
    """What to do where the module of a sink's client is not installed; empty if it is."""
    there = importlib.util.find_spec(module)
    return "" if there else f"run.sinks=[{module}] needs the package {package}: {INSTALL}"


def masked(text: str) -> str:
    """A text without users and passwords in its addresses, and without the values of variables that hold secrets."""
    text = re.sub(r"//[^/\s]*@", "//", text)
    for name, value in os.environ.items():
        if re.search("KEY|TOKEN|PASSWORD|SECRET", name) and len(value) >= 8:
            text = text.replace(value, "***")
    return text
