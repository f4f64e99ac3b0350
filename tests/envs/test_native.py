"""The compiled engine with exact levels is Minigrid: every number and every sentence, over episodes' ends."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from minigrid.core.world_object import Ball, Lava
from minigrid.envs.babyai.core.verifier import GoToInstr, ObjDesc

import envs
from envs.babyai import Expert, describe, names
from envs.babyai.grammar import NOTHING
from envs.babyai.levels import build
from envs.babyai.world import DRAWN_FIRST
from envs.native.babyai import motion
from envs.native.babyai.exact import ExactLevels, make
from envs.native.babyai.generators import Generator
from envs.native.babyai.layout import CARRYING, CODE, DIRECTION, MAP, NONE, THING, cell_at, empty_rows, row_size
from envs.native.babyai.packing import CannotPack, pack, unpack

WALK = np.array([0.15, 0.15, 0.3, 0.12, 0.1, 0.15, 0.03])  # meets, moves and opens things


class Reference:
    """Plain Minigrid environments, one an env, reset where an episode ends, to the seed that the contract names."""

    def __init__(self, level, seeds):
        self.simulators = [build(level) for _ in seeds]
        self.roots, self.episode = list(seeds), [0] * len(seeds)
        self.obs = [s.reset(seed=seed)[0] for s, seed in zip(self.simulators, seeds, strict=True)]

    def step(self, actions):
        """Rewards, ends, and the last observation of each env whose episode ended."""
        rewards, terminated, truncated, last = [], [], [], {}
        for i, (simulator, action) in enumerate(zip(self.simulators, actions.tolist(), strict=True)):
            self.obs[i], reward, *ends, _ = simulator.step(action)
            rewards.append(np.float32(reward))
            terminated.append(bool(ends[0]))
            truncated.append(bool(ends[1]))
            if any(ends):
                last[i] = self.obs[i]
                self.episode[i] += 1
                seed = envs.episode_seed(self.roots[i], i, self.episode[i])
                self.obs[i] = simulator.reset(seed=seed)[0]
        return rewards, terminated, truncated, last


def assert_same(env, obs, expected):
    """Observations of our env are these of Minigrid, with the captions of `describe`."""
    images = np.stack([o["image"] for o in expected])
    assert np.array_equal(obs["image"], images)
    assert obs["direction"].tolist() == [o["direction"] for o in expected]
    assert env.texts.texts(obs["mission"]) == [o["mission"] for o in expected]
    captions = [". ".join(sentences) or NOTHING["en"] for sentences in describe(images)]
    assert env.texts.texts(obs["caption"]) == captions


def play_beside(level, seeds, steps):
    env = envs.make(f"babyai/{level}", len(seeds), levels="exact", captions=True, language="en")
    reference = Reference(level, seeds)
    actions = np.random.default_rng(sum(map(ord, level)))
    obs = env.begin(np.array(seeds))
    for _ in range(steps):
        assert_same(env, obs, reference.obs)
        taken = actions.choice(7, len(seeds), p=WALK)
        transition = env.advance(taken)
        rewards, terminated, truncated, last = reference.step(taken)
        assert transition.reward.tolist() == rewards
        assert transition.terminated.tolist() == terminated
        assert transition.truncated.tolist() == truncated
        assert transition.final_index.tolist() == list(last)
        if last:
            assert_same(env, transition.final_obs, list(last.values()))
        obs = transition.obs
    return env


@pytest.mark.parametrize("level", names())
def test_is_minigrid(level):
    play_beside(level, seeds=range(3), steps=40)


@pytest.fixture(scope="module")
def long_plays(request):
    """The levels that were asked for, played on all cores: {level: its play}. Most of the time is Minigrid's."""
    asked = [i for i in request.session.items if getattr(i, "originalname", "") == "test_is_minigrid_for_long"]
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        yield {level: pool.submit(play_long, level) for level in (item.callspec.params["level"] for item in asked)}
        pool.shutdown(cancel_futures=True)


def play_long(level):
    play_beside(level, seeds=range(200), steps=200)


@pytest.mark.slow
@pytest.mark.parametrize("level", names())
def test_is_minigrid_for_long(level, long_plays):
    long_plays[level].result()


def test_is_minigrid_over_many_episodes():
    env = play_beside("GoToObjS4", seeds=range(7, 10), steps=120)
    assert (env.episode >= 3).all()


def follow_bot(level, seeds, noise=0.1, steps=300):
    """Episodes that get somewhere: Minigrid's bot, with some random actions; both verifiers after each step."""
    simulator = build(level)
    rows = empty_rows(1, simulator.width, simulator.height)
    reward, terminated, truncated = np.zeros(1, np.float32), np.zeros(1, bool), np.zeros(1, bool)
    solved = failed = 0
    for seed in seeds:
        env = envs.make(f"babyai/{level}", 1, engine="minigrid")
        env.begin(np.array([seed]))
        pack(env.simulator(0), rows[0])
        expert, random = Expert(), np.random.default_rng(seed)
        for step in range(steps):
            action = expert.act(env)
            if random.random() < noise:
                action = random.integers(0, 6, 1)
            limit = np.array([env.simulator(0).max_steps], np.int32)
            motion.advance(rows, np.array([step], np.int32), limit, action, 6, reward, terminated, truncated)
            transition = env.advance(action)
            assert transition.reward == reward, (seed, step)
            assert (transition.terminated[0], transition.truncated[0]) == (terminated[0], truncated[0]), (seed, step)
            if terminated or truncated:
                solved += reward[0] > 0
                failed += terminated[0] and reward[0] == 0
                break
    return solved, failed


@pytest.mark.parametrize("level", ["PutNextLocal", "BossLevel", "MixedTrainLocal", "UnlockPickup", "SynthSeq"])
def test_missions_are_accomplished_when_minigrid_says_so(level):
    solved, failed = follow_bot(level, range(5))
    assert solved >= 4
    assert failed == 0


def test_strict_missions_fail_when_minigrid_says_so():
    solved, failed = follow_bot("OpenDoorsOrderN4Debug", range(12))
    assert solved + failed == 12
    assert failed >= 3


@pytest.mark.slow
@pytest.mark.parametrize("level", names())
def test_missions_are_accomplished_when_minigrid_says_so_everywhere(level):
    follow_bot(level, range(20))


# ---- the same streams however they are cut ---------------------------------------------------------------------------


def stream(levels, n, first=0, steps=90, only=None, level="GoToLocal"):
    """What envs `only` of n see and get, by actions that depend on the global index of an env."""
    env = envs.make(f"babyai/{level}", n, 5, first, levels=levels, captions=True)
    only = np.arange(n) if only is None else only
    actions = np.random.default_rng(3).integers(0, 7, (steps, 5000))[:, first : first + n]
    obs = env.begin()
    seen = []
    for action in actions:
        t = env.advance(action)
        said = [env.texts.texts(obs[name][only]) for name in ("mission", "caption")]
        got = [column[only].tolist() for column in (t.reward, t.terminated, t.truncated)]
        seen.append((obs["image"][only].tobytes(), *said, *got))
        obs = t.obs
    return seen


@pytest.mark.parametrize("levels", ["native", "exact"])
def test_one_env_or_thousands_are_the_same_streams(levels):
    steps = 90 if levels == "native" else 20
    few = stream(levels, 3, first=2, steps=steps)
    assert stream(levels, 5, steps=steps, only=np.array([2, 3, 4])) == few
    many = 4096 if levels == "native" else 64
    assert stream(levels, many, steps=steps, only=np.array([2, 3, 4])) == few
    one_by_one = [stream(levels, 1, first=i, steps=steps) for i in (2, 3, 4)]
    assert [tuple(map(_joined, zip(*parts, strict=True))) for parts in zip(*one_by_one, strict=True)] == few


def _joined(parts):
    return b"".join(parts) if isinstance(parts[0], bytes) else [item for part in parts for item in part]


@pytest.mark.slow
def test_thousands_of_exact_envs_are_the_same_streams():
    few = stream("exact", 3, first=4093, steps=70)
    assert stream("exact", 4096, steps=70, only=np.array([4093, 4094, 4095])) == few


@pytest.mark.parametrize("levels", ["native", "exact"])
def test_a_restored_env_goes_on_as_if_nothing_had_been(levels):
    def make_env():
        return envs.make("babyai/MixedTrainLocal", 6, 1, levels=levels, captions=True)

    env, other = make_env(), make_env()
    actions = np.random.default_rng(0).choice(7, (150, 6), p=WALK)
    env.begin(np.arange(6) + 100)
    for action in actions[:100]:
        env.advance(action)
    obs = other.restore(env.state())
    for name, value in env._observe(slice(None)).items():
        texts = name in ("mission", "caption")
        assert np.array_equal(obs[name], value) or texts
        assert not texts or other.texts.texts(obs[name]) == env.texts.texts(value)
    for action in actions[100:]:
        a, b = env.advance(action), other.advance(action)
        assert np.array_equal(a.obs["image"], b.obs["image"])
        assert np.array_equal(a.reward, b.reward)
        assert np.array_equal(a.episodes.seed, b.episodes.seed)
        assert env.texts.texts(a.obs["mission"]) == other.texts.texts(b.obs["mission"])


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
