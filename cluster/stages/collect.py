"""The engine of a collect stage: shares of episodes that any idle actor can play; each becomes one shard of a store.

    seeds ──> shares ──> idle actors ──> stages/<stage>/000000-a0001.arrow, ...

A share that was lost with its actor is played again. Shards are complete or absent, so a resumed stage plays only
missing episodes, each once. Names derive from the seeds, so it does not matter which actor played what.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, ClassVar

from actors.collect import Collector, Share, collect_seeds
from cluster.config import limits
from cluster.config.tree import Config
from cluster.roles.drawing import Topology
from cluster.runs.folder import RunError
from cluster.runs.stage import Artifact, Outcome
from cluster.stages._shared.evaluation import ActingStage
from learner.goals import GoalsConfig
from learner.group import Weights
from learner.parts import CollectConfig
from learner.store.episodes import forget_unfinished

SHARE = 64  # episodes that one actor plays at once


class Engine(ActingStage):
    """From a player to episodes."""

    makes: ClassVar[Artifact] = "episodes"
    entries: dict[str, dict[str, Any]]  # counts of the existing shards, by name

    def run(self) -> Outcome | None:
        """Play the missing episodes.

        Raises:
            RunError: no episode was kept.
            Superseded: a newer attempt has begun.
        """
        weights, attempt = self.given.weights(self.stage), self.folder.attempt
        there, shares = forget_unfinished(self.place, attempt), self._shares()
        self.entries = {s.name: there[s.name] for s in shares if there.get(s.name, {}).get("played") == len(s.seeds)}
        waiting = [share for share in shares if share.name not in self.entries]
        if waiting and not self._play(weights, waiting, len(shares)):
            return None
        forget_unfinished(self.place, attempt)
        counts = self.counts
        if not counts["episodes"]:
            raise RunError(f"none of {counts['played']} episodes was solved: set method.collect.successes=false")
        told = f"{counts['episodes']:,} episodes of {counts['played']:,} played by {self.stage.player} kept, "
        return Outcome(counts, weights, lines=(f"{self.stage.name}: {told}{counts['steps']:,} steps",))

    @classmethod
    def roles(cls, config: Config) -> Topology:
        collect = config.method.part(CollectConfig)
        what = f"{collect.episodes:,} episodes by {collect.player}, in shards"
        return super().roles(config) + Topology((), (("actor", "store", what),))

    @classmethod
    def memory(cls, config: Config) -> int:
        return super().memory(config) + limits.SHARE * config.method.part(CollectConfig).episodes

    @property
    def counts(self) -> dict[str, int]:
        """Counts of the store."""
        return {key: sum(entry[key] for entry in self.entries.values()) for key in ("episodes", "steps", "played")}

    def _shares(self) -> list[Share]:
        config, collect = self.config, self.config.method.part(CollectConfig)
        seeds = collect_seeds(config.seed, collect.episodes)
        of = config.model_dump(include={"env", "policy", "seed", "from_"})
        of |= {"collect": collect.model_dump(), "goals": config.method.part(GoalsConfig).model_dump()}
        del of["collect"]["episodes"]  # a longer store begins like a shorter one
        digest = hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()
        about = {"env": config.env.id, "player": collect.player, "seed": config.seed, "config_sha256": digest}
        starts = range(0, len(seeds), SHARE)
        return [
            Share(self.place, about, f"{i:06d}", seeds[start : start + SHARE], collect, self.folder.attempt)
            for i, start in enumerate(starts)
        ]

    def _play(self, weights: Weights | None, waiting: list[Share], shares: int) -> bool:
        config, episodes = self.config, self.config.method.part(CollectConfig).episodes
        crew = self.start_crew(self.given.actor_setup(self.stage), Collector, "actor")
        while len(self.entries) < shares and not self.stop.reason:
            self.given.look_after()
            for actor in crew.idle()[: len(waiting)]:
                share = waiting.pop(0)
                crew.give(actor, share, "collect", weights, share)
            for _, share, _, entry in crew.collect([], timeout=0.5)[0]:
                if entry is None:
                    waiting.insert(0, share)
                else:
                    self.entries[share.name] = entry
            counts = self.counts
            self.progress.line(
                f"collect  episodes {counts['played']:,}/{episodes:,}  kept {counts['episodes']:,}  "
                f"steps {counts['steps']:,}  actors {crew.alive}/{config.actors.n}"
            )
        crew.kill()
        return len(self.entries) == shares
