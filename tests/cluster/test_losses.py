"""What is lost with a node, in one process: whose budget that spends, what is played again, how long anyone waits."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from actors import ActorsConfig
from cluster import run as controller
from cluster.config.tree import compose
from cluster.roles import language, learners, supervisor
from cluster.roles.backend import Handle, Inline, InputLost, Interrupted, NodeLost, RoleDied, Ticket
from cluster.roles.language import LanguageService
from cluster.roles.learners import LearnerDied, LearnerGroup, Ready
from cluster.roles.supervisor import Crew
from cluster.runs import controller as work
from learner import checkpoint
from llm_service.errors import AwayTooLong


class Placed(Inline):
    """Roles that answer "played" wherever they have a place: names in `gone` and `unplaced` have none (any more)."""

    def __init__(self):
        super().__init__()
        self.gone, self.unplaced, self.started = set(), set(), []

    def start(self, name, cls, *args):
        self.started.append((name, args))
        return Handle(name, None)

    def submit(self, handle, method, *args, returns=1):
        return Ticket(handle, method, ("played",) * returns)

    def wait(self, tickets, timeout, several=1):
        return [ticket for ticket in tickets if ticket.handle.name not in self.unplaced]

    def result(self, ticket, part=0, timeout=60.0):
        if ticket.handle.name in self.unplaced:
            raise RoleDied("Get timed out")
        if ticket.handle.name in self.gone:
            raise NodeLost("its node has died")
        return ticket.parts[part]

    def place(self, handle):
        return "gone" if handle.name in self.gone else "none" if handle.name in self.unplaced else "there"


def crew(backend, failures, start_s=60.0, **config):
    config = ActorsConfig(**({"n": 4, "backoff_s": 0.0, "restarts": 0} | config))
    return Crew(backend, config, "setup", {}, start_s, lambda i, cause: failures.append(i))


def test_a_lost_node_spends_nobodys_budget_but_is_counted():
    backend, failures = Placed(), []
    made = crew(backend, failures)
    for times in range(1, 9):
        made.collect([], 0)
        assert made.idle() == [0, 1, 2, 3]
        for i in range(4):
            made.give(i, "job", "play")
        backend.gone |= {name for name, _ in backend.started}
        assert [result for *_, result in made.collect([], 0)[0]] == [None] * 4
        assert made.quarantined == []
        assert made.restarts == len(failures) == 4 * times


def test_an_actor_without_a_place_waits_without_a_failure_and_works_once_there_is_one():
    backend, failures = Placed(), []
    backend.unplaced = {"actor-1", "actor-2", "actor-3"}
    made = crew(backend, failures, start_s=0.01)
    for _ in range(20):
        time.sleep(0.005)
        made.collect([], 0)
    assert made.idle() == [0]
    assert made.restarts == len(failures) == 0
    backend.unplaced.clear()
    made.collect([], 0)
    assert made.idle() == [0, 1, 2, 3]


@pytest.mark.parametrize("placed", [0, 1])
def test_with_a_place_for_none_a_run_waits_and_then_says_so(monkeypatch, placed):
    monkeypatch.setattr(supervisor, "PLACE_S", 0.1)
    backend = Placed()
    backend.unplaced = {f"actor-{i}" for i in range(placed, 4)}
    made = crew(backend, [], start_s=0.01)
    ends = time.monotonic() + 0.5
    trouble = None
    while time.monotonic() < ends and trouble is None:
        try:
            made.collect([], 0)
            made.assert_places({2, 3})  # as a learner's rank that lives on these
        except Interrupted as error:
            trouble = error
    assert "no node has had room for actors" in str(trouble)
    assert trouble.exit_code == 5


def test_one_that_has_a_place_is_enough_to_go_on(monkeypatch):
    monkeypatch.setattr(supervisor, "PLACE_S", 0.05)
    backend = Placed()
    backend.unplaced = {"actor-1", "actor-2", "actor-3"}
    made = crew(backend, [], start_s=0.01)
    for _ in range(20):
        time.sleep(0.01)
        made.collect([], 0)
    assert made.idle() == [0]


def group(backend, n=1):
    config = compose(["env=toy/Line", f"learner.n={n}", "actors.n=2"])
    made = LearnerGroup(backend, config, config.spec, 0, None)
    made._timeout_s = 0.01
    return made


def test_a_learner_without_a_place_is_waited_for_and_then_the_run_says_so(monkeypatch):
    monkeypatch.setattr(learners, "PLACE_S", 0.1)
    backend = Placed()
    made = group(backend)
    backend.unplaced = {"learner-0"}
    with pytest.raises(Interrupted, match="no node has had room for learner-0"):
        made.call("ready")


def test_a_learner_whose_node_is_gone_is_dead_whether_it_was_asked_or_not():
    backend = Placed()
    made = group(backend)
    made.assert_there()
    backend.gone = {"learner-0"}
    for ask in (made.assert_there, lambda: made.call("ready")):
        with pytest.raises(LearnerDied):
            ask()


@pytest.mark.parametrize(("n", "error"), [(1, InputLost), (2, LearnerDied)])
def test_a_lost_chunk_harms_a_learner_only_where_other_ranks_have_begun(n, error):
    backend = Placed()
    made = group(backend, n)
    chunks = [Ready(SimpleNamespace(actor=actor), None, Handle(f"actor-{actor}", None)) for actor in range(2)]
    made.begin(0, 0, chunks)

    def result(ticket, part=0, timeout=60.0):
        raise InputLost("lost")

    backend.result = result
    with pytest.raises(error):
        made.take(list(made.tickets))
    assert bool(made.tickets) == (n == 2)


def test_an_llm_service_that_does_not_start_again_ends_the_run_resumable(tmp_path, monkeypatch):
    monkeypatch.setattr(language, "LOOK_S", 0.0)
    backend = Placed()
    words = ["method=zero_shot", "env=toy/Line", "cluster.start_timeout_s=0.01"]
    service = LanguageService(backend, compose(words), tmp_path, lambda line: None)
    service.start()
    backend.gone = {"llm"}
    backend.unplaced = {"llm.1"}
    service.look_after()
    with pytest.raises(AwayTooLong, match=r"its node has died.*does not start") as trouble:
        service.look_after()
    assert trouble.value.exit_code == 5


class Losing(Inline):
    """Everything works, but the updates number 3 and 5 with a chunk of actor 1's find that it is gone with its node."""

    def __init__(self, stop_reason):
        super().__init__(stop_reason)
        self.updates, self.gone, self.makers = 0, [], {}

    def start(self, name, cls, *args):
        made = super().start(name, cls, *args)
        self.makers[name.partition(".")[0]] = made
        return made

    def submit(self, handle, method, *args, returns=1):
        concerned = method == "update" and any(chunk.actor == 1 for chunk in args[2:])
        self.updates += concerned
        if concerned and self.updates in (3, 5):
            self.gone.append(self.makers["actor-1"])
            return Ticket(handle, method, ("lost",) * returns)
        return super().submit(handle, method, *args, returns=returns)

    def result(self, ticket, part=0, timeout=60.0):
        if ticket.parts[part] == "lost" and isinstance(ticket.parts[part], str):
            raise InputLost("gone")
        return super().result(ticket, part, timeout)

    def place(self, handle):
        return "gone" if any(handle is lost for lost in self.gone) else "there"


@pytest.mark.parametrize(("sync", "ahead"), [(True, 0), (False, 0), (False, 1)])
def test_chunks_that_are_lost_with_their_node_are_played_again_and_learned_once(tmp_path, monkeypatch, sync, ahead):
    words = ["env=toy/Line", "cluster=inline", f"sync={sync}".lower(), "policy.hidden=16", "actors.envs=4"]
    words += ["actors.steps=8", f"actors.ahead={ahead}", "learner.env_steps=768", "stages=[train]", "evaluate.every=0"]
    words += [f"run.folder={tmp_path}"]
    assert controller.run(compose([*words, "run.name=whole"])) == 0
    monkeypatch.setattr(work, "Inline", Losing)
    assert controller.run(compose([*words, "run.name=hurt"])) == 0
    whole, hurt = (checkpoint.latest(tmp_path / name / "checkpoints") for name in ("whole", "hurt"))
    counters = hurt.record["counters"]
    assert counters["restarts"] == 2
    assert counters["learner_restarts"] == 0
    sequences = [int(value) for name, value in hurt.arrays["actors"].items() if name.endswith("/sequence")]
    assert sum(sequences) == counters["chunks"] == counters["env_steps"] // 32
    if sync:  # and nothing else has changed
        for name, value in whole.arrays["model"].items():
            np.testing.assert_array_equal(value, hurt.arrays["model"][name])
