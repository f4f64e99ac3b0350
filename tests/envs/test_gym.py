"""Any Gymnasium env behind the contract: its spaces, its endings, its own numbers."""

import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import envs

ROOT = Path(__file__).resolve().parents[2]


class Probe(gymnasium.Env):
    """Says what was done to it. Ends as told by its arguments."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, space=None, actions=None, ends="terminated", tells="is_success"):
        self.observation_space = space or spaces.Dict(
            {
                "matrix": spaces.Box(-9, 9, (2, 3), np.float64),
                "mode": spaces.Discrete(4, start=10),
                "note": spaces.Text(40),
            }
        )
        self.action_space = actions or spaces.Discrete(3, start=5)
        self.ends, self.tells = ends, tells

    def _observe(self, action):
        return {"matrix": np.full((2, 3), self.clock), "mode": 10 + self.clock, "note": f"{self.start} {action}"}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock, self.start = 0, int(self.np_random.integers(100))
        return self._observe("none"), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.clock += 1
        over = self.clock == 3
        info = {self.tells: over and self.ends == "success"} if self.tells else {}
        return self._observe(action), 0.5, over and self.ends != "truncated", over and self.ends == "truncated", info


@pytest.fixture(autouse=True)
def _probe():
    gymnasium.register("Probe-v0", entry_point=Probe)
    yield
    del gymnasium.registry["Probe-v0"]


def test_every_kind_of_field():
    env = envs.make("gym/Probe-v0", 2)
    fields = env.env_spec.fields
    assert {name: (f.kind, f.shape, f.size) for name, f in fields.items()} == {
        "matrix": ("vector", (6,), 0),
        "mode": ("category", (), 4),
        "note": ("text", (), 0),
    }
    env.begin(np.array([1, 2]))
    obs = env.advance(np.array([0, 2])).obs
    assert np.array_equal(obs["matrix"], np.ones((2, 6), np.float32))
    assert obs["matrix"].dtype == np.float32
    assert obs["mode"].tolist() == [1, 1]
    starts = [int(np.random.default_rng(seed).integers(100)) for seed in (1, 2)]
    assert env.texts.texts(obs["note"]) == [f"{starts[0]} 5", f"{starts[1]} 7"]  # actions counted from 5


@pytest.mark.parametrize("ends", ["terminated", "truncated", "success"])
def test_endings_are_the_envs_own(ends):
    env = envs.make("gym/Probe-v0", 1, arguments={"ends": ends})
    env.begin()
    for _ in range(2):
        assert not len(env.advance(np.array([0])).episodes)
    transition = env.advance(np.array([0]))
    assert transition.terminated.tolist() == [ends != "truncated"]
    assert transition.truncated.tolist() == [ends == "truncated"]
    assert transition.episodes.success.tolist() == [ends == "success"]
    assert transition.episodes.total.tolist() == [1.5]
    assert transition.final_obs["mode"].tolist() == [3]
    assert transition.obs["mode"].tolist() == [0]


@pytest.mark.parametrize(
    ("tells", "option", "score", "solved"),
    [
        ("is_success", "auto", "", True),
        ("success", "auto", "", True),
        ("", "auto", "return", False),
        ("won", "auto", "return", False),
        ("won", "won", "", True),
        ("is_success", "none", "return", False),
        ("is_success", "won", "", False),
    ],
)
def test_a_world_that_tells_no_success_is_judged_by_its_return(tells, option, score, solved):
    options = {"arguments": {"ends": "success", "tells": tells}, "success": option}
    env = envs.make("gym/Probe-v0", 1, **options)
    assert env.env_spec.score == envs.spec("gym/Probe-v0", **options).score == score
    env.begin()
    for _ in range(3):
        transition = env.advance(np.array([0]))
    assert transition.episodes.success.tolist() == [solved]


def test_whether_success_is_told_is_found_out_once(monkeypatch):
    played = []
    real = Probe.step
    monkeypatch.setattr(Probe, "step", lambda self, action: played.append(action) or real(self, action))
    arguments = {"ends": "truncated", "tells": "", "space": spaces.Box(-9, 9, (2, 3), np.float64)}
    monkeypatch.setattr(Probe, "_observe", lambda self, action: np.zeros((2, 3)))
    assert {envs.spec("gym/Probe-v0", arguments=arguments).score for _ in range(3)} == {"return"}
    assert len(played) == 3


@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "Pendulum-v1"])
def test_episodes_are_gymnasiums_own(name):
    env, raw = envs.make(f"gym/{name}", 1), gymnasium.make(name)
    generator = np.random.default_rng(0)
    obs, (expected, _) = env.begin(np.array([4])), raw.reset(seed=4)
    for _ in range(220):
        assert np.array_equal(obs["observation"][0], expected.astype(np.float32))
        action = generator.normal(0, 2, (1, 1)) if not env.env_spec.discrete else generator.integers(0, 2, 1)
        transition = env.advance(action.astype(np.float32) if not env.env_spec.discrete else action)
        native = int(action[0]) if env.env_spec.discrete else np.clip(action[0], -2, 2).astype(np.float32)
        expected, reward, terminated, truncated, _ = raw.step(native)
        assert transition.reward[0] == np.float32(reward)
        assert (transition.terminated[0], transition.truncated[0]) == (terminated, truncated)
        obs = transition.obs
        if terminated or truncated:
            assert np.array_equal(transition.final_obs["observation"][0], expected.astype(np.float32))
            return
    assert name in ("Acrobot-v1",)


def test_box_actions_are_clipped_and_shaped():
    box = spaces.Box(np.array([[-1, 0]]), np.array([[1, 2]]), dtype=np.float32)
    env = envs.make("gym/Probe-v0", 1, arguments={"actions": box})
    assert env.env_spec.action_shape == (2,)
    env.begin(np.array([0]))
    note = env.texts[env.advance(np.array([[-5.0, 1.5]])).obs["note"][0]]
    assert note.endswith("[[-1.   1.5]]")


def test_a_fallen_pole_is_no_success():
    env = envs.make("gym/CartPole-v1", 1)
    env.begin()
    while not len(episodes := env.advance(np.array([1])).episodes):
        pass
    assert not episodes.success.any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"space": spaces.MultiBinary(3)}, "cannot express 'observation', a MultiBinary"),
        ({"space": spaces.Dict({"inner": spaces.Dict({"x": spaces.Discrete(2)})})}, "cannot express 'inner'"),
        ({"actions": spaces.MultiDiscrete([2, 2])}, "actions must be Discrete or Box"),
    ],
)
def test_other_spaces_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        envs.make("gym/Probe-v0", arguments=arguments)


def test_actions_out_of_range_are_refused():
    env = envs.make("gym/CartPole-v1", 1)
    env.begin()
    with pytest.raises(ValueError, match="0 to 1"):
        env.advance(np.array([2]))


def test_unknown_ids_are_refused_with_a_suggestion():
    with pytest.raises(envs.UnknownEnv, match="gym/CartPole-v1"):
        envs.make("gym/CartPol-v1")
    with pytest.raises(envs.UnknownEnv):
        envs.make("gym/nonsense")


@pytest.mark.parametrize("style", ["option", "id"])
def test_a_users_module_is_imported_first(tmp_path, monkeypatch, style):
    (tmp_path / "users_own_envs.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('Users-v3', entry_point=CartPoleEnv, max_episode_steps=7)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        if style == "option":
            env = envs.make("gym/Users-v3", module="users_own_envs")
        else:
            env = envs.make("gym/users_own_envs:Users-v3")
        env.begin()
        truncated = [bool(env.advance(np.array([step % 2])).truncated[0]) for step in range(7)]
        assert truncated == [False] * 6 + [True]
    finally:
        gymnasium.registry.pop("Users-v3", None)
        sys.modules.pop("users_own_envs", None)


def test_minigrids_missions_are_texts():
    env = envs.make("gym/BabyAI-GoToLocal-v0", 1, module="minigrid")
    obs = env.begin(np.array([0]))
    raw, _ = gymnasium.make("BabyAI-GoToLocal-v0").reset(seed=0)
    assert env.texts[obs["mission"][0]] == raw["mission"]
    assert np.array_equal(obs["image"][0], raw["image"].ravel())


def test_frames_are_of_the_running_episode():
    env = envs.make("gym/CartPole-v1", 2)
    env.begin(np.array([3, 4]))
    raw = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    raw.reset(seed=4)
    for action in (0, 1, 1, 1):
        env.advance(np.array([1, action]))
        raw.step(action)
        if action:
            assert np.array_equal(env.frame(1), raw.render())
    assert not np.array_equal(env.frame(0), env.frame(1))
    assert np.array_equal(env.frame(1), raw.render())


def test_frames_are_drawn_without_a_word_where_there_is_no_screen():
    """What draws them looks for a screen once a process, and would print an error."""
    drawn = "import envs; env = envs.make('gym/CartPole-v1', num_envs=1); env.reset(seed=0); print(env.frame(0).shape)"
    without = {name: value for name, value in os.environ.items() if name not in ("XDG_RUNTIME_DIR", "SDL_VIDEODRIVER")}
    done = subprocess.run([sys.executable, "-c", drawn], env=without, cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.strip().endswith("(400, 600, 3)")


def test_frames_follow_a_restore():
    env = envs.make("gym/CartPole-v1", 1)
    env.begin(np.array([3]))
    state, start = env.state(), env.frame(0)
    frames = []
    for action in (0, 1):
        env.restore(state)
        assert np.array_equal(env.frame(0), start)
        for _ in range(6):
            env.advance(np.array([action]))
        frames.append(env.frame(0))
        env.restore(state)
        for _ in range(8):
            env.advance(np.array([1 - action]))
    assert not np.array_equal(*frames)
    later = env.frame(0)
    assert not np.array_equal(later, frames[1])
    again = envs.make("gym/CartPole-v1", 1)
    again.begin(np.array([3]))
    for _ in range(8):
        again.advance(np.array([0]))
    assert np.array_equal(later, again.frame(0))


def test_an_env_that_cannot_draw_says_so():
    env = envs.make("gym/Probe-v0", 1)
    env.begin()
    with pytest.raises(LookupError, match="no render mode rgb_array"):
        env.frame(0)
