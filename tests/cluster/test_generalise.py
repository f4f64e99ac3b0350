"""A trained language policy in other words and worlds: what is played, what is not and why, and how sure it is."""

import dataclasses
import json
import re

import numpy as np
import pytest

import envs
from actors import ActorSetup, Played
from actors.players.language_policy import LocalModel, PromptedPlayer
from cluster.config.cases import CASES, UNCHANGED
from cluster.config.overrides import ConfigError
from cluster.config.tree import Config, compose
from cluster.metrics.statistics import mean_over, newcombe, wilson
from cluster.report.panels.cases import panel
from cluster.run import evaluate, run
from cluster.runs import run_data
from cluster.runs.folder import RunFolder
from cluster.runs.progress import Progress
from cluster.runs.stage import Run
from cluster.stages import generalise
from cluster.stages.evaluate import sample_efficiency
from cluster.stages.generalise import chosen, difference, levels, resolve, world
from envs.api import Episodes
from learner.group import build_policy
from learner.methods import Stage, every_stage, selected
from learner.models.language.rewording import REWORDINGS
from llm_service import tiny
from llm_service.errors import UsageError

TALK = ["env=babyai/GoToRedBallNoDists", "env.captions=true", "env.actions=6", "policy.network=language_model"]
GLAM = ["method=glam", *TALK, "policy.prompt.observations=2"]
SMALL = [
    "cluster=inline", "actors.n=1", "actors.envs=4", "actors.steps=4", "learner.minibatch=8", "learner.ppo.epochs=1",
    "learner.env_steps=32", "evaluate.every=16", "evaluate.validation_episodes=4", "evaluate.episodes=4",
    "evaluate.videos=2", "method.generalise.episodes=8", "env.max_steps=6",
]  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tiny model whose weights follow two steps of training, as a word."""
    made = tmp_path_factory.mktemp("tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "STEPS", 2)
        tiny.build(made)
    return [f"policy.lm.folder={made / 't5'}", "policy.lm.device=cpu", "policy.lm.critic=8"]


def read(folder, stage):
    return json.loads((folder / "stages" / stage / "results.json").read_text())


def reasons(config, names=tuple(CASES)):
    found = {}
    for case in map(CASES.get, names):
        try:
            resolve(config, case)
        except UsageError as reason:
            found[case.name] = str(reason)
    return found


def test_every_case_is_possible_in_an_english_world_with_scores(model):
    assert reasons(compose([*GLAM, *model])) == {}
    assert CASES.keys() >= REWORDINGS.keys() - {"none"}, "every rewording is a case"


def test_what_a_run_cannot_play_has_a_reason(model):
    head = reasons(compose([*GLAM, *model, "policy.lm.head=actions"]), ["french", "fewer_actions", "more_actions"])
    assert head.keys() == {"fewer_actions", "more_actions"}
    assert "6 actions, but this case has 9" in head["more_actions"]
    french = reasons(compose([*GLAM, *model, "env.language=fr", "policy.prompt.language=fr"]))
    assert french.keys() == {"rotate", "shift", "french_actions", "french"}
    assert "no change" in french["french"]
    assert "changes nothing" in french["rotate"]
    there = compose([*GLAM, *model, "env.id=babyai/GoToLocal"])
    assert reasons(there, ["go_to", "distractors"]).keys() == {"go_to"}
    elsewhere = compose([*GLAM[:1], "env=toy/Line", *TALK[3:], "policy.prompt.observation=[mission]", *model])
    assert "another family" in reasons(elsewhere)["go_to"]
    assert set(CASES) - reasons(elsewhere).keys() == {UNCHANGED, "wish", "duty"}


def test_variation_in_training_is_no_bar_to_french(model):
    varied = compose([*GLAM, *model, "policy.prompt.synonyms=0.5", "policy.prompt.paraphrase=0.5"])
    assert reasons(varied, ["french", "go_to_french"]) == {}


def test_the_cases_that_are_named_are_played_and_the_unchanged_one(model):
    config = compose([*GLAM, *model, "method.generalise.cases=[rooms,nouns]"])
    assert [case.name for case in chosen(config)] == [UNCHANGED, "nouns", "rooms"]
    with pytest.raises(ConfigError, match="did you mean nouns"):
        compose([*GLAM, *model, "method.generalise.cases=[noun]"])


def test_which_cases_share_levels_and_which_share_chance(model):
    config = compose([*GLAM, *model])
    there = {case.name: resolve(config, case) for case in CASES.values()}
    same = {name for name, other in there.items() if levels(other) == levels(config)}
    assert same == {*REWORDINGS.keys() - {"none"}, UNCHANGED, "french", "fewer_actions", "more_actions"}
    assert {name for name in same if world(there[name]) != world(config)} == {"fewer_actions", "more_actions"}
    seeds = envs.HELD_OUT_FIRST + np.arange(6)
    own, fewer = (envs.make(c.env.id, 6, **c.env.options).begin(seeds) for c in (config, there["fewer_actions"]))
    assert (own["image"] == fewer["image"]).all(), "a seed names the same level"


def episodes(success):
    n = len(success)
    zeros = {name: np.zeros(n, np.int64) for name in Episodes.__annotations__}
    return Episodes(**zeros | {"success": np.array(success, np.bool_)})


def test_a_difference_is_taken_level_by_level_where_levels_are_the_same():
    rng = np.random.default_rng(0)
    before = rng.random(200) < 0.6
    after = before & (rng.random(200) < 0.9)  # what was solved is at times solved no more
    paired, apart = (difference(episodes(before), episodes(after), same) for same in (True, False))
    assert paired["value"] == apart["value"] == pytest.approx(after.mean() - before.mean())
    assert paired["low"] < paired["value"] < paired["high"] < 0
    assert paired["high"] - paired["low"] < apart["high"] - apart["low"]
    assert (apart["low"], apart["high"]) == newcombe(before.sum(), 200, after.sum(), 200)
    assert (paired["paired"], apart["paired"]) == (True, False)


def test_equal_outcomes_on_few_levels_are_no_proof_of_equality():
    alike = difference(episodes([True] * 8), episodes([True] * 8), same=True)
    assert alike["value"] == 0
    assert alike["low"] < -0.2
    assert alike["high"] > 0.2


def scored(total):
    n = len(total)
    return dataclasses.replace(episodes([False] * n), total=np.array(total, np.float32), seed=np.arange(n))


def test_a_difference_in_the_score_is_of_returns():
    before, after = np.random.default_rng(0).normal([[2.0], [5.0]], 1.0, (2, 100)).astype(np.float32)
    for same in (True, False):
        found = difference(scored(before), scored(after), same, "return")
        assert found["value"] == pytest.approx(after.mean() - before.mean(), abs=1e-5)
        assert 2 < found["low"] < found["value"] < found["high"] < 4
    alike = difference(scored([2.0] * 8), scored([3.0] * 8), True, "return")
    assert (alike["value"], alike["low"], alike["high"]) == (1, 1, 1)


def test_where_a_return_says_more_the_cases_are_about_it(model, monkeypatch, tmp_path):
    """Nothing is solved there: differences, chance and the last line are of returns."""
    real = Config.spec.func
    returns = property(lambda config: dataclasses.replace(real(config), score="return"))
    monkeypatch.setattr(Config, "spec", returns)
    config = compose([*GLAM, *model, "method.generalise.cases=[nouns]"])

    def play(run, setup, weights, evaluations):
        for evaluation in evaluations:
            total = np.full(8, 0.5) if evaluation.player == "random" else 2.0 + np.arange(8) % 2
            total += evaluation is evaluations[1]
            evaluation.played = {0: Played(scored(total), [], {}, np.zeros(8, np.float32), [])}
        return True

    monkeypatch.setattr(generalise, "play_all", play)
    folder = RunFolder(tmp_path)
    run = Run(config, folder, None, None, Progress(folder, 1, 0.0), None)
    table = generalise.Engine(run, Stage("generalise", "generalise")).play({})
    assert table["score"] == "return"
    first, second = table["cases"]
    assert first["random"] == {"mean": 0.5, "low": 0.5, "high": 0.5}
    assert second["difference"]["value"] == 1.0
    assert generalise.line("generalise", table) == "generalise: unchanged 2.50, nouns 3.50 return an episode"
    by_name = {case["name"]: case for case in table["cases"]}
    run = run_data.Run(tmp_path, {}, {}, {"score": "return"}, [], [], {}, by_name)
    page = re.sub("<[^>]*>", " ", panel([run], {"": [run]}).replace("\xa0", " "))
    assert "success" not in page
    assert "Wilson" not in page
    assert re.search(r"case +return +difference +at random", page)
    assert re.search(r"nouns: .* 3.50 \[3.1\d, 3.8\d\] +\+1.00 \[0.\d\d, 1.\d\d\] +0.50 \[0.50, 0.50\]", page)


def test_mean_over_training_by_hand():
    x, y = np.array([100.0, 200.0]), np.array([0.4, 0.8])
    assert mean_over(x, y, 200) == pytest.approx((0.5 * 100 * 0.4 + 100 * 0.6) / 200)
    assert mean_over(x, y, 400) == pytest.approx((20 + 60 + 200 * 0.8) / 400)  # the last value is held
    assert mean_over(x, y, 150) == pytest.approx((20 + 50 * 0.5) / 150)  # what came after the budget does not count
    assert mean_over(np.array([0.0, 10.0]), np.array([1.0, 1.0]), 10) == pytest.approx(1.0)


@pytest.fixture(scope="module")
def played(model, tmp_path_factory):
    """A run that trains a little, and is tried in four cases."""
    folder = tmp_path_factory.mktemp("runs")
    words = [*GLAM, *model, *SMALL, "method.generalise.cases=[invented,french,fewer_actions,more_actions,go_to]"]
    assert run(compose([*words, f"run.folder={folder}", "run.name=a"])) == 0
    return folder / "a"


def test_a_run_plays_its_cases_and_says_how_sure_that_is(played):
    table = read(played, "generalise")
    rows = {row["name"]: row for row in table["cases"]}
    assert list(rows) == [UNCHANGED, "invented", "french", "go_to", "fewer_actions", "more_actions"]
    first = rows[UNCHANGED]
    for name, row in rows.items():
        success = row["success"]
        assert success["n"] == row["episodes"] == sum(kind["n"] for kind in row["by_kind"].values()) == 8
        assert (success["low"], success["high"]) == wilson(round(8 * success["rate"]), 8)
        assert row["seeds"] == [envs.HELD_OUT_FIRST, envs.HELD_OUT_FIRST + 7]
        assert row["random"]["n"] == 8
        assert ("difference" in row) == (name != UNCHANGED)
        if name != UNCHANGED:
            change = row["difference"]
            assert change["value"] == pytest.approx(success["rate"] - first["success"]["rate"])
            assert change["low"] <= change["value"] <= change["high"]
            assert change["paired"] == (name != "go_to")
    assert rows["invented"]["random"] == first["random"], "one world, one chance"
    assert rows["go_to"]["env"] == "babyai/GoToLocal"


def test_validation_in_training_gives_sample_efficiency_and_probes(played):
    rows = [json.loads(line) for line in (played / "metrics.jsonl").read_text().splitlines()]
    curve = [(row["env_steps"], row["success_rate"]) for row in rows if row["kind"] == "evaluate"]
    assert len(curve) >= 2
    steps, rates = map(np.array, zip(*curve, strict=True))
    assert read(played, "evaluate")["sample_efficiency"] == pytest.approx(mean_over(steps, rates, 32))
    assert sample_efficiency(played, 64) == pytest.approx(mean_over(steps, rates, 64))
    trained = [row for row in rows if row["kind"] == "train"]
    assert all(0 < row["probes/ahead"] < 1 and 0 < row["probes/turned_away"] < 1 for row in trained)


def test_recorded_episodes_say_why_the_policy_acted(played):
    steps = [json.loads(line) for line in (played / "stages/evaluate/trajectories.jsonl").read_text().splitlines()]
    results = read(played, "evaluate")
    lengths = {video["seed"]: video["length"] for video in results["videos"]}
    assert {seed: sum(step["seed"] == seed for step in steps) for seed in lengths} == lengths
    for step in steps:
        shares = step["probabilities"]
        assert list(shares) == ["turn left", "turn right", "go forward", "pick up", "drop", "toggle"]
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert step["action"] == max(shares, key=shares.get), "it plays greedily"
        assert "go to the red ball" in step["prompt"]
        assert f"Did: {steps[steps.index(step) - 1]['action']}." in step["prompt"] or step["step"] == 0


def test_the_report_has_a_row_for_each_case_and_a_plot_for_each_probe(played):
    page = (played / "report.html").read_text()
    assert "In other words and worlds" in page
    for name in (UNCHANGED, "invented", "french", "go_to", "fewer_actions", "more_actions"):
        assert f">{name}: " in page
    assert page.count('class="stacked"') >= 1
    assert "probe-ahead" in page


def test_a_finished_run_is_tried_again_by_words(played):
    own = (played / "stages" / "generalise" / "results.json").read_bytes()
    words = [
        "stages=[generalise]",
        "method.generalise.cases=[rotate]",
        "method.generalise.baselines=false",
        "method.generalise.episodes=4",
    ]
    assert evaluate(played, words) == 0
    rows = read(played, "generalise-1")["cases"]
    assert [row["name"] for row in rows] == [UNCHANGED, "rotate"]
    assert all("random" not in row and row["episodes"] == 4 for row in rows)
    assert (played / "stages" / "generalise" / "results.json").read_bytes() == own


def test_a_policy_server_answers_in_every_case_what_a_model_at_hand_does(played):
    words = ["stages=[generalise]", "method.generalise.cases=[rotate,fewer_actions,more_actions]"]
    assert evaluate(played, [*words, "policy.lm.placement=server"]) == 0
    served = read(played, max(p.name for p in (played / "stages").glob("generalise-*")))
    assert evaluate(played, words) == 0
    assert served == read(played, max(p.name for p in (played / "stages").glob("generalise-*")))


def test_any_method_may_be_tried_where_the_policy_is_a_language_model(model):
    ppo = ["method=ppo", *TALK, *model]
    assert [stage.name for stage in selected(compose(ppo))] == ["train", "evaluate"]
    assert [stage.name for stage in selected(compose([*ppo, "stages=[train,generalise]"]))] == ["train", "generalise"]
    assert [stage.name for stage in every_stage(compose([*GLAM, *model]))] == ["train", "evaluate", "generalise"]
    with pytest.raises(ConfigError, match="no 'generalise'"):
        compose(["method=ppo", "env=toy/Line", "stages=[generalise]"])


@pytest.mark.parametrize("name", ["fewer_actions", "more_actions", "shift"])
def test_in_another_world_logits_are_those_of_a_policy_of_that_world(model, name):
    config = compose([*GLAM, *model])
    there = resolve(config, CASES[name])
    spec = there.spec
    env = envs.make(there.env.id, 5, **there.env.options)
    obs = env.begin(np.arange(5))
    obs["history"] = np.full((5, 2), env.texts.intern(""), np.int32)
    home = PromptedPlayer(LocalModel(build_policy(config.policy, config.spec, 0)), False)
    elsewhere = ActorSetup(there.env.id, there.env.options, spec, there.actors, there.policy, 0, False)
    moved = home.twin(elsewhere)
    own = PromptedPlayer(LocalModel(build_policy(there.policy, spec, 0)), False)
    for player in (moved, own):
        player.begin(env, np.arange(5))
    logits, expected = (each.step(obs)[0] for each in (moved, own))
    assert logits.shape == (5, len(spec.action_names))
    np.testing.assert_allclose(logits, expected, atol=1e-5)
