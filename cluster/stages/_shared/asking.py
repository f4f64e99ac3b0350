"""Asking a language model from a stage: at once, or as jobs that outlive it.

    ask            questions ──> door ──> answers; what the model is late for is asked again
    ask_durably    questions ──> queue in runs/<name>/llm ──> answers; a stage that was killed finds its jobs again

Either pays for a question once: the journal has the reply, whoever was killed since. Jobs are for many questions: the
service works on them by itself, as many at once as its model takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from actors.language import PASSING, PAUSE_S
from cluster.runs.stage import Run
from llm_service.door import Door
from llm_service.errors import AwayTooLong, BudgetExhausted
from llm_service.pipeline import journal
from llm_service.records import Answer, Status

LOOK_S = 1.0
"""Between two looks at what is pending."""
SHARE = 1000
"""Questions of one request."""
PROBE = 64
"""So many of the jobs that do not move are asked at once, to see why."""
DEADLINE_S = 4.0
"""Of one request about jobs: between two, the service is looked after and started again if it died, and the run may be
asked to stop."""
LATE = (*PASSING, Status.EXPIRED)


def ask(run: Run, task: str, items: list[dict[str, Any]], sample: int = 0) -> list[Answer]:
    """Answers of a language model. Those that are away or late are asked again, as long as some of them come.

    If the run is asked to stop, some may have no answer.

    Raises:
        BudgetExhausted: no more may be spent.
        AwayTooLong: for as long as the run will wait, no answer came.
    """
    assert run.language is not None, "a stage that asks has a service"
    language = run.language.setup
    with language.door(task, "wait") as door:
        answers = _ask(run, door, task, items, sample)
        patience = _Patience(language.patience_s, len(items))
        while not run.stop.reason:
            missing = [i for i, answer in enumerate(answers) if answer.status in LATE]
            if not missing:
                break
            patience.look(len(missing), answers[missing[0]].reason)
            run.look_after()
            time.sleep(PAUSE_S)
            again = _ask(run, door, task, [items[i] for i in missing], sample)
            for i, answer in zip(missing, again, strict=True):
                answers[i] = answer
    _assert_paid(answers)
    return answers


def _ask(run: Run, door: Door, task: str, items: list[dict[str, Any]], sample: int) -> list[Answer]:
    """What a door answers. It may take minutes: if the run is asked to stop meanwhile, what is late has no answer."""
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(door.ask, task, items, sample=sample)
        while not wait([asked], LOOK_S).done and not run.stop.reason:
            pass
        if not asked.done():
            door.close()  # who waits there is told at once that it is away
        return asked.result()


def ask_durably(run: Run, task: str, items: list[dict[str, Any]], tell: Callable[[int], None]) -> list[Answer] | None:
    """Answers of a language model, as jobs of the durable lane; None if the run is asked to stop, with all jobs kept.

    A queue that is full is waited for. Answers that were given up have the status DEAD, and those that make no sense
    MALFORMED, with the reason. A service without a queue refuses in a sentence: all that a run starts have one.

    Args:
        tell: takes the number of answers that are there, from time to time.

    Raises:
        BudgetExhausted: no more may be spent.
        AwayTooLong: for as long as the run will wait, no answer came.
    """
    assert run.language is not None, "a stage that asks has a service"
    language = run.language.setup
    with language.door(task, "wait") as door:
        door.deadline = DEADLINE_S
        jobs = _Jobs(door, task, items)
        patience, moved = _Patience(language.patience_s, len(items)), True
        while not run.stop.reason:
            run.look_after()
            jobs.submit()
            before = len(jobs.missing)
            jobs.fetch()
            tell(len(items) - len(jobs.missing))
            if not jobs.missing:
                return jobs.answers
            stuck = not moved and len(jobs.missing) == before  # for two looks: the door says why, or answers itself
            if stuck and (trouble := jobs.probe()):
                patience.look(len(jobs.missing), trouble)
            moved = len(jobs.missing) < before
    return None


def costs(folder: Path, tasks: Iterable[str]) -> dict[str, dict[str, float]]:
    """What was paid for in a folder of the service, by task: calls, tokens, dollars. Empty where another's was asked.

    Retries and calls that were lost stand in the ledger alone, not here.
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
    """Questions in the queue, and their answers as far as they are there."""

    def __init__(self, door: Door, task: str, items: list[dict[str, Any]]) -> None:
        self._door, self._task, self._items = door, task, items
        self._keys = [""] * len(items)  # of jobs that were accepted
        self.answers = [Answer(Status.PENDING)] * len(items)
        self.missing = list(range(len(items)))

    def submit(self) -> None:
        """Questions that are in no queue yet, as many as there is room for."""
        waiting = [i for i in self.missing if not self._keys[i]]
        for begin in range(0, len(waiting), SHARE):
            part = waiting[begin : begin + SHARE]
            keys, statuses = self._door.submit(self._task, [self._items[i] for i in part])
            for i, key, status in zip(part, keys, statuses, strict=True):
                if status is Status.REFUSED:
                    self.answers[i] = Answer(status, reason="the service refused the question")
                elif status not in LATE:
                    self._keys[i] = key
            if any(status in LATE for status in statuses):
                break  # full, or away
        self._count()

    def fetch(self) -> None:
        """Take the answers that there are, after a moment in which some may come."""
        asked = [i for i in self.missing if self._keys[i]][:SHARE]  # the oldest first, as they are answered
        if not asked:
            time.sleep(LOOK_S)
            return
        for i, answer in zip(asked, self._door.fetch([self._keys[i] for i in asked], LOOK_S), strict=True):
            if answer.status is Status.MISSING:  # a queue that was lost is filled again
                self._keys[i] = ""
            elif answer.status not in (*LATE, Status.PENDING):
                self.answers[i] = answer
        self._count()

    def probe(self) -> str:
        """Ask some of what is pending at once. Returns why the model gives no answer; "" if it does, or works on them.

        Raises:
            BudgetExhausted: no more may be spent.
        """
        some = self.missing[:PROBE]
        answers = self._door.ask(self._task, [self._items[i] for i in some])
        _assert_paid(answers)
        for i, answer in zip(some, answers, strict=True):
            if answer.status not in LATE:
                self.answers[i] = answer
        self._count()
        return next((answer.reason for answer in answers if answer.status in PASSING), "")

    def _count(self) -> None:
        self.missing = [i for i in self.missing if self.answers[i].status is Status.PENDING]


class _Patience:
    """How long a run waits while nothing comes."""

    def __init__(self, seconds: float, questions: int) -> None:
        self._seconds, self._fewest, self._ends = seconds, questions + 1, 0.0

    def look(self, missing: int, reason: str) -> None:
        """So many answers are missing now.

        Raises:
            AwayTooLong: as many as `seconds` ago.
        """
        if missing < self._fewest:
            self._fewest, self._ends = missing, time.monotonic() + self._seconds
        elif time.monotonic() > self._ends:
            raise AwayTooLong(f"the language model gave no answer: {reason}")


def _assert_paid(answers: Iterable[Answer]) -> None:
    for answer in answers:
        if answer.status is Status.BUDGET:
            raise BudgetExhausted(f"the language model may not be asked any more: {answer.reason}")
