"""Learning histories as a stage: what is written is what was lived, whoever plays and whatever happens to them."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import envs
from actors.histories import Histories
from cluster import run as controller
from cluster.config.limits import assert_fits, needed
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose, explain
from cluster.config.unread import tell
from cluster.stages.histories import about, results, shares_of
from envs.api import Field
from learner.histories import HistoriesConfig
from learner.methods import radt
from learner.store.episodes import EpisodeStore, StoreError, digest, shards
from tests.learner.fault_points import interrupted

ROOT = Path(__file__).resolve().parents[2]

SMALL = ["method=radt", "stages=[histories]", "env=dark", "env.id=dark/Room-7x6", "method.histories.episodes=130"]
"""34 tasks, 3 rows of them."""


def config(folder, name, *words):
    return compose(["cluster=inline", *SMALL, *words, f"run.folder={folder}", f"run.name={name}"])


def run(folder, name, *words):
    assert controller.run(config(folder, name, *words)) == 0
    return folder / name


def store_of(path):
    return path / "stages/histories/episodes"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A whole run: one actor, all tasks side by side."""
    return run(tmp_path_factory.mktemp("runs"), "small", "actors.n=1")


def test_every_task_has_its_history_in_order(small):
    store = EpisodeStore(store_of(small))
    np.testing.assert_array_equal(store.task, np.repeat(np.arange(34), 130))
    np.testing.assert_array_equal(store.episode, np.tile(np.arange(130), 34))  # the number within its task
    np.testing.assert_array_equal(store.length, 42)
    np.testing.assert_array_equal(store.source, 42 * (store.episode + 1))  # steps of the learner when it ended
    assert store.seed.max() < envs.HELD_OUT_FIRST
    np.testing.assert_array_equal(envs.spec("dark/Room-7x6").task(store.seed), store.task)
    assert (len(shards(store_of(small))), store.unfinished) == (6, 0)


def test_learners_improve_and_results_tell(small):
    results = json.loads((small / "stages/histories/results.json").read_text())
    store = EpisodeStore(store_of(small))
    returns = store.total.reshape(34, 130)
    assert (results["tasks"], results["episodes"], results["steps"]) == (34, 34 * 130, 34 * 130 * 42)
    assert len(results["return"]) == 10
    np.testing.assert_allclose(results["return"][0], returns[:, :13].mean())
    np.testing.assert_allclose([results["first"], results["last"]], returns[:, [0, -1]].mean(0), rtol=1e-6)
    assert results["return"][0] < 6
    assert results["return"][-1] > 30  # of 36.6, which is the planner's
    manifest = json.loads((small / "stages/histories/manifest.json").read_text())
    assert manifest["inputs"]["episodes"] == digest(store_of(small))
    page = (small / "report.html").read_text()
    assert "Learning histories" in page


@pytest.mark.parametrize("words", [["actors.n=3"], ["actors.n=1", "method.histories.together=16"]])
def test_how_many_play_side_by_side_does_not_show(tmp_path, small, words):
    assert digest(store_of(run(tmp_path, "other", *words))) == digest(store_of(small))


def test_a_block_of_many_steps_is_cut_and_the_store_is_the_same(tmp_path, small, monkeypatch):
    monkeypatch.setattr("actors.histories.STEPS", 16 * 42 * 9 - 1)
    path = run(tmp_path, "cut", "actors.n=1")
    steps = [entry["steps"] for entry in shards(store_of(path)).values()]
    of_two_tasks = [2 * 42 * 72, 2 * 42 * 58]  # the third row
    assert steps == 2 * [*[16 * 42 * 9] * 14, 16 * 42 * 4] + of_two_tasks
    cut, whole = EpisodeStore(store_of(path)), EpisodeStore(store_of(small))
    for name in ("task", "episode", "source", "total", "length", "first"):
        np.testing.assert_array_equal(getattr(cut, name), getattr(whole, name), err_msg=name)
    found, expected = (store.rows(np.arange(store.steps)) for store in (cut, whole))
    np.testing.assert_array_equal(found.action, expected.action)
    np.testing.assert_array_equal(found.obs["row"], expected.obs["row"])


def test_where_a_block_ends_depends_on_its_own_tasks_alone(tmp_path, monkeypatch):
    """Episodes of mazes end when they are through, so that rows come to as many steps at different times."""
    monkeypatch.setattr("actors.histories.STEPS", 4000)
    world = ["env=maze", "env.id=maze/Runner-7", "env.mazes=40"]
    words = [*world, "method.histories.learner=expert", "method.histories.episodes=60"]
    together = run(tmp_path, "together", *words, "actors.n=1")
    one_by_one = run(tmp_path, "one", *words, "actors.n=2", "method.histories.together=16")
    assert digest(store_of(together)) == digest(store_of(one_by_one))
    there = shards(store_of(together))
    each = [[entry["episodes"] for name, entry in there.items() if name.startswith(f"0000{row}")] for row in range(3)]
    assert [sum(row) for row in each] == [16 * 60, 16 * 60, 8 * 60]
    assert len(each[0]) > 2
    assert each[0] != each[1]

    before = digest(store_of(together))
    (together / "stages/histories/manifest.json").unlink()
    (store_of(together) / "00001-00001-a0001.json").unlink()
    assert controller.resume(together, [], False) == 0
    assert digest(store_of(together)) == before
    again = {path.name for path in store_of(together).glob("*-a0002.json")}
    assert again == {"00001-00001-a0002.json"}  # what was there was not written again


def test_networks_of_a_shard_are_the_same_whoever_plays_and_when(tmp_path):
    """PPO multiplies the networks of many tasks at once; floats would tell if others than a shard's were among them."""
    words = ["method.histories.learner=ppo", "method.histories.episodes=5", "method.histories.ppo.steps=64"]
    words += [
        "method.histories.ppo.epochs=1",
        "method.histories.ppo.hidden=8",
        "method.histories.ppo.learning_rate=0.05",
    ]
    together = run(tmp_path, "together", *words, "actors.n=1")
    apart = run(tmp_path, "apart", *words, "actors.n=2", "method.histories.together=16")
    before = digest(store_of(together))
    assert digest(store_of(apart)) == before
    (apart / "stages/histories/manifest.json").unlink()
    (store_of(apart) / "00001-00000-a0001.json").unlink()
    assert controller.resume(apart, [], False) == 0
    assert digest(store_of(apart)) == before
    other = run(tmp_path, "other", *words, "actors.n=1", "method.histories.ppo.entropy=1")
    assert digest(store_of(other)) != before


def test_a_store_says_of_what_its_learner_was_told_and_no_other():
    said = about(compose(SMALL))
    assert about(compose([*SMALL, "method.histories.ppo.epochs=3", "method.histories.together=16"])) == said
    assert about(compose([*SMALL, "method.histories.anneal=0.5"])) != said
    ppo = [*SMALL, "method.histories.learner=ppo"]
    assert about(compose(ppo)) != about(compose([*ppo, "method.histories.ppo.epochs=3"]))


def test_a_store_that_lost_a_shard_is_not_called_whole(tmp_path, small):
    shutil.copytree(store_of(small), tmp_path / "store")
    (tmp_path / "store/00002-00000-a0001.json").unlink()
    with pytest.raises(StoreError, match=r"holds 4,220 whole episodes, not 4,420: remove it"):
        results(tmp_path / "store", 34, 130)


def test_another_seed_has_other_histories(tmp_path, small):
    other = EpisodeStore(store_of(run(tmp_path, "other", "seed=1", "method.histories.episodes=2")))
    small = EpisodeStore(store_of(small))
    first = [store.rows(np.arange(store.first[1])).action for store in (other, small)]
    assert (first[0] != first[1]).any()


@pytest.mark.parametrize(
    ("world", "words", "learner"),
    [
        ("dark/Room-5x4", [], "q"),
        ("dark/KeyDoor-5x4", [], "q"),
        ("dark/KeyDoor-5x4", ["env.rules=legacy"], "q"),
        ("dark/KeyDoor-5x4", ["env.observe=coordinates"], "q"),
        ("dark/KeyDoor-5x4", [], "expert"),
        ("maze/Runner-7", ["env.mazes=8"], "expert"),
    ],
)
def test_what_is_kept_is_what_was_seen_done_and_paid(tmp_path, world, words, learner):
    """Played again by the recorded actions, one task after the other, the world shows and pays what the store holds."""
    chosen = ["env=maze"] if world.startswith("maze") else []
    more = [*chosen, f"env.id={world}", *words, f"method.histories.learner={learner}", "method.histories.episodes=30"]
    store = EpisodeStore(store_of(run(tmp_path, "a", *more)))
    options = dict(word.removeprefix("env.").split("=") for word in words)
    options |= {"mazes": int(options["mazes"])} if "mazes" in options else {}
    every, env = store.rows(np.arange(store.steps)), envs.make(world, 1, **options)
    for e in range(len(store)):
        obs = env.begin(store.seed[e : e + 1])
        assert env.task[0] == store.task[e]
        for s in range(store.first[e], store.first[e + 1]):
            for name, column in every.obs.items():
                np.testing.assert_array_equal(column[s], obs[name][0], err_msg=name)
            t = env.advance(every.action[s : s + 1])
            assert t.reward[0] == every.reward[s]
            obs = t.obs
        assert len(t.final_index) == 1  # ended here, and not before
        assert (t.episodes.total[0], t.episodes.success[0]) == (store.total[e], store.success[e])
    numbers = store.episode
    assert store.total[numbers >= 24].mean() > store.total[numbers < 6].mean()
    steps = np.concatenate([np.cumsum(store.length[store.task == task]) for task in range(store.task.max() + 1)])
    np.testing.assert_array_equal(store.source, steps)


def test_a_planner_without_chance_is_the_planner(tmp_path):
    words = ["method.histories.learner=expert", "method.histories.epsilon_begin=0", "method.histories.episodes=1"]
    store = EpisodeStore(store_of(run(tmp_path, "a", *words)))
    env = envs.make("dark/Room-7x6", 34)
    env.begin(np.arange(34))
    rows, columns = np.divmod(env.goal, 7)
    np.testing.assert_array_equal(store.total, 42 - np.maximum(0, rows + columns - 1))


# ---- stopped, killed, hurt ------------------------------------------------------------------------------------------


def test_stopped_and_resumed_is_the_run_without_a_stop(tmp_path, small, monkeypatch):
    real, calls = Histories.play, []

    def play(self):
        calls.append(self.number)
        if len(calls) == 105:  # the first block is written
            (tmp_path / "parts" / "STOP").touch()
        return real(self)

    monkeypatch.setattr(Histories, "play", play)
    monkeypatch.setattr("actors.histories.CALL_S", 0.01)
    assert controller.run(config(tmp_path, "parts", "actors.n=1")) == 3
    there = set(shards(store_of(tmp_path / "parts")))
    assert there == {"00000-00000", "00001-00000", "00002-00000"}
    assert controller.resume(tmp_path / "parts", [], False) == 0
    assert digest(store_of(tmp_path / "parts")) == digest(store_of(small))
    written = {path.name for path in store_of(tmp_path / "parts").glob("*-00000-*.json")}
    assert written == {f"{name}-a0001.json" for name in there}  # what was there was not written again


def killed_at(folder, part):
    """Run until a file of this name is about to be renamed, and die there."""
    with interrupted(
        Path(folder),
        at=lambda what: what.startswith("os.rename") and part in what,
        by=lambda unsynced: os.kill(os.getpid(), signal.SIGKILL),
    ):
        run(Path(folder), "killed", "actors.n=1", "method.histories.together=16")


@pytest.mark.parametrize("at", ["00001-00000-a0001.arrow", "00001-00001-a0001.json"])
def test_a_killed_controller_resumes_to_the_same_file(tmp_path, small, at):
    path = tmp_path / "killed"
    code = "import sys; from tests.cluster.test_histories import killed_at; killed_at(*sys.argv[1:])"
    died = subprocess.run([sys.executable, "-c", code, str(tmp_path), at], cwd=ROOT, check=False)
    assert died.returncode == -signal.SIGKILL
    assert not (path / "stages/histories/manifest.json").exists()
    there = set(shards(store_of(path)))
    assert "00000-00001" in there
    assert "00001-00001" not in there
    assert controller.resume(path, [], False) == 0
    assert digest(store_of(path)) == digest(store_of(small))


def test_a_share_that_is_lost_with_its_actor_is_played_again(tmp_path, small, monkeypatch):
    real, deaths = Histories.play, []

    def play(self):
        if self.number == 60 and not deaths:
            deaths.append(self.number)
            raise RuntimeError("struck by lightning")
        return real(self)

    monkeypatch.setattr(Histories, "play", play)
    path = run(tmp_path, "hurt", "actors.n=2", "actors.backoff_s=0.01")
    assert deaths
    assert digest(store_of(path)) == digest(store_of(small))


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["env=maze"], r"learner=q needs a table of states, but sensors of maze/Runner-15 holds no categories"),
        (["env=toy", "env.id=toy/Line"], r"needs a world whose seeds name tasks, .* but toy/Line has none"),
        (["env=dark", "method.histories.episodes=0"], r"method\.histories\.episodes"),
        (
            ["env=dark", "method.histories.learner=pro"],
            r"method\.histories\.learner: there is no 'pro': did you mean ppo",
        ),
        (["env=dark", "method.histories.ppo.epochs=0"], r"method\.histories\.ppo\.epochs: .* equal to 1, got 0"),
        (["env=dark", "method.histories.ppo.epoch=1"], r"did you mean method\.histories\.ppo\.epochs"),
    ],
)
def test_what_cannot_be_learned_is_refused_in_one_sentence(tmp_path, words, told):
    with pytest.raises(ConfigError, match=told):
        compose(["method=radt", "cluster=inline", *words, f"run.folder={tmp_path}"])


def test_a_learner_of_another_run_is_not_asked_whether_it_suits(tmp_path):
    words = ["method=radt", "env=maze", "stages=[fit]", "cluster=inline", f"run.folder={tmp_path}"]
    assert compose(words).method.histories.learner == "q"


@pytest.mark.parametrize("odd", [Field("category", size=3, privileged=True), Field("vector", (2,))])
def test_a_table_of_states_is_of_whole_numbers_that_a_player_sees(tmp_path, odd):
    found = config(tmp_path, "a")
    spec = replace(found.spec, fields=found.spec.fields | {"odd": odd})
    with pytest.raises(ValueError, match="odd of dark/Room-7x6 holds no categories or other whole numbers"):
        radt.check(found, spec)


def test_a_store_of_other_histories_is_not_added_to(tmp_path, small):
    shutil.copytree(small, tmp_path / "small")
    (tmp_path / "small/stages/histories/manifest.json").unlink()
    with pytest.raises(StoreError, match="holds other episodes"):
        controller.resume(tmp_path / "small", ["method.histories.discount=0.5"], allow_change=True)


def test_memory_is_asked_for_before(tmp_path):
    large = config(tmp_path, "a", "env.id=dark/KeyDoor-100x100", "method.histories.together=8000", "actors.n=1")
    assert needed(large) > 8000 * 100 * 100 * 2 * 5 * 8  # the table alone
    with pytest.raises(ConfigError, match=r"method\.histories\.together=\d+ fits"):
        assert_fits(large, 2**30)


def test_keys_of_another_learner_are_told_to_have_no_effect(capsys):
    tell(*explain([*SMALL, "method.histories.ppo.epochs=3"]))
    assert "ppo.epochs=3 has no effect with method.histories.learner=q" in capsys.readouterr().err


def test_rows_are_dealt_so_that_each_is_played_once():
    for tasks, actors, together in ((80, 1, 128), (80, 2, 128), (33, 4, 16), (1000, 3, 100), (5, 2, 1)):
        settings = HistoriesConfig(together=together, episodes=250)
        shares = shares_of(settings, tasks, actors)
        rows = [row for share in shares for row in share.rows]
        assert rows == list(range(-(-tasks // 16)))
        assert max(len(share.rows) for share in shares) <= max(1, together // 16)
        assert len(shares) >= min(actors, len(rows))


def test_the_smoke_experiment_is_small():
    found = compose(["experiment=radt_smoke", "cluster=inline"])
    assert 20 * found.method.histories.episodes * 25 <= 50_000
