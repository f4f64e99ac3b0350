"""How often a captioner is right, fact by fact, event by event, and sentence by sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.api import VectorEnv

NIGHT = "night"
"""The fact that divides the tables."""
Numbers = NDArray[np.int64]


class Accuracy:
    """Counts over pairs of what is true and what was predicted.

    Args:
        env: whose sentences are compared; its spec names the facts.
        events: names of events.
    """

    def __init__(self, env: VectorEnv, events: Sequence[str]) -> None:
        self._env, self._kinds, self._events = env, env.env_spec.facts, events
        self._true: list[Numbers] = []
        self._said: list[Numbers] = []

    def add(self, facts: Numbers, event: Numbers, said_facts: Numbers, said_event: Numbers) -> None:
        """States [n, F] and the events [n] that led to them: true, and predicted."""
        self._true.append(np.concatenate([facts, event[:, None]], 1))
        self._said.append(np.concatenate([said_facts, said_event[:, None]], 1))

    def table(self) -> dict[str, Any]:
        """By `all`, `day` and `night` where there is such a fact: see `_table`."""
        true, said = np.concatenate(self._true), np.concatenate(self._said)
        names = [kind.name for kind in self._kinds]
        found = {"all": self._table(true, said)}
        if NIGHT in names:
            dark = true[:, names.index(NIGHT)] > 0
            for name, rows in (("day", ~dark), ("night", dark)):
                if rows.any():
                    found[name] = self._table(true[rows], said[rows])
        return found

    def _table(self, true: Numbers, said: Numbers) -> dict[str, Any]:
        """
        states: their number.
        facts, events: by name, `times` it was true, `precision` and `recall`, None where there is none to divide by.
        values: by name of a fact with several values, the share of states in which it is right.
        exact: by kind of sentence, and for events, the share that is exactly right; `constant`: the same where the
            most frequent value of every fact, or event, is always predicted.
        """
        flags = [(column, kind) for column, kind in enumerate(self._kinds) if kind.size == 2]
        guess = np.stack([_most_frequent(column) for column in true.T])[None].repeat(len(true), 0)
        return {
            "states": len(true),
            "facts": {kind.name: _scores(true[:, c] > 0, said[:, c] > 0) for c, kind in flags},
            "values": {
                kind.name: float((true[:, c] == said[:, c]).mean())
                for c, kind in enumerate(self._kinds)
                if kind.size > 2
            },
            "events": {
                name: _scores(true[:, -1] == number, said[:, -1] == number) for number, name in enumerate(self._events)
            },
            "exact": dict(self._exact(true, said)),
            "constant": dict(self._exact(true, guess)),
        }

    def _exact(self, true: Numbers, said: Numbers) -> Iterator[tuple[str, float]]:
        told = self._env.tell(said[:, :-1])
        for name, right in self._env.tell(true[:, :-1]).items():
            yield name, float((right == told[name]).mean())
        yield "event", float((true[:, -1] == said[:, -1]).mean())


def _most_frequent(values: Numbers) -> int:
    return int(np.bincount(values).argmax())


def _scores(true: NDArray[np.bool_], said: NDArray[np.bool_]) -> dict[str, float | int | None]:
    right = int((true & said).sum())
    times, claims = int(true.sum()), int(said.sum())
    return {
        "times": times,
        "precision": right / claims if claims else None,
        "recall": right / times if times else None,
    }


def spoken(exact: dict[str, float]) -> str:
    """A line of the shares that are exactly right."""
    return ", ".join(f"{name} {share:.1%}" for name, share in exact.items())
