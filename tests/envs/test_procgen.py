"""Procgen in a process of its own: what it promises beyond the contract, and what goes wrong in one sentence.

What any world promises is in `test_contract`. Tests of the games need the Python that docs/procgen.md sets up.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import envs
from envs import HELD_OUT_FIRST, procgen

PYTHON = procgen.python(procgen.Config())
played = pytest.mark.skipif(PYTHON is None, reason="Procgen has no Python here: docs/procgen.md says how to set it up")

REFERENCE = """
import hashlib, json, sys
import numpy as np
from procgen import ProcgenGym3Env
from procgen.env import ENV_NAMES

name, mode, level, actions = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
game = ProcgenGym3Env(num=1, env_name=name, start_level=level, num_levels=1, distribution_mode=mode, num_threads=0)
told = {"games": ENV_NAMES, "keys": game.get_combos(), "rewards": [], "ended": []}
pictures = [game.observe()[1]["rgb"][0].copy()]
for action in actions:
    game.act(np.array([action]))
    reward, picture, first = game.observe()
    told["rewards"].append(float(reward[0]))
    told["ended"].append(bool(first[0]))
    pictures.append(picture["rgb"][0].copy())
    if first[0]:
        pictures.pop()  # of the next episode
        break
told["pictures"] = hashlib.sha256(np.stack(pictures).tobytes()).hexdigest()
print(json.dumps(told))
"""


def reference(game, mode, level, actions):
    """What Procgen's own interface shows of a level, made anew."""
    words = [PYTHON, "-I", "-c", REFERENCE, game, mode, str(level), json.dumps(actions)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@played
@pytest.mark.parametrize(
    ("game", "mode", "seed", "level"),
    [
        ("coinrun", "easy", 207, 7),
        ("starpilot", "hard", HELD_OUT_FIRST, 200),
        ("maze", "easy", HELD_OUT_FIRST + 103, 203),
    ],
)
def test_an_episode_is_procgens_own_of_the_level_that_the_seed_names(game, mode, seed, level):
    actions = np.random.default_rng(level).integers(0, 15, 399).tolist()
    told = reference(game, mode, level, actions)
    env = envs.make(f"procgen/{game}", 2, seed=1, mode=mode)
    env.begin(np.array([3, 4]))
    env.advance(np.array([1, 2]))  # another level before it, of which nothing may be left
    first = env.begin(np.array([8, seed]))
    assert env.env_spec.task(np.array([seed]))[0] == level
    pictures, rewards, ended = [first["pixels"][1]], [], []
    for action in actions[: len(told["rewards"])]:
        step = env.advance(np.array([4, action]))
        rewards.append(float(step.reward[1]))
        ended.append(bool(step.terminated[1]))
        pictures.append(step.obs["pixels"][1])
    pictures = pictures[:-1] if ended[-1] else pictures
    assert (rewards, ended) == (told["rewards"], told["ended"])
    assert hashlib.sha256(np.stack(pictures).tobytes()).hexdigest() == told["pictures"]


@played
def test_games_and_actions_are_procgens():
    told = reference("maze", "easy", 0, [])
    assert told["games"] == procgen.names()
    keys = [
        " and ".join(sorted(map(str.lower, combination), key=["left", "right", "down", "up"].index))
        for combination in told["keys"][:9]
    ]
    assert ["nothing" if key == "" else key for key in keys] == list(procgen.ACTION_NAMES[:9])
    assert [f"key {combination[0]}" for combination in told["keys"][9:]] == list(procgen.ACTION_NAMES[9:])


@played
def test_the_last_picture_is_the_true_one_where_time_is_up_and_the_one_before_it_where_the_game_ended():
    env, longer = (envs.make("procgen/starpilot", 8, seed=2, length=length) for length in (60, 499))
    before, _ = env.begin()["pixels"], longer.begin()
    generator, truncated, terminated = np.random.default_rng(0), 0, 0
    running = np.ones(8, np.bool_)  # where both play the first episode
    for _ in range(60):
        actions = generator.integers(0, 15, 8)
        step, other = env.advance(actions), longer.advance(actions)
        for row, i in enumerate(step.final_index):
            picture = step.final_obs["pixels"][row]
            if running[i] and step.truncated[i]:
                assert np.array_equal(picture, other.obs["pixels"][i])
                assert not np.array_equal(picture, before[i])
                truncated += 1
            elif step.terminated[i]:
                assert np.array_equal(picture, before[i])
                terminated += 1
        running &= ~step.terminated
        before = step.obs["pixels"]
    assert truncated
    assert terminated


@played
def test_a_process_that_dies_is_one_clear_error():
    env = envs.make("procgen/maze", 2)
    env.begin()
    os.kill(env.child.process.pid, signal.SIGKILL)
    with pytest.raises(procgen.ProcgenEnded, match=r"^Procgen's process is gone \(SIGKILL\)$"):
        env.advance(np.array([0, 0]))
    env.close()


@played
def test_the_process_ends_with_the_env():
    closed, dropped = envs.make("procgen/maze", 1), envs.make("procgen/maze", 1)
    processes = [closed.child.process, dropped.child.process]
    assert [process.poll() for process in processes] == [None, None]
    closed.close()
    del dropped
    assert [process.poll() for process in processes] == [0, 0]
    with pytest.raises(procgen.ProcgenEnded, match="the env was closed"):
        closed.begin()


@played
def test_a_state_of_longer_episodes_is_refused():
    env = envs.make("procgen/maze", 1)
    env.begin()
    for _ in range(9):
        env.advance(np.array([4]))
    with pytest.raises(ValueError, match="has an episode of 9 steps, but those of this env have 9"):
        envs.make("procgen/maze", 1, length=9).restore(env.state())


def test_without_its_python_it_says_how_to_get_one(tmp_path):
    for build in (envs.spec, envs.make):
        with pytest.raises(
            envs.UnknownEnv, match=r"nowhere is none: run `python3.11 -m venv \.procgen && .*env\.python"
        ):
            build("procgen/coinrun", python=str(tmp_path / "nowhere"))


def test_a_python_without_procgen_is_told_from_one_that_has_it():
    with pytest.raises(
        procgen.ProcgenEnded, match=r"does not run Procgen \(exit code 1\): .*No module named 'procgen'"
    ):
        envs.make("procgen/coinrun", python=sys.executable)


def test_another_version_is_refused(tmp_path):
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\necho 0.9.5\ncat > /dev/null\n")
    old.chmod(0o755)
    with pytest.raises(procgen.ProcgenEnded, match=r"has Procgen 0\.9\.5, but its levels are those of 0\.10\.7"):
        envs.make("procgen/coinrun", python=str(old))


def test_training_seeds_name_the_first_levels_and_held_out_ones_those_that_follow():
    spec = envs.spec("procgen/coinrun", python=sys.executable, levels=20, held_out=3)
    seeds = np.array([0, 19, 20, HELD_OUT_FIRST - 1, HELD_OUT_FIRST, HELD_OUT_FIRST + 2, HELD_OUT_FIRST + 3])
    assert spec.task(seeds).tolist() == [0, 19, 0, (HELD_OUT_FIRST - 1) % 20, 20, 22, 20]
    with pytest.raises(ValueError, match="less than 500"):
        envs.spec("procgen/coinrun", python=sys.executable, length=500)
