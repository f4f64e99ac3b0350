"""The Gymnasium face of a world, for users: strings where the space says text, `info`, copies of what may be kept."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from envs.api.records import EnvSpec, Observation, Transition
from envs.text import TextTable


class GymnasiumFace(gymnasium.vector.VectorEnv):
    """`reset` and `step` over the dense `begin` and `advance`."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": ["rgb_array"]}  # type: ignore[misc]

    env_spec: EnvSpec
    texts: TextTable

    def begin(self, seeds: NDArray[np.int64] | None = None) -> Observation:
        """Start the next episode in every env."""
        raise NotImplementedError

    def advance(self, actions: NDArray[Any]) -> Transition:
        """Step every env once."""
        raise NotImplementedError

    @cached_property
    def observation_space(self) -> spaces.Dict:  # type: ignore[override]
        """Made when it is asked for: with thousands of envs it is large, and engines do without it."""
        text = {name for name, entry in self.env_spec.fields.items() if entry.kind == "text"}
        return spaces.Dict(
            {
                name: spaces.Tuple((space,) * self.num_envs) if name in text else batch_space(space, self.num_envs)
                for name, space in self.env_spec.observation_space().spaces.items()
            }
        )

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start new episodes. An integer seed s names episodes s, s+1, ...; without one, make's seed decides."""
        if seed is None:
            return self._public(self.begin()), {}
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int | np.integer) else list(seed)
        if len(seeds) != self.num_envs or any(s is None for s in seeds):
            raise ValueError(f"reset needs one seed for each of {self.num_envs} envs, got {seeds}")
        return self._public(self.begin(np.array(seeds, np.int64))), {}

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Observation, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Gymnasium's vector step with same-step auto-reset: `info['final_obs'][i]` where `info['_final_obs'][i]`; so
        are `success`, and `counts` [N, K] of `EnvSpec.counts`."""
        t = self.advance(np.asarray(actions))
        info: dict[str, Any] = {}
        if len(t.final_index):
            finals = np.full(self.num_envs, None, object)
            public = self._public(t.final_obs)
            for row, i in enumerate(t.final_index):
                finals[i] = {name: value[row] for name, value in public.items()}
            mask = np.zeros(self.num_envs, np.bool_)
            mask[t.final_index] = True
            success = np.zeros(self.num_envs, np.bool_)
            success[t.final_index] = t.episodes.success
            counts = np.zeros((self.num_envs, len(self.env_spec.counts)), np.int32)
            counts[t.final_index] = t.episodes.counts
            info = {"final_obs": finals, "success": success, "counts": counts}
            info |= {f"_{name}": mask.copy() for name in info}
        return self._public(t.obs), t.reward.astype(np.float64), t.terminated.copy(), t.truncated.copy(), info

    def _public(self, obs: Observation) -> Observation:
        """Strings for text ids, copies for the rest."""
        return {
            name: tuple(self.texts.texts(value)) if self.env_spec.fields[name].kind == "text" else value.copy()  # type: ignore[misc]
            for name, value in obs.items()
        }
