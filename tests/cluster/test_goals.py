"""Goals in whole runs: each question is asked once, a journal replays a run, what happens while the model is away."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from cluster.run import run

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    "experiment=ellm_crafter_small",
    "env.id=crafter/Named",
    "policy.hidden=16",
    "actors.envs=8",
    "actors.steps=16",
    "learner.minibatch=128",
    "learner.ppo.epochs=1",
    "evaluate.every=0",
    "evaluate.episodes=8",
    "evaluate.videos=0",
    "env.length=60",
    "cluster.dashboard=false",
]
INLINE = [*SMALL, "cluster=inline", "sync=true", "llm.when_away=wait", "actors.n=1", "learner.env_steps=1000"]


def rows(folder, kind="train"):
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in found if row["kind"] == kind]


def journal(folder):
    return [json.loads(line) for line in (folder / "llm" / "journal.jsonl").read_text().splitlines()]


GUIDED = "ellm_crafter_small_guided"
ARMS = sorted(file.stem for file in (ROOT / "configs/experiment").glob("ellm_crafter_small*.yaml"))


def played(folder, arm, *more):
    """The last row of a short run."""
    words = [word for word in INLINE if not word.startswith(("experiment=", "learner.env_steps=", "sync="))]
    words += ["learner.env_steps=300", f"run.folder={folder}", f"run.name={arm}"]
    assert run(compose([f"experiment={arm}", *words, *more])) == 0
    return rows(folder / arm)[-1]


@pytest.mark.parametrize("arm", [arm for arm in ARMS if arm != GUIDED])
def test_every_arm_of_the_small_experiment_plays_and_learns(tmp_path, arm):
    assert played(tmp_path, arm)["env_steps"] >= 300


def test_what_ppo_pretrained_guides_the_second_half(tmp_path):
    played(tmp_path, "ellm_crafter_small")
    words = ["method.guide.policy=run:ellm_crafter_small/pretrain", "learner.dqn.start_steps=100"]
    row = played(tmp_path, GUIDED, *words, "learner.dqn.train_after_reward=false")
    assert row["env_steps"] >= 300
    assert np.isfinite(row["losses/q"])


def test_each_situation_is_asked_about_once_and_the_journal_replays_the_run_bit_for_bit(tmp_path):
    words = [*INLINE, f"run.folder={tmp_path}"]
    assert run(compose([*words, "run.name=first"])) == 0
    asked = [line for line in journal(tmp_path / "first") if line["task"] == "suggest_goals"]
    situations = [json.dumps(line["turns"]) for line in asked]
    assert len(situations) > 20
    assert len(situations) == len(set(situations))

    replay = ["llm=replay", f"llm.replayed={tmp_path}/first/llm/journal.jsonl", "llm.when_away=wait"]
    assert run(compose([*words, *replay, "run.name=again"])) == 0
    first, again = (rows(tmp_path / name) for name in ("first", "again"))
    assert any(row["rewards/goal"] > 0 for row in first)
    same = ("rewards/goal", "rewards/env", "losses/policy", "losses/value", "losses/entropy")
    assert [[row[key] for key in same] for row in first] == [[row[key] for key in same] for row in again]
    one, other = (load_file(tmp_path / n / "stages" / "pretrain" / "weights.safetensors") for n in ("first", "again"))
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name])


@pytest.mark.slow
def test_a_stopped_run_goes_on_bit_for_bit_with_its_goals(tmp_path):
    whole = [*INLINE, "method.goals.source=oracle", f"run.folder={tmp_path}"]
    assert run(compose([*whole, "run.name=whole"])) == 0
    words = [sys.executable, "launch.py"]
    parts = [*words, "run", *whole, "run.name=parts", "run.checkpoint_every_s=0.001"]
    process = subprocess.Popen(parts, cwd=ROOT, stdout=subprocess.DEVNULL)
    until(lambda: (tmp_path / "parts" / "checkpoints" / "LATEST").exists())
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 3
    assert (
        subprocess.run([*words, "resume", str(tmp_path / "parts")], cwd=ROOT, stdout=subprocess.DEVNULL).returncode == 0
    )
    one, other = (load_file(tmp_path / n / "stages" / "pretrain" / "weights.safetensors") for n in ("whole", "parts"))
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name])


def test_the_results_say_what_became_of_the_goals(tmp_path):
    assert run(compose([*INLINE, "learner.env_steps=500", f"run.folder={tmp_path}", "run.name=a"])) == 0
    results = json.loads((tmp_path / "a" / "stages" / "evaluate" / "results.json").read_text())
    shares = results["goals"]["shares"]
    assert shares["good"] + shares["early"] + shares["senseless"] == pytest.approx(1)
    assert 0.08 < shares["early"] < 0.6
    assert 0.05 < shares["senseless"] < 0.5
    assert results["score"] == "achievements unlocked"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["env=babyai/GoToLocal"], "needs a world that tells events"),
        (["env=crafter", "policy.network=mlp"], "method.goals.told=true needs policy.network=texts"),
        (["env=crafter", "method.goals.source=oracle", "method.goals.shuffled=true"], "goals.shuffled"),
        (["env=crafter", "sync=true"], "needs llm.when_away=wait"),
        (["env=crafter", "method.goals.source=none"], "method ellm needs goals"),
        (["env=crafter", "method.goals.threshold=2"], "goals.threshold"),
    ],
)
def test_what_cannot_be_is_a_sentence(words, sentence):
    with pytest.raises(ConfigError, match=sentence):
        compose(["method=ellm", *words])


def until(holds, seconds=90):
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, "it did not come to pass"
        time.sleep(0.1)


def service(folder, world):
    """A service in a process group of its own, and the wait until it answers."""
    words = ["name=scripted", f"world={world}"]
    (folder / "address").unlink(missing_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "llm_service.server", "--folder", str(folder), *words],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until(lambda: (folder / "address").exists() or process.poll() is not None)
    assert process.poll() is None
    return process


@pytest.mark.slow
@pytest.mark.parametrize("when_away", ["none", "cached", "wait", "stop"])
def test_the_model_is_killed_for_20_seconds(tmp_path, when_away):
    import envs

    world, folder = tmp_path / "world.json", tmp_path / "llm"
    world.write_text(json.dumps(envs.knowledge("crafter")))
    folder.mkdir()
    serving = service(folder, world)
    words = [*SMALL, f"llm.address={folder}", f"llm.when_away={when_away}", "learner.env_steps=10000000"]
    words += [f"run.folder={tmp_path}", "run.name=a", "env.length=200"]
    process = subprocess.Popen([sys.executable, "launch.py", "run", *words], cwd=ROOT)
    made = tmp_path / "a"

    def steps():
        found = rows(made) if (made / "metrics.jsonl").exists() else []
        return found[-1]["env_steps"] if found else 0

    try:
        until(lambda: steps() > 3000)
        os.killpg(serving.pid, signal.SIGKILL)
        serving.wait()
        killed = time.monotonic()
        if when_away == "stop":
            assert process.wait(60) == 5  # saved, and to be tried again
            assert json.loads((made / "status.json").read_text())["state"] == "stopped"
            return
        time.sleep(12)  # what was under way when it died is over
        before = steps()
        time.sleep(max(0.0, killed + 20 - time.monotonic()))
        during = steps() - before
        assert (during == 0) == (when_away == "wait")
        serving = service(folder, world)
        after = steps()
        until(lambda: steps() > after + 3000)
        away = [row.get("goals/away", 0.0) for row in rows(made)]  # none before the first episode is over
        assert (max(away) > 0.1) == (when_away != "wait")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 3
    finally:
        process.kill()
        if serving.poll() is None:
            os.killpg(serving.pid, signal.SIGKILL)
        process.wait()
