"""What an actor imports: those that need no PyTorch do not pay for it. Each plays in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BEGIN = """
import sys
import numpy as np
import envs
from actors import ActorsConfig, ActorSetup, RolloutActor
from learner.models import PolicyConfig

def actor(env_id, **policy):
    config = ActorsConfig(n=1, envs=2, steps=4)
    return RolloutActor(ActorSetup(env_id, {}, envs.spec(env_id), config, PolicyConfig(**policy), 3, False), 0)

seeds = envs.HELD_OUT_FIRST + np.arange(2)
"""

WITHOUT = {
    "random": """
played = actor("toy/Line", network="film").evaluate(None, 0, seeds, "random", True, 0)
assert len(played.episodes) == 2
""",
    "expert": """
played = actor("babyai/GoToLocal").evaluate(None, 0, seeds, "expert", True, 0)
assert played.episodes.success.all()
""",
    "search": """
from actors.behaviours.novelty import NoveltyEvaluator, EvaluatorSetup
player = NoveltyEvaluator(EvaluatorSetup("", 20))
assert player.ready()["pid"]
assert len(player.play(np.zeros((3, 302), np.float32)).descriptor) == 3
""",
    "mlp": """
weights = {
    "network.first_weight": np.ones((3, 8)), "network.first_bias": np.zeros(8),
    "network.second_weight": np.ones((2, 4, 4)), "network.second_bias": np.zeros((2, 1, 4)),
    "actor.weight": np.zeros((3, 4)), "actor.bias": np.zeros(3),
    "critic.weight": np.ones((1, 4)), "critic.bias": np.zeros(1),
}
weights = {name: value.astype(np.float32) for name, value in weights.items()}
mover = actor("toy/Line", network="mlp", hidden=4, reads=["position"])
summary, chunk = mover.rollout(weights, 1)
assert chunk.steps == 8 and chunk.value.shape == (5, 2)
assert len(mover.evaluate(weights, 1, seeds, "policy", False, 0).episodes) == 2
""",
}


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", BEGIN + code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("player", WITHOUT)
def test_players_that_need_no_pytorch_do_not_import_it(player):
    run(WITHOUT[player] + "\nassert 'torch' not in sys.modules, sorted(n for n in sys.modules if 'torch' in n)[:5]\n")


def test_a_policy_of_pytorch_does():
    """What the tests above look for is there to be found."""
    run(
        """
from learner.group import build_policy, get_weights
player = actor("toy/Line", network="mlp")
assert "torch" in sys.modules  # by the learner's half of this process
"""
    )
    run(
        """
player = actor("toy/Line", network="mlp")
assert "torch" not in sys.modules
player.player  # it reads the mission
assert "torch" in sys.modules
"""
    )


def test_the_configuration_of_a_policy_is_data():
    run("assert 'torch' not in sys.modules and PolicyConfig().network == 'film'")
