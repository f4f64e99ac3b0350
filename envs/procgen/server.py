"""Procgen's games on the far side of two pipes; `envs.procgen.world` is the near side.

    stdin   number of orders, uint32 ──> that many ORDERs ──> a game begins a level, or takes an action
    stdout  Procgen's version, a line ──> for each ORDER, in its place, a ROW

Run by a Python that has Procgen, as `server.py GAME MODE NUMBER`. That Python has none of Cairn's packages, so nothing
of Cairn is imported here. It ends when stdin does, so it does not outlive who started it.

Procgen draws the level of each next episode itself, from a range of levels. Here a level begins in three moves: the
state that a game had at first is written back, with a range of that one level in it, and the game is told to begin
anew. So an episode is what a new game of that level would play. Games that share a batch could not begin one by one:
each is a batch of its own. The limit: that costs some 30 microseconds a step, and a third of a millisecond an episode.
"""

from __future__ import annotations

import contextlib
import io
import os
import struct
import sys
from typing import Any

import numpy as np

SIDE = 64  # pixels of a picture
COUNT = np.dtype("<u4")
ORDER = np.dtype([("game", "<i4"), ("level", "<i4"), ("action", "<i4")])
"""What game `game` is to do: begin `level`, or, if that is -1, take `action`."""
ROW = np.dtype([("reward", "<f4"), ("ended", "u1"), ("complete", "u1"), ("picture", "u1", (SIDE, SIDE, 3))])
"""What came of it. Of an episode that has `ended`, `complete` says whether its level was solved; its last picture was
never drawn: `picture` is the first one of the same level, played again."""
_BEGIN_ANEW = -1  # the action that Procgen understands so


class Game:
    """One game, which begins the level that it is told.

    Args:
        name: Procgen's.
        mode: its distribution of levels.
    """

    def __init__(self, name: str, mode: str) -> None:
        import procgen

        self._batch: Any = procgen.ProcgenGym3Env(
            num=1,
            env_name=name,
            distribution_mode=mode,
            start_level=0,
            num_levels=1,
            rand_seed=0,  # chooses among the levels, of which there is one
            num_threads=0,
        )
        state: bytes = self._batch.get_state()[0]
        range_at = 4 + 4 + len(name) + 13 * 4  # after a version, the name with its length, and 13 options
        self._before, self._after = state[:range_at], state[range_at + 8 :]

    def begin(self, level: int) -> Any:
        """The first ROW of the level; nothing was paid.

        Raises:
            RuntimeError: Procgen began another level.
        """
        self._batch.set_state([self._before + struct.pack("<ii", level, level + 1) + self._after])
        self._act(_BEGIN_ANEW)
        began = self._batch.get_info()[0]["level_seed"]
        if began != level:
            raise RuntimeError(f"Procgen was to begin level {level}, but began {began}")
        return 0, 0, 0, self._batch.observe()[1]["rgb"][0]

    def step(self, action: int) -> Any:
        """The ROW after an action."""
        self._act(action)
        reward, picture, first = self._batch.observe()
        complete = first[0] and self._batch.get_info()[0]["prev_level_complete"]
        return reward[0], first[0], complete, picture["rgb"][0]

    def _act(self, action: int) -> None:
        self._batch.act(np.array([action], np.int32))


def main(name: str, mode: str, number: int) -> None:
    """Answer until stdin ends."""
    orders_from, rows_to = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not come between the rows
    with contextlib.redirect_stderr(io.StringIO()):  # gym says that it is no longer maintained
        import procgen
    games = [Game(name, mode) for _ in range(number)]
    rows_to.write(procgen.__version__.strip().encode() + b"\n")
    rows_to.flush()
    while count := orders_from.read(COUNT.itemsize):
        size = int(np.frombuffer(count, COUNT)[0])
        rows = np.zeros(size, ROW)
        orders = np.frombuffer(orders_from.read(size * ORDER.itemsize), ORDER)
        for row, (game, level, action) in enumerate(orders.tolist()):
            rows[row] = games[game].step(action) if level < 0 else games[game].begin(level)
        rows_to.write(rows.tobytes())
        rows_to.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
