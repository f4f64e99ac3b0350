"""navigation: whole generations of novelty search, and novelty in an archive that grows.

`generation`: 50 policies are sampled, played for 400 steps, compared with 3,000 behaviours, and stored, by ours and by
`stock`: one robot, a Python step, a PyTorch network, a tree rebuilt in each generation (`peers/stock_search.py`). One
thread, CPU time. Both play the same policies. At least 45 of 50 robots must end at the same place (a speed rounded to
tenths may fall on the other side of a half), and the novelty of equal places must be equal to 1e-9.

The other cases: a generation adds 200 descriptors to N others and asks for the mean distance of each to its 15 nearest.
`uniform`: all over 600 x 600; `clustered`: in 20 Gaussian blobs of standard deviation 3. One thread, CPU time, the same
numbers on both sides, compared in each round:

    kdtree_rebuild    scikit-learn's KDTree of all points, rebuilt in each generation, as in the published search
    ckdtree_rebuild   SciPy's cKDTree, built in its fastest way
    pyribs            ProximityArchive, in a process of its own, which builds a tree in each `add`
    ours_at_1e4       ours among 10,000, to show the cost of a hundred times the points

Limit: 200 times some four leaves of the tree (`learner/store/neighbours.py`). A round of ours is the mean of 20
generations, since one takes only a quarter of a millisecond.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Case, DifferentOutputs, Options, PeerFailed, Report, Run, compare, run_peer

CASES = ("generation", "uniform_1e5", "clustered_1e5", "uniform_1e6", "clustered_1e6")
K = 15
BATCH = 200
GENERATIONS = 20  # of ours in a round
TOLERANCE = 1e-12

Floats = NDArray[np.float64]


def draw(kind: str, count: int, seed: int) -> Floats:
    """Descriptors [count, 2]."""
    random = np.random.default_rng(seed)
    if kind == "uniform":
        return random.random((count, 2)) * 600
    blobs = np.random.default_rng(20).random((20, 2)) * 600
    return blobs[random.integers(0, 20, count)] + random.normal(size=(count, 2)) * 3


class Match:
    """Both sides on the same points: ours adds the next generations, a peer repeats the last one."""

    def __init__(self, kind: str, points: int) -> None:
        from learner.store.neighbours import Neighbours

        self.kind, self.points = kind, points
        self.known = Neighbours(2, K)
        self.everything = draw(kind, points, seed=0)
        self.known.insert(self.everything)
        self.generation = 0
        self.new = self.expected = np.empty(0)
        self.play_ours()  # compiles

    def play_ours(self) -> float:
        """Generations a second."""
        batches = [draw(self.kind, BATCH, self.generation + i + 1) for i in range(GENERATIONS)]
        seconds = 0.0
        for new in batches:
            begun = time.process_time()
            self.known.insert(new)
            self.expected = self.known.mean_distance(new, K)
            seconds += time.process_time() - begun
        self.new, self.everything = batches[-1], np.concatenate([self.everything, *batches])
        self.generation += GENERATIONS
        return GENERATIONS / seconds

    def play(self, build: Callable[[Floats], Any]) -> float:
        """Build a peer's tree of all points and query it with the latest. Returns generations a second.

        Raises:
            DifferentOutputs: its answer differs from ours.
        """
        begun = time.process_time()
        distance, _ = build(self.everything).query(self.new, K)
        found = distance.mean(1)
        seconds = time.process_time() - begun
        check(self.expected, found)
        return 1 / seconds

    def play_kdtree(self) -> float:
        try:
            from sklearn.neighbors import KDTree  # type: ignore[import-untyped]
        except ImportError:
            raise PeerFailed("scikit-learn is not installed") from None
        return self.play(lambda points: KDTree(points, leaf_size=20))

    def play_ckdtree(self) -> float:
        try:
            from scipy.spatial import cKDTree
        except ImportError:
            raise PeerFailed("SciPy is not installed") from None
        return self.play(lambda points: cKDTree(points, balanced_tree=False, compact_nodes=False))

    def play_pyribs(self) -> float:
        """The peer's process has the same points and adds the same generations; ours repeats them to compare."""
        from learner.store.neighbours import Neighbours

        answer = run_peer("pyribs", "proximity_archive", [self.kind, str(self.points), str(GENERATIONS)], 120)
        known = Neighbours(2, K)
        known.insert(draw(self.kind, self.points, seed=0))
        for generation in range(1, GENERATIONS + 1):
            known.insert(new := draw(self.kind, BATCH, generation))
        check(known.mean_distance(new, K), np.array(answer["novelty"]))
        return float(answer["generations"])


def check(ours: Floats, theirs: Floats) -> None:
    """Novelties [B] must be equal except for rounding.

    Raises:
        DifferentOutputs: with the largest difference.
    """
    if ours.shape != theirs.shape:
        raise DifferentOutputs(f"novelty: our shape is {ours.shape}, the peer's {theirs.shape}")
    apart = np.abs(ours - theirs)
    if not (apart <= TOLERANCE).all():
        at = int(np.argmax(np.nan_to_num(apart, nan=np.inf)))
        raise DifferentOutputs(f"novelty: of point {at} ours is {ours[at]}, the peer's {theirs[at]}")


class Generations:
    """Whole generations of one search whose archive already holds 3,000 behaviours."""

    known = 3000
    each = 20  # of ours in a round

    def __init__(self, folder: Path) -> None:
        from actors.behaviours.novelty import EvaluatorSetup, NoveltyEvaluator
        from benchmarks.peers.stock_search import House
        from envs.navigation import LAYERS, PARAMETERS
        from learner.search.config import SearchConfig
        from learner.search.novelty_search import NoveltySearch, columns
        from learner.store.archive import Archive

        archive = Archive(folder / "archive", 2, columns(PARAMETERS, 400), {})
        payload = {name: np.zeros((self.known, *shape), kind) for name, (kind, shape) in archive.columns.items()}
        archive.append(10**9 + np.arange(self.known), draw("uniform", self.known, 0), payload)
        self.search = NoveltySearch(SearchConfig(generations=10**6), 0.5, archive, 0, 50, 600.0, LAYERS)
        self.player, self.house = NoveltyEvaluator(EvaluatorSetup("", 400)), House(400)
        self.play_ours()  # compiles

    def play_ours(self) -> float:
        """Evaluations a second."""
        begun = time.process_time()
        for _ in range(self.each):
            batch = self.search.ask()
            assert batch is not None, "a generation is told before the next is asked for"
            self.weights, self.played = batch.weights, self.player.play(batch.weights)
            self.search.tell(batch.ticket, self.played)
        return 50 * self.each / (time.process_time() - begun)

    def play_stock(self) -> float:
        """Repeat our last generation with the stock loop: play, compare and store it.

        Raises:
            DifferentOutputs: its robots end elsewhere, or its novelty differs.
        """
        from benchmarks.peers import stock_search

        archive = self.search.archive.descriptors.copy()
        begun = time.process_time()
        new = np.stack([stock_search.play(self.house, weights)["place"][-1] for weights in self.weights])
        population = np.concatenate([new, new])
        value = stock_search.novelty(archive, population, K)
        np.argsort(-value)[:50]
        seconds = time.process_time() - begun
        same = (np.abs(new - self.played.descriptor) < 1e-3).all(1)
        if same.sum() < 45:
            raise DifferentOutputs(f"only {same.sum()} of 50 robots end where the stock loop's do")
        apart = np.abs(self.search.archive.neighbours.mean_distance(population, K, population, True) - value).max()
        if apart > 1e-9:
            raise DifferentOutputs(f"novelty differs by {apart}")
        return 50 / seconds


def run(options: Options) -> Report:
    report = Report()
    if options.wants("generation"):
        with tempfile.TemporaryDirectory() as place:
            generations = Generations(Path(place))
            case = Case("navigation", "generation", "evaluations", frozenset({"stock"}))
            report.add(compare(case, generations.play_ours, {"stock": generations.play_stock}, options))
    for name in CASES[1:]:
        if not options.wants(name):
            continue
        kind, _, size = name.partition("_")
        match = Match(kind, int(float(size)))
        peers: dict[str, Run] = {"kdtree_rebuild": match.play_kdtree, "ckdtree_rebuild": match.play_ckdtree}
        if size == "1e5":
            peers["pyribs"] = match.play_pyribs
        else:
            peers["ours_at_1e4"] = Match(kind, 10_000).play_ours
        case = Case("navigation", name, "insert_query", frozenset({"kdtree_rebuild", "pyribs"}))
        report.add(compare(case, match.play_ours, peers, options))
    return report
