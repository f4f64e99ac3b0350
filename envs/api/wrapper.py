"""A dense env around a dense env: what stands beside a world, such as goals in words, or what was seen before.

    wrapper.advance(actions) ──> world.advance(actions) ──> Transition ──> the wrapper adds its own ──> Transition

A wrapper has the face of a world (`begin`, `advance`, `state`, `restore`, `finish`), says for itself what it changes,
and hands everything else on. Its `begin` may wait for a language model. It may add observation fields (also to
`final_obs`), reward columns (`Transition.rewards`), the status of a language model, fields of `Episodes`, and numbers
for `report`. So whoever plays knows one env.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from numpy.typing import NDArray

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
        if name == "env":  # of one that is not built yet, as a copy is: it would ask itself for ever
            raise AttributeError(name)
        return getattr(self.env, name)

    def _named(self, own: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Own entries of a state, under the names that no other wrapper has."""
        return {f"{self.name}.{key}": value for key, value in own.items()}

    def _own(self, state: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Of a state, the entries that `_named` named."""
        prefix = f"{self.name}."
        return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
