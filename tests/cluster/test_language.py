"""The LLM service as a role of a run: found by the players, revived when it dies, its costs kept."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from cluster.run import resume, run
from cluster.topology import draw
from llm_service.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
WORDS = ["method=zero_shot", "evaluate.videos=0", "cluster.dashboard=false"]


def results(folder, name):
    return json.loads((folder / name / "stages" / "evaluate" / "results.json").read_text())


def lines(folder, name):
    return [json.loads(line) for line in (folder / name / "llm" / "journal.jsonl").read_text().splitlines()]


def test_a_language_model_plays_in_one_process(tmp_path):
    words = [*WORDS, "env=toy/Line", "cluster=inline", "evaluate.episodes=32", "actors.n=1", f"run.folder={tmp_path}"]
    assert run(compose([*words, "run.name=a"])) == 0
    assert results(tmp_path, "a")["success"]["n"] == 32
    asked = lines(tmp_path, "a")
    assert all(line["verb"] == "score" and line["candidates"] == ["left", "stay", "right"] for line in asked)
    assert len(asked) == len({line["key"] for line in asked})
    assert "Goal: go" in asked[0]["turns"][0][1]
    assert run(compose([*words, "run.name=b"])) == 0
    assert results(tmp_path, "a")["success"] == results(tmp_path, "b")["success"]
    assert not (tmp_path / "a" / "llm" / "address").exists()


def test_a_run_that_does_not_train_resumes(tmp_path):
    words = [*WORDS, "env=toy/Line", "cluster=inline", "evaluate.episodes=8", "actors.n=1", f"run.folder={tmp_path}"]
    assert run(compose([*words, "run.name=a"])) == 0
    shutil.rmtree(tmp_path / "a" / "stages")  # as if it had been stopped before its only stage ended
    assert resume(tmp_path / "a", [], False) == 0
    assert results(tmp_path, "a")["success"]["n"] == 8


def test_a_chat_model_is_not_asked_for_what_it_cannot_score():
    chat = ["method=zero_shot", "env=toy/Line", "llm=openai", "llm.model=m"]
    with pytest.raises(ConfigError, match=r"llm\.api"):
        compose(chat)
    compose([*chat, "llm.api=completions"])


def test_the_drawing_shows_it_only_when_it_is_asked():
    assert "llm" not in draw(compose(["env=toy/Line"]))
    drawn = draw(compose([*WORDS, "env=toy/Line", "llm.replicas=2"]))
    assert "LLM service, backend scripted" in drawn
    assert "replica" in drawn


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["llm=transformers", "llm.folder=/nowhere"], "/nowhere"),
        (["llm=openai", "llm.api=completions"], "llm.model"),
        (["llm=openai", "llm.api=completions", "llm.model=m"], "OPENAI_API_KEY"),
        (["llm=openai", "llm.api=completions", "llm.model=m", "llm.base_url=nonsense"], "base_url"),
        (["llm.limits.dollars=0"], "budget is 0"),
        (["llm=replay", "llm.replayed=/nowhere"], "/nowhere"),
        (["llm.address=/nowhere"], "/nowhere"),
        (["llm.address=127.0.0.1:9"], "CAIRN_LLM_TOKEN"),
    ],
)
def test_what_cannot_work_is_one_sentence_before_anything_is_written(tmp_path, monkeypatch, words, sentence):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UsageError, match=sentence):
        run(compose([*WORDS, "env=toy/Line", *words, f"run.folder={tmp_path}", "run.name=a"]))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "sentence", "code"),
    [
        (["llm.limits.tokens=20"], "limits.tokens is 20", 4),
        (["llm=faulty", "llm.script=[too_long]"], "refused", 2),
        (["llm=faulty", "llm.script=[401]", "llm.when_away=stop"], "answers 401 (scripted): the key is missing", 5),
    ],
)
@pytest.mark.parametrize("cluster", ["inline", pytest.param("local", marks=pytest.mark.slow)])
def test_what_cannot_pass_ends_the_run_at_once_with_a_sentence(tmp_path, cluster, words, sentence, code):
    words = [*WORDS, "env=toy/Line", f"cluster={cluster}", "evaluate.episodes=32", "actors.n=1", *words]
    words += [f"run.folder={tmp_path}", "run.name=a"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "launch.py"), "run", *words], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    state = json.loads((tmp_path / "a" / "status.json").read_text())
    assert state["state"] == ("crashed" if code == 2 else "stopped")
    assert sentence in state["reason"]
    if code == 4:
        again = [sys.executable, str(ROOT / "launch.py"), "resume", str(tmp_path / "a"), "llm.limits.tokens=10000"]
        assert subprocess.run(again, cwd=ROOT, capture_output=True, text=True, timeout=120).returncode == 0
        assert results(tmp_path, "a")["language_model"]["calls"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["LanguageRole", "Replica"])
def test_a_killed_service_or_replica_is_revived_and_the_run_ends_well(tmp_path, victim):
    words = [*WORDS, "env=babyai/GoToLocal", "evaluate.episodes=192", "actors.n=2", f"run.folder={tmp_path}"]
    words += ["run.name=a", "llm.replicas=1", "llm.latency_s=0.2"]
    command = [sys.executable, str(ROOT / "launch.py"), "run", *words]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    journal = tmp_path / "a" / "llm" / "journal.jsonl"
    ends = time.monotonic() + 300
    while not (journal.exists() and journal.stat().st_size > 20_000):
        assert running.poll() is None, running.communicate()[0]
        assert time.monotonic() < ends, "no answers"
        time.sleep(0.1)
    family = psutil.Process(running.pid).children(recursive=True)
    victims = [child for child in family if f"ray::{victim}" in " ".join(child.cmdline())]
    assert victims, f"no {victim} runs"
    for child in victims:
        child.kill()
    printed = running.communicate(timeout=300)[0]
    assert running.returncode == 0, printed
    if victim == "LanguageRole":
        assert "the LLM service died" in printed
    assert results(tmp_path, "a")["success"]["n"] == 192
    keys = [line["key"] for line in lines(tmp_path, "a")]
    assert len(keys) == len(set(keys))
