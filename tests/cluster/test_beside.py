"""Who plays beside the agent: the same episodes, no goals asked for, a paired difference; and what a report says."""

import json

import numpy as np
import pytest

from cluster import run as controller
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from cluster.report import document as report
from cluster.runs.run_data import stand_in
from tests.report.conftest import Page

SMALL = ["cluster=inline", "policy.hidden=16", "actors.envs=4", "actors.steps=8", "actors.n=1", "evaluate.episodes=70"]


def played(folder, name, *words):
    assert controller.run(compose([*SMALL, f"run.folder={folder}", f"run.name={name}", *words])) == 0
    return json.loads((folder / name / "stages" / "evaluate" / "results.json").read_text())


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def planned(runs):
    """The planner, whom random actions play beside."""
    words = ["env=babyai/GoToRedBallNoDists", "method=expert", "evaluate.beside=[random]"]
    return played(runs, "planned", *words)


def test_random_actions_play_what_the_method_random_plays(runs, planned):
    alone = played(runs, "alone", "env=babyai/GoToRedBallNoDists", "method=random")
    beside = planned["beside"]["random"]
    assert {key: beside[key] for key in ("episodes", "seeds", "success", "return", "length")} == {
        key: alone[key] for key in ("episodes", "seeds", "success", "return", "length")
    }


def test_the_difference_is_of_means_and_its_interval_is_paired(planned):
    beside = planned["beside"]["random"]
    gain = beside["difference"]
    assert gain["mean"] == pytest.approx(planned["success"]["rate"] - beside["success"]["rate"])
    assert gain["low"] < gain["mean"] < gain["high"]
    assert gain["low"] > 0.3  # the planner solves all of them


def test_nobody_beside_is_asked_for_goals(runs, capsys):
    words = [
        "env=crafter/Named",
        "method=ellm",
        "method.goals.source=model",
        "learner.algorithm=ppo",
        "policy.head=actor_critic",
    ]
    words += ["evaluate.episodes=4", "evaluate.every=0", "learner.env_steps=64", "evaluate.videos=0", "env.length=20"]
    found = played(runs, "goals", *words, "evaluate.beside=[random]", "stages=[evaluate]", *_weights(runs, words))
    assert "goals" in found
    assert "goals" not in found["beside"]["random"]
    printed = capsys.readouterr().out
    assert "\nrandom: " in printed
    assert "scripted stand-in" in printed
    assert "llm=openai llm.model=NAME" in printed


def _weights(runs, words):
    played(runs, "pretrained", *words)
    return ["from=run:pretrained/pretrain"]


def test_the_report_has_a_table_of_those_beside(runs, planned):
    page = Page(report.write([runs / "planned"]).read_text())
    assert "Beside others" in page.text
    assert "random actions" in page.text
    gain = planned["beside"]["random"]["difference"]
    assert f"{100 * gain['mean']:+.1f} points" in page.text


def test_who_cannot_play_is_refused():
    with pytest.raises(ConfigError, match="planner"):
        compose(["env=crafter/Named", "evaluate.beside=[expert]"])
    with pytest.raises(ConfigError, match="beside"):
        compose(["env=toy/Line", "evaluate.beside=[nobody]"])


@pytest.mark.parametrize(
    ("llm", "said"),
    [({"name": "scripted"}, True), ({"name": "openai"}, False), ({"name": "scripted", "address": "host:1"}, False)],
)
def test_only_a_scripted_model_is_called_a_stand_in(llm, said):
    words = stand_in({"llm": llm, "experiment": "quickstart"})
    assert bool(words) is said
    assert not said or "experiment=quickstart llm=openai" in words
    assert np.all([word not in words for word in ("  ", "None")])
