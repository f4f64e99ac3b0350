"""One env of a world behind Gymnasium's ordinary `Env` interface, for `gymnasium.make("cairn/...")`."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np

from envs.registry import make


class SingleEnv(gymnasium.Env[dict[str, Any], Any]):
    """A `VectorEnv` of size 1 without its batch axis.

    `reset(seed=s)` is the reference simulator's own episode for s. The end of an episode is returned as it is; the
    vector env has begun the next one by then, and `reset()` without a seed hands that one over.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 8}  # type: ignore[misc]

    def __init__(self, env_id: str, render_mode: str | None = None, seed: int = 0, **options: Any) -> None:
        self.vector = make(env_id, 1, seed, **options)
        self.render_mode = render_mode
        self.observation_space = self.vector.single_observation_space
        self.action_space = self.vector.single_action_space
        self._next: dict[str, Any] | None = None  # first observation of an episode that auto-reset already began

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        if seed is None and self._next is not None:
            first, self._next = self._next, None
            return first, {}
        self._next = None
        return self._row(self.vector.reset(seed=seed)[0]), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.vector.step(np.asarray([action]))
        row = self._row(obs)
        if terminated[0] or truncated[0]:
            self._next, row = row, info["final_obs"][0]
            return row, float(reward[0]), bool(terminated[0]), bool(truncated[0]), {"success": bool(info["success"][0])}
        return row, float(reward[0]), False, False, {}

    def render(self) -> Any:
        return self.vector.frame(0)

    @staticmethod
    def _row(obs: dict[str, Any]) -> dict[str, Any]:
        return {name: value[0] for name, value in obs.items()}
