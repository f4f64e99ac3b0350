"""Any registered Gymnasium env, by its id: `gym/CartPole-v1`.

Mission: none, unless the env's observation holds a text.
Actions: the env's own. Discrete(n): 0 ... n-1, whatever the env starts to count from. Box: float32 [D], flattened and
clipped to the env's bounds.
Observation: a Box becomes `observation`, a float32 vector (flattened); Discrete a category; Text a text. A Dict of
these becomes one field per key. Other spaces are refused with the reason.
Reward: the env's own.
Termination, truncation: the env's own; the time limit of its registration truncates.
Success: what the env says in `info` at the end of an episode, see `Config.success`. Where it says nothing, the score is
the return.
Ids: `gym/<id>` for every registered id; `gym/<module>:<id>` imports a module first, as `gymnasium.make` does.
"""

from __future__ import annotations

import difflib
import importlib
import os
import re
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pydantic import Field as Option

from envs.api import EnvSpec, Field, Observation, VectorEnv
from envs.config import Part
from envs.knowledge import Knowledge
from envs.registry import UnknownEnv

ALWAYS_AVAILABLE = (
    "Acrobot-v1",
    "CartPole-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
)

SUCCESS_KEYS = ("is_success", "success")
"""Where envs tell success by custom."""
PROBED_STEPS = 1000


class Config(Part):
    """Options of the adapter."""

    module: str = ""
    """A module to import first, which registers the env. Every process that builds the env imports it."""
    arguments: dict[str, Any] = Option(default_factory=dict)
    """Keyword arguments for `gymnasium.make`."""
    success: str = "auto"
    """What tells that an episode was solved: the key of a truth in the `info` of its last step, or `none`: nothing, and
    the score is the return. `auto` looks for `is_success` or `success` in one episode of random actions, of 1,000 steps
    at most; name the key of an env that tells it later, or only of what was solved."""


def names() -> list[str]:
    """Envs that need nothing but Gymnasium; any other registered id works as well."""
    return list(ALWAYS_AVAILABLE)


def has(name: str) -> bool:
    """Is the id registered, or written like one that `Config.module` may yet register?"""
    return name in gymnasium.registry or re.fullmatch(r"([\w.]+:)?([\w.-]+/)?[\w.-]+-v\d+", name) is not None


def spec(name: str, config: Config) -> EnvSpec:
    """What a policy must know of the env; builds one to see its spaces, and whether it tells success.

    Raises:
        UnknownEnv: Gymnasium has no such id.
        ValueError: a space that the adapter cannot express.
    """
    env = _build(name, config)
    try:
        found = _spec(name, env)
        return found if _tells_success(env, config) else replace(found, score="return")
    finally:
        env.close()


def make(name: str, num_envs: int, seed: int, first_index: int, config: Config) -> VectorEnv:
    """Build N of the env."""
    return Adapter(spec(name, config), num_envs, seed, first_index, name=name, config=config)


def knowledge(name: str = "") -> Knowledge:
    """Little: the env's id and the names of its actions, none for the family as a whole."""
    about = f"{name}, an environment of the Gymnasium library." if name else "An environment of the Gymnasium library."
    return {"name": "gym", "about": about, "actions": list(spec(name, Config()).action_names) if name else []}


class Adapter(VectorEnv):
    """N single envs, stepped one after another.

    Pictures come from another env, made to draw: it replays the episode with the same seed and actions up to now.
    """

    def __init__(
        self, env_spec: EnvSpec, num_envs: int, seed: int = 0, first_index: int = 0, *, name: str, config: Config
    ) -> None:
        super().__init__(env_spec, num_envs, seed, first_index)
        self._name, self._config = name, config
        self._envs = [_build(name, config) for _ in range(num_envs)]
        self._latest: list[Any] = [None] * num_envs
        self._succeeded = np.zeros(num_envs, np.bool_)
        self._success_keys = {"auto": SUCCESS_KEYS, "none": ()}.get(config.success, (config.success,))
        self._painter: gymnasium.Env[Any, Any] | None = None
        self._painted: tuple[int, int] = (-1, -1)  # env and seed of the episode that the painter is in
        self._painted_log: NDArray[Any] = self._log[0, :0]  # the actions that it has taken there

    def _start_one(self, i: int, seed: int) -> None:
        self._latest[i], _ = self._envs[i].reset(seed=seed)

    def _step_one(self, i: int, action: Any) -> tuple[float, bool, bool]:
        self._latest[i], reward, terminated, truncated, info = self._envs[i].step(self._native(action))
        self._succeeded[i] = next((bool(info[key]) for key in self._success_keys if key in info), False)
        return float(reward), bool(terminated), bool(truncated)

    def _native(self, action: Any) -> Any:
        """Our action -> the env's own."""
        space = self._envs[0].action_space
        if isinstance(space, spaces.Discrete):
            if not 0 <= int(action) < int(space.n):
                raise ValueError(f"actions of {self.env_spec.id} are 0 to {space.n - 1}: {action}")
            return int(action) + int(space.start)
        assert isinstance(space, spaces.Box)
        shaped = np.asarray(action, np.float64).reshape(space.shape)
        return np.clip(shaped, space.low, space.high).astype(space.dtype)

    def _observe(self, index: NDArray[np.intp] | slice) -> Observation:
        rows = np.arange(self.num_envs)[index]
        return {name: self._column(name, rows) for name in self.env_spec.fields}

    def _column(self, name: str, rows: NDArray[np.intp]) -> NDArray[Any]:
        space = self._envs[0].observation_space
        entries = [self._latest[i] for i in rows]
        if isinstance(space, spaces.Dict):
            entries, space = [entry[name] for entry in entries], space[name]
        field = self.env_spec.fields[name]
        column = np.zeros((len(rows), *field.shape), field.dtype)
        for row, entry in enumerate(entries):
            if field.kind == "text":
                column[row] = self.texts.intern(str(entry))
            elif isinstance(space, spaces.Discrete):
                column[row] = int(entry) - int(space.start)
            else:
                column[row] = np.asarray(entry).ravel()
        return column

    def _success(self, reward: NDArray[np.float32], terminated: NDArray[np.bool_]) -> NDArray[np.bool_]:
        # A reward at the end means nothing in general: CartPole pays for the step in which the pole falls.
        return self._succeeded.copy()

    def frame(self, i: int) -> NDArray[np.uint8]:
        """RGB picture of env i, uint8 [H, W, 3].

        Raises:
            LookupError: the env cannot draw.
        """
        if self._painter is None:
            if "rgb_array" not in self._envs[0].metadata.get("render_modes", []):
                raise LookupError(f"{self.env_spec.id} cannot be drawn: it has no render mode rgb_array")
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # no window: SDL looks for a screen and complains
            self._painter = _build(self._name, self._config, render_mode="rgb_array")
        episode, log = (i, int(self._seed[i])), self._log[i, : self._length[i]].copy()
        done = len(self._painted_log)
        if episode != self._painted or not np.array_equal(self._painted_log, log[:done]):
            self._painter.reset(seed=episode[1])
            done = 0
        for action in log[done:]:
            self._painter.step(self._native(action))
        self._painted, self._painted_log = episode, log
        return np.array(self._painter.render(), np.uint8)

    def close_extras(self, **kwargs: Any) -> None:
        """Close all envs."""
        for env in [*self._envs, *([self._painter] if self._painter else [])]:
            env.close()


def _build(name: str, config: Config, **options: Any) -> gymnasium.Env[Any, Any]:
    if config.module:
        try:
            importlib.import_module(config.module)
        except ImportError as error:
            raise UnknownEnv(f"env.module={config.module} cannot be imported: {error}") from None
    try:
        return gymnasium.make(name, disable_env_checker=True, **config.arguments, **options)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.NamespaceNotFound) as reason:
        near = difflib.get_close_matches(name, list(gymnasium.registry), 1)
        hint = f"did you mean gym/{near[0]}?" if near else "import its module with the option `module`"
        raise UnknownEnv(f"Gymnasium has no env {name!r} ({reason}): {hint}") from None


_found: dict[str, bool] = {}
"""By env and its arguments, whether it was seen to tell success: a process asks for the spec many times."""


def _tells_success(env: gymnasium.Env[Any, Any], config: Config) -> bool:
    """Whether success can be read; `auto` plays an episode to see, the same one in every process."""
    if config.success != "auto":
        return config.success != "none"
    which = repr(env.spec)
    if which not in _found:
        env.reset(seed=0)
        env.action_space.seed(0)
        told = False
        for _ in range(PROBED_STEPS):
            _, _, terminated, truncated, info = env.step(env.action_space.sample())
            told = told or any(key in info for key in SUCCESS_KEYS)
            if told or terminated or truncated:
                break
        _found[which] = told
    return _found[which]


def _spec(name: str, env: gymnasium.Env[Any, Any]) -> EnvSpec:
    space = env.observation_space
    parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {"observation": space}
    action_names: tuple[str, ...] = ()
    action_shape: tuple[int, ...] = ()
    if isinstance(env.action_space, spaces.Discrete):
        action_names = tuple(f"action {i}" for i in range(int(env.action_space.n)))
    elif isinstance(env.action_space, spaces.Box):
        action_shape = (int(np.prod(env.action_space.shape)),)
    else:
        raise ValueError(f"gym/{name}: actions must be Discrete or Box, not {env.action_space}")
    return EnvSpec(
        id=f"gym/{name}",
        fields={key: _field(name, key, part) for key, part in parts.items()},
        action_names=action_names,
        action_shape=action_shape,
    )


def _field(name: str, key: str, space: spaces.Space[Any]) -> Field:
    if isinstance(space, spaces.Box):
        return Field("vector", (int(np.prod(space.shape)),))
    if isinstance(space, spaces.Discrete):
        return Field("category", size=int(space.n))
    # Some envs have a space of their own for texts, Minigrid's missions for example.
    foreign = type(space).__module__.split(".")[0] != "gymnasium"
    if isinstance(space, spaces.Text) or (foreign and isinstance(space.sample(), str)):
        return Field("text")
    raise ValueError(
        f"gym/{name}: cannot express {key!r}, a {space}; known are Box, Discrete, Text, and a Dict of them"
    )
