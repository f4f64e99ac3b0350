"""Background knowledge as a whole: one run asks about a world, others are shaped by what it has left."""

import json

import numpy as np
import pytest

import envs
from actors.wrappers import shaping
from cluster import run as controller
from cluster.config.overrides import CONFIGS, ConfigError
from cluster.config.tree import compose
from cluster.report import document as report
from cluster.runs.folder import RunError
from learner import methods

ACTING = ["cluster=inline", "policy.reads=[image,direction]", "policy.network=mlp", "policy.hidden=16"]
ACTING += ["actors.n=1", "actors.envs=8", "actors.steps=32", "learner.minibatch=64", "learner.ppo.epochs=1"]
ACTING += ["env.captions=true", "evaluate.every=0"]
ASKING = ["method=bk", "env=babyai/GoToLocal", "learner.env_steps=2048", "method.intrinsic.hidden=16"]
ASKING += [
    f"method.{key}={value}"
    for key, value in {
        "label.segments": 80,
        "label.pairs": 80,
        "label.goals": 8,
        "label.candidates": 2,
        "label.rounds": 2,
        "prefer.steps": 10,
        "prefer.batch": 16,
        "prefer.width": 8,
    }.items()
]
TASK = ["method=ppo", "env=babyai/GoToObj", "learner.env_steps=512", "evaluate.episodes=4", "evaluate.videos=0"]
SHAPED = {
    "code": ("program", "label"),
    "preference": ("preference", "prefer"),
    "goal": ("goals", "label"),
}


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    assert controller.run(compose([*ACTING, *ASKING, f"run.folder={folder}", "run.name=asked"])) == 0
    return folder / "asked"


def results(path):
    return json.loads((path / "stages" / "label" / "results.json").read_text())


def rows(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_every_stage_leaves_what_the_next_one_needs(asked):
    stages = asked / "stages"
    assert [stage for stage in ("explore", "label", "prefer") if (stages / stage / "manifest.json").exists()] == [
        "explore",
        "label",
        "prefer",
    ]
    found = results(asked)
    assert found["preferences"]["answered"] > 40
    assert found["goals"]["answered"] >= 6
    assert found["programs"]["chosen"]
    assert (stages / "label" / "program.py").read_text().startswith("def potential(observations, actions):")
    assert (stages / "prefer" / "calibration.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("potential", SHAPED)
def test_a_task_is_shaped_by_what_another_run_has_left(asked, potential):
    option, stage = SHAPED[potential]
    words = [f"method.shaping.potential={potential}", f"method.shaping.{option}=run:asked/{stage}"]
    words += [f"run.folder={asked.parent}", f"run.name={potential}"]
    assert controller.run(compose([*ACTING, *TASK, *words])) == 0
    trained = [row for row in rows(asked.parent / potential) if row["kind"] == "train"]
    assert sum(row["shaping/windows"] for row in trained) >= 512
    assert any(row["rewards/shaping"] for row in trained)
    page = report.write([asked.parent / potential]).read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert "asked was asked once, for 1 run and 1 task" in page
    assert "rules that we wrote" in page


@pytest.mark.slow
def test_the_page_of_an_extraction_says_whose_answers_they_are(asked):
    page = report.write([asked]).read_text()
    assert "The answers are rules that we wrote, not a language model" in page
    assert "✓ chosen" in page


@pytest.mark.slow
def test_others_may_ask_about_the_same_episodes(asked):
    words = ["stages=[label]", "from=run:asked/explore", "method.label.asks=[goals]", "seed=1"]
    words += [f"run.folder={asked.parent}", "run.name=again"]
    assert controller.run(compose([*ACTING, *ASKING, *words])) == 0
    assert results(asked.parent / "again")["goals"]["asked"] == 8
    words[1], words[-1] = "from=run:asked/explore/episodes", "run.name=store"
    assert controller.run(compose([*ACTING, *ASKING, *words])) == 0
    assert (asked.parent / "store/stages/label/goals.jsonl").read_bytes() == (
        asked.parent / "again/stages/label/goals.jsonl"
    ).read_bytes()


def test_nothing_is_shaped_by_a_stage_that_is_not_there(tmp_path):
    folder = f"run.folder={tmp_path}"
    for potential, (option, stage) in SHAPED.items():
        words = [folder, f"method.shaping.potential={potential}", f"method.shaping.{option}=run:nobody/{stage}"]
        with pytest.raises(ConfigError, match=rf"^method\.shaping\.{option}: run:nobody/{stage} is not there"):
            compose([*ACTING, *TASK, *words])


def test_a_world_without_words_is_refused_before_anything_starts():
    with pytest.raises(ConfigError, match="gym/CartPole-v1 holds no texts for a language model"):
        compose(["method=bk", "env=gym/CartPole-v1", "policy.network=mlp"])
    with pytest.raises(ConfigError, match="needs a discrete action space"):
        compose(["method=bk", "env=gym/Pendulum-v1", "policy.network=mlp"])


def test_what_exploring_would_not_keep_is_refused_before_it_begins(tmp_path):
    world = ["method=bk", "env=babyai/GoToLocal"]
    for words, sentence in (
        (["env.captions=false"], r"babyai/GoToLocal holds no texts .*env\.captions=true"),
        (["env.captions=true", "method.tee=false"], r"method\.tee=false keeps no episodes to ask about"),
        (["env.captions=true", "method.label.captions=[around]"], "has no text field around: there is caption"),
        (["env=crafter", "env.observe=[symbols]"], r"holds no texts .*env\.observe=\[symbols,around\]"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            compose([*world, *words])
    compose([*world, "env.captions=false", "stages=[label,prefer]", f"from={tmp_path}"])


@pytest.mark.parametrize("task", ["drink water", "eat cow", "place crafting table", "make wood pickaxe"])
def test_the_tasks_of_crafter_are_there_and_the_policy_reads_symbols_only(task):
    config = compose(["experiment=bk_crafter_task", f'env.task="{task}"'])
    assert config.spec.task_kinds == (task,)
    assert config.policy.reads == ["symbols", "counts"]
    assert {"around", "mission"} <= set(config.spec.fields)


RECORDED = {"code": "program=%s/program.py", "preference": "preference=%s/preference", "goal": "goals=%s/goals"}


@pytest.mark.parametrize("potential", ["code", "preference", pytest.param("goal", marks=pytest.mark.slow)])
def test_the_recorded_extraction_serves_every_potential_from_any_folder(potential, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    option = RECORDED[potential] % "configs/knowledge/babyai"
    words = ["experiment=bk_small", f"method.shaping.potential={potential}", f"method.shaping.{option}"]
    config = compose([*words, "env.captions=true"])
    world = envs.make(config.env.id, 16, captions=True)
    env = shaping.make(shaping.part(config), world, None)
    env.begin(np.arange(16))
    (phi,) = (value for name, value in env.state().items() if name.endswith("phi"))
    assert phi.shape == (16,)
    assert np.isfinite(phi).all()
    assert potential == "goal" or len(np.unique(phi)) > 1  # that many goals are not so near at once


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONFIGS / "experiment").glob("bk_*.yaml")))
def test_no_policy_of_background_knowledge_reads_a_text(name):
    config = compose([f"experiment={name}"])
    assert all(config.spec.fields[field].kind != "text" for field in config.policy.reads)
    assert config.policy.reads
    stages = [stage.kind for stage in methods.selected(config)]
    assert stages == (["train", "label", "prefer"] if config.method.name == "bk" else ["train", "evaluate"])


def test_a_label_stage_without_episodes_says_what_to_do(tmp_path):
    words = ["stages=[label]", f"run.folder={tmp_path}", "run.name=alone"]
    with pytest.raises(RunError, match="finds no episodes"):
        controller.run(compose([*ACTING, *ASKING, *words]))
