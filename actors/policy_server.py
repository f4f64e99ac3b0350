"""One language model for many actors: they ask about states, it answers in batches while the learner learns.

    actor ── answer(version, questions) ──┐
    actor ── answer(version, questions) ──┼──> the first call computes for all that wait ──> logits, values
    controller ── load(version, weights) ─┘

Calls run in threads. One of them computes at a time; others collect meanwhile, and the next one computes for all that
name the same weights: the busier the model, the larger its batches, and no call waits for a timer. In `sync` mode each
call is computed alone, because the last bits of a score depend on the rest of the batch.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from envs.api import EnvSpec
from learner.group import build_policy
from learner.models.config import PolicyConfig
from learner.models.language.llm_policy import LanguagePolicy
from learner.models.language.meter import Meter
from learner.models.language.prompter import Asked
from learner.models.weights import Versions, Weights
from learner.optim.gpu import readings

KEPT = 4
"""Number of recently used versions of the weights to keep: actors and evaluations may be a few versions behind."""
PATIENCE_S = 120.0
"""Seconds that a question may wait for its version of the weights."""

Answer = tuple[NDArray[np.float32], NDArray[np.float32], int]
"""Logits [B, A] and values [B] of B states, and the version of the weights that they are by."""


@dataclass(eq=False)
class _Call:
    version: int
    asked: Sequence[Asked]
    answer: Future[Answer] = field(default_factory=Future)


class PolicyServer:
    """A role. Many threads may call `answer` at once."""

    concurrency: ClassVar[int] = 256

    def __init__(self, config: PolicyConfig, spec: EnvSpec, seed: int, alone: bool) -> None:
        """From the learner's policy; `alone`: no two calls are computed together."""
        torch.set_num_threads(1)
        policy = build_policy(config, spec, seed)
        assert isinstance(policy, LanguagePolicy)
        policy.eval()
        self._policy, self._alone, self._newest = policy, alone, config.lm.newest
        self._weights: OrderedDict[int, Weights] = OrderedDict()
        self._versions = Versions(policy, policy.payload)
        self._arrived = threading.Condition()  # guards the weights and the waiting calls
        self._turn = threading.Lock()  # to compute
        self._waiting: list[_Call] = []
        self._answered, self._batches, self._began = 0, 0, time.monotonic()
        self._meter, self._speed = Meter(policy), dict[str, float]()  # of the last batch

    def load(self, version: int, weights: Weights) -> None:
        """Store the weights of a version."""
        with self._arrived:
            self._weights[version] = weights
            while len(self._weights) > KEPT:
                self._weights.popitem(last=False)
            self._arrived.notify_all()

    def answer(self, version: int, asked: Sequence[Asked]) -> Answer:
        """Logits [B, A] and values [B] of B states, with the weights of `version`, or with the newest ones that are not
        older (`policy.lm.newest`).

        Raises:
            LookupError: these weights did not arrive, or were dropped.
        """
        call = _Call(version, asked)
        with self._arrived:
            there = self._weights
            if not self._arrived.wait_for(lambda: version in there or self._newer(version), PATIENCE_S):
                raise LookupError(f"the policy server has no weights of version {version}: it has {[*there]}")
            call.version = max(there) if self._newest else version
            there.move_to_end(call.version)
            self._waiting.append(call)
        with self._turn:
            if not call.answer.done():  # by an earlier call
                self._compute(self._together(call))
        return call.answer.result()

    def _newer(self, version: int) -> bool:
        """Whether a question about `version` may be answered with other weights that are here."""
        return self._newest and max(self._weights, default=-1) >= version

    def heartbeat(self) -> dict[str, Any]:
        done = {"states": self._answered, "batches": self._batches}
        return {"phase": "answer", "seconds": time.monotonic() - self._began, "pid": os.getpid()} | done

    def numbers(self) -> dict[str, float]:
        """Its counters, named as in `cluster.metrics.table.POLICY`; any thread may call this."""
        done = {"states": self._answered, "batches": self._batches, "tokens": self._meter.tokens}
        numbers = done | self._speed | readings(self._policy.device)
        return {f"policy/{key}": float(value) for key, value in numbers.items()}

    def _together(self, call: _Call) -> list[_Call]:
        """The calls to compute with this one; they are removed from the waiting ones."""
        with self._arrived:
            chosen = [c for c in self._waiting if c is call or (c.version == call.version and not self._alone)]
            self._waiting = [c for c in self._waiting if c not in chosen]
            return chosen

    def _compute(self, calls: list[_Call]) -> None:
        version = calls[0].version
        try:
            self._versions.use(version, self._weights[version])
            began = time.perf_counter()
            logits, values = self._policy.answer([question for call in calls for question in call.asked])
            self._speed = self._meter.lap(time.perf_counter() - began)
        except Exception as error:  # each caller gets the error, whatever it is
            for call in calls:
                call.answer.set_exception(error)
            return
        ends = np.cumsum([len(call.asked) for call in calls])[:-1]
        parts = zip(calls, np.split(logits.numpy(), ends), np.split(values.numpy(), ends), strict=True)
        for call, some, judged in parts:
            call.answer.set_result((some, judged, version))
        self._answered, self._batches = self._answered + len(logits), self._batches + 1
