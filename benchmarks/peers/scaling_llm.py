"""Actors that ask a language model before every step: `scaling_llm ACTORS SECONDS LATENCY_S PER_ITEM_S`.

    Asker (a Ray process) ── prompt, never seen before ──> LLM service (gRPC, batches) ──> scores ──> action ──> step

The service and the player are those of `method=zero_shot`. The model is simulated: a batch of n takes LATENCY_S +
PER_ITEM_S n, one batch at a time. Every prompt is new, so that no cache answers. The last line of output is
{"steps_per_second": within the window, "calls_a_batch": over all batches}.
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

from actors.language import LanguageSetup
from actors.players.language_model import LanguagePlayer
from envs import toy
from envs.api import Observation

WARM_UP_S = 3.0


class Numbered(toy.Line):
    """A world whose captions never repeat."""

    said = 0

    def captions(self, obs: Observation) -> list[list[str]]:
        self.said += 1
        return [[f"{seen}, at {self.env_index[0]}:{self.said}"] for (seen,) in super().captions(obs)]


class Asker:
    """A role: one env, played by a language model."""

    def __init__(self, setup: LanguageSetup, index: int) -> None:
        self.env = Numbered(toy.spec("Line", toy.Config()), 1, 0, index)
        self.player = LanguagePlayer(setup.client(f"actor-{index}", "none"))

    def ready(self) -> bool:
        """True once the constructor has finished."""
        return True

    def play(self, until: float) -> NDArray[np.float64]:
        """Play until this time. Returns the end of each step by `time.time()`."""
        obs = self.env.begin()
        self.player.begin(self.env, np.zeros(1, np.int64))
        ended = []
        while time.time() < until:
            obs = self.env.advance(self.player.act(obs, None, None).action).obs
            ended.append(time.time())
        return np.array(ended)


def main(actors: int, seconds: float, latency_s: float, per_item_s: float) -> None:
    from cluster.config.tree import compose
    from cluster.roles.language import LanguageService
    from cluster.roles.local import Local

    words = [f"llm.latency_s={latency_s}", f"llm.latency_per_item_s={per_item_s}", "llm.concurrency=1"]
    words += [f"llm.max_batch={actors}", "llm.consumers=0", "cluster.start_timeout_s=600"]
    config: Any = compose(["method=zero_shot", "env=toy", *words])
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        backend = Local(actors + 1, folder / "token", dashboard=False)
        service = LanguageService(backend, config, folder, print)
        service.start()
        askers = [backend.start(f"asker-{i}", Asker, service.setup, i) for i in range(actors)]
        for ticket in [backend.submit(asker, "ready") for asker in askers]:
            backend.result(ticket, timeout=600)
        begin = time.time() + WARM_UP_S
        tickets = [backend.submit(asker, "play", begin + seconds) for asker in askers]
        ended = np.concatenate([backend.result(ticket, timeout=seconds + 300) for ticket in tickets])
        numbers = service.numbers()
        service.stop()
        backend.shutdown()
    inside = (ended >= begin) & (ended < begin + seconds)
    calls = numbers["calls"] / max(numbers["batches"], 1)
    print(json.dumps({"steps_per_second": float(inside.sum() / seconds), "calls_a_batch": calls}))


if __name__ == "__main__":
    main(int(sys.argv[1]), *map(float, sys.argv[2:5]))
