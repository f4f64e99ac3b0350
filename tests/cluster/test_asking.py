"""Stages that ask a language model: they wait for one that is away, and end resumably where it does not come back."""

import contextlib
from unittest.mock import Mock

import pytest

from cluster.runs.folder import RunFolder
from cluster.runs.stage import Run
from cluster.stages._shared import asking
from cluster.stages._shared.asking import ask
from llm_service.errors import AwayTooLong, BudgetExhausted
from llm_service.records import Answer, Status
from tests.cluster.test_lgqd import config


class Away:
    """A service that answers one more of its questions each time it is asked, or none; for faults only."""

    patience_s = 0.2

    def __init__(self, answers, reason=Status.EXPIRED):
        self.answers, self.reason, self.asked = answers, reason, []

    def client(self, caller, when_away):
        return contextlib.nullcontext(self)

    def ask(self, task, items, sample):
        self.asked.append([item["n"] for item in items])
        late = Answer(self.reason, reason="it is late")
        return [Answer(Status.OK, b"{}") if self.answers and i == 0 else late for i in range(len(items))]


def asking_run(folder, setup, stop=""):
    service = Mock(setup=setup)
    return Run(config(folder, "a"), RunFolder(folder), None, None, None, Mock(reason=stop), language=service)


def test_answers_that_come_one_by_one_are_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "PAUSE_S", 0.15)  # four of them are longer than its patience
    slow = Away(True)
    found = ask(asking_run(tmp_path, slow), "caption_trajectory", [{"n": n} for n in range(4)])
    assert all(answer.ok for answer in found)
    assert slow.asked == [[0, 1, 2, 3], [1, 2, 3], [2, 3], [3]]


@pytest.mark.parametrize(("status", "error"), [(Status.AWAY, AwayTooLong), (Status.BUDGET, BudgetExhausted)])
def test_a_model_that_does_not_come_back_ends_the_run_resumably(tmp_path, monkeypatch, status, error):
    monkeypatch.setattr(asking, "PAUSE_S", 0.05)
    with pytest.raises(error):
        ask(asking_run(tmp_path, Away(False, status)), "caption_trajectory", [{"n": 0}])


def test_who_is_asked_to_stop_does_not_wait_for_answers(tmp_path):
    found = ask(asking_run(tmp_path, Away(False), "SIGTERM"), "caption_trajectory", [{"n": 0}])
    assert [answer.status for answer in found] == [Status.EXPIRED]
