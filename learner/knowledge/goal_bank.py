"""The goal bank: sensible goals and the situations they belong to; and how near a step came to them.

    goals.jsonl, captions.jsonl ──> keys [n, D], goals [G, D], goals by key ──> goals.safetensors, goals.json

    past        the steps before the last ──> its 3 nearest keys ──> their goals ──┐
    transition  what was seen, done and seen in the last step ──> cosines ─────────┴─> the largest; above a threshold
                                                                                      it is phi, else phi is 0

Zhang et al. 2024 (arXiv 2407.03964), BK-Goal. Vectors are MiniLM embeddings. The threshold is a quantile of the
labelled segments' cosines, so that it means the same for any encoder.

A text is embedded as a whole (`caption`), or its vector is the sum of its sentences' vectors (`sentence`): an
environment has few sentences, but endlessly many captions. Then all but the last step is linear: an embedded text
becomes a *row* once, and the row of a longer text is the sum of its parts' rows:

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
"""Goals with a higher cosine are merged."""
SAME_KEY = 1 - 1e-5
"""Keys with a higher cosine are merged: rounding would decide which of them is nearer."""

By = Literal["sentence", "caption"]
Vectors = NDArray[np.float32]

_BREAK = re.compile(r"[.;,]\s+")


# ---- texts ----------------------------------------------------------------------------------------------------------


def in_order(lines: Iterable[str]) -> list[str]:
    """Lines of a segment's caption -> observation, action, observation, ..., observation: texts, in order of time."""
    texts = [""]
    for line in lines:
        if line.startswith(CHOSEN):
            texts += [line.removeprefix(CHOSEN), ""]
        elif line != NOTHING:
            texts[-1] = f"{texts[-1]}. {line}" if texts[-1] else line
    return texts


def events(captions: Iterable[Iterable[str]]) -> set[str]:
    """Names of the actions in segments' captions: actions of the environment where they were recorded."""
    return {line.removeprefix(CHOSEN) for lines in captions for line in lines if line.startswith(CHOSEN)}


def split(texts: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Texts `in_order` -> the past, up to the last action, and the transition: the last action with the observations
    around it.

    A state without a past is its own past.
    """
    return texts[:-2] or texts, texts[-3:]


def units(texts: Iterable[str], by: By) -> list[str]:
    """The units of texts to embed: each sentence, or part of one between commas; or the whole text."""
    said = [text for text in texts if text]
    if by == "caption":
        return [". ".join(said)][: len(said)]
    return [piece.strip(" .") for text in said for piece in _BREAK.split(text)]


class Embedded:
    """Vectors of texts, each embedded once and separately.

    Args:
        known: texts that are already embedded; others are added.
    """

    def __init__(self, known: dict[str, Vectors]) -> None:
        self.known = known

    def vector(self, parts: Sequence[str]) -> Vectors:
        """The sum of the parts' vectors, as a unit vector [D]; 0 without parts."""
        for text in parts:
            if text not in self.known:
                self.known[text] = embed_one(text)
        total = sum((self.known[text] for text in parts), start=np.zeros(MINILM_WIDTH, np.float32))
        unit: Vectors = total / np.maximum(np.linalg.norm(total), np.float32(1e-6))
        return unit


# ---- the bank -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GoalBank:
    """The bank of S segments with goals: n keys and G goals, without duplicates."""

    by: By
    keys: Vectors  # [n, D] unit vectors of the segments' captions
    goals: Vectors  # [G, D] unit vectors
    named: NDArray[np.bool_]  # [n, G] which goals were named for each key
    goal_texts: list[str]
    merged: list[tuple[str, str]]  # a goal, and the goal it was merged into
    units: list[str]  # all embedded texts
    vectors: Vectors  # [U, D] unit vectors of `units`
    source: str  # digest of its sources
    cosines: Vectors  # [S] of each segment's transition to the goals selected by its past; 0 without goals

    # ---- phi ----

    def row(self, vector: Vectors) -> Vectors:
        """[D + n + G]: a vector and its products, computed one by one, so that their bits depend on nothing else."""
        products = [(matrix * vector).sum(1) for matrix in (self.keys, self.goals)]
        return np.concatenate([vector, *products])

    def nearest(self, pasts: Vectors) -> NDArray[np.intp]:
        """The keys most similar to pasts, rows [M, D + n + G] -> [M, 3]."""
        last = self.goals.shape[1] + len(self.keys)
        products, n = pasts[:, self.goals.shape[1] : last], min(NEAREST, len(self.keys))
        return np.argpartition(products, len(self.keys) - n, axis=1)[:, len(self.keys) - n :]

    def likeness(self, transitions: Vectors) -> Vectors:
        """Cosines of transitions, rows [M, D + n + G], to all goals [M, G]; 0 for negative ones and without text."""
        vectors = transitions[:, : self.goals.shape[1]]
        length = np.sqrt((vectors * vectors).sum(1, keepdims=True))
        products = transitions[:, self.goals.shape[1] + len(self.keys) :]
        return np.clip(products / np.maximum(length, np.float32(1e-6)), 0, 1)  # type: ignore[no-any-return]

    def closest(self, nearest: NDArray[np.intp], likeness: Vectors) -> Vectors:
        """The largest cosine [M] to a goal of the nearest keys; 0 if these have none."""
        return np.where(self.named[nearest].any(1), likeness, np.float32(0)).max(1)  # type: ignore[no-any-return]

    def threshold(self, quantile: float) -> np.float32:
        """The threshold for cosines."""
        return np.float32(np.quantile(self.cosines, quantile))

    def phi_of_captions(self, captions: Sequence[Sequence[str]], quantile: float) -> Vectors:
        """Phi [S] of segments, by the lines of their captions."""
        closest = self._closest(captions, Embedded(dict(zip(self.units, self.vectors, strict=True))))
        return np.where(closest > self.threshold(quantile), closest, np.float32(0))

    def agreement(self, segments: Segments, quantile: float) -> float:
        """Rank correlation of phi with the return to go; NaN if one of them is constant."""
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
        """The bank of a label stage: loaded if `build` left it there, otherwise built now, at 9 ms per embedded text.

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
        """Build the bank from a label stage's goals and captions.

        Raises:
            StoreError: they are missing or damaged, or no goal was named.
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
        """Save into a folder, on behalf of an attempt. `goals.json` is written last: without it there is no bank."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        replace_file(folder / ARRAYS, safetensors.numpy.save(arrays), attempt)
        about = self.report() | {"format": FORMAT, "arrays": sha256(folder / ARRAYS)}
        about |= {name: getattr(self, name) for name in _TOLD}
        replace_file(folder / ABOUT, json.dumps(about, indent=1).encode(), attempt)

    @staticmethod
    def load(folder: Path) -> GoalBank:
        """Load what `save` wrote.

        Raises:
            StoreError: it is missing or damaged.
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
        """Statistics: numbers of segments, keys and goals, and deciles of the cosines from which a threshold is
        taken."""
        tenths = {f"{q / 10:.1f}": round(float(np.quantile(self.cosines, q / 10)), 4) for q in range(11)}
        return {"segments": len(self.cosines), "keys": len(self.keys), "goals": len(self.goals), "quantiles": tenths}


_ARRAYS = ("keys", "goals", "named", "vectors", "cosines")
_TOLD = ("by", "goal_texts", "merged", "units", "source")


def build(folder: Path, by: By = "sentence", attempt: Attempt | None = None) -> GoalBank:
    """Build the bank of a label stage and save it there, so that users have it at once.

    This runs on one core, as in actors: the last bits of a vector may depend on the number of cores.

    Raises:
        StoreError: as `GoalBank.make`.
    """
    import torch  # not needed to read a bank

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        bank = GoalBank.make(folder, by)
    finally:
        torch.set_num_threads(threads)
    bank.save(folder, attempt)
    return bank


def digest(folder: Path) -> str:
    """Digest of a bank's sources: equal for equal goals and captions.

    Raises:
        StoreError: they are missing.
    """
    try:
        return hashlib.sha256(f"{sha256(folder / GOALS)} {sha256(folder / CAPTIONS)}".encode()).hexdigest()
    except OSError as error:
        raise StoreError(f"{folder} holds no goals: {error}; name the folder of a label stage") from None


def read(folder: Path) -> tuple[list[list[str]], list[list[str]]]:
    """Captions of the S segments with goals, and the goals that were named for each.

    Raises:
        StoreError: they are missing or damaged, or no goal was named.
    """
    digest(folder)  # reports a missing file
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
    """Unit vectors without those that have a cosine above `same` to an earlier one, and the new index of each."""
    left, number = [vectors[0]], []
    for vector in vectors:
        alike = np.stack(left) @ vector
        number.append(int(alike.argmax()) if alike.max() > same else len(left))
        left += [vector] if number[-1] == len(left) else []
    return np.stack(left), number
