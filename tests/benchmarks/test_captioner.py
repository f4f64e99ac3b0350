"""The captioner that is kept in the project, and what the pages say of it."""

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.captioner import EPISODES, OBSERVED, OURS, markdown
from envs.crafter.captions import NAMES
from learner.captions.captioner import Captioner
from learner.captions.fit import measured

ROOT = Path(__file__).resolve().parents[2]
RESULTS = json.loads((ROOT / "benchmarks/results/captioner.json").read_text())


def test_it_is_no_benchmark_of_speed():
    assert "captioner" not in command.names()


def test_the_page_has_the_measured_tables():
    page = (ROOT / "docs/methods/ellm.md").read_text().splitlines()
    assert [line for line in markdown(RESULTS) if line and line not in page] == []


def test_in_a_few_held_out_episodes_it_is_as_right_as_the_tables_say():
    found = measured(Captioner.load(OURS), "crafter/Named", EPISODES["anywhere"][1] | {"observe": OBSERVED}, 48)
    said = RESULTS["anywhere"]
    for part in ("day", "night"):
        assert found[part]["exact"]["items"] > 0.999
        for kind in ("view", "event"):
            assert found[part]["exact"][kind] == pytest.approx(said[part]["exact"][kind], abs=0.1)
    for thing in NAMES:
        assert found["day"]["facts"][thing]["recall"] > 0.95
