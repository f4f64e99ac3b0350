"""A language model is asked about a world: what the stage leaves, what it costs, and what death and empty purses do."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from scipy.stats import spearmanr

from cluster import run as controller
from cluster.config import overrides
from cluster.config.tree import compose
from cluster.runs.folder import RunError, RunFolder
from cluster.runs.stage import Run
from cluster.stages import label
from cluster.stages._shared import asking
from cluster.stages._shared.asking import ask_durably
from learner import methods
from learner.knowledge import goal_bank, programs
from learner.knowledge.captions import situation
from learner.knowledge.goal_bank import GoalBank
from learner.knowledge.preferences import Preferences
from learner.knowledge.programs import halves
from learner.knowledge.segments import Segments
from learner.store.episodes import EpisodeStore, StoreError
from llm_service.errors import AwayTooLong, BudgetExhausted
from llm_service.records import Answer, Status
from llm_service.sandbox.process import Sandbox
from tests.cluster import labelling
from tests.cluster.test_faults import wait_for

PRICES = ["llm.dollars_per_million_prompt_tokens=1000", "llm.dollars_per_million_completion_tokens=1000"]
SMALL = ["method=labelling", "env=babyai/GoToLocal", "env.captions=true", "env.max_steps=24", "cluster=inline"]
SMALL += ["actors.n=1", *PRICES]
SMALL += [
    f"method.{key}={value}"
    for key, value in {
        "collect.episodes": 24,
        "label.segments": 60,
        "label.window": 4,
        "label.pairs": 80,
        "label.goals": 20,
        "label.candidates": 3,
        "label.rounds": 2,
    }.items()
]
FILES = ("segments.safetensors", "captions.jsonl", "preferences.jsonl", "goals.jsonl", "programs.jsonl", "program.py")


@pytest.fixture(scope="module", autouse=True)
def beside(tmp_path_factory):
    """The method of `labelling` among ours."""
    path, configs = list(methods.__path__), overrides.CONFIGS
    labelling.put_beside(tmp_path_factory.mktemp("beside"))
    yield
    methods.__path__[:], overrides.CONFIGS = path, configs
    sys.modules.pop("learner.methods.labelling", None)


def config(folder, name, *words):
    return compose([*SMALL, f"run.folder={folder}", f"run.name={name}", *words])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    assert controller.run(config(folder, "whole")) == 0
    return folder / "whole"


def left(run):
    """What the stage left, by file."""
    return {name: (run / "stages/label" / name).read_bytes() for name in FILES}


def lines(run, name):
    return [json.loads(line) for line in (run / "stages/label" / name).read_text().splitlines()]


def results(run):
    return json.loads((run / "stages/label/results.json").read_text())


def paid(run):
    """The keys of all calls that were paid for."""
    path = run / "llm/journal.jsonl"
    return [json.loads(line)["key"] for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


# ---- what it leaves ------------------------------------------------------------------------------------------------


def test_pairs_are_judged_and_none_twice(whole):
    told, found, segments = (
        lines(whole, "preferences.jsonl"),
        results(whole)["preferences"],
        Segments.load(label_of(whole)),
    )
    assert len(told) == found["asked"] == 80
    assert len({frozenset((line["first"], line["second"])) for line in told}) == 80
    assert max(max(line["first"], line["second"]) for line in told) < len(segments) == 60
    decided = [line for line in told if line["label"] in ("first", "second")]
    assert len(decided) > 40
    assert all(line["probability"] == (line["label"] == "first") for line in decided)
    assert found["answered"] == len(Preferences.load(label_of(whole))) == len(decided) + found["ties"]
    assert found["answered"] + found["abstained"] + found["failed"] == 80
    assert found["inconsistent"] == pytest.approx(np.mean([not line["consistent"] for line in told]), abs=1e-4)


def label_of(run):
    return run / "stages/label"


def test_the_chosen_program_agrees_most_and_is_judged_by_the_other_half(whole):
    segments, preferences = Segments.load(label_of(whole)), Preferences.load(label_of(whole))
    chosen_by, held_out = halves(preferences, 0)
    programs, found = lines(whole, "programs.jsonl"), results(whole)["programs"]
    assert [(line["round"], line["variant"]) for line in programs] == [(r, v) for r in range(2) for v in range(3)]
    windows, chosen = segments.windows(), found["chosen"]
    with Sandbox() as sandbox:
        for line in programs:
            values = sandbox.phi(line["code"], windows.obs("image"), windows.actions).values
            assert line["agreement"] == pytest.approx(chosen_by.agreement(values))
        code = (label_of(whole) / "program.py").read_text()
        values = sandbox.phi(code, windows.obs("image"), windows.actions).values
    assert chosen["agreement_where_chosen"] == max(line["agreement"] for line in programs if line["valid"])
    assert chosen["agreement"] == pytest.approx(held_out.agreement(values)) != chosen["agreement_where_chosen"]
    assert chosen["agreement"] > chosen["chance"] == 0.5
    assert len(held_out) == len(preferences) - len(chosen_by)
    assert chosen["pairs"] == (held_out.probability != 0.5).sum()  # ties agree with nothing
    assert chosen["spearman_with_return"] == pytest.approx(spearmanr(values, segments.to_come).statistic)
    assert chosen["hash"] in {line["hash"] for line in programs}


def test_later_rounds_are_shown_the_last_program_and_what_it_said(whole):
    programs = lines(whole, "programs.jsonl")
    asked = [json.loads(line) for line in (whole / "llm/journal.jsonl").read_text().splitlines()]
    prompts = [record["turns"][-1][1] for record in asked if record["task"] == "write_potential"]
    later = [prompt for prompt in prompts if "piece 1 got" in prompt]
    assert len(later) == 3
    for line in programs[:3]:
        shown = [p for p in later if all(f"| {text}\n" in p for text in line["code"].splitlines())]
        assert shown
    assert all("You choose: " in prompt and "the cell in front of you" in prompt for prompt in later)


def test_goals_are_of_what_is_seen_each_situation_once(whole):
    segments, told, found = Segments.load(label_of(whole)), lines(whole, "goals.jsonl"), results(whole)["goals"]
    assert len(told) == found["asked"] == 20
    assert len({tuple(situation(segments.captions[line["segment"]])) for line in told}) == 20
    several, named, seen = 0, 0, 0
    for line in told:
        caption = " ".join(segments.captions[line["segment"]])
        several += len(line["goals"]) > 1
        named += len(line["goals"])
        seen += sum(goal.partition(" the ")[2] in caption for goal in line["goals"])
    assert seen > 0.85 * named  # the model errs now and then
    assert several > 8
    assert found["answered"] == sum(bool(line["goals"]) for line in told) > 12


def test_the_bank_of_goals_is_left_so_that_nobody_embeds_them_again(whole, monkeypatch):
    monkeypatch.setattr(goal_bank, "embed_one", Mock(side_effect=AssertionError("a text is embedded again")))
    bank = GoalBank.of(label_of(whole))
    assert {goal for line in lines(whole, "goals.jsonl") for goal in line["goals"]} >= set(bank.goal_texts) > set()


def test_nobody_is_told_the_task(whole):
    store = EpisodeStore(whole / "stages/collect")
    missions = set(store.texts(np.unique(store.rows(np.arange(store.steps)).obs["mission"])))
    assert any("go to" in mission for mission in missions)
    told = (label_of(whole) / "captions.jsonl").read_text()
    assert not [mission for mission in missions if mission in told]
    assert "You see" in told


def test_what_it_cost_is_what_was_paid(whole):
    found, records = (
        results(whole)["cost"],
        [json.loads(x) for x in (whole / "llm/journal.jsonl").read_text().splitlines()],
    )
    assert set(found) == {"label_preference", "write_potential", "suggest_goals"}
    for name in ("prompt_tokens", "completion_tokens", "dollars"):
        assert sum(of[name] for of in found.values()) == pytest.approx(sum(record[name] for record in records))
    assert sum(of["calls"] for of in found.values()) == len(records)
    assert results(whole)["language_model"]["dollars"] == pytest.approx(sum(r["dollars"] for r in records), rel=1e-4)
    assert results(whole)["minutes"] > 0
    assert results(whole)["told_by"]["backend"] == "scripted"  # a stand-in: whoever shows its answers can say so


# ---- again ---------------------------------------------------------------------------------------------------------


def test_labels_follow_from_episodes_seed_and_model_bit_for_bit(whole, tmp_path):
    """Of a run's own episodes, and of those of another run."""
    given = ["stages=[label]", "from=run:whole/collect", f"run.folder={whole.parent}"]
    assert controller.run(config(tmp_path, "own")) == 0
    assert left(tmp_path / "own") == left(whole)
    assert controller.run(config(tmp_path, "other", *given)) == 0
    assert left(whole.parent / "other") == left(whole)
    assert controller.run(config(tmp_path, "seed", "seed=1", *given)) == 0
    assert left(whole.parent / "seed")["captions.jsonl"] != left(whole)["captions.jsonl"]


def test_one_may_ask_for_goals_alone(whole, tmp_path):
    words = ["stages=[label]", f"from={whole / 'stages/collect'}", "method.label.asks=[goals]"]
    assert controller.run(config(tmp_path, "goals", *words)) == 0
    assert (tmp_path / "goals/stages/label/goals.jsonl").read_bytes() == left(whole)["goals.jsonl"]
    assert not (tmp_path / "goals/stages/label/preferences.jsonl").exists()
    assert set(results(tmp_path / "goals")) == {"told_by", "segments", "goals", "cost", "language_model", "minutes"}


def test_what_cannot_be_labelled_is_a_sentence(whole, tmp_path):
    with pytest.raises(RunError, match="stage label finds no episodes"):
        controller.run(config(tmp_path, "none", "stages=[label]"))
    with pytest.raises(StoreError, match=r"holds no texts .*env\.captions=true"):
        controller.run(config(tmp_path, "silent", "env.captions=false"))
    with pytest.raises(RunError, match="holds no two different segments"):
        controller.run(config(tmp_path, "one", "method.collect.episodes=1", "env.max_steps=1"))
    given = ["stages=[label]", f"from={whole / 'stages/collect'}"]
    with pytest.raises(RunError, match=r"method\.label\.shows=mission: .*: image, direction"):
        controller.run(config(tmp_path, "shows", *given, "method.label.shows=mission"))
    assert paid(tmp_path / "shows") == []
    with pytest.raises(RunError, match="gave no useful answer"):
        controller.run(config(tmp_path, "nonsense", *given, "llm.malformed=1"))


def test_without_a_program_that_fits_the_rest_is_kept(whole, tmp_path, monkeypatch):
    """All are taken for faulty, and there is one pair alone."""
    monkeypatch.setattr(programs, "FAULTLESS", 1.0)
    words = ["stages=[label]", f"from={whole / 'stages/collect'}", "method.label.pairs=1"]
    assert controller.run(config(tmp_path, "faulty", *words)) == 0
    found = results(tmp_path / "faulty")
    assert (found["programs"]["asked"], found["programs"]["answered"], found["programs"]["chosen"]) == (6, 0, None)
    assert not (label_of(tmp_path / "faulty") / "program.py").exists()
    assert [line["valid"] for line in lines(tmp_path / "faulty", "programs.jsonl")] == [False] * 6
    assert found["goals"]["answered"] > 12


# ---- money, death, and a service that does not answer --------------------------------------------------------------


def test_an_empty_purse_is_exit_code_4_and_more_money_goes_on(whole, tmp_path):
    """With a queue that is full all the time."""
    words = ["stages=[label]", f"from={whole / 'stages/collect'}", "llm.durable.length=12", "llm.durable.batch=4"]
    with pytest.raises(BudgetExhausted, match=r"limits\.dollars"):
        controller.run(config(tmp_path, "poor", *words, "llm.limits.dollars=60"))
    before = paid(tmp_path / "poor")
    assert 0 < len(before) < len(paid(whole))
    assert json.loads((tmp_path / "poor/status.json").read_text())["state"] == "stopped"
    assert controller.resume(tmp_path / "poor", ["llm.limits.dollars=100000"], False) == 0
    assert left(tmp_path / "poor") == left(whole)
    assert sorted(paid(tmp_path / "poor")) == sorted(paid(whole))


class Lane:
    """A queue with so much room, that ends a job every time it is looked at; for faults only."""

    patience_s = 0.2

    def __init__(self, room=2, works=True, direct=None):
        self.room, self.works, self.direct = room, works, direct
        self.waiting, self.answered, self.accepted, self.lost = [], set(), [], set()

    def client(self, caller, when_away):
        return contextlib.nullcontext(self)

    def submit(self, task, items):
        statuses = []
        for item in items:
            full = len(self.waiting) >= self.room
            statuses.append(Status.BUSY if full else Status.PENDING)
            if not full:
                self.accepted.append(item["n"])
                self.waiting.append(f"{item['n']}")
        return [f"{item['n']}" for item in items], statuses

    def fetch(self, keys, wait_s):
        if self.works and self.waiting:
            self.answered.add(self.waiting.pop(0))
        found = {key: Answer(Status.OK, b"1") for key in self.answered}
        found |= {key: Answer(Status.MISSING) for key in self.lost}
        self.waiting = [key for key in self.waiting if key not in self.lost]
        self.lost = set()
        return [found.get(key, Answer(Status.PENDING)) for key in keys]

    def ask(self, task, items):
        return [self.direct] * len(items)


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """What comes of five questions to a lane."""
    monkeypatch.setattr(asking, "LOOK_S", 0.01)

    def go(lane, stop=""):
        run = Run(None, RunFolder(tmp_path), None, None, None, Mock(reason=stop), language=Mock(setup=lane))
        there = []
        return ask_durably(run, "task", [{"n": n} for n in range(5)], there.append), there

    return go


def test_a_full_queue_is_waited_for_and_a_lost_job_is_given_again(asked):
    lane = Lane()
    answers, there = asked(lane)
    assert [answer.ok for answer in answers] == [True] * 5
    assert lane.accepted == [0, 1, 2, 3, 4]
    assert there == sorted(there)
    assert there[-1] == 5
    lane = Lane(room=9)
    lane.lost = {"3"}
    answers, _ = asked(lane)
    assert all(answer.ok for answer in answers)
    assert sorted(lane.accepted) == [0, 1, 2, 3, 3, 4]


@pytest.mark.parametrize(("status", "error"), [(Status.AWAY, AwayTooLong), (Status.BUDGET, BudgetExhausted)])
def test_why_jobs_do_not_move_is_what_the_client_says(asked, status, error):
    with pytest.raises(error, match="it said so"):
        asked(Lane(works=False, direct=Answer(status, reason="it said so")))


def test_what_the_queue_does_not_answer_the_client_may(asked):
    answers, _ = asked(Lane(works=False, direct=Answer(Status.OK, b"2")))
    assert [answer.value for answer in answers] == [2] * 5


def test_who_is_asked_to_stop_has_no_answers_and_keeps_the_jobs(asked):
    assert asked(Lane(), stop="SIGTERM")[0] is None


def test_a_stage_that_is_asked_to_stop_is_not_done(whole, tmp_path, monkeypatch):
    words = ["stages=[label]", f"from={whole / 'stages/collect'}"]
    monkeypatch.setattr(label, "ask_durably", lambda *_: None)
    assert controller.run(config(tmp_path, "stopped", *words)) == 3
    assert not (tmp_path / "stopped/stages/label/manifest.json").exists()
    monkeypatch.undo()
    taken = label_of(tmp_path / "stopped") / "minutes.json"
    (first,) = json.loads(taken.read_text())
    taken.write_text(json.dumps({first: 100.0}))
    assert controller.resume(tmp_path / "stopped", [], False) == 0
    assert left(tmp_path / "stopped") == left(whole)
    assert list(minutes := json.loads(taken.read_text())) == [first, str(int(first) + 1)]
    assert results(tmp_path / "stopped")["minutes"] == pytest.approx(sum(minutes.values()), abs=1e-3)
    assert 100 < results(tmp_path / "stopped")["minutes"] < 110


@pytest.mark.slow
def test_labelling_that_is_killed_pays_for_nothing_twice_and_labels_alike(whole, tmp_path):
    """kill -9 of the whole process, while it compares, and while it compares again."""
    words = [
        *SMALL,
        "llm.latency_s=0.3",
        "llm.max_batch=8",
        "llm.concurrency=1",
        f"run.folder={tmp_path}",
        "run.name=hurt",
    ]
    hurt, program = tmp_path / "hurt", Path(labelling.__file__)

    def begin(*given):
        log = (tmp_path / "printed").open("a")
        command = [sys.executable, str(program), *given]
        return subprocess.Popen(command, cwd=program.parents[2], stdout=log, stderr=log, start_new_session=True)

    counts, given = [], ["run", *words]
    for more in (40, 60):
        process, before = begin(*given), len(paid(hurt))
        try:
            wait_for(lambda before=before, more=more: len(paid(hurt)) >= before + more, "answers", 120)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        counts.append(len(paid(hurt)))
        given = ["resume", str(hurt)]
        assert not (hurt / "stages/label/manifest.json").exists()
    assert begin(*given).wait(180) == 0, (tmp_path / "printed").read_text()
    assert left(hurt) == left(whole)
    keys = paid(hurt)
    assert len(keys) == len(set(keys))
    assert sorted(keys) == sorted(paid(whole))
    assert counts[0] < counts[1] < len(keys)
