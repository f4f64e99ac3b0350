"""Shared by all peer scripts: the stock world, flattened; ours, flattened; and the meter of steady-state speed.

It runs in the peers' own environments, some of which have an old Gymnasium: nothing of ours is imported at the top.

Limit of the stock world: Minigrid's `gen_obs` in Python, about 0.1 ms a step.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

STOCK_ID = "BabyAI-GoToLocal-v0"
OUR_ID = "babyai/GoToLocal"
WIDTH = 147  # 7 * 7 * 3
ENVS = 16
ROLLOUT = 128
MINIBATCH = 256
EPOCHS = 4
HIDDEN = 64
WARM_UP_UPDATES = 3
LEAST_UPDATES = 3  # in a measured window, even for a slow system
FLAT = spaces.Box(0.0, 25.5, (WIDTH,), np.float32)


def flat(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """uint8 [..., 7, 7, 3] -> float32 [..., 147], symbols divided by 10."""
    return (image.reshape(*image.shape[:-3], WIDTH) / np.float32(10.0)).astype(np.float32, copy=False)


class Flat(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The symbolic view as 147 floats. Works with old and new Gymnasium, with the stock env and with ours."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = FLAT

    def reset(self, **keywords: Any) -> tuple[NDArray[np.float32], dict[str, Any]]:
        with silence():
            obs, info = self.env.reset(**keywords)
        return flat(obs["image"]), info

    def step(self, action: Any) -> tuple[NDArray[np.float32], Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return flat(obs["image"]), reward, terminated, truncated, info


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Swallow standard output: Minigrid's level generator prints rejections, and a driver would forward them."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def stock_env() -> gymnasium.Env[Any, Any]:
    """Minigrid's own env without Gymnasium's checker, which costs time in every step."""
    import minigrid  # noqa: F401  registers the ids

    return gymnasium.make(STOCK_ID, disable_env_checker=True)


def our_env(seed: int = 0) -> gymnasium.Env[Any, Any]:
    """Our world as one ordinary Gymnasium env."""
    from envs.single import SingleEnv

    return SingleEnv(OUR_ID, seed=seed, levels="native")


class Meter:
    """Env steps per second between the first and the last update after the warm-up."""

    def __init__(self, seconds: float, warm_up: int = WARM_UP_UPDATES) -> None:
        self.seconds = seconds
        self.left = warm_up
        self.first: tuple[int, float] | None = None
        self.last: tuple[int, float] | None = None
        self.updates = 0

    def tick(self, env_steps: int) -> bool:
        """Call after each update with the env steps learned from so far. True once enough time was measured."""
        now = time.perf_counter()
        if self.left:
            self.left -= 1
            return False
        if self.first is None:
            self.first = (env_steps, now)
            return False
        self.last = (env_steps, now)
        self.updates += 1
        return self.updates >= LEAST_UPDATES and now - self.first[1] >= self.seconds

    def result(self) -> dict[str, Any]:
        if self.first is None or self.last is None:
            raise RuntimeError("fewer updates than the warm-up needs")
        steps, seconds = self.last[0] - self.first[0], self.last[1] - self.first[1]
        return {
            "env_steps": steps,
            "seconds": seconds,
            "steps_per_second": steps / seconds,
            "updates": self.updates,
        }


def arguments(description: str) -> argparse.ArgumentParser:
    """The arguments that all peers take."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of the measured window")
    parser.add_argument("--env", choices=["stock", "ours"], default="stock", help="whose env is stepped")
    parser.add_argument("--envs", type=int, default=ENVS, help="number of envs in all")
    parser.add_argument("--minibatch", type=int, default=MINIBATCH, help="env steps of a gradient step")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def one_thread() -> None:
    """One torch thread: two on two shared cores made a peer 27 times slower than one."""
    import torch

    torch.set_num_threads(1)
    with contextlib.suppress(RuntimeError):  # only allowed before the first parallel work
        torch.set_num_interop_threads(1)


def report(result: dict[str, Any]) -> None:
    """The one JSON line that the harness reads: the last line of standard output."""
    sys.stdout.write("\n" + json.dumps(result) + "\n")
    sys.stdout.flush()
