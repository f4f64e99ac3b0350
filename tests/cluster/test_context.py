"""Learning in context as a whole: histories, an encoder, a transformer that looks things up; stopped, hurt, reused."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from cluster import run as controller
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose, explain
from cluster.config.unread import tell
from cluster.runs.folder import RunError
from cluster.stages._shared import fitting, transformers
from learner import checkpoint
from learner.context.config import ARMS
from learner.context.fit import HistoryFitter
from learner.methods import selected
from learner.store.episodes import EPISODES, EpisodeStore, digest
from llm_service.embedding import EmbedderMissing
from tests.cluster.test_cloning import of_role
from tests.cluster.test_faults import launch, wait_for
from tests.learner.fault_points import interrupted

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["experiment=radt_smoke", "env.id=dark/Room-4x4", "method.histories.episodes=12", "method.sequence.skip=3"]
SMALL += ["method.sequence.width=16", "method.sequence.steps=24", "method.sequence.every=6", "method.sequence.batch=32"]
SMALL += ["method.trials.trials=1"]


def config(folder, name, *words):
    return compose(["cluster=inline", *SMALL, *words, f"run.folder={folder}", f"run.name={name}"])


def run(folder, name, *words):
    assert controller.run(config(folder, name, *words)) == 0
    return folder / name


def weights(path, stage="fit"):
    return (path / "stages" / stage / "weights.safetensors").read_bytes()


def manifest(path, stage="fit"):
    return json.loads((path / "stages" / stage / "manifest.json").read_text())


def rows(path):
    found = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "wall_seconds"} for row in found]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A whole run of arm radt."""
    return run(tmp_path_factory.mktemp("runs"), "small")


def test_histories_make_an_encoder_and_both_a_transformer(small):
    histories = digest(small / "stages/histories" / EPISODES)
    assert manifest(small, "encoder")["inputs"]["episodes"] == histories
    assert manifest(small)["inputs"]["episodes"] == histories
    assert manifest(small)["inputs"]["encoder"] == manifest(small, "encoder")["files"]["weights.safetensors"]
    found = {stage: safetensors.numpy.load(weights(small, stage)) for stage in ("encoder", "fit")}
    assert not any(name.startswith("retrieved") for name in found["encoder"])
    assert found["fit"]["retrieved.place.weight"].shape == (15, 16)  # 5 steps before, 10 from there on
    learned = [value.size for name, value in found["fit"].items() if name != "reach"]  # what is saved and not learned
    assert manifest(small)["counts"]["parameters"] == sum(learned)
    assert manifest(small)["inputs"]["method.arm"] == "radt"
    told = json.loads((small / "stages/fit/lookup.json").read_text())
    assert told["points"] == 13 * 12 * 4  # tasks, episodes, of 16 steps each
    assert told["answered"] == 1.0
    assert told["drawn_for_short"] == 0.25
    assert "queries, 100.0% answered" in (small / "run.log").read_text()
    assert not (small / "stages/encoder/lookup.json").exists()


def test_versions_and_rows_count_on_from_stage_to_stage(small):
    told = rows(small)
    assert [row["version"] for row in told] == [6, 12, 18, 24, 30, 36, 42, 48]
    assert [row["fit/step"] for row in told] == [6, 12, 18, 24] * 2
    assert [row["env_steps"] for row in told] == [32 * row["version"] for row in told]
    assert all(row["fit/loss"] < np.log(5) + 0.1 for row in told)
    assert manifest(small, "encoder")["counts"]["version"] == 24
    assert manifest(small)["counts"]["version"] == 48


@pytest.mark.parametrize("arm", ARMS)
def test_arms_share_histories(tmp_path, small, arm):
    made = config(tmp_path, arm, f"method.arm={arm}")
    encoder = ["encoder"] if arm == "radt" else []
    assert [stage.name for stage in selected(made)] == ["histories", *encoder, "fit", "trials"]
    path = run(tmp_path, arm, f"method.arm={arm}", "stages=[fit]", f"from={small}/stages/encoder")
    assert manifest(path)["inputs"]["episodes"] == manifest(small)["inputs"]["episodes"]
    assert (weights(path) == weights(small)) == (arm == "radt")
    assert weights(path) != weights(small, "encoder")  # which is told no returns
    told = path / "stages/fit/lookup.json"
    assert told.exists() == (ARMS[arm].looks != "nowhere")
    if told.exists():
        assert ("similarity" in json.loads(told.read_text())) == (arm == "radt")  # no other one searches


@pytest.mark.parametrize("encoder", ["random", "hopfield"])
def test_a_frozen_encoder_is_no_stage(tmp_path, small, encoder):
    words = [f"method.retrieve.encoder={encoder}", "method.retrieve.at_most=1.1", f"from={small}/stages/histories"]
    assert [stage.name for stage in selected(config(tmp_path, "all", *words))] == ["histories", "fit", "trials"]
    path = run(tmp_path, encoder, *words, "stages=[fit,trials]", "method.sequence.steps=6", "method.trials.trials=3")
    for stage in ("fit", "trials"):
        assert manifest(path, stage)["inputs"]["encoder"] == encoder
    told = [json.loads((place / "stages/fit/lookup.json").read_text()) for place in (path, small)]
    assert told[0]["points"] == told[1]["points"]
    assert told[0]["answered"] == 1.0
    assert told[0]["similarity"] != told[1]["similarity"]
    found = json.loads((path / "stages/trials/results.json").read_text())["retrieved"]
    assert found["found"] == [None, 1.0, 1.0]


@pytest.mark.parametrize("arm", ["radt", "ad"])
def test_mazes_are_learned_too(tmp_path, arm):
    """Their episodes differ in length, and what is observed are numbers."""
    words = ["env=maze", "env.id=maze/Runner-7", "env.mazes=8", "method.histories.learner=expert", f"method.arm={arm}"]
    path = run(tmp_path, "maze", *words, "method.sequence.steps=60", "method.sequence.learning_rate=1e-2")
    store = EpisodeStore(path / "stages/histories" / EPISODES)
    assert len(set(store.length.tolist())) > 5
    told = [row["fit/loss"] for row in rows(path)][-10:]
    assert told[-1] < told[0] < np.log(5) + 0.1
    found = safetensors.numpy.load(weights(path))
    assert found["own.vectors.of_sensors.weight"].shape == (16, 6)
    assert found["decoder.offsets"].shape[2] == (2 * store.length.max() if arm == "ad" else 10)
    assert found["reach"].max() == store.total.max()
    assert len(found["reach"]) == store.length.max()


# ---- stopped, killed, hurt ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [3, 24, 27])  # in the encoder, at its end, in what comes after it
def test_stopped_and_resumed_is_the_run_without_a_stop(tmp_path, small, monkeypatch, at):
    real, calls = HistoryFitter.fit, []

    def fit(self, steps):
        calls.append(steps)
        if sum(calls) == at:
            (tmp_path / "parts" / "STOP").touch()
        return real(self, steps)

    monkeypatch.setattr(HistoryFitter, "fit", fit)
    monkeypatch.setattr(fitting, "CALL_S", 0.0)
    assert controller.run(config(tmp_path, "parts")) == 3
    assert sum(calls) == at
    assert controller.resume(tmp_path / "parts", [], False) == 0
    assert sum(calls) == 48  # none was taken twice
    assert weights(tmp_path / "parts", "encoder") == weights(small, "encoder")
    assert weights(tmp_path / "parts") == weights(small)
    assert rows(tmp_path / "parts") == rows(small)


def killed_at(folder, part):
    """Run until a checkpoint of this name is about to be there, and die."""
    fitting.CALL_S = 0.0
    with interrupted(
        Path(folder),
        at=lambda what: what.startswith("os.rename") and part in what,
        by=lambda unsynced: os.kill(os.getpid(), signal.SIGKILL),
    ):
        run(Path(folder), "killed", "run.checkpoint_every_s=1e-6")


@pytest.mark.parametrize("version", [8, 25, 31])
def test_a_killed_run_resumes_to_the_same_weights(tmp_path, small, version):
    path = tmp_path / "killed"
    code = "import sys; from tests.cluster.test_context import killed_at; killed_at(*sys.argv[1:])"
    died = subprocess.run([sys.executable, "-c", code, str(tmp_path), f"v{version:08d}"], cwd=ROOT, check=False)
    assert died.returncode == -signal.SIGKILL
    assert checkpoint.latest(path / "checkpoints").record["counters"]["version"] == version - 1
    assert controller.resume(path, [], False) == 0
    assert weights(path) == weights(small)
    assert rows(path) == rows(small)


def test_a_fitter_that_dies_before_it_saved_begins_its_own_stage_anew(tmp_path, small, monkeypatch):
    real, deaths = HistoryFitter.fit, []

    def fit(self, steps):
        if self.setup.arm == ARMS["radt"] and not deaths:
            deaths.append(self.step)
            raise RuntimeError("struck by lightning")
        return real(self, steps)

    monkeypatch.setattr(HistoryFitter, "fit", fit)
    path = run(tmp_path, "hurt")
    assert deaths == [0]
    assert "fitter died, restarting from the last checkpoint: RuntimeError: struck" in (path / "run.log").read_text()
    assert weights(path) == weights(small)
    assert rows(path) == rows(small)


@pytest.mark.slow
def test_fitters_that_are_killed_cost_nothing_but_time(tmp_path):
    """On Ray, two ranks: one dies while it fits what looks things up; all is as without."""
    words = [*SMALL, "learner.n=2", "method.sequence.steps=400", "run.checkpoint_every_s=0.2", f"run.folder={tmp_path}"]
    path = tmp_path / "hurt"
    process = launch("run", *words, "run.name=hurt")

    def reached():
        found = [int(folder.name[1:9]) for folder in (path / "checkpoints").glob("v*")]
        return max(found, default=0) > 420

    wait_for(reached, "a checkpoint of the second fit", 200)
    os.kill(of_role(process, "ray::HistoryFitter")[1], signal.SIGKILL)
    assert process.wait(200) == 0
    assert "fitter died, restarting from the last checkpoint" in (path / "run.log").read_text()
    assert launch("run", *words, "run.name=well").wait(200) == 0
    assert weights(tmp_path / "well", "encoder") == weights(path, "encoder")
    assert weights(tmp_path / "well") == weights(path)
    assert rows(tmp_path / "well") == rows(path)


# ---- what is refused ------------------------------------------------------------------------------------------------


def test_what_is_missing_is_one_sentence(tmp_path, small):
    with pytest.raises(RunError, match="stage histories is missing: add it to stages, or set from=run:NAME"):
        controller.run(config(tmp_path, "a", "stages=[fit]"))
    run(tmp_path, "dt", "method.arm=dt")
    with pytest.raises(RunError, match="stage encoder is missing"):
        controller.run(config(tmp_path, "b", "stages=[fit]", "from=run:dt/histories"))
    with pytest.raises(RunError, match=r"do not fit this transformer of histories.*use the method\.sequence and env"):
        controller.run(
            config(tmp_path, "c", "stages=[fit]", f"from={small}/stages/encoder", "method.sequence.width=32")
        )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["method.arm=radtt"], r"method\.arm"),
        (["method.sequence.heads=5"], "a width of 64 cannot be divided among 5 heads"),
        (["method.retrieve.terms.nearness=1"], "there is no term 'nearness': choose from similarity"),
        (["method.retrieve.every=0"], r"method\.retrieve\.every"),
        (
            ["method.trials.split=tests"],
            r"method\.trials\.split=tests is neither held_out nor training, nor a value of env",
        ),
        (
            ["method.trials.split=published"],
            r"method\.trials\.split=published: env\.split=published is of the rooms",
        ),
        (["method.retrieve.encoder=frozen"], r"method\.retrieve\.encoder"),
        (["method.retrieve.encoder=hopfield", "method.retrieve.beta=0"], r"method\.retrieve\.beta"),
        (["method.retrieve.encoder=hopfield", "method.retrieve.pool=513"], "reads 512 steps at most, not pool=513"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(words, told):
    with pytest.raises(ConfigError, match=told):
        compose(["experiment=radt_smoke", *words])


def test_without_the_language_model_nothing_begins(tmp_path, small, monkeypatch):
    def missing():
        raise EmbedderMissing("pip install it")

    monkeypatch.setattr(transformers, "minilm_folder", missing)
    words = ["stages=[fit]", f"from={small}/stages/histories", "method.retrieve.encoder=hopfield"]
    with pytest.raises(RunError, match=r"method\.retrieve\.encoder=hopfield: pip install it"):
        controller.run(config(tmp_path, "missing", *words))


def test_terms_of_the_score_are_words_of_the_command_line():
    found = compose(["experiment=radt_smoke", "method.retrieve.terms.return=0.5"]).method.retrieve
    assert (found.terms, compose(["experiment=radt_smoke"]).method.retrieve.weights) == (
        {"return": 0.5},
        {"similarity": 1.0},
    )


def test_words_that_an_arm_does_not_read_are_told(capsys):
    both = "method.sequence.skip=4, method.retrieve.every=3 have"
    tuned = [
        "method.sequence.band=9",
        "method.retrieve.at_most=0.9",
        "method.trials.target=3.0",
        "method.trials.terms.paid=1",
    ]
    tuned += ["method.sequence.bins=9", "method.trials.newest=3", "method.retrieve.past=4"]
    unread = {"radt": [], "same_task": [1, 3], "dt": [1, 3, 5, 6], "ad": range(7), "dpt": range(7)}
    for arm, places in unread.items():
        tell(*explain(["experiment=radt_smoke", f"method.arm={arm}", *tuned]))
        told = capsys.readouterr().err
        assert [i for i, word in enumerate(tuned) if word.partition("=")[0] in told] == list(places), arm
        assert not told or told.endswith(f"no effect with method.arm={arm}\n")
    alone = {"dt": both, "dpt": both, "radt": "method.sequence.skip=4 has"}
    for arm, told in alone.items():
        words = [f"method.arm={arm}", "method.retrieve.every=3", "method.sequence.skip=4", "learner.threads=2"]
        tell(*explain(["experiment=radt_smoke", *words]))
        assert capsys.readouterr().err == f"note: {told} no effect with method.arm={arm}\n"
    for encoder, told in (("fitted", "beta=20.0, method.retrieve.projection=1 have"), ("random", "beta=20.0 has")):
        words = [f"method.retrieve.encoder={encoder}", "method.retrieve.beta=20", "method.retrieve.projection=1"]
        tell(*explain(["experiment=radt_smoke", *words]))
        told = f"note: method.retrieve.{told} no effect with method.retrieve.encoder={encoder}\n"
        assert capsys.readouterr().err == told
