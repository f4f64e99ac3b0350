"""What bk's potentials are compared with: the published loops (Zhang et al. 2024, arXiv 2407.03964), at their best.

    per_step_call         one call of a Python function for each (env, step)
    two_encodes           MiniLM on two texts for each (env, step), batches of 64, nothing kept
    recomputed_windows    the same model, but every observation of every window encoded anew, batches of 256

Written from what is known of them; no code of theirs is here.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.bk_programs import Written
from learner.windows import Windows

Values = NDArray[np.float64]
Form = Callable[[Written, Windows, str], list[float]]


def by_arrays(function: Written, windows: Windows, field: str) -> list[float]:
    """As published: the function sees arrays, those of its window."""
    return [function(*window) for window in zip(windows.obs(field), windows.actions, strict=True)]


def by_lists(function: Written, windows: Windows, field: str) -> list[float]:
    """Better than published: it sees lists, each observation made one once and shared by the windows that hold it.

    Python does not look for circles of garbage meanwhile, of which there are none: with a large process around it, that
    takes several times as long as all else.
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
    """Those that the function runs on: one that compares two views has no truth on arrays."""
    one, found = Windows(windows.rows, windows.index[:64], windows.actions[:64]), dict[str, Form]()
    for name, form in FORMS.items():
        try:
            form(function, one, field)
        except ValueError:
            continue
        found[name] = form
    return found


def batches(windows: Windows, size: int) -> Iterator[Windows]:
    """Windows that share nothing, so many at once."""
    for first in range(0, len(windows), size):
        index, actions = windows.index[first : first + size], windows.actions[first : first + size]
        yield Windows.of({name: column[index] for name, column in windows.rows.items()}, actions)


def recomputed_windows(potential: Any, windows: Windows) -> Values:
    """Phi by a model that encodes each window for itself."""
    return np.concatenate([potential.phi(part) for part in batches(windows, 256)])


def encoded(encode: Callable[[Sequence[str]], NDArray[np.float32]], texts: Sequence[str]) -> NDArray[np.float32]:
    """Unit vectors of all texts, 64 at once."""
    return np.concatenate([encode(texts[first : first + 64]) for first in range(0, len(texts), 64)])


def two_encodes(
    encode: Callable[[Sequence[str]], NDArray[np.float32]], bank: Any, pasts: Sequence[str], transitions: Sequence[str]
) -> Values:
    """The largest cosine of each transition to the goals of the three keys that are most like its past."""
    likeness = encoded(encode, pasts) @ bank.keys.T
    cosines = encoded(encode, transitions) @ bank.goals.T
    nearest = np.argsort(-likeness, axis=1)[:, :3]
    closest: Values = np.where(bank.named[nearest].any(1), cosines, 0.0).max(1)
    return closest
