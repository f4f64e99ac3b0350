"""Written programs, run in a process that can reach nothing: `Sandbox`.

    with Sandbox() as sandbox:
        done = sandbox.phi(code, observations, actions)      # Values; a fault is a 0.0 that is counted, never an error

One child (`child`, locked down by `lockdown`) answers one request after the other, through two pipes and memory that
is shared with it. Whatever it does but answer in time and in form ends it, the next request starts another. So a
program can waste `wall_s` seconds three times, and then is not run again.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import threading
import weakref
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llm_service.sandbox import grammar
from llm_service.sandbox.child import MAX_BYTES, MAX_ROWS
from llm_service.sandbox.connection import Connection, Ended, SandboxBroken
from llm_service.sandbox.interpreter import LARGEST_ARGUMENT, Values
from llm_service.sandbox.lockdown import PROTECTIONS

__all__ = ["Sandbox", "SandboxBroken"]

log = logging.getLogger(__name__)

MAX_DEATHS = 3  # of children by one program, in one Sandbox
PIECE_ROWS = MAX_ROWS  # sent at once; the limit of time is for each piece
PIECE_BYTES = MAX_BYTES


class Sandbox:
    """Runs programs of the grammar in a child process. Calls from several threads take turns.

    The child starts at the first call, in about a tenth of a second. It dies with this object and with this process.

    Args:
        wall_s: seconds within which a piece of at most PIECE_ROWS rows must be answered.
        memory_bytes: address space of the child beyond what Python and NumPy take.
        cpu_s: seconds of work after which a fresh child takes over, between two calls; its kernel limit.

    Raises:
        ValueError: a limit that leaves no room for one call.
    """

    def __init__(self, wall_s: float = 10.0, memory_bytes: int = 512 << 20, cpu_s: float = 300.0) -> None:
        if not 0 < wall_s <= cpu_s:
            raise ValueError(f"wall_s must be above 0 and at most cpu_s: {wall_s}, {cpu_s}")
        if memory_bytes < 8 * PIECE_BYTES:
            raise ValueError(f"memory_bytes must be at least {8 * PIECE_BYTES}, for one piece and its copies")
        self._wall_s, self._memory_bytes, self._cpu_s = wall_s, memory_bytes, cpu_s
        self._child: Connection | None = None
        self._end: weakref.finalize[..., Any] | None = None
        self._deaths: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._told = False

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child. The next call would start another."""
        with self._lock:
            self._stop()

    @property
    def protections(self) -> tuple[str, ...]:
        """Those of `lockdown.PROTECTIONS` that hold on this machine, as the child says; it is started if need be.

        Raises:
            SandboxBroken: the child does not start.
        """
        with self._lock:
            return self._ready().protections

    def phi(
        self,
        code: str,
        observations: NDArray[np.integer],
        actions: NDArray[np.integer],
        index: NDArray[np.integer] | None = None,
    ) -> Values:
        """What the program says of each row.

        Rows are sent in pieces of at most PIECE_ROWS. If the child does not answer one, its rows are 0.0 and counted:
        `wall` (no answer within wall_s), `memory`, `process` (it died or spoke nonsense), `banned` (this program ended
        MAX_DEATHS children and is not run again here).

        Args:
            code: a program of the grammar, `potential(observations, actions)`.
            observations: integers [N, K, ...], the newest last; or, with an index, [R, ...].
            actions: integers [N, K - 1].
            index: integers [N, K], which of the observations are the row's. Rows that share them cost less.

        Returns:
            values float32 [N], all finite, and how many rows had which fault.

        Raises:
            CodeRefused: the program is outside the grammar.
            ValueError: arrays of other shapes or types, or a row larger than PIECE_BYTES.
            SandboxBroken: the child does not start.
        """
        code = _normalise(code)
        observations, actions, rows = _checked(observations, actions, index)
        parts, faults = [np.zeros(0, np.float32)], Counter[str]()
        with self._lock:
            for begin in range(0, len(actions), rows):
                piece = slice(begin, begin + rows)
                own = (observations[piece], None) if index is None else _needed(observations, index[piece])
                values, found = self._piece(code, own[0], actions[piece], own[1])
                parts.append(values)
                faults.update(found)
        return Values(np.concatenate(parts), dict(faults))

    def check(self, code: str, observations: NDArray[np.integer], actions: NDArray[np.integer]) -> Values:
        """As `phi`, asked twice, the second time in reverse order: a row with two answers is 0.0.

        Its fault is `not deterministic`. Run it once when a program is accepted; a call costs twice a `phi`.
        """
        first = self.phi(code, observations, actions)
        second = self.phi(code, observations[::-1], actions[::-1])
        differ = first.values != second.values[::-1]
        faults = {**second.faults, **first.faults}
        if differ.any():
            faults["not deterministic"] = int(differ.sum())
        return Values(np.where(differ, np.float32(0), first.values), faults)

    def _piece(
        self,
        code: str,
        observations: NDArray[np.integer],
        actions: NDArray[np.integer],
        index: NDArray[np.int32] | None,
    ) -> tuple[NDArray[np.float32], dict[str, int]]:
        n = len(actions)
        while self._deaths[code] < MAX_DEATHS:
            child = self._ready()
            try:
                return child.ask(code, observations, actions, index, self._wall_s)
            except Ended as ended:
                self._stop()
                if not child.starter.is_alive():
                    continue  # the kernel ended it with the thread that had started it, not for what it ran
                self._deaths[code] += 1
                name = hashlib.sha256(code.encode()).hexdigest()[:12]
                log.warning("written program %s: %s; its process is ended and started anew", name, ended)
                return np.zeros(n, np.float32), {str(ended): n}
            except BaseException:  # Ctrl-C, say: a late answer to this would pass for one to the next question
                self._stop()
                raise
        return np.zeros(n, np.float32), {"banned": n}

    def _ready(self) -> Connection:
        """A child that is alive, silent and has time for one more call."""
        if self._child is None or not self._child.idle() or self._child.spent_s + self._wall_s > self._cpu_s:
            self._stop()
            self._child = Connection(self._memory_bytes, self._cpu_s)
            self._end = weakref.finalize(self, self._child.kill)  # also at the end of this process
            self._tell(self._child.protections)
        return self._child

    def _stop(self) -> None:
        if self._end is not None:
            self._end()
        self._child = self._end = None

    def _tell(self, held: tuple[str, ...]) -> None:
        if self._told:
            return
        self._told = True
        log.info("written programs run behind: %s", ", ".join(held))
        if missing := [name for name in PROTECTIONS if name not in held]:
            log.warning("written programs run without: %s; this machine does not allow it", ", ".join(missing))


@functools.lru_cache(256)
def _normalise(code: str) -> str:
    return grammar.normalise(code)


def _checked(
    observations: NDArray[np.integer], actions: NDArray[np.integer], index: NDArray[np.integer] | None
) -> tuple[NDArray[np.integer], NDArray[np.integer], int]:
    """Both as little-endian arrays, and how many rows make a piece."""
    for name, array in (("observations", observations), ("actions", actions)):
        wide = array.itemsize > 4 and array.size and max(-int(array.min()), int(array.max())) > LARGEST_ARGUMENT
        if array.dtype.kind not in "iu" or wide:
            raise ValueError(f"{name} must be integers up to {LARGEST_ARGUMENT}, not {array.dtype}")
    shape = observations.shape[:2] if index is None else index.shape
    if len(shape) != 2 or actions.shape != (shape[0], shape[1] - 1):
        raise ValueError(f"observations [N, K, ...] and actions [N, K - 1] of {shape}, {actions.shape}")
    if index is not None and index.size and not 0 <= index.min() <= index.max() < len(observations):
        raise ValueError(f"the index names other observations than {len(observations)}")
    row = observations.nbytes // max(1, len(observations)) * (1 if index is None else shape[1])
    row += actions.nbytes // max(1, len(actions)) + (0 if index is None else 4 * shape[1])
    if row > PIECE_BYTES:
        raise ValueError(f"a row has {row} bytes, more than {PIECE_BYTES}")
    little = [array.astype(array.dtype.newbyteorder("<"), copy=False) for array in (observations, actions)]
    return little[0], little[1], min(PIECE_ROWS, PIECE_BYTES // max(1, row))


def _needed(
    observations: NDArray[np.integer], index: NDArray[np.integer]
) -> tuple[NDArray[np.integer], NDArray[np.int32]]:
    """Those of the observations that the index names, and the index into them."""
    used = np.zeros(len(observations), bool)
    used[index] = True
    if not used.all():
        index = (np.cumsum(used) - 1)[index]
        observations = observations[used]
    return observations, index.astype("<i4")
