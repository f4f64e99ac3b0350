"""The loop, in one process without Ray: learning, determinism, resuming, artifacts."""

import dataclasses
import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import envs
from cluster import run as controller
from cluster.config.tree import compose, update
from cluster.runs.supply import assert_resumable
from learner import checkpoint
from llm_service.errors import UsageError

SMALL = ["cluster=inline", "policy.hidden=16", "actors.envs=4", "actors.steps=8", "evaluate.episodes=8"]


def config(folder, name, *words):
    return compose([*SMALL, f"run.folder={folder}", f"run.name={name}", *words])


def rows(path, kind="train"):
    return [r for r in map(json.loads, (path / "metrics.jsonl").read_text().splitlines()) if r["kind"] == kind]


def stop_after(path: Path, updates: int) -> threading.Thread:
    """Ask the run in `path` to stop once it has reported `updates` updates, as a person would: by the STOP file."""

    def watch():
        for _ in range(6000):
            metrics = path / "metrics.jsonl"
            if metrics.exists() and metrics.read_text().count("\n") >= updates:
                return (path / "STOP").touch()
            time.sleep(0.005)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.fixture
def timeless(monkeypatch):
    """Slow the loop a little so that the watcher can stop it in the middle."""
    from cluster.stages.train import Engine as Training

    real = Training._learned

    def learned(self, *args):
        real(self, *args)
        time.sleep(0.03)

    monkeypatch.setattr(Training, "_learned", learned)


@pytest.mark.parametrize(
    "words",
    [
        ["env=toy/Line", "policy.memory=none"],
        ["env=toy/Line", "policy.memory=gru", "learner.ppo.target_kl=0.05"],
        ["env=babyai/GoToLocal", "policy.memory=gru"],
        ["env=babyai/GoToLocal", "env.captions=true", "policy.reads=[mission,caption]"],
        ["env=gym/CartPole-v1", "policy.network=mlp"],
        ["env=crafter/Standard", "env.length=20", "policy.network=resnet", "policy.channels=[2]", "policy.memory=gru"],
    ],
    ids=["toy", "toy-gru-kl", "babyai-gru", "babyai-text", "cartpole", "crafter-resnet-gru"],
)
def test_stop_and_resume_is_bitwise_the_run_without_a_stop(tmp_path, words, timeless):
    words = [*words, "sync=true", "learner.env_steps=768", "learner.minibatch=32", "evaluate.every=256"]
    words += ["evaluate.validation_episodes=4", "stages=[train]"]
    assert controller.run(config(tmp_path, "whole", *words)) == 0
    stop_after(tmp_path / "parts", 5)
    assert controller.run(config(tmp_path, "parts", *words)) == 3
    stopped = checkpoint.latest(tmp_path / "parts" / "checkpoints").record["counters"]["version"]
    assert 0 < stopped < 12
    assert controller.resume(tmp_path / "parts", [], False) == 0
    whole, parts = (checkpoint.latest(tmp_path / n / "checkpoints") for n in ("whole", "parts"))
    for stem in ("model", "optimiser", "actors"):
        assert whole.arrays[stem].keys() == parts.arrays[stem].keys()
        for name, value in whole.arrays[stem].items():
            np.testing.assert_array_equal(value, parts.arrays[stem][name], err_msg=f"{stem} {name}")
    timed = {"wall_seconds", "resumes"}
    assert {k: v for k, v in whole.record["counters"].items() if k not in timed} == {
        k: v for k, v in parts.record["counters"].items() if k not in timed
    }
    keys = ("version", "env_steps", "episodes", "losses/policy", "charts/episodic_return")
    for kind in ("train", "evaluate"):
        one, two = (rows(tmp_path / n, kind) for n in ("whole", "parts"))
        assert [[r.get(k) for k in keys] for r in one] == [[r.get(k) for k in keys] for r in two]
        assert one


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_learns_the_sentence_and_beats_random_play(tmp_path, memory):
    words = ["env=toy/Line", f"policy.memory={memory}", "learner.learning_rate=3e-3", "learner.env_steps=12000"]
    words += ["actors.envs=16", "actors.steps=16", "evaluate.episodes=64", "evaluate.every=0"]
    assert controller.run(config(tmp_path, "ppo", *words)) == 0
    assert controller.run(config(tmp_path, "floor", "env=toy/Line", "method=random", "evaluate.episodes=64")) == 0
    ppo, floor = (json.loads((tmp_path / n / "stages/evaluate/results.json").read_text()) for n in ("ppo", "floor"))
    assert ppo["success"]["low"] > 0.9 > floor["success"]["high"]
    assert ppo["seeds"][0] == envs.HELD_OUT_FIRST
    assert set(ppo["by_kind"]) == {"go left", "go right"}
    for video in ppo["videos"]:
        assert (tmp_path / "ppo" / video["file"]).read_bytes()[:6] == b"GIF89a"
    page = (tmp_path / "ppo" / "report.html").read_text()
    assert "go left" in page
    assert "data:image/gif" in page


def test_expert_and_random_bracket_a_babyai_level(tmp_path):
    rates = {}
    for method in ("expert", "random"):
        words = ["env=babyai/GoToLocal", f"method={method}", "evaluate.episodes=24", "evaluate.videos=0"]
        assert controller.run(config(tmp_path, method, *words)) == 0
        rates[method] = json.loads((tmp_path / method / "stages/evaluate/results.json").read_text())["success"]["rate"]
    assert rates["expert"] == 1.0
    assert rates["random"] < 0.8


def test_stale_chunks_are_corrected_and_too_old_ones_dropped(tmp_path):
    """Chunks of one actor an update, two actors: the other's chunk waits and is stale when its turn comes."""
    words = ["env=toy/Line", "learner.chunks=1", "learner.env_steps=640", "stages=[train]", "evaluate.every=0"]
    assert controller.run(config(tmp_path, "lag", *words)) == 0
    lagging = rows(tmp_path / "lag")
    assert max(r["policy/lag_max"] for r in lagging) >= 1
    assert any(abs(r["policy/rho"] - 1) > 1e-7 for r in lagging if r["policy/lag_max"])
    assert controller.run(config(tmp_path, "strict", *words, "learner.ppo.max_lag=0")) == 0
    strict = rows(tmp_path / "strict")
    assert all(r["policy/lag_max"] == 0 for r in strict)
    assert strict[-1]["dropped_chunks"] > 0
    assert strict[-1]["env_steps"] == 640  # dropped steps do not count as learned


def test_from_feeds_another_runs_weights(tmp_path):
    words = ["env=toy/Line", "learner.learning_rate=3e-3", "learner.env_steps=12000", "evaluate.every=0"]
    words += ["actors.envs=16", "actors.steps=16"]
    assert controller.run(config(tmp_path, "teacher", *words, "stages=[train]")) == 0
    for source in ("run:teacher/train", str(tmp_path / "teacher/stages/train")):
        name = f"pupil{len(source)}"
        assert controller.run(config(tmp_path, name, "env=toy/Line", "stages=[evaluate]", f"from={source}")) == 0
        result = json.loads((tmp_path / name / "stages/evaluate/results.json").read_text())
        assert result["success"]["rate"] == 1.0
    manifest = json.loads((tmp_path / "teacher/stages/train/manifest.json").read_text())
    assert manifest["counts"]["env_steps"] == 12288
    used = json.loads((tmp_path / name / "stages/evaluate/manifest.json").read_text())["inputs"]["weights"]
    assert used == manifest["files"]["weights.safetensors"]


def test_a_policy_of_another_shape_is_refused_before_anything_is_written(tmp_path):
    assert controller.run(config(tmp_path, "a", "env=toy/Line", "learner.env_steps=64", "stages=[train]")) == 0
    with pytest.raises(UsageError, match="do not fit"):
        controller.run(config(tmp_path, "b", "env=babyai/GoToLocal", "stages=[evaluate]", "from=run:a/train"))
    assert not (tmp_path / "b").exists()


def test_a_run_of_older_code_is_refused_with_the_commit_that_can_finish_it(tmp_path):
    """Goals once stood beside the state of the env, and not in it."""
    asked = config(tmp_path, "a", "env=toy/Line", "learner.env_steps=64", "stages=[train]")
    assert controller.run(asked) == 0
    folder = controller.RunFolder(tmp_path / "a")
    manifest = json.loads((folder.path / "manifest.json").read_text())
    found = checkpoint.latest(folder.checkpoints)
    assert_resumable(asked, folder, found)
    more = update(asked, ["learner.env_steps=128"])
    assert_resumable(more, folder, found)
    actors = found.arrays["actors"] | {"0/goals.reached": np.zeros(2)}
    older = dataclasses.replace(found, arrays=found.arrays | {"actors": actors})
    told = f"started by older code, whose actors kept goals.reached .* continue it with commit {manifest['commit']}$"
    assert_resumable(asked, folder, older)  # it has learned all that it should
    with pytest.raises(UsageError, match=told):
        assert_resumable(more, folder, older)


def test_resume_refuses_what_would_make_it_another_experiment(tmp_path, timeless):
    words = ["env=toy/Line", "learner.env_steps=640", "stages=[train]", "evaluate.every=0"]
    stop_after(tmp_path / "a", 3)
    assert controller.run(config(tmp_path, "a", *words)) == 3
    before = (tmp_path / "a" / "config.yaml").read_bytes()
    with pytest.raises(UsageError, match=r"learner\.discount.*--allow-change"):
        controller.resume(tmp_path / "a", ["learner.discount=0.5"], False)
    assert (tmp_path / "a" / "config.yaml").read_bytes() == before
    assert controller.resume(tmp_path / "a", ["learner.discount=0.5"], True) == 0
    assert "discount: 0.5" in (tmp_path / "a" / "config.yaml").read_text()


def test_a_damaged_checkpoint_is_one_sentence_and_an_older_one_is_used(tmp_path, timeless):
    words = ["env=toy/Line", "learner.env_steps=640", "stages=[train]", "run.checkpoint_every_s=0.01"]
    stop_after(tmp_path / "a", 4)
    assert controller.run(config(tmp_path, "a", *words)) == 3
    folders = sorted((tmp_path / "a" / "checkpoints").glob("v*"))
    assert len(folders) > 1
    (folders[-1] / "model.safetensors").write_bytes(b"garbage")
    assert controller.resume(tmp_path / "a", ["run.max_wall_seconds=0.001"], False) == 3
    assert "skipped a damaged checkpoint" in (tmp_path / "a" / "run.log").read_text()
    for folder in (tmp_path / "a" / "checkpoints").glob("v*"):
        (folder / "model.safetensors").write_bytes(b"garbage")
    with pytest.raises(UsageError, match="no good checkpoint"):
        controller.resume(tmp_path / "a", [], False)


def test_a_taken_name_and_an_unwritable_place_are_refused(tmp_path):
    words = ["env=toy/Line", "learner.env_steps=64", "stages=[train]"]
    assert controller.run(config(tmp_path, "a", *words)) == 0
    with pytest.raises(UsageError, match="resume a"):
        controller.run(config(tmp_path, "a", *words))
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write the run folder"):
        controller.run(config(tmp_path / "file", "b", *words))


def test_a_second_controller_of_the_same_run_is_refused(tmp_path):
    assert controller.run(config(tmp_path, "a", "env=toy/Line", "learner.env_steps=64", "stages=[train]")) == 0
    with (
        controller.RunFolder(tmp_path / "a").lock(),
        pytest.raises(UsageError, match="another process"),
    ):
        controller.resume(tmp_path / "a", [], False)


def test_eval_adds_a_stage_and_leaves_the_training_alone(tmp_path):
    words = ["env=toy/Line", "learner.env_steps=640", "evaluate.every=0"]
    assert controller.run(config(tmp_path, "a", *words)) == 0
    before = (tmp_path / "a" / "metrics.jsonl").read_bytes()
    assert controller.evaluate(tmp_path / "a", ["evaluate.episodes=20", "evaluate.greedy=false"]) == 0
    first, again = (
        json.loads((tmp_path / "a" / "stages" / s / "results.json").read_text()) for s in ("evaluate", "evaluate-1")
    )
    assert (first["episodes"], again["episodes"]) == (8, 20)
    assert (first["greedy"], again["greedy"]) == (True, False)
    assert (tmp_path / "a" / "metrics.jsonl").read_bytes() == before


def test_a_finished_run_has_nothing_left_to_do(tmp_path, capsys):
    words = ["env=toy/Line", "learner.env_steps=64", "evaluate.every=0"]
    assert controller.run(config(tmp_path, "a", *words)) == 0
    manifest = (tmp_path / "a/stages/train/manifest.json").read_bytes()
    assert controller.resume(tmp_path / "a", [], False) == 0
    assert "nothing left to do" in capsys.readouterr().out
    assert (tmp_path / "a/stages/train/manifest.json").read_bytes() == manifest


def test_a_crash_leaves_its_traceback_and_the_state(tmp_path, monkeypatch):
    from cluster.stages.train import Engine as Training

    def explode(self, *args):
        raise ZeroDivisionError("in the loop")

    monkeypatch.setattr(Training, "_learned", explode)
    with pytest.raises(ZeroDivisionError):
        controller.run(config(tmp_path, "a", "env=toy/Line", "learner.env_steps=64"))
    assert "ZeroDivisionError: in the loop" in (tmp_path / "a" / "error.txt").read_text()
    status = json.loads((tmp_path / "a" / "status.json").read_text())
    assert (status["state"], status["reason"]) == ("crashed", "in the loop")


def test_an_actor_that_always_fails_ends_the_run_with_its_traceback(tmp_path, monkeypatch):
    import actors.rollout
    from cluster.roles.supervisor import AllQuarantined

    def broken(self, *args):
        raise ValueError("no such luck")

    monkeypatch.setattr(actors.rollout.RolloutActor, "rollout", broken)
    with pytest.raises(AllQuarantined, match="no such luck"):
        controller.run(config(tmp_path, "a", "env=toy/Line", "actors.restarts=2", "actors.backoff_s=0"))
    log = (tmp_path / "a" / "run.log").read_text()
    assert log.count("failed: ValueError: no such luck") == 4
    assert log.count("failed and is quarantined: ValueError: no such luck") == 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["actors.n=3", "learner.n=2"], "must be multiples"),
        (["actors.n=2", "learner.n=2", "learner.chunks=3"], "must be multiples"),
        (["sync=true", "learner.chunks=1"], "one chunk of each actor"),
        (["env=gym/Pendulum-v1"], "discrete action space"),
        (["method=expert"], "world with a planner"),
    ],
)
def test_what_could_never_run_is_refused_with_the_reason(tmp_path, words, reason):
    with pytest.raises(UsageError, match=reason):
        config(tmp_path, "a", *([] if words[0].startswith("env=") else ["env=toy/Line"]), *words)


def test_quarantine_of_an_actor_that_cannot_be_spared_ends_the_run(tmp_path, monkeypatch):
    """In sync mode every actor is needed: the run ends with the cause instead of waiting for ever."""
    import actors.rollout
    from cluster.roles.supervisor import AllQuarantined

    real = actors.rollout.RolloutActor.rollout

    def broken(self, *args):
        if self.index == 1:
            raise ValueError("no such luck")
        return real(self, *args)

    monkeypatch.setattr(actors.rollout.RolloutActor, "rollout", broken)
    with pytest.raises(AllQuarantined, match=r"\[1\] are quarantined"):
        controller.run(config(tmp_path, "a", "env=toy/Line", "sync=true", "actors.restarts=1", "actors.backoff_s=0"))


def test_an_actor_that_dies_in_a_sync_round_plays_its_chunk_again_and_nothing_else_changes(tmp_path, monkeypatch):
    import actors.rollout

    words = ["env=toy/Line", "sync=true", "learner.env_steps=768", "stages=[train]", "evaluate.every=0"]
    assert controller.run(config(tmp_path, "whole", *words)) == 0
    real = actors.rollout.RolloutActor.rollout

    def fragile(self, *args):
        if self.index == 1 and self.sequence in (2, 5) and self.incarnation < self.sequence // 2:
            raise ValueError("once")
        return real(self, *args)

    monkeypatch.setattr(actors.rollout.RolloutActor, "rollout", fragile)
    assert controller.run(config(tmp_path, "hurt", *words, "actors.backoff_s=0")) == 0
    whole, hurt = (checkpoint.latest(tmp_path / n / "checkpoints") for n in ("whole", "hurt"))
    assert hurt.record["counters"]["restarts"] == 2
    for name, value in whole.arrays["model"].items():
        np.testing.assert_array_equal(value, hurt.arrays["model"][name])


def test_a_world_that_cannot_be_drawn_is_evaluated_without_animations(tmp_path, monkeypatch):
    from envs.toy import Line

    monkeypatch.delattr(Line, "frame")
    assert controller.run(config(tmp_path, "a", "env=toy/Line", "learner.env_steps=64")) == 0
    result = json.loads((tmp_path / "a/stages/evaluate/results.json").read_text())
    assert (result["episodes"], result["videos"]) == (8, [])


def test_eval_of_a_stopped_run_leaves_its_state_and_its_last_stage_to_it(tmp_path, timeless):
    stop_after(tmp_path / "a", 2)
    assert controller.run(config(tmp_path, "a", "env=toy/Line", "learner.env_steps=640", "evaluate.every=0")) == 3
    assert controller.evaluate(tmp_path / "a", []) == 0
    assert json.loads((tmp_path / "a/status.json").read_text())["state"] == "stopped"
    assert not (tmp_path / "a/stages/evaluate").exists()
    assert controller.resume(tmp_path / "a", [], False) == 0
    assert (tmp_path / "a/stages/evaluate/results.json").exists()
    assert json.loads((tmp_path / "a/status.json").read_text())["state"] == "done"


def test_eval_scores_the_checkpoint_of_a_stopped_run_not_what_it_began_from(tmp_path, timeless):
    words = ["env=toy/Line", "learner.env_steps=640", "evaluate.every=0"]
    assert controller.run(config(tmp_path, "teacher", *words, "stages=[train]")) == 0
    stop_after(tmp_path / "pupil", 2)
    assert controller.run(config(tmp_path, "pupil", *words, "from=run:teacher/train", "learner.learning_rate=0.1")) == 3
    assert controller.evaluate(tmp_path / "pupil", []) == 0
    used = json.loads((tmp_path / "pupil/stages/evaluate-1/manifest.json").read_text())["inputs"]["weights"]
    began = json.loads((tmp_path / "teacher/stages/train/manifest.json").read_text())["files"]["weights.safetensors"]
    assert used != began


@pytest.mark.parametrize(
    ("words", "reason"),
    [(["policy.hidden=8"], "do not fit"), (["actors.envs=5"], "actors.envs=4"), (["env=toy/Nothing"], "unknown env")],
)
def test_resume_checks_everything_before_it_writes(tmp_path, timeless, words, reason):
    stop_after(tmp_path / "a", 2)
    assert controller.run(config(tmp_path, "a", "env=toy/Line", "learner.env_steps=640", "stages=[train]")) == 3
    before = {p: p.read_bytes() for p in (tmp_path / "a").rglob("*") if p.is_file()}
    with pytest.raises(UsageError, match=reason):
        controller.resume(tmp_path / "a", words, True)
    assert before == {p: p.read_bytes() for p in (tmp_path / "a").rglob("*") if p.is_file()}


def test_evaluating_a_policy_that_is_nowhere_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UsageError, match="needs weights"):
        controller.run(config(tmp_path, "a", "env=toy/Line", "stages=[evaluate]"))
    assert not (tmp_path / "a").exists()


def test_all_actors_have_their_turn_when_an_update_takes_fewer_chunks(tmp_path):
    words = ["env=toy/Line", "actors.n=4", "learner.chunks=1", "learner.env_steps=1280", "stages=[train]"]
    assert controller.run(config(tmp_path, "a", *words, "evaluate.every=0")) == 0
    actors = checkpoint.latest(tmp_path / "a" / "checkpoints").arrays["actors"]
    assert [int(actors[f"{i}/sequence"]) for i in range(4)] == [10, 10, 10, 10]


def test_rewards_that_are_not_finite_never_reach_the_weights(tmp_path, monkeypatch):
    """One bad chunk is skipped; nothing but bad chunks ends the run, with the last good checkpoint in place."""
    import actors.rollout
    from cluster.roles.learners import LearnerDied

    real = actors.rollout.RolloutActor.rollout

    def poisoned(self, *args):
        summary, chunk = real(self, *args)
        if summary.sequence >= 3:
            chunk.rewards["env"][:] = np.nan
        return summary, chunk

    monkeypatch.setattr(actors.rollout.RolloutActor, "rollout", poisoned)
    words = ["env=toy/Line", "learner.env_steps=6400", "actors.restarts=1", "run.checkpoint_every_s=0.001"]
    with pytest.raises(LearnerDied, match="finite"):
        controller.run(config(tmp_path, "a", *words, "evaluate.every=0"))
    model = checkpoint.latest(tmp_path / "a" / "checkpoints").arrays["model"]
    assert all(np.isfinite(value).all() for value in model.values())
