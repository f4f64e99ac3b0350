"""The games of Procgen (Cobbe et al. 2020, arXiv 1912.01588), N of them behind the contract of `envs.api`.

    actions ──> ORDERs ──pipe──> `server`, in a Python that has Procgen ──pipe──> ROWs ──> pictures, rewards

Actions: the game's 15: eight directions, none, and six keys, most of which do nothing in most games.
Observation: `pixels` uint8 [64, 64, 3].
Reward: the game's own.
Termination: the game's own. Truncation: after `Config.length` steps, before the game's own limit (500 or more) is met.
Success: the game says that its level was completed.
Task: the level, as the episode's seed says, see `Config.levels` and `EnvSpec.task`. A level and the actions decide the
whole episode.
Ids: procgen/<game>, the 16 games.

Procgen begins a game anew within the step that ends it. So the picture after a last step that terminates is never
drawn, and `final_obs` is the one before it; with truncation it is the true last one, which is where a value is read.

The limit: one process steps its N games one after another, in some 100 microseconds each, and holds 400 MB of artwork.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
import weakref
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from envs.api import EnvSpec, Observation, VectorEnv
from envs.procgen import server

VERSION = "0.10.7"  # other versions may draw other levels for the same seeds


class ProcgenEnded(RuntimeError):
    """The process with the games did not start, or is gone; the message says how, and what it said last."""


class Child:
    """The process with the games.

    Args:
        python: a Python that has Procgen.
        game: its name for Procgen.
        mode: Procgen's distribution of levels.
        number: how many games.

    Raises:
        ProcgenEnded: Procgen cannot be imported there, or is of another version.
    """

    def __init__(self, python: str, game: str, mode: str, number: int) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (it stays open as long as the process)
        self.process = subprocess.Popen(
            [python, "-I", server.__file__, game, mode, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,  # Ctrl-C is for the run, which still wants to step or save
        )
        assert self.process.stdin
        assert self.process.stdout
        self._to, self._from = self.process.stdin, self.process.stdout
        self.end = weakref.finalize(self, _end, self.process, self._said)
        version = self._from.readline().decode().strip()
        if not version:
            raise self._ended(f"{python} does not run Procgen")
        if version != VERSION:
            self.end()
            raise ProcgenEnded(f"{python} has Procgen {version}, but its levels are those of {VERSION}: install that")

    def ask(self, orders: NDArray[Any]) -> NDArray[Any]:
        """ORDERs [n] -> ROWs [n].

        Raises:
            ProcgenEnded: it is gone.
        """
        if not self.end.alive:
            raise ProcgenEnded("Procgen's process is gone: the env was closed")
        size, found = len(orders) * server.ROW.itemsize, b""
        try:
            self._to.write(np.array(len(orders), server.COUNT).tobytes() + orders.tobytes())
            self._to.flush()
            found = self._from.read(size)
        except BrokenPipeError:  # it died with orders unread
            pass
        if len(found) < size:
            raise self._ended("Procgen's process is gone")
        return np.frombuffer(found, server.ROW)

    def _ended(self, what: str) -> ProcgenEnded:
        _close(self.process)
        code = self.process.wait()
        self._said.seek(0)
        last = self._said.read().decode(errors="replace").strip().rpartition("\n")[2]
        self.end()
        how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        return ProcgenEnded(f"{what} ({how}){f': {last}' if last else ''}")


def _close(process: subprocess.Popen[bytes]) -> None:
    """Its stdin ends, and so does it."""
    for pipe in (process.stdin, process.stdout):
        assert pipe
        with contextlib.suppress(BrokenPipeError):  # orders that it did not read
            pipe.close()


def _end(process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
    _close(process)
    process.wait()
    said.close()


class Games(VectorEnv):
    """N games of one kind, in a process of their own.

    Args:
        args: as `VectorEnv`.
        child: where they are.
        length: steps after which an episode is truncated.
    """

    def __init__(
        self, env_spec: EnvSpec, num_envs: int, seed: int = 0, first_index: int = 0, *, child: Child, length: int
    ) -> None:
        super().__init__(env_spec, num_envs, seed, first_index)
        self.child, self._limit = child, length
        self._pictures = np.zeros((num_envs, server.SIDE, server.SIDE, 3), np.uint8)
        self._complete = np.zeros(num_envs, np.bool_)

    def _start(self, index: NDArray[np.intp], seeds: NDArray[np.int64]) -> None:
        orders = np.zeros(len(index), server.ORDER)
        orders["game"], orders["level"] = index, self.env_spec.task(seeds)
        self._pictures[index] = self.child.ask(orders)["picture"]

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]]:
        rows = self._move(self._rows, actions)
        ended = rows["ended"].astype(np.bool_)
        self._complete = rows["complete"].astype(np.bool_)
        return rows["reward"].astype(np.float32), ended, (self._length + 1 >= self._limit) & ~ended

    def _move(self, index: NDArray[np.intp], actions: NDArray[Any]) -> NDArray[Any]:
        """Envs `index` take their actions; what came of it."""
        orders = np.zeros(len(index), server.ORDER)
        orders["game"], orders["level"], orders["action"] = index, -1, actions
        rows = self.child.ask(orders)
        on = rows["ended"] == 0
        self._pictures[index[on]] = rows["picture"][on]
        return rows

    def _replay(self, lengths: NDArray[np.int32], log: NDArray[Any]) -> None:
        for step in range(int(lengths.max())):
            index = np.flatnonzero(lengths > step)
            self._total[index] += self._move(index, log[index, step])["reward"]

    def _check_state(self, state: dict[str, NDArray[Any]]) -> None:
        super()._check_state(state)
        if (longest := state["length"].max()) >= self._limit:
            raise ValueError(f"the state has an episode of {longest} steps, but those of this env have {self._limit}")

    def _observe(self, index: NDArray[np.intp] | slice) -> Observation:
        return {"pixels": self._pictures[self._rows[index]]}

    def _success(self, reward: NDArray[np.float32], terminated: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return self._complete & terminated

    def frame(self, i: int) -> NDArray[np.uint8]:
        """The picture that env i shows, uint8 [64, 64, 3]."""
        self._require_begun()
        picture: NDArray[np.uint8] = self._pictures[i].copy()
        return picture

    def close_extras(self, **kwargs: Any) -> None:
        """End the process."""
        self.child.end()
