"""Texts as integers.

Inside one process a text is an `int32` id: its row in a `TextTable`. On the wire and on disk it is its 64-bit content
hash, which is the same in every process and on every machine. Hot paths carry ids; strings are made when read, and
hashes when asked for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def text_hash(text: str) -> int:
    """64-bit content hash of a text (BLAKE2b), as a signed integer so that it fits `int64` arrays and Arrow."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


class TextTable:
    """Interns texts to consecutive `int32` ids, and translates ids to texts and hashes.

    Ids are given in order of first appearance, so they differ between processes; never store or send one.
    """

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._id_of_text: dict[str, int] = {}
        self._hashes = np.empty(64, np.int64)
        self._hashed = np.zeros(64, np.bool_)  # the ids whose row of _hashes has been computed

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, text_id: int) -> str:
        return self._texts[text_id]

    def intern(self, text: str) -> int:
        """The id of `text`, a new one if it has not been seen."""
        known = self._id_of_text.get(text)
        if known is not None:
            return known
        new = len(self._texts)
        self._texts.append(text)
        self._id_of_text[text] = new
        return new

    def texts(self, ids: Iterable[int] | NDArray[np.integer]) -> list[str]:
        """The strings of `ids`, in order."""
        if isinstance(ids, np.ndarray):
            ids = ids.tolist()
        return [self._texts[i] for i in ids]

    def hashes(self, ids: NDArray[np.integer]) -> NDArray[np.int64]:
        """`ids` of any shape -> `int64` content hashes of the same shape. A text is hashed when first asked for."""
        while len(self._hashes) < len(self._texts):
            self._hashes = np.concatenate([self._hashes, np.empty_like(self._hashes)])
            self._hashed = np.concatenate([self._hashed, np.zeros_like(self._hashed)])
        new = np.unique(ids[~self._hashed[ids]])
        self._hashes[new] = [text_hash(text) for text in self.texts(new)]
        self._hashed[new] = True
        result: NDArray[np.int64] = self._hashes[ids]
        return result

    def export(self, ids: NDArray[np.integer]) -> dict[int, str]:
        """The texts among `ids`, as {hash: text}."""
        named = np.unique(ids)
        return dict(zip(self.hashes(named).tolist(), self.texts(named), strict=True))

    def pack(self, ids: NDArray[np.integer]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """`ids` of any shape, for a state -> rows of a list of texts, of the same shape, and that list as JSON.

        Texts stand in the order in which they are met: of equal texts, equal arrays, in every process.
        """
        met, first, rows = np.unique(ids, return_index=True, return_inverse=True)
        order = np.argsort(first)
        texts = json.dumps(self.texts(met[order]), ensure_ascii=False)
        return np.argsort(order)[rows].reshape(ids.shape).astype(np.int32), np.frombuffer(texts.encode(), np.uint8)

    def unpack(self, rows: NDArray[np.int32], texts: NDArray[np.uint8]) -> NDArray[np.int32]:
        """Ids of what another table packed, int32 of the shape of `rows`."""
        ids = np.array([self.intern(text) for text in json.loads(texts.tobytes().decode())], np.int32)
        found: NDArray[np.int32] = ids[rows]
        return found
