"""The peers of bk's potentials: the published loops (Zhang et al. 2024, arXiv 2407.03964), at their best.

    per_step_call         one call of a Python function for each (env, step)
    two_encodes           MiniLM on two texts for each (env, step), batches of 64, nothing kept
    sentences_anew        MiniLM on their sentences, batches of 64, nothing kept: phi as ours defines it

Written from the published description, without the authors' code.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.bk_programs import Written
from learner.knowledge.goal_bank import units
from learner.windows import Windows

Values = NDArray[np.float64]
Vectors = NDArray[np.float32]
Texts = Sequence[str]
"""Texts of observation, action, observation, ..., observation."""
Encode = Callable[[Sequence[str]], Vectors]
Form = Callable[[Written, Windows, str], list[float]]


def by_arrays(function: Written, windows: Windows, field: str) -> list[float]:
    """As published: the function gets the arrays of its window."""
    return [function(*window) for window in zip(windows.obs(field), windows.actions, strict=True)]


def by_lists(function: Written, windows: Windows, field: str) -> list[float]:
    """Better than published: the function gets lists. Each observation becomes a list once, shared by its windows.

    Python's cyclic garbage collector is off meanwhile. There are no cycles, and in a large process it would take
    several times as long as all other work.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        lists, index = windows.rows[field].tolist(), windows.index.tolist()
        actions = windows.actions.tolist()
        return [function([lists[i] for i in i_s], a_s) for i_s, a_s in zip(index, actions, strict=True)]
    finally:
        if enabled:
            gc.enable()


FORMS: dict[str, Form] = {"arrays": by_arrays, "lists": by_lists}


def forms(function: Written, windows: Windows, field: str) -> dict[str, Form]:
    """The forms that the function runs on: a comparison of two arrays has no single truth value."""
    one, found = Windows(windows.rows, windows.index[:64], windows.actions[:64]), dict[str, Form]()
    for name, form in FORMS.items():
        try:
            form(function, one, field)
        except ValueError:
            continue
        found[name] = form
    return found


def batches(windows: Windows, size: int) -> Iterator[Windows]:
    """Batches of `size` windows that share no observations."""
    for first in range(0, len(windows), size):
        index, actions = windows.index[first : first + size], windows.actions[first : first + size]
        yield Windows.of({name: column[index] for name, column in windows.rows.items()}, actions)


def encoded(encode: Encode, texts: Sequence[str]) -> Vectors:
    """Unit vectors of all texts, encoded 64 at a time."""
    return np.concatenate([encode(texts[first : first + 64]) for first in range(0, len(texts), 64)])


def two_encodes(encode: Encode, bank: Any, pasts: Sequence[Texts], transitions: Sequence[Texts]) -> Values:
    """As published: embeds two captions of several steps for each window."""
    of_pasts, of_transitions = (encoded(encode, [". ".join(texts) for texts in part]) for part in (pasts, transitions))
    return closest(bank, of_pasts, of_transitions)


def sentences_anew(encode: Encode, bank: Any, pasts: Sequence[Texts], transitions: Sequence[Texts]) -> Values:
    """Embeds all sentences of the same two captions for each window, and adds them up."""
    vectors = []
    for column in (pasts, transitions):
        parts = [units(texts, "sentence") for texts in column]
        found = encoded(encode, [sentence for part in parts for sentence in part])
        total = np.add.reduceat(found, np.cumsum([0, *map(len, parts[:-1])]))
        vectors.append(total / np.linalg.norm(total, axis=1, keepdims=True))
    return closest(bank, *vectors)


def closest(bank: Any, pasts: Vectors, transitions: Vectors) -> Values:
    """The largest cosine of each transition [M, D] to the goals of the three keys nearest to its past."""
    nearest = np.argsort(-(pasts @ bank.keys.T), axis=1)[:, :3]
    found: Values = np.where(bank.named[nearest].any(1), transitions @ bank.goals.T, 0.0).max(1)
    return found
