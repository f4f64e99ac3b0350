"""What a row of metrics says about the time since the row before: episodes, speed, and who was the bottleneck."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from cluster.stages._shared.goal_table import Counts, shares
from envs.api import Episodes

WINDOW = 256  # latest finished episodes that training statistics are about


class Tally:
    """Collects between two rows.

    recent: (return, success, length, kind, share of steps without an answer of the language model) of the latest
        episodes; part of a checkpoint.
    goals: by goal, counts as `actors.wrappers.goals.COUNTS` names them, since the run began; part of a checkpoint.
    counts: by `wrapper/name`, what else wrappers counted since the last row; see `count`.
    busy: seconds that roles worked since the last row, summed over actors; add to it.
    """

    def __init__(self) -> None:
        self.recent: deque[tuple[float, bool, int, int, float]] = deque(maxlen=WINDOW)
        self.goals: Counts = {}
        self.begin(0)

    def begin(self, env_steps: int) -> None:
        """Start counting time at this many env steps."""
        self.counts = Counter[str]()
        self.busy = {"env": 0.0, "policy": 0.0, "learner": 0.0}
        self._at, self._env_steps = time.monotonic(), env_steps

    def add(self, episodes: Episodes) -> None:
        """Take finished episodes."""
        away = episodes.away / np.maximum(episodes.length, 1)
        columns = (episodes.total, episodes.success, episodes.length, episodes.kind, away)
        self.recent.extend(zip(*(column.tolist() for column in columns), strict=True))

    def count(self, report: Mapping[str, Mapping[str, Any]]) -> None:
        """Take what the wrappers of an actor counted: plain numbers are added up."""
        for wrapper, counts in report.items():
            self.counts.update({f"{wrapper}/{name}": n for name, n in counts.items() if isinstance(n, int | float)})

    def episodes(self, kinds: tuple[str, ...]) -> dict[str, float]:
        """Means over the latest episodes; nothing if none has ended yet."""
        if not self.recent:
            return {}
        total, solved, length, kind, away = (np.array(column) for column in zip(*self.recent, strict=True))
        found = {
            "charts/episodic_return": float(total.mean()),
            "charts/success_rate": float(solved.mean()),
            "charts/episodic_length": float(length.mean()),
        } | {f"success/{kinds[k]}": float(solved[kind == k].mean()) for k in np.unique(kind)}
        if self.goals:
            found |= {"goals/away": float(away.mean())} | {f"goals/{name}": x for name, x in shares(self.goals).items()}
        return found

    def speed(self, env_steps: int, actors: int) -> dict[str, Any]:
        """Env steps per second, shares of time, and the bottleneck, since the last row; begins the next one."""
        seconds = max(time.monotonic() - self._at, 1e-6)
        steps = env_steps - self._env_steps
        shares = {
            "time/env": self.busy["env"] / seconds / actors,
            "time/policy": self.busy["policy"] / seconds / actors,
            "time/learner": self.busy["learner"] / seconds,
        }
        acting = shares["time/env"] + shares["time/policy"]
        row: dict[str, Any] = {"charts/SPS": steps / seconds} | shares | self.counts
        if acting > 0:  # no chunk may have come since the last row
            row["charts/SPS_sampling"] = steps / (acting * seconds)
        row["charts/SPS_learning"] = steps / max(self.busy["learner"], 1e-6)
        row["bottleneck"] = "learner" if shares["time/learner"] > acting else "env"
        self.begin(env_steps)
        return row
