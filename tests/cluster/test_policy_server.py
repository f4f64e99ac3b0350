"""The policy server as a process that dies: what that costs, and what it does not."""

import os
import signal
from pathlib import Path

import pytest

from learner import checkpoint
from tests.cluster.test_faults import ENDLESS, children_of, launch, rows, status, wait_for

SERVED = ["experiment=glam_small", "policy.lm.folder=tiny-t5", "policy.lm.placement=server", "stages=[train]"]
SERVED += ["actors.envs=4", "actors.steps=5", "learner.minibatch=20", *ENDLESS]


@pytest.mark.slow
def test_a_killed_policy_server_costs_what_came_after_the_last_checkpoint(tmp_path):
    path, process = tmp_path / "served", launch("run", *SERVED, f"run.folder={tmp_path}", "run.name=served")
    wait_for(lambda: status(path).get("env_steps", 0) > 100, "the first updates", 300)
    wait_for(lambda: (path / "checkpoints" / "LATEST").exists(), "a checkpoint")
    server = [p for p in children_of(process.pid) if b"ray::PolicyServer" in Path(f"/proc/{p}/cmdline").read_bytes()]
    os.kill(server[0], signal.SIGKILL)
    wait_for(lambda: status(path).get("learner_restarts") == 1, "the restart", 300)
    at = status(path)["env_steps"]
    wait_for(lambda: status(path)["env_steps"] > at + 100, "learning to go on", 300)
    assert "the policy server died" in (path / "run.log").read_text()
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 3
    saved = checkpoint.latest(path / "checkpoints").record["counters"]
    history = [(r["version"], r["env_steps"]) for r in rows(path) if r["kind"] == "train"]
    assert history == [(version, 20 * version) for version in range(1, saved["version"] + 1)]  # none lost, none twice
