"""Backends that answer: one module each, found by name.

A backend module publishes

    Config                             a `Part`: its own options, with defaults
    make(config, world) -> Backend     raises `UsageError` with one sentence if it cannot work as configured
    check(config)                      the same, without loading anything; only where `make` is slow

and its `Backend` answers batches. `llm.name=NAME` selects one; its options are next to the name (`llm.model=...`).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from typing import Any, Protocol

from llm_service.errors import BackendError
from llm_service.records import Call, Option, Reply, Verb


class Backend(Protocol):
    """Answers batches of calls. By default a subclass is free of charge, in this process and always healthy."""

    model: str
    """Name of the model and its weights: part of every key. New weights need a new name."""
    verbs: frozenset[Verb]
    """Verbs that it supports; the service refuses others before any call."""
    max_batch: int
    """Maximum number of calls in one batch."""
    concurrency: int
    """Number of batches that it serves at once: 1 for a model in this process, many for a hosted one."""
    bucket_ratio: float | None = None
    """Maximum ratio of the longest to the shortest prompt in a batch; None: lengths do not matter."""
    paid: bool = False
    """Whether calls cost money: then they are priced, and embeddings are also in the journal."""
    options: frozenset[Option] = frozenset()
    """Options of `generate` that it supports; the service refuses others before any call."""

    async def answer(self, calls: Sequence[Call]) -> list[Reply | BackendError]:
        """One reply or error for each call, in order. All calls have the same verb and parameters.

        A backend that makes its replies piece by piece tells `call.heard`; others need not.

        Raises:
            BackendError: the whole batch failed.
        """

    def estimate(self, call: Call) -> tuple[int, int]:
        """(prompt tokens, maximum completion tokens) of the call; an estimate that tends to be too high."""

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Dollars."""
        return 0.0

    async def probe(self) -> Call | None:
        """Do a minimal piece of real work for free; if that is impossible, return a call that would do it.

        The service then sends that call like any other, within its caps. Raises BackendError if the work fails.
        """
        return None

    async def close(self) -> None:
        """Release connections and memory."""
        return None


def names() -> list[str]:
    """Names of all backend modules, sorted."""
    return sorted(found.name for found in pkgutil.iter_modules(__path__))


def module(name: str) -> Any:
    """The module of a backend; KeyError if there is none."""
    if name not in names():
        raise KeyError(name)
    return importlib.import_module(f"llm_service.backends.{name}")
