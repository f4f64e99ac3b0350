"""A small version of `experiment=lgqd_small` learns that words choose the way, in sentences that it never read too."""

import json

import pytest

from cluster import run as controller
from cluster.config.tree import compose

SMALLER = {
    "search.generations": 200,
    "describe.texts": 2,
    "split.how": 64,
    "split.plain": 16,
    "drive.times": 1,
    "sequence.steps": 1000,
    "sequence.every": 500,
    "deploy.samples": 1,
}


@pytest.mark.slow
def test_words_choose_the_way(tmp_path):
    """Beside replaying the archive without reading, which scores 50 % on pairs, and from nearby starts, where small
    policies are led astray."""
    words = ["experiment=lgqd_small", "cluster=inline", "learner.n=1", f"run.folder={tmp_path}", "run.name=small"]
    words += [f"method.{key}={value}" for key, value in SMALLER.items()]
    assert (
        controller.run(
            compose([*words, "stages=[search,merge,annotate,describe,split,drive,cluster,tokenize,imitate,deploy]"])
        )
        == 0
    )
    rows = json.loads((tmp_path / "small/stages/deploy/results.json").read_text())["rows"]
    told = {(row["arm"], row["trials"], row["metric"]): row for row in rows}
    for trials in ("described", "reworded", "paraphrased", "map", "nearby"):
        assert told["text", trials, "two_alternative"]["low"] > 0.6
    assert told["text", "nearby", "obedience"]["value"] > told["text_blind_replay", "nearby", "obedience"]["value"]
    assert told["text", "nearby", "distance"]["value"] < 0.12
    assert told["text_blind_replay", "all", "two_alternative"]["value"] == 0.5
