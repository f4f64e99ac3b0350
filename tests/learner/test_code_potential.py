"""A written program as a potential: what it says, what becomes of its faults, and where its text is kept."""

import importlib.util
import re

import numpy as np
import pytest

import envs
from cluster import run as controller
from cluster.config.tree import ConfigError, compose, load
from learner.potentials import PotentialSetup, ShapingConfig, potential
from learner.windows import Trail
from tests.extending import PAGE

ENV = "babyai/GoToLocal"
(NEAR,) = re.findall(r"```python\n(.*?)```", (PAGE.parent / "shaping.md").read_text(), re.S)


@pytest.fixture
def near(tmp_path):
    """The program of the page, as a file and as the function that it is."""
    path = tmp_path / "near.py"
    path.write_text(NEAR)
    spec = importlib.util.spec_from_file_location("near", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return path, module.potential


def windows_of(length=3, steps=40):
    world, rng = envs.make(ENV, 16, 1), np.random.default_rng(0)
    trail = Trail(["image"], length)
    trail.begin(world.begin())
    for _ in range(steps):
        actions = rng.integers(3, size=16)
        trail.add(actions, world.advance(actions))
    return trail.chunk()[0]


def code(program, **options):
    return potential("code")(PotentialSetup(ShapingConfig(program=program, **options), envs.spec(ENV).fields, 0))


def test_it_says_what_the_function_says_of_whole_numbers(near):
    path, function = near
    windows = windows_of()
    found = code(str(path)).phi(windows)
    expected = [function(o, a) for o, a in zip(windows.obs("image").tolist(), windows.actions.tolist(), strict=True)]
    np.testing.assert_allclose(found, np.array(expected, np.float32), atol=1e-6)
    assert 0.02 < (found > 0).mean() < 0.9  # a red ball is in view at times


def test_it_sees_actions_with_a_gap_before_the_first():
    windows = windows_of()
    found = code("def potential(observations, actions):\n    return actions[0] * 10 + actions[1]\n").phi(windows)
    np.testing.assert_array_equal(found, windows.actions @ [10, 1])
    assert windows.actions.min() == -1


def test_where_it_fails_the_potential_is_0_and_counted():
    windows = windows_of()
    made = code("def potential(observations, actions):\n    return 1 / (actions[-1] - 1)\n")
    found = made.phi(windows)
    failed = windows.actions[:, -1] == 1
    assert failed.any()
    assert (found[failed] == 0).all()
    assert (found[~failed] != 0).all()
    assert sum(made.report().values()) == failed.sum()
    assert not made.report()


def test_a_run_keeps_the_text_and_counts_its_windows(near, tmp_path):
    path, _ = near
    asked = f"env=babyai method.shaping.potential=code method.shaping.program={path} cluster=inline actors.envs=8"
    small = "actors.steps=16 learner.env_steps=1024 evaluate.every=0 evaluate.episodes=4 evaluate.videos=0 run.name=a"
    words = [*asked.split(), *small.split(), f"run.folder={tmp_path}"]
    assert controller.run(compose(words)) == 0
    path.unlink()
    kept = load(tmp_path / "a" / "config.yaml")
    assert "def potential(observations, actions)" in kept.method.shaping.program
    assert kept.spec  # whoever reads the run needs no file
    rows = (tmp_path / "a" / "metrics.jsonl").read_text()
    assert '"shaping/windows": ' in rows
    assert '"rewards/shaping": ' in rows


def test_what_is_wrong_is_said_before_anything_starts(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("def potential(observations, actions):\n    import os\n    return 0\n")
    base = ["env=toy/Line", "method.shaping.potential=code"]
    for words, said in (
        ([], "set method.shaping.program=FILE.py"),
        ([f"method.shaping.program={tmp_path}/none.py"], r"none\.py cannot be read: .*No such file"),
        ([f"method.shaping.program={bad}"], "method.shaping.program: refused: line 2"),
        (["env=gym/CartPole-v1", f"method.shaping.program={tmp_path}/good.py"], "no such field of whole numbers"),
        (
            [f"method.shaping.program={tmp_path}/good.py", "method.shaping.shows=image"],
            "no such field of whole numbers",
        ),
    ):
        (tmp_path / "good.py").write_text(bad.read_text().replace("    import os\n", ""))
        with pytest.raises(ConfigError, match=said):
            compose([*base, *words])
