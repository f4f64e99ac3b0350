"""In Crafter, goals that a scripted model suggests teach an agent more than chance does.

By PPO, as the demo has it, and by DQN on frozen sentence embeddings, as published.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def learned(folder, name, *words):
    """The results of a run: achievements of held-out episodes, of the agent and of random actions."""
    command = [sys.executable, str(ROOT / "launch.py"), "run", f"run.folder={folder}", f"run.name={name}", *words]
    command += ["evaluate.every=0", "evaluate.videos=0", "evaluate.episodes=128", "evaluate.beside=[random]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / name / "stages/evaluate/results.json").read_text())


@pytest.mark.slow
def test_the_demo_unlocks_three_achievements_more_than_random_actions(tmp_path):
    demo = learned(tmp_path, "demo", "experiment=quickstart")
    assert demo["beside"]["random"]["difference"]["mean"] >= 3
    assert demo["return"]["low"] > demo["beside"]["random"]["return"]["high"] + 2


@pytest.mark.slow
def test_dqn_learns_from_suggested_goals(tmp_path):
    words = ["experiment=ellm_crafter", "env.id=crafter/Named", "env.observe=[view,items,feelings]", "policy.stack=1"]
    words += [
        "learner.minibatch=512",
        "learner.learning_rate=2e-4",
        "learner.env_steps=150000",
        "learner.autocast=auto",
    ]
    words += ["learner.dqn.decay_steps=100000", "learner.dqn.keep=memory", "actors.n=1", "actors.envs=32"]
    words += ["actors.steps=8", "llm.errors=0.4"]
    agent = learned(tmp_path, "dqn", *words)
    assert agent["beside"]["random"]["difference"]["mean"] >= 1
    assert agent["return"]["low"] > agent["beside"]["random"]["return"]["high"]
