"""The supervisor's state machine, edge by edge, on a backend whose roles fail on command."""

import time

import pytest

from actors import ActorsConfig
from cluster.roles.backend import Handle, RoleDied, Ticket
from cluster.roles.supervisor import AllQuarantined, Crew


class Scripted:
    """Roles that answer, die or hang as their script says: job name -> 'ok', 'die' or 'hang'."""

    def __init__(self, start="ok"):
        self.links = {}
        self.start_script = start
        self.started, self.killed = [], []

    def start(self, name, cls, *args):
        self.started.append((name, args))
        return Handle(name, name)

    def submit(self, handle, method, *args, returns=1):
        return Ticket(handle, method, (self.start_script if method == "ready" else method,))

    def wait(self, tickets, timeout, several=1):
        return [t for t in tickets if t.parts[0] != "hang"]

    def result(self, ticket, part=0, timeout=60.0):
        if ticket.parts[0] == "die":
            raise RoleDied(f"{ticket.handle.name}: Traceback\nValueError: the reason")
        return "answer"

    def heartbeats(self, handles):
        return {h.name: {"phase": "rollout"} for h in handles}

    def kill(self, handle):
        self.killed.append(handle.name)


def crew(backend, failures=None, **config):
    config = ActorsConfig(**({"n": 2, "backoff_s": 0.0} | config))
    note = (lambda i, cause: failures.append((i, cause))) if failures is not None else (lambda i, cause: None)
    made = Crew(backend, config, "setup", {1: {"sequence": 7}}, 60.0, note)
    made.collect([], 0)
    return made


def test_starting_then_idle_then_busy_then_idle():
    made = crew(Scripted())
    assert made.idle() == [0, 1]
    made.give(0, "job", "ok")
    assert made.idle() == [1]
    finished, _ = made.collect([], 0)
    assert [(i, job, result) for i, job, _, result in finished] == [(0, "job", "answer")]
    assert made.idle() == [0, 1]


def test_an_actor_is_at_work_once_the_first_method_that_was_named_has_ended():
    for first, idle in (("hang", []), ("prepare", [0])):
        made = Crew(Scripted(), ActorsConfig(n=1), "setup", {}, 60.0, lambda i, cause: None, first=first)
        made.collect([], 0)
        assert made.idle() == idle


def test_a_dead_actor_loses_its_job_and_its_successor_restores_the_last_delivery():
    backend, failures = Scripted(), []
    made = crew(backend, failures)
    made.delivered(0, {"sequence": 3})
    made.give(0, "job", "die")
    finished, _ = made.collect([], 0)
    assert [(i, job, result) for i, job, _, result in finished] == [(0, "job", None)]
    assert made.alive == 1
    assert "ValueError: the reason" in failures[0][1]
    assert backend.killed == ["actor-0"]
    made.collect([], 0)
    assert backend.started[-1] == ("actor-0.1", ("setup", 0, 1, {"sequence": 3}))
    assert made.idle() == [0, 1]
    assert made.restarts == 1


def test_jobs_ahead_are_done_in_order_and_the_time_of_each_begins_with_it():
    made = crew(Scripted(), timeout_s=60.0)
    made.give(0, "first", "ok")
    assert made.idle() == [1]
    assert made.idle(ahead=1) == [0, 1]
    made.give(0, "second", "ok")
    assert made.idle(ahead=1) == [1]
    assert made.busy_with(str) == [0, 0]
    for _, ticket in made._members[0].jobs:
        ticket.submitted -= 100  # too long for one, but the second has not begun when the first is done
    assert [job for _, job, _, _ in made.collect([], 0)[0]] == ["first"]
    assert [(job, result) for _, job, _, result in made.collect([], 0)[0]] == [("second", "answer")]
    assert made.idle() == [0, 1]
    assert made.restarts == 0


@pytest.mark.parametrize("fate", ["die", "hang"])
def test_all_jobs_of_an_actor_are_lost_with_it(fate):
    backend, failures = Scripted(), []
    made = crew(backend, failures, timeout_s=0.01)
    made.give(0, "first", fate)
    made.give(0, "second", "ok")
    time.sleep(0.02)
    lost = [(i, job, result) for i, job, _, result in made.collect([], 0)[0]]
    assert lost == [(0, "first", None), (0, "second", None)]
    assert len(failures) == 1
    assert made.busy_with(str) == []
    assert made.collect([], 0) == ([], [])
    assert made.idle() == [0, 1]


def test_who_is_rewound_loses_what_it_had_yet_to_do():
    backend = Scripted()
    made = crew(backend)
    made.give(0, "first", "ok")
    made.give(0, "second", "ok")
    assert made.rewind(0, {"sequence": 2}) == ["first", "second"]
    made.collect([], 0)
    assert backend.started[-1] == ("actor-0.1", ("setup", 0, 1, {"sequence": 2}))
    assert made.rewind(1, None) == []


def test_states_of_a_checkpoint_are_restored_at_the_first_start():
    backend = Scripted()
    crew(backend)
    assert [args[3] for _, args in backend.started] == [None, {"sequence": 7}]


def test_a_hung_actor_is_killed_and_its_phase_named():
    failures = []
    backend = Scripted()
    made = crew(backend, failures, timeout_s=0.01)
    made.give(1, "job", "hang")
    time.sleep(0.02)
    finished, _ = made.collect([], 0)
    assert finished[0][:2] == (1, "job")
    assert finished[0][3] is None
    assert "'rollout'" in failures[0][1]
    assert backend.killed == ["actor-1"]


def test_back_off_doubles():
    made = crew(Scripted(), backoff_s=100.0, n=1)
    for wait in (100, 200):
        made.give(0, "job", "die")
        made.collect([], 0)
        member = made._members[0]
        assert member.start_at - time.monotonic() == pytest.approx(min(wait, 30), abs=1)
        member.start_at = 0.0
        made.collect([], 0)


def test_a_spent_budget_is_quarantine_and_the_others_go_on():
    made = crew(Scripted(), restarts=1)
    for _ in range(2):
        made.give(0, "job", "die")
        made.collect([], 0)
        made.collect([], 0)
    assert made.quarantined == [0]
    assert made.idle() == [1]
    for _ in range(3):
        made.collect([], 0)
    assert made.quarantined == [0]


def test_failures_outside_the_window_do_not_count():
    made = crew(Scripted(), restarts=1, restart_window_s=0.01)
    for _ in range(4):
        made.give(0, "job", "die")
        made.collect([], 0)
        made.collect([], 0)
        time.sleep(0.02)
    assert made.quarantined == []


def test_when_all_are_quarantined_the_first_cause_is_told():
    made = crew(Scripted(), restarts=0, n=1)
    made.give(0, "job", "die")
    with pytest.raises(AllQuarantined, match="ValueError: the reason"):
        made.collect([], 0)


def test_an_actor_that_cannot_start_is_quarantined_not_retried_for_ever():
    made = Crew(Scripted(start="die"), ActorsConfig(n=1, restarts=3, backoff_s=0.0), "s", {}, 60.0, lambda i, c: None)
    for _ in range(3):
        made.collect([], 0)
    with pytest.raises(AllQuarantined):
        made.collect([], 0)
    assert made.restarts == 3
