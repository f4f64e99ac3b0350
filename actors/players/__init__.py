"""Who acts, found by name: each module of this folder is one player.

    begin(env) ──> state      act(obs, state, random) ──> action, its log-probability, value, next state ──> observe

The rollout of an actor and the play of whole episodes (evaluation, collecting) know this face alone. A player module
publishes

    make(setup, caller) -> Player    of an actor's setup; `caller` is its name, where a language model is asked

and, if it can act by some policies that a run trains, also

    suits(setup) -> bool             whether it acts by the policy of this setup; one player at most does

What suits no other is left to `policy`, which needs PyTorch: it alone may import it before it is made. Nothing else is
edited for a new player.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.api import DenseEnv, Observation, Transition

if TYPE_CHECKING:
    from actors.setup import ActorSetup
    from learner.group import Weights

POLICY = "policy"
"""Who plays where the run's own policy does: by the player that it suits, else by the module of this name."""


class Acted(NamedTuple):
    """What a player does in N envs."""

    action: NDArray[Any]  # [N]
    log_prob: NDArray[np.float32]  # [N], with which the player takes it
    value: NDArray[np.float32]  # [N], of the observations; 0 where the player has no opinion
    state: NDArray[Any] | None  # [N, ...], what it remembers, None if it does not; whoever plays zeroes ended episodes


class Player:
    """One that remembers nothing, judges nothing and needs no weights. Subclasses override what they do beyond that.

    Attributes:
        fields: the observation fields that it reads.
        text_fields: of these, the texts.
        env: where it plays.
    """

    fields: Collection[str] = ()
    text_fields: Collection[str] = ()
    env: DenseEnv

    def load(self, weights: Weights | None, version: int) -> None:
        """Take new weights; equal versions are skipped."""

    def begin(self, env: DenseEnv, seeds: NDArray[np.int64] | None = None) -> NDArray[Any] | None:
        """Play in these envs from now on. Returns what it remembers at the start of episodes, [N, ...] or None.

        seeds: [N] of the episodes, where these are named: it is judged then, and does not explore; None in training.
        """
        self.env = env
        return None

    def act(self, obs: Observation, state: NDArray[Any] | None, random: NDArray[np.float32] | None) -> Acted:
        """Choose actions.

        Args:
            obs: dense observations of all envs, [N, ...].
            state: what `begin` or the last `act` returned, 0 where an episode has ended since.
            random: [N] in [0, 1), to sample with; None takes the best.
        """
        raise NotImplementedError

    def value(self, obs: Observation, state: NDArray[Any] | None) -> NDArray[np.float32]:
        """Values [B] of any observations [B, ...], which no action follows."""
        return np.zeros(len(next(iter(obs.values()))), np.float32)

    def observe(self, transition: Transition) -> None:
        """What became of the last actions; `final_index` says whose episodes have ended."""

    def explain(self, obs: Observation, i: int, action: Any) -> dict[str, Any] | None:
        """For people: why env i did `action` in the last `act`; None if that cannot be read."""
        return None

    def twin(self, elsewhere: ActorSetup | None = None) -> Player:
        """One with the same weights, also those loaded later, that shall `begin` in other envs.

        elsewhere: of another world, or of other prompts; None: as here.
        """
        raise NotImplementedError


Step = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[Any] | None]
"""What a policy makes of B observations: logits [B, A], values [B], and what it remembers, [B, ...] or None."""


class LogitsPlayer(Player):
    """A player that has logits of the actions; `step` says them."""

    logits: NDArray[np.float32]  # [N, A] of the last `act`

    def step(self, obs: Observation, state: NDArray[Any] | None = None) -> Step:
        """Logits [B, A], values [B] and next state of dense observations [B, ...]."""
        raise NotImplementedError

    def act(self, obs: Observation, state: NDArray[Any] | None, random: NDArray[np.float32] | None) -> Acted:
        self.logits, value, after = self.step(obs, state)
        if random is None:
            return Acted(self.logits.argmax(-1), np.zeros(len(self.logits), np.float32), value, after)
        return Acted(*sample(self.logits, random), value, after)

    def value(self, obs: Observation, state: NDArray[Any] | None) -> NDArray[np.float32]:
        return self.step(obs, state)[1]


def sample(logits: NDArray[np.float32], uniform: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Draw actions [B] from logits [B, A] with uniform numbers [B] in [0, 1); also their log-probabilities [B].

    An action is the first whose cumulative probability is above the number drawn. No compiled code: loading it takes an
    actor a second, and the sums of a few actions are quick.
    """
    logits = np.asarray(logits)
    shifted = logits - np.maximum.reduce(logits, 1, keepdims=True)
    # In float64: float32 sums may end below the number drawn, and a forbidden action would be taken.
    reached = np.add.accumulate(np.exp(shifted, dtype=np.float64), 1)
    total = reached[:, -1]
    actions = (reached > (uniform * total)[:, None]).argmax(1)
    log_probs = shifted[np.arange(len(actions)), actions] - np.log(total)
    return actions, log_probs.astype(np.float32)


def module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}")


def names() -> list[str]:
    """Modules of all players, sorted."""
    return sorted(found.name for found in pkgutil.iter_modules(__path__))


def nameable() -> list[str]:
    """Who can be asked for by name, sorted: the run's policy, whichever player acts by it, and all that need none."""
    return [name for name in names() if name == POLICY or not hasattr(module(name), "suits")]


def suited(setup: ActorSetup) -> str:
    """Which module acts by the policy of a setup. Raises ValueError if there are several."""
    others = {name: module(name) for name in names() if name != POLICY}
    found = [name for name, other in others.items() if hasattr(other, "suits") and other.suits(setup)]
    if len(found) > 1:
        raise ValueError(f"one player acts by a policy, but this one suits {', '.join(found)}")
    return found[0] if found else POLICY


def make(name: str, setup: ActorSetup, caller: str) -> Player:
    """The player of a name: `POLICY`, or a module of this folder."""
    player: Player = module(suited(setup) if name == POLICY else name).make(setup, caller)
    return player
