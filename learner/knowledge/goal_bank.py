"""The goal bank: what it was sensible to set out for, and where; and how near to that a step has come.

    goals.jsonl, captions.jsonl ──> keys [n, D], goals [G, D], who named which ──> goals.safetensors, goals.json

    past        what led to the last step ──> its 3 nearest keys ──> their goals ──┐
    transition  what was seen, done and seen in the last step ──> cosines ─────────┴─> the largest; above a threshold
                                                                                      it is phi, else phi is 0

Zhang et al. 2024 (arXiv 2407.03964), BK-Goal. Vectors are MiniLM's. The threshold is a quantile of the cosines of the
segments that were asked about, so that it means the same whatever the encoder.

A text is embedded as a whole (`caption`), or its vector is the sum of those of its sentences (`sentence`), of which a
world has few while it has endlessly many captions. Then all but the last step is linear: an embedded text becomes a
*row* once, and the row of a longer text is the sum of those of its parts:

    [ vector (D) | its products with all keys (n) | and with all goals (G) ]
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from learner.behaviours.agreement import spearman
from learner.files import Attempt, read_about, replace_file, sha256
from learner.knowledge.captions import NOTHING
from learner.knowledge.segments import CAPTIONS, Segments
from learner.store.episodes import StoreError
from llm_service.embedding import MINILM_WIDTH, embed_one
from llm_service.tasks.label_preference import CHOSEN

GOALS, ARRAYS, ABOUT = "goals.jsonl", "goals.safetensors", "goals.json"
FORMAT = 1
NEAREST = 3
"""Keys whose goals count (Zhang et al.)."""
SAME_GOAL = 0.98
"""Goals with a higher cosine are one."""
SAME_KEY = 1 - 1e-5
"""Keys with a higher cosine are one: rounding would decide which of them is nearer."""

By = Literal["sentence", "caption"]
Vectors = NDArray[np.float32]

_BREAK = re.compile(r"[.;,]\s+")


# ---- texts ----------------------------------------------------------------------------------------------------------


def in_order(lines: Iterable[str]) -> list[str]:
    """Lines of a segment's caption -> what was seen, done, seen, ..., seen: texts, in order of time."""
    texts = [""]
    for line in lines:
        if line.startswith(CHOSEN):
            texts += [line.removeprefix(CHOSEN), ""]
        elif line != NOTHING:
            texts[-1] = f"{texts[-1]}. {line}" if texts[-1] else line
    return texts


def deeds(captions: Iterable[Iterable[str]]) -> set[str]:
    """The actions that segments' captions tell of, by name: those of the world where they were lived."""
    return {line.removeprefix(CHOSEN) for lines in captions for line in lines if line.startswith(CHOSEN)}


def split(texts: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Texts `in_order` -> the past and the transition: what the last action follows, and what it joins.

    A state that nothing led to is its own past.
    """
    return texts[:-2] or texts, texts[-3:]


def units(texts: Iterable[str], by: By) -> list[str]:
    """What is embedded of texts: each sentence, or part of one between commas; or all as one."""
    said = [text for text in texts if text]
    if by == "caption":
        return [". ".join(said)][: len(said)]
    return [piece.strip(" .") for text in said for piece in _BREAK.split(text)]


class Embedded:
    """Vectors of texts, each embedded once and alone.

    Args:
        known: those that are embedded; others are added.
    """

    def __init__(self, known: dict[str, Vectors]) -> None:
        self.known = known

    def vector(self, parts: Sequence[str]) -> Vectors:
        """The sum of the parts' vectors, as a unit vector [D]; 0 of no parts."""
        for text in parts:
            if text not in self.known:
                self.known[text] = embed_one(text)
        total = sum((self.known[text] for text in parts), start=np.zeros(MINILM_WIDTH, np.float32))
        unit: Vectors = total / np.maximum(np.linalg.norm(total), np.float32(1e-6))
        return unit


# ---- the bank -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GoalBank:
    """Of S segments about which goals were asked: n keys and G goals, equal ones once."""

    by: By
    keys: Vectors  # [n, D] unit vectors of the segments' captions
    goals: Vectors  # [G, D] unit vectors
    named: NDArray[np.bool_]  # [n, G] which goals were named there
    goal_texts: list[str]
    merged: list[tuple[str, str]]  # a goal, and another that is taken for it
    units: list[str]  # all that was embedded
    vectors: Vectors  # [U, D] unit vectors of `units`
    source: str  # digest of what it is made of
    cosines: Vectors  # [S] of each segment's transition to the goals that its past chooses; 0 if these are none

    # ---- phi ----

    def row(self, vector: Vectors) -> Vectors:
        """[D + n + G]: a vector and its products, made one by one: their bits depend on nothing else."""
        products = [(matrix * vector).sum(1) for matrix in (self.keys, self.goals)]
        return np.concatenate([vector, *products])

    def nearest(self, pasts: Vectors) -> NDArray[np.intp]:
        """The keys that are most like pasts, rows [M, D + n + G] -> [M, 3]."""
        last = self.goals.shape[1] + len(self.keys)
        products, n = pasts[:, self.goals.shape[1] : last], min(NEAREST, len(self.keys))
        return np.argpartition(products, len(self.keys) - n, axis=1)[:, len(self.keys) - n :]

    def likeness(self, transitions: Vectors) -> Vectors:
        """Cosines of transitions, rows [M, D + n + G], to all goals [M, G]; 0 for negative ones, and
        where there is no text."""
        vectors = transitions[:, : self.goals.shape[1]]
        length = np.sqrt((vectors * vectors).sum(1, keepdims=True))
        products = transitions[:, self.goals.shape[1] + len(self.keys) :]
        return np.clip(products / np.maximum(length, np.float32(1e-6)), 0, 1)  # type: ignore[no-any-return]

    def closest(self, nearest: NDArray[np.intp], likeness: Vectors) -> Vectors:
        """The largest cosine [M] to a goal of the nearest keys; 0 if none was named there."""
        return np.where(self.named[nearest].any(1), likeness, np.float32(0)).max(1)  # type: ignore[no-any-return]

    def threshold(self, quantile: float) -> np.float32:
        """What a cosine must exceed."""
        return np.float32(np.quantile(self.cosines, quantile))

    def phi_of_captions(self, captions: Sequence[Sequence[str]], quantile: float) -> Vectors:
        """Phi [S] of segments, by the lines of their captions."""
        closest = self._closest(captions, Embedded(dict(zip(self.units, self.vectors, strict=True))))
        return np.where(closest > self.threshold(quantile), closest, np.float32(0))

    def agreement(self, segments: Segments, quantile: float) -> float:
        """Rank correlation of phi with the return to come; NaN if one of them is the same everywhere."""
        phi = self.phi_of_captions(segments.captions, quantile).astype(np.float64)
        return spearman(phi, segments.to_come.astype(np.float64))

    def _closest(self, captions: Sequence[Sequence[str]], embedded: Embedded) -> Vectors:
        parts = [split(in_order(lines)) for lines in captions]
        pasts, transitions = (
            np.stack([self.row(embedded.vector(units(texts, self.by))) for texts in column])
            for column in zip(*parts, strict=True)
        )
        return self.closest(self.nearest(pasts), self.likeness(transitions))

    # ---- made of a label stage ----

    @staticmethod
    def of(folder: Path, by: By = "sentence") -> GoalBank:
        """That of a label stage: as `build` left it there, else made now, at 9 ms for each text that is embedded.

        Raises:
            StoreError: the folder has no goals, or is damaged.
        """
        if (folder / ABOUT).exists():
            bank = GoalBank.load(folder)
            if (bank.by, bank.source) == (by, digest(folder)):
                return bank
        return GoalBank.make(folder, by)

    @staticmethod
    def make(folder: Path, by: By = "sentence") -> GoalBank:
        """Of a label stage's goals and captions.

        Raises:
            StoreError: they are not there or damaged, or no goal was named.
        """
        captions, named = read(folder)
        texts = list(dict.fromkeys(goal for goals in named for goal in goals))
        embedded = Embedded({})
        goals, goal_of = _deduplicate([embedded.vector([goal]) for goal in texts], SAME_GOAL)
        keys, key_of = _deduplicate([embedded.vector(units(in_order(lines), by)) for lines in captions], SAME_KEY)
        number = dict(zip(texts, goal_of, strict=True))
        table = np.zeros((len(keys), len(goals)), np.bool_)
        for key, mine in zip(key_of, named, strict=True):
            table[key, [number[goal] for goal in mine]] = True
        kept = [texts[goal_of.index(g)] for g in range(len(goals))]
        merged = [(kept[g], text) for text, g in number.items() if text != kept[g]]
        nothing = np.zeros(0, np.float32)
        bank = GoalBank(by, keys, goals, table, kept, merged, [], nothing, digest(folder), nothing)
        cosines = bank._closest(captions, embedded)
        known = embedded.known
        return dataclasses.replace(bank, cosines=cosines, units=list(known), vectors=np.stack([*known.values()]))

    def save(self, folder: Path, attempt: Attempt | None = None) -> None:
        """Into a folder, in an attempt's name. `goals.json` comes last: without it there is no bank."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        replace_file(folder / ARRAYS, safetensors.numpy.save(arrays), attempt)
        about = self.report() | {"format": FORMAT, "arrays": sha256(folder / ARRAYS)}
        about |= {name: getattr(self, name) for name in _TOLD}
        replace_file(folder / ABOUT, json.dumps(about, indent=1).encode(), attempt)

    @staticmethod
    def load(folder: Path) -> GoalBank:
        """What `save` wrote.

        Raises:
            StoreError: it is not there, or damaged.
        """
        about = read_about(folder / ABOUT, "goal bank", (FORMAT,), (*_TOLD, "arrays"), StoreError)
        try:
            if sha256(folder / ARRAYS) != about["arrays"]:
                raise ValueError(f"{ARRAYS} is not the one that {ABOUT} tells of")
            arrays = safetensors.numpy.load_file(folder / ARRAYS)
            bank = GoalBank(**{name: (about | arrays)[name] for name in (*_TOLD, *_ARRAYS)})
        except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
            raise StoreError(f"{folder} holds no goal bank that can be read: {error}; run its stage again") from None
        return bank

    def report(self) -> dict[str, Any]:
        """What there is, in numbers: segments, keys, goals, and tenths of the cosines that a threshold is taken of."""
        tenths = {f"{q / 10:.1f}": round(float(np.quantile(self.cosines, q / 10)), 4) for q in range(11)}
        return {"segments": len(self.cosines), "keys": len(self.keys), "goals": len(self.goals), "quantiles": tenths}


_ARRAYS = ("keys", "goals", "named", "vectors", "cosines")
_TOLD = ("by", "goal_texts", "merged", "units", "source")


def build(folder: Path, by: By = "sentence", attempt: Attempt | None = None) -> GoalBank:
    """Make the bank of a label stage and leave it there, so that whoever uses it has it at once.

    On one core, as actors embed: the last bits of a vector may depend on how many there are.

    Raises:
        StoreError: as `GoalBank.make`.
    """
    import torch  # whoever reads a bank does without it

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        bank = GoalBank.make(folder, by)
    finally:
        torch.set_num_threads(threads)
    bank.save(folder, attempt)
    return bank


def digest(folder: Path) -> str:
    """Of all that a bank is made of: equal for equal goals and captions.

    Raises:
        StoreError: they are not there.
    """
    try:
        return hashlib.sha256(f"{sha256(folder / GOALS)} {sha256(folder / CAPTIONS)}".encode()).hexdigest()
    except OSError as error:
        raise StoreError(f"{folder} holds no goals: {error}; name the folder of a label stage") from None


def read(folder: Path) -> tuple[list[list[str]], list[list[str]]]:
    """Captions of the S segments about which goals were asked, and the goals that were named for each.

    Raises:
        StoreError: they are not there or damaged, or no goal was named.
    """
    digest(folder)  # says what is not there
    try:
        captions = [json.loads(line) for line in (folder / CAPTIONS).read_text(encoding="utf-8").splitlines()]
        asked = [json.loads(line) for line in (folder / GOALS).read_text(encoding="utf-8").splitlines()]
        told = [captions[line["segment"]] for line in asked]
        named = [list(map(str, line["goals"])) for line in asked]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise StoreError(f"{folder / GOALS} cannot be read: {error!r}; run its stage again") from None
    if not any(named):
        raise StoreError(f"{folder / GOALS} names no goal at all: nothing can be compared with it")
    return told, named


def _deduplicate(vectors: Sequence[Vectors], same: float) -> tuple[Vectors, list[int]]:
    """Unit vectors that are left when each with a cosine above `same` to an earlier one goes, and which each is now."""
    left, number = [vectors[0]], []
    for vector in vectors:
        alike = np.stack(left) @ vector
        number.append(int(alike.argmax()) if alike.max() > same else len(left))
        left += [vector] if number[-1] == len(left) else []
    return np.stack(left), number
