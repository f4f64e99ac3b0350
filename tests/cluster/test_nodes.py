"""Whole nodes die, and join: real raylets, really killed in mid-run, and what is left of the run."""

import json
import signal

import pytest

from cluster.config.tree import compose
from cluster.roles.backend import NodeLost
from cluster.roles.joined import Joined
from learner import checkpoint
from tests.cluster.nodes import Nodes, assert_whole
from tests.cluster.test_faults import status, wait_for

WORDS = ["cluster.dashboard=false", "evaluate.every=0", "evaluate.episodes=16", "evaluate.videos=0"]
WORDS += ["learner.env_steps=1000000000", "run.checkpoint_every_s=2", "run.log_every_s=1"]
# Chunks of 300 kB: they live on their actor's node. Ray keeps small ones with the controller.
BABYAI = [
    "env=babyai/GoToLocal",
    "policy.hidden=32",
    "actors.envs=32",
    "actors.steps=64",
    "learner.ppo.epochs=1",
    *WORDS,
]
CHUNK = 32 * 64
ELLM = ["experiment=ellm_crafter_small", "env.id=crafter/Named", "policy.hidden=16", "actors.envs=8", "actors.steps=16"]
ELLM += ["learner.minibatch=128", "learner.ppo.epochs=1", "env.length=60", "llm.replicas=1", *WORDS]
SMALL_CHUNK = 8 * 16

pytestmark = pytest.mark.slow


@pytest.fixture
def nodes():
    made = Nodes()
    yield made
    made.shutdown()


@pytest.fixture
def run(nodes, tmp_path):
    """Start the run `a`, and end it however it is left: run(*words) -> its process; run.path, run.printed()."""
    processes = []

    def start(*words):
        processes.append(nodes.launch(tmp_path / "printed", *words))
        return processes[-1]

    def begin(*words):
        return start("run", *words, f"run.folder={tmp_path}", "run.name=a")

    begin.path = tmp_path / "a"
    begin.resume = lambda *words: start("resume", str(begin.path), *words)
    begin.printed = lambda: (tmp_path / "printed").read_text()
    yield begin
    for process in processes:
        process.kill()
        process.wait()


def grown(run, process, by=3 * 4 * CHUNK, seconds=240):
    """Wait until so many more steps are learned."""
    at = status(run.path).get("env_steps", 0)

    def more():
        assert process.poll() is None, run.printed()
        return status(run.path).get("env_steps", 0) > at + by

    wait_for(more, f"learning to go on:\n{run.printed()[-2000:]}", seconds)


def journal(run):
    lines = (run.path / "llm" / "journal.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def assert_asked_once(run):
    keys = [line["key"] for line in journal(run)]
    assert len(keys) == len(set(keys))


def lost(backend, handle):
    try:
        return not backend.result(backend.submit(handle, "ready"))
    except NodeLost:
        return True


def stopped(run, process, chunk_steps):
    """Stop the run, and see that all it learned is there. Returns its counters."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 3, run.printed()
    return assert_whole(run.path, chunk_steps)


def ended(run, process, chunk_steps):
    """Stop the run, and let it end with what it has. Returns its counters."""
    counters = stopped(run, process, chunk_steps)
    last = run.resume("--allow-change", f"learner.env_steps={counters['env_steps']}")
    assert last.wait(180) == 0, run.printed()
    assert status(run.path)["state"] == "done"
    return counters


def test_a_role_knows_whether_it_waits_for_a_node_has_one_or_lost_it(nodes):
    role = type("Role", (), {"__module__": "__main__", "ready": lambda self: True})  # sent to workers by value
    nodes.add("computing", cpus=0, learner=True)
    nodes.add("one", cpus=1)
    backend = Joined(compose(["env=toy/Line"]), nodes.cluster.address, 3)
    try:
        first, second, learner = (backend.start(name, role) for name in ("actor-0", "actor-1", "learner-0"))
        for handle in (first, learner):
            assert backend.result(backend.submit(handle, "ready"))
            assert backend.place(handle) == "there"
        waiting = backend.submit(second, "ready")
        assert backend.wait([waiting], 3) == []
        assert backend.place(second) == "none"
        nodes.kill("one")
        assert backend.place(first) == "gone"  # long before Ray says so
        wait_for(lambda: lost(backend, first), "the role to be gone")  # processes outlive their node by a moment
        nodes.add("new", cpus=1)
        if lost(backend, second):  # Ray had sent it to the node that died: no fault of its own either
            second = backend.start("actor-1", role)
            waiting = backend.submit(second, "ready")
        assert backend.result(waiting, timeout=90)
        assert backend.place(second) == "there"
    finally:
        backend.shutdown()


def test_a_node_that_dies_costs_what_its_actors_had_and_one_that_joins_takes_them(nodes, run):
    nodes.add("computing", cpus=0, learner=True)
    nodes.add("one", cpus=4)
    nodes.add("other", cpus=1)
    process = run(*BABYAI, "actors.n=5", "actors.restarts=0")
    grown(run, process)
    wait_for(lambda: status(run.path).get("actors_alive") == 5, "all actors")
    assert len(nodes.roles("one")["RolloutActor"]) == 4
    nodes.kill("one")
    wait_for(lambda: status(run.path).get("restarts", 0) >= 4, "their restarts")
    grown(run, process)
    assert status(run.path)["quarantined"] == []
    nodes.add("new", cpus=4)
    wait_for(lambda: status(run.path).get("actors_alive") == 5, "the waiting actors")
    assert len(nodes.roles("new")["RolloutActor"]) == 4
    grown(run, process)
    assert status(run.path)["learner_restarts"] == 0
    counters = ended(run, process, CHUNK)
    assert counters["restarts"] >= 4


def test_a_node_that_dies_with_a_replica_of_the_model_costs_its_batch(nodes, run):
    nodes.add("computing", cpus=0, learner=True)
    nodes.add("one", cpus=3)
    nodes.add("other", cpus=3)
    process = run(*ELLM)
    grown(run, process, 10 * SMALL_CHUNK, 240)
    (held,) = nodes.of("Replica")
    nodes.kill(held)
    wait_for(lambda: nodes.of("Replica"), "the replica elsewhere")
    wait_for(lambda: status(run.path).get("actors_alive") == 2, "the actors")
    asked = len(journal(run))
    wait_for(lambda: len(journal(run)) > asked + 20, "answers of the model")
    grown(run, process, 10 * SMALL_CHUNK)
    assert status(run.path).get("learner_restarts") == 0
    assert "the LLM service died" not in run.printed()
    ended(run, process, SMALL_CHUNK)
    assert_asked_once(run)


def test_learner_and_llm_service_go_on_on_another_node(nodes, run):
    nodes.add("one", cpus=0, learner=True)
    nodes.add("other", cpus=0, learner=True)
    nodes.add("acting", cpus=3)
    process = run(*ELLM)
    grown(run, process, 10 * SMALL_CHUNK, 240)
    wait_for(lambda: (run.path / "checkpoints" / "LATEST").exists(), "a checkpoint")
    (home,) = nodes.of("Learner")
    assert nodes.of("LanguageRole") == [home]
    nodes.kill(home)
    elsewhere = ["one" if home == "other" else "other"]
    wait_for(lambda: nodes.of("Learner") == elsewhere, f"the learner elsewhere:\n{run.printed()[-3000:]}")
    wait_for(lambda: nodes.of("LanguageRole") == elsewhere, "the LLM service elsewhere", 240)
    wait_for(lambda: status(run.path).get("learner_restarts") == 1, "its restart", 240)
    asked = len(journal(run))
    wait_for(lambda: len(journal(run)) > asked + 20, "answers of the model", 240)
    grown(run, process, 10 * SMALL_CHUNK)
    assert "learner died, restarting from the last checkpoint" in run.printed()
    assert "the LLM service died" in run.printed()
    assert ended(run, process, SMALL_CHUNK)["learner_restarts"] == 1
    assert_asked_once(run)


def test_without_its_head_a_run_ends_and_goes_on_on_another_cluster(nodes, run):
    words = ["env=toy/Line", "policy.hidden=16", "actors.envs=8", "actors.steps=16", *WORDS]
    nodes.add("computing", cpus=2, learner=True)
    process = run(*words)
    grown(run, process, 20 * 8 * 16)
    wait_for(lambda: (run.path / "checkpoints" / "LATEST").exists(), "a checkpoint")
    nodes.kill("head")
    assert process.wait(90) == 5, run.printed()
    printed = run.printed()
    assert "Ray's head on" in printed
    assert "resume on another cluster" in printed
    assert "Traceback" not in printed
    left = status(run.path)
    assert left["state"] == "stopped"
    assert "is gone" in left["reason"]
    assert not (run.path / "error.txt").exists()
    saved = checkpoint.latest(run.path / "checkpoints")
    assert saved.skipped == ()
    assert not list((run.path / "checkpoints").glob(".v*"))
    before = saved.record["counters"]

    nodes.shutdown()
    nodes.__init__()
    nodes.add("computing", cpus=2, learner=True)
    again = run.resume()

    def resumed():  # what the first run left in its status may be of more steps than its checkpoint
        now = status(run.path)
        return now.get("resumes") == before["resumes"] + 1 and now["env_steps"] > before["env_steps"] + 2000

    wait_for(resumed, "the resumed run")
    after = stopped(run, again, 8 * 16)
    assert after["resumes"] == before["resumes"] + 1
    for name in ("version", "env_steps", "episodes", "chunks", "wall_seconds"):
        assert after[name] > before[name], name
