"""Recorded histories as a run: what was exported comes back, tasks are found, what is wrong is one sentence."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import envs
from actors.histories import Histories
from cluster import run as controller
from cluster.cli.import_verbs import bring
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from cluster.runs.folder import RunError, RunFolder, find
from learner.histories import HistoriesConfig, kept_fields
from learner.store.episodes import EPISODES, EpisodeStore
from learner.store.pieces import COLUMNS
from learner.store.recordings import RecordingError, read
from llm_service.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
ROOM = ["env=dark", "env.id=dark/Room-5x4"]
DOOR = ["env=dark", "env.id=dark/KeyDoor-5x4", "env.rules=legacy"]
MAZE = ["env=maze", "env.id=maze/Runner-7", "env.mazes=8"]


def lived(words, learner="q", episodes=20, tasks=None):
    """Histories of some tasks, as pieces and steps of each."""
    config = compose(["method=radt", f"method.histories.learner={learner}", *words])
    tasks = np.arange(5) if tasks is None else np.array(tasks)
    env = envs.make(config.env.id, len(tasks), **config.env.options)
    histories = Histories(env, HistoriesConfig(learner=learner, episodes=episodes), 0, tasks)
    for _ in range(episodes):
        histories.play()
    pieces, steps = histories.take()
    ends = np.cumsum(pieces.length).reshape(len(tasks), episodes)
    found = []
    for i, own in enumerate(slice(begin, end) for begin, end in zip([0, *ends[:-1, -1]], ends[:, -1], strict=True)):
        obs = np.concatenate([column[own].reshape(own.stop - own.start, -1) for column in steps.obs.values()], 1)
        done = np.zeros(len(obs), np.bool_)
        done[ends[i] - own.start - 1] = True
        found.append((obs, steps.action[own], steps.reward[own], done))
    return pieces, found


def save(path, obs, action, reward, done, **other):
    """As the published data sets are: what comes after the last step is not known here, and is that step's own."""
    after = np.concatenate([obs[1:], obs[-1:]])
    columns = {"observations": obs, "next_observations": after, "actions": action, "rewards": reward, "dones": done}
    columns = {name: column for name, column in (columns | other).items() if column is not None}
    np.savez(path, **columns)
    return path


def export(folder, found):
    return [save(folder / f"0-0_{i}.npz", *history) for i, history in enumerate(found)]


@pytest.mark.parametrize(("words", "learner"), [(ROOM, "q"), (DOOR, "q"), (MAZE, "expert")])
def test_what_was_exported_comes_back(tmp_path, words, learner):
    """Files in another order than tasks; mazes end at different times, and legacy keys stay from episode to episode."""
    pieces, found = lived(words, learner)
    files = export(tmp_path, found)
    place = bring(files[::-1], [*words, f"run.folder={tmp_path}", "run.name=a"])
    store = EpisodeStore(place / EPISODES)
    assert (len(store), store.unfinished) == (100, 0)
    for name in COLUMNS.keys() - {"first", "ended"}:
        np.testing.assert_array_equal(getattr(store, name), getattr(pieces, name), err_msg=name)
    every = store.rows(np.arange(store.steps))
    obs = np.concatenate([column.reshape(store.steps, -1) for column in every.obs.values()], 1)
    for ours, theirs in zip((obs, every.action, every.reward), zip(*found, strict=True), strict=False):
        np.testing.assert_array_equal(ours, np.concatenate(theirs))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    trailing=st.integers(0, 5),
    axis=st.booleans(),
    seed=st.integers(0, 99),
)
def test_episodes_are_cut_where_a_step_is_done_and_the_last_part_is_dropped(tmp_path, lengths, trailing, axis, seed):
    random, count = np.random.default_rng(seed), sum(lengths) + trailing
    spec = envs.spec("dark/Room-5x4")
    obs, action = random.integers([4, 5], size=(count, 2)), random.integers(5, size=count)
    reward, done = random.random(count).astype(np.float32), np.zeros(count)
    done[np.cumsum(lengths) - 1] = 1
    columns = [column[:, None] if axis else column for column in (obs, action, reward, done)]
    found = read(save(tmp_path / "a.npz", *columns), spec, kept_fields(spec))
    assert found.length.tolist() == lengths
    for number, length in enumerate(lengths):
        own, begin = found.episode(number), sum(lengths[:number])
        expected = slice(begin, begin + length)
        np.testing.assert_array_equal(own.obs["row"], obs[expected, 0])
        np.testing.assert_array_equal(own.obs["column"], obs[expected, 1])
        np.testing.assert_array_equal(own.action, action[expected])
        np.testing.assert_array_equal(own.reward, reward[expected])
    assert len(found.steps.reward) == sum(lengths)


def test_a_transformer_is_fitted_to_it_and_tried(tmp_path, monkeypatch):
    """By the command line, and of files that differ in length: tasks need not have equally many episodes."""
    _, found = lived(ROOM, episodes=12)
    found[1] = tuple(column[: 20 * 7 + 3] for column in found[1])
    words = ["import", "radt", *map(str, export(tmp_path, found)), *ROOM, f"run.folder={tmp_path}", "run.name=theirs"]
    monkeypatch.setattr(sys, "argv", ["launch.py", *words])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "launch.py"), run_name="__main__")
    assert ended.value.code == 0
    told = json.loads((tmp_path / "theirs/stages/histories/results.json").read_text())
    assert (told["learner"], told["tasks"], told["episodes"], told["steps"]) == ("recorded", 5, 55, 1100)
    assert len(told["return"]) == 7  # as many parts as the shortest has episodes
    assert "Learning histories" in (tmp_path / "theirs/report.html").read_text()
    small = ["experiment=radt_smoke", "method.sequence.width=16", "method.sequence.steps=4", "method.sequence.every=2"]
    small += ["method.trials.trials=1", "cluster=inline", "stages=[encoder,fit,trials]", "from=run:theirs/histories"]
    assert controller.run(compose([*small, *ROOM, f"run.folder={tmp_path}", "run.name=ours"])) == 0
    stages = ("theirs/stages/histories", "ours/stages/fit")
    manifests = [json.loads((tmp_path / stage / "manifest.json").read_text()) for stage in stages]
    assert manifests[0]["inputs"]["episodes"] == manifests[1]["inputs"]["episodes"]
    assert str(tmp_path / "0-0_1.npz") in manifests[0]["inputs"]
    assert controller.resume(tmp_path / "theirs", [], False) == 0  # it has nothing left to do


# ---- what is refused ------------------------------------------------------------------------------------------------

_, FOUND = lived(ROOM, tasks=[2], episodes=10)
OBS, ACTION, REWARD, DONE = FOUND[0]
OBJECTS = np.array([[0, 1], None], object)
HALF = np.where(np.arange(200) == 7, 0.5, ACTION)
BAD = {
    "a column is missing": ({"rewards": None}, r"has no column rewards: a recording has observations"),
    "lengths differ": ({"actions": ACTION[:-1]}, r"not equally many steps \(.*actions 199, rewards 200"),
    "objects": ({"actions": OBJECTS}, r"holds Python objects, and reading them runs whatever program"),
    "never done": ({"dones": 0 * DONE}, r"no step is done, so that nothing tells where episodes end"),
    "another world": ({"observations": OBS[:, :1]}, r"observations has 1 numbers a step, but .* has 2 \(row, column\)"),
    "words": ({"rewards": np.full(200, "much")}, r"rewards are not all finite numbers"),
    "nan": ({"rewards": np.full(200, np.nan)}, r"rewards are not all finite numbers"),
    "no such action": ({"actions": ACTION + 1}, r"actions has 5 in step \d+, but this world's are 0 to 4"),
    "half an action": ({"actions": HALF}, r"actions has 0\.5 in step 7, but this world's are 0 to 4"),
    "a gap": ({"next_observations": OBS}, r"next_observations of step \d+ is not what step \d+ observes"),
    "another reward": ({"rewards": REWARD + 1}, r"to none of the 16 training tasks .* differs: reward of step \d+ is"),
    "another end": (
        {"dones": np.ones(200)},
        r"to none of the 16 training tasks .* differs: end of step 0 is True, but",
    ),
    "never paid": ({"rewards": 0 * REWARD}, r"to none of|may belong to"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_one_sentence_and_leaves_nothing(tmp_path, what):
    other, told = BAD[what]
    path = save(tmp_path / "a.npz", *FOUND[0], **other)
    with pytest.raises(RecordingError, match=told) as raised:
        bring([path], [*ROOM, f"run.folder={tmp_path}", "run.name=a"])
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.pkl", b"", r"is a pickle, and reading one runs whatever program was put into it: take the \.npz"),
        ("a.npz", b"\x80\x04N.", r"holds Python objects, and reading them runs whatever"),
        ("a.npz", b"PK\x03\x04 and no more", r"cannot read .*a\.npz"),
        ("a.npz", b"", r"cannot read .*a\.npz"),
        ("a.npz", None, r"cannot read .*a\.npz: No such file"),
    ],
)
def test_what_is_no_npz_is_refused(tmp_path, name, content, told):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(RecordingError, match=told):
        bring([tmp_path / name], [*ROOM, f"run.folder={tmp_path}"])


def test_a_single_array_is_no_recording(tmp_path):
    with (tmp_path / "a.npz").open("wb") as file:
        np.save(file, OBS)
    with pytest.raises(RecordingError, match=r"is a single array, not an \.npz with columns observations"):
        bring([tmp_path / "a.npz"], [*ROOM, f"run.folder={tmp_path}"])


DYING = """
import os, sys
from pathlib import Path
from cluster.cli.import_verbs import bring
from tests.learner.fault_points import interrupted
folder, file, *words = sys.argv[1:]
with interrupted(folder, lambda what: what == f"os.rename {folder}/.a.importing/a", lambda _: os._exit(9)):
    bring([Path(file)], words)
"""


def test_a_killed_import_is_no_run(tmp_path):
    """It dies when all is written but the name; the next one clears what it left."""
    (file,), folder = export(tmp_path, lived(ROOM, episodes=10, tasks=[2])[1]), tmp_path / "runs"
    words = [*ROOM, f"run.folder={folder}", "run.name=a"]
    died = subprocess.run([sys.executable, "-c", DYING, folder, file, *words], cwd=ROOT, check=False)
    assert died.returncode == 9
    assert [path.name for path in folder.iterdir()] == [".a.importing"]
    with pytest.raises(RunError, match="no run 'a'; there are no runs in"):
        find("a", folder)
    assert len(EpisodeStore(bring([file], words) / EPISODES)) == 10
    assert [path.name for path in folder.iterdir()] == ["a"]
    status = RunFolder(find("a", folder)).read_status()
    assert (status["state"], status["report"]) == ("done", str(folder / "a/report.html"))
    assert "importing" not in (folder / "a/report.html").read_text()


def test_a_file_that_tells_of_no_task_needs_its_name(tmp_path):
    """Who stays at the start is paid nothing in any task but one."""
    count = 20
    still = np.zeros((count, 2), np.int64), np.full(count, 4), np.zeros(count), np.arange(count) == count - 1
    path, words = save(tmp_path / "a.npz", *still), [*ROOM, f"run.folder={tmp_path}", "run.name=a"]
    with pytest.raises(RecordingError, match=r"may belong to 15 tasks .* with --tasks"):
        bring([path], words)
    with pytest.raises(RecordingError, match=r"is not of task 0 .* reward of step 0 is 0.0, but the task's is 1.0"):
        bring([path], words, "0")
    assert EpisodeStore(bring([path], words, "7") / EPISODES).task.tolist() == [7]


def test_files_and_tasks_must_fit(tmp_path):
    files, words = export(tmp_path, lived(ROOM, episodes=10, tasks=[2])[1]), [*ROOM, f"run.folder={tmp_path}"]
    with pytest.raises(UsageError, match=r"--tasks=2,3: name 1 tasks, as many as files, each of 0 to 15"):
        bring(files, words, "2,3")
    with pytest.raises(UsageError, match=r"are both of task 2: remove one"):
        bring(files * 2, words)
    with pytest.raises(UsageError, match=r"name the \.npz files"):
        bring([], words)
    with pytest.raises(ConfigError, match="needs a world whose seeds name tasks"):
        bring(files, ["env=toy"])
