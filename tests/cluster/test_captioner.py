"""A captioner from the stage that fits it to a run that is told by it, is stopped, and goes on."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from cluster import run as controller
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from cluster.stages.train import Engine as Training

FIT = [
    "experiment=crafter_captioner", "cluster=inline", "run.name=fitted", "evaluate.episodes=4",
    "evaluate.env.length=10",
    "method.captioner.steps=60", "method.captioner.batch=32", "method.captioner.players=16",
    "method.captioner.width=16", "method.captioner.hidden=16",
]  # fmt: skip
RUN = [
    "experiment=ellm_crafter_small_captioner", "cluster=inline", "sync=true", "llm.when_away=wait", "actors.n=1",
    "env.length=20", "actors.envs=4", "actors.steps=16", "learner.minibatch=64", "learner.ppo.epochs=1",
    "policy.hidden=16", "evaluate.episodes=4", "evaluate.every=0", "evaluate.videos=0", "learner.env_steps=512",
    "method.captioning.captioner=run:fitted/captioner", "method.captioning.noise=0.1",
]  # fmt: skip


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    assert controller.run(compose([*FIT, f"run.folder={folder}"])) == 0
    return folder


def updates_of(path):
    lines = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
    return sum(line["kind"] == "train" for line in lines)


def test_the_stage_leaves_weights_a_description_and_accuracies(fitted):
    stage = fitted / "fitted/stages/captioner"
    accuracy = json.loads((stage / "accuracy.json").read_text())
    assert list(accuracy) == ["as fitted", "evaluate.env"]
    assert accuracy["as fitted"]["all"]["states"] <= 4 * 30
    assert accuracy["evaluate.env"]["all"]["states"] == 4 * 10
    counts = json.loads((stage / "manifest.json").read_text())["counts"]
    assert counts["as fitted"] == accuracy["as fitted"]["all"]["exact"]
    assert {path.suffix for path in stage.iterdir()} == {".json", ".safetensors"}


def test_a_stopped_and_resumed_run_by_a_captioner_is_bitwise_the_run_without_a_stop(fitted, monkeypatch):
    words = [*RUN, f"run.folder={fitted}"]
    assert controller.run(compose([*words, "run.name=whole"])) == 0
    real = Training._learned

    def learned(self, *args):
        real(self, *args)
        if (updates := updates_of(fitted / "parts")) == 3:
            (fitted / "parts" / "STOP").touch()
        assert updates < 8

    with monkeypatch.context() as patched:
        patched.setattr(Training, "_learned", learned)
        assert controller.run(compose([*words, "run.name=parts"])) == 3
    assert controller.resume(fitted / "parts", [], False) == 0
    whole, parts = (load_file(fitted / name / "stages/pretrain/weights.safetensors") for name in ("whole", "parts"))
    assert all(np.array_equal(whole[name], parts[name]) for name in whole)
    told = json.loads((fitted / "whole/stages/pretrain/manifest.json").read_text())["inputs"]
    assert len(told["captioner"]) == 64


def test_a_run_with_other_noise_does_not_go_on(fitted):
    words = [*RUN, f"run.folder={fitted}", "run.name=noisy", "stages=[pretrain]", "learner.env_steps=128"]
    assert controller.run(compose(words)) == 0
    with pytest.raises(Exception, match=r"trained with another captioning than method\.captioning") as error:
        controller.resume(fitted / "noisy", ["method.captioning.noise=0.2", "learner.env_steps=256"], True)
    assert "\n" not in str(error.value)


def test_an_unfinished_captioner_is_refused(fitted):
    with pytest.raises(ConfigError, match="run:nobody/captioner is not there"):
        compose([*RUN, f"run.folder={fitted}", "method.captioning.captioner=run:nobody/captioner"])
