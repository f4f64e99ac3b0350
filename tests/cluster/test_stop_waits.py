"""A stop request is seen wherever the controller waits for roles. What is counted is looks, and not seconds."""

import threading
from types import SimpleNamespace

import pytest

from cluster import run as controller
from cluster.config.tree import compose
from cluster.roles import joined, learners
from cluster.roles.backend import AskedToStop, Handle, Inline, RoleDied, Ticket, await_role
from cluster.roles.joined import Joined
from cluster.roles.language import LanguageService
from cluster.roles.learners import LearnerGroup
from cluster.runs import controller as work
from cluster.runs.folder import RunFolder
from cluster.stages._shared import asking
from cluster.stages._shared.fitting import Fitters
from llm_service.records import Answer, Status

SEEN_S = 5.0
"""Within so many seconds a request is to be seen: nobody may wait for longer without a look."""


class Asked:
    """The reason to stop of a run that is asked between the third look and the fourth. `looks` counts."""

    def __init__(self):
        self.looks = 0

    def __call__(self):
        self.looks += 1
        assert self.looks < 10, "it was seen, and waited on"
        return "STOP file" if self.looks > 3 else ""


class Starting(Inline):
    """Roles that start and start, on a clock of their own. `waits` are the seconds that each wait was to take."""

    def __init__(self):
        super().__init__(Asked())
        self.waits, self.killed = [], []

    def start(self, name, cls, *args):
        return Handle(name, None)

    def submit(self, handle, method, *args, returns=1):
        return Ticket(handle, method, ("never there",) * returns)

    def wait(self, tickets, timeout, several=1):
        self.waits.append(timeout)
        return []

    def result(self, ticket, part=0, timeout=60.0):
        self.waits.append(timeout)
        raise RoleDied("Get timed out")

    def place(self, handle):
        return "none"

    def kill(self, handle):
        self.killed.append(handle.name)


def learner(backend, config):
    LearnerGroup(backend, config, config.spec, 0, None).call("ready")


def fitter(backend, config):
    Fitters(backend, config, "fitter", object, "setup", 0).call("ready", timeout=600.0, begins=True)


@pytest.mark.parametrize("role", [learner, fitter])
def test_a_request_is_seen_while_roles_start(role, monkeypatch):
    monkeypatch.setattr(learners, "PLACE_S", 0.5)  # so that a wait without a look ends too
    backend = Starting()
    with pytest.raises(AskedToStop, match="STOP file"):
        role(backend, compose(["env=toy/Line", "cluster.start_timeout_s=600"]))
    assert max(backend.waits) <= SEEN_S


def test_a_request_is_seen_while_the_service_of_language_models_starts(tmp_path):
    backend, config = Starting(), compose(["env=toy/Line", "cluster.start_timeout_s=600"])
    service = LanguageService(backend, config, tmp_path, print)
    service.begin()
    assert backend.waits == []  # other roles may start meanwhile
    with pytest.raises(AskedToStop):
        service.start()
    assert max(backend.waits) <= SEEN_S
    assert backend.killed == ["llm"]
    service.stop()  # there is none to wait for
    assert max(backend.waits) <= SEEN_S


def a_joined(monkeypatch, nodes=()):
    """What has joined a Ray of these nodes, and the seconds that it slept."""
    slept = []
    monkeypatch.setattr(joined, "alive", lambda: list(nodes))
    monkeypatch.setattr(joined, "PLACE_S", 0.5)
    monkeypatch.setattr(joined, "time", SimpleNamespace(monotonic=joined.time.monotonic, sleep=slept.append))
    made = Joined.__new__(Joined)
    made.stop_reason, made._home, made._lost = Asked(), "", None
    monkeypatch.setattr(made, "_assert_head", lambda: None)
    return made, slept


def test_a_request_is_seen_while_no_node_has_room_for_the_learner(monkeypatch):
    made, slept = a_joined(monkeypatch)
    with pytest.raises(AskedToStop, match="STOP file"):
        made._find_home()
    assert len(slept) == 3
    assert max(slept) <= SEEN_S


def test_a_request_is_seen_while_rays_head_does_not_answer(monkeypatch):
    _, slept = a_joined(monkeypatch)
    tries = []

    def refuse(address, timeout):
        tries.append(timeout)
        raise ConnectionRefusedError

    monkeypatch.setattr(joined.socket, "create_connection", refuse)
    with pytest.raises(AskedToStop):
        Joined(compose(["env=toy/Line", "cluster.start_timeout_s=1"]), "127.0.0.1:1", 1, Asked())
    assert len(tries) == len(slept) == 3
    assert max(tries) + max(slept) <= SEEN_S


def test_a_request_is_seen_while_nodes_have_not_joined(monkeypatch):
    _, slept = a_joined(monkeypatch)
    ended = []
    monkeypatch.setattr(joined, "_await_port", lambda *_: None)
    monkeypatch.setattr(joined.ray, "init", lambda *_, **__: SimpleNamespace(dashboard_url=""))
    monkeypatch.setattr(joined.ray, "shutdown", lambda: ended.append(True))
    with pytest.raises(AskedToStop):
        Joined(compose(["env=toy/Line", "cluster.start_timeout_s=1"]), "127.0.0.1:1", 2, Asked())
    assert len(slept) == 3
    assert ended == [True]


class Slow:
    """A door whose model never answers: whoever waits there is told so once it is closed."""

    def __init__(self):
        self.closed = threading.Event()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def ask(self, task, items, sample):
        assert self.closed.wait(60.0), "nobody closed it"
        return [Answer(Status.AWAY)] * len(items)

    def close(self):
        self.closed.set()


def test_a_request_is_seen_while_a_language_model_is_slow(monkeypatch):
    monkeypatch.setattr(asking, "LOOK_S", 0.001)
    asked = Asked()
    setup = SimpleNamespace(client=lambda *_: Slow(), patience_s=0.0)
    stop = type("Stop", (), {"reason": property(lambda _: asked())})()
    run = SimpleNamespace(language=SimpleNamespace(setup=setup), stop=stop)
    assert [answer.status for answer in asking.ask(run, "judge_trajectory", [{}, {}])] == [Status.AWAY] * 2


def test_what_is_there_is_read_without_another_look():
    backend = Inline(Asked())
    ticket = backend.submit(Handle("role", "text"), "upper")
    assert await_role(backend, ticket, 1.0) == "TEXT"
    assert backend.stop_reason.looks == 0


def test_a_run_that_is_asked_while_it_waits_ends_as_asked_and_goes_on(tmp_path, monkeypatch):
    words = ["env=toy/Line", "cluster=inline", "policy.hidden=16", "actors.envs=4", "actors.steps=8"]
    words += ["learner.env_steps=64", "evaluate.episodes=4", f"run.folder={tmp_path}", "run.name=a"]
    with monkeypatch.context() as patch:
        patch.setattr(work.Controller, "_backend", lambda self, stop_reason: Starting())
        patch.setattr(learners, "PLACE_S", 0.5)
        assert controller.run(compose(words)) == 3
    status = RunFolder(tmp_path / "a").read_status()
    assert (status["state"], status["reason"]) == ("stopped", "STOP file")
    assert controller.resume(tmp_path / "a", [], False) == 0
    assert RunFolder(tmp_path / "a").read_status()["state"] == "done"
