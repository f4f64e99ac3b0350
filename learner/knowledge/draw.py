"""The segments and pairs that a language model is asked about: sampled from recorded episodes, by a seed.

    steps of a store ──> strata of training step and return to go ──> in turn, without duplicates ──> Segments
    segments ──> strata ──> partners from strata far apart, never of equal captions ──> pairs [P, 2]

Uniformly sampled steps would nearly all be alike: early episodes without success. So every stratum contributes equally,
as long as it has steps, and late, rewarded steps appear beside early, unrewarded ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learner.knowledge.captions import sentences, tell
from learner.knowledge.segments import Segments
from learner.store.episodes import EpisodeStore, StoreError
from learner.windows import NO_ACTION

BLOCK, WINDOWS = 4096, 512
"""Steps that are read at once; windows that are built at once."""
SOURCES, RETURNS = 4, 3
"""Strata: quarters by training step; steps with a return to go in thirds of it, and a group of steps without."""

Rows = NDArray[np.int64]


def draw(store: EpisodeStore, number: int, window: int, discount: float, told: Sequence[str], seed: int) -> Segments:
    """Segments, in turn from every stratum, so that the first few are as mixed as all.

    The whole store is read once, for its rewards.

    Args:
        number: how many; fewer if the store has fewer distinct ones.
        window: K, observations per segment.
        discount: of the return to go.
        told: names of the text fields of captions.

    Raises:
        StoreError: the store is empty, or its actions have no names.
    """
    if not store.steps:
        raise StoreError(f"{store.folder} holds no episodes: nothing can be drawn from it")
    if not store.layout.actions:
        raise StoreError(f"{store.folder} holds actions that are vectors: segments need actions with names")
    to_come, source = _to_come(store, discount), _source(store)
    order = _in_turn(strata(source, to_come), np.random.default_rng([seed, 3]))
    known: set[bytes] = set()
    parts: list[Segments] = []
    for begin in range(0, len(order), WINDOWS):
        rows = order[begin : begin + WINDOWS]
        part = _segments(store, rows, window, told, source[rows], to_come[rows])
        new = []
        for i, content in enumerate(_contents(part)):
            new += [i] if content not in known else []
            known.add(content)
        parts.append(part.take(np.array(new, np.int64)))
        if len(known) >= number:
            break
    return _joined(parts).take(np.arange(min(number, len(known))))


def pairs(segments: Segments, number: int, seed: int) -> Rows:
    """Distinct pairs [P, 2] of different segments, without equal captions; fewer if there are not enough.

    Partners are a quarter to a half of all segments apart in the order of their strata, so that few are nearly equal.
    In each round every segment is in two pairs at most; there are as many rounds as needed.
    """
    generator, total = np.random.default_rng([seed, 4]), len(segments)
    stratum = strata(segments.source, segments.to_come)
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for _ in range(2 * (number // total + 2)):
        order = np.lexsort((generator.random(total), stratum))
        partner = np.roll(order, generator.integers(max(1, total // 4), total // 2 + 1))
        for i in generator.permutation(total):
            one, other = int(order[i]), int(partner[i])
            if len(found) < number and segments.captions[one] != segments.captions[other]:
                found.setdefault((min(one, other), max(one, other)), (one, other))
    return np.array(list(found.values()), np.int64).reshape(-1, 2)


def strata(source: Rows, to_come: NDArray[np.floating]) -> Rows:
    """The number of the stratum of each step or segment, [S]."""
    quarters = np.quantile(source, np.arange(1, SOURCES) / SOURCES)
    paid = to_come != 0
    thirds = np.quantile(to_come[paid], np.arange(1, RETURNS) / RETURNS) if paid.any() else np.zeros(0)
    worth = np.where(paid, 1 + np.searchsorted(thirds, to_come), 0)
    return (worth * SOURCES + np.searchsorted(quarters, source)).astype(np.int64)


def _in_turn(stratum: Rows, generator: np.random.Generator) -> Rows:
    """All steps, taken from the strata in turn; within a stratum in random order."""
    shuffled = generator.permutation(len(stratum))
    stratum = stratum[shuffled]
    by = np.argsort(stratum, kind="stable")
    turn = np.empty(len(by), np.int64)
    turn[by] = np.arange(len(by)) - np.searchsorted(stratum[by], stratum[by])
    return shuffled[np.lexsort((stratum, turn))]


def _to_come(store: EpisodeStore, discount: float) -> NDArray[np.float64]:
    """The discounted return from each step on, [S]."""
    starts = range(0, store.steps, BLOCK)
    blocks = [store.rows(np.arange(i, min(i + BLOCK, store.steps))).reward for i in starts]
    value = np.concatenate([np.zeros(0), *blocks, np.zeros(1)])  # at first each step's reward; then 0
    for step in range(int(store.length.max(initial=1)) - 2, -1, -1):
        at = store.first[:-1][store.length > step + 1] + step
        value[at] += discount * value[at + 1]
    return value[:-1]


def _source(store: EpisodeStore) -> Rows:
    """The training step at which the episode of each step ended, [S]."""
    return np.repeat(store.source, store.length)


def _segments(
    store: EpisodeStore, rows: Rows, window: int, told: Sequence[str], source: Rows, to_come: NDArray[np.float64]
) -> Segments:
    """The segments that end with the observations of these steps."""
    episode = np.searchsorted(store.first, rows, side="right") - 1
    step = rows - store.first[episode]
    back = np.arange(window - 1, -1, -1)
    lived = back <= step[:, None]  # [B, K]; the first observation is repeated before it
    steps = store.rows((rows[:, None] - np.minimum(back, step[:, None])).ravel())
    columns = {name: column.reshape(len(rows), window, *column.shape[1:]) for name, column in steps.obs.items()}
    actions = np.where(lived[:, :-1], steps.action.reshape(len(rows), window)[:, :-1], NO_ACTION)
    obs = {name: columns[name] for name, field in store.layout.fields.items() if field.kind != "text"}
    texts = [columns[name].reshape(len(rows), window, -1) for name in told]
    captions = _captions(store, np.concatenate(texts, 2), actions)
    return Segments(obs, actions, episode, step, source, to_come.astype(np.float32), captions)


def _captions(store: EpisodeStore, hashes: Rows, actions: Rows) -> list[list[str]]:
    """The lines of each segment, from the texts [B, K, n] of its observations, without the repeated ones before an
    episode."""
    unique, which = np.unique(hashes, return_inverse=True)
    said = [sentences([text]) for text in store.texts(unique)]
    found = []
    rows: Any = which.reshape(hashes.shape).tolist()  # text numbers by segment and observation
    for row, done in zip(rows, actions.tolist(), strict=True):
        names = [store.layout.actions[action] for action in done if action != NO_ACTION]
        seen = [[sentence for text in texts for sentence in said[text]] for texts in row[-1 - len(names) :]]
        found.append(tell(seen, names))
    return found


def _contents(segments: Segments) -> list[bytes]:
    """Equal for segments that look the same to a potential and to a language model."""
    shown = [segments.actions, *(segments.obs[name] for name in sorted(segments.obs))]
    found = []
    for i, caption in enumerate(segments.captions):
        content = hashlib.blake2b("\n".join(caption).encode(), digest_size=16)
        for column in shown:
            content.update(column[i].tobytes())
        found.append(content.digest())
    return found


def _joined(parts: Sequence[Segments]) -> Segments:
    obs = {name: np.concatenate([part.obs[name] for part in parts]) for name in parts[0].obs}
    rest: dict[str, Any] = {}
    for name in (field.name for field in fields(Segments)):
        if name not in ("obs", "captions"):
            rest[name] = np.concatenate([getattr(part, name) for part in parts])
    return Segments(obs, **rest, captions=[caption for part in parts for caption in part.captions])
