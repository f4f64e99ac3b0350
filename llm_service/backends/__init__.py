"""What answers: one module each, found by name.

A backend module publishes

    Config                             a `Part`: its own options, with defaults
    make(config, world) -> Backend     raises `UsageError` with one sentence if it cannot work as configured
    check(config)                      the same, without loading anything; only where `make` is slow

and its `Backend` answers batches. `llm.name=NAME` chooses one; its options stand beside it (`llm.model=...`).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from typing import Any, Protocol

from llm_service.errors import BackendError
from llm_service.records import Call, Reply, Verb


class Backend(Protocol):
    """Answers batches of calls. Who subclasses it is free of charge, in this process and always well, or says more."""

    model: str
    """Which model with which weights answers: part of every key. New weights, new name."""
    verbs: frozenset[Verb]
    """What it can do; the service refuses the rest before any call."""
    max_batch: int
    """Most calls in one batch."""
    concurrency: int
    """Batches that it serves at once: 1 for a model in this process, many for a hosted one."""
    bucket_ratio: float | None = None
    """In one batch the longest prompt is at most this many times the shortest; None: lengths do not matter."""
    paid: bool = False
    """Whether calls cost money: then they are priced, and embeddings are journalled too."""

    async def answer(self, calls: Sequence[Call]) -> list[Reply | BackendError]:
        """One reply or error for each call, in order. All calls have the same verb and parameters.

        Raises:
            BackendError: the whole batch failed.
        """

    def estimate(self, call: Call) -> tuple[int, int]:
        """(prompt tokens, most completion tokens) that the call would use; an estimate, rather too high."""

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Dollars."""
        return 0.0

    async def probe(self) -> Call | None:
        """Do a smallest piece of real work that is free; where there is none, return the call that would do it.

        The service then sends that call like any other, within its caps. Raises BackendError if it does not work.
        """
        return None

    async def close(self) -> None:
        """Let go of connections and memory."""
        return None


def names() -> list[str]:
    """Names of all backend modules, sorted."""
    return sorted(found.name for found in pkgutil.iter_modules(__path__))


def module(name: str) -> Any:
    """The module of a backend; KeyError if there is none."""
    if name not in names():
        raise KeyError(name)
    return importlib.import_module(f"llm_service.backends.{name}")
