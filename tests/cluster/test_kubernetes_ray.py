"""A run on a Ray cluster of several nodes as the manifest makes them, each a process here instead of a pod."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from cluster.config.tree import compose
from cluster.jobs.kubernetes import launcher as kubernetes
from cluster.jobs.kubernetes import ray_cluster

ROOT = Path(__file__).resolve().parents[2]
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
WORDS = ["experiment=toy", "run.name=one", "cluster=kubernetes", "cluster.kubernetes.image=registry.example/cairn:1.0"]


@pytest.fixture(scope="module")
def ray():
    """The address of a cluster with the parameters and resources of the manifest's head, learner and actors."""
    folder = Path(tempfile.mkdtemp(prefix="r-", dir="/tmp"))  # sockets have short paths
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    environment = {**os.environ, "PATH": PATH, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    environment |= {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT)}  # in the image, the code is where it is
    spec = ray_cluster.job(compose(WORDS))["spec"]["rayClusterSpec"]
    groups = {group["groupName"]: group for group in spec["workerGroupSpecs"]}
    processes = []
    for name in ("head", "learner", "actors"):
        group = groups.get(name, spec["headGroupSpec"])
        where = ["--head", "--port", address.split(":")[1], "--temp-dir", folder, "--include-dashboard=false"]
        options = where if name == "head" else ["--address", address]
        own = {key: group["rayStartParams"][key] for key in ("num-cpus", "num-gpus") if key in group["rayStartParams"]}
        options += [f"--{key}={value}" for key, value in own.items()]
        options.append(f"--resources={json.dumps({k: int(v) for k, v in group.get('resources', {}).items()})}")
        command = [
            "ray",
            "start",
            "--block",
            "--node-ip-address=127.0.0.1",
            "--object-store-memory=100000000",
            *options,
        ]
        with open(folder / f"{name}.log", "w") as log:
            processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        end = time.monotonic() + 60
        while "Ray runtime started" not in (folder / f"{name}.log").read_text():
            assert processes[-1].poll() is None, (folder / f"{name}.log").read_text()
            assert time.monotonic() < end
            time.sleep(0.2)
    yield address, environment
    for process in reversed(processes):
        process.terminate()  # it ends what it started
    for process in processes:
        process.wait(60)
    shutil.rmtree(folder)


@pytest.mark.slow
def test_the_words_of_the_manifest_run_where_their_roles_belong(ray, tmp_path):
    address, environment = ray
    config = compose([*WORDS, f"run.folder={tmp_path}", "learner.env_steps=8000", "evaluate.episodes=20"])
    (tmp_path / "words").write_text("\n".join(kubernetes.words(config)) + "\n")
    done = subprocess.run(
        [ROOT / "docker" / "run.sh", tmp_path / "one", tmp_path / "words"],
        env={**environment, "RAY_ADDRESS": address},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    status = json.loads((tmp_path / "one" / "status.json").read_text())
    assert status["state"] == "done"
    assert status["env_steps"] >= 8000
    # Each role asks for a resource that one node has, and the head has no CPUs: nothing could run elsewhere.
    assert kubernetes.demand(config, "learner-0")["resources"].keys() == {"learner"}
    assert kubernetes.demand(config, "actor-0")["resources"].keys() == {"actors"}


@pytest.mark.slow
def test_without_the_token_nobody_joins(ray, tmp_path):
    address, environment = ray
    (tmp_path / "words").write_text("\n".join([*WORDS, f"run.folder={tmp_path}", "cluster.start_timeout_s=5"]) + "\n")
    done = subprocess.run(
        [ROOT / "docker" / "run.sh", tmp_path / "one", tmp_path / "words"],
        env={**environment, "RAY_ADDRESS": address, "RAY_AUTH_TOKEN": "0" * 64},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode != 0
    assert json.loads((tmp_path / "one" / "status.json").read_text())["state"] == "crashed"
