"""Ray on this machine as a backend: roles come and go."""

import os

import pytest

from cluster.backend import RoleDied
from cluster.local import Local

# Made here and not found by name: workers cannot import tests, so it is sent to them by value.
PARTS = {"ready": lambda self: True, "niceness": lambda self: os.getpriority(os.PRIO_PROCESS, 0)}
ROLE = type("Role", (), {"__module__": "__main__", **PARTS})


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    backend = Local(2, tmp_path_factory.mktemp("ray") / "token", dashboard=False)
    yield backend
    backend.shutdown()


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


def test_the_kernel_prefers_no_role_to_another_nor_the_controller_to_them(local):
    handle = local.start("peer", ROLE)
    assert local.result(local.submit(handle, "niceness")) == os.getpriority(os.PRIO_PROCESS, 0)
    local.kill(handle)
