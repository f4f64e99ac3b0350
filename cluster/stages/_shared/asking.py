"""Asking a language model from a stage: immediately, or as jobs that outlive the stage.

    ask            questions ──> client ──> answers; late questions are asked again
    ask_durably    questions ──> queue in runs/<name>/llm ──> answers; a stage that was killed finds its jobs again

Both pay for a question once, because the journal keeps the reply whatever is killed. Use jobs for many questions: the
service works on them by itself, as many at once as its model allows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from actors.language import PASSING, PAUSE_S
from cluster.runs.stage import Run
from llm_service.errors import AwayTooLong, BudgetExhausted
from llm_service.interface import LLMClient
from llm_service.pipeline import journal
from llm_service.records import Answer, Status

LOOK_S = 1.0
"""Seconds between two checks of pending jobs."""
SHARE = 1000
"""Questions in one request."""
PROBE = 64
"""How many stuck jobs are asked directly, to find out why."""
DEADLINE_S = 4.0
"""Seconds of one request about jobs: between two, the service is checked and restarted if it died, and the run may be
asked to stop."""
LATE = (*PASSING, Status.EXPIRED)


def ask(run: Run, task: str, items: list[dict[str, Any]], sample: int = 0) -> list[Answer]:
    """Answers of a language model. Questions without an answer are asked again, as long as some answers arrive.

    If the run is asked to stop, some may have no answer.

    Raises:
        BudgetExhausted: no more may be spent.
        AwayTooLong: for as long as the run will wait, no answer came.
    """
    assert run.language is not None, "a stage that asks has a service"
    language = run.language.setup
    with language.client(task, "wait") as client:
        answers = _ask(run, client, task, items, sample)
        patience = _Patience(language.patience_s, len(items))
        while not run.stop.reason:
            missing = [i for i, answer in enumerate(answers) if answer.status in LATE]
            if not missing:
                break
            patience.look(len(missing), answers[missing[0]].reason)
            run.look_after()
            time.sleep(PAUSE_S)
            again = _ask(run, client, task, [items[i] for i in missing], sample)
            for i, answer in zip(missing, again, strict=True):
                answers[i] = answer
    _assert_paid(answers)
    return answers


def _ask(run: Run, client: LLMClient, task: str, items: list[dict[str, Any]], sample: int) -> list[Answer]:
    """A client's answers. They may take minutes: if the run is asked to stop, late questions get no answer."""
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(client.ask, task, items, sample=sample)
        while not wait([asked], LOOK_S).done and not run.stop.reason:
            pass
        if not asked.done():
            client.close()  # callers that wait there learn at once that it is away
        return asked.result()


def ask_durably(run: Run, task: str, items: list[dict[str, Any]], tell: Callable[[int], None]) -> list[Answer] | None:
    """Answers of a language model, as jobs of the durable lane; None if the run is asked to stop, with all jobs kept.

    If the queue is full, this waits. Jobs that were given up have the status DEAD, and senseless answers MALFORMED,
    with the reason. A service without a queue refuses with one sentence; every service that a run starts has a queue.

    Args:
        tell: called from time to time with the number of answers so far.

    Raises:
        BudgetExhausted: no more may be spent.
        AwayTooLong: for as long as the run will wait, no answer came.
    """
    assert run.language is not None, "a stage that asks has a service"
    language = run.language.setup
    with language.client(task, "wait") as client:
        client.deadline = DEADLINE_S
        jobs = _Jobs(client, task, items)
        patience, moved = _Patience(language.patience_s, len(items)), True
        while not run.stop.reason:
            run.look_after()
            jobs.submit()
            before = len(jobs.missing)
            jobs.fetch()
            tell(len(items) - len(jobs.missing))
            if not jobs.missing:
                return jobs.answers
            stuck = (
                not moved and len(jobs.missing) == before
            )  # stuck for two checks: a direct call says why, or answers
            if stuck and (trouble := jobs.probe()):
                patience.look(len(jobs.missing), trouble)
            moved = len(jobs.missing) < before
    return None


def costs(folder: Path, tasks: Iterable[str]) -> dict[str, dict[str, float]]:
    """What was paid for in a folder of the service, by task: calls, tokens, dollars. Empty if another service was used.

    Retries and lost calls are only in the ledger, not here.
    """
    path = folder / "journal.jsonl"
    counted = ("prompt_tokens", "completion_tokens", "dollars")
    if not path.exists():
        return {}
    found: dict[str, dict[str, float]] = {task: dict.fromkeys(("calls", *counted), 0) for task in tasks}
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break  # it is still being written
            record = journal.parse(line, path, number)
            if record["task"] in found:
                of = found[record["task"]]
                of["calls"] += 1
                for name in counted:
                    of[name] += record[name]
    return found


class _Jobs:
    """Questions in the queue, and their answers so far."""

    def __init__(self, client: LLMClient, task: str, items: list[dict[str, Any]]) -> None:
        self._client, self._task, self._items = client, task, items
        self._keys = [""] * len(items)  # keys of accepted jobs
        self.answers = [Answer(Status.PENDING)] * len(items)
        self.missing = list(range(len(items)))

    def submit(self) -> None:
        """Submit questions that are not in the queue yet, as many as there is room for."""
        waiting = [i for i in self.missing if not self._keys[i]]
        for begin in range(0, len(waiting), SHARE):
            part = waiting[begin : begin + SHARE]
            keys, statuses = self._client.submit(self._task, [self._items[i] for i in part])
            for i, key, status in zip(part, keys, statuses, strict=True):
                if status is Status.REFUSED:
                    self.answers[i] = Answer(status, reason="the service refused the question")
                elif status not in LATE:
                    self._keys[i] = key
            if any(status in LATE for status in statuses):
                break  # full, or unavailable
        self._count()

    def fetch(self) -> None:
        """Take the available answers, after waiting a moment for some."""
        asked = [i for i in self.missing if self._keys[i]][:SHARE]  # oldest first, the order in which they are answered
        if not asked:
            time.sleep(LOOK_S)
            return
        for i, answer in zip(asked, self._client.fetch([self._keys[i] for i in asked], LOOK_S), strict=True):
            if answer.status is Status.MISSING:  # a lost queue is filled again
                self._keys[i] = ""
            elif answer.status not in (*LATE, Status.PENDING):
                self.answers[i] = answer
        self._count()

    def probe(self) -> str:
        """Ask some pending questions directly. Returns why the model gives no answer; "" if it does, or works on them.

        Raises:
            BudgetExhausted: no more may be spent.
        """
        some = self.missing[:PROBE]
        answers = self._client.ask(self._task, [self._items[i] for i in some])
        _assert_paid(answers)
        for i, answer in zip(some, answers, strict=True):
            if answer.status not in LATE:
                self.answers[i] = answer
        self._count()
        return next((answer.reason for answer in answers if answer.status in PASSING), "")

    def _count(self) -> None:
        self.missing = [i for i in self.missing if self.answers[i].status is Status.PENDING]


class _Patience:
    """How long a run waits while no answer arrives."""

    def __init__(self, seconds: float, questions: int) -> None:
        self._seconds, self._fewest, self._ends = seconds, questions + 1, 0.0

    def look(self, missing: int, reason: str) -> None:
        """Record how many answers are missing now.

        Raises:
            AwayTooLong: the number has not changed for `seconds`.
        """
        if missing < self._fewest:
            self._fewest, self._ends = missing, time.monotonic() + self._seconds
        elif time.monotonic() > self._ends:
            raise AwayTooLong(f"the language model gave no answer: {reason}")


def _assert_paid(answers: Iterable[Answer]) -> None:
    for answer in answers:
        if answer.status is Status.BUDGET:
            raise BudgetExhausted(f"the language model may not be asked any more: {answer.reason}")
