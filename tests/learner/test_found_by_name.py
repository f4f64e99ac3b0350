"""A new reward term and a new algorithm are one module each: put beside ours, they run through the engine as it is."""

import ast
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from cluster import run as controller
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose, load
from learner import algorithms, checkpoint, potentials, rewards
from learner.rewards import IntrinsicConfig
from tests.extending import example

ROOT = Path(__file__).resolve().parents[2]

COUNT, REINFORCE = example("learner/rewards/count.py"), example("learner/algorithms/reinforce.py")

SMALL = ["env=toy/Line", "cluster=inline", "sync=true", "evaluate.every=0", "evaluate.videos=0", "actors.envs=4"]
SMALL += ["actors.steps=8", "policy.hidden=8", "learner.minibatch=16", "stages=[{}]", "run.checkpoint_every_s=0.001"]
COUNTING = ["method.intrinsic.name=count", "method.intrinsic.reads=[position]", "method.intrinsic.exponent=1"]
REPLAYING = [
    "method=dqn",
    "learner.dqn.start_steps=64",
    "learner.dqn.samples_per_insert=2",
    "learner.dqn.capacity=1600",
]
REINFORCING = ["method=ellm", "method.goals.source=none", "learner.algorithm=reinforce", "policy.head=actor_critic"]
REINFORCING += ["policy.network=mlp", "policy.text=learned", "learner.reward_weights.env=1"]


def beside(monkeypatch, folder, package, name, text):
    """Put a module beside those of a package, for this test alone."""
    (folder / f"{name}.py").write_text(text)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    monkeypatch.delitem(sys.modules, f"{package.__name__}.{name}", raising=False)


@pytest.fixture
def count(monkeypatch, tmp_path_factory):
    beside(monkeypatch, tmp_path_factory.mktemp("rewards"), rewards, "count", COUNT)


@pytest.fixture
def reinforce(monkeypatch, tmp_path_factory):
    beside(monkeypatch, tmp_path_factory.mktemp("algorithms"), algorithms, "reinforce", REINFORCE)


def words_of(folder, name, stage, *words):
    small = [word.format(stage) if word.startswith("stages") else word for word in SMALL]
    return [*small, f"run.folder={folder}", f"run.name={name}", *words]


def play(folder, name, stage, *words):
    """A run's last checkpoint, and its rows of metrics."""
    assert controller.run(compose(words_of(folder, name, stage, *words))) == 0
    return told(folder / name)


def told(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return checkpoint.latest(run / "checkpoints").arrays, rows


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for stem, group in ours.items():
        for name, value in group.items():
            np.testing.assert_array_equal(value, theirs[stem][name], err_msg=f"{stem} {name}")


@pytest.mark.parametrize("method", [["method=ppo"], REPLAYING], ids=["ppo", "dqn"])
def test_a_new_reward_term_is_one_module(tmp_path, count, method):
    """It is paid, it learns, and it goes on where a run stopped, with either algorithm."""
    words = [*method, *COUNTING]
    whole, rows = play(tmp_path, "whole", "train", *words, "learner.env_steps=512")
    paid = [row["intrinsic/reward_mean"] for row in rows if "intrinsic/reward_mean" in row]
    assert 0 < paid[-1] < paid[0] / 4  # it has been everywhere
    plain, _ = play(tmp_path, "plain", "train", *method, "learner.env_steps=512")
    assert any(not np.array_equal(value, plain["model"][name]) for name, value in whole["model"].items())
    if method == REPLAYING:
        assert whole["intrinsic"]["met"].sum() > whole["rank-0"]["counts.updates"] * 16  # walks of up to 3 steps
    else:
        assert whole["intrinsic"]["met"].sum() == 512
    assert load(tmp_path / "whole" / "config.yaml").method.part(IntrinsicConfig).exponent == 1.0


def test_a_new_algorithm_is_one_module(tmp_path, reinforce, count):
    """With keys of its own, and with a reward term that is as new."""
    words = [*REINFORCING, *COUNTING, "learner.reinforce.baseline=0.25", "learner.anneal=false"]
    whole, rows = play(tmp_path, "whole", "pretrain", *words, "learner.env_steps=512")
    assert int(whole["reinforce"]["learned"]) == whole["intrinsic"]["met"].sum() == 512
    assert all(np.isfinite(row["losses/policy"]) for row in rows if "losses/policy" in row)
    play(tmp_path, "parts", "pretrain", *words, "learner.env_steps=256")
    assert controller.resume(tmp_path / "parts", ["learner.env_steps=512"], True) == 0
    parts, _ = told(tmp_path / "parts")
    assert_same({k: v for k, v in whole.items() if k != "actors"}, {k: v for k, v in parts.items() if k != "actors"})
    other, _ = play(tmp_path, "other", "pretrain", *words, "learner.reinforce.baseline=0.5", "learner.env_steps=512")
    assert any(not np.array_equal(value, other["model"][name]) for name, value in whole["model"].items())


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["learner.algorithm=reinfroce"], r"learner\.algorithm: there is no 'reinfroce': did you mean reinforce\?"),
        (["learner.algorithm=xyz"], r"learner\.algorithm: there is no 'xyz': choose from dqn, ppo, reinforce"),
        (["method.intrinsic.name=cuont"], r"intrinsic\.name: there is no 'cuont': did you mean count\?"),
        (
            ["method.intrinsic.name=count", "method.intrinsic.exponnt=2"],
            r"unknown key method\.intrinsic\.exponnt .*method\.intrinsic\.exponent",
        ),
        (["method.intrinsic.exponent=high"], r"intrinsic\.exponent: expected a number, got 'high'"),
        ([*COUNTING, "method.intrinsic.exponent=-1"], r"intrinsic\.exponent must be more than 0"),
        (
            ["learner.reinforce.baselin=1"],
            r"unknown key learner\.reinforce\.baselin .*did you mean learner\.reinforce\.baseline\?",
        ),
        (["learner.reinforce.baseline=low"], r"reinforce\.baseline: expected a number, got 'low'"),
        ([*REINFORCING, *COUNTING, "policy.head=dueling"], r"reinforce needs policy\.head=actor_critic"),
    ],
)
def test_what_is_wrong_with_their_keys_is_one_sentence(reinforce, count, words, reason):
    with pytest.raises(ConfigError, match=reason):
        compose(["env=toy/Line", *words])


def test_without_their_modules_their_names_and_keys_are_unknown():
    for word in (
        "learner.algorithm=reinforce",
        "method.intrinsic.name=count",
        "learner.reinforce.baseline=1",
        "method.intrinsic.exponent=1",
    ):
        with pytest.raises(ConfigError):
            compose(["env=toy/Line", word])
    with pytest.raises(KeyError):
        algorithms.algorithm("reinforce")
    with pytest.raises(KeyError):
        rewards.term("count")


def test_two_terms_cannot_share_an_option(monkeypatch, tmp_path):
    beside(monkeypatch, tmp_path, rewards, "greedy", COUNT.replace("exponent", "neighbours"))
    with pytest.raises(TypeError, match="more than one module has an option neighbours"):
        compose(["env=toy/Line"])


def test_an_option_cannot_be_named_like_a_field_of_all(monkeypatch, tmp_path):
    beside(monkeypatch, tmp_path, rewards, "greedy", COUNT.replace("exponent", "scale"))
    with pytest.raises(TypeError, match="option scale, which is a field of all"):
        compose(["env=toy/Line"])


def test_nothing_outside_asks_for_one_of_them_by_name():
    """Their own modules do, and methods, which choose."""
    others = {"random", "oracle"}  # a player too, and whence goals are
    known = {*algorithms.names(), *rewards.names(), *potentials.names()} - others
    allowed = {ROOT / "learner" / room for room in ("algorithms", "rewards", "potentials", "methods")}
    for path in (path for room in ("learner", "actors", "cluster") for path in (ROOT / room).rglob("*.py")):
        if allowed & set(path.parents):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                asked = [side.value for side in (node.left, *node.comparators) if isinstance(side, ast.Constant)]
                assert not known & set(asked), f"{path}:{node.lineno} asks for {asked}"
