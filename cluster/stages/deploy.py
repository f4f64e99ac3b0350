"""The engine of a deploy stage: the transformer acts on the frozen trials, thousands of episodes at once.

    trials, model ──> stages/<stage>/results.json, episodes.safetensors

The results give the distance from an episode's end to the target, in world units and as a share of the house's
diagonal, and how well the episode did what the text says (`learner/behaviours/words.py`). A trial's first episode
counts; the best of all, by distance, is reported in addition and never instead. The baseline replays the nearest
training behaviour: the small policy whose end is closest to the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from actors.behaviours.deploy import deploy
from cluster.metrics.statistics import bootstrap
from cluster.runs.folder import RunError
from cluster.runs.stage import Outcome
from cluster.stages._shared.lgqd import EPISODES, MODEL, BehaviourStage
from envs import navigation
from learner.behaviours import trials, words
from learner.behaviours.trials import Trial
from learner.models.sequence.behaviour_transformer import BehaviourModel


class Engine(BehaviourStage):
    """From trials to episodes."""

    again: ClassVar[bool] = True

    def run(self) -> Outcome | None:
        settings, sequence = self.method.deploy, self.method.sequence
        asked = trials.load(self.given.artifact("split"))
        path = self.given.artifact("imitate") / MODEL
        try:
            model = BehaviourModel.of(sequence.model, safetensors.numpy.load_file(path))
        except ValueError as error:
            raise RunError(f"{path}: {error}; use the method.sequence settings that it was fitted with") from None
        tokens = words.encode(self.tokenizer(), [trial.text for trial in asked], self.method.tokenize.longest)
        target, start = (np.array([getattr(t, name) for t in asked], np.float32) for name in ("target", "start"))
        self.progress.line(f"deploy  {len(asked):,} trials, {settings.samples} episodes each")
        found = deploy(
            model,
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
            seed=self.config.seed,
            memory_gb=settings.memory_gb,
            odometry=self.odometry,
        )["pose"]
        if self.stop.reason:
            return None
        missed = np.linalg.norm(found[:, :, -1, :2] - target[:, None], axis=-1)
        score = np.stack([self._scores(asked, found[:, k]) for k in range(settings.samples)], 1)
        table, rows = self.part("train")
        apart = np.linalg.norm(table.descriptor[rows][None] - target[:, None], axis=-1)
        nearest = rows[apart.argmin(1)]
        replayed = navigation.rollout(self.house, start, table.weights[nearest], self.length)["pose"]
        arrays = {
            "pose": found[:, 0],
            "error": missed,
            "score": score,
            "replayed": replayed,
            "replayed_error": np.linalg.norm(replayed[:, -1, :2] - target, axis=-1),
            "replayed_score": self._scores(asked, replayed),
        }
        arrays = {name: np.ascontiguousarray(value, np.float32) for name, value in arrays.items()}
        self.folder.write(self.place / EPISODES, safetensors.numpy.save(arrays))
        results = {"ablate": sequence.model.ablate, "strategy": settings.strategy, "samples": settings.samples}
        results |= {"diagonal": self.diagonal, "rows": _summaries(asked, arrays, self.diagonal)}
        self.folder.write_json(self.place / "results.json", results)
        whole = results["rows"][0]
        told = (
            f"deploy: single episodes end {whole['distance']['value']:.1%} of the diagonal from their target "
            f"(median; nearest of the archive {whole['replayed_distance']['value']:.1%}), obedience "
            f"{whole['score']['value']:.2f} (archive {whole['replayed_score']['value']:.2f}), {len(asked):,} trials"
        )
        return Outcome({"trials": len(asked), "episodes": int(missed.size)}, lines=(told,))

    def _scores(self, asked: Sequence[Trial], pose: NDArray[np.float32]) -> NDArray[np.float64]:
        routes, last = words.visited(self.scene, pose)
        return np.array([words.obeyed(t.wanted, r, at) for t, r, at in zip(asked, routes, last, strict=True)])


def _summaries(asked: Sequence[Trial], arrays: dict[str, NDArray[np.float32]], diagonal: float) -> list[dict[str, Any]]:
    """A row for all trials, then for each kind, wording and start. Intervals are over behaviours, not episodes."""
    values = {
        "distance": arrays["error"][:, 0] / diagonal,
        "best_distance": arrays["error"].min(1) / diagonal,
        "score": arrays["score"][:, 0],
        "best_score": np.take_along_axis(arrays["score"], arrays["error"].argmin(1)[:, None], 1)[:, 0],
        "replayed_distance": arrays["replayed_error"] / diagonal,
        "replayed_score": arrays["replayed_score"],
    }
    behaviour = np.array([trial.behaviour for trial in asked])
    keys = ("kind", "wording", "begins")
    cases: list[dict[str, str]] = [{}]
    cases += [{key: name} for key in keys for name in sorted({getattr(t, key) for t in asked})]
    crossed = sorted({(t.kind, t.wording, t.begins) for t in asked})
    cases += [dict(zip(keys, names, strict=True)) for names in crossed]
    rows = []
    for case in cases:
        mask = np.array([all(getattr(t, key) == name for key, name in case.items()) for t in asked], np.bool_)
        row: dict[str, Any] = (case or {"kind": "all"}) | {"n": int(mask.sum())}
        for name, value in values.items():
            statistic: Callable[[Any], float] = np.median if "distance" in name else np.mean
            found = bootstrap(value[mask], behaviour[mask], statistic)
            row[name] = {"value": found.value, "low": found.low, "high": found.high}
        rows.append(row)
    return rows
