"""What is drawn from a replay, each thing once: different observations, and the different texts that they name.

    parts [B, ...] ──> deduplicate ──> observations [U, ...] ──> Texts: ids by field
                                                           ──> policy: numbers of each text   ──> heads, for U rows
                                                           ──> still copy of it: remembered   ──> heads, for U rows

A world in words repeats itself: of 512 observations of Crafter some 150 differ, and they name 90 texts. What follows is
computed for these and then gathered. The limit is looking at every byte of the observations once.
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
"""Texts whose numbers are remembered at most, 0.2 GB where the network is 512 wide; then all are forgotten."""

Ids = list[NDArray[np.int32]]
"""Ids of the different texts of each text field, in the order of `Policy.text_fields`."""


def deduplicate(fields: Mapping[str, Field], parts: Sequence[Observation]) -> tuple[Observation, NDArray[np.int64]]:
    """The different ones of all observations in `parts`, each [B, ...].

    Pictures are not looked at: observations with one are all taken to differ.

    Returns:
        Observations [U, ...], in the order in which they come first; and which of them each one is, [len(parts), B].
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
    """The different texts of the fields `names`, and observations that name them by their row, instead of by id.

    Rows are those of `Policy.of_texts`: the texts of one field after those of another.
    """
    named, ids, before = dict(obs), Ids(), 0
    for name in names:
        found, rows = np.unique(obs[name], return_inverse=True)
        named[name] = before + rows.reshape(obs[name].shape)
        ids.append(found)
        before += len(found)
    return named, ids


class Remembered:
    """What a policy that stands still makes of texts, each worked out once.

    Each is worked out alone, so that its bits do not depend on its company, and thus not on what was forgotten. For the
    processor: a GPU reads some hundred texts together sooner than one alone.

    Args:
        policy: whoever changes its weights calls `forget`.
        text: the text of an id.
    """

    def __init__(self, policy: Policy, text: Callable[[int], str]) -> None:
        self.policy, self.text = policy, text
        self.kept: dict[tuple[int, int], Tensor] = {}

    def forget(self) -> None:
        """The policy has other weights, or ids mean other texts."""
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
