"""The page on new things: each of its examples is put beside ours, without an edit, and runs as the page says."""

import importlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import envs
from actors import players, wrappers
from cluster import run as controller
from cluster import stages
from cluster.cli import llm_verbs
from cluster.config import overrides
from cluster.config.tree import compose
from cluster.metrics import sinks
from cluster.report import panels
from envs import registry
from learner import algorithms, histories, methods, potentials, rewards
from learner.models import networks
from learner.search import descriptors, emitters, qualities
from llm_service import backends, tasks
from tests.extending import COMMANDS, FILES, LABELS, PAGE

ROOT = PAGE.parents[1]
PACKAGES = (
    envs, wrappers, players, networks, rewards, potentials, algorithms, histories, stages, methods, tasks, backends,
    panels, sinks, descriptors, qualities, emitters,
)  # fmt: skip
SMALL = ["cluster=inline", "policy.hidden=8", "actors.envs=4", "actors.steps=8", "evaluate.episodes=4"]
TRAINED = ["learner.env_steps=128", "learner.minibatch=16", "evaluate.every=0", "evaluate.videos=0"]


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """All files of the page in a folder of their own, which our packages look through too."""
    known = set(sys.modules)
    shutil.copytree(overrides.CONFIGS, tmp_path / "configs")
    monkeypatch.setattr(overrides, "CONFIGS", tmp_path / "configs")
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for package in PACKAGES:
        folder = tmp_path / package.__name__.replace(".", "/")
        if folder.is_dir():
            monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    yield tmp_path
    tasks.task.cache_clear()
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
            package, _, module = name.rpartition(".")
            vars(sys.modules[package]).pop(module, None)


def play(folder, words):
    """Run a command of the page, small and in this process. Returns the run's folder."""
    assert controller.run(compose([*SMALL, *TRAINED, *words, f"run.folder={folder}", "run.name=a"])) == 0
    return folder / "a"


def test_no_file_of_the_page_is_there_and_each_is_used(beside):
    assert len(FILES) == 20
    assert not [name for name in FILES if (ROOT / name).exists()]
    assert "coin" in registry.families()
    assert "wide" in networks.names()
    assert "clock" in wrappers.names()
    assert "pacer" in players.nameable()
    assert "count" in rewards.names()
    assert "patient" in potentials.names()
    assert "reinforce" in algorithms.names()
    assert "turning" in descriptors.names()
    assert "early" in qualities.names()
    assert "blend" in emitters.names()
    assert "repeats" in histories.names()
    assert "census" in stages.names()
    assert "counting" in methods.names()
    assert "lengths" in panels.names()
    assert "spreadsheet" in sinks.names()
    assert "choose_goal" in tasks.names()
    assert "bigram" in backends.names()


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[-1])
def test_every_command_of_the_page_runs(beside, words):
    path = play(beside / "runs", words)
    assert [json.loads(file.read_text())["stage"] for file in path.glob("stages/*/manifest.json")]


def test_what_the_examples_do_is_seen_in_their_runs(beside):
    assert [words[0] for words in COMMANDS].count("env=coin") == 1
    counting = play(beside / "k", next(words for words in COMMANDS if "method=counting" in words))
    kind = json.loads((counting / "stages/census/manifest.json").read_text())
    assert (kind["kind"], kind["counts"]) == ("census", {"envs": 8})
    spec = envs.spec("coin/Toss", tries=2)
    env = envs.make("coin/Toss", 3, tries=2)
    assert spec.fields["side"].size == 2
    obs, _ = env.reset(seed=5)
    _, reward, done, _, _ = env.step(obs["side"])
    assert reward.tolist() == [1.0] * 3
    assert done.all()
    counted = play(beside / "c", next(words for words in COMMANDS if "method.intrinsic.name=count" in words))
    rows = [json.loads(line) for line in (counted / "metrics.jsonl").read_text().splitlines()]
    paid = [row["intrinsic/reward_mean"] for row in rows if "intrinsic/reward_mean" in row]
    assert paid[0] > paid[-1] > 0  # what is met again bores
    repeats = play(beside / "r", next(words for words in COMMANDS if "method.histories.learner=repeats" in words))
    told = json.loads((repeats / "stages/histories/results.json").read_text())
    assert told["return"][-1] > 2 * told["return"][0]  # who repeats the best becomes better
    found = play(beside / "d", next(words for words in COMMANDS if "method.search.emitter=blend" in words))
    scores = json.loads((found / "stages/search/results.json").read_text())
    assert (scores["descriptor"], scores["quality"], scores["reachable"]) == ("turning", "early", 400)
    assert 0 < scores["grid-0"]["coverage"] <= 1
    patient = play(beside / "p", next(words for words in COMMANDS if "method.shaping.potential=patient" in words))
    rows = [json.loads(line) for line in (patient / "metrics.jsonl").read_text().splitlines()]
    assert any(row.get("rewards/shaping") for row in rows)
    assert "The last episodes took" in (counted / "report.html").read_text()
    spread = play(beside / "s", next(words for words in COMMANDS if "run.sinks=[spreadsheet]" in words))
    lines = (spread / "numbers.csv").read_text().splitlines()
    rows = [json.loads(line) for line in (spread / "metrics.jsonl").read_text().splitlines()]
    learned = [row["losses/policy"] for row in rows if "losses/policy" in row]
    told = [float(line.split(",")[2]) for line in lines if ",losses/policy," in line]
    assert told
    np.testing.assert_allclose(told, learned, atol=1e-6)
    assert any(",results/evaluate/success/rate," in line for line in lines)


def test_a_task_of_the_page_answers_a_file(beside):
    ((inputs, words),) = LABELS
    task, asked, chosen, *words = words.split()
    (beside / asked).write_text(inputs)
    assert llm_verbs.label(task, beside / asked, beside / chosen, words, beside / "labels", dry_run=False) == 0
    value = json.loads((beside / chosen).read_text())["value"]
    assert value["goal"] == "go left"
    assert 0.5 < value["probability"] < 1


def test_the_page_leads_to_every_kind_of_module():
    """Where things are found by name is a folder that the page's table names."""
    table = PAGE.read_text().split("\n## ")[0]
    for package in PACKAGES:
        assert package.__name__.replace(".", "/") in table
        importlib.import_module(package.__name__)
    assert Path(ROOT / "docs/llm_service.md").exists()
