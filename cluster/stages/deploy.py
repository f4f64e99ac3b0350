"""The engine of a deploy stage: the transformer acts on the frozen trials, thousands of episodes at once.

    trials, model ──> stages/<stage>/results.json, episodes.safetensors

Each trial is played several times, and the archive is replayed on it (`learner/behaviours/baselines.py`). Measures are
those of `cluster/metrics/following.py`; trials of a pair share target, start and noise. The arrays are, for the model
and with a prefix `<baseline>/` for each baseline, P trials of R episodes (baselines: one):

    error   [P, R] from the end to the target, world units      score   [P, R] obedience to the trial's text, 0 to 1
    rival   [P, R] obedience to its rival's text, or nan        pose    [P, T, 3] the model's first episode of each
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from actors.behaviours.deploy import deploy
from actors.behaviours.ride import Moment, ride
from cluster.metrics import following
from cluster.runs.stage import Outcome
from cluster.stages._shared.lgqd import EPISODES, BehaviourStage
from envs import navigation
from learner.behaviours import trials, words
from learner.behaviours.baselines import BASELINES, DRIVEN, replayed
from learner.behaviours.table import Behaviours
from learner.behaviours.trials import Trial


class Engine(BehaviourStage):
    """From trials to episodes."""

    again: ClassVar[bool] = True

    def run(self) -> Outcome | None:
        settings, sequence = self.method.deploy, self.method.sequence
        asked = trials.load(self.artifact("split"))
        tokens = words.encode(self.tokenizer(), [trial.text for trial in asked], self.method.tokenize.longest)
        target, start = (np.array([getattr(t, name) for t in asked], np.float32) for name in ("target", "start"))
        self.progress.line(f"deploy  {len(asked):,} trials, {settings.samples} episodes each")
        found = deploy(
            self.model(),
            self.house,
            tokens,
            target,
            start,
            settings.samples,
            self.length,
            stride=sequence.stride,
            strategy=settings.strategy,
            temperature=settings.temperature,
            mass=settings.mass,
            guidance=settings.guidance,
            seed=self.config.seed,
            noise=[trial.pair for trial in asked],
            memory_gb=settings.memory_gb,
            sense=self.sense if sequence.odometry else None,
        )["pose"]
        if self.stop.reason:
            return None
        arrays: dict[str, NDArray[np.float32]] = {"pose": found[:, 0]} | self._measured(asked, found, target)
        table, rows = self.part("train")
        texts = self.texts()
        places = [[told.places for told in texts.get(n, [])] for n in table.id[rows].tolist()]
        for name, chosen in replayed(asked, table.descriptor[rows], places, self.config.seed).items():
            own = rows[chosen]
            poses = {name: navigation.rollout(self.house, start, table.weights[own], self.length)["pose"]}
            if name in DRIVEN:
                poses[DRIVEN[name]] = self._driven(table, own, start)
            for arm, pose in poses.items():
                arrays |= {f"{arm}/{key}": value for key, value in self._measured(asked, pose[:, None], target).items()}
        arrays = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
        self.folder.write(self.place / EPISODES, safetensors.numpy.save(arrays))
        arm = following.ARMS[sequence.model.ablate]
        played = {name: following.played(arrays, self.diagonal, name) for name in BASELINES}
        played[arm] = following.played(arrays, self.diagonal)
        measured = following.rows([following.Seed(self.config.seed, asked, played)])
        results = {"arm": arm, "strategy": settings.strategy, "samples": settings.samples, "diagonal": self.diagonal}
        self.folder.write_json(self.place / "results.json", results | {"rows": measured})
        told = {(row["metric"], row["arm"]): row["value"] for row in measured if row["trials"] == "all"}
        right = told.get(("two_alternative", arm))
        pairs = "no pairs of routes" if right is None else f"{right:.1%} fit their own text better (50 % by chance)"
        floor, near = told["obedience", following.FLOOR], told["distance", arm]
        line = f"deploy: {pairs}; obedience {told['obedience', arm]:.2f} (archive without text {floor:.2f}), "
        line += f"{near:.1%} of the diagonal from the target, {len(asked):,} trials"
        return Outcome({"trials": len(asked), "episodes": len(asked) * settings.samples}, lines=(line,))

    def _driven(self, table: Behaviours, rows: NDArray[np.int64], start: NDArray[np.float32]) -> NDArray[np.float32]:
        """Poses [P, T, 3] of robots on the routes of behaviours [P], by a driver that knows what robots believe."""
        driver = self.driver(table, rows)

        def decide(now: Moment) -> NDArray[np.float64]:
            return driver.advise(now.believed.astype(np.float32), now.step)

        return ride(self.house, start, self.length, driver.stride, self.sense, decide)[0]

    def _measured(
        self, asked: Sequence[Trial], pose: NDArray[np.float32], target: NDArray[np.float32]
    ) -> dict[str, NDArray[np.float32]]:
        """Errors and scores [P, R] of episodes [P, R, T, 3]."""
        score, rival = np.empty((2, *pose.shape[:2]), np.float32)
        for r in range(pose.shape[1]):
            for p, (trial, route, last) in enumerate(zip(asked, *words.visited(self.scene, pose[:, r]), strict=True)):
                score[p, r] = words.obeyed(trial.wanted, route, last)
                rival[p, r] = words.obeyed(trial.rival, route, last) if trial.rival else np.nan
        error = np.linalg.norm(pose[:, :, -1, :2] - target[:, None], axis=-1).astype(np.float32)
        return {"error": error, "score": score, "rival": rival}
