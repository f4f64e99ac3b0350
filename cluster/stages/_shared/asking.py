"""Questions of a stage to a language model: answered as long as some answers come, and paid for once."""

from __future__ import annotations

import time
from typing import Any

from actors.language import PASSING, PAUSE_S
from cluster.runs.stage import Run
from llm_service.errors import AwayTooLong, BudgetExhausted
from llm_service.records import Answer, Status


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
        answers = door.ask(task, items, sample=sample)
        fewest, ends = len(items) + 1, 0.0
        while (missing := _without_answer(answers)) and not run.stop.reason:
            if len(missing) < fewest:
                fewest, ends = len(missing), time.monotonic() + language.patience_s
            elif time.monotonic() > ends:
                raise AwayTooLong(f"the language model gave no answer: {answers[missing[0]].reason}")
            run.look_after()
            time.sleep(PAUSE_S)
            again = door.ask(task, [items[i] for i in missing], sample=sample)
            for i, answer in zip(missing, again, strict=True):
                answers[i] = answer
    for answer in answers:
        if answer.status is Status.BUDGET:
            raise BudgetExhausted(f"the language model may not be asked any more: {answer.reason}")
    return answers


def _without_answer(answers: list[Answer]) -> list[int]:
    """Which may have one if they are asked again."""
    return [i for i, answer in enumerate(answers) if answer.status in (*PASSING, Status.EXPIRED)]
