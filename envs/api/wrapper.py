"""A dense env around a dense env: what stands beside a world, such as goals in words, or what was seen before.

    wrapper.advance(actions) ──> world.advance(actions) ──> Transition ──> the wrapper adds its own ──> Transition

A wrapper has the face of a world (`begin`, `advance`, `state`, `restore`), says for itself what it changes, and hands
everything else on. It may add observation fields (also to `final_obs`), reward columns (`Transition.rewards`), the
status of a language model, fields of `Episodes`, and numbers for `report`. So whoever plays knows one env.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from envs.api.records import Chunk, Observation, Transition
from envs.api.vector import VectorEnv

DenseEnv: TypeAlias = "VectorEnv | Wrapper"
"""Whatever can be played in: a world, or a world with something beside it."""


class Wrapper:
    """Hands everything on to `env`. Subclasses override what they change, and call `env` for the rest.

    Attributes:
        env: what it stands around.
        name: of its module, which its entries in `state` and `report` begin with.
    """

    def __init__(self, env: DenseEnv) -> None:
        self.env = env
        self.name = type(self).__module__.rpartition(".")[2]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def begin(self, seeds: NDArray[np.int64] | None = None) -> Observation:
        """Start the next episode in every env, as `VectorEnv.begin`. May wait for a language model."""
        return self.env.begin(seeds)

    def advance(self, actions: NDArray[Any]) -> Transition:
        """Step every env once, as `VectorEnv.advance`."""
        return self.env.advance(actions)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to continue: of the world, and of all that stands beside it."""
        return self.env.state()

    def restore(self, state: dict[str, NDArray[Any]]) -> Observation:
        """Continue from `state()` of an equal stack. Returns the observations.

        Raises:
            ValueError: the state is of others.
        """
        return self.env.restore(state)

    def finish(self, chunk: Chunk) -> None:
        """A chunk was played, and leaves. A wrapper that pays by the chunk adds its reward column here."""
        self.env.finish(chunk)

    def _named(self, own: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Own entries of a state, under the names that no other wrapper has."""
        return {f"{self.name}.{key}": value for key, value in own.items()}

    def _own(self, state: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Of a state, the entries that `_named` named."""
        prefix = f"{self.name}."
        return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
