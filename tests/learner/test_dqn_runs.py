"""Whole runs of DQN: stopped, resumed, killed and finetuned; that it learns; and what is refused before it starts."""

import json

import numpy as np
import pytest

from cluster import run as controller
from cluster.config.tree import compose
from learner import checkpoint
from learner.algorithms.dqn import DQN, DQNConfig
from llm_service.errors import UsageError

SMALL = ["method=dqn", "cluster=inline", "policy.hidden=16", "actors.envs=4", "actors.steps=8", "evaluate.episodes=8"]
SMALL += [
    "learner.dqn.start_steps=128",
    "learner.dqn.samples_per_insert=4",
    "learner.dqn.target_every=240",
    "learner.dqn.decay_steps=500",
]
SMALL += ["learner.learning_rate=1e-3", "learner.minibatch=32", "evaluate.every=0"]


def config(folder, name, *words):
    return compose([*SMALL, f"run.folder={folder}", f"run.name={name}", *words])


@pytest.mark.parametrize(
    "words",
    [
        ["env=toy/Line", "learner.dqn.capacity=600"],
        ["env=toy/Line", "learner.dqn.prioritised=true", "policy.atoms=11", "policy.v_min=-1", "policy.network=texts"],
        ["env=babyai/GoToLocal"],
    ],
    ids=["toy", "toy-priorities-atoms", "babyai"],
)
def test_stop_and_resume_is_bitwise_the_run_without_a_stop(tmp_path, words, monkeypatch):
    from cluster.stages.train import Engine as Training

    words = [*words, "sync=true", "learner.env_steps=1024", "stages=[train]"]
    assert controller.run(config(tmp_path, "whole", *words)) == 0
    real = Training._learned

    def stopping(self, *args):
        real(self, *args)
        if self.account.counters.version == 7 and not self.account.counters.resumes:
            self.folder.stop_file.touch()

    monkeypatch.setattr(Training, "_learned", stopping)
    assert controller.run(config(tmp_path, "parts", *words)) == 3
    assert checkpoint.latest(tmp_path / "parts" / "checkpoints").record["counters"]["version"] == 7
    assert controller.resume(tmp_path / "parts", [], False) == 0
    whole, parts = (checkpoint.latest(tmp_path / n / "checkpoints") for n in ("whole", "parts"))
    assert whole.arrays.keys() == parts.arrays.keys() == {"model", "optimiser", "target", "rank-0", "actors"}
    for stem, group in whole.arrays.items():
        assert group.keys() == parts.arrays[stem].keys()
        for name, value in group.items():
            np.testing.assert_array_equal(value, parts.arrays[stem][name], err_msg=f"{stem} {name}")
    assert whole.arrays["rank-0"]["counts.updates"] == 120  # 4 rows a step in minibatches of 32, 960 steps
    keys = ("version", "env_steps", "losses/q", "losses/td_error", "policy/q_mean", "policy/epsilon", "replay/ratio")
    one, two = (
        [json.loads(line) for line in (tmp_path / n / "metrics.jsonl").read_text().splitlines()]
        for n in ("whole", "parts")
    )
    assert [[row.get(key) for key in keys] for row in one] == [[row.get(key) for key in keys] for row in two]


def test_a_learner_that_dies_goes_on_from_the_checkpoint_with_its_replay(tmp_path, monkeypatch):
    """In sync mode even that is the run in which nobody died."""
    words = ["env=toy/Line", "sync=true", "learner.env_steps=2048", "stages=[train]", "learner.dqn.capacity=1600"]
    words += ["run.checkpoint_every_s=0.000001"]
    assert controller.run(config(tmp_path, "whole", *words)) == 0
    real, deaths = DQN.learn, []

    def mortal(self, version, *args):
        report = real(self, version, *args)  # what it inserted stays in the files
        if version == 20 and not deaths:
            deaths.append(version)
            raise RuntimeError("struck by lightning")
        return report

    monkeypatch.setattr(DQN, "learn", mortal)
    assert controller.run(config(tmp_path, "hurt", *words)) == 0
    whole, hurt = (checkpoint.latest(tmp_path / n / "checkpoints") for n in ("whole", "hurt"))
    assert hurt.record["counters"]["learner_restarts"] == 1
    for stem in ("model", "target", "rank-0"):
        for name, value in whole.arrays[stem].items():
            np.testing.assert_array_equal(value, hurt.arrays[stem][name], err_msg=f"{stem} {name}")


EVERYTHING = [
    "policy.network=texts",
    "learner.dqn.prioritised=true",
    "policy.atoms=21",
    "policy.v_min=-1",
    "policy.v_max=2",
]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param([], id="plain"),
        pytest.param(EVERYTHING, id="everything"),
        pytest.param(["learner.autocast=auto"], id="bfloat16", marks=pytest.mark.slow),  # of one update, see above
    ],
)
def test_learns_the_sentence(tmp_path, words):
    words = ["env=toy/Line", "learner.env_steps=6000", "actors.envs=8", "learner.dqn.samples_per_insert=8", *words]
    words += ["learner.dqn.decay_steps=3000", "evaluate.episodes=64", "policy.hidden=32", "learner.dqn.keep=memory"]
    assert controller.run(config(tmp_path, "dqn", *words)) == 0
    result = json.loads((tmp_path / "dqn/stages/evaluate/results.json").read_text())
    assert result["success"]["rate"] == 1.0
    row = json.loads((tmp_path / "dqn/metrics.jsonl").read_text().splitlines()[-1])
    assert 0.3 < row["policy/q_mean"] < 1.05  # of what was lived, exploring too; the best is a reward of 1 at once
    assert row["dropped_chunks"] == 0
    assert not (tmp_path / "dqn/replay").exists()


def test_a_finished_policy_is_finetuned_by_its_last_layers(tmp_path):
    words = ["env=toy/Line", "learner.env_steps=512", "stages=[train]"]
    assert controller.run(config(tmp_path, "a", *words)) == 0
    assert controller.run(config(tmp_path, "b", *words, "from=run:a/train", "learner.dqn.fit=critic")) == 0
    a, b = (checkpoint.latest(tmp_path / n / "checkpoints").arrays["model"] for n in ("a", "b"))
    moved = {name for name in a if not np.array_equal(a[name], b[name])}
    assert moved
    assert all(name.startswith("q.") for name in moved)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["method=dqn", "policy.head=actor_critic"], r"method dqn needs policy\.head=dueling"),
        (["method=dqn", "policy.memory=gru"], r"method dqn needs policy\.memory=none"),
        (["method=dqn", "learner.algorithm=ppo"], r"method dqn needs learner\.algorithm=dqn"),
        (["method=dqn", "learner.dqn.capacity=100"], "four chunks"),
        (["method=dqn", "learner.dqn.fit=linear"], "from=run:NAME/train"),
        (["method=dqn", "learner.dqn.reinit=true"], r"dqn\.fit=linear or critic"),
        (["method=dqn", "policy.atoms=5", "policy.v_min=3", "policy.v_max=3"], "less than"),
        (["method=dqn", "env=gym/Pendulum-v1"], "discrete action space"),
        (["method=dqn", "learner.dqn.epsilon_end=1.5"], r"dqn\.epsilon_end: must be between 0 and 1"),
        (["method=dqn", "learner.dqn.n_step=0"], r"dqn\.n_step: must be at least 1"),
        (["learner.algorithm=dqn"], r"method ppo needs learner\.algorithm=ppo"),
        (["policy.head=dueling"], r"method ppo needs policy\.head=actor_critic"),
    ],
)
def test_what_could_never_run_is_refused_with_the_reason(words, reason):
    with pytest.raises(UsageError, match=reason):
        compose(["env=toy/Line", *words] if not any(w.startswith("env=") for w in words) else words)


def test_the_published_agent_is_the_default():
    found = compose(["method=dqn", "env=toy/Line"])
    assert (found.learner.learning_rate, found.learner.discount, found.learner.minibatch) == (6.25e-5, 0.99, 64)
    dqn = found.learner.part(DQNConfig)
    assert (dqn.n_step, found.policy.hidden, dqn.double) == (3, 512, True)
    assert found.learner.minibatch / dqn.samples_per_insert == 4  # env steps a gradient step
    assert dqn.target_every == 8000
