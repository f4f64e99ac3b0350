"""RLlib (new API stack) with one env runner for each actor, on a world whose step takes 20 ms: steady-state speed.

Network, chunk and batch are those of `configs/experiment/bench_scaling.yaml`. Limit: memory, since every env runner
imports PyTorch and RLlib; then the driver.
"""

# Peers' libraries are not installed where types are checked, so their objects are untyped.
# mypy: allow-subclassing-any, allow-untyped-calls, no-warn-return-any, disable-error-code="import-not-found"

from __future__ import annotations

import argparse
import logging
from typing import Any

import gymnasium
import numpy as np
import ray
from gymnasium import spaces
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env

from benchmarks.peers.common import one_thread
from benchmarks.peers.train_rllib import Learned, time_it

STEP_S, ROLLOUT, MINIBATCH, EPOCHS, HIDDEN = 0.02, 25, 256, 4, 64
CELLS = 3


class Position(gymnasium.ObservationWrapper[Any, Any, Any]):
    """The agent's cell, one-hot: our policy reads nothing else there."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(0.0, 1.0, (CELLS,), np.float32)

    def observation(self, observation: Any) -> Any:
        return np.eye(CELLS, dtype=np.float32)[observation["position"]]


def make_env(context: Any) -> gymnasium.Env[Any, Any]:
    from envs.single import SingleEnv

    return Position(SingleEnv("toy/Line", seed=context.worker_index, step_seconds=STEP_S))


def configure(algorithm: str, runners: int) -> AlgorithmConfig:
    config: Any = {"appo": APPOConfig, "impala": IMPALAConfig, "ppo": PPOConfig}[algorithm]()
    config.environment("slow")
    config.env_runners(
        num_env_runners=runners,
        num_envs_per_env_runner=1,
        rollout_fragment_length=ROLLOUT,
        num_cpus_per_env_runner=1,
    )
    config.learners(num_learners=0)
    config.rl_module(
        model_config=DefaultModelConfig(fcnet_hiddens=[HIDDEN, HIDDEN], fcnet_activation="tanh", vf_share_layers=False)
    )
    config.reporting(min_time_s_per_iteration=None if algorithm == "ppo" else 0.2)
    config.debugging(log_level="ERROR")
    config.training(train_batch_size_per_learner=runners * ROLLOUT, lr=3e-4)
    if algorithm == "ppo":
        config.training(minibatch_size=min(MINIBATCH, runners * ROLLOUT), num_epochs=EPOCHS, use_kl_loss=False)
    return config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runners", type=int, required=True)
    parser.add_argument("--algorithm", choices=["appo", "impala", "ppo"], required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    one_thread()
    ray.init(
        "local",
        num_cpus=options.runners + 2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=1_000_000_000,
    )
    register_env("slow", make_env)
    algorithm = configure(options.algorithm, options.runners).build_algo()
    time_it(algorithm, Learned("ppo" if options.algorithm == "ppo" else "impala"), options.seconds)


if __name__ == "__main__":
    main()
