"""The demo learns what it promises, and random play does not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def launch(folder, name, *words):
    command = [sys.executable, str(ROOT / "launch.py"), "run", f"run.folder={folder}", f"run.name={name}", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / name / "stages/evaluate/results.json").read_text())


@pytest.mark.slow
def test_the_demo_reaches_90_percent_of_held_out_levels(tmp_path):
    output, demo = launch(tmp_path, "demo", "experiment=babyai_gotolocal")
    _, floor = launch(tmp_path, "floor", "env=babyai/GoToLocal", "method=random")
    assert "report: " in output
    assert (tmp_path / "demo" / "report.html").stat().st_size > 100_000
    assert (demo["episodes"], demo["greedy"]) == (512, True)
    assert demo["success"]["rate"] >= 0.9
    assert demo["success"]["low"] > floor["success"]["high"] + 0.2
