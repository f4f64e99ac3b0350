"""Real processes, really killed: a Ray run whose actor, controller and learner die by SIGKILL, and what is left."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from learner import checkpoint

ROOT = Path(__file__).resolve().parents[2]
TOY = ["env=toy/Line", "policy.hidden=16", "actors.envs=8", "actors.steps=16", "evaluate.episodes=16"]
DEMO = ["experiment=babyai_gotolocal"]  # what `make demo` runs
LAUNCHED = []
ENDLESS = ["learner.env_steps=1000000000", "evaluate.every=0", "run.checkpoint_every_s=0.5", "run.log_every_s=1"]


def launch(*words, printed=os.devnull):
    log = open(printed, "w")  # noqa: SIM115 - the process owns it
    process = subprocess.Popen([sys.executable, str(ROOT / "launch.py"), *words], stdout=log, stderr=log)
    LAUNCHED.append(process)
    return process


@pytest.fixture(scope="module", autouse=True)
def ended():
    """A test that fails leaves no run that would slow down what comes after it."""
    yield
    for process in LAUNCHED:
        process.kill()


def status(path):
    try:
        return json.loads((path / "status.json").read_text())
    except (OSError, ValueError):
        return {}


def wait_for(condition, what, seconds=120):
    """Poll until `condition()` is true; fail with `what` after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    pytest.fail(f"waited {seconds} s in vain for {what}")


def fetch(url, token):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


def rows(path):
    lines = (path / "metrics.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def children_of(pid):
    """All descendants of a process."""
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def listening(pid):
    """Where a process listens, as (ip, port)."""
    return [s.laddr for s in psutil.Process(pid).net_connections("tcp") if s.status == psutil.CONN_LISTEN]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """The demo without its end, on Ray, shared by the tests below, which read and hurt it in order."""
    folder = tmp_path_factory.mktemp("runs")
    path = folder / "story"
    process = launch("run", *DEMO, *ENDLESS, f"run.folder={folder}", "run.name=story", printed=folder / "printed")
    wait_for(lambda: status(path).get("env_steps", 0) > 1000, "the first updates")
    yield path, process
    if process.poll() is None:
        process.kill()


def test_actors_and_metrics_are_found_over_http(story):
    path, _ = story
    token = (path / "token").read_text()
    assert (path / "token").stat().st_mode & 0o777 == 0o600
    links = status(path)
    assert links["dashboard"].startswith("http://127.0.0.1:")
    actors = json.loads(fetch(links["dashboard"] + "/api/v0/actors", token))["data"]["result"]["result"]
    living = sorted(a["class_name"] for a in actors if a["state"] == "ALIVE")
    assert living == ["Learner", "RolloutActor", "RolloutActor"]
    with pytest.raises(urllib.error.HTTPError, match=r"40[13]"):
        fetch(links["dashboard"] + "/api/v0/actors", "wrong")

    def exported():
        found = re.search(r'ray_cairn_env_steps\{.*run="story".*\} ([\d.e+]+)', fetch(links["metrics"], token))
        return found and float(found.group(1))

    assert wait_for(exported, "our metrics at the Prometheus endpoint", 60) > 0


def test_nothing_listens_beyond_loopback(story):
    _, process = story
    places = [place for pid in (process.pid, *children_of(process.pid)) for place in listening(pid)]
    assert places
    assert {place.ip for place in places} <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def test_a_killed_actor_costs_only_its_chunk(story):
    path, process = story
    before = wait_for(lambda: status(path).get("heartbeats", {}).get("actor-0") and status(path), "heartbeats")
    assert before["restarts"] == 0
    pid = before["heartbeats"]["actor-0"]["pid"]
    os.kill(pid, signal.SIGKILL)
    after = wait_for(
        lambda: status(path).get("restarts") == 1 and status(path).get("actors_alive") == 2 and status(path),
        "the restart",
    )
    wait_for(lambda: status(path)["env_steps"] > after["env_steps"] + 1000, "learning to go on")
    assert process.poll() is None
    printed = (path.parent / "printed").read_text()
    dashboard, told = (line for line in printed.splitlines() if not line.startswith("steps "))
    assert dashboard == f"dashboard: {status(path)['dashboard']}; its token is in {path / 'token'}"
    assert (path / "token").read_text() not in printed
    died = rf"its process {pid} has died: it crashed or was killed, perhaps for lack of memory"
    assert re.fullmatch(rf"actor-0 failed: ({died}|its process no longer answers)", told)
    assert told in (path / "run.log").read_text()
    assert "\x1b" not in printed
    history = [r for r in rows(path) if r["kind"] == "train"]
    versions = [r["version"] for r in history]
    assert versions == list(range(1, len(versions) + 1))
    steps = [r["env_steps"] for r in history]
    assert steps == [4096 * v for v in versions]  # every update had all its chunks: none lost, none counted twice
    assert history[-1]["dropped_chunks"] == 0


def test_a_killed_learner_costs_what_came_after_the_last_checkpoint(story):
    path, process = story
    learner = [p for p in children_of(process.pid) if b"ray::Learner" in Path(f"/proc/{p}/cmdline").read_bytes()]
    os.kill(learner[0], signal.SIGKILL)
    wait_for(lambda: status(path).get("learner_restarts") == 1, "the learner's restart")
    at = status(path)["env_steps"]
    wait_for(lambda: status(path)["env_steps"] > at + 1000, "learning to go on")
    assert process.poll() is None
    assert "learner died, restarting" in (path / "run.log").read_text()


def test_a_killed_controller_takes_its_cluster_along_resume_continues_with_every_counter_and_the_stop_verb_saves(story):
    path, process = story
    working = ("ray::RolloutActor", "ray::Learner", "raylet/raylet", "gcs_server")  # Ray's own agents linger a while
    commands = {p: Path(f"/proc/{p}/cmdline").read_text() for p in children_of(process.pid)}
    processes = [p for p, command in commands.items() if any(w in command for w in working)]
    assert len(processes) >= 5
    process.kill()
    process.wait()
    wait_for(lambda: not any(alive(p) for p in processes), "the roles to end", 60)
    saved = checkpoint.latest(path / "checkpoints").record["counters"]
    assert saved["env_steps"] > 1000
    resumed = launch("resume", str(path), "cluster.dashboard=false")
    wait_for(
        lambda: status(path).get("resumes") == 1 and status(path)["env_steps"] > saved["env_steps"], "the resumed run"
    )
    subprocess.run([sys.executable, str(ROOT / "launch.py"), "stop", str(path)], check=True, capture_output=True)
    assert resumed.wait(60) == 3
    after = checkpoint.latest(path / "checkpoints").record["counters"]
    assert (status(path)["reason"], status(path)["env_steps"]) == ("STOP file", after["env_steps"])
    assert (after["restarts"], after["learner_restarts"], after["resumes"]) == (1, 1, 1)
    for name in ("version", "env_steps", "episodes", "chunks", "wall_seconds"):
        assert after[name] > saved[name], name
    history = [r["version"] for r in rows(path) if r["kind"] == "train"]
    assert history == list(range(1, after["version"] + 1))  # nothing missing, nothing twice
    assert status(path)["state"] == "stopped"
    assert not (path / "token").exists()


@pytest.mark.slow
def test_a_killed_actor_takes_along_what_it_was_asked_ahead_and_every_chunk_is_learned_once(tmp_path):
    process = launch("run", *TOY, *ENDLESS, "actors.n=3", "actors.ahead=2", f"run.folder={tmp_path}", "run.name=a")
    path = tmp_path / "a"
    beats = wait_for(lambda: status(path).get("heartbeats", {}).get("actor-1") and status(path)["heartbeats"], "beats")
    os.kill(beats["actor-1"]["pid"], signal.SIGKILL)
    wait_for(lambda: status(path).get("restarts") == 1 and status(path).get("actors_alive") == 3, "the restart")
    # An actor counts as alive before its process has begun, and the first may have been killed before its first chunk.
    saved = lambda: checkpoint.latest(path / "checkpoints")  # noqa: E731 - read again each time
    wait_for(lambda: saved() and "1/sequence" in saved().arrays["actors"], "its chunks")
    at = status(path)["env_steps"]
    wait_for(lambda: status(path)["env_steps"] > at + 5000, "learning to go on")
    subprocess.run([sys.executable, str(ROOT / "launch.py"), "stop", str(path)], check=True, capture_output=True)
    assert process.wait(60) == 3
    counters, actors = saved().record["counters"], saved().arrays["actors"]
    learned = [int(value) for name, value in actors.items() if name.endswith("/sequence")]
    assert len(learned) == 3
    assert sum(learned) == counters["chunks"]  # an actor's number of chunks says how many of its own were learned
    assert counters["env_steps"] == 8 * 16 * (counters["chunks"] - counters["dropped_chunks"])
    history = [r for r in rows(path) if r["kind"] == "train"]
    assert [r["version"] for r in history] == list(range(1, len(history) + 1))


@pytest.mark.slow
def test_sync_on_ray_equals_sync_in_one_process_bit_for_bit(tmp_path):
    words = ["env=babyai/GoToLocal", "sync=true", "policy.hidden=16", "actors.envs=4", "actors.steps=8"]
    words += ["learner.env_steps=640", "stages=[train]", "evaluate.every=0", f"run.folder={tmp_path}"]
    for cluster in ("local", "inline"):
        assert launch("run", *words, f"cluster={cluster}", f"run.name={cluster}").wait(180) == 0
    one, two = (checkpoint.latest(tmp_path / n / "checkpoints").arrays for n in ("local", "inline"))
    for stem in ("model", "optimiser", "actors"):
        for name, value in one[stem].items():
            assert value.tobytes() == two[stem][name].tobytes(), f"{stem} {name}"


@pytest.mark.slow
def test_two_learner_ranks_learn_what_one_learns(tmp_path):
    """Equal data, full-batch steps: gradients averaged over two ranks give the weights that one rank gets."""
    words = [
        "env=toy/Line",
        "sync=true",
        "policy.hidden=16",
        "actors.envs=8",
        "actors.steps=16",
        "learner.ppo.epochs=1",
    ]
    words += ["learner.minibatch=256", "learner.env_steps=256", "stages=[train]", "evaluate.every=0"]
    for n in (1, 2):
        assert launch("run", *words, f"learner.n={n}", f"run.folder={tmp_path}", f"run.name=n{n}").wait(180) == 0
    one, two = (checkpoint.latest(tmp_path / f"n{n}" / "checkpoints").arrays["model"] for n in (1, 2))
    for name, value in one.items():
        assert abs(value - two[name]).max() < 1e-5, name
