"""pyribs' ProximityArchive. A generation is an `add` and the novelty of the added points.

    python -m benchmarks.peers.proximity_archive KIND POINTS GENERATIONS
    -> {"generations": per second of CPU time, "novelty": of the last generation}

Limit: each `add` builds a tree of all points.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from benchmarks.navigation import BATCH, K, draw


def main(kind: str, points: int, generations: int) -> None:
    from ribs.archives import ProximityArchive  # type: ignore[import-not-found]

    archive = ProximityArchive(
        solution_dim=1, measure_dim=2, k_neighbors=K, novelty_threshold=0.0, initial_capacity=2 * points
    )
    archive.add(np.zeros((points, 1)), None, draw(kind, points, seed=0))
    batches = [draw(kind, BATCH, generation) for generation in range(1, generations + 1)]
    solutions = np.zeros((BATCH, 1))
    begun = time.process_time()
    for new in batches:
        archive.add(solutions, None, new)
        novelty = archive.compute_novelty(new)
    seconds = time.process_time() - begun
    assert len(archive) == points + generations * BATCH, "it did not keep everything"
    print(json.dumps({"generations": generations / seconds, "novelty": novelty.tolist()}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
