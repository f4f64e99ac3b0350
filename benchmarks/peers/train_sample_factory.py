"""Sample Factory APPO (asynchronous) on GoToLocal: steady-state speed.

Limit: two rollout workers, an inference worker and the learner share the cores; the stock env takes most of the
workers' time. Its Gymnasium is older than same-step auto-reset, so it cannot use our env.
"""

# Peers' libraries are not installed where types are checked, so their objects are untyped.
# mypy: allow-subclassing-any, allow-untyped-calls, no-warn-return-any, disable-error-code="import-not-found"

from __future__ import annotations

import sys
import tempfile
from typing import Any

import gymnasium
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.algo.utils.misc import ExperimentStatus
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner

from benchmarks.peers.common import (
    EPOCHS,
    HIDDEN,
    ROLLOUT,
    Flat,
    Meter,
    arguments,
    one_thread,
    report,
    stock_env,
)

WORKERS = 2


def make_env(name: str, config: Any, env_config: Any, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """One env of a rollout worker, with the signature that Sample Factory expects."""
    return Flat(stock_env())


class Measure(AlgoObserver):
    """Ticks the meter after each training step, and ends the run when enough was measured."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        env_steps = runner.total_env_steps_since_resume
        if env_steps and self.meter.tick(env_steps):
            runner.cfg.train_for_env_steps = 0  # ends the run after this step


def command_line(folder: str, envs: int, minibatch: int, seed: int) -> list[str]:
    """The common batch and network as Sample Factory's arguments."""
    values = {
        "env": "goto_local",
        "experiment": "bench",
        "train_dir": folder,
        "seed": seed,
        "device": "cpu",
        "num_workers": WORKERS,
        "num_envs_per_worker": envs // WORKERS,
        "worker_num_splits": 2,
        "rollout": ROLLOUT,
        "batch_size": minibatch,
        "num_batches_per_epoch": envs * ROLLOUT // minibatch,
        "num_epochs": EPOCHS,
        "async_rl": True,
        "use_rnn": False,
        "encoder_mlp_layers": [HIDDEN, HIDDEN],
        "nonlinearity": "tanh",
        "actor_critic_share_weights": False,
        "normalize_input": False,
        "normalize_returns": False,
        "learning_rate": 3e-4,
        "train_for_env_steps": 10**12,
        "experiment_summaries_interval": 10**6,
        "save_every_sec": 10**6,
        "save_best_every_sec": 10**6,
    }
    words = []
    for key, value in values.items():
        words += [f"--{key}", *map(str, value)] if isinstance(value, list) else [f"--{key}={value}"]
    return words


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    if options.env == "ours":
        sys.exit("needs gymnasium below 1.0, which our env cannot use")
    one_thread()
    register_env("goto_local", make_env)
    meter = Meter(options.seconds)
    with tempfile.TemporaryDirectory() as folder:
        words = command_line(folder, options.envs, options.minibatch, options.seed)
        parser, _ = parse_sf_args(words)
        _, runner = make_runner(parse_full_cfg(parser, words))
        runner.register_observer(Measure(meter))
        if runner.init() == ExperimentStatus.SUCCESS:
            runner.run()
    report(meter.result())


if __name__ == "__main__":
    main()
