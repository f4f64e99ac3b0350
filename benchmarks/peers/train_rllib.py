"""RLlib PPO and IMPALA (new API stack) on GoToLocal: steady-state speed.

Limit: RLlib keeps episodes as Python objects and passes them through connectors, so a step costs more than the env's
own 0.1 ms; a faster env gains little.
"""

# Peers' libraries are not installed where types are checked, so their objects are untyped.
# mypy: allow-subclassing-any, allow-untyped-calls, no-warn-return-any, disable-error-code="import-not-found"

from __future__ import annotations

import logging
from typing import Any

import gymnasium
import ray
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env

from benchmarks.peers.common import (
    EPOCHS,
    HIDDEN,
    ROLLOUT,
    Flat,
    Meter,
    arguments,
    one_thread,
    our_env,
    report,
    stock_env,
)

RUNNERS = 2


def make_env(context: Any) -> gymnasium.Env[Any, Any]:
    """One env of a runner. RLlib's loop needs next-step auto-reset, so it cannot step our batch as a batch."""
    return Flat(our_env(seed=context.worker_index) if context["whose"] == "ours" else stock_env())


def configure(algorithm: str, whose: str, envs: int, minibatch: int, seed: int) -> AlgorithmConfig:
    """Two runners, half of the envs each. The learner runs in the driver, which is faster on two cores."""
    config = PPOConfig() if algorithm == "ppo" else IMPALAConfig()
    config.environment("goto_local", env_config={"whose": whose})
    config.env_runners(
        num_env_runners=RUNNERS,
        num_envs_per_env_runner=envs // RUNNERS,
        rollout_fragment_length=ROLLOUT,
        num_cpus_per_env_runner=1,
    )
    config.learners(num_learners=0)
    config.rl_module(
        model_config=DefaultModelConfig(fcnet_hiddens=[HIDDEN, HIDDEN], fcnet_activation="tanh", vf_share_layers=False)
    )
    config.reporting(min_time_s_per_iteration=0.2 if algorithm == "impala" else None)
    config.debugging(seed=seed, log_level="ERROR")
    config.training(train_batch_size_per_learner=envs * ROLLOUT)
    if algorithm == "ppo":
        config.training(minibatch_size=minibatch, num_epochs=EPOCHS, lr=3e-4, lambda_=0.95, use_kl_loss=False)
    return config


class Learned:
    """Env steps that the learner has trained on, each counted once.

    RLlib's own `num_env_steps_trained` counts every pass of PPO over a minibatch as the whole batch, so it only shows
    *that* something was learned. For PPO, which learns from all sampled steps, the sampled steps show how much. IMPALA
    may drop batches and learns in one pass, so there the smaller of both counts is right.
    """

    def __init__(self, algorithm: str) -> None:
        self.single_pass = algorithm == "impala"
        self.trained = 0

    def update(self, result: dict[str, Any]) -> int | None:
        """Steps so far if this iteration learned something, otherwise None."""
        trained = int(result.get("learners", {}).get("__all_modules__", {}).get("num_env_steps_trained_lifetime", 0))
        if trained == self.trained:
            return None
        self.trained = trained
        sampled = int(result["env_runners"]["num_env_steps_sampled_lifetime"])
        return min(sampled, trained) if self.single_pass else sampled


def time_it(algorithm: Any, learned: Learned, seconds: float) -> None:
    """Train for `seconds` in a steady state, report the speed, and end Ray."""
    meter, done = Meter(seconds), False
    while not done:
        env_steps = learned.update(algorithm.train())
        done = env_steps is not None and meter.tick(env_steps)
    algorithm.stop()
    ray.shutdown()
    report(meter.result())


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--algorithm", choices=["ppo", "impala"], default="ppo")
    options = parser.parse_args()
    one_thread()
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    register_env("goto_local", make_env)
    algorithm = configure(options.algorithm, options.env, options.envs, options.minibatch, options.seed).build_algo()
    time_it(algorithm, Learned(options.algorithm), options.seconds)


if __name__ == "__main__":
    main()
