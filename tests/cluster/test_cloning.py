"""Cloning as a whole: episodes of the planner, a policy fitted to them, evaluated; stopped, resumed, hurt."""

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import envs
from actors.collect import collect_seeds
from cluster import run as controller
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from cluster.runs.supply import assert_supplied, initial_weights
from cluster.stages._shared import fitting
from cluster.stages.collect import Engine as Collecting
from learner import checkpoint
from learner.fit import Fitter
from learner.store.episodes import EpisodeStore, StoreError, digest, shards
from llm_service.errors import UsageError
from tests.cluster.test_faults import children_of, launch, wait_for

TOY = ["method=cloning", "env=toy", "method.collect.player=random", "method.collect.episodes=200", "policy.hidden=16"]
TOY += [
    "method.fit.steps=240",
    "method.fit.every=40",
    "method.fit.batch=32",
    "method.fit.learning_rate=1e-2",
    "evaluate.episodes=32",
]
TOY += ["evaluate.videos=0"]


def config(folder, name, *words):
    return compose(["cluster=inline", "actors.envs=2", *words, f"run.folder={folder}", f"run.name={name}"])


def run(folder, name, *words):
    assert controller.run(config(folder, name, *words)) == 0
    return folder / name


def weights(path):
    return (path / "stages/fit/weights.safetensors").read_bytes()


def rows(path):
    found = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "wall_seconds"} for row in found]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A whole run: chance plays, what it solved is learned."""
    return run(tmp_path_factory.mktemp("runs"), "toy", *TOY)


def test_what_chance_solved_is_learned(toy):
    results = json.loads((toy / "stages/evaluate/results.json").read_text())
    assert results["success"]["rate"] == 1.0
    store = EpisodeStore(toy / "stages/collect")
    assert 50 < len(store) < 150  # of 200 played
    assert store.success.all()
    assert store.about["player"] == "random"
    assert set(store.seed) <= set(collect_seeds(0, 200).tolist())
    found = rows(toy)
    assert [row["version"] for row in found] == [40, 80, 120, 160, 200, 240]
    assert {row["kind"] for row in found} == {"fit"}
    assert found[-1]["fit/loss"] < found[0]["fit/loss"]
    manifest = json.loads((toy / "stages/fit/manifest.json").read_text())
    assert manifest["inputs"]["store"] == digest(toy / "stages/collect")
    assert json.loads((toy / "stages/collect/manifest.json").read_text())["counts"]["played"] == 200
    assert (toy / "report.html").exists()


def test_seeds_are_of_training_and_of_one_run_only():
    one, two = collect_seeds(0, 3000), collect_seeds(1, 3000)
    assert 0 <= min(one) <= max(one) < envs.HELD_OUT_FIRST
    assert not set(one) & set(two)
    np.testing.assert_array_equal(collect_seeds(0, 10), one[:10])
    assert not set(one) & {envs.episode_seed(0, i, k) for i in range(30) for k in range(30)}


def test_what_is_kept_is_what_was_seen_done_and_paid(tmp_path):
    """Played again step by step by the recorded actions, the world shows and pays what the store holds."""
    words = ["method=cloning", "env=babyai/GoToRedBall", "env.captions=true", "policy.network=texts"]
    path = run(
        tmp_path, "a", *words, "method.collect.episodes=30", "method.collect.successes=false", "stages=[collect]"
    )
    store = EpisodeStore(path / "stages/collect")
    np.testing.assert_array_equal(store.seed, collect_seeds(0, 30))
    assert store.success.mean() > 0.9
    everything = store.rows(np.arange(store.steps))
    env = envs.make("babyai/GoToRedBall", 1, captions=True, levels="native")
    assert set(everything.obs) == set(env.env_spec.fields)
    for e in range(len(store)):
        obs = env.begin(store.seed[e : e + 1])
        for s in range(store.first[e], store.first[e + 1]):
            for name, column in everything.obs.items():
                text = env.env_spec.fields[name].kind == "text"
                shown = env.texts.hashes(obs[name]) if text else obs[name]
                np.testing.assert_array_equal(column[s], shown[0], err_msg=name)
                assert not text or store.texts(column[s : s + 1]) == env.texts.texts(obs[name])
            t = env.advance(everything.action[s : s + 1])
            assert t.reward[0] == everything.reward[s]
            obs = t.obs
        assert len(t.final_index) == 1  # ended here, and not before
        assert (t.episodes.total[0], t.episodes.success[0]) == (store.total[e], store.success[e])


@pytest.mark.parametrize("player", ["random", "policy"])
def test_who_plays_which_share_does_not_show(tmp_path, toy, player):
    words = [*TOY, "stages=[collect]", f"method.collect.player={player}", "method.collect.successes=false"]
    words += [f"from={toy}/stages/fit"] if player == "policy" else []
    found = {digest(run(tmp_path, f"n{n}", *words, f"actors.n={n}") / "stages/collect") for n in (1, 3)}
    assert len(found) == 1
    store = EpisodeStore(tmp_path / "n1/stages/collect")
    np.testing.assert_array_equal(store.seed, collect_seeds(0, 200))
    assert (store.success.mean() > 0.7) == (player == "policy")  # its own probabilities: it is not certain


def test_another_run_s_store_feeds_a_fit_and_a_fit_another_run(tmp_path, toy):
    again = run(tmp_path, "again", *TOY, "stages=[fit,evaluate]", f"from={toy}/stages/collect")
    assert weights(again) == weights(toy)
    words = ["env=toy", "policy.hidden=16", "stages=[evaluate]", "evaluate.episodes=16", "evaluate.videos=0"]
    clone = run(tmp_path, "clone", "method=ppo", *words, f"from={toy}/stages/fit")
    assert json.loads((clone / "stages/evaluate/results.json").read_text())["success"]["rate"] == 1.0
    further = run(tmp_path, "further", *TOY, "stages=[collect,fit]", "method.fit.steps=1", f"from={toy}/stages/fit")
    began = json.loads((further / "stages/fit/manifest.json").read_text())["inputs"]
    assert "weights" in began
    assert rows(further)[0]["fit/loss"] < rows(toy)[0]["fit/loss"]


def stop_when(path: Path, condition) -> None:
    """Ask the run in `path` to stop once `condition()` holds, by the STOP file."""

    def watch():
        for _ in range(12000):
            if condition():
                return (path / "STOP").touch()
            time.sleep(0.005)

    threading.Thread(target=watch, daemon=True).start()


@pytest.fixture
def slowly(monkeypatch):
    """Short calls, with time between them for the watcher."""
    monkeypatch.setattr(fitting, "CALL_S", 0.01)
    show, played = fitting.Fitting._show, Collecting.counts.fget

    def pause(real):
        def slow(self):
            time.sleep(0.02)
            return real(self)

        return slow

    monkeypatch.setattr(fitting.Fitting, "_show", pause(show))
    monkeypatch.setattr(Collecting, "counts", property(pause(played)))


def test_stopped_twice_and_resumed_is_bitwise_the_run_without_a_stop(tmp_path, toy, slowly):
    path = tmp_path / "parts"
    stop_when(path, lambda: (path / "stages/collect/000001-a0001.json").exists())
    assert controller.run(config(tmp_path, "parts", *TOY)) == 3
    there = shards(path / "stages/collect")
    assert 2 <= len(there) < 4
    written = {f"{name}-a0001": (path / f"stages/collect/{name}-a0001.arrow").stat().st_mtime_ns for name in there}
    (path / "stages/collect/.000003-a0001.arrow.99").write_bytes(b"of a writer that was killed")
    stop_when(path, lambda: (path / "metrics.jsonl").exists() and len(rows(path)) >= 2)
    assert controller.resume(path, [], False) == 3
    assert written.items() <= {p.stem: p.stat().st_mtime_ns for p in (path / "stages/collect").glob("*.arrow")}.items()
    assert digest(path / "stages/collect") == digest(toy / "stages/collect")
    assert not (path / "stages/collect/.000003-a0001.arrow.99").exists()
    stopped = checkpoint.latest(path / "checkpoints").record["counters"]["version"]
    assert 80 <= stopped < 240
    assert controller.resume(path, [], False) == 0
    assert weights(path) == weights(toy)
    assert rows(path) == rows(toy)
    assert json.loads((path / "stages/evaluate/results.json").read_text())["success"]["rate"] == 1.0


def test_a_fitter_that_dies_goes_on_from_the_last_checkpoint(tmp_path, toy, monkeypatch):
    real, deaths = Fitter.fit, []

    def fit(self, steps):
        if self.step >= 100 and not deaths:
            deaths.append(self.step)
            raise RuntimeError("struck by lightning")
        return real(self, steps)

    monkeypatch.setattr(Fitter, "fit", fit)
    path = run(tmp_path, "hurt", *TOY, "run.checkpoint_every_s=0.01")
    assert deaths
    assert "fitter died, restarting from the last checkpoint: RuntimeError: struck" in (path / "run.log").read_text()
    assert weights(path) == weights(toy)
    assert rows(path) == rows(toy)


WRONG = {
    "env=crafter": "impossible combination: method.collect.player=expert needs a world with a planner",
    "policy.memory=gru": "impossible combination: method cloning needs policy.memory=none, got gru",
    "policy.head=dueling": "impossible combination: method cloning needs policy.head=actor_critic, got dueling",
    "method.collect.player=exprt": "method.collect.player: there is no 'exprt': did you mean expert?",
    "method.collect.episodes=0": "method.collect.episodes: must be at least 1, got 0",
    "method.fit.validation=0.9": "method.fit.validation: must be between 0 and 0.5, got 0.9",
    "method.fit.batch=0": "method.fit.batch: must be at least 1, got 0",
    "method.fit.learning_rate=0": "method.fit.learning_rate: must be greater than 0, got 0.0",
}


@pytest.mark.parametrize("word", WRONG)
def test_what_is_wrong_is_one_sentence(word):
    with pytest.raises(ConfigError) as raised:
        compose(["method=cloning", "env=babyai", word])
    assert str(raised.value).startswith(WRONG[word])


def test_without_a_planner_another_s_store_will_do():
    assert compose(["method=cloning", "env=toy", "stages=[fit,evaluate]"]).method.name == "cloning"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["stages=[fit]"], "stage fit needs episodes: run the collect stage too, or set from=run:NAME/collect"),
        (["stages=[evaluate]"], "stage evaluate needs weights: run the fit stage too, or set from=run:NAME/fit"),
        (["method.collect.player=policy"], "stage collect needs weights: set from=run:NAME/train"),
        (["from={store}"], r"is a store of episodes: leave out the collect stage with stages=\[fit,evaluate\]"),
        (["method=ppo", "from={store}"], "is a store of episodes, but no stage of this run learns from one"),
        (["from={empty}"], "holds no weights.safetensors"),
        (["stages=[fit]", "from={damaged}"], "is damaged"),
        (["stages=[fit]", "from={store}", "env=babyai"], "does not hold 'image' as the policy reads it"),
    ],
)
def test_what_is_missing_is_one_sentence_and_nothing_is_written(tmp_path, toy, words, sentence):
    store, damaged = toy / "stages/collect", tmp_path / "damaged"
    shutil.copytree(store, damaged)
    (damaged / "000000-a0001.arrow").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    words = [word.format(store=store, damaged=damaged, empty=tmp_path / "empty") for word in words]
    cloning = [] if "method=ppo" in words else TOY
    with pytest.raises(UsageError, match=sentence):
        controller.run(config(tmp_path, "a", *cloning, *words))
    assert not (tmp_path / "a").exists()


def test_an_unfinished_store_is_not_taken(tmp_path, toy):
    shutil.copytree(toy, tmp_path / "other")
    (tmp_path / "other/stages/collect/manifest.json").unlink()
    made = config(tmp_path, "a", *TOY, "stages=[fit]", "from=run:other/collect")
    with pytest.raises(UsageError, match="run:other/collect is not finished: resume that run first"):
        assert_supplied(made, initial_weights(made))


def test_a_store_of_other_episodes_is_not_added_to(tmp_path, toy):
    shutil.copytree(toy, tmp_path / "a")
    (tmp_path / "a/stages/collect/manifest.json").unlink()
    (tmp_path / "a/stages/collect/000002-a0001.json").unlink()
    with pytest.raises(StoreError, match="holds other episodes than those that shall be added"):
        controller.resume(tmp_path / "a", ["method.collect.successes=false"], True)


def test_nothing_solved_is_told(tmp_path):
    words = ["method=cloning", "env=babyai/BossLevel", "method.collect.player=random", "method.collect.episodes=2"]
    with pytest.raises(UsageError, match=r"none of 2 episodes was solved: set method\.collect\.successes=false"):
        controller.run(config(tmp_path, "a", *words))


def of_role(process, name):
    pids = children_of(process.pid)
    return [p for p in pids if name.encode() in (Path(f"/proc/{p}/cmdline").read_bytes() if _there(p) else b"")]


def _there(pid):
    return Path(f"/proc/{pid}/cmdline").exists()


@pytest.mark.slow
def test_actors_and_fitters_that_are_killed_cost_nothing_but_time(tmp_path):
    """On Ray, two of each: an actor dies while it plays, a fitter while it fits; all is as without."""
    words = [
        "method=cloning",
        "env=babyai/GoToLocal",
        "method.collect.episodes=640",
        "policy.hidden=16",
        "method.fit.steps=1500",
    ]
    words += [
        "method.fit.batch=64",
        "method.fit.every=100",
        "stages=[collect,fit]",
        "run.checkpoint_every_s=0.2",
        "learner.n=2",
    ]
    words += [f"run.folder={tmp_path}"]
    path = tmp_path / "hurt"
    process = launch("run", *words, "run.name=hurt")
    wait_for(lambda: len(shards(path / "stages/collect")) >= 3, "the first shards")
    before = len(shards(path / "stages/collect"))
    os.kill(of_role(process, "ray::Collector")[0], signal.SIGKILL)
    assert before < 10
    wait_for(lambda: list((path / "checkpoints").glob("v*")), "the first checkpoint of the fit", 300)
    os.kill(of_role(process, "ray::Fitter")[0], signal.SIGKILL)
    assert process.wait(300) == 0
    log = (path / "run.log").read_text()
    assert "failed:" in log
    assert "fitter died, restarting from the last checkpoint" in log
    store = EpisodeStore(path / "stages/collect")
    assert sorted(shards(path / "stages/collect")) == [f"{i:06d}" for i in range(10)]
    assert sum(entry["played"] for entry in shards(path / "stages/collect").values()) == 640
    assert set(store.seed) <= set(collect_seeds(0, 640).tolist())
    assert launch("run", *words, "run.name=well").wait(300) == 0
    assert digest(tmp_path / "well/stages/collect") == digest(path / "stages/collect")
    assert weights(tmp_path / "well") == weights(path)
    assert rows(tmp_path / "well") == rows(path)
