"""The store of a training holds every episode that was learned from, once, whatever dies; and no other."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import envs
from cluster import run as controller
from cluster.config.tree import compose
from cluster.roles.learners import LearnerDied
from cluster.runs.folder import RunError
from cluster.stages._shared import teed
from cluster.stages.train import Engine
from learner import checkpoint
from learner.store.episodes import EpisodeStore, StoreError, digest, shards
from tests.cluster.test_faults import ROOT, children_of, launch, rows, status, wait_for

WORDS = [
    "env=babyai/GoToLocal",
    "env.captions=true",
    "env.max_steps=9",
    "policy.reads=[image,mission]",
    "policy.hidden=8",
    "actors.envs=4",
    "actors.steps=8",
    "learner.minibatch=32",
    "learner.anneal=false",  # so that a longer run begins as a shorter one does
    "evaluate.every=0",
    "stages=[train]",
    "method.tee=true",
]
SYNC = [*WORDS, "cluster=inline", "sync=true", "learner.env_steps=768"]


def config(folder, name, *words):
    return compose([*SYNC, f"run.folder={folder}", f"run.name={name}", *words])


def store_of(path):
    return path / "stages/train/episodes"


def assert_whole(path):
    """Every episode that the books count, once; its steps are those of the chunks that count."""
    store, found = EpisodeStore(store_of(path)), checkpoint.latest(path / "checkpoints")
    counters, actors = found.record["counters"], found.arrays["actors"]
    assert len(store) == counters["episodes"] > 0
    assert len({(e, k) for e, k in zip(store.env.tolist(), store.episode.tolist(), strict=True)}) == len(store)
    for env in np.unique(store.env):  # none is missing
        np.testing.assert_array_equal(store.episode[store.env == env], np.arange((store.env == env).sum()))
    kept = shards(store_of(path))
    played = {int(name.partition("/")[0]): int(n) for name, n in actors.items() if name.endswith("/sequence")}
    assert list(kept) == [f"{actor:05d}-{k:08d}" for actor in sorted(played) for k in range(played[actor])]
    assert len(kept) == counters["chunks"]
    manifest = json.loads((path / "stages/train/manifest.json").read_text())
    assert manifest["inputs"]["episodes"] == digest(store_of(path))
    assert manifest["counts"]["teed_episodes"] == len(store)
    assert manifest["counts"]["teed_steps"] == sum(entry["steps"] for entry in kept.values())
    return store


def assert_same(one, two):
    for name in ("env", "episode", "seed", "length", "total", "success", "kind", "source", "task"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
    every = np.arange(one.steps)
    found, expected = one.rows(every), two.rows(every)
    np.testing.assert_array_equal(found.action, expected.action)
    np.testing.assert_array_equal(found.reward, expected.reward)
    for name, field in one.layout.fields.items():
        np.testing.assert_array_equal(found.obs[name], expected.obs[name], err_msg=name)
        if field.kind == "text":
            named = np.unique(found.obs[name])
            assert one.texts(named) == two.texts(named)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing happens to."""
    folder = tmp_path_factory.mktemp("whole")
    assert controller.run(config(folder, "whole")) == 0
    return folder / "whole"


def after(monkeypatch, update, does):
    """Do something once when so many updates are over."""
    real, done = Engine._learned, []

    def learned(engine, *args):
        real(engine, *args)
        if engine.account.counters.version == update and not done:
            done.append(update)
            does()

    monkeypatch.setattr(Engine, "_learned", learned)


def test_it_holds_what_was_learned_with_texts_that_the_policy_does_not_read(whole):
    store = assert_whole(whole)
    assert "caption" in store.layout.fields
    first = store.texts(store.rows(store.first[:-1]).obs["caption"])
    assert any("You see" in text for text in first)
    assert (np.diff(store.source[store.env == 0]) > 0).all()
    assert store.source.max() <= 768
    assert store.unfinished == 8  # one of each env is running
    assert {key: store.about[key] for key in ("env", "method", "seed")} == {
        "env": "babyai/GoToLocal",
        "method": "ppo",
        "seed": 0,
    }


def test_what_no_player_could_know_is_not_kept(tmp_path):
    """Whoever learns of a store, policies and models of preferences, would know it."""
    words = ["env.distance=true", "method.shaping.potential=oracle", "learner.env_steps=64"]
    assert controller.run(config(tmp_path, "knowing", *words)) == 0
    assert set(EpisodeStore(store_of(tmp_path / "knowing")).layout.fields) == {
        "image", "direction", "mission", "caption",
    }  # fmt: skip


def test_a_stopped_and_resumed_run_has_the_store_of_one_without_a_stop(whole, tmp_path, monkeypatch):
    after(monkeypatch, 5, lambda: (tmp_path / "parts" / "STOP").touch())
    assert controller.run(config(tmp_path, "parts")) == 3
    assert controller.resume(tmp_path / "parts", [], False) == 0
    assert_same(assert_whole(tmp_path / "parts"), EpisodeStore(store_of(whole)))
    assert digest(store_of(tmp_path / "parts")) == digest(store_of(whole))


def test_a_learner_that_goes_back_to_its_checkpoint_has_its_chunks_written_again(whole, tmp_path, monkeypatch):
    def die():
        raise LearnerDied("as the test has it")

    after(monkeypatch, 5, die)
    assert controller.run(config(tmp_path, "back", "run.checkpoint_every_s=1000")) == 0
    assert (tmp_path / "back" / "run.log").read_text().count("learner died") == 1
    assert_same(assert_whole(tmp_path / "back"), EpisodeStore(store_of(whole)))


def test_an_attempt_that_ended_without_saving_leaves_nothing(whole, tmp_path, monkeypatch):
    """Six updates, and the only checkpoint is of the first."""

    def die():
        raise KeyboardInterrupt

    after(monkeypatch, 6, die)
    with pytest.raises(KeyboardInterrupt):
        controller.run(config(tmp_path, "lost", "run.checkpoint_every_s=1000"))
    assert len(shards(store_of(tmp_path / "lost"))) >= 12
    assert controller.resume(tmp_path / "lost", [], False) == 0
    assert_same(assert_whole(tmp_path / "lost"), EpisodeStore(store_of(whole)))


def test_chunks_that_were_played_and_never_learned_from_do_not_count(tmp_path, monkeypatch):
    """Two actors, of which one chunk is learned at a time: others wait when training is over."""
    played, end = [], teed.end

    def seen(folder, stage, states):
        played.append(list(shards(store_of(tmp_path / "ahead"))))
        return end(folder, stage, states)

    monkeypatch.setattr(teed, "end", seen)
    words = ["cluster=inline", "learner.chunks=1", "learner.env_steps=320", f"run.folder={tmp_path}", "run.name=ahead"]
    assert controller.run(compose([*WORDS, *words])) == 0
    assert_whole(tmp_path / "ahead")
    assert len(played[0]) > len(shards(store_of(tmp_path / "ahead")))


def test_a_finished_training_that_goes_on_adds_to_its_store(whole, tmp_path):
    assert controller.run(config(tmp_path, "longer", "learner.env_steps=384")) == 0
    short = digest(store_of(tmp_path / "longer"))
    assert_whole(tmp_path / "longer")
    assert controller.resume(tmp_path / "longer", ["learner.env_steps=768"], True) == 0
    assert_same(assert_whole(tmp_path / "longer"), EpisodeStore(store_of(whole)))
    assert digest(store_of(tmp_path / "longer")) != short


def test_another_world_does_not_go_on_with_a_store(tmp_path):
    assert controller.run(config(tmp_path, "other", "learner.env_steps=64")) == 0
    with pytest.raises(StoreError, match="holds other fields than babyai/GoToLocal now shows"):
        controller.resume(tmp_path / "other", ["env.captions=false", "learner.env_steps=128"], True)
    with pytest.raises(StoreError, match=r"holds episodes of babyai/GoToLocal: restore env\.id, or start a new run"):
        controller.resume(tmp_path / "other", ["env.id=babyai/GoToObj", "learner.env_steps=128"], True)


def test_what_no_player_could_know_is_not_kept_and_hinders_nothing(whole, tmp_path):
    words = ["env.distance=true", "learner.env_steps=64"]
    assert controller.run(config(tmp_path, "distance", *words)) == 0
    assert controller.resume(tmp_path / "distance", ["learner.env_steps=128"], True) == 0
    kept, plain = (EpisodeStore(store_of(path)).layout.fields for path in (tmp_path / "distance", whole))
    assert kept == plain


def test_a_policy_is_fitted_to_the_episodes_of_a_finished_training(whole, tmp_path):
    words = ["method=cloning", "method.fit.steps=4", "method.fit.every=4", "stages=[fit]"]
    words = [word for word in SYNC if not word.startswith(("method.tee", "stages"))] + words
    words += [f"run.folder={whole.parent}", "run.name=fitted", "from=run:whole/train/episodes"]
    assert controller.run(compose(words)) == 0
    manifest = whole / "stages/train/manifest.json"
    kept = manifest.read_bytes()
    manifest.unlink()
    try:
        with pytest.raises(RunError, match="is not finished: resume that run first"):
            controller.run(compose([*words, "run.name=early"]))
    finally:
        manifest.write_bytes(kept)


@pytest.mark.slow
def test_actor_learner_and_controller_are_killed_and_every_episode_is_there_once(tmp_path):
    """On Ray, asynchronous, with chunks asked ahead."""
    words = [*WORDS, "actors.n=3", "actors.ahead=1", "run.checkpoint_every_s=1", "cluster.dashboard=false"]
    words += ["learner.env_steps=1000000000", f"run.folder={tmp_path}", "run.name=a"]
    path = tmp_path / "a"
    process = launch("run", *words, printed=tmp_path / "printed")
    beats = wait_for(lambda: status(path).get("heartbeats", {}).get("actor-1") and status(path)["heartbeats"], "beats")
    wait_for(lambda: status(path).get("version", 0) > 5, "updates")
    os.kill(beats["actor-1"]["pid"], signal.SIGKILL)
    wait_for(lambda: status(path).get("restarts") == 1 and status(path).get("actors_alive") == 3, "the restart")
    at = status(path)["version"]
    wait_for(lambda: status(path)["version"] > at + 5, "learning to go on")
    learner = [p for p in children_of(process.pid) if b"ray::Learner" in Path(f"/proc/{p}/cmdline").read_bytes()]
    os.kill(learner[0], signal.SIGKILL)
    wait_for(lambda: status(path).get("learner_restarts") == 1, "the learner's restart")
    at = status(path)["version"]
    wait_for(lambda: status(path)["version"] > at + 5, "learning to go on")
    process.kill()
    process.wait()
    saved = checkpoint.latest(path / "checkpoints").record["counters"]
    end = f"learner.env_steps={saved['env_steps'] + 3000}"
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "launch.py"),
            "resume",
            str(path),
            "--allow-change",
            end,
            "cluster.dashboard=false",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    store = assert_whole(path)
    assert store.steps <= 4 * 8 * len(shards(store_of(path)))
    assert [row["version"] for row in rows(path) if row["kind"] == "train"][-1] > saved["version"]


def test_it_says_of_which_task_an_episode_was(tmp_path):
    kept = ["actors.", "learner.", "evaluate.", "stages", "method.tee", "cluster", "sync", "policy.hidden"]
    words = [word for word in SYNC if word.startswith(tuple(kept))] + ["env=dark", "env.id=dark/Room-3x3"]
    where = [f"run.folder={tmp_path}", "run.name=dark", "learner.env_steps=384"]
    assert controller.run(compose([*words, *where])) == 0
    store = EpisodeStore(store_of(tmp_path / "dark"))
    np.testing.assert_array_equal(store.task, envs.spec("dark/Room-3x3").task(store.seed))
    assert len(np.unique(store.task)) > 3
