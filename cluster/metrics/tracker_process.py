"""The process of a tracker: reads rows from its input and hands them to the client; see `cluster/metrics/tracker.py`.

What fails is tried again, for ever: the run's queue is bounded, and a run that ends kills this process if it must.
Signals are for the run: this process ends with its input.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from cluster.metrics.sinks import sink
from cluster.metrics.tracker import FOLDER, About, masked
from learner.files import replace_file

LONGEST_S = 60.0
"""The longest pause between two tries, and how long this process may outlive its run."""

Result = TypeVar("Result")


class Follower:
    """Follows one run.

    tell: sends an answer to the run: `stored`, how many rows the client took; `troubled`, whether the last try failed;
        `told`, a line for people.
    """

    def __init__(self, name: str, about: dict[str, Any], tell: Callable[..., None]) -> None:
        self._name, self._about, self._tell = name, about, tell
        self._told = False
        self._client = self._insist(self._open)
        tell(told=self._client.told)

    def log(self, updates: list[Any]) -> None:
        self._insist(lambda: self._client.log(updates))
        self._tell(stored=len(updates), troubled=False)

    def end(self, state: str) -> None:
        self._insist(lambda: self._client.end(state))

    def _open(self) -> Any:
        folder = Path(self._about["folder"])
        file = folder / FOLDER / f"{self._name}.json"
        file.parent.mkdir(exist_ok=True)
        known = json.loads(file.read_text())["run"] if file.exists() else ""
        about = About(**self._about | {"folder": folder}, run=known, keep=lambda run: _keep(file, run))
        return sink(self._name).Client(about)

    def _insist(self, action: Callable[[], Result]) -> Result:
        """Do it, again and again if it fails. The first reason is told."""
        pause = 1.0
        while True:
            try:
                return action()
            except Exception as error:
                self._tell(troubled=True)
                if not self._told:
                    self._told = True
                    reason = masked(" ".join(f"{type(error).__name__}: {error}".split()))[:300]
                    self._tell(told=f"{reason} (tried again while the run goes on; metrics.jsonl has every row)")
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_S)


def _keep(file: Path, run: str) -> None:
    replace_file(file, json.dumps({"run": run}).encode())


def _outlive(run: int) -> None:
    """End this process some time after the process of its run, whatever the client does."""
    while os.getppid() == run:
        time.sleep(1.0)
    time.sleep(LONGEST_S)
    os._exit(1)


def main(name: str) -> None:
    threading.Thread(target=_outlive, args=(os.getppid(),), daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # clients print too

    def tell(**answer: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # the run was killed: what it gave is handed on all the same
            print(json.dumps(answer), file=answers, flush=True)

    follower, state = Follower(name, json.loads(sys.stdin.readline()), tell), "crashed"  # if nothing else is said
    for line in sys.stdin:
        if not line.endswith("\n"):  # the run was killed while it wrote
            break
        message = json.loads(line)
        if isinstance(message, str):
            state = message
        else:
            follower.log(message)
    follower.end(state)


if __name__ == "__main__":
    main(sys.argv[1])
