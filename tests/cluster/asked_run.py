"""A run whose robot can be asked, as its stages leave it, without the minutes that stages take. The robot drives
anyhow: its weights are drawn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import safetensors.numpy
import torch

from cluster.config.tree import as_yaml, compose
from envs import navigation
from envs.navigation.odometry import GUIDED, SENSED
from learner.behaviours import words
from learner.behaviours.table import PARTS, Behaviours
from learner.models.sequence.behaviour_transformer import BehaviourModel, Scales

LENGTH, LONGEST, COUNT, VOCABULARY = 250, 64, 200, 100
SMALL = ["method=lgqd", "env=navigation", f"env.length={LENGTH}", "method.sequence.model.width=16"]
SMALL += ["method.sequence.model.layers=1", "method.sequence.model.heads=2", "method.sequence.odometry=true"]


def write_asked(folder: Path, *settings: str, stages: str = "data,imitate", source: str = "") -> Path:
    """A run with these settings.

    stages: `data` for all up to the tokenizer, `imitate` for the model. source: what `from` says.
    """
    config = compose([*SMALL, "run.name=asked", *settings])
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_bytes(as_yaml(config.model_copy(update={"from_": source})))
    if "data" in stages:
        write_data(folder)
    if "imitate" in stages:
        chosen = config.method.sequence.model
        kinds = (*Scales().sensors, *SENSED, *(() if "target" in chosen.blind_to else GUIDED))
        centres, sizes = [np.array([-1, 1, 2.5, 4], np.float32)] * 2, (LONGEST, LENGTH // 10)
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(0)
            model = BehaviourModel(chosen, VOCABULARY, sizes, centres, Scales(sensors=kinds))
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter) * 0.3)
        arrays = {name: value.numpy() for name, value in model.payload().items()}
        done(folder, "imitate", "model.safetensors", safetensors.numpy.save(arrays))
    return folder


def write_data(folder: Path) -> None:
    """The stages before the fit, on small policies that are drawn."""
    house, draw = navigation.load(), np.random.default_rng(0)
    scene, weights = navigation.Scene(house), draw.normal(0, 1, (COUNT, navigation.PARAMETERS)).astype(np.float32)
    driven = navigation.rollout(house, None, weights, LENGTH)
    rows, told = [], []
    for number, (route, last) in enumerate(zip(*words.visited(scene, driven["pose"]), strict=True)):
        text = ", then ".join(f"go to the {place}" for place in route[-2:])
        rows.append({"id": number, "text": text, "true": words.is_true(words.asked(scene, text), route, last)})
        told += [text] * rows[-1]["true"]
    table = Behaviours(
        id=np.arange(COUNT),
        archive=np.zeros(COUNT, np.int32),
        group=np.arange(COUNT),
        descriptor=driven["pose"][:, -1, :2],
        start=np.tile(np.array(house.start, np.float32), (COUNT, 1)),
        effort=np.square(driven["action"]).mean((1, 2)),
        weights=weights,
    )
    done(folder, "merge")
    table.save(folder / "stages/merge")
    part = np.full(COUNT, PARTS.index("train"), np.int8)
    part[-20:] = PARTS.index("test")
    done(folder, "split", "parts.safetensors", safetensors.numpy.save({"part": part}))
    done(folder, "describe", "texts.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows).encode())
    done(folder, "tokenize", "tokenizer.json", words.train_tokenizer(told, VOCABULARY, 1).to_str().encode())


def done(folder: Path, stage: str, name: str = "", content: bytes = b"") -> None:
    """A finished stage with a file."""
    place = folder / "stages" / stage
    place.mkdir(parents=True)
    (place / "manifest.json").write_text("{}")
    if name:
        (place / name).write_bytes(content)
