"""The table of runs that follow texts: arms of one seed are compared on their trials, and what does not fit is told."""

import json

import numpy as np
import pytest
import safetensors.numpy

from benchmarks import __main__ as command
from benchmarks import lgqd
from cluster.runs.run_data import load
from learner.behaviours import trials
from learner.behaviours.baselines import BASELINES
from tests.report.behaviour_run import write_behaviours


@pytest.fixture
def runs(tmp_path):
    """Two arms of seed 0 with equal trials, one arm of seed 1."""
    told = [("text", "none", 0), ("blind", "text", 0), ("again", "none", 1)]
    return [write_behaviours(tmp_path / name, ablate=ablate, seed=seed) for name, ablate, seed in told]


def rows(path):
    return {(row["arm"], row["trials"], row["metric"]): row for row in json.loads(path.read_text())}


def test_it_is_no_benchmark_against_a_peer():
    assert "lgqd" not in command.names()


def test_rows_are_of_all_arms_and_seeds(runs, tmp_path, capsys):
    assert lgqd.main([*map(str, runs), "--json", str(tmp_path / "rows.json")]) == 0
    found = rows(tmp_path / "rows.json")
    assert {arm for arm, *_ in found if " - " not in arm} == {
        "text", "no_text", *BASELINES,
    }  # fmt: skip
    assert {"all", "how", "plain", "reworded", "nearby", "map"} <= {case for _, case, _ in found}
    arrays = [safetensors.numpy.load_file(run / "stages/deploy/episodes.safetensors") for run in runs]
    both = found["text", "all", "obedience"]
    assert both["value"] == pytest.approx(np.mean([arrays[k]["score"].mean() for k in (0, 2)]), abs=1e-4)
    assert both["seeds"] == [0, 1]
    apart = found["text - no_text", "all", "distance"]
    medians = [np.median(arrays[k]["error"]) / 848.5 for k in (0, 1)]
    assert apart["value"] == pytest.approx(medians[0] - medians[1], abs=2e-4)
    assert apart["seeds"] == [0]  # the only one that has both
    assert {"arm", "trials", "metric", "value", "low", "high", "seeds"} <= both.keys()
    printed = capsys.readouterr().out
    assert f"| all | text | {found['text', 'all', 'two_alternative']['value']:.3f} (" in printed


def test_runs_that_do_not_fit_are_one_sentence(runs, tmp_path, capsys):
    assert lgqd.main([str(runs[0]), str(runs[0])]) == 2
    assert "is the second of arm text and seed 0" in capsys.readouterr().err
    place = runs[1] / "stages/split"
    trials.save(trials.load(place)[::-1], place)
    assert lgqd.main([*map(str, runs[:2])]) == 2
    assert "has other trials than another run of seed 0" in capsys.readouterr().err
    (runs[2] / "stages/deploy/episodes.safetensors").write_bytes(safetensors.numpy.save({"pose": np.zeros(3)}))
    assert lgqd.main([str(runs[2])]) == 2
    assert "run the stage deploy again" in capsys.readouterr().err
    bare = write_behaviours(tmp_path / "bare", stages=("split",))
    assert lgqd.main([str(bare)]) == 2
    assert "'bare' has no finished stage deploy" in capsys.readouterr().err


def test_seeds_are_in_their_order(runs):
    assert [seed.seed for seed in lgqd.collect([load(run) for run in runs[::-1]])] == [0, 1]
