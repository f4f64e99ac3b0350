"""Ray on this machine as a backend: roles come and go."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from cluster.roles import local as local_module
from cluster.roles.backend import AskedToStop, RoleDied
from cluster.roles.local import Local
from llm_service.errors import UsageError

# Made here and not found by name: workers cannot import tests, so it is sent to them by value.
PARTS = {
    "ready": lambda self: True,
    "pid": lambda self: os.getpid(),
    "niceness": lambda self: os.getpriority(os.PRIO_PROCESS, 0),
}
ROLE = type("Role", (), {"__module__": "__main__", **PARTS})


@pytest.fixture(scope="module")
def started():
    """The backend, once there is one: tests share it."""
    backends = []
    yield backends
    for backend in backends:
        backend.shutdown()


@pytest.fixture
def local(started, tmp_path_factory):
    """It, or another after a test that ends it: tests come in any order."""
    if not local_module.ray.is_initialized():
        started[:] = [Local(2, tmp_path_factory.mktemp("ray") / "token", dashboard=False)]
    return started[0]


def test_a_name_may_be_used_again_as_soon_as_its_role_was_killed(local):
    for _ in range(20):
        handles = [local.start(f"actor-{i}", ROLE) for i in range(2)]
        assert [handle.name for handle in handles] == ["actor-0", "actor-1"]
        for handle in handles:
            local.kill(handle)


def test_a_killed_role_is_a_dead_one(local):
    handle = local.start("other", ROLE)
    local.kill(handle)
    with pytest.raises(RoleDied, match="other in ready"):
        local.result(local.submit(handle, "ready"))


def test_a_role_whose_process_was_killed_is_told_of_in_one_line(local):
    handle = local.start("victim", ROLE)
    pid = local.result(local.submit(handle, "pid"))
    os.kill(pid, signal.SIGKILL)
    while local_module.state.actor_table(local_module.actor_id(handle))["State"] != "DEAD":
        time.sleep(0.05)
    with pytest.raises(RoleDied) as death:
        local.result(local.submit(handle, "ready"))
    told = f"victim in ready: its process {pid} has died: it crashed or was killed, perhaps for lack of memory"
    assert str(death.value) == told


def test_what_raises_in_a_role_is_told_with_its_place_and_without_colour(local):
    broken = type("Broken", (), {"__module__": "__main__", "__init__": lambda self: 1 / 0, **PARTS})
    with pytest.raises(RoleDied, match=r"(?s)test_local\.py.*ZeroDivisionError: division by zero$") as death:
        local.result(local.submit(local.start("broken", broken), "ready"))
    assert "\x1b" not in str(death.value)


def test_the_kernel_prefers_no_role_to_another_nor_the_controller_to_them(local):
    handle = local.start("peer", ROLE)
    assert local.result(local.submit(handle, "niceness")) == os.getpriority(os.PRIO_PROCESS, 0)
    local.kill(handle)


def test_ray_starts_no_process_that_nothing_uses(local):
    started = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # a killed role's; zombies are no such processes either
            started.append(" ".join(process.cmdline()))
    assert any("raylet" in words for words in started)
    for unused in ("log_monitor.py", "autoscaler/_private/monitor.py", "dashboard/dashboard.py"):
        assert not any(unused in words for words in started), started


def test_what_is_replaced_in_ray_is_its_own_again_once_it_runs(local):
    from ray._private import node, services, utils, worker

    own = (
        services.start_api_server, services.get_node, services.resolve_ip_for_localhost, node.Node.start_monitor,
        node.Node.start_log_monitor, utils.get_dashboard_dependency_error, worker.listen_error_messages,
    )  # fmt: skip
    assert all(function.__module__.startswith("ray._private.") for function in own)


def test_what_ray_writes_is_for_this_user_alone_and_gone_with_it(local):
    session = Path(local_module.ray._private.worker._global_node.get_session_dir_path())
    assert list((session / "logs").iterdir())
    inside = Path(tempfile.gettempdir())
    private = inside / session.relative_to(inside).parts[0]
    assert private.stat().st_uid == os.getuid()
    assert private.stat().st_mode & 0o777 == 0o700
    local.shutdown()
    assert not session.exists()
    assert not (private / "ray").exists()


@pytest.mark.parametrize(("room", "where"), [("/tmp", "/tmp"), ("/scratch/of/a/user/with/a/long/name", "/tmp")])
def test_the_folder_of_ray_has_a_path_that_is_short_enough_for_its_sockets(monkeypatch, room, where):
    monkeypatch.setattr(local_module.tempfile, "gettempdir", lambda: room)
    longest = "ray/session_2026-12-31_23-59-59_999999_4194304/sockets/plasma_store"
    folder = local_module.make_private()
    try:
        assert str(folder.parent) == where
        assert len(os.fsencode(folder / longest)) <= 107
    finally:
        folder.rmdir()


def test_without_a_place_for_files_a_run_is_refused_in_one_sentence(monkeypatch):
    monkeypatch.setattr(local_module.tempfile, "gettempdir", lambda: "/dev/null")
    with pytest.raises(UsageError, match=r"^cannot create this run's folder in /dev/null, Not a directory: "):
        local_module.make_private()


def test_a_ray_that_does_not_come_up_is_started_again(monkeypatch):
    said = iter([RuntimeError("Timed out waiting for file gcs_server_port"), Exception("timed out during startup")])

    def init(*words, **options):
        for error in said:
            raise error
        return words, options

    monkeypatch.setattr(local_module.ray, "init", init)
    monkeypatch.setattr(local_module.ray, "shutdown", lambda: None)
    told = {"num_cpus": 3, "include_dashboard": False}
    assert local_module._init(lambda: None, False, num_cpus=3) == (("local",), told)


def test_a_run_that_is_asked_to_stop_tries_no_further_to_start_ray(monkeypatch):
    tried = []

    def init(*words, **options):
        tried.append(words)
        raise RuntimeError("Timed out waiting for file gcs_server_port")

    def look():
        if tried:
            raise AskedToStop("STOP file")

    monkeypatch.setattr(local_module.ray, "init", init)
    monkeypatch.setattr(local_module.ray, "shutdown", lambda: None)
    with pytest.raises(AskedToStop):
        local_module._init(look, False, num_cpus=3)
    assert len(tried) == 1


def test_a_ray_that_never_comes_up_ends_the_run_in_one_sentence_resumable(tmp_path):
    words = ["run", "env=toy/Line", "run.name=busy", f"run.folder={tmp_path}"]
    ended = subprocess.run(
        [sys.executable, local_module.ROOT / "launch.py", *words],
        env=os.environ | {"RAY_gcs_server_port_wait_time_s": "0"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 5, ended.stderr
    told = "Ray did not start on this machine in 3 tries: Timed out waiting for file "
    assert [line for line in ended.stderr.splitlines() if told in line], ended.stderr
    assert "Traceback" not in ended.stderr
    assert '"state": "stopped"' in (tmp_path / "busy" / "status.json").read_text()
