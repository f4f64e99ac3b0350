"""The engine of a search: batches go in pieces that Ray sends with the call, and one that is lost is played again."""

import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.behaviours.novelty import EvaluatorSetup, NoveltyEvaluator
from cluster.config.tree import compose
from cluster.roles.backend import Handle, Inline, RoleDied, Ticket
from cluster.run import run
from cluster.runs.folder import RunFolder
from cluster.runs.stage import Run
from cluster.stages.search import MOST_PIECES, WITH_THE_CALL
from cluster.stages.search import Engine as Searching
from envs import navigation
from envs.navigation import PARAMETERS
from learner.files import Superseded
from learner.methods import Stage
from learner.search.descriptors import descriptor
from learner.search.elites import cell_of
from learner.search.qualities import quality
from learner.search.rollout import play as play_policies
from learner.store import archive
from learner.store.archive import Archive

HOUSE = navigation.load()
WORDS = ["method=lgqd", "env=navigation", "env.length=40", "stages=[search]", "method.search.thresholds=[0.5]"]


def searching(length, backend=None):
    """Only what cuts and joins."""
    made = Searching.__new__(Searching)
    made.setup, made.backend = EvaluatorSetup("", length), backend or Inline()
    return made


@given(st.integers(1, 600), st.integers(1, 100_000))
def test_pieces_fit_and_are_as_few_as_can_be(count, length):
    weights = np.arange(count * PARAMETERS, dtype=np.float32).reshape(count, PARAMETERS)
    pieces = searching(length)._pieces(weights)
    assert np.concatenate(pieces).tobytes() == weights.tobytes()
    row = max(4 * PARAMETERS, 2 * length + 64)  # a policy's weights, or what it did: two bytes a step, and four numbers
    whole = -(-count * row // WITH_THE_CALL)
    assert len(pieces) == (whole if whole <= min(MOST_PIECES, count) else 1)
    if len(pieces) > 1:
        assert max(len(piece) for piece in pieces) * row < WITH_THE_CALL + row
        assert min(len(piece) for piece in pieces) > 0


def test_what_comes_back_in_pieces_is_whole_or_lost():
    player, backend = Handle("actor-0", NoveltyEvaluator(EvaluatorSetup("", 40))), Inline()
    weights = np.random.default_rng(0).normal(0, 0.4, (128, PARAMETERS)).astype(np.float32)
    search = searching(40, backend)
    pieces = search._pieces(weights)
    assert len(pieces) == 2
    ticket = backend.submit(player, "play_pieces", *pieces, returns=2)
    whole = search._whole(ticket, backend.result(ticket))
    assert whole.action.tobytes() == player.target.play(weights).action.tobytes()
    assert search._whole(ticket, None) is None

    class Broken(Inline):
        def result(self, ticket, part=0, timeout=60.0):
            if part:
                raise RoleDied("its node is gone")
            return super().result(ticket, part, timeout)

    assert searching(40, Broken())._whole(ticket, backend.result(ticket)) is None
    assert search._whole(Ticket(player, "play", (whole,), 0.0), whole) is whole


def begun(path, generations):
    """A controller's search in a run's folder, as its last checkpoint has it: the engine, and the search."""
    config = compose([*WORDS, f"method.search.generations={generations}", "method.search.thresholds=[0.0]"])
    folder = RunFolder(path)
    folder.begin()
    engine = Searching(Run(config, folder, Inline(), None, None, None), Stage("search", "search", "random"))
    return engine, engine._search(0, 0.0)


def play(search, player, generations):
    while search.closed < generations:
        batch = search.ask()
        search.tell(batch.ticket, player.play(batch.weights))


def test_a_search_that_lives_on_elsewhere_takes_nothing_from_the_one_that_continues_it(tmp_path, monkeypatch):
    """It is at an earlier generation, and a shard of its archive becomes full just now."""
    monkeypatch.setattr(archive, "FULL", 1)
    path, player = RunFolder.create(tmp_path / "run").path, NoveltyEvaluator(EvaluatorSetup("", 40))
    place = path / "stages/search/checkpoints-0"
    old, stale = begun(path, 20)
    play(stale, player, 5)
    old._save(stale, place)
    new, newer = begun(path, 20)
    assert newer.closed == 5
    play(newer, player, 12)
    new._save(newer, place)
    held, digest = len(newer.archive), newer.archive.digest()
    assert held > 40
    with pytest.raises(Superseded, match="attempt 1 at 'run' ends without saving, because attempt 2 has begun"):
        play(stale, player, 10)
    with pytest.raises(Superseded):
        old._save(stale, place)
    newer.archive.verify()
    resumed = begun(path, 20)[1]
    assert (resumed.closed, len(resumed.archive), resumed.archive.digest()) == (12, held, digest)


def scores(archive, value):
    """Coverage, QD score and best quality of an archive of the default house, by the definitions."""
    space = descriptor(archive.about["search"].get("descriptor", "end"))
    room, cell = space.reachable(HOUSE), cell_of(archive.descriptors, space.cells, HOUSE.world_size)
    best = {c: max(value[cell == c].tolist()) for c in np.unique(cell).tolist() if room[c]}
    lowest = quality(archive.about["search"].get("quality", "calm")).lowest
    return len(best) / room.sum(), sum(v - lowest for v in best.values()), max(best.values())


@pytest.mark.parametrize(
    "words",
    [["cells=20"], ["cells=20", "descriptor=halfway", "quality=straight"], ["cells=5", "descriptor=end_halfway"]],
)
def test_scores_in_rows_and_results_are_those_of_archive_and_grid(tmp_path, words):
    found = ["generations=8", "offspring=60", *words]
    words = [*WORDS, *(f"method.search.{word}" for word in found), "cluster=inline", "run.name=a"]
    assert run(compose([*words, f"run.folder={tmp_path}"])) == 0
    told = json.loads((tmp_path / "a/stages/search/results.json").read_text())
    lines = [json.loads(line) for line in (tmp_path / "a/metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if line["kind"] == "search" and "search/generation" in line][-1]
    assert last["search/generation"] == 8
    for name, prefix in (("archive-0", "search/"), ("grid-0", "search/grid_")):
        archive = Archive.read(tmp_path / "a/stages/search" / name)
        payload = archive.rows(np.arange(len(archive)))
        value = payload.get("quality", -payload["effort"])
        expected = dict(zip(("coverage", "qd_score", "best_quality"), scores(archive, value), strict=True))
        assert told[name] == pytest.approx(expected)
        assert {key: last[prefix + key] for key in expected} == pytest.approx(told[name], rel=1e-4)  # rows are rounded
        rollout = play_policies(HOUSE, payload["weights"], 40)
        assert archive.descriptors.tolist() == descriptor(told["descriptor"]).describe(rollout).tolist()
        assert value.tolist() == quality(told["quality"]).of(rollout).tolist()
        assert ("quality" in archive.columns) == (told["quality"] != "calm")
        assert ("descriptor" in archive.about["search"]) == (told["descriptor"] != "end")
    assert told["grid-0"]["qd_score"] >= told["archive-0"]["qd_score"]  # it has seen all, in the same cells


@pytest.mark.slow
def test_an_archive_is_the_same_on_ray_whoever_plays_and_in_whatever_pieces(tmp_path, monkeypatch):
    digests, found = (
        set(),
        ["method.search.generations=6", "method.search.offspring=100", "method.search.population=100"],
    )
    for name, words in (
        ("inline", ["cluster=inline", "actors.n=1"]),
        ("one", ["cluster.dashboard=false", "actors.n=1"]),
        ("two", ["cluster.dashboard=false", "actors.n=2", "method.search.ahead=1"]),
    ):
        assert run(compose([*WORDS, *found, *words, f"run.folder={tmp_path}", f"run.name={name}"])) == 0
        digests.add(Archive.read(tmp_path / name / "stages" / "search" / "archive-0").digest())
        assert json.loads((tmp_path / name / "status.json").read_text())["state"] == "done"
    assert len(digests) == 1
    shutil.rmtree(tmp_path)
