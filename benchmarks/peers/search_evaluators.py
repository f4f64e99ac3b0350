"""Our search with evaluators on Ray, in its own process: `search_evaluators EVALUATORS LATENCY_S GENERATIONS`.

With a latency, an evaluator sleeps for that long instead of playing, like an env that is slow elsewhere. The last line
of output is {"evaluations": per second once all evaluators run, "digest": of the archive}.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.behaviours.novelty import NoveltyEvaluator
from learner.search.novelty_search import Played

OFFSPRING = 128


class Sleeper(NoveltyEvaluator):
    """An evaluator whose env is slow."""

    latency_s = 0.0

    def play(self, weights: NDArray[np.float32]) -> Played:
        time.sleep(self.latency_s)
        place = 300 + 290 * np.tanh(weights[:, :40].reshape(len(weights), 2, 20).sum(-1, dtype=np.float64))
        action = np.zeros((len(weights), self.length, 2), np.int8)
        effort = np.square(weights).mean(1)
        return Played(place, place, action, effort, -effort)


class Whole:
    """A metrics sink: evaluations a second between the first and the last row with all evaluators alive."""

    def __init__(self, players: int) -> None:
        self.players = players
        self.seen: list[tuple[float, int]] = []

    def __call__(self, row: dict[str, Any]) -> None:
        if row["actors_alive"] == self.players:
            self.seen.append((time.monotonic(), row["search/evaluations"]))

    @property
    def rate(self) -> float:
        if len(self.seen) < 2:
            raise SystemExit("the search ended before all of its players had been there for a while")
        (began, before), *_, (ended, after) = self.seen
        return (after - before) / (ended - began)


def main(players: int, latency_s: float, generations: int) -> None:
    from cluster.config.tree import compose
    from cluster.metrics.rows import Metrics
    from cluster.roles.local import Local
    from cluster.runs.folder import RunFolder
    from cluster.runs.progress import Progress
    from cluster.runs.stage import Run
    from cluster.runs.stop import Stop
    from cluster.stages.search import Engine
    from learner.methods import Stage
    from learner.store.archive import Archive

    words = ["method=lgqd", "env=navigation", f"actors.n={players}", "stages=[search]", "run.log_every_s=1000"]
    words += [
        f"method.search.{key}={value}"
        for key, value in (
            ("generations", generations),
            ("offspring", OFFSPRING),
            ("population", OFFSPRING),
            ("ahead", 2 * players),
        )
    ]
    with tempfile.TemporaryDirectory() as place:
        config = compose([*words, f"run.folder={place}", "run.name=search"])
        folder = RunFolder.create(Path(place) / "search")
        backend = Local(players, folder.path / "token", dashboard=False)
        metrics = Metrics(folder.path / "metrics.jsonl")
        whole = Whole(players)
        metrics.sinks.append(whole)
        with Stop(folder.stop_file, None) as stop, Progress(folder, 0, 1000.0) as progress:
            run = Run(config, folder, backend, metrics, progress, stop)
            searching = Engine(run, Stage("search", "search", "random"))
            if latency_s:
                searching.player = type("Sleeper", (Sleeper,), {"latency_s": latency_s})
            searching.run()
            digest = Archive.read(searching.place / "archive-0").digest()
        metrics.close()
        backend.shutdown()
    print(json.dumps({"evaluations": whole.rate, "digest": digest}))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
