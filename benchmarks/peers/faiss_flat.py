"""faiss' flat index of inner products, which compares a query with every key.

    python -m benchmarks.peers.faiss_flat TASKS EACH WIDTH QUERIES NEAREST ASKED one|batched
    -> {"queries": per second of CPU time, "ids": of each of the ASKED queries, "similarities": of these}

Limit: with one query at a time, reading all keys from memory; batched, OpenBLAS' matrix product.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from benchmarks.retrieval import draw


def main(sizes: tuple[int, int, int, int], nearest: int, asked: int, how: str) -> None:
    import faiss  # type: ignore[import-not-found]

    faiss.omp_set_num_threads(1)
    keys, queries, _ = draw(*sizes)
    queries = queries[:asked]
    faiss.normalize_L2(keys)
    index = faiss.IndexFlatIP(keys.shape[1])
    index.add(keys)
    del keys
    step = asked if how == "batched" else 1
    found = []
    begun = time.process_time()
    for begin in range(0, asked, step):
        part = queries[begin : begin + step].copy()
        faiss.normalize_L2(part)
        found.append(index.search(part, nearest))
    seconds = time.process_time() - begun
    similarities, ids = (np.concatenate(values) for values in zip(*found, strict=True))
    print(json.dumps({"queries": asked / seconds, "ids": ids.tolist(), "similarities": similarities.tolist()}))


if __name__ == "__main__":
    main(
        (int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])),
        int(sys.argv[5]),
        int(sys.argv[6]),
        sys.argv[7],
    )
