"""What the README tells a new user to type is read from it, and composed."""

import re
from pathlib import Path

import gymnasium
import pytest

from cluster.config.tree import compose

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
ENV = """
import gymnasium
from gymnasium import spaces


class MyEnv(gymnasium.Env):
    observation_space = spaces.Dict({"place": spaces.Box(-1, 1, (2,)), "mission": spaces.Text(40)})
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, True, False, {}


gymnasium.register("MyEnv-v0", entry_point=MyEnv)
"""


@pytest.fixture
def own_env(tmp_path, monkeypatch):
    """An env of a Dict of Box and Text, in the module that the README names."""
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "envs.py").write_text(ENV)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    gymnasium.registry.pop("MyEnv-v0", None)


@pytest.mark.usefixtures("own_env")
def test_the_example_of_an_env_of_ones_own_can_be_run_as_it_stands():
    (words,) = re.findall(r"^python launch\.py run (env=gym/MyEnv-v0 .*)$", README, re.MULTILINE)
    config = compose(words.split())
    spec = config.spec
    assert {name: field.kind for name, field in spec.fields.items()} == {"place": "vector", "mission": "text"}
    assert spec.score == "return"
