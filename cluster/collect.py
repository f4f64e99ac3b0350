"""The engine of a collect stage: shares of episodes that any idle actor may play; each becomes one shard of a store.

    seeds ──> shares ──> idle actors ──> stages/<stage>/000000-a0001.arrow, ...

A share that was lost with its actor is played again. Shards are complete or absent, so a resumed stage plays what is
missing, each episode once; names follow from the seeds, so who played what does not show.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from actors import ActorSetup
from actors.collect import Collector, Share, collect_seeds
from cluster.backend import Backend
from cluster.config import Config
from cluster.folder import RunError
from cluster.progress import Progress
from cluster.stop import Stop
from cluster.supervisor import Crew, last_line
from learner.checkpoint import Attempt
from learner.group import Weights
from learner.store.episodes import forget_unfinished

SHARE = 64
"""Episodes that one actor plays together."""


@dataclass
class Collecting:
    """One collect stage.

    folder: of the store, which is there.
    weights: of the policy, if it plays.
    attempt: in whose name episodes are written.
    """

    config: Config
    setup: ActorSetup
    folder: Path
    weights: Weights | None
    backend: Backend
    progress: Progress
    attempt: Attempt | None = None
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)

    def run(self, stop: Stop, look_after: Callable[[], None]) -> bool:
        """Play what is missing. False if the run was asked to stop.

        look_after: called between two waits.

        Raises:
            RunError: nothing was worth keeping.
            Superseded: a newer attempt has begun.
        """
        there, shares = forget_unfinished(self.folder, self.attempt), self._shares()
        self.entries = {s.name: there[s.name] for s in shares if there.get(s.name, {}).get("played") == len(s.seeds)}
        waiting = [share for share in shares if share.name not in self.entries]
        if waiting and not self._play(waiting, len(shares), stop, look_after):
            return False
        forget_unfinished(self.folder, self.attempt)
        if not self.counts["episodes"]:
            raise RunError(f"none of {self.counts['played']} episodes was solved: set collect.successes=false")
        return True

    @property
    def counts(self) -> dict[str, int]:
        """What the store holds."""
        return {key: sum(entry[key] for entry in self.entries.values()) for key in ("episodes", "steps", "played")}

    def _shares(self) -> list[Share]:
        config = self.config
        seeds = collect_seeds(config.seed, config.collect.episodes)
        of = config.model_dump(include={"env", "policy", "collect", "goals", "seed", "from_"})
        del of["collect"]["episodes"]  # a longer store begins as a shorter one does
        digest = hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()
        about = {"env": config.env.id, "player": config.collect.player, "seed": config.seed, "config_sha256": digest}
        starts = range(0, len(seeds), SHARE)
        return [
            Share(self.folder, about, f"{i:06d}", seeds[start : start + SHARE], config.collect, self.attempt)
            for i, start in enumerate(starts)
        ]

    def _play(self, waiting: list[Share], shares: int, stop: Stop, look_after: Callable[[], None]) -> bool:
        config = self.config
        crew = Crew(
            self.backend,
            config.actors,
            self.setup,
            {},
            config.cluster.start_timeout_s,
            lambda actor, cause: self.progress.note(f"actor-{actor} failed: {last_line(cause)}"),
            Collector,
        )
        while len(self.entries) < shares:
            if stop.reason:
                break
            look_after()
            for actor in crew.idle()[: len(waiting)]:
                share = waiting.pop(0)
                crew.give(actor, share, "collect", self.weights, share)
            for _, share, _, entry in crew.collect([], timeout=0.5)[0]:
                if entry is None:
                    waiting.insert(0, share)
                else:
                    self.entries[share.name] = entry
            counts = self.counts
            self.progress.line(
                f"collect  episodes {counts['played']:,}/{config.collect.episodes:,}  kept {counts['episodes']:,}  "
                f"steps {counts['steps']:,}  actors {crew.alive}/{config.actors.n}"
            )
        crew.kill()
        return len(self.entries) == shares
