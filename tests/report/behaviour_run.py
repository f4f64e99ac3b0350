"""Folders of runs on behaviours, as their stages leave them, without the minutes that stages take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import yaml

from cluster.metrics.following import ARMS
from envs import navigation
from envs.navigation import PARAMETERS, TENTHS
from learner.behaviours import trials
from learner.behaviours.baselines import BASELINES
from learner.behaviours.gather import GatherConfig, gather
from learner.behaviours.table import Behaviours
from learner.behaviours.trials import Trial
from learner.search.novelty_search import columns
from learner.store.archive import Archive

STEPS, SAMPLES = 40, 3
TEXTS = ("go to the sofa", "visit the bed, then the fan", "via the stove: destination the statue", "go to the red tile")


def asked(count: int, texts: Sequence[str] = TEXTS) -> list[Trial]:
    """Trials of both kinds, wordings and beginnings."""
    return [
        Trial(
            text=f"{texts[k % len(texts)]}",
            wanted=["stove", "sofa"],
            rival=["bed", "sofa"] if k % 8 > 5 else [],
            target=[60.0 + 12 * k, 500.0 - 9 * k],
            start=[60.0, 450.0, 0.7],
            behaviour=k // 4,
            pair=k // 4,
            kind="how" if k % 8 > 5 else "plain",
            wording=("described", "reworded")[k // 2 % 2],
            begins=("map", "nearby")[k % 2],
        )
        for k in range(count)
    ]


def arrays(count: int, seed: int) -> dict[str, Any]:
    """What the stage deploy writes: robots that wander straight from the start."""
    draw = np.random.default_rng(seed)
    share = np.linspace(0, 1, STEPS)[None, :, None]
    start, end = np.array([60.0, 450.0]), draw.uniform(40, 560, (count, 1, 2))
    pose = np.concatenate([start * (1 - share) + end * share, np.zeros((count, STEPS, 1))], 2)
    found = {"pose": pose}
    for prefix, samples in ({"": SAMPLES} | {f"{name}/": 1 for name in BASELINES}).items():
        found[f"{prefix}error"] = draw.uniform(0, 400, (count, samples))
        for key in ("score", "rival"):
            found[prefix + key] = draw.integers(0, 5, (count, samples)) / 4
    return {name: np.ascontiguousarray(value, np.float32) for name, value in found.items()}


def results(count: int, right: float = 0.25, arm: str = "text") -> dict[str, Any]:
    """What it sums up: a number of each row that nothing else has."""
    rows = []
    for p, player in enumerate((arm, "text_blind_replay", "text_aware_replay")):
        for r, case in enumerate(("all", "how", "plain", "described", "reworded", "map", "nearby")):
            for c, metric in enumerate(("two_alternative", "normalised_obedience", "obedience", "distance")):
                if (case, metric) != ("plain", "two_alternative"):
                    value = right + 0.01 * r + 0.1 * c + 0.001 * p
                    row = {"arm": player, "trials": case, "metric": metric, "value": value}
                    rows.append(row | {"low": value - 0.02, "high": value + 0.03, "n": count - r, "seeds": [0]})
    return {"arm": arm, "strategy": "sample", "samples": SAMPLES, "diagonal": 848.5, "rows": rows}


def write_behaviours(
    folder: Path,
    *,
    count: int = 16,
    judged: int = 10,
    texts: Sequence[str] = TEXTS,
    stages: Sequence[str] = ("search", "split", "deploy", "judge"),
    origin: str = "",
    house: str = "",
    seed: int = 0,
    right: float = 0.25,
    ablate: str = "none",
) -> Path:
    """One run folder with finished stages; `origin` is what `from` says. The language model judged the last trials."""
    folder.mkdir(parents=True)
    method = {"name": "lgqd", "judge": {"rubric": ["places visited", "order"]}, "ablate": ablate}
    config = {
        "method": method,
        "env": {"id": "navigation/House", "map": house, "length": STEPS},
        "seed": seed,
        "from": origin,
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config | {"run": {"name": folder.name, "folder": "runs"}}))
    (folder / "status.json").write_text(json.dumps({"state": "done"}))
    for stage in stages:
        place = folder / "stages" / stage
        place.mkdir(parents=True)
        (place / "manifest.json").write_text("{}")
        if stage == "split":
            trials.save(asked(count, texts), place)
            if "merge" in stages:
                parts = np.arange(len(Behaviours.load(folder / "stages/merge")), dtype=np.int8) % 4
                (place / "parts.safetensors").write_bytes(safetensors.numpy.save({"part": parts}))
        elif stage == "deploy":
            (place / "episodes.safetensors").write_bytes(safetensors.numpy.save(arrays(count, seed)))
            (place / "results.json").write_text(json.dumps(results(count, right, ARMS[ablate])))
        elif stage == "judge":
            lines = [{"trial": k, "vote": v, "overall": (3 * k + v) % 11} for k in range(judged) for v in (0, 1)]
            lines = [{**line, "trial": count - 1 - line["trial"]} for line in lines]
            lines.append({"trial": 0, "vote": 0, "failed": "no answer"})  # type: ignore[dict-item]
            (place / "judgements.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        elif stage == "search":
            write_archive(place / "archive-0", seed)
        elif stage == "merge":
            archive = Archive.read(folder / "stages/search/archive-0")
            how = GatherConfig(copies=1, twin=0.0)
            gather([archive], navigation.load(), STEPS, how, 0, place, {"archives": [archive.digest()]})
        elif stage == "describe":
            ids = Behaviours.load(folder / "stages/merge").id.tolist()
            told = [{"id": i, "text": f"{texts[k % len(texts)]} ({i})", "true": k % 3 > 0} for k, i in enumerate(ids)]
            (place / "texts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    return folder


def write_archive(place: Path, seed: int) -> None:
    """60 behaviours of generations 0 to 9; those of generation g end in column g of a grid of 20 by 20. Their policies
    are of other behaviours."""
    draw = np.random.default_rng(seed)
    generation = np.repeat(np.arange(10), 6).astype(np.int32)
    ends = np.stack([30.0 * generation + 45, draw.uniform(60, 540, 60)], 1)
    archive = Archive(place, 2, columns(PARAMETERS, STEPS), {"threshold": 0.5})
    weights = draw.normal(0, 0.4, (60, PARAMETERS)).astype(np.float32)
    action = navigation.rollout(navigation.load(), None, weights, STEPS)["action"]
    payload = {
        "weights": weights,
        "action": np.rint(action * TENTHS).astype(np.int8),
        "effort": draw.uniform(0, 16, 60).astype(np.float32),
        "novelty": np.ones(60),
        "generation": generation,
    }
    archive.append(np.arange(60, dtype=np.int64), ends, payload)
    archive.flush()


def pixels(place: Sequence[float]) -> tuple[float, float]:
    """Of the default house, from world units, to tenths."""
    scale = navigation.load().scale
    return round(place[0] * scale, 1), round(place[1] * scale, 1)
