"""Stable-Baselines3 PPO on GoToLocal: steady-state speed.

Limit: one process collects and learns in turn. With the stock env the env takes most of the time, with ours the four
epochs of forward and backward do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import (
    ENVS,
    EPOCHS,
    FLAT,
    HIDDEN,
    MINIBATCH,
    OUR_ID,
    ROLLOUT,
    Flat,
    Meter,
    arguments,
    flat,
    one_thread,
    report,
    stock_env,
)
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv
from torch import nn


class OurVecEnv(VecEnv):
    """Our batch of envs behind SB3's own vector interface: one `advance` for all of them."""

    def __init__(self, num_envs: int, seed: int) -> None:
        import envs

        self.world = envs.make(OUR_ID, num_envs, seed)
        super().__init__(num_envs, FLAT, self.world.single_action_space)

    def reset(self) -> NDArray[np.float32]:
        return flat(self.world.begin()["image"])

    def step_async(self, actions: NDArray[Any]) -> None:
        self.actions = actions

    def step_wait(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        t = self.world.advance(self.actions)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if len(t.final_index):
            final = flat(t.final_obs["image"])
            for row, i in enumerate(t.final_index.tolist()):
                infos[i] = {
                    "terminal_observation": final[row],
                    "TimeLimit.truncated": bool(t.truncated[i] and not t.terminated[i]),
                }
        return flat(t.obs["image"]), t.reward.copy(), t.terminated | t.truncated, infos

    def close(self) -> None:
        self.world.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **keywords: Any) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class Measure(BaseCallback):
    """Ticks the meter when a batch has been learned from: SB3 says so by starting the next rollout."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self.meter = meter
        self.done = False

    def _on_rollout_start(self) -> None:
        if self.num_timesteps:
            self.done = self.meter.tick(self.num_timesteps)

    def _on_step(self) -> bool:
        return not self.done


def make_envs(whose: str, vector: str, seed: int) -> VecEnv:
    """16 envs: ours as one batch, or the stock ones in this process (dummy) or in one process each (subproc)."""
    if whose == "ours":
        return OurVecEnv(ENVS, seed)
    makers = [lambda: Flat(stock_env()) for _ in range(ENVS)]
    envs = DummyVecEnv(makers) if vector == "dummy" else SubprocVecEnv(makers, start_method="forkserver")
    envs.seed(seed)
    return envs


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--vector", choices=["dummy", "subproc"], default="dummy", help="how the stock env is batched")
    options = parser.parse_args()
    one_thread()
    envs = make_envs(options.env, options.vector, options.seed)
    assert isinstance(envs.observation_space, spaces.Box)
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=ROLLOUT,
        batch_size=MINIBATCH,
        n_epochs=EPOCHS,
        policy_kwargs={"net_arch": {"pi": [HIDDEN, HIDDEN], "vf": [HIDDEN, HIDDEN]}, "activation_fn": nn.Tanh},
        device="cpu",
        seed=options.seed,
    )
    meter = Meter(options.seconds)
    model.learn(10**12, callback=Measure(meter))
    envs.close()
    report(meter.result())


if __name__ == "__main__":
    main()
