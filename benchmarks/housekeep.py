"""housekeep: tidying a house, many players at once, against one env as in the published loop.

housekeep/Task1, 1,024 players (`--quick`: 256), random actions, texts `view`, `seen`, `held` and events at every step.
One thread, CPU time, env steps a second through the dense interface:

    ids_32, ids_64   pictures of object instances, 32 x 32 or 64 x 64, from which texts are made
    rgb_64           these and the player's colour picture, 64 x 64

    published_loop   one env on the same engine. Each step makes a picture of the same size in colour, with depth and
                     instances; the caption as a set of names of everything seen so far; the label of each pair of a
                     known object and place; and the caption's embedding by MiniLM
    memoised         the same, but each caption is embedded only once in a round

After each step, the peer's player must have seen and know the same as ours. Limit: a picture needs 64 columns of some
ten cells each walked, and 4 KB of instances written: about 2 us.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

import envs
from benchmarks.measure import Case, Options, Report, assert_equal, compare

CASES = ("ids_32", "ids_64", "rgb_64")
ENV_ID = "housekeep/Task1"
QUICK_ROUNDS = 2
TEXTS = ["view", "seen", "held"]
WALK = (0.5, 0.15, 0.15, 0.05, 0.05, 0.1)
"""Probability of each action."""
PEER_STEPS = 400


class Match:
    """Ours plays many players; the peer repeats the first."""

    def __init__(self, size: int, coloured: bool, players: int, steps: int) -> None:
        self.size, self.players, self.steps = size, players, steps
        self.observe = [*TEXTS, "rgb"] if coloured else TEXTS
        self.round = 0
        self.known: list[str] = []  # text `seen` of the first player after each step

    def actions(self) -> NDArray[np.int64]:
        """Actions [steps, players] of the round. The first player's do not depend on the number of players."""
        first, others = (np.random.default_rng([self.round, which]) for which in range(2))
        drawn = others.choice(6, (self.steps, self.players), p=WALK)
        drawn[:, 0] = first.choice(6, self.steps, p=WALK)
        return drawn

    def play_ours(self) -> float:
        """Env steps a second."""
        self.round += 1
        env = envs.make(ENV_ID, self.players, size=self.size, observe=self.observe)
        env.begin()
        actions, said = self.actions(), []
        begun = time.process_time()
        for action in actions:
            said.append(int(env.advance(action).obs["seen"][0]))
        seconds = time.process_time() - begun
        self.known = env.texts.texts(said)
        return float(self.steps * self.players / seconds)

    def play_peer(self, memoised: bool) -> float:
        """Env steps a second of a peer.

        Raises:
            DifferentOutputs: its player knows something else than ours.
        """
        loop = OneHouse(self.size, memoised)
        steps = min(PEER_STEPS, self.steps)
        actions = self.actions()[:steps, 0]
        begun = time.process_time()
        known = [loop.step(int(action)) for action in actions]
        seconds = time.process_time() - begun
        assert_equal("what the first player has seen", np.array(self.known[:steps]), np.array(known))
        return steps / seconds


class OneHouse:
    """One env, with everything recomputed in each step."""

    def __init__(self, size: int, memoised: bool) -> None:
        from envs.native.housekeep.pictures import pictures
        from llm_service.embedding import minilm_folder

        self.env = cast(Any, envs.make(ENV_ID, 1, size=size, observe=["rgb"]))
        self.env.pictures = pictures(1, size, depth=True, rgb=True)
        self.env.begin()
        encode = _encoder(minilm_folder()).encode
        self.embed = cache(lambda text: encode([text])) if memoised else lambda text: encode([text])
        self.met: set[str] = set()
        self.known: set[str] = set()
        self._look()

    def step(self, action: int) -> str:
        """Take an action. Returns the sentence of everything seen so far."""
        self.env.advance(np.array([action]))
        self._look()
        objects, places = sorted(self.met), sorted(self.known)
        suits = [[self._suits(thing, place) for place in places] for thing in objects]
        held = int(self.env.players.holding[0])
        caption = f"objects: {', '.join(objects)}. receptacles: {', '.join(places)}. holding: {held} of {len(suits)}"
        self.embed(caption)
        told = [_listed(names) or "nothing" for names in (objects, places)]
        return f"You have seen {told[0]}. You know of {told[1]}"

    def _look(self) -> None:
        """Add the names of all instances in the picture."""
        from envs.housekeep.names import NAMES, OBJECTS
        from envs.native.housekeep.layout import OBJECT

        houses = self.env.houses
        for instance in np.unique(self.env.pictures.ids[0]).tolist():
            if instance >= OBJECT:
                self.met.add(OBJECTS[houses.object[0, instance - OBJECT]])
            elif instance:
                self.known.add(NAMES[houses.name[0, instance]])

    def _suits(self, thing: str, place: str) -> bool:
        from envs.housekeep.names import NAMES, OBJECTS

        return bool(self.env.suits[OBJECTS.index(thing), NAMES.index(place)])


@cache
def _encoder(folder: str) -> Any:
    from llm_service.embedding import Encoder

    return Encoder(folder)


def _listed(names: list[str]) -> str:
    named = [f"the {name}" for name in names]
    return f"{', '.join(named[:-1])} and {named[-1]}" if len(named) > 1 else "".join(named)


def run(options: Options) -> Report:
    found = Report()
    for name in filter(options.wants, CASES):
        kind, size = name.split("_")
        match = Match(int(size), kind == "rgb", 256 if options.quick else 1024, 100 if options.quick else 500)
        case = Case("housekeep", name, "env_steps", frozenset({"published_loop"}))
        peers: dict[str, Callable[[], float]] = {
            "published_loop": partial(match.play_peer, memoised=False),
            "memoised": partial(match.play_peer, memoised=True),
        }
        found.add(compare(case, match.play_ours, peers, options))
    return found
