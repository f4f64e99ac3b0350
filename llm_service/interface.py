"""The interface for callers: `llm_service.client.Client` implements it for a service in another process.

Whatever happens to an item becomes its answer's status: only misuse raises.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from llm_service import tasks
from llm_service.errors import ServiceError
from llm_service.records import Answer, Ask, Parameters, Status, Verb

P = ParamSpec("P")
T = TypeVar("T")


class Unanswered(ServiceError):
    """There is no answer, but the caller asked for bare values."""


class LLMClient(AbstractContextManager["LLMClient"]):
    """The interface for callers, usable from any thread and in a `with` statement.

    Args:
        caller: the caller's name, for limits and statistics.
        deadline: default time limit of a call, seconds.
    """

    def __init__(self, caller: str = "", deadline: float = 60.0) -> None:
        self.caller, self.deadline = caller, deadline
        self._threads = ThreadPoolExecutor(256, "llm-client")  # created only when needed

    @abstractmethod
    def answer(self, ask: Ask) -> list[Answer]:
        """One answer for each item, in order. Raises UsageError: unknown task, bad parameters."""

    @abstractmethod
    def accept(self, ask: Ask) -> tuple[list[str], list[Status]]:
        """Submit durable work: for each item its key, "" if it was not accepted, and a status that says why."""

    @abstractmethod
    def fetch(self, keys: Sequence[str], wait_s: float = 0.0) -> list[Answer]:
        """Answers of durable work, PENDING if there is none after `wait_s` seconds."""

    @abstractmethod
    def health(self) -> tuple[bool, str]:
        """Whether the service works, and the reason."""

    @abstractmethod
    def stats(self) -> dict[str, float]:
        """Counters and gauges by name. Raises ServiceError if the service is unavailable."""

    def generate(
        self,
        contents: Sequence[str],
        task: str = "",
        parameters: Parameters | None = None,
        sample: int = 0,
        deadline: float | None = None,
    ) -> list[Answer]:
        """Answers of a model to raw prompts, or of a task to its inputs as JSON."""
        return self.answer(self._ask("generate", contents, deadline, task=task, parameters=parameters, sample=sample))

    def score(
        self,
        prompts: Sequence[str],
        candidates: Sequence[str] | Sequence[Sequence[str]],
        parameters: Parameters | None = None,
        deadline: float | None = None,
    ) -> list[Answer]:
        """Log-probabilities of candidates after each prompt: one list of candidates for all, or a list of lists."""
        words = tuple(entry for entry in candidates if isinstance(entry, str))
        sets = (words,) if words else tuple(tuple(entry) for entry in candidates)
        return self.answer(self._ask("score", prompts, deadline, candidates=sets, parameters=parameters))

    def embed(self, texts: Sequence[str], deadline: float | None = None) -> NDArray[np.float32]:
        """Unit-length vectors, float32 [N, D]; `answer` gives them one by one, with their statuses.

        Raises:
            Unanswered: a text has no vector.
        """
        answers = self.answer(self._ask("embed", texts, deadline))
        for i, answer in enumerate(answers):
            if not answer.ok:
                raise Unanswered(f"text {i} has no vector: {answer.status.name.lower()}: {answer.reason}")
        if not answers:
            return np.zeros((0, 0), np.float32)
        return np.frombuffer(b"".join([a.payload for a in answers]), "<f4").reshape(len(answers), -1)

    def ask(
        self,
        task: str,
        items: Iterable[Mapping[str, Any]],
        parameters: Parameters | None = None,
        sample: int = 0,
        deadline: float | None = None,
    ) -> list[Answer]:
        """Answers of a task to its inputs. Raises UsageError: unknown task, or invalid inputs."""
        return self.generate(tasks.contents(task, items), task, parameters, sample, deadline)

    def submit(
        self,
        task: str,
        items: Iterable[Mapping[str, Any]],
        parameters: Parameters | None = None,
        sample: int = 0,
        deadline: float | None = None,
    ) -> tuple[list[str], list[Status]]:
        """`ask` as durable work: keys for `fetch`, and statuses, as from `accept`."""
        contents = tasks.contents(task, items)
        return self.accept(self._ask("generate", contents, deadline, task=task, parameters=parameters, sample=sample))

    def later(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a method in the background: `client.later(client.generate, prompts)`."""
        return self._threads.submit(method, *args, **kwargs)

    def close(self) -> None:
        """Close the client. Calls in flight get AWAY answers."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _ask(self, verb: Verb, contents: Sequence[str], deadline: float | None, **further: Any) -> Ask:
        seconds = self.deadline if deadline is None else deadline
        return Ask(verb, tuple(contents), caller=self.caller, deadline=seconds, **further)
