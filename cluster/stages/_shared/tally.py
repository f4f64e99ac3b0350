"""Values of a metrics row since the previous row: episodes, achievements, speed, bottleneck, goals.

Goals are counted as in `actors.wrappers.goals.COUNTS`. Suggestions are counted by steps: a goal that is active for ten
steps counts like ten goals that are active for one.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from actors.wrappers.goals import COUNTS
from cluster.stages._shared.achievements import Achieved
from envs.api import EnvSpec, Episodes

Counts = dict[str, list[int]]
WINDOW = 256  # number of latest finished episodes in training statistics


class Tally:
    """Collects values between two rows.

    recent: (return, success, length, kind, share of steps without an answer from the language model) of the latest
        episodes; part of a checkpoint.
    achieved: achievements of all episodes since the run began; part of a checkpoint.
    goals: counts by goal since the run began; part of a checkpoint.
    counts: by `wrapper/name`, other counts of wrappers since the last row; see `count`.
    busy: seconds that roles worked since the last row, summed over actors; callers add to it.
    """

    def __init__(self) -> None:
        self.recent: deque[tuple[float, bool, int, int, float]] = deque(maxlen=WINDOW)
        self.achieved = Achieved()
        self.goals: Counts = {}
        self.begin(0)

    def begin(self, env_steps: int) -> None:
        """Start counting time at this many env steps."""
        self.counts = Counter[str]()
        self.busy = {"env": 0.0, "policy": 0.0, "learner": 0.0}
        self._at, self._env_steps = time.monotonic(), env_steps

    def add(self, episodes: Episodes) -> None:
        """Add finished episodes."""
        away = episodes.away / np.maximum(episodes.length, 1)
        columns = (episodes.total, episodes.success, episodes.length, episodes.kind, away)
        self.recent.extend(zip(*(column.tolist() for column in columns), strict=True))
        self.achieved.add(episodes)

    def count(self, report: Mapping[str, Mapping[str, Any]]) -> None:
        """Add the counts of an actor's wrappers: plain numbers are summed."""
        for wrapper, counts in report.items():
            self.counts.update({f"{wrapper}/{name}": n for name, n in counts.items() if isinstance(n, Real)})

    def episodes(self, spec: EnvSpec) -> dict[str, float]:
        """Means over the latest episodes, and achievements in all of them; empty if none has ended yet."""
        if not self.recent:
            return {}
        total, solved, length, kind, away = (np.array(column) for column in zip(*self.recent, strict=True))
        found = {
            "charts/episodic_return": float(total.mean()),
            "charts/success_rate": float(solved.mean()),
            "charts/episodic_length": float(length.mean()),
        } | {f"success/{spec.task_kinds[k]}": float(solved[kind == k].mean()) for k in np.unique(kind)}
        if self.goals:
            found |= {"goals/away": float(away.mean())} | {f"goals/{name}": x for name, x in shares(self.goals).items()}
        return found | self.achieved.row(spec)

    def speed(self, env_steps: int, actors: int) -> dict[str, Any]:
        """Env steps per second, shares of time, and the bottleneck, since the last row; begins the next one."""
        seconds = max(time.monotonic() - self._at, 1e-6)
        steps = env_steps - self._env_steps
        parts = {
            "time/env": self.busy["env"] / seconds / actors,
            "time/policy": self.busy["policy"] / seconds / actors,
            "time/learner": self.busy["learner"] / seconds,
        }
        acting = parts["time/env"] + parts["time/policy"]
        timed = {name.removesuffix("/seconds"): n for name, n in self.counts.items() if name.endswith("/seconds")}
        parts |= {f"time/{wrapper}": n / seconds / actors for wrapper, n in timed.items()}  # `time/env` is part of this
        row: dict[str, Any] = {"charts/SPS": steps / seconds} | parts | self.counts
        if acting > 0:  # there may be no chunk since the last row
            row["charts/SPS_sampling"] = steps / (acting * seconds)
        row["charts/SPS_learning"] = steps / max(self.busy["learner"], 1e-6)
        row["bottleneck"] = "learner" if parts["time/learner"] > acting else "env"
        self.begin(env_steps)
        return row


def add(total: Counts, more: Mapping[str, Sequence[int]]) -> None:
    """Add `more` to `total`."""
    for goal, row in more.items():
        total[goal] = [a + b for a, b in zip(total.get(goal, [0] * len(COUNTS)), row, strict=True)]


def shares(counts: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """Shares over all goals, each in [0, 1]; a share with denominator 0 is left out.

    good, early, senseless: shares of the suggestions.
    achieved_if_told: share of an episode's given goals that were rewarded in it; P(achieved | suggested).
    told_if_possible: share of the sensible goals that were given; P(suggested | oracle).
    """
    rows = np.array(list(counts.values()), np.int64).reshape(-1, len(COUNTS))
    sums = dict(zip(COUNTS, rows.sum(0).tolist(), strict=True))
    told = sums["good"] + sums["early"] + sums["senseless"]
    of = {name: (sums[name], told) for name in ("good", "early", "senseless")}
    of["achieved_if_told"] = sums["episodes_paid"], sums["episodes_told"]
    of["told_if_possible"] = sums["possible_told"], sums["possible"]
    return {name: part / whole for name, (part, whole) in of.items() if whole}


def table(counts: Mapping[str, Sequence[int]]) -> list[dict[str, float | str]]:
    """One row per goal with its counts by name, the most rewarded first."""
    paid = COUNTS.index("paid")
    order = sorted(counts, key=lambda goal: (-counts[goal][paid], -sum(counts[goal]), goal))
    return [{"goal": goal} | dict(zip(COUNTS, counts[goal], strict=True)) for goal in order]
