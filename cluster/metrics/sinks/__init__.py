"""Sinks: where a run's numbers go besides `metrics.jsonl`. One module each, found by name.

A module publishes

    make(run) -> Sink   `run` is a `Followed`
    missing() -> str    where it needs an extra: what to do if that is not installed, empty if it is

`run.sinks=[NAME,...]` chooses the modules; nothing else names them. A sink is called with every row of `metrics.jsonl`
once the row is on disk, and with what is no row: current values (kind `now`), the results of a finished stage
(`results`), and how the run ended (`end`, with a `state`: done, stopped or crashed). The last two methods of
`cluster.metrics.rows.Metrics` are passed on to a sink that has them: `end(hurried)` and `close()`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from learner.room import Room

Sink = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Followed:
    """A run, as its sinks see it."""

    name: str
    folder: Path  # the run's folder
    config: dict[str, Any]  # the resolved configuration, by dotted keys; it holds no secret
    tags: dict[str, str]  # method, experiment and seed
    note: Callable[[str], None]  # prints and logs a line; any thread may call it


SINKS = Room[Any](__name__)  # of modules
names, sink = SINKS.names, SINKS.get


def missing(name: str) -> str:
    """What to do where packages are missing that the sink needs; empty where all are there."""
    module = sink(name)
    return str(module.missing()) if hasattr(module, "missing") else ""


def numbers(row: dict[str, Any]) -> dict[str, float]:
    """What a row holds for curves over `env_steps`, by name. All of an evaluation's numbers count."""
    evaluation = row["kind"] == "evaluate"
    return {
        key if "/" in key else f"evaluate/{key}": float(value)
        for key, value in row.items()
        if ("/" in key or evaluation) and isinstance(value, int | float) and not isinstance(value, bool)
    }
