"""Players, found by name: each module of this folder is one player.

    begin(env) ──> state      act(obs, state, random) ──> action, its log-probability, value, next state ──> observe

An actor's rollout and the play of whole episodes (evaluation, collecting) use only this interface. A player module
publishes

    make(setup, caller) -> Player    from an actor's setup; `caller` is its name for the LLM service

and, if it can act by some policies that a run trains, also

    suits(setup) -> bool             whether it acts by the policy of this setup; at most one player does

A setup that suits no other player is left to `policy`, which needs PyTorch: only it may import PyTorch before it is
made. A new player needs no other changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.api import DenseEnv, Observation, Transition, Written
from learner.room import Room

if TYPE_CHECKING:
    from actors.setup import ActorSetup
    from learner.group import Weights

POLICY = "policy"
"""Name of the run's own policy as a player: the player that suits it, otherwise the module of this name."""


class Acted(NamedTuple):
    """A player's actions in N envs."""

    action: NDArray[Any]  # [N]
    log_prob: NDArray[np.float32]  # [N], log-probability of the action
    value: NDArray[np.float32]  # [N], of the observations; 0 if the player has no value estimate
    state: NDArray[Any] | None  # [N, ...], its memory, None without one; the caller zeroes it for ended episodes


class Player:
    """A player without memory, values and weights. Subclasses override what they do beyond that.

    Attributes:
        fields: the observation fields that it reads.
        text_fields: those of them that are texts.
        env: the envs in which it plays.
        version: that of its weights; it may change from one `act` to the next; -1 without weights.
        written: the answers of the last `act`, if it writes them.
    """

    fields: Collection[str] = ()
    text_fields: Collection[str] = ()
    env: DenseEnv
    version: int = -1
    written: Written | None = None

    def load(self, weights: Weights | None, version: int) -> None:
        """Take new weights; equal versions are skipped."""

    def begin(self, env: DenseEnv, seeds: NDArray[np.int64] | None = None) -> NDArray[Any] | None:
        """Play in these envs from now on. Returns its memory at the start of episodes, [N, ...] or None.

        seeds: [N] of the episodes if they are given: then it is evaluated, and does not explore; None in training.
        """
        self.env = env
        return None

    def act(self, obs: Observation, state: NDArray[Any] | None, random: NDArray[np.float32] | None) -> Acted:
        """Choose actions.

        Args:
            obs: dense observations of all envs, [N, ...].
            state: the state from `begin` or the last `act`, 0 where an episode has ended since.
            random: [N] in [0, 1), for sampling; None: the best actions.
        """
        raise NotImplementedError

    def value(self, obs: Observation, state: NDArray[Any] | None) -> NDArray[np.float32]:
        """Values [B] of any observations [B, ...], which no action follows."""
        return np.zeros(len(next(iter(obs.values()))), np.float32)

    def embedded(self, texts: Mapping[int, str]) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
        """Of texts by hash, those that were not asked for before: their hashes [E] and embeddings [E, 384]. None: this
        player has no frozen encoder."""
        return None

    def observe(self, transition: Transition) -> None:
        """The results of the last actions; `final_index` gives the envs whose episodes have ended."""

    def explain(self, obs: Observation, i: int, action: Any) -> dict[str, Any] | None:
        """For people: why env i took `action` in the last `act`; None if that is not readable."""
        return None

    def twin(self, elsewhere: ActorSetup | None = None) -> Player:
        """A player with the same weights, including those loaded later, that will `begin` in other envs.

        elsewhere: another environment, or other prompts; None: as here.
        """
        raise NotImplementedError


Step = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[Any] | None]
"""A policy's outputs for B observations: logits [B, A], values [B], and its memory, [B, ...] or None."""


class LogitsPlayer(Player):
    """A player with logits of the actions, from `step`."""

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

    An action is the first whose cumulative probability is above the random number. No compiled code: loading it takes
    an actor a second, and the sums over a few actions are fast.
    """
    logits = np.asarray(logits)
    shifted = logits - np.maximum.reduce(logits, 1, keepdims=True)
    # In float64: float32 sums may end below the random number, and a forbidden action would be taken.
    reached = np.add.accumulate(np.exp(shifted, dtype=np.float64), 1)
    total = reached[:, -1]
    actions = (reached > (uniform * total)[:, None]).argmax(1)
    log_probs = shifted[np.arange(len(actions)), actions] - np.log(total)
    return actions, log_probs.astype(np.float32)


PLAYERS = Room[Any](__name__)  # of modules
names, module = PLAYERS.names, PLAYERS.get


def nameable() -> list[str]:
    """Players that can be selected by name, sorted: the run's policy, and all players that need no policy."""
    return [name for name in names() if name == POLICY or not hasattr(module(name), "suits")]


def suited(setup: ActorSetup) -> str:
    """The module that acts by the policy of a setup. Raises ValueError if there are several."""
    others = {name: module(name) for name in names() if name != POLICY}
    found = [name for name, other in others.items() if hasattr(other, "suits") and other.suits(setup)]
    if len(found) > 1:
        raise ValueError(f"one player acts by a policy, but this one suits {', '.join(found)}")
    return found[0] if found else POLICY


def make(name: str, setup: ActorSetup, caller: str) -> Player:
    """The player of a name: `POLICY`, or a module of this folder."""
    player: Player = module(suited(setup) if name == POLICY else name).make(setup, caller)
    return player
