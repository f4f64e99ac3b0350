"""Stable-Baselines3 PPO on GoToLocal: steady-state speed, or with `--until` the wall time to a success rate.

With `--until` it gets our FiLM network and our hyperparameters, so that only the system and the env differ.

Limit: one process collects and learns in turn. With the stock env the env takes most of the time; with ours, the four
epochs of forward and backward do.
"""

# Peers' libraries are not installed where types are checked, so their objects are untyped.
# mypy: allow-subclassing-any, allow-untyped-calls, no-warn-return-any, disable-error-code="import-not-found"

from __future__ import annotations

import time
from collections import deque
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv
from torch import Tensor, nn

from benchmarks.peers.common import (
    ENVS,
    EPOCHS,
    FLAT,
    HIDDEN,
    MINIBATCH,
    OUR_ID,
    ROLLOUT,
    WIDTH,
    Flat,
    Meter,
    arguments,
    flat,
    one_thread,
    report,
    silence,
    stock_env,
)

FILM_HIDDEN = 128
WORDS = 8  # the longest mission of GoToLocal is shorter
PACKED = spaces.Box(0.0, 255.0, (WIDTH + 1 + WORDS,), np.float32)


class OurVecEnv(VecEnv):
    """Our batch of envs behind SB3's own vector interface: one `advance` for all of them."""

    def __init__(self, num_envs: int, seed: int) -> None:
        import envs

        self.world = envs.make(OUR_ID, num_envs, seed, levels="native")
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
    """Ticks the meter when learning from a batch is done: SB3 then starts the next rollout."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self.meter = meter
        self.done = False

    def _on_rollout_start(self) -> None:
        if self.num_timesteps:
            self.done = self.meter.tick(self.num_timesteps)

    def _on_step(self) -> bool:
        return not self.done


class Packed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """View, direction and the mission's tokens side by side: SB3 stores and moves one array fastest."""

    def __init__(self, env: gymnasium.Env[Any, Any], text: Any) -> None:
        super().__init__(env)
        self.observation_space = PACKED
        self.text = text
        self.tokens: dict[str, NDArray[np.float32]] = {}

    def pack(self, obs: dict[str, Any]) -> NDArray[np.float32]:
        mission = obs["mission"]
        if mission not in self.tokens:
            row = self.text.prepare([mission]).numpy()[0]
            self.tokens[mission] = np.pad(row, (0, WORDS - len(row))).astype(np.float32)
        return np.concatenate([obs["image"].reshape(-1), [obs["direction"]], self.tokens[mission]], dtype=np.float32)

    def reset(self, **keywords: Any) -> tuple[NDArray[np.float32], dict[str, Any]]:
        with silence():
            obs, info = self.env.reset(**keywords)
        return self.pack(obs), info

    def step(self, action: Any) -> tuple[NDArray[np.float32], Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self.pack(obs), reward, terminated, truncated, info


class Film(BaseFeaturesExtractor):
    """Our text encoder and FiLM network. Equal missions of a batch are encoded once, as we do."""

    def __init__(self, observation_space: spaces.Box) -> None:
        import envs
        from learner.models.config import PolicyConfig
        from learner.models.networks.film import Network

        super().__init__(observation_space, FILM_HIDDEN)
        self.text = text_encoder()
        self.network = Network(PolicyConfig(hidden=FILM_HIDDEN), envs.spec(OUR_ID))

    def forward(self, packed: Tensor) -> Tensor:
        numbers = packed.long()
        tokens, row = torch.unique(numbers[:, WIDTH + 1 :], dim=0, return_inverse=True)
        obs = {
            "image": numbers[:, :WIDTH].unflatten(1, (7, 7, 3)),
            "direction": numbers[:, WIDTH],
            "mission": row,
        }
        features: Tensor = self.network(self.network.inputs(obs), self.text(tokens))[0]
        return features


def text_encoder() -> Any:
    import envs
    from learner.models.text_encoder import LearnedText

    return LearnedText(envs.spec(OUR_ID).words, FILM_HIDDEN)


class Until(BaseCallback):
    """Ends training when enough of the latest episodes were solved, or at the cap. Checks once an update, like ours."""

    def __init__(self, success: float, window: int, started: float, cap: float) -> None:
        super().__init__()
        self.success, self.started, self.cap = success, started, cap
        self.solved: deque[bool] = deque(maxlen=window)
        self.reached = self.over = False
        self.first_step: float | None = None

    @property
    def seconds(self) -> float:
        return time.time() - self.started

    def _on_rollout_start(self) -> None:
        self.first_step = self.first_step or self.seconds
        full = len(self.solved) == self.solved.maxlen
        self.reached = full and sum(self.solved) >= self.success * len(self.solved)
        self.over = self.reached or self.seconds > self.cap

    def _on_step(self) -> bool:
        if not self.over:  # once over, this step comes after the last update
            ended = np.flatnonzero(self.locals["dones"])
            self.solved.extend((self.locals["rewards"][ended] > 0).tolist())
        return not self.over

    def result(self) -> dict[str, Any]:
        rate = sum(self.solved) / max(1, len(self.solved))
        return {
            "seconds": self.seconds,
            "reached": self.reached,
            "start_seconds": self.first_step,
            "env_steps": self.num_timesteps,
            "success": rate,
        }


def make_envs(whose: str, vector: str, n: int, seed: int) -> VecEnv:
    """n envs: ours as one batch, or stock envs in this process (dummy) or in one process each (subproc)."""
    if whose == "ours":
        return OurVecEnv(n, seed)
    makers = [lambda: Flat(stock_env()) for _ in range(n)]
    envs = DummyVecEnv(makers) if vector == "dummy" else SubprocVecEnv(makers, start_method="forkserver")
    envs.seed(seed)
    return envs


def measure_speed(options: Any) -> dict[str, Any]:
    """Two MLPs of 64 x 64 on the flattened view."""
    envs = make_envs(options.env, options.vector, options.envs, options.seed)
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=ROLLOUT,
        batch_size=options.minibatch,
        n_epochs=EPOCHS,
        policy_kwargs={"net_arch": {"pi": [HIDDEN, HIDDEN], "vf": [HIDDEN, HIDDEN]}, "activation_fn": nn.Tanh},
        device="cpu",
        seed=options.seed,
    )
    meter = Meter(options.seconds)
    model.learn(10**12, callback=Measure(meter))
    envs.close()
    return meter.result()


def measure_learning(options: Any) -> dict[str, Any]:
    """Our FiLM network and hyperparameters on the stock env, until the training success is reached."""
    text = text_encoder()
    envs = DummyVecEnv([lambda: Packed(stock_env(), text) for _ in range(ENVS)])
    envs.seed(options.seed)
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=ROLLOUT,
        batch_size=MINIBATCH,
        n_epochs=EPOCHS,
        learning_rate=3e-4,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2,
        clip_range_vf=0.2,
        ent_coef=0.01,
        vf_coef=0.5,
        max_grad_norm=0.5,
        policy_kwargs={"features_extractor_class": Film, "net_arch": [], "ortho_init": False},
        device="cpu",
        seed=options.seed,
    )
    for head, gain in ((model.policy.action_net, 0.01), (model.policy.value_net, 1.0)):  # initial gains as in ours
        nn.init.orthogonal_(head.weight, gain)
        nn.init.zeros_(head.bias)
    until = Until(options.until, options.window, options.started, options.cap)
    model.learn(10**12, callback=until)
    return until.result()


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--vector", choices=["dummy", "subproc"], default="dummy", help="how the stock env is batched")
    parser.add_argument("--until", type=float, help="train until this share of the latest episodes is solved")
    parser.add_argument("--window", type=int, default=256, help="number of the latest episodes")
    parser.add_argument("--cap", type=float, default=600.0, help="seconds after which to give up")
    parser.add_argument("--started", type=float, default=time.time(), help="when the clock began, seconds since 1970")
    options = parser.parse_args()
    one_thread()
    report(measure_learning(options) if options.until else measure_speed(options))


if __name__ == "__main__":
    main()
