"""retrieval: the memory of a retrieval-augmented decision transformer, searched exactly.

320,000 keys of 512 numbers, as many as the chunks of 80 tasks' learning histories in a room of 10 x 10 (Schmied et al.
2024, arXiv 2410.07071): 100,000 steps of each task, an entry for every 25. Keys are sampled around centres, most of
which belong to one task and some to all, like real situations. Queries are sampled around keys. The 50 nearest by
cosine, one thread, CPU time:

    flat_320k   a batch of 256 queries among all keys, against faiss' IndexFlatIP in a process of its own: `faiss_one`
                one query at a time, as while acting, `faiss_batched` the same queries at once. Both sides normalise and
                get the same vectors. Ids must be the same, except where similarities are equal to 1e-5
    restricted  4,096 queries, for the entry that a score of similarity and task chooses. Ours takes the nearest among
                the keys of the task; the peer is ours among all keys, taking the best of the 50 nearest. The note says
                how often the two agree. Where they do not, none of the 50 is of the task, or none of the task's is
                nearer than the last of the 50

Limit: 0.33 billion float32 operations a query among all keys, 4 million among a task's.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Case, DifferentOutputs, Options, Report, Run, compare, run_peer

CASES = ("flat_320k", "restricted")
QUICK_ROUNDS, QUICK_SECONDS = 3, 240.0
TASKS, EACH, WIDTH, NEAREST = 80, 4000, 512, 50
QUERIES, BATCH, ONE_BY_ONE = 4096, 256, 16
TIMEOUT_S = 600.0

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


def draw(tasks: int, each: int, width: int, queries: int) -> tuple[Floats, Floats, Integers]:
    """Keys [tasks * each, width] of one task after the other, queries [queries, width], and the queries' tasks.

    A quarter of each task's keys lie around 40 centres that all tasks share, the rest around 40 of its own.
    """
    random = np.random.default_rng(0)
    shared = random.standard_normal((40, width), np.float32)
    keys = np.empty((tasks * each, width), np.float32)
    for task in range(tasks):
        centres = np.concatenate([shared, random.standard_normal((40, width), np.float32)])
        which = np.where(random.random(each) < 0.25, random.integers(0, 40, each), random.integers(40, 80, each))
        keys[task * each : (task + 1) * each] = centres[which] + 0.5 * random.standard_normal((each, width), np.float32)
    near = random.integers(0, len(keys), queries)
    return keys, keys[near] + 0.5 * random.standard_normal((queries, width), np.float32), near // each


class Match:
    """Our index of all keys, and its last results."""

    def __init__(self, tasks: int = TASKS, each: int = EACH, width: int = WIDTH, queries: int = QUERIES) -> None:
        from learner.store.retrieval import MemoryIndex

        self.sizes = (tasks, each, width, queries)
        keys, self.queries, self.tasks = draw(*self.sizes)
        self.index, numbers = MemoryIndex(width), np.arange(len(keys))
        self.index.reserve(tasks, each)
        columns = {
            "task": numbers // each,
            "episode": numbers // 4,
            "start": 25 * (numbers % 4),
            "number": numbers // 4,
        }
        paid = dict.fromkeys(("return", "paid"), np.zeros(len(keys), np.float32))
        self.index.append(keys, {**columns, "stop": columns["start"] + 50, **paid})

    def play_all(self) -> float:
        """Queries a second among all keys."""
        begun = time.process_time()
        self.near = self.index.search(self.queries[:BATCH], NEAREST)
        return len(self.near.id) / (time.process_time() - begun)

    def play_restricted(self) -> float:
        """Queries a second for the nearest key of the query's own task: the mean of five passes."""
        begun = time.process_time()
        for _ in range(5):
            self.own = self.index.search(self.queries, 1, owner=self.tasks)
        return 5 * len(self.queries) / (time.process_time() - begun)

    def choose(self) -> float:
        """Queries a second among all keys, ranked by similarity and task. Notes how often both choices agree."""
        from learner.store.ranking import rank

        begun = time.process_time()
        near = self.index.search(self.queries, NEAREST)
        chosen = rank(near, {"similarity": 1, "task": 1}, 1, self.tasks)
        seconds = time.process_time() - begun
        equal, there = chosen.found.id == self.own.id, (near["task"] == self.tasks[:, None]).any(1, keepdims=True)
        self.note = (
            f"the same choice for {equal.mean():.1%} of queries, of whose nearest {there.mean():.1%} have the task"
        )
        return len(self.queries) / seconds

    def play_faiss(self, batched: bool) -> float:
        """The peer's queries a second. Its answer is compared with ours.

        Raises:
            DifferentOutputs: it found other entries.
        """
        asked = len(self.near.id) if batched else ONE_BY_ONE
        ids, similarities = self.near.id[:asked], self.near.similarity[:asked]
        words = [str(size) for size in (*self.sizes, NEAREST, len(ids))]
        answer = run_peer("faiss", "faiss_flat", [*words, "batched" if batched else "one"], TIMEOUT_S)
        check(ids, similarities, np.array(answer["ids"]), np.array(answer["similarities"]))
        return float(answer["queries"])


def check(ours: Integers, cosines: Floats, theirs: Integers, their_cosines: NDArray[np.float64]) -> None:
    """Both sides must find the same entries [Q, L], except for those that are equally near.

    Raises:
        DifferentOutputs: at the first query that differs, or if a query was not answered.
    """
    for found in (theirs, their_cosines):
        if found.shape != ours.shape:
            raise DifferentOutputs(f"nearest: our shape is {ours.shape}, the peer's {found.shape}")
    for row, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        apart = np.abs(cosines[row] - their_cosines[row])
        least = cosines[row, -1]
        odd = [i for i in np.flatnonzero(~np.isin(mine, other)) if cosines[row, i] > least + 1e-5]
        if (apart > 1e-5).any() or odd:
            at = odd[0] if odd else int(np.argmax(apart))
            raise DifferentOutputs(f"nearest: of query {row} ours has {mine[at]} at {at}, the peer {other[at]}")


def run(options: Options) -> Report:
    report, match = Report(), Match()
    if options.wants("flat_320k"):
        case = Case("retrieval", "flat_320k", "queries", frozenset({"faiss_one", "faiss_batched"}))
        peers: dict[str, Run] = {
            "faiss_one": lambda: match.play_faiss(batched=False),
            "faiss_batched": lambda: match.play_faiss(batched=True),
        }
        report.add(compare(case, match.play_all, peers, options))
    if options.wants("restricted"):
        case = Case("retrieval", "restricted", "queries", frozenset({"all_keys"}))

        def all_keys() -> float:
            value = match.choose()
            case.notes["all_keys"] = match.note
            return value

        report.add(compare(case, match.play_restricted, {"all_keys": all_keys}, options))
    return report
