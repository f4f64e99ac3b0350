"""Stages of the transformer that acts as asked: fitted, tried, judged.

    imitate  store, texts, centres, tokenizer ──> ranks of `learner.n` ──> stages/imitate/model.safetensors
    deploy   trials ──> thousands of episodes at once ──> stages/deploy/results.json, episodes.safetensors
    judge    episodes, LLM ──> stages/judge/judgements.jsonl, results.json: and does it agree with the rule?

What is told of trials: how far from the place asked for an episode ends (in world units, and as a share of the house's
diagonal), and how well it did what the text says (`learner/behaviours/words.py`). The first episode of a trial counts;
the best of all, by distance, is told beside it and never instead. The baseline replays the nearest of what was learned
from: the small policy whose end is nearest to the target.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from tokenizers import Tokenizer

from actors.deploy import deploy
from cluster.backend import Backend
from cluster.behaviours import CENTRES, TOKENIZER, Curation
from cluster.fit import Fitting
from cluster.folder import RunError
from cluster.metrics import Metrics
from cluster.search import Searching
from cluster.statistics import bootstrap
from envs import navigation
from envs.navigation.odometry import GUIDED, SENSED
from learner import checkpoint as checkpoints
from learner.behaviours import trials, words
from learner.behaviours.agreement import agreement
from learner.behaviours.trials import Trial
from learner.checkpoint import Checkpoint
from learner.methods import Stage
from learner.models.behaviour import BehaviourModel, Scales
from learner.sequence import SequenceFitter, SequenceSetup

MODEL, EPISODES, JUDGEMENTS = "model.safetensors", "episodes.safetensors", "judgements.jsonl"


class Imitation(Curation):
    """The stages that follow curation."""

    def run(
        self, stage: Stage, folder: Path, backend: Backend, metrics: Metrics, checkpoint: Checkpoint | None
    ) -> dict[str, Any] | None:
        """One stage, into its folder. Returns counts, None if the run was asked to stop."""
        if stage.kind == "search":
            search = Searching(self.config, self.method.search, folder, self.folder, backend, metrics, self.progress)
            return search.run(self.stop)
        if stage.kind == "imitate":
            return self.imitate(folder, backend, metrics, checkpoint)
        verb: Callable[[Path], dict[str, Any] | None] = getattr(
            self, stage.kind if stage.kind != "curate" else stage.name
        )
        return verb(folder)

    def imitate(
        self, folder: Path, backend: Backend, metrics: Metrics, checkpoint: Checkpoint | None
    ) -> dict[str, Any] | None:
        """Fit the transformer to what is learned from."""
        setup = self._setup()
        fitting = Fitting(
            self.config,
            self.method.sequence,
            setup,
            SequenceFitter,
            self.folder,
            backend,
            metrics,
            self.progress,
            self.stop,
        )
        if not fitting.run(checkpoint, None):
            return None
        found = checkpoints.latest(self.folder.checkpoints)
        assert found is not None, "what learns saves before it returns"
        self.folder.write(folder / MODEL, safetensors.numpy.save(found.arrays["model"]))
        parameters = sum(value.size for name, value in found.arrays["model"].items() if not name.endswith("scale"))
        counters: dict[str, Any] = found.record["counters"]
        return counters | {"parameters": parameters, "ablate": self.method.sequence.model.ablate}

    def deploy(self, folder: Path) -> dict[str, Any] | None:
        """Act on the frozen trials."""
        settings, sequence = self.method.deploy, self.method.sequence
        asked = trials.load(self.source("split"))
        path = self.source("imitate") / MODEL
        try:
            model = BehaviourModel.of(sequence.model, safetensors.numpy.load_file(path))
        except ValueError as error:
            raise RunError(f"{path}: {error}; use the method.sequence settings that it was fitted with") from None
        tokens = words.encode(self._tokenizer(), [trial.text for trial in asked], self.method.tokenize.longest)
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
            odometry=self._odometry(),
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
        self.folder.write(folder / EPISODES, safetensors.numpy.save(arrays))
        results = {"ablate": sequence.model.ablate, "strategy": settings.strategy, "samples": settings.samples}
        results |= {"diagonal": self.diagonal, "rows": _summaries(asked, arrays, self.diagonal)}
        self.folder.write_json(folder / "results.json", results)
        whole = results["rows"][0]
        self.progress.note(
            f"deploy: single episodes end {whole['distance']['value']:.1%} of the diagonal from their target "
            f"(median; nearest of the archive {whole['replayed_distance']['value']:.1%}), obedience "
            f"{whole['score']['value']:.2f} (archive {whole['replayed_score']['value']:.2f}), {len(asked):,} trials"
        )
        return {"trials": len(asked), "episodes": int(missed.size)}

    def judge(self, folder: Path) -> dict[str, Any] | None:
        """A language model's opinion of some trials, and its agreement with the rule."""
        settings, source = self.method.judge, self.source("deploy")
        asked = trials.load(self.source("split"))
        arrays = safetensors.numpy.load_file(source / EPISODES)
        chosen = np.random.default_rng([self.config.seed, 2]).permutation(len(asked))[: settings.trials]
        symbols = self.scene.symbols(arrays["pose"][chosen])
        items = []
        for row, trial in enumerate(chosen.tolist()):
            seen = words.told(self.scene, symbols, row)
            item = {"observations": seen, "actions": [words.DRIVE] * (len(seen) - 1), "rubric": settings.rubric}
            items.append(item | {"instruction": asked[trial].text})
        lines, votes = [], []
        for vote in range(settings.votes):
            answers = self.ask("judge_trajectory", items, sample=vote)
            if self.stop.reason:
                return None
            votes.append([answer.value["overall"] / 10 if answer.ok else np.nan for answer in answers])
            for trial, answer in zip(chosen.tolist(), answers, strict=True):
                lines.append(
                    {"trial": trial, "vote": vote} | (answer.value if answer.ok else {"failed": answer.reason})
                )
        self.folder.write(folder / JUDGEMENTS, "".join(f"{json.dumps(line)}\n" for line in lines))
        told = ~np.isnan(votes).all(0)
        if not told.any():
            raise RunError(f"the language model judged nothing: {lines[0]['failed']}")
        opinion, rule = np.nanmean(np.array(votes)[:, told], 0), arrays["score"][chosen[told], 0].astype(np.float64)
        counts = {"judged": int(told.sum()), "of": len(chosen), "mean": float(opinion.mean())}
        found = agreement(opinion, rule, np.array([asked[trial].behaviour for trial in chosen[told].tolist()]))
        self.folder.write_json(folder / "results.json", counts | {"with_rule": found})
        same = found["spearman"]["value"]
        words_of = "nothing to compare" if same is None else f"Spearman with the rule {same:.2f}"
        self.progress.note(f"judge: {told.sum()} of {len(chosen)} trials judged; {words_of}")
        return counts

    @property
    def diagonal(self) -> float:
        """Of the house, world units."""
        height, width = self.house.walls.shape
        return float(np.hypot(height, width) / self.house.scale)

    def _setup(self) -> SequenceSetup:
        settings = self.method.sequence
        table, learned = self.part("train")
        looked_at = self.part("validation")[1]
        texts, tokenizer = self.texts(), self._tokenizer()
        rows = np.array([row for row in (*learned, *looked_at) if int(table.id[row]) in texts], np.int64)
        if not len(rows):
            raise RunError("no behaviour that is learned from has a text: run the stage describe again")
        own = [texts[number] for number in table.id[rows].tolist()]
        flat = words.encode(tokenizer, [text for each in own for text in each], self.method.tokenize.longest)
        ends = np.cumsum([0, *map(len, own)])
        found = safetensors.numpy.load_file(self.source("cluster") / CENTRES)
        return SequenceSetup(
            settings,
            self.config.learner,
            self.config.seed,
            self.source("merge"),
            rows,
            [flat[a:b] for a, b in pairwise(ends.tolist())],
            table.descriptor[rows],
            np.isin(rows, looked_at),
            tokenizer.get_vocab_size(),
            tuple(found[f"{d}"] for d in range(len(found))),
            self._scales(),
            self._odometry(),
            (self.method.tokenize.longest, -(-self.length // settings.stride)),
        )

    def _scales(self) -> Scales:
        plain = Scales(world=float(self.house.world_size))
        if not self.method.sequence.odometry:
            return plain
        guided = GUIDED if "target" not in self.method.sequence.model.blind_to else ()
        return replace(plain, sensors=(*plain.sensors, *SENSED, *guided))

    def _odometry(self) -> tuple[float, float, float] | None:
        return self.house.start if self.method.sequence.odometry else None

    def _tokenizer(self) -> Tokenizer:
        return Tokenizer.from_file(str(self.source("tokenize") / TOKENIZER))

    def _scores(self, asked: Sequence[Trial], pose: NDArray[np.float32]) -> NDArray[np.float64]:
        routes, last = words.visited(self.scene, pose)
        return np.array([words.obeyed(t.wanted, r, at) for t, r, at in zip(asked, routes, last, strict=True)])


def _summaries(asked: Sequence[Trial], arrays: dict[str, NDArray[np.float32]], diagonal: float) -> list[dict[str, Any]]:
    """A row for all trials, then for each kind, wording and beginning. Intervals are over behaviours, not episodes."""
    values = {
        "distance": arrays["error"][:, 0] / diagonal,
        "best_distance": arrays["error"].min(1) / diagonal,
        "score": arrays["score"][:, 0],
        "best_score": np.take_along_axis(arrays["score"], arrays["error"].argmin(1)[:, None], 1)[:, 0],
        "replayed_distance": arrays["replayed_error"] / diagonal,
        "replayed_score": arrays["replayed_score"],
    }
    behaviour = np.array([trial.behaviour for trial in asked])
    cases = sorted({(t.kind, t.wording, t.begins) for t in asked})
    masks: list[tuple[dict[str, str], NDArray[np.bool_]]] = [({"kind": "all"}, np.ones(len(asked), np.bool_))]
    for key in ("kind", "wording", "begins"):
        for name in sorted({getattr(t, key) for t in asked}):
            masks.append(({key: name}, np.array([getattr(t, key) == name for t in asked])))
    for case in cases:
        names = dict(zip(("kind", "wording", "begins"), case, strict=True))
        masks.append((names, np.array([(t.kind, t.wording, t.begins) == case for t in asked])))
    rows = []
    for names, mask in masks:
        row: dict[str, Any] = dict(names) | {"n": int(mask.sum())}
        for name, value in values.items():
            statistic: Callable[[Any], float] = np.median if "distance" in name else np.mean
            found = bootstrap(value[mask], behaviour[mask], statistic)
            row[name] = {"value": found.value, "low": found.low, "high": found.high}
        rows.append(row)
    return rows
