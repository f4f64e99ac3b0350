"""Trials as a stage: what is written is what was played, whoever plays and whatever happens to them."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from safetensors import safe_open

from actors.trials import Trials
from cluster import run as controller
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from cluster.runs.folder import RunError
from cluster.stages._shared.transformers import fitted_with
from cluster.stages.trials import shares_of, tasks_for
from envs import registry
from learner.context.config import TrialsConfig
from learner.files import sha256
from tests.learner.fault_points import interrupted

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["experiment=radt_smoke", "env.id=dark/Room-4x4", "method.histories.episodes=12", "method.sequence.skip=3"]
SMALL += ["method.sequence.width=16", "method.sequence.steps=6", "method.sequence.batch=32", "method.sequence.every=6"]
SMALL += ["method.trials.trials=12", "method.trials.together=4"]  # 3 seeds of 3 held-out tasks: 3 shares
TRIALS = ["stages=[trials]", "from=run:small/fit"]


def config(folder, name, *words):
    return compose(["cluster=inline", *SMALL, *words, f"run.folder={folder}", f"run.name={name}"])


def run(folder, name, *words):
    assert controller.run(config(folder, name, *words)) == 0
    return folder / name


def written(path):
    return (path / "stages/trials/returns.safetensors").read_bytes()


def arrays(path):
    return safetensors.numpy.load(written(path))


def drawn(path):
    return (path / "stages/trials/paths.safetensors").read_bytes()


def results(path, stage="trials"):
    return json.loads((path / "stages" / stage / "results.json").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of runs, which name `small`."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def small(folder):
    """A whole run of arm radt: one actor."""
    return run(folder, "small", "actors.n=1")


def test_returns_have_a_place_for_each_seed_task_and_trial(small):
    found, told = arrays(small), results(small)
    assert (found["return"].shape, found["return"].dtype) == ((3, 3, 12), np.float32)
    np.testing.assert_array_equal(
        found["task"], [13, 14, 15]
    )  # the last fifth of 16 cells, which no training seed names
    np.testing.assert_array_equal(found["seed"], [0, 1, 2])
    with safe_open(small / "stages/trials/returns.safetensors", "numpy") as file:
        about = {"env": "dark/Room-4x4", "arm": "radt", "memory": "own", "split": "held_out"}
        assert json.loads(file.metadata()["about"]) == about
    assert told.items() >= (about | {"seeds": 3, "tasks": 3, "trials": 12}).items()
    mean = found["return"].mean((0, 1), dtype=np.float64)
    np.testing.assert_allclose(told["curve"]["mean"], mean)
    for name, trial in (("first", 0), ("tenth", 9), ("last", 11)):
        assert told[name]["mean"] == pytest.approx(mean[trial])
        assert told[name]["low"] <= told[name]["mean"] <= told[name]["high"]
    assert told["area"]["mean"] == pytest.approx(mean.mean())
    last = np.sort(found["return"][:, :, -1].ravel())
    assert told["iqm"]["mean"] == pytest.approx(last[2:7].mean())
    assert not (small / "stages/trials/parts").exists()


def test_what_was_looked_at_is_told(small):
    found, told = arrays(small), results(small)["retrieved"]
    assert not found["retrieved.queries"][:, :, 0].any()
    np.testing.assert_array_equal(found["retrieved.queries"][:, :, 1:], 4)  # 16 steps, one each 5
    assert told["found"] == [None, *[1.0] * 11]
    assert told["task"] == [None, *[1.0] * 11]
    assert told["age"][1] == 1.0
    assert all(1 <= age <= trial for trial, age in enumerate(told["age"]) if trial)
    assert all(-1 <= value <= 1.00001 for value in told["similarity"][1:])
    page = (small / "report.html").read_text()
    assert "Return over trials" in page
    assert "of the own task" in page


def test_one_task_is_kept_whole(small):
    found, returns = safetensors.numpy.load(drawn(small)), arrays(small)["return"][0]  # of seed 0
    gain = returns[:, -1] - returns[:, 0]
    assert gain[found["task"][0] - 13] == np.median(gain)
    ends = np.cumsum(found["length"])
    paid = np.add.reduceat(found["reward"], ends - found["length"])
    np.testing.assert_array_equal(paid, returns[found["task"][0] - 13])
    assert len(found["obs.row"]) == len(found["obs.column"]) == len(found["action"]) == ends[-1] == 12 * 16
    assert found["query"].shape == (11 * 4, 5)
    assert (found["query"][:, 2] < found["query"][:, 0]).all()
    with safe_open(small / "stages/trials/paths.safetensors", "numpy") as file:
        about = json.loads(file.metadata()["about"])
    assert (about["arm"], about["memory"], about["sizes"]) == ("radt", "own", {"row": 4, "column": 4})
    assert "Paths</h2>" in (small / "report.html").read_text()


def test_how_many_actors_play_does_not_show(small, folder):
    other = run(folder, "more", *TRIALS, "actors.n=3")
    assert written(other) == written(small)
    assert drawn(other) == drawn(small)
    inputs = [json.loads((path / "stages/trials/manifest.json").read_text())["inputs"] for path in (small, other)]
    for stage in ("fit", "encoder"):
        assert inputs[0][stage] == inputs[1][stage] == sha256(small / "stages" / stage / "weights.safetensors")


def test_rows_that_are_split_otherwise_do_the_same(small, folder):
    whole = arrays(run(folder, "whole", *TRIALS, "method.trials.together=64"))
    for name, array in arrays(small).items():
        np.testing.assert_allclose(whole[name], array, rtol=1e-5, err_msg=name)
    np.testing.assert_array_equal(whole["return"], arrays(small)["return"])


def test_controls_begin_alike_and_are_named(small, folder):
    first = arrays(small)["return"]
    for memory in ("others", "none"):
        other = run(folder, memory, *TRIALS, f"method.trials.memory={memory}")
        assert results(other)["memory"] == memory
        np.testing.assert_array_equal(arrays(other)["return"][:, :, 0], first[:, :, 0])
    assert results(folder / "others")["retrieved"]["task"][1:] == [0.0] * 11
    assert results(folder / "none")["retrieved"] == {}
    assert not any(name.startswith("retrieved") for name in arrays(folder / "none"))


def test_a_control_can_stand_beside_the_runs_own_trials(small):
    before = written(small)
    assert controller.evaluate(small, ["method.trials.memory=others", "method.trials.trials=3"]) == 0
    assert (results(small, "trials-1")["memory"], results(small, "trials-1")["trials"]) == ("others", 3)
    assert written(small) == before


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("arm", ["dt", "ad", "dpt", "uniform", "oracle_chunk"])
def test_every_arm_plays(folder, arm):
    words = ["stages=[fit,trials]", "from=run:small/histories", f"method.arm={arm}", "method.trials.trials=3"]
    told = results(run(folder, arm, *words))
    assert told["arm"] == arm
    assert told["memory"] == ("none" if arm in ("dt", "ad") else "own")
    assert (told["retrieved"].get("found", [None])[0] is not None) == (arm == "oracle_chunk")
    assert len(told["curve"]["mean"]) == 3
    assert "tenth" not in told


def test_who_was_told_coordinates_can_be_tried_in_another_room(folder):
    """The same weights in a larger room, from another start; places of categories would be of one room alone."""
    coordinates, other = "env.observe=coordinates", ["env.id=dark/Room-6x5", "env.start=[2,3]"]
    run(folder, "coordinates", coordinates, "method.arm=dt", "method.trials.trials=1")
    words = ["stages=[trials]", "from=run:coordinates/fit", "method.arm=dt", "method.trials.trials=2", *other]
    path = run(folder, "elsewhere", coordinates, *words)
    assert results(path)["env"] == "dark/Room-6x5"
    assert arrays(path)["return"].shape == (3, 6, 2)
    inputs = json.loads((path / "stages/trials/manifest.json").read_text())["inputs"]
    assert inputs["fit"] == sha256(folder / "coordinates/stages/fit/weights.safetensors")
    with pytest.raises(RunError, match="weights do not fit"):
        controller.run(config(folder, "cells", *words))


# ---- stopped, killed, hurt ------------------------------------------------------------------------------------------


def test_stopped_and_resumed_is_the_run_without_a_stop(small, folder, monkeypatch):
    real, calls, stops = Trials.play, [], []

    def play(self):
        calls.append(self.number)
        if len(calls) == 18 and not stops:  # in the second share
            stops.append(folder / "parts" / "STOP")
            stops[0].touch()
        return real(self)

    monkeypatch.setattr(Trials, "play", play)
    monkeypatch.setattr("actors.trial_player.CALL_S", 0.0001)
    assert controller.run(config(folder, "parts", *TRIALS, "actors.n=1")) == 3
    assert len(list((folder / "parts/stages/trials/parts").iterdir())) == 1
    calls.clear()
    assert controller.resume(folder / "parts", [], False) == 0
    assert len(calls) == 2 * 12  # the share that was through was not played again
    assert written(folder / "parts") == written(small)
    assert drawn(folder / "parts") == drawn(small)
    assert results(folder / "parts") == results(small)


def killed_at(folder, part):
    """Run until a file of this name is about to be renamed, and die there."""
    with interrupted(
        Path(folder),
        at=lambda what: what.startswith("os.rename") and part in what,
        by=lambda unsynced: os.kill(os.getpid(), signal.SIGKILL),
    ):
        run(Path(folder), "killed", *TRIALS, "actors.n=1")


@pytest.mark.parametrize(("at", "there"), [("-00001.safetensors", 1), ("returns.safetensors", 3)])
def test_a_killed_controller_resumes_to_the_same_array(small, folder, at, there):
    path = folder / "killed"
    code = "import sys; from tests.cluster.test_trials import killed_at; killed_at(*sys.argv[1:])"
    died = subprocess.run([sys.executable, "-c", code, str(folder), at], cwd=ROOT, check=False)
    assert died.returncode == -signal.SIGKILL
    parts = [file for file in (path / "stages/trials/parts").iterdir() if file.name[0] != "."]
    assert len(parts) == there
    assert controller.resume(path, [], False) == 0
    assert written(path) == written(small)
    assert drawn(path) == drawn(small)
    assert results(path) == results(small)
    path.rename(folder / f"killed{there}")


def test_a_share_that_is_lost_with_its_actor_is_played_again(small, folder, monkeypatch):
    real, deaths = Trials.play, []

    def play(self):
        if self.number == 6 and not deaths:
            deaths.append(self.number)
            raise RuntimeError("struck by lightning")
        return real(self)

    monkeypatch.setattr(Trials, "play", play)
    path = run(folder, "hurt", *TRIALS, "actors.n=2", "actors.backoff_s=0.01")
    assert deaths
    assert written(path) == written(small)


# ---- what is played, and refused ------------------------------------------------------------------------------------


def test_shares_are_whole_seeds():
    for seeds, tasks, together in ((3, 4, 4), (3, 20, 64), (5, 9, 20), (2, 100, 1)):
        shares = shares_of(TrialsConfig(seeds=seeds, together=together), tasks)
        assert [seed for share in shares for seed in share.seeds] == list(range(seeds))
        assert max(len(share.seeds) for share in shares) <= max(1, together // tasks)


def test_weights_are_played_under_the_name_of_their_arm(small, folder):
    with pytest.raises(RunError, match=r"was fitted with method\.arm=radt, not uniform: set method\.arm=radt"):
        run(folder, "misnamed", *TRIALS, "method.arm=uniform")


@pytest.mark.parametrize(
    ("split", "options", "tasks"),
    [
        ("held_out", {}, range(80, 100)),
        ("training", {}, range(80)),
        ("published", {"split": "published_train"}, range(20)),
        ("held_out", {"split": "published"}, range(20)),
    ],
)
def test_splits(split, options, tasks):
    found, spec, which = tasks_for("dark/Room-10x10", options, split)
    assert which.tolist() == list(tasks)
    assert found.get("split") == (split if split == "published" else options.get("split"))
    assert spec.tasks > which.max()


def test_without_weights_nothing_is_played(tmp_path):
    with pytest.raises(RunError, match="stage fit is missing"):
        controller.run(config(tmp_path, "refused", "stages=[trials]"))


FROZEN = ["method.retrieve.encoder=hopfield"]
ALL = {"attention", "band", "past", "future", "encoder", "pool"}


@pytest.mark.parametrize(
    ("words", "bound"),
    [
        ([], ALL),
        (["method.retrieve.encoder=random"], ALL | {"reward_scale", "told", "projection"}),
        (FROZEN, ALL | {"reward_scale", "told", "projection", "beta"}),
        ([*FROZEN, "method.arm=uniform"], {"attention", "band", "past", "future"}),
        (["method.arm=dt"], {"attention", "band"}),
        (["method.arm=ad"], {"attention"}),
        (["method.arm=dpt"], {"attention"}),
    ],
)
def test_what_trials_must_not_change_is_what_the_arm_reads(words, bound):
    found = fitted_with(compose(["experiment=radt_smoke", *words]))
    assert {name.rpartition(".")[2] for name in found} == bound | {"arm"}


@pytest.mark.usefixtures("small")
def test_how_often_is_looked_may_differ(folder):
    often = run(folder, "often", *TRIALS, "method.retrieve.every=8", "method.trials.trials=2", "method.trials.seeds=1")
    assert (arrays(often)["retrieved.queries"][:, :, 1] == 2).all()  # of 16 steps; 4 of the fit's own


def test_weights_of_whom_nothing_is_told_are_refused(small, folder):
    path = folder / "told-nothing"
    shutil.copytree(small, path)
    place = path / "stages/fit/manifest.json"
    told = json.loads(place.read_text())
    place.write_text(json.dumps(told | {"inputs": {"arm": "radt"}}))
    with pytest.raises(RunError, match=r"does not say with which method\.arm it was fitted: fit it again"):
        run(folder, "trusting", "stages=[trials]", "from=run:told-nothing/fit")


@pytest.mark.usefixtures("small")
def test_an_encoder_of_another_fit_is_refused(folder):
    with pytest.raises(RunError, match="fitted with another encoder than the one found here: take both from one run"):
        run(folder, "mixed", "stages=[encoder,trials]", "from=run:small/fit", "seed=5")


def test_without_what_the_world_needs_nothing_is_tried_again(small, monkeypatch):
    monkeypatch.setattr(registry, "missing", lambda env_id, **options: f"{env_id} needs an extra: install it")
    with pytest.raises(RunError, match="dark/Room-4x4 needs an extra: install it"):
        controller.evaluate(small, [])


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["method.sequence.width=32"],
            r"do not fit this transformer of histories.*: \S+ differ|use the method\.sequence and env",
        ),
        (
            ["method.retrieve.future=40"],
            r"was fitted with method\.retrieve\.future=10, not 40: set method\.retrieve\.future=10",
        ),
        (["method.retrieve.encoder=random"], r"with method\.retrieve\.encoder=fitted, not random"),
        (["method.sequence.attention=window"], r"with method\.sequence\.attention=band, not window"),
        (["method.sequence.band=9"], r"with method\.sequence\.band=10, not 9"),
        (["env.id=dark/Room-3x3", "method.trials.memory=others"], r"weights do not fit|needs the memory of another"),
    ],
)
def test_what_cannot_be_played_is_refused_in_one_sentence(folder, words, told):
    with pytest.raises((RunError, ConfigError), match=told):
        controller.run(config(folder, f"refused-{len(list(folder.iterdir()))}", *TRIALS, *words))
