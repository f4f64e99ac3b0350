"""Collecting: whole episodes on given seeds, stored step by step.

    seeds ──> play ──> Recorder: observations, actions, rewards ──> one shard of an EpisodeStore

One actor plays a share of episodes in separate envs and writes it as one shard, complete or absent. The episodes depend
only on the share, not on the actor or on earlier episodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from actors.evaluate import play
from actors.players import Acted, Player
from actors.rollout import RolloutActor
from envs.api import DenseEnv, Observation, Transition
from envs.native.random import episode_seeds
from learner.files import Attempt
from learner.models.config import fields_of
from learner.parts import CollectConfig
from learner.store.episodes import EpisodeWriter, Layout, Steps

if TYPE_CHECKING:
    from learner.group import Weights

LANE = 2**31 - 1
"""The env index for the seeds of collected episodes: no env of an actor has it."""


def collect_seeds(seed: int, episodes: int) -> NDArray[np.int64]:
    """Seeds of the first `episodes` that a run with `seed` collects: training seeds, below `envs.HELD_OUT_FIRST`."""
    lane = np.full(episodes, LANE, np.int32)
    return episode_seeds(np.full(episodes, seed, np.int64), lane, np.arange(episodes, dtype=np.int64))


@dataclass(frozen=True)
class Share:
    """Episodes for one actor to play and to write."""

    folder: Path  # of the store
    about: dict[str, Any]  # metadata from its maker
    name: str  # of the shard
    seeds: NDArray[np.int64]
    config: CollectConfig
    attempt: Attempt | None = None  # the attempt that writes


class Collector(RolloutActor):
    """A role: an actor that stores the episodes that it plays."""

    def collect(self, weights: Weights | None, share: Share) -> dict[str, Any]:
        """Play the episodes of a share once each and write them. Returns the shard's entry.

        weights: the policy's, if it plays.

        Raises:
            StoreError: the store is of other episodes.
        """
        self._enter("collect")
        setup = self.setup
        env = self._make_others(setup, len(share.seeds))
        layout = Layout.of(setup.spec, fields_of(setup.policy, setup.spec))
        writer = EpisodeWriter(share.folder, layout, share.about, share.attempt)
        recorder = Recorder(self._who(share.config.player, weights, 0), writer.layout)
        episodes = play(env, recorder, share.seeds, share.config.greedy).episodes
        self._done["episodes"] += len(share.seeds)
        self._enter("write")
        kept = episodes.success if share.config.successes else np.ones(len(episodes), np.bool_)
        steps, texts = recorder.steps(np.repeat(kept, episodes.length))
        entry = writer.write(share.name, episodes.take(kept), steps, texts, played=len(episodes))
        self._enter("idle")
        return entry


class Recorder(Player):
    """Acts like another player, and keeps the steps of each env's first episode."""

    def __init__(self, player: Player, layout: Layout) -> None:
        self._player, self._layout = player, layout
        self._of: list[NDArray[np.intp]] = []  # which envs
        self._obs: list[Observation] = []
        self._action: list[NDArray[Any]] = []
        self._reward: list[NDArray[np.float32]] = []

    def begin(self, env: DenseEnv, seeds: NDArray[np.int64] | None = None) -> NDArray[Any] | None:
        self.env, self._running = env, np.ones(env.num_envs, np.bool_)
        return self._player.begin(env, seeds)

    def act(self, obs: Observation, state: NDArray[Any] | None, random: NDArray[np.float32] | None) -> Acted:
        acted = self._player.act(obs, state, random)
        running = np.flatnonzero(self._running)
        self._of.append(running)
        self._obs.append({name: obs[name][running] for name in self._layout.fields})
        self._action.append(acted.action[running])
        return acted

    def observe(self, transition: Transition) -> None:
        self._reward.append(transition.reward[self._of[-1]])
        self._running[transition.final_index] = False
        self._player.observe(transition)

    def steps(self, kept: NDArray[np.bool_]) -> tuple[Steps, dict[int, str]]:
        """The `kept` steps of all envs, one episode after the other; and the texts that they name."""
        order = np.argsort(np.concatenate(self._of), kind="stable")[kept]
        texts: dict[int, str] = {}
        obs: Observation = {}
        for name, field in self._layout.fields.items():
            obs[name] = np.concatenate([part[name] for part in self._obs])[order]
            if field.kind == "text":
                texts |= self.env.texts.export(obs[name])
                obs[name] = self.env.texts.hashes(obs[name])
        return Steps(obs, np.concatenate(self._action)[order], np.concatenate(self._reward)[order]), texts
