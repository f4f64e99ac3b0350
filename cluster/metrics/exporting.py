"""Heartbeats and metrics of roles, through Ray: numbers for Prometheus, and each role's state for the controller.

    role.numbers() ─┬─ in its own process, every 4 s ──> `Exporter` ──> gauges ──> Ray's agent ──> /metrics: ray_NAME
    role.heartbeat() ┘                                       └──> a row of Ray's head ──> `beats` of many in one request
    controller: rows and current values ──> `Shown` ────────^

A role offers them as methods that another thread may call, `numbers() -> {key: float}` and `heartbeat() -> {key:
value}` for JSON; it knows nothing about Ray. Heartbeats are sent, not requested: an actor that can answer requests
while it works needs Ray threads, and then its main thread wakes a hundred times a second.

All metrics are gauges, even those that only grow: a Ray counter does not exist before its first increment, and
Prometheus does not see an increase at the start of a series. Ray drops a gauge that is not set again within two of its
intervals (10 s each), so the metrics of a dead role expire in Prometheus too.

Limit: counts from the last seconds before a process is killed are lost.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cluster.metrics.table import TABLE

EVERY_S = 4.0
"""Seconds between two readings of a role."""
BEATS = b"cairn heartbeats"
"""The heartbeats' namespace among the rows of Ray's head."""
HEAD_S = 2.0
"""Seconds that Ray's head may take for one request."""
GROWN_S = 600.0
"""An attempt that has lived for so long is missed if it vanishes: an alert, unless its end was seen."""
SEEN_S = 30.0
"""How long Prometheus may take to see a number: `EVERY_S`, Ray's 10 s, and 15 s between two scrapes."""
PREFIX = "ray_"
"""Ray's prefix of every metric name."""


class Exporter:
    """Sets gauges from numbers repeatedly, in a thread of this process, which must have joined a Ray cluster.

    Args:
        run, worker: values of these labels.
        read: the numbers; called from the thread.
        beat: called in the same thread before `read`.
    """

    def __init__(
        self, run: str, worker: str, read: Callable[[], Mapping[str, Any]], beat: Callable[[], None] | None = None
    ) -> None:
        self._run, self._worker, self._read, self._beat = run, worker, read, beat
        self._gauges: dict[str, Any] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop setting gauges."""
        self._end.set()
        self._thread.join()

    def _loop(self) -> None:
        while True:
            if self._beat:
                self._beat()
            if self._end.wait(EVERY_S):
                return
            self._set(self._read())

    def _set(self, numbers: Mapping[str, Any]) -> None:
        from ray.util.metrics import Gauge

        for metric in TABLE:
            for further, value in metric.read(numbers):
                if metric.name not in self._gauges:
                    self._gauges[metric.name] = Gauge(metric.name, metric.help, metric.labels)
                own = {"run": self._run, "role": metric.role, "worker": self._worker}
                self._gauges[metric.name].set(value, own | further)


class Shown(Exporter):
    """A sink of `Metrics`: what it was last told of each key is exported until it is closed.

    A run that dies takes its metrics along, and so does one that ends. What tells them apart must be seen before: with
    `own`, times of start and end are exported, and `end` waits until they are.

    own: whether the run's life is this process's; False beside a run.
    """

    def __init__(self, run: str, own: bool = True) -> None:
        self._latest: dict[str, Any] = {}
        self._life = {"started": time.time(), "ended": 0.0} if own else {}
        super().__init__(run, "0", self._now)

    def __call__(self, row: dict[str, Any]) -> None:
        if row["kind"] not in ("evaluate", "language", "results", "end"):  # other episodes, steps that are past
            self._latest.update(row)
        if row["kind"] in ("search", "fit"):  # a training tells this itself, also before its first row
            self._latest.update(advancing=1.0, last_update=time.time())

    def end(self, hurried: Callable[[], bool]) -> None:
        """The run has ended by itself, or as asked. If it would be missed, wait until that was seen, or `hurried`."""
        if not self._life:
            return
        now = self._life["ended"] = time.time()
        while now - self._life["started"] > GROWN_S and time.time() - now < SEEN_S and not hurried():
            time.sleep(0.1)

    def _now(self) -> dict[str, Any]:
        return self._latest | self._life | ({"alive": time.time()} if self._life else {})


def exporting(cls: type[Any], name: str, run: str) -> type[Any]:
    """A subclass of `cls` that exports its numbers and heartbeat once it is built; `cls` itself if it has neither.

    name: the role's name, such as actor-3.1; its first number is the label `worker`.
    """
    if not hasattr(cls, "numbers") and not hasattr(cls, "heartbeat"):
        return cls
    worker = next(iter(re.findall(r"\d+", name)), "0")

    class Exporting(cls):  # type: ignore[misc]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            beat = (lambda: _tell(self.heartbeat())) if hasattr(self, "heartbeat") else None
            self._exporter = Exporter(run, worker, getattr(self, "numbers", dict), beat)

    Exporting.__name__, Exporting.__qualname__ = cls.__name__, cls.__qualname__  # shown on Ray's dashboard
    return Exporting


def _tell(beat: dict[str, Any]) -> None:
    """Write this actor's row."""
    import ray

    actor = ray.get_runtime_context().get_actor_id()
    assert actor is not None, "only actors have heartbeats"
    with contextlib.suppress(ray.exceptions.RpcError):  # the head is unreachable: the next heartbeat will do
        _head().internal_kv_put(actor.encode(), json.dumps(beat).encode(), True, BEATS, HEAD_S)


def beats(actors: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The last heartbeat of each actor that has sent one, by its Ray id; empty if Ray's head is unreachable."""
    import ray

    try:
        rows = _head().internal_kv_multi_get([actor.encode() for actor in actors], BEATS, HEAD_S)
    except ray.exceptions.RpcError:
        return {}
    return {actor.decode(): json.loads(row) for actor, row in rows.items()}


def forget(actor: str) -> None:
    """Delete the row of an actor that is gone: a cluster may outlive many actors."""
    import ray

    with contextlib.suppress(ray.exceptions.RpcError):
        _head().internal_kv_del(actor.encode(), False, BEATS, 1.0)  # the caller may have many rows to delete


def _head() -> Any:
    from ray.experimental import internal_kv

    return internal_kv.internal_kv_get_gcs_client()  # type: ignore[no-untyped-call]
