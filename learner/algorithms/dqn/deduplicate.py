"""Deduplicate a sample of the replay: its distinct observations, and the distinct texts that they name.

    parts [B, ...] ──> deduplicate ──> observations [U, ...] ──> texts_of: ids by field
                                                           ──> policy: numbers of each text ──> heads, for U rows
                                                           ──> frozen copy of it: outputs are remembered

A sample may be of many gradient steps. It is deduplicated as a whole, which costs each of them little; what a step
needs of it is then numbered anew (`drawn.py`).

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
from envs.compiler import compiled
from learner.models.policy import Policy

MOST_REMEMBERED = 100_000
"""Maximum number of texts whose features are cached, 0.2 GB for a network of width 512; beyond it, the cache is
cleared."""
MOST_BYTES = 2**26
"""Bytes of cached outputs; beyond them, the cache is cleared."""
BLOCK = 32
"""Observations are computed in blocks of so many rows, the last one filled up. A product's shape chooses its code, so
a row's bits depend neither on its company nor on the state of a cache."""

Ids = list[NDArray[np.int32]]
"""Ids of the distinct texts of each text field, in the order of `Policy.text_fields`."""


def deduplicate(
    fields: Mapping[str, Field], parts: Sequence[Observation]
) -> tuple[Observation, NDArray[np.int64], list[bytes]]:
    """The distinct observations among all `parts`, each [B, ...].

    Pictures are not compared: all observations with a picture count as distinct.

    Returns:
        Observations [U, ...] in order of first occurrence; for each input its index among them, [len(parts), B]; and
        a key of each of them, [U], no keys with pictures.
    """
    whole = {name: np.concatenate([part[name] for part in parts]) for name in fields}
    total = len(next(iter(whole.values())))
    if any(field.kind == "pixels" for field in fields.values()):
        return whole, np.arange(total).reshape(len(parts), -1), []
    seen = np.concatenate([value.reshape(total, -1).view(np.uint8) for value in whole.values()], 1)
    rows, first = np.empty(total, np.int64), np.empty(total, np.int64)
    first = first[: _distinct(seen, np.full(2 ** (2 * total).bit_length(), -1), rows, first)]
    keys = seen[first].view(f"V{seen.shape[1]}").ravel().tolist()
    return {name: value[first] for name, value in whole.items()}, rows.reshape(len(parts), -1), keys


@compiled
def _distinct(
    rows: NDArray[np.uint8], table: NDArray[np.int64], number: NDArray[np.int64], first: NDArray[np.int64]
) -> int:
    """Number equal rows [N, bytes] alike, by first appearance. `number` and `first` are [N]; returns the numbers used.

    table: -1, at least 2 N of them and a power of two. A row's number is at the first place free from its hash on.
    """
    found = 0
    for i in range(len(rows)):
        row, code = rows[i], np.uint64(14695981039346656037)
        for byte in row:
            code = (code ^ byte) * np.uint64(1099511628211)  # FNV-1a
        place = np.int64((code ^ (code >> np.uint64(32))) & np.uint64(len(table) - 1))
        while table[place] >= 0:
            other = rows[first[table[place]]]
            same = True
            for k in range(len(row)):
                if row[k] != other[k]:
                    same = False
                    break
            if same:
                break
            place = (place + 1) & (len(table) - 1)
        if table[place] < 0:
            table[place] = found
            first[found] = i
            found += 1
        number[i] = table[place]
    return found


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
    """The outputs of a frozen policy for observations, and the features of texts in them, each computed once.

    Outputs are remembered if the network publishes `combine`, which treats each row by itself; other networks share
    work among the rows of a batch, so that a row's last bits depend on the others.

    This is for the CPU: a GPU computes some hundred observations together faster than a few alone.

    Args:
        policy: call `forget` after changing its weights.
        text: the text of an id.
    """

    def __init__(self, policy: Policy, text: Callable[[int], str]) -> None:
        assert policy.q is not None
        self.policy, self.q, self.text = policy, policy.q, text
        self.kept: dict[tuple[int, int], Tensor] = {}
        self.rows: dict[bytes, int] = {}
        self.outputs = torch.zeros(0, self.q.actions, self.q.atoms)
        self.by_row = hasattr(policy.network, "combine")

    def forget(self) -> None:
        """Clear the cache: the policy has other weights, or ids mean other texts."""
        self.kept.clear()
        self.rows.clear()

    @torch.no_grad()
    def __call__(self, seen: Mapping[str, Tensor], which: Tensor, ids: Ids, keys: Sequence[bytes]) -> Tensor:
        """Outputs [n, A, atoms] for observations.

        Args:
            seen: inputs [U, ...]; a text field holds rows of `ids`, field by field.
            which: int64 [n] of these inputs.
            keys: [n] of the observations; none if they are not comparable.
        """
        if not keys or not self.by_row:
            inputs = {name: value[which] for name, value in seen.items()}
            outputs: Tensor = self.q(*self.policy.features(inputs, self.texts(ids)))
            return outputs.float()
        if len(self.rows) * self.outputs[:1].nbytes > MOST_BYTES:
            self.rows.clear()
        new = [place for place, key in enumerate(keys) if key not in self.rows]
        if new:
            rows = which[torch.tensor(new)]
            outputs = self._compute({name: value[rows] for name, value in seen.items()}, self.texts(ids))
            until = len(self.rows) + len(new)
            if until > len(self.outputs):
                grown = self.outputs.new_zeros(max(until, 2 * len(self.outputs)), *self.outputs.shape[1:])
                grown[: len(self.outputs)] = self.outputs
                self.outputs = grown
            self.outputs[len(self.rows) : until] = outputs
            self.rows |= {keys[place]: len(self.rows) + i for i, place in enumerate(new)}
        return self.outputs[torch.tensor([self.rows[key] for key in keys])]

    def _compute(self, seen: Mapping[str, Tensor], texts: Tensor) -> Tensor:
        """Outputs [n, A, atoms] of inputs [n, ...], in blocks."""
        n = len(next(iter(seen.values())))
        found = []
        for begin in range(0, n, BLOCK):
            rows = torch.arange(begin, begin + BLOCK).clamp(max=n - 1)
            block = {name: value[rows] for name, value in seen.items()}
            found.append(self.q(*self.policy.features(block, texts)).float())
        return torch.cat(found)[:n]

    @torch.no_grad()
    def texts(self, ids: Ids) -> Tensor:
        """As `Policy.of_texts`, [sum of U, width]. Each text is computed alone, for the same reason as blocks are."""
        if len(self.kept) > MOST_REMEMBERED:
            self.kept.clear()
        keys = [(field, text) for field, found in enumerate(ids) for text in found.tolist()]
        for field, text in keys:
            if (field, text) not in self.kept:
                sizes = [int(other == field) for other in range(len(ids))]
                self.kept[field, text] = self.policy.of_texts(self.policy.prepare([self.text(text)]), sizes)[0]
        return torch.stack([self.kept[key] for key in keys]) if keys else self.policy.codes(None)
