"""The replay of a whole run: what a resume may change, what a full disk says, and what is left when a run is done."""

import json
import re
import shutil

import numpy as np
import pytest

import launch
from cluster import run as controller
from cluster.config.tree import compose
from cluster.runs.stage import Run
from cluster.stages.train import Engine as Training
from learner import checkpoint

SMALL = [
    "method=dqn", "env=toy/Line", "cluster=inline", "policy.hidden=16", "policy.network=mlp", "actors.envs=4",
    "actors.steps=8", "evaluate.episodes=8", "evaluate.every=0", "evaluate.videos=0", "learner.dqn.start_steps=128",
    "learner.dqn.samples_per_insert=1", "learner.dqn.capacity=1600", "learner.minibatch=32", "learner.env_steps=1024",
    "sync=true",
]  # fmt: skip


def start(folder, *words):
    return controller.run(compose([*SMALL, f"run.folder={folder}", "run.name=r", *words]))


def command(capsys, *words):
    """`python launch.py` with these words: its exit code, and what it wrote to stderr."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        launch.app(list(words), standalone_mode=False)
    return end.value.code, " ".join(capsys.readouterr().err.split())


def stop_early(folder, monkeypatch, *words):
    """A run that was stopped after 256 steps."""
    real = Training._learned

    def stopping(self, *args):
        real(self, *args)
        if self.account.counters.env_steps == 256:
            self.folder.stop_file.touch()

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_learned", stopping)
        assert start(folder, *words) == 3
    return folder / "r"


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    return stop_early(tmp_path, monkeypatch)


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["learner.dqn.capacity=3200"],
            r"rank-0 keeps 8 envs of 200 rows each, not 8 of 400: .*dqn\.capacity .*or delete",
        ),
        (["actors.n=4", "learner.dqn.capacity=3200"], r"a replay of 8 envs, not 16: resume with the actors\.n"),
        (["actors.envs=2"], r"actors\.envs=4"),
        (["cluster=local", "learner.n=2"], r"holds replays of learner\.n=1: resume with that, not with 2"),
    ],
)
def test_a_resume_that_cannot_be_is_one_sentence_and_changes_nothing(stopped, words, told, capsys):
    before = files(stopped)
    code, sentence = command(capsys, "resume", str(stopped), "--allow-change", *words)
    assert code == 2
    assert sentence.startswith("error: ")
    assert re.search(told, sentence)
    assert files(stopped) == before


def test_rewards_that_the_replay_has_no_column_for_are_one_sentence(stopped, capsys):
    code, sentence = command(capsys, "resume", str(stopped), "--allow-change", "method.intrinsic.name=noveld")
    assert code == 2
    assert "(reward.intrinsic differ): resume with the env, goals, intrinsic" in sentence
    assert controller.resume(stopped, ["method.intrinsic.name=none"], True) == 0


def rows(folder, key):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line[key] for line in lines if line["kind"] == "train"]


def test_without_its_folder_a_replay_fills_anew_with_another_capacity(stopped):
    shutil.rmtree(stopped / "replay")
    assert controller.resume(stopped, ["learner.dqn.capacity=3200", "learner.dqn.prioritised=true"], True) == 0
    assert rows(stopped, "replay/lost")[-1] > 200
    assert rows(stopped, "env_steps")[-1] == 1024


def test_no_room_is_told_before_a_step_is_learned(tmp_path, capsys):
    words = [word for word in SMALL if not word.startswith("dqn.capacity")]
    code, sentence = command(capsys, "run", *words, f"run.folder={tmp_path}", "run.name=r", "learner.dqn.capacity=1e14")
    assert code == 2
    assert "no room for a replay of " in sentence
    assert "lower learner.dqn.capacity, choose another run.folder, or learner.dqn.keep=memory" in sentence
    assert not (tmp_path / "r/replay/rank-0").exists()
    assert controller.resume(tmp_path / "r", ["learner.dqn.capacity=1600"], True) == 0


def test_a_finished_run_keeps_no_replay_and_goes_on_without_if_it_shall(stopped, tmp_path, capsys):
    assert (stopped / "replay/rank-0/schema.json").exists()
    assert controller.resume(stopped, [], False) == 0
    assert not (stopped / "replay").exists()
    assert rows(stopped, "replay/lost")[-1] == 0
    first = (stopped / "stages/evaluate/manifest.json").read_text()
    assert controller.resume(stopped, [], False) == 0
    assert "nothing left to do" in capsys.readouterr().out

    updates = rows(stopped, "replay/updates")
    assert controller.resume(stopped, ["learner.env_steps=2048"], True) == 0
    assert rows(stopped, "env_steps")[-1] == 2048
    lost = rows(stopped, "replay/lost")
    assert lost[len(updates) - 1] == 0
    assert lost[-1] > 900  # what the replay held at 1024
    assert rows(stopped, "replay/updates")[: len(updates)] == updates
    assert rows(stopped, "replay/updates")[-1] > updates[-1]
    assert checkpoint.latest(stopped / "checkpoints").record["counters"]["env_steps"] == 2048
    assert json.loads((stopped / "stages/train/manifest.json").read_text())["counts"]["env_steps"] == 2048
    assert (stopped / "stages/evaluate/manifest.json").read_text() != first  # of the policy as it is now
    assert not (stopped / "replay").exists()


def test_a_further_evaluation_or_another_crew_may_follow_a_finished_run(stopped):
    assert controller.resume(stopped, ["stages=[train]"], False) == 0
    assert controller.resume(stopped, ["stages=[train,evaluate]", "actors.n=1"], True) == 0
    assert json.loads((stopped / "stages/evaluate/results.json").read_text())["success"]["n"] == 8


PICTURES = ["env=crafter/Standard", "env.length=30", "policy.network=texts", "policy.stack=3"]


@pytest.mark.parametrize("words", [[], PICTURES], ids=["texts", "stacked pictures"])
def test_after_a_stop_model_and_files_are_to_the_byte_those_of_the_run_without(tmp_path, monkeypatch, words):
    real, replays = Run.publish, {}

    def publish(self, stage):  # the last moment at which there is a replay
        of = self.folder.replay
        replays[of] = {str(path.relative_to(of)): content for path, content in files(of).items()}
        return real(self, stage)

    words = [*words, "learner.env_steps=512", "stages=[train]"]
    stopped = stop_early(tmp_path / "parts", monkeypatch, *words)
    monkeypatch.setattr(Run, "publish", publish)
    assert controller.resume(stopped, [], False) == 0
    assert start(tmp_path / "whole", *words) == 0
    one, other = replays.values()
    assert one == other
    assert len(one) > 7
    models = [checkpoint.latest(tmp_path / name / "r/checkpoints").arrays["model"] for name in ("parts", "whole")]
    for name, value in models[0].items():
        np.testing.assert_array_equal(value, models[1][name], err_msg=name)
