"""Behaviour and language: sentences for what a trajectory passes, the request of a text, and how well it was followed.

    symbols ──said──> sentences of each moment ──> the describer (LLM service) ──> text ──asked──> places in order
    pose ──> visits ─────────────────────────────────────────────────────────────────┴──obeyed──> score in [0, 1]

Texts may name places in another order than the one that they ask for. The describer is told which order to use, so
that what its texts ask for is known without understanding them; of other texts it is assumed that they name places in
the order of time.

The score is a rule, not an opinion: it can be computed for millions of behaviours, and raters are compared with it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from envs.navigation.scene import DEAD, NEAR, SIDES, Scene, Symbols, said

UNKNOWN, BEGIN, END = "[UNK]", "[CLS]", "[SEP]"
DRIVE = "drive"
"""The sentence for a robot's motion between two moments."""
ORDERS = ("forwards", "end first", "backwards")
"""In which order texts name places: as they come; the last one first, the others as they come; from the last one back
to the first. So says the language model's task, too (`caption_trajectory`)."""


class Description(NamedTuple):
    """A text about a behaviour, or a sentence that asks for one."""

    text: str
    places: tuple[str, ...]  # that it names, in the order of time


def told(scene: Scene, symbols: Symbols, trajectory: int, *, positions: bool = False) -> list[list[str]]:
    """Sentences for each moment of a trajectory: its tile, and the nearby furniture, nearest first.

    positions: also where it is, in pixels, y up: for a judge, who may measure.
    """
    result = []
    for moment in range(len(symbols.step)):
        here = trajectory, moment
        near = [int(o) for o in np.argsort(symbols.distance[here], kind="stable") if symbols.side[here][o] >= 0]
        sentences = [f"You are on the {scene.colours[symbols.tile[here]]} tile"] if scene.house.tiles else []
        sentences += [f"You are at the {scene.objects[o]}, {said(SIDES[symbols.side[here][o]])}" for o in near]
        if positions:
            x, y = symbols.position[here].tolist()
            sentences.append(f"You are at ({x}, {y})")
        result.append(sentences)
    return result


def headed(positions: Sequence[Sequence[int]]) -> list[str]:
    """The motion between moments S at [S, 2], pixels, y up: S - 1 sentences, "drive north east", or "drive" where a
    robot moved by at most DEAD along both axes."""
    steps = np.diff(np.asarray(positions, np.int64).reshape(-1, 2), axis=0)
    found = []
    for east, north in steps.tolist():
        way = " ".join(name for name, far in (("north", north), ("south", -north)) if far > DEAD)
        way = f"{way} {' '.join(name for name, far in (('east', east), ('west', -east)) if far > DEAD)}".strip()
        found.append(f"{DRIVE} {way}" if way else DRIVE)
    return found


def with_end(text: str, end: Sequence[float]) -> str:
    """A text that also says where to end: "go to the bed [x=480, y=520]." World units, y down, rounded.

    Published texts may hold their end's coordinates like this (Salehi and Doncieux 2023).
    """
    mark = text[-1:] if text[-1:] in (".", "!", "?") else ""
    return f"{text.removesuffix(mark)} [x={round(end[0])}, y={round(end[1])}]{mark}"


def asked(scene: Scene, text: str, order: str = "forwards") -> list[str]:
    """The places of the scene that a text names, in the order of time, without immediate repetitions.

    A tile is named by its colour, whatever noun follows. The map's synonyms count as names.

    order: in which the text names them, one of ORDERS.
    """
    longest = sorted(scene.names, key=len, reverse=True)  # a file cabinet is not a cabinet
    found = [scene.names[name] for name in re.findall(rf"\b({'|'.join(map(re.escape, longest))})\b", text.lower())]
    if order == "end first":
        found = [*found[1:], *found[:1]]
    elif order == "backwards":
        found = found[::-1]
    return [place for i, place in enumerate(found) if i == 0 or place != found[i - 1]]


def visited(scene: Scene, pose: NDArray[np.float32]) -> tuple[list[list[str]], list[set[str]]]:
    """For trajectories [N, T, 3]: the places that each visited, in order and at every visit, and its final places."""
    routes = scene.route(pose, near=NEAR, again=True)
    last = [set(places) for places in scene.route(pose[:, -1:], near=NEAR)]
    return routes, last


def obeyed(wanted: Sequence[str], route: Sequence[str], last: set[str]) -> float:
    """How well a robot followed a request, in [0, 1].

    The share of the requested places that was visited in the requested order (longest common subsequence); ending at
    the last one counts as one more place.
    """
    if not wanted:
        return 0.0
    return (in_order(wanted, route) + (wanted[-1] in last)) / (len(wanted) + 1)


def is_true(places: Sequence[str], route: Sequence[str], last: set[str]) -> bool:
    """Whether a description names places, in the order of time, and the robot visited all of them in that order and
    ended at the last one.

    So a behaviour obeys its own text fully: obedience 1 is the ceiling of every trial.
    """
    return bool(places) and obeyed(places, route, last) == 1


def describes_route(wanted: Sequence[str]) -> bool:
    """Whether places of a text are a way: at least two different ones. One alone is but an end."""
    return len(set(wanted)) > 1


def likeness(one: Sequence[str], other: Sequence[str]) -> float:
    """How alike two requests are, in [0, 1]: twice the places that they share in order, as a share of all (Dice)."""
    return 2 * in_order(one, other) / max(len(one) + len(other), 1)


def in_order(wanted: Sequence[str], route: Sequence[str]) -> int:
    """How many places of `wanted` a route visits in order: the longest common subsequence."""
    best = [0] * (len(route) + 1)
    for place in wanted:
        before = 0
        for j, other in enumerate(route, 1):
            held = best[j]
            best[j] = before + 1 if place == other else max(best[j], best[j - 1])
            before = held
    return best[-1]


# ---- tokens ----------------------------------------------------------------------------------------------------------


def train_tokenizer(texts: Sequence[str], size: int, least: int) -> Tokenizer:
    """Lower-case words without accents, and one token, number 0, for all rare words.

    A learned vocabulary of word parts would depend on the order of a hash table where two are equally common, and so
    differ from one process to the next; and a model cannot understand parts of words that it never read.

    size: maximum number of entries.
    least: how often a word must occur.
    """
    tokenizer = Tokenizer(models.WordLevel({UNKNOWN: 0}, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    told = [tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(text)) for text in texts]
    counts = Counter(word for words in told for word, _ in words)
    common = sorted((word for word, count in counts.items() if count >= least), key=lambda word: (-counts[word], word))
    entries = dict.fromkeys([UNKNOWN, BEGIN, END, *common[: size - 3]])
    tokenizer.model = models.WordLevel({word: number for number, word in enumerate(entries)}, unk_token=UNKNOWN)
    return tokenizer


def encode(tokenizer: Tokenizer, texts: Sequence[str], most: int) -> list[NDArray[np.int32]]:
    """Token ids of each text.

    Raises:
        ValueError: a text has more than `most` tokens.
    """
    begin, end = (tokenizer.token_to_id(token) for token in (BEGIN, END))
    result = []
    for text, found in zip(texts, tokenizer.encode_batch(list(texts)), strict=True):
        ids = np.array([begin, *found.ids, end], np.int32)
        if len(ids) > most:
            raise ValueError(f"a text has {len(ids)} tokens, at most {most} are read: {text[:80]!r}...")
        result.append(ids)
    return result
