"""A language model is asked what people were asked: each question once, through death and empty purses."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import envs
from cluster import run as controller
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from cluster.metrics.answers import counts, intervals, measures
from cluster.report import document as report
from cluster.stages import calibrate
from llm_service.errors import BudgetExhausted
from tests.cluster.test_faults import wait_for

RATES = ["llm.wrong=0", "llm.false_yes=0.1", "llm.false_no=0.3"]
SMALL = ["method=calibration", "env=housekeep", "cluster=inline", *RATES]


def config(folder, name, *words):
    return compose([*SMALL, f"run.folder={folder}", f"run.name={name}", *words])


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def results(run):
    return json.loads((run / "stages/calibrate/results.json").read_text())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    assert controller.run(config(folder, "whole")) == 0
    return folder / "whole"


def test_each_question_of_a_task_is_asked_once(whole):
    rows = lines(whole / "stages/calibrate/answers.jsonl")
    people = envs.labels("housekeep/Task1", {})
    assert [row["question"] for row in rows] == list(people.questions)
    assert [row["people"] for row in rows] == people.answers.tolist()
    assert len(rows) == 5 * 34
    asked = lines(whole / "llm/journal.jsonl")
    assert len(asked) == len({line["key"] for line in asked}) == 5 * 34 + 1  # and once without content


def test_results_are_those_of_the_answers(whole):
    found, rows = results(whole), lines(whole / "stages/calibrate/answers.jsonl")
    people = envs.labels("housekeep/Task1", {})
    yes = np.array([row["probability"] for row in rows]) > 0.5
    errs = yes != people.answers
    assert errs[people.answers].any()
    assert errs[~people.answers].any()
    expected = measures(counts(yes, people.answers))
    for name, value in expected.items():
        assert found["agreement"][name]["value"] == pytest.approx(value[0])
    for group, words in found["groups"].items():
        assert sum(part["questions"] for part in words.values()) == 170
        for word, part in words.items():
            here = people.groups[group] == word
            assert part["accuracy"] == pytest.approx((yes == people.answers)[here].mean())
    assert set(found["groups"]) == {"room", "furniture"}
    assert found["controls"]["always no"]["recall"] == 0
    assert found["controls"]["always yes"]["precision"] == pytest.approx(people.answers.mean())
    assert found["controls"]["shuffled answers"]["precision"] == pytest.approx(people.answers.mean())
    storage = np.isin(people.groups["furniture"], ["shelf", "bottom cabinet", "top cabinet", "chest"])
    dumb = measures(counts(storage, people.answers))["F1"][0]
    assert found["controls"]["storage furniture"]["F1"] == pytest.approx(dumb)
    best = found["above_best"]["F1"]
    assert best["value"] == pytest.approx(
        found["agreement"]["F1"]["value"] - max(control["F1"] for control in found["controls"].values())
    )
    objects = np.unique(people.groups["object"], return_inverse=True)[1]
    apart = intervals(counts(yes, people.answers, objects), counts(storage, people.answers, objects))["F1"]
    assert (best["control"], best["low"], best["high"]) == ("storage furniture", apart.low, apart.high)
    assert sum(part["count"] for part in found["reliability"]["bins"]) == 170


def test_a_threshold_is_told_of_objects_that_it_was_not_chosen_on():
    """Two objects whose answers part at 0.2, three at 0.8; and by the published split."""
    people = envs.labels("housekeep/House", {})
    asked = np.arange(len(people.questions))
    test = np.isin(people.groups["object"], sorted(people.held_out))
    said = np.where(people.answers, np.where(test, 0.9, 0.3), np.where(test, 0.7, 0.1))
    told = calibrate.fitted(people, asked, said, 0.5, 0)
    assert (told["split"], told["chosen_on"]["count"], told["told_of"]["count"]) == ("published", 137, 132)
    assert told["probability"] == pytest.approx(0.2)
    assert told["chosen"]["precision"]["value"] == pytest.approx(people.answers[test].mean())  # 0.7 is above it
    assert told["chosen"]["F1"]["value"] == told["fixed"]["F1"]["value"]
    home = envs.labels("housekeep/Task2", {})
    halved = calibrate.fitted(home, np.arange(170), home.answers.astype(float), 0.5, 0)
    assert (halved["chosen_on"]["count"], halved["told_of"]["count"]) == (2, 3)
    assert halved["chosen_on"]["questions"] + halved["told_of"]["questions"] == 170
    assert halved["chosen"]["F1"]["value"] == 1
    assert calibrate.fitted(home, np.arange(34), home.answers[:34].astype(float), 0.5, 0) is None  # one object


def test_a_second_run_of_the_same_answers_asks_none(whole, tmp_path):
    """What replays a journal refuses whatever is not in it: every question of the second run is one of the first."""
    journal = whole / "llm/journal.jsonl"
    words = ["method=calibration", "env=housekeep", "cluster=inline", f"run.folder={tmp_path}", "run.name=again"]
    words.append("llm=replay")
    assert controller.run(compose([*words, f"llm.replayed={journal}"])) == 0
    assert results(tmp_path / "again")["questions"]["answered"] == 170
    assert results(tmp_path / "again")["agreement"] == results(whole)["agreement"]


def test_a_sample_is_drawn_by_seed_and_the_published_labels_are_another_table(tmp_path):
    one, other = (
        config(tmp_path, f"s{seed}", "env.id=housekeep/House", "method.questions=40", f"seed={seed}") for seed in (1, 2)
    )
    people, asked = calibrate.chosen(one)
    assert len(people.questions) == 269 * 128
    assert len(set(asked.tolist())) == 40
    assert asked.tolist() == calibrate.chosen(one)[1].tolist() != calibrate.chosen(other)[1].tolist()


def test_a_run_that_is_killed_goes_on_and_pays_for_no_answer_twice(tmp_path):
    words = [*SMALL, f"run.folder={tmp_path}", "run.name=killed", "llm.latency_s=0.1", "llm.max_batch=4"]
    words += ["llm.concurrency=1"]
    command = [sys.executable, "launch.py", "run", *words]
    run = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    journal = tmp_path / "killed/llm/journal.jsonl"
    wait_for(lambda: journal.exists() and journal.read_bytes().count(b"\n") > 20, "twenty answers")
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    before = journal.read_bytes()
    paid = before[: before.rindex(b"\n") + 1].count(b"\n")
    assert 20 < paid < 171
    assert not (tmp_path / "killed/stages/calibrate/results.json").exists()
    resumed = subprocess.run(
        [sys.executable, "launch.py", "resume", str(tmp_path / "killed")], capture_output=True, text=True, timeout=300
    )
    assert resumed.returncode == 0, resumed.stderr
    keys = [line["key"] for line in lines(journal)]
    assert len(keys) == len(set(keys)) == 171
    assert results(tmp_path / "killed")["questions"]["answered"] == 170


def test_an_empty_purse_ends_it_and_more_money_goes_on(tmp_path):
    prices = ["llm.dollars_per_million_prompt_tokens=1000", "llm.dollars_per_million_completion_tokens=1000"]
    with pytest.raises(BudgetExhausted, match=r"limits\.dollars"):
        controller.run(config(tmp_path, "poor", *prices, "llm.limits.dollars=20"))
    run = tmp_path / "poor"
    assert not (run / "stages/calibrate/results.json").exists()
    assert 0 < len(lines(run / "llm/journal.jsonl")) < 150
    assert controller.resume(run, ["llm.limits.dollars=100000"], False) == 0
    keys = [line["key"] for line in lines(run / "llm/journal.jsonl")]
    assert len(keys) == len(set(keys)) == 171
    assert results(run)["cost"]["yes_no"]["dollars"] > 20


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["env=babyai/GoToLocal"], "there are no answers of people to questions about babyai/GoToLocal"),
        (["method.questions=171"], "method.questions=171, but housekeep/Task1 has 170"),
        (["env.preferences=nowhere.npy"], "nowhere.npy"),
        (["llm=openai", "llm.api=chat", "llm.model=x"], "chat does not score"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence_before_anything_runs(tmp_path, words, says):
    with pytest.raises((ConfigError, ValueError), match=says):
        compose(["method=calibration", "env=housekeep", "cluster=inline", f"run.folder={tmp_path}", *words])


def test_the_report_shows_what_was_found(whole):
    page = report.write([whole]).read_text()
    found = results(whole)
    assert "Agreement with people" in page
    assert "170 of 170 questions that were asked have an answer" in page
    for name in (
        "scripted",
        "always yes",
        "always no",
        "storage furniture",
        "shuffled answers",
        "By room",
        "By furniture",
    ):
        assert name in page
    assert f"{found['agreement']['F1']['value']:.3f} [" in page.replace("\N{NO-BREAK SPACE}", " ")
    assert f"Expected calibration error: {found['reliability']['error']:.3f}" in page
    assert 'aria-label="How often people say yes' in page
    for part in found["reliability"]["bins"]:
        assert part["count"] == 0 or f">{part['count']}<" in page or f"{part['count']}</text>" in page
    assert "of held-out episodes" not in page
