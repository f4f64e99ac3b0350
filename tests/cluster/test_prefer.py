"""The stage that fits a model of preferences: from a folder of labels to a potential that pays a run."""

import json
import shutil
from typing import Any, Literal

import numpy as np
import pytest

import envs
from cluster import run as controller
from cluster.config import overrides
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from cluster.roles.backend import RoleDied
from cluster.runs.folder import RunError
from cluster.topology import draw
from learner import methods
from learner.knowledge.fitted_preference import FittedPreference
from learner.knowledge.preference_fit import PreferenceFitter
from learner.knowledge.preferences import FILE
from learner.knowledge.segments import Segments
from learner.store.episodes import StoreError
from learner.windows import Trail

K = 3
METHOD = """
from typing import Any, Literal

from envs.config import Part
from learner.knowledge.prefer_config import PreferConfig
from learner.methods import Stage


class Config(Part):
    name: Literal["liking"] = "liking"
    prefer: PreferConfig = PreferConfig()


def stages(config: Any) -> list[Stage]:
    return [Stage("prefer", "prefer", "random")]


def check(config: Any, spec: Any) -> None:
    pass
"""
WORDS = ["method=liking", "env=toy/Line", "cluster=inline", "method.prefer.steps=60", "method.prefer.width=16"]


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """A method of this stage alone, and a run that has labels: the further to the right, the better."""
    shutil.copytree(overrides.CONFIGS, tmp_path / "configs")
    (tmp_path / "configs/method/liking.yaml").write_text("# @package _global_\nmethod:\n  name: liking\n")
    monkeypatch.setattr(overrides, "CONFIGS", tmp_path / "configs")
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods/liking.py").write_text(METHOD)
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path / "methods")])
    labels = tmp_path / "told/stages/label"
    labels.mkdir(parents=True)
    found = lived()
    found.save(labels)
    tell(labels, found, 1000)
    (labels / "manifest.json").write_text("{}")
    return labels


def lived():
    """What chance did in the line of the toy."""
    world, random = envs.make("toy/Line", 8, 1), np.random.default_rng(0)
    trail = Trail(["position"], K)
    trail.begin(world.begin())
    for _ in range(20):
        actions = random.integers(3, size=8)
        trail.add(actions, world.advance(actions))
    windows, _ = trail.chunk()
    n, position = len(windows), windows.obs("position")
    zeros = np.zeros(n, np.int64)
    to_come = position[:, -1].astype(np.float32)
    return Segments({"position": position}, windows.actions, zeros, zeros, zeros, to_come, [["somewhere"]] * n)


def tell(folder, found, pairs, decided=True):
    """Write down what is preferred; a model that abstained has left a line as well."""
    first, second = np.random.default_rng(1).integers(len(found), size=(2, pairs))
    better = found.to_come[first] - found.to_come[second] if decided else np.zeros(pairs)
    none = {"first": 0, "second": 1, "label": "abstain", "probability": None, "consistent": True}
    lines: list[dict[str, Any]] = [none]
    for a, b, sign in zip(first.tolist(), second.tolist(), np.sign(better).tolist(), strict=True):
        label: Literal["first", "second", "tie"] = {1: "first", -1: "second", 0: "tie"}[int(sign)]
        lines.append({"first": a, "second": b, "label": label, "probability": 0.5 + sign / 2, "consistent": True})
    (folder / FILE).write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def config(beside, name, *words):
    folder = beside.parents[2]
    return compose([*WORDS, "from=run:told/label", *words, f"run.folder={folder}", f"run.name={name}"])


def fit(beside, name, *words):
    made = config(beside, name, *words)
    assert controller.run(made) == 0
    return beside.parents[2] / name / "stages/prefer"


def left(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}


def test_a_run_fits_another_s_labels_and_says_what_it_knows(beside):
    place = fit(beside, "a")
    assert {path.name for path in place.iterdir()} == {
        "preference.safetensors", "preference.json", "calibration.json", "manifest.json"
    }  # fmt: skip
    about = json.loads((place / "preference.json").read_text())
    assert (about["shape"]["window"], about["shape"]["actions"]) == (K, 3)
    assert set(about["labels"]) == {"segments.safetensors", FILE}
    found = json.loads((place / "calibration.json").read_text())
    assert found["pairs"] == 1000  # an abstention is none
    assert found["accuracy"] > 0.95
    assert found["agreement"] > 0.8
    assert sum(row["pairs"] for row in found["calibration"]) == found["measured_on"]
    assert [row["steps"] for row in found["curve"]] == [50, 10]
    manifest = json.loads((place / "manifest.json").read_text())
    assert manifest["inputs"].items() >= about["labels"].items()
    assert manifest["counts"]["accuracy"] == found["accuracy"]
    seen = Segments.load(beside)
    phi = FittedPreference.load(place).phi(seen.windows())
    mean = [phi[seen.obs["position"][:, -1] == p].mean() for p in range(3)]
    assert mean == sorted(mean)


def test_twice_is_the_same_to_the_bit_and_labels_dealt_anew_are_not(beside):
    first = fit(beside, "a")
    assert left(first) == left(fit(beside, "b"))
    permuted = json.loads((fit(beside, "c", "method.prefer.permute=true") / "calibration.json").read_text())
    assert permuted["accuracy"] < 0.75
    assert left(fit(beside, "d", "seed=1"))["preference.safetensors"] != left(first)["preference.safetensors"]


def test_a_stopped_stage_begins_anew_with_the_same_result(beside, monkeypatch):
    whole, real = left(fit(beside, "a")), PreferenceFitter.fit
    folder = beside.parents[2] / "b"

    def stopping(self, steps):
        (folder / "STOP").touch()
        return real(self, steps)

    monkeypatch.setattr(PreferenceFitter, "fit", stopping)
    assert controller.run(config(beside, "b")) == 3
    assert not (folder / "stages/prefer/manifest.json").exists()
    (folder / "stages/prefer").mkdir(parents=True)
    (folder / "stages/prefer/preference.json").write_text("of a stage that was killed")
    monkeypatch.setattr(PreferenceFitter, "fit", real)
    assert controller.resume(folder, [], False) == 0
    assert left(folder / "stages/prefer") == whole


def test_a_role_that_dies_is_started_again_as_often_as_the_run_allows(beside, monkeypatch):
    whole, real, deaths = left(fit(beside, "a")), PreferenceFitter.fit, []

    def dying(self, steps):
        if self._fits[0].step >= 50 and len(deaths) < allowed:
            deaths.append(steps)
            raise RuntimeError("struck by lightning")
        return real(self, steps)

    monkeypatch.setattr(PreferenceFitter, "fit", dying)
    allowed = 2
    hurt = fit(beside, "b", "actors.restarts=2")
    assert left(hurt) == whole
    assert len(deaths) == 2
    assert "preference died, fitting starts over: RuntimeError: struck" in (hurt.parents[1] / "run.log").read_text()
    allowed = 10
    with pytest.raises(RoleDied, match="struck by lightning"):
        fit(beside, "c", "actors.restarts=2")
    assert len(deaths) == 5


@pytest.mark.slow
def test_a_process_of_its_own_comes_to_the_same(beside):
    whole = left(fit(beside, "a"))
    assert left(fit(beside, "b", "cluster=local")) == whole


def test_labels_that_are_too_few_or_of_another_world_are_one_sentence(beside):
    found = Segments.load(beside)
    with pytest.raises(RunError, match="stage label is missing: add it to stages, or set from=run:NAME/label"):
        fit(beside, "a", "from=")
    with pytest.raises(StoreError, match=r"hold position \[\], which this world does not show"):
        fit(beside, "b", "env=babyai/GoToLocal")
    tell(beside, found, 300, decided=False)
    with pytest.raises(RunError, match=r"holds 0 pairs with a preference, .* 20 at least: label more pairs"):
        fit(beside, "c")
    tell(beside, found, 300)
    text = (beside / FILE).read_text().replace('"first": 0, "second": 1', '"first": 900, "second": 1', 1)
    (beside / FILE).write_text(text.replace('"probability": null', '"probability": 1.0', 1))
    with pytest.raises(RunError, match="preferences between segments that are missing: run its stage again"):
        fit(beside, "d")
    assert all(not (beside.parents[2] / name / "stages/prefer/manifest.json").exists() for name in "abcd")


def test_it_is_drawn(beside):
    assert "60 gradient steps, twice, each on 64 pairs" in draw(config(beside, "a"))


def test_what_it_leaves_pays_a_run(beside):
    place = fit(beside, "a")
    task = ["env=toy/Line", "cluster=inline", "sync=true", "actors.envs=4", "actors.steps=16", "learner.env_steps=512"]
    task += ["policy.hidden=8", "learner.minibatch=16", "evaluate.every=0", "evaluate.episodes=4", "evaluate.videos=0"]
    task += ["method.shaping.potential=preference", f"method.shaping.preference={place}"]
    folder = beside.parents[2]
    with pytest.raises(ConfigError, match=r"set method\.shaping\.window=3"):
        compose(task)
    task.append("method.shaping.window=3")
    for name in "bc":
        assert controller.run(compose([*task, f"run.folder={folder}", f"run.name={name}"])) == 0
    rows = [json.loads(line) for line in (folder / "b/metrics.jsonl").read_text().splitlines()]
    assert any(row.get("rewards/shaping") for row in rows)
    assert sum(row.get("shaping/windows", 0) for row in rows) >= 512
    weights = [(folder / name / "stages/train/weights.safetensors").read_bytes() for name in "bc"]
    assert weights[0] == weights[1]
    (place / "preference.json").rename(folder / "gone.json")
    with pytest.raises(ConfigError, match=r"holds no preference\.json: name the folder of a stage prefer"):
        controller.resume(folder / "b", ["learner.env_steps=1024"], True)
    assert controller.evaluate(folder / "b", []) == 0  # who is judged is paid nothing
