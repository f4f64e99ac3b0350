"""A real SLURM on this machine: jobs that train, are warned, are queued again, run on two nodes, are swept, crash.

`slurm.sh` starts it; where namespaces are allowed each of its two nodes has a network and processes of its own.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

ROOT = Path(__file__).resolve().parents[2]
TOY = ["experiment=toy", "cluster=slurm", "evaluate.every=0", "evaluate.episodes=32", "run.log_every_s=1"]
ENDLESS = ["learner.env_steps=1000000000", "run.checkpoint_every_s=1"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A folder to work in; SLURM answers there."""
    folder = tmp_path_factory.mktemp("slurm")
    command = ["bash", str(ROOT / "tests/slurm/slurm.sh")]
    subprocess.run([*command, "start", str(folder)], check=True, timeout=300)
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    yield folder
    del os.environ["SLURM_CONF"]
    subprocess.run([*command, "stop", str(folder)], check=False, timeout=60)


@pytest.fixture
def two_nodes(cluster):
    nodes = int((cluster / "nodes").read_text())
    if nodes < 2:
        pytest.skip("not run: this machine forbids network namespaces, so that SLURM has one node")
    return cluster


def launch(cluster, *words, code=0):
    done = subprocess.run(
        [sys.executable, str(ROOT / "launch.py"), *words], cwd=cluster, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == code, done
    return done.stdout + done.stderr


def submit(cluster, name, *words):
    """Hand a run over; its folder and job."""
    launch(cluster, "run", *TOY, f"run.name={name}", *words)
    path = cluster / "runs" / name
    return path, json.loads((path / "slurm.json").read_text())["job"]


def job(number):
    """What SLURM knows of a job: key -> value."""
    told = subprocess.run(["scontrol", "show", "job", number], capture_output=True, text=True, check=True).stdout
    return dict(re.findall(r"(\w+)=(\S*)", told.partition("\n\n")[0]))


def status(path):
    return json.loads((path / "status.json").read_text())


def rows(path):
    if not (path / "metrics.jsonl").exists():
        return []
    lines = (path / "metrics.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def wait_for(condition, what, seconds=400):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.5)
    pytest.fail(f"waited {seconds} s in vain for {what}")


def ended(number):
    return wait_for(lambda: (j := job(number))["JobState"] not in ("PENDING", "RUNNING", "COMPLETING") and j, "its end")


def learns(path, version):
    return wait_for(lambda: any(row["version"] >= version for row in rows(path)), f"version {version} of {path}")


def go_on_at_once(number):
    """SLURM lets a job that was queued again wait for two minutes; a node refuses it for a second or two."""
    wait_for(lambda: job(number)["JobState"] == "PENDING", "the job to be queued again")
    subprocess.run(["scontrol", "update", f"jobid={number}", "StartTime=now+4seconds"], check=True)


def test_a_warned_run_saves_is_queued_again_once_and_ends(cluster):
    """On one node: the same code as `cluster=local`, under a batch script that SLURM warns."""
    path, number = submit(cluster, "warned", "cluster.slurm.cpus=2", *ENDLESS)
    learns(path, 8)
    subprocess.run(["scancel", "--batch", "--signal=USR2", number], check=True)
    go_on_at_once(number)
    saved = status(path)
    assert saved["state"] == "stopped"
    before = rows(path)[-1]
    assert "queued (BeginTime)" in launch(cluster, "status", "warned") or job(number)["JobState"] != "PENDING"
    learns(path, before["version"] + 3)
    launch(cluster, "stop", "warned")
    assert ended(number)["Restarts"] == "1"
    printed = (path / f"job-{number}.txt").read_text()
    assert [line.split()[-1] for line in printed.splitlines() if f"job {number}, start" in line] == ["0", "1"]
    assert re.search(rf"resumed at {before['env_steps']:,} env steps, version {before['version']}$", printed, re.M)
    assert json.loads((path / "requeues.json").read_text())["requeues"] == 1
    versions = [row["version"] for row in rows(path) if row["kind"] == "train"]
    assert versions == list(range(1, len(versions) + 1)), "each update once, none twice, none left out"
    for key in ("env_steps", "episodes"):
        values = [row[key] for row in rows(path) if row["kind"] == "train"]
        assert values == sorted(values), key

    # A new job ends it: what is learned so far is enough.
    steps = rows(path)[-1]["env_steps"]
    launch(cluster, "resume", "warned", f"learner.env_steps={steps + 4096}", "--allow-change")
    number = json.loads((path / "slurm.json").read_text())["job"]
    assert ended(number).items() >= {"JobState": "COMPLETED", "ExitCode": "0:0", "Restarts": "0"}.items()
    assert status(path)["state"] == "done"
    assert json.loads((path / "stages/evaluate/results.json").read_text())["success"]["rate"] > 0.9
    assert "done in" in launch(cluster, "logs", "warned") or (path / "report.html").exists()


def test_two_nodes_are_one_ray_behind_a_token(two_nodes):
    path, number = submit(two_nodes, "two", "cluster.slurm.nodes=2", *ENDLESS)
    learns(path, 2)
    step = ["srun", "--overlap", f"--jobid={number}", "--nodes=1", "--ntasks=1"]

    def on(node, *command):
        done = subprocess.run([*step, f"--nodelist={node}", *command], capture_output=True, text=True, timeout=60)
        return done.stdout

    first, second = on("n1", "ps", "axo", "args"), on("n2", "ps", "axo", "args")
    assert "ray::Learner" in first
    assert "ray::RolloutActor" not in first
    assert second.count("ray::RolloutActor") == 2
    assert "launch.py resume" in first
    assert (path / "token").stat().st_mode & 0o777 == 0o600
    token = (path / "token").read_text()
    assert token not in first + second, "a token on a command line is no secret"
    address = f"10.213.7.11:{20000 + int(number) % 4000}"
    asks = "import ray, sys; ray.init(sys.argv[1], log_to_driver=False); print('joined', len(ray.nodes()))"
    asking = [sys.executable, "-c", asks, address]
    right = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path / "token")}
    wrong = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
    for environment, joins in ((right, True), (wrong, False), ({"RAY_AUTH_MODE": "disabled"}, False)):
        variables = [f"{key}={value}" for key, value in environment.items()]
        printed = on("n1", "timeout", "50", "env", *variables, *asking)
        assert ("joined 2" in printed) == joins, (environment.keys(), printed)
    launch(two_nodes, "stop", "two")
    assert ended(number)["ExitCode"] == "3:0"
    assert status(path)["state"] == "stopped"
    assert not (path / "token").exists()
    for node in ("n1", "n2"):
        left = subprocess.run(["srun", f"--nodelist={node}", "ps", "axo", "args"], capture_output=True, text=True)
        assert "ray" not in left.stdout, "nothing of the job is left"
    assert not [path for path in Path("/tmp").iterdir() if re.fullmatch(r"cairn-\w{6}(-\d+)?", path.name)]


def test_a_sweep_is_one_array_with_a_cap(cluster):
    words = ["sweep", *TOY, "run.name=swept", "seed=0..2", "cluster.slurm.cpus=1", "learner.env_steps=4096"]
    assert "submitted 3 members" in launch(cluster, *words, "-j", "2")
    runs = [cluster / "runs" / f"swept-{i}-seed-{i}" for i in range(3)]
    most = 0
    while not all(status(run)["state"] == "done" for run in runs):
        told = subprocess.run(["squeue", "--noheader", "--states=RUNNING"], capture_output=True, text=True).stdout
        most = max(most, len(told.splitlines()))
        assert not any(status(run)["state"] in ("crashed", "stopped") for run in runs)
        time.sleep(0.5)
    assert most == 2
    wait_for(lambda: not subprocess.run(["squeue", "-h"], capture_output=True).stdout, "the array's end")
    again = launch(cluster, *words)
    assert "submitted" not in again
    assert again.count("done") == 3


def test_what_does_not_begin_is_told_and_what_crashes_is_not_queued_again(cluster):
    refused = launch(cluster, "run", *TOY, "run.name=nowhere", "cluster.slurm.partition=nowhere", code=2)
    assert "SLURM refuses the job: " in refused
    assert "invalid partition specified: nowhere" in refused
    assert not (cluster / "runs" / "nowhere").exists()

    path, number = submit(cluster, "held", "cluster.slurm.options=['--hold']", "cluster.slurm.cpus=1")
    assert "queued (JobHeldUser)" in launch(cluster, "status", "held")
    assert f"took job {number} out of the queue" in launch(cluster, "stop", "held")
    assert ended(number)["JobState"] == "CANCELLED"

    path, number = submit(cluster, "crash", "cluster.slurm.options=['--hold']", "cluster.slurm.cpus=1")
    (path / "checkpoints" / "LATEST").write_text("v00000001")  # promises what is not there
    subprocess.run(["scontrol", "release", number], check=True)
    assert ended(number).items() >= {"JobState": "FAILED", "ExitCode": "2:0", "Restarts": "0"}.items()
    assert "no good checkpoint" in launch(cluster, "logs", "crash")
