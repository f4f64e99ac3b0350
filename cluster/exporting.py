"""Numbers of roles to Prometheus, by Ray: the only place that knows Ray's metrics.

    role.numbers() ── in its own process, every 2 s ──> `Exporter` ──> gauges ──> Ray's agent ──> /metrics: ray_NAME
    controller: rows and what is true now ──> `Shown` ──────^

A role that has numbers says so by a method, `numbers() -> {key: float}`, that may be called from another thread; it
knows nothing of Ray. All metrics travel as gauges, those that only grow as well: a counter of Ray's is not there
before its first increment, and an increase that begins with the series is not seen. Ray forgets a gauge that is not
set anew within two of its intervals (10 s each), so a role that is gone is gone from Prometheus too.

Limit: what was counted in the last seconds before a process is killed is not seen.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

from cluster.metrics import TABLE

EVERY_S = 2.0
"""Seconds between two looks at a role's numbers."""
PREFIX = "ray_"
"""What Ray puts before every name."""


class Exporter:
    """Sets gauges from numbers, again and again, in a thread of this process, which must be part of a Ray.

    Args:
        run, worker: values of these labels.
        read: the numbers; called from the thread.
    """

    def __init__(self, run: str, worker: str, read: Callable[[], Mapping[str, Any]]) -> None:
        self._run, self._worker, self._read = run, worker, read
        self._gauges: dict[str, Any] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Set nothing any more."""
        self._end.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._end.wait(EVERY_S):
            self._set(self._read())

    def _set(self, numbers: Mapping[str, Any]) -> None:
        from ray.util.metrics import Gauge

        for metric in TABLE:
            for further, value in metric.read(numbers):
                if metric.name not in self._gauges:
                    self._gauges[metric.name] = Gauge(metric.name, metric.help, metric.labels)
                own = {"run": self._run, "role": metric.role, "worker": self._worker}
                self._gauges[metric.name].set(value, own | further)


class Shown:
    """A sink of `Metrics`: what it was last told of each key is exported until it is closed."""

    def __init__(self, run: str) -> None:
        self._latest: dict[str, Any] = {}
        self._exporter = Exporter(run, "0", self._latest.copy)

    def __call__(self, row: dict[str, Any]) -> None:
        if row["kind"] != "evaluate":  # its success is of other episodes, and its steps are past
            self._latest.update(row)

    def close(self) -> None:
        """Export nothing any more."""
        self._exporter.close()


def exporting(cls: type[Any], name: str, run: str) -> type[Any]:
    """A class like `cls`, which exports its numbers from when it is built; `cls` itself if it has none.

    name: of the role that will be of this class, as in actor-3.1; its first number is the label `worker`.
    """
    if not hasattr(cls, "numbers"):
        return cls
    numbered = re.search(r"\d+", name)
    worker = numbered[0] if numbered else "0"

    class Exporting(cls):  # type: ignore[misc]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self._exporter = Exporter(run, worker, self.numbers)

    Exporting.__name__, Exporting.__qualname__ = cls.__name__, cls.__qualname__  # what Ray's dashboard shows
    return Exporting
