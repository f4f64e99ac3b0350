"""Deduplicate a sample of the replay: its distinct observations, and the distinct texts that they name.

    parts [B, ...] ──> deduplicate ──> observations [U, ...] ──> Texts: ids by field
                                                           ──> policy: numbers of each text   ──> heads, for U rows
                                                           ──> frozen copy of it: cached      ──> heads, for U rows

Text environments repeat themselves: of 512 observations of Crafter some 150 are distinct, and they name 90 texts.
Everything that follows is computed for these and then gathered. The limit is reading every byte of the observations
once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envs.api import Field, Observation
from learner.models.policy import Policy

MOST_REMEMBERED = 100_000
"""Maximum number of texts whose features are cached, 0.2 GB for a network of width 512; beyond it, the cache is
cleared."""

Ids = list[NDArray[np.int32]]
"""Ids of the distinct texts of each text field, in the order of `Policy.text_fields`."""


def deduplicate(fields: Mapping[str, Field], parts: Sequence[Observation]) -> tuple[Observation, NDArray[np.int64]]:
    """The distinct observations among all `parts`, each [B, ...].

    Pictures are not compared: all observations with a picture count as distinct.

    Returns:
        Observations [U, ...] in order of first occurrence, and for each input its index among them, [len(parts), B].
    """
    whole = {name: np.concatenate([part[name] for part in parts]) for name in fields}
    total = len(next(iter(whole.values())))
    if any(field.kind == "pixels" for field in fields.values()):
        return whole, np.arange(total).reshape(len(parts), -1)
    seen = np.concatenate([value.reshape(total, -1).view(np.uint8) for value in whole.values()], 1)
    place: dict[bytes, int] = {}
    rows = np.array([place.setdefault(key, len(place)) for key in seen.view(f"V{seen.shape[1]}").ravel().tolist()])
    first = np.unique(rows, return_index=True)[1]
    return {name: value[first] for name, value in whole.items()}, rows.reshape(len(parts), -1)


def texts_of(names: Sequence[str], obs: Observation) -> tuple[Observation, Ids]:
    """The distinct texts of the fields `names`, and observations that refer to them by row instead of by id.

    Rows are in the order of `Policy.of_texts`: field by field.
    """
    named, ids, before = dict(obs), Ids(), 0
    for name in names:
        found, rows = np.unique(obs[name], return_inverse=True)
        named[name] = before + rows.reshape(obs[name].shape)
        ids.append(found)
        before += len(found)
    return named, ids


class Remembered:
    """The features of texts by a frozen policy, each computed once.

    Each text is computed alone, so that its bits do not depend on the batch, and thus not on the state of the cache.
    This is for the CPU: a GPU reads some hundred texts together faster than one alone.

    Args:
        policy: call `forget` after changing its weights.
        text: the text of an id.
    """

    def __init__(self, policy: Policy, text: Callable[[int], str]) -> None:
        self.policy, self.text = policy, text
        self.kept: dict[tuple[int, int], Tensor] = {}

    def forget(self) -> None:
        """Clear the cache: the policy has other weights, or ids mean other texts."""
        self.kept.clear()

    @torch.no_grad()
    def __call__(self, ids: Ids) -> Tensor:
        """As `Policy.of_texts`, [sum of U, width]."""
        if len(self.kept) > MOST_REMEMBERED:
            self.forget()
        keys = [(field, text) for field, found in enumerate(ids) for text in found.tolist()]
        for field, text in keys:
            if (field, text) not in self.kept:
                sizes = [int(other == field) for other in range(len(ids))]
                self.kept[field, text] = self.policy.of_texts(self.policy.prepare([self.text(text)]), sizes)[0]
        return torch.stack([self.kept[key] for key in keys]) if keys else self.policy.codes(None)
