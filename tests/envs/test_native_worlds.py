"""Where the compiled engine's levels come from, rows and Minigrid's environments, and what is refused."""

import os
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from minigrid.core.world_object import Ball, Lava
from minigrid.envs.babyai.core.verifier import GoToInstr, ObjDesc

import envs
from envs.babyai.levels import build
from envs.babyai.world import DRAWN_FIRST
from envs.native.babyai.exact import ExactLevels, make
from envs.native.babyai.generators import Generator
from envs.native.babyai.layout import CARRYING, CODE, DIRECTION, MAP, NONE, THING, cell_at, empty_rows, row_size
from envs.native.babyai.packing import CannotPack, pack, unpack

WALK = np.array([0.15, 0.15, 0.3, 0.12, 0.1, 0.15, 0.03])  # meets, moves and opens things


# ---- where levels come from ------------------------------------------------------------------------------------------


def test_a_seed_names_one_level_whoever_asks():
    exact, drawn = envs.make("babyai/GoToObjS4", 4), envs.make("babyai/GoToObjS4", 4, levels="native")
    assert (exact.drawn, drawn.drawn) == (False, True)
    exact.begin(np.arange(4))
    drawn.begin(np.arange(4))
    assert np.array_equal(exact.rows, drawn.rows)
    exact.begin()
    drawn.begin()
    assert not np.array_equal(exact.rows, drawn.rows)
    assert np.array_equal(exact._seed + DRAWN_FIRST, drawn._seed)
    exact.begin(drawn._seed)
    assert np.array_equal(exact.rows, drawn.rows)
    with pytest.raises(ValueError, match="engine=native plays it"):
        envs.make("babyai/GoToObjS4", 4, engine="minigrid").begin(drawn._seed)


def test_engines_play_the_same_episodes_one_after_the_other():
    native, minigrid = (envs.make("babyai/GoToObjS4", 3, 4, engine=engine) for engine in ("native", "minigrid"))
    native.begin()
    minigrid.begin()
    for action in np.random.default_rng(0).choice(7, (60, 3), p=WALK):
        a, b = native.advance(action), minigrid.advance(action)
        assert np.array_equal(a.obs["image"], b.obs["image"])
        assert np.array_equal(a.episodes.seed, b.episodes.seed)
    assert (native.episode > 0).all()


def test_a_level_without_a_compiled_generator_says_so_and_is_minigrids(monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs.make("babyai/GoToLocal", 2, levels="native")
    monkeypatch.setattr(Generator, "of", staticmethod(lambda simulator: None))
    with pytest.warns(UserWarning, match="babyai/GoToLocal has no compiled generator"):
        env = envs.make("babyai/GoToLocal", 2, 9, levels="native")
    env.begin()
    seeds = [envs.episode_seed(9, i, 0) for i in range(2)]
    assert np.array_equal(env.rows, make("GoToLocal", None, seeds))
    with pytest.raises(ValueError, match="names a drawn level"):
        env.begin(np.array([DRAWN_FIRST, 3]))


def test_workers_make_the_same_levels_ahead_and_may_be_killed():
    ahead = ExactLevels("GoToLocal", workers=1)
    seeds = np.arange(40)
    ahead.expect(seeds[:20])
    expected = make("GoToLocal", None, seeds.tolist())
    assert np.array_equal(ahead.take(seeds[:30]), expected[:30])
    ahead.expect(seeds[30:])
    for process in list(ahead._pool._processes.values()):
        os.kill(process.pid, signal.SIGKILL)
    assert np.array_equal(ahead.take(seeds[30:]), expected[30:])
    ahead.expect(seeds)
    assert np.array_equal(ahead.take(seeds[:5]), expected[:5])


ORPHANS = """
import os, time
import numpy as np
from envs.native.babyai.exact import ExactLevels
if __name__ == "__main__":
    levels = ExactLevels("GoToObjS4", workers=1)
    levels.expect(np.arange(4))
    levels.take(np.arange(4))
    print(*levels._pool._processes, flush=True)
    os._exit(1)
"""


def test_workers_end_with_their_parent_however_it_ends(tmp_path):
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": "."}
    )
    (worker,) = map(int, done.stdout.split())
    deadline = time.monotonic() + 20
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()


def test_threads_make_levels_beside_each_other():
    expected = make("GoToLocal", None, list(range(60)))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        with ThreadPoolExecutor(2) as threads:
            both = list(threads.map(lambda _: make("GoToLocal", None, list(range(60))), range(2)))
    finally:
        sys.setswitchinterval(before)
    assert all(np.array_equal(rows, expected) for rows in both)


def test_workers_behind_an_env():
    played = []
    for workers in (0, 1):
        env = envs.make("babyai/GoToObjS4", 8, levels="exact", level_workers=workers)
        env.begin()
        actions = np.random.default_rng(0).integers(0, 7, (40, 8))
        played.append([env.advance(action).obs["image"].tobytes() for action in actions])
        env.close()
    assert played[0] == played[1]


# ---- rows and Minigrid's environments --------------------------------------------------------------------------------


def assert_same_world(simulator, row):
    from envs.babyai.symbols import code_of_cell

    for y in range(simulator.grid.height):
        for x in range(simulator.grid.width):
            assert row[MAP + cell_at(row, x, y)] % THING == code_of_cell(simulator.grid.get(x, y))
    carried = row[CARRYING]
    assert code_of_cell(simulator.carrying) == (code_of_cell(None) if carried == NONE else row[CODE + carried])
    assert row[DIRECTION] == simulator.agent_dir


@pytest.mark.parametrize("level", ["BossLevel", "MixedTrainLocal", "PutNextS5N2Carrying", "KeyInBox", "OpenDoorDebug"])
def test_a_world_can_leave_and_go_on_as_a_minigrid_environment(level):
    env = envs.make(f"babyai/{level}", 3)
    env.begin()
    random = np.random.default_rng(0)
    shadow = build(level)
    for t in range(60):
        if t == 20:
            unpack(env.rows[1], int(env._length[1]), int(env._limit[1]), shadow)
            started = env.started[1]
        actions = random.choice(7, 3, p=WALK)
        transition = env.advance(actions)
        if t >= 20:
            _, reward, terminated, truncated, _ = shadow.step(int(actions[1]))
            assert (np.float32(reward), terminated, truncated) == (
                transition.reward[1],
                transition.terminated[1],
                transition.truncated[1],
            )
            if env.started[1] != started:
                break
            assert_same_world(shadow, env.rows[1])


def test_pictures_follow_the_world():
    env, reference = envs.make("babyai/GoToLocal", 2), envs.make("babyai/GoToLocal", 2, engine="minigrid")
    env.begin(np.arange(2))
    reference.begin(np.arange(2))
    for action in (2, 0, 2, 3, 1):
        assert np.array_equal(env.frame(1), reference.frame(1))
        env.advance(np.full(2, action))
        reference.advance(np.full(2, action))


def test_what_rows_cannot_hold_is_refused():
    simulator = build("GoToLocal")
    simulator.reset(seed=0)
    with pytest.raises(CannotPack, match="does not fit"):
        pack(simulator, np.zeros(row_size(5, 5), np.int16))
    simulator.grid.set(1, 1, Lava())
    with pytest.raises(CannotPack, match="no lava"):
        pack(simulator, np.zeros(row_size(8, 8), np.int16))
    with pytest.raises(ValueError, match="too large"):
        empty_rows(1, 500, 500)
    crowded = build("GoTo")
    crowded.reset(seed=0)
    crowded.grid.grid = [Ball("red") for _ in crowded.grid.grid]
    with pytest.raises(CannotPack, match="more than 64 things"):
        pack(crowded, np.zeros(row_size(22, 22), np.int16))
    walls = build("GoToLocal")
    walls.reset(seed=0)
    walls.instrs = GoToInstr(ObjDesc(None, "grey"))
    walls.instrs.reset_verifier(walls)
    with pytest.raises(CannotPack, match="walls"):
        pack(walls, np.zeros(row_size(8, 8), np.int16))


def test_an_env_that_has_not_begun_says_so():
    env = envs.make("babyai/GoToLocal", 2)
    for ask in (lambda: env.step(np.zeros(2, np.int64)), env.state, lambda: env.frame(0)):
        with pytest.raises(ValueError, match="has not begun"):
            ask()


@pytest.mark.parametrize("seeds", [[-1, 0], [0], [0.5, 1.0]])
def test_seeds_that_are_none_are_refused(seeds):
    with pytest.raises(ValueError, match="2 integers that are not negative"):
        envs.make("babyai/GoToLocal", 2).begin(np.array(seeds))
    with pytest.raises(ValueError, match="must not be negative"):
        envs.make("babyai/GoToLocal", 2, seed=-1)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("length", np.array([2**30, 5], np.int32), "do not fit"),
        ("length", np.array([-1, 5], np.int32), "do not fit"),
        ("length", np.array([5], np.int32), "of 1 envs"),
        ("log", np.full((2, 9), 300, np.int16), "actions that do not exist"),
        ("log", np.zeros((1, 9), np.int16), "do not fit"),
        ("log", np.zeros((2, 9)), "do not fit"),
        ("episode", np.zeros(2), "episode is float64"),
    ],
)
def test_a_damaged_state_is_refused_and_nothing_moves(name, value, said):
    env = envs.make("babyai/GoToLocal", 2)
    env.begin(np.arange(2))
    for _ in range(9):
        env.advance(np.array([2, 1]))
    state, rows = env.state(), env.rows.copy()
    with pytest.raises(ValueError, match=said):
        env.restore(state | {name: value})
    del state["log"]
    with pytest.raises(ValueError, match="lacks log"):
        env.restore(state)
    assert np.array_equal(env.rows, rows)


@pytest.mark.parametrize("action", [-1, 7, 300])
def test_an_action_that_does_not_exist_is_a_sentence(action):
    env = envs.make("babyai/GoToLocal", 2)
    env.begin()
    rows = env.rows.copy()
    with pytest.raises(ValueError, match="0 to 6"):
        env.advance(np.array([0, action]))
    with pytest.raises(ValueError, match="one for each env"):
        env.advance(np.zeros(3, np.int64))
    assert np.array_equal(env.rows, rows)


def test_idle_actions_do_nothing():
    env = envs.make("babyai/GoToLocal", 1, actions=3, idle_actions=["sleep"])
    env.begin()
    rows = env.rows.copy()
    env.advance(np.array([3]))
    assert np.array_equal(env.rows, rows)


MANY = """
from pathlib import Path
import numpy as np
import envs
env = envs.make("babyai/GoToLocal", 65_536, levels="native", captions=True)
env.begin()
for action in np.random.default_rng(0).integers(0, 7, (20, 65_536)):
    env.advance(action)
(peak,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(peak.split()[1])
"""


def test_65536_worlds_take_under_one_gibibyte():
    """The whole process, its libraries included."""
    done = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 < 2**30
