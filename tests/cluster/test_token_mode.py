"""Ray has its token however it is started, whatever the environment said before; who has none is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.config.tree import compose
from cluster.jobs.kubernetes import ray_cluster

ROOT = Path(__file__).resolve().parents[2]
BEFORE = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "CAIRN_"))}
LOOK = """
import os, stat
from cluster.roles import local
from ray._private.authentication.authentication_utils import is_token_auth_enabled
place = os.environ["RAY_AUTH_TOKEN_PATH"]
modes = [oct(stat.S_IMODE(os.stat(where).st_mode)) for where in (place, os.path.dirname(place))]
print(os.environ["RAY_AUTH_MODE"], *modes)
print(is_token_auth_enabled(), len(open(place).read()), open(place).read() == local.TOKEN, place)
"""


@pytest.mark.parametrize("mode", [{}, {"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_TOKEN_PATH": "/dev/null"}])
def test_a_run_on_this_machine_makes_its_own_token(mode):
    done = subprocess.run(
        [sys.executable, "-c", LOOK], cwd=ROOT, env={**BEFORE, **mode}, capture_output=True, text=True, timeout=120
    )
    first, second = done.stdout.splitlines()
    assert first == "token 0o600 0o700", done.stderr
    *facts, place = second.split()
    assert facts == ["True", "64", "True"]
    assert not Path(place).exists()  # gone with its process


def test_a_process_that_has_examined_the_machine_can_start_ray_too():
    """Ray reads its settings once, when it is imported, so that whoever imports it first needs the token."""
    words = "from pathlib import Path\nfrom cluster.cli import doctor\nprint(doctor._ray(Path()).state)\n" + LOOK
    done = subprocess.run(
        [sys.executable, "-c", words], cwd=ROOT, env=BEFORE, capture_output=True, text=True, timeout=120
    )
    found, _, last = done.stdout.splitlines()
    assert found in ("ok", "warn"), done.stderr
    assert last.split()[0] == "True"


@pytest.mark.parametrize("mode", [{}, {"RAY_AUTH_MODE": "disabled"}])
def test_the_head_of_a_job_does_not_start_without_a_token(mode):
    command = [sys.executable, "-m", "cluster.jobs.slurm.head", "127.0.0.1", "1", "0"]
    done = subprocess.run(command, cwd=ROOT, env={**BEFORE, **mode}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "RAY_AUTH_MODE is not token" in done.stderr


def test_a_run_does_not_join_a_ray_without_a_token(tmp_path):
    """As `docker/run.sh` and the batch script start it."""
    words = ["experiment=toy", f"run.folder={tmp_path}", "run.name=a"]
    (tmp_path / "words").write_text("\n".join(words) + "\n")
    path = f"{Path(sys.executable).parent}{os.pathsep}{BEFORE['PATH']}"
    done = subprocess.run(
        [ROOT / "docker" / "run.sh", tmp_path / "a", tmp_path / "words"],
        env={**BEFORE, "PATH": path, "RAY_ADDRESS": "127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert "a Ray cluster without a token" in done.stderr


def test_a_cluster_on_kubernetes_is_behind_the_token_of_its_secret():
    config = compose(["experiment=toy", "cluster=kubernetes", "cluster.kubernetes.image=registry.example/c:1"])
    for made in (ray_cluster.job(config)["spec"]["rayClusterSpec"], ray_cluster.bench(config)["spec"]):
        assert made["authOptions"] == {"mode": "token", "secretName": "cairn-ray"}
