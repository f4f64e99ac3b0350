"""From search to judgement as a whole: what each stage leaves, what other runs take from it, and what death costs."""

import json
import os
import shutil
import signal
from collections import Counter
from unittest.mock import Mock

import numpy as np
import pytest
import safetensors.numpy

from cluster import run as controller
from cluster.cli.ask.robot import Question, Robot
from cluster.cli.serve_verb import write_world
from cluster.config import tree as configuration
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from cluster.jobs.kubernetes.language_model import world as kubernetes_world
from cluster.runs.folder import RunError, RunFolder
from cluster.runs.stage import Run
from cluster.stages import engine, judge
from cluster.stages._shared.lgqd import TEXTS
from cluster.stages.curate import describe
from envs import navigation
from learner.behaviours import trials, words
from learner.behaviours.baselines import BASELINES
from learner.behaviours.table import PARTS, Behaviours
from learner.files import Superseded, begin_attempt
from learner.methods import Stage, every_stage
from learner.store.archive import Archive
from learner.store.episodes import EpisodeStore
from llm_service.errors import UsageError
from llm_service.records import Answer, Status
from tests.cluster.test_cloning import of_role
from tests.cluster.test_faults import launch, status, wait_for

STAGES = ["search", "merge", "annotate", "describe", "split", "cluster", "tokenize", "imitate", "deploy", "judge"]
LENGTH = 300  # long enough for two routes to one end
SMALL = ["method=lgqd", "env=navigation", f"env.length={LENGTH}"]
SMALL += [
    f"method.{key}={value}"
    for key, value in {
        "search.generations": 150,
        "merge.copies": 1,
        "split.margin": 8.0,
        "split.near": 120.0,
        "split.plain": 12,
        "split.how": 3,
        "sequence.steps": 12,
        "sequence.batch": 8,
        "sequence.every": 6,
        "sequence.model.width": 16,
        "sequence.model.layers": 1,
        "sequence.model.heads": 2,
        "deploy.samples": 2,
        "judge.trials": 10,
        "judge.votes": 2,
    }.items()
]


def config(folder, name, *more):
    return compose([*SMALL, "cluster=inline", f"run.folder={folder}", f"run.name={name}", *more])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    assert controller.run(config(folder, "whole")) == 0
    return folder / "whole"


def results(path, stage="deploy"):
    return json.loads((path / "stages" / stage / "results.json").read_text())


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_stage_leaves_what_the_next_one_needs(whole):
    assert all((whole / "stages" / stage / "manifest.json").exists() for stage in STAGES)
    table = Behaviours.load(whole / "stages/merge")
    archive = Archive.read(whole / "stages/search/archive-0")
    assert len(table) == 2 * len(archive) > 400
    assert len(lines(whole / "stages/annotate/annotations.jsonl")) == len(table)
    texts = lines(whole / "stages/describe" / TEXTS)
    assert {text["id"] for text in texts} <= set(table.id.tolist())
    assert len(texts) > 0.9 * len(table)
    styles = Counter(text["style"] for text in texts)
    assert 0.7 < styles["request"] / len(texts) < 0.9
    assert min(styles["narrative"], styles["instruction"]) > 0.05 * len(texts)


def test_the_calm_ones_of_a_grid_may_be_learned_from(tmp_path):
    grid = [
        "method.search.cells=10",
        "method.search.halfway=4",
        "method.search.parents=grid",
        "method.merge.take=elites",
    ]
    words = [*grid, "stages=[search,merge]", "method.search.offspring=100", "method.search.generations=20"]
    assert controller.run(config(tmp_path, "calm", *words)) == 0
    stages = tmp_path / "calm" / "stages"
    archive, novel = (Archive.read(stages / "search" / name) for name in ("grid-0", "archive-0"))
    calm, others = ({}, {})
    for found, kept in ((calm, archive), (others, novel)):
        weights = kept.rows(np.arange(len(kept)), ["weights"])["weights"]
        played = navigation.rollout(navigation.load(), None, weights, LENGTH)
        end, halfway = (
            played["pose"][:, step, :2] * (cells / 600.0) // 1 for step, cells in ((-1, 10), (LENGTH // 2 - 1, 4))
        )
        for cell, action in zip(np.concatenate([end, halfway], 1).tolist(), played["action"], strict=True):
            found.setdefault(tuple(cell), []).append(np.square(action).mean())
    assert len(calm) == len(archive) > 15  # a cell each
    assert set(others) <= set(calm)
    assert all(calm[cell][0] <= min(efforts) + 1e-6 for cell, efforts in others.items())
    assert sum(len(efforts) for efforts in others.values()) > len(calm)
    table = Behaviours.load(stages / "merge")
    assert set(table.id[: len(archive)].tolist()) == set(archive.ids.tolist())
    bare = ["stages=[search,merge]", "method.search.generations=2", "method.merge.take=elites"]
    with pytest.raises(RunError, match=r"there is no grid-\*.*method.search.cells"):
        controller.run(config(tmp_path, "bare", *bare))


def test_texts_that_are_kept_are_true(whole):
    scene = navigation.Scene(navigation.load())
    table = Behaviours.load(whole / "stages/merge")
    row = {number: i for i, number in enumerate(table.id.tolist())}
    texts = [text for text in lines(whole / "stages/describe" / TEXTS) if text["true"]]
    rows = [row[text["id"]] for text in texts]
    pose = navigation.rollout(scene.house, table.start[rows], table.weights[rows], LENGTH)["pose"]
    for text, route, at in zip(texts, *words.visited(scene, pose), strict=True):
        assert words.is_true(words.asked(scene, text["text"], text["order"]), route, at)
    assert len(texts) > 100


def test_trials_are_of_held_out_behaviours_and_nothing_near_is_learned(whole):
    table = Behaviours.load(whole / "stages/merge")
    part = safetensors.numpy.load_file(whole / "stages/split/parts.safetensors")["part"]
    row = {number: i for i, number in enumerate(table.id.tolist())}
    frozen = trials.load(whole / "stages/split")
    asked = sorted({row[trial.behaviour] for trial in frozen})
    assert set(part[asked].tolist()) == {PARTS.index("test")}
    pose = navigation.rollout(navigation.load(), table.start, table.weights, LENGTH)["pose"]
    learned = pose[np.isin(part, (PARTS.index("train"), PARTS.index("validation"))), :, :2].astype(np.float64)
    for tested in pose[asked, :, :2]:
        assert np.linalg.norm(learned - tested, axis=-1).mean(1).min() > 8.0
    assert len(learned) > 50
    assert Counter(trial.kind for trial in frozen)["plain"] == 12 * 6
    assert {(trial.wording, trial.begins) for trial in frozen} == {
        (w, b) for w in ("described", "reworded", "paraphrased") for b in ("map", "nearby")
    }


def test_trials_of_a_pair_differ_by_their_text_only(whole):
    scene = navigation.Scene(navigation.load())
    table = Behaviours.load(whole / "stages/merge")
    row = {number: i for i, number in enumerate(table.id.tolist())}
    ways = [trial for trial in trials.load(whole / "stages/split") if trial.kind == "how"]
    assert ways
    for one in ways:
        (other,) = (
            t
            for t in ways
            if (t.pair, t.wording, t.begins) == (one.pair, one.wording, one.begins) and t.behaviour != one.behaviour
        )
        assert (one.target, one.start) == (other.target, other.start)
        assert (one.wanted, one.rival) == (other.rival, other.wanted)
        if one.wording == "paraphrased":  # by name or synonym, in any order; next to itself a place is told once
            assert set(words.asked(scene, one.text)) == set(one.wanted)
        else:
            assert words.asked(scene, one.text) == one.wanted
        at = [row[one.behaviour]]
        pose = navigation.rollout(scene.house, table.start[at], table.weights[at], LENGTH)["pose"]
        (passed,), (last,) = words.visited(scene, pose)
        assert words.obeyed(one.wanted, passed, last) == 1
        assert words.obeyed(other.wanted, passed, last) <= 0.5


def test_what_is_told_of_trials_is_what_happened(whole):
    found = results(whole)
    frozen = trials.load(whole / "stages/split")
    arrays = safetensors.numpy.load_file(whole / "stages/deploy/episodes.safetensors")
    assert arrays["pose"].shape == (len(frozen), LENGTH, 3)
    assert arrays["error"].shape == arrays["rival"].shape == (len(frozen), 2)
    target = np.array([trial.target for trial in frozen])
    np.testing.assert_allclose(arrays["error"][:, 0], np.linalg.norm(arrays["pose"][:, -1, :2] - target, axis=1), 1e-4)
    told = {(row["arm"], row["trials"], row["metric"]): row for row in found["rows"]}
    assert told["text", "all", "distance"]["n"] == len(frozen)
    assert told["text", "all", "distance"]["value"] == pytest.approx(
        np.median(arrays["error"]) / found["diagonal"], 1e-5
    )
    assert told["text", "all", "best_distance"]["value"] <= told["text", "all", "distance"]["value"]
    assert found["diagonal"] == pytest.approx(600 * 2**0.5)
    scene = navigation.Scene(navigation.load())
    routes, last = words.visited(scene, arrays["pose"])
    scores = [words.obeyed(t.wanted, r, at) for t, r, at in zip(frozen, routes, last, strict=True)]
    np.testing.assert_allclose(arrays["score"][:, 0], scores, rtol=1e-6)
    assert {arm for arm, *_ in told if " - " not in arm} == {"text", *BASELINES}
    for row in found["rows"]:
        assert row["low"] <= row["value"] <= row["high"]
        assert row["seeds"] == [0]


def test_a_replay_drives_a_behaviour_that_is_learned_from(whole):
    """The lookup without text, by the definition: of what is learned from, the one that ends nearest to the target."""
    table = Behaviours.load(whole / "stages/merge")
    part = safetensors.numpy.load_file(whole / "stages/split/parts.safetensors")["part"]
    arrays = safetensors.numpy.load_file(whole / "stages/deploy/episodes.safetensors")
    frozen = trials.load(whole / "stages/split")
    rows = np.flatnonzero(part == PARTS.index("train"))
    for number in range(0, len(frozen), 7):
        nearest = rows[np.linalg.norm(table.descriptor[rows] - frozen[number].target, axis=1).argmin()]
        start = np.array([frozen[number].start], np.float32)
        pose = navigation.rollout(navigation.load(), start, table.weights[[nearest]], LENGTH)["pose"]
        error = np.linalg.norm(pose[0, -1, :2] - frozen[number].target)
        assert arrays["text_blind_replay/error"][number, 0] == pytest.approx(error, rel=1e-4)


def test_judges_are_compared_with_the_rule(whole):
    judged = lines(whole / "stages/judge/judgements.jsonl")
    assert len(judged) == 20
    assert {line["vote"] for line in judged} == {0, 1}
    assert results(whole, "judge")["with_rule"]["n"] == results(whole, "judge")["judged"] > 0


def test_deploying_again_is_the_same_and_beside_it(whole):
    assert controller.evaluate(whole, []) == 0
    assert results(whole, "deploy-1") == results(whole)
    assert controller.evaluate(whole, ["method.deploy.strategy=argmax"]) == 0
    assert results(whole, "deploy-2") != results(whole)
    with pytest.raises(RunError, match=r"use the method\.sequence settings"):
        controller.evaluate(whole, ["method.sequence.model.width=32"])


def test_the_fitted_robot_can_be_asked(whole):
    robot = Robot(whole)
    trial = trials.load(whole / "stages/split")[0]
    answer = robot.answer(Question(trial.text, tuple(trial.target), 4))
    assert answer.places == trial.wanted
    assert answer.unknown == []
    assert (answer.pose.shape, answer.target_is) == ((4, LENGTH, 3), "given")
    alone = robot.answer(Question(trial.text, samples=2))
    assert alone.target_is == "predicted"
    assert alone.by_text[0].likeness > 0


def test_another_run_takes_what_it_lacks(whole):
    more = ["from=run:whole/tokenize", "stages=[imitate,deploy]", "method.sequence.model.ablate=text"]
    assert controller.run(config(whole.parent, "blind", *more)) == 0
    assert results(whole.parent / "blind")["arm"] == "no_text"
    assert not (whole.parent / "blind/stages/search").exists()
    with pytest.raises(RunError, match="it reads no sentence"):
        Robot(whole.parent / "blind")
    told = {(row["arm"], row["trials"], row["metric"]): row for row in results(whole.parent / "blind")["rows"]}
    assert told["no_text", "all", "two_alternative"]["value"] == pytest.approx(0.5)  # equal noise, no text
    archive = whole / "stages/search/archive-0"
    merged = ["stages=[merge]", f"method.merge.archives=[{archive},{archive}]", "method.merge.copies=0"]
    assert controller.run(config(whole.parent, "merged", *merged)) == 0
    found = json.loads((whole.parent / "merged/stages/merge/manifest.json").read_text())["counts"]
    assert found["of"] == 2 * found["behaviours"]


@pytest.fixture(scope="module")
def driven(whole):
    more = ["from=run:whole/split", "stages=[drive,cluster,tokenize,imitate,deploy]", "method.drive.times=2"]
    more += ["method.sequence.odometry=true", "method.sequence.particles=8", "method.drive.noise=0.3"]
    assert controller.run(config(whole.parent, "driven", *more)) == 0
    return whole.parent / "driven"


def test_a_driver_shows_how_to_keep_to_routes_and_nothing_near_a_test(whole, driven):
    table, store = Behaviours.load(whole / "stages/merge"), EpisodeStore(driven / "stages/drive")
    row = {number: i for i, number in enumerate(table.id.tolist())}
    rows = np.array([row[number] for number in store.seed.tolist()])
    part = safetensors.numpy.load_file(whole / "stages/split/parts.safetensors")["part"]
    learned = (PARTS.index("train"), PARTS.index("validation"))
    told = {text["id"] for text in lines(whole / "stages/describe" / TEXTS) if text["true"]}
    assert set(part[rows].tolist()) <= set(learned)
    assert set(store.seed.tolist()) <= told
    wanted = np.isin(table.id, list(told)) & np.isin(part, learned)
    assert 0.3 * 2 * wanted.sum() < len(store) <= 2 * wanted.sum()
    assert (store.length == LENGTH // 10).all()
    found = store.rows(np.arange(store.steps))
    pushed = (found.action - found.obs["wished"]).reshape(len(store), -1)
    assert 0.1 < pushed.std() < 1.0
    assert np.abs(found.action).max() <= 4
    believed = found.obs["believed"].reshape(len(store), -1, 3)
    tests = navigation.rollout(navigation.load(), table.start[part == 2], table.weights[part == 2], LENGTH)["pose"][
        :, ::10, :2
    ]
    start = np.tile(navigation.load().start[:2], (len(tests), 1, 1))
    tests = np.concatenate([start, tests], 1)[:, :-1]
    near = np.linalg.norm(believed[:, None, :, :2] - tests[None], axis=-1).mean(-1).min(1)
    assert np.quantile(near, 0.05) > 5  # the margin is 8, and beliefs err
    assert results(driven)["arm"] == "text"
    again = ["from=run:driven/tokenize", "stages=[imitate]", "method.drive.times=2", "method.sequence.odometry=true"]
    other = config(whole.parent, "other", *again, "method.sequence.particles=8", "method.sequence.stride=5")
    with pytest.raises(UsageError, match="driven with a stride of 10, not 5"):
        controller.run(other)
    lost = config(whole.parent, "lost", *again)
    with pytest.raises(RunError, match=r"driven with method\.sequence\.particles=8, not 0: drive again"):
        controller.run(lost)


def test_who_practises_is_taught_where_it_went_and_goes_on_from_what_it_knew(whole, driven):
    more = ["from=run:driven/imitate", "stages=[drive,imitate,deploy]", "method.drive.times=1"]
    more += ["method.drive.practice=1", "method.drive.astray=60", "method.sequence.odometry=true"]
    more += ["method.sequence.particles=8", "method.sequence.learning_rate=1e-9"]
    assert controller.run(config(whole.parent, "practised", *more)) == 0
    store = EpisodeStore(whole.parent / "practised/stages/drive")
    practised = np.flatnonzero(store.kind == 1)
    assert len(practised) > 50
    assert store.length[practised].min() >= 5
    assert store.length[practised].min() < LENGTH // 10 == store.length[store.kind == 0].min()
    steps = np.concatenate([np.arange(*store.first[[row, row + 1]]) for row in practised])
    found = store.rows(steps)
    assert np.abs(found.action - found.obs["wished"]).mean() > 0.5  # it had learned for twelve steps
    before, after = (
        safetensors.numpy.load_file(run / "stages/imitate/model.safetensors")
        for run in (driven, whole.parent / "practised")
    )
    assert all(np.allclose(before[name], after[name], atol=1e-5) for name in before)


def test_what_is_missing_is_a_sentence(tmp_path):
    with pytest.raises(RunError, match="stage merge is missing: add it to stages"):
        controller.run(config(tmp_path, "a", "stages=[annotate]"))
    with pytest.raises(ConfigError, match="plays small policies in env=navigation only"):
        compose(["method=lgqd", "env=toy"])


def test_language_models_are_told_of_the_map_that_a_run_has(tmp_path):
    plan = navigation.load().as_json() | {"objects": [{"name": "grand_piano", "x": 98, "y": 175}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    run = config(tmp_path, "piano", f"env.map={tmp_path / 'plan.json'}")
    for told in (kubernetes_world(run), write_world(run.env, tmp_path).read_text()):
        assert json.loads(told)["slots"]["object"] == ["grand piano"]


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage not in ("search", "imitate")])
def test_a_stage_that_goes_on_elsewhere_is_not_written_by_an_older_attempt(tmp_path, whole, monkeypatch, stage):
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(whole / "stages", folder.path / "stages")
    folder.begin()
    run = Run(config(tmp_path, "run"), folder, None, None, Mock(), Mock(reason=""))
    answer = Answer(Status.OK, b'{"caption": "go to the kitchen", "overall": 5}')
    for module in (describe, judge):
        monkeypatch.setattr(module, "ask", lambda run, task, items, sample=0: [answer] * len(items))
    monkeypatch.setattr(words, "is_true", lambda *_: True)
    begin_attempt(folder.checkpoints)
    before = {path.name: path.read_bytes() for path in folder.stage(stage).iterdir()}
    kind = next(known.kind for known in every_stage(run.config) if known.name == stage)
    with pytest.raises(Superseded):
        engine(kind)(run, Stage(stage, kind)).run()
    assert {path.name: path.read_bytes() for path in folder.stage(stage).iterdir()} == before


@pytest.mark.slow
def test_a_run_that_is_killed_in_search_describe_and_fit_is_as_without(tmp_path):
    """kill -9 of the whole process, three times; no behaviour is lost, none is found or paid for twice."""
    more = ["cluster=inline", "run.checkpoint_every_s=0.05", "method.search.generations=250", "llm.latency_s=0.05"]
    more += ["method.describe.batch=64", "method.sequence.steps=200", "stages=[search,merge,annotate,describe,split,"]
    more[-1] += "cluster,tokenize,imitate,deploy]"
    words = [*SMALL, *more, f"run.folder={tmp_path}"]
    hurt, well = tmp_path / "hurt", tmp_path / "well"

    def journal():
        path = hurt / "llm/journal.jsonl"
        return path.read_bytes().splitlines() if path.exists() else []

    def kill(process, condition, what):
        wait_for(condition, what, 300)
        process.kill()
        process.wait()

    process = launch("run", *words, "run.name=hurt")
    kill(
        process, lambda: len(list((hurt / "stages/search/checkpoints-0").glob("v*"))) >= 2, "checkpoints of the search"
    )
    assert not (hurt / "stages/search/manifest.json").exists()
    process = launch("resume", str(hurt))
    kill(process, lambda: len(journal()) > 200, "descriptions")
    asked = len(journal())
    assert not (hurt / "stages/describe/manifest.json").exists()
    process = launch("resume", str(hurt))
    kill(process, lambda: list((hurt / "checkpoints").glob("v*")), "a checkpoint of the fit")
    assert not (hurt / "stages/imitate/manifest.json").exists()
    assert launch("resume", str(hurt)).wait(300) == 0
    assert status(hurt)["state"] == "done"
    assert launch("run", *words, "run.name=well").wait(300) == 0

    assert asked > 200
    keys = Counter(json.loads(line)["key"] for line in journal())
    assert set(keys.values()) == {1}
    archives = [Archive.read(path / "stages/search/archive-0") for path in (hurt, well)]
    assert archives[0].digest() == archives[1].digest()
    archives[0].verify()
    for file in ("describe/texts.jsonl", "split/trials.jsonl", "imitate/model.safetensors", "deploy/results.json"):
        assert (hurt / "stages" / file).read_bytes() == (well / "stages" / file).read_bytes(), file


@pytest.mark.slow
def test_a_player_that_is_killed_costs_nothing_but_time(tmp_path):
    words = [*SMALL, "stages=[search]", "method.search.generations=1500", f"run.folder={tmp_path}"]
    process = launch("run", *words, "run.name=hurt")
    path = tmp_path / "hurt"
    wait_for(lambda: status(path).get("env_steps", 0) > 0, "the first generations", 300)
    os.kill(of_role(process, "ray::NoveltyEvaluator")[0], signal.SIGKILL)
    assert process.wait(300) == 0
    assert "failed:" in (path / "run.log").read_text()
    controller.run(configuration.compose([*words, "run.name=well", "cluster=inline"]))
    found = [Archive.read(tmp_path / name / "stages/search/archive-0").digest() for name in ("hurt", "well")]
    assert found[0] == found[1]
