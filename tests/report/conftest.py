"""Run folders as an engine leaves them, with metrics that look like learning."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from markupsafe import Markup
from PIL import Image, ImageDraw

from cluster.metrics.statistics import wilson
from cluster.report import document as report
from cluster.report import plots

KINDS = {"go to the red ball": 0.99, "go to a door": 0.95, "pick up a key": 0.9, "put next to": 0.82}


def rate(successes: int, n: int) -> dict[str, float]:
    low, high = wilson(successes, n)
    return {"n": n, "rate": successes / n, "low": low, "high": high}


@cache
def animation(size: int = 7) -> bytes:
    """GIF of a red dot that walks over a grid."""
    frames = []
    for step in range(size):
        image = Image.new("RGB", (size * 16, size * 16), "black")
        draw = ImageDraw.Draw(image)
        for line in range(0, size * 16, 16):
            draw.line([(line, 0), (line, size * 16)], fill="#444444")
            draw.line([(0, line), (size * 16, line)], fill="#444444")
        draw.ellipse([step * 16 + 3, 51, step * 16 + 13, 61], fill="red")
        frames.append(image)
    out = io.BytesIO()
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:], duration=200, loop=0)
    return out.getvalue()


def metrics(seed: int, rows: int, best: float) -> list[dict[str, Any]]:
    """Rows of a run that learns to `best` success, with noise of its own."""
    noise = np.random.default_rng(seed)
    lines: list[dict[str, Any]] = []
    for i in range(1, rows + 1):
        steps, seconds = i * 20_480, i * 2.1 + seed
        success = best / (1 + np.exp(-(i - rows * (0.3 + 0.05 * noise.random())) / (rows * 0.07)))
        row = {
            "kind": "train", "env_steps": steps, "version": i, "wall_seconds": seconds, "episodes": i * 300,
            "charts/success_rate": float(np.clip(success + noise.normal(0, 0.03), 0, 1)),
            "charts/episodic_return": float(success * 0.9), "charts/episodic_length": 60 - 50 * success,
            "charts/SPS": 9800 + 300 * noise.normal(), "charts/SPS_sampling": 13_000 + 500 * noise.normal(),
            "charts/SPS_learning": 21_000 + 900 * noise.normal(), "losses/policy": 0.02 * noise.normal(),
            "losses/value": float(np.exp(-i / rows) * 0.1), "losses/entropy": 1.9 - success,
            "losses/approx_kl": abs(0.01 * noise.normal()), "losses/clip_fraction": abs(0.1 * noise.normal()),
            "losses/gradient_norm": abs(0.4 + 0.1 * noise.normal()), "policy/lag_mean": abs(1.2 + 0.1 * noise.normal()),
            "policy/lag_max": int(noise.integers(1, 5)), "policy/rho": 1 + 0.01 * noise.normal(), "time/env": 0.31,
            "time/policy": 0.22, "time/learner": 0.47, "bottleneck": "learner" if i % 4 else "env",
        }  # fmt: skip
        if i == 1:  # no episode has finished yet
            row = {key: value for key, value in row.items() if not key.startswith("charts/ep") and "success" not in key}
        lines.append(row)
        if i % max(1, rows // 12) == 0:
            low, high = wilson(round(success * 128), 128)
            lines.append({
                "kind": "evaluate", "env_steps": steps, "version": i, "wall_seconds": seconds + 0.5, "episodes": 128,
                "success_rate": round(success * 128) / 128, "success_low": low, "success_high": high,
                "episodic_return": float(success * 0.9),
                "return_low": float(success * 0.8), "return_high": float(success),
            })  # fmt: skip
    return lines


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    return lambda name, **facts: write_run(tmp_path / "runs" / name, **facts)


def write_run(
    folder: Path,
    *,
    seed: int = 0,
    solved: int = 497,
    episodes: int = 512,
    rows: int = 40,
    best: float = 0.97,
    learning_rate: float = 3e-4,
    env: str = "babyai/GoToLocal",
    mission: str = "go to the <b>&ball",
    evaluated: bool = True,
    state: str = "done",
    score: tuple[str, float] = ("", 0.0),
) -> Path:
    """One run folder; `solved` of `episodes` held-out episodes.

    score: what returns count, and the mean held-out return; "" for a folder from before there was such a thing.
    """
    folder.mkdir(parents=True)
    config = {
        "experiment": "", "method": {"name": "ppo"}, "env": {"id": env, "max_steps": 64}, "seed": seed, "sync": False,
        "policy": {"network": "grid", "hidden": 128, "memory": False}, "actors": {"n": 2, "envs": 64, "steps": 40},
        "learner": {"n": 1, "learning_rate": learning_rate, "discount": 0.99, "gae_lambda": 0.95, "env_steps": 10**6},
        "evaluate": {"episodes": episodes, "videos": 4}, "cluster": {"name": "local"}, "stages": [],
        "run": {"name": folder.name, "folder": "runs"},
    }  # fmt: skip
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    manifest = {
        "commit": "0123456789abcdef0123456789abcdef01234567", "created": "2026-03-02T10:11:12Z", "host": "node-7",
        "versions": {"python": "3.11.9", "torch": "2.13.0", "ray": "2.60.0"},
        "command": f"python launch.py run experiment=babyai_gotolocal seed={seed}",
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest))
    lines = metrics(seed, rows, best)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    status: dict[str, Any] = {
        "state": state, "phase": "evaluate", "env_steps": rows * 20_480, "version": rows, "updates": rows * 4,
        "episodes": rows * 300, "wall_seconds": rows * 2.1 + seed, "restarts": 1, "dropped_chunks": 3,
    }  # fmt: skip
    if score[0]:
        status["score"] = score[0]
    (folder / "status.json").write_text(json.dumps(status))
    if evaluated:
        _evaluate(folder, env, solved, episodes, mission, score)
    return folder


def _evaluate(folder: Path, env: str, solved: int, episodes: int, mission: str, score: tuple[str, float]) -> None:
    videos = []
    (folder / "videos").mkdir()
    for i in range(4):
        (folder / "videos" / f"evaluate-{i}.gif").write_bytes(animation())
        videos.append({
            "file": f"videos/evaluate-{i}.gif", "mission": mission, "success": i != 2, "return": 0.9 - 0.1 * i,
            "length": 7 + i, "seed": 1_000_000_000 + i,
        })  # fmt: skip
    mean = 0.9 * solved / episodes
    results: dict[str, Any] = {
        "env": env, "episodes": episodes, "greedy": True, "seeds": [1_000_000_000, 1_000_000_000 + episodes - 1],
        "success": rate(solved, episodes), "return": {"mean": mean, "low": mean - 0.02, "high": mean + 0.02},
        "length": {"mean": 12.5}, "videos": videos,
        "by_kind": {kind: rate(round(share * 128), 128) for kind, share in KINDS.items()},
    }  # fmt: skip
    if score[0]:
        results["score"] = score[0]
        results["return"] = {"mean": score[1], "low": score[1] - 0.2, "high": score[1] + 0.3}
        results["by_kind"] = {"survive": rate(0, episodes)}
    (folder / "stages" / "evaluate").mkdir(parents=True)
    (folder / "stages" / "evaluate" / "results.json").write_text(json.dumps(results))


@pytest.fixture
def edit() -> Callable[[Path, str, Callable[[Any], None]], None]:
    """Changes a JSON file of a run folder in place."""

    def change(folder: Path, file: str, how: Callable[[Any], None]) -> None:
        content = json.loads((folder / file).read_text())
        how(content)
        (folder / file).write_text(json.dumps(content))

    return change


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take most of the time of a page: tests of its words do without."""
    for name in ("curves", "bars"):
        monkeypatch.setattr(plots, name, lambda *_, title, **__: Markup(f"<svg aria-label={title!r}></svg>"))


VOID = {"meta", "img", "br", "use", "input"}


class Page(HTMLParser):
    """Checks that elements nest, and gathers text, tags and attributes."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture
def read() -> Callable[[Path], tuple[str, Page]]:
    """Source and parsed page of an HTML file."""
    return lambda path: (source := path.read_text(encoding="utf-8"), Page(source))


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, Page]:
    """Folder, source and parsed page of one whole run, drawn once for all tests."""
    folder = write_run(tmp_path_factory.mktemp("runs") / "ppo-a")
    path = report.write([folder])
    assert path == folder / "report.html"
    source = path.read_text(encoding="utf-8")
    return folder, source, Page(source)


@pytest.fixture
def sweep(tmp_path: Path) -> Callable[[str, list[Any]], Path]:
    """Makes the base folder of a sweep beside the runs."""

    def make(name: str, members: list[Any]) -> Path:
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "sweep.json").write_text(json.dumps({"members": members}))
        return folder

    return make
