"""A segment as text for a language model: lines in order of time.

    You see a red ball 2 steps forward. You see a wall 3 steps left
    You choose: go forward
    You see a red ball 1 step forward. You see a wall 2 steps left

An observation is one line, or several if it is long. An action stands between two observations.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from llm_service.tasks.label_preference import CHOSEN

LONGEST = 300
"""Maximum characters of a line, a limit of the tasks."""
NOTHING = "Nothing is told"
"""Replaces an observation without sentences."""


def sentences(texts: Iterable[str]) -> list[str]:
    """The sentences of texts, which are separated by a full stop and a space."""
    found = (sentence.strip().removesuffix(".") for text in texts for sentence in text.split(". "))
    return [sentence for sentence in found if sentence]


def tell(seen: Sequence[Sequence[str]], actions: Sequence[str]) -> list[str]:
    """The lines of a segment.

    Args:
        seen: sentences of each of its observations, oldest first.
        actions: names of the actions between them, one fewer.
    """
    lines = _lines(seen[0])
    for action, now in zip(actions, seen[1:], strict=True):
        lines += [f"{CHOSEN}{action}", *_lines(now)]
    return lines


def situation(caption: Sequence[str]) -> list[str]:
    """The sentences of a segment's last observation, from its lines."""
    done = [i for i, line in enumerate(caption) if line.startswith(CHOSEN)]
    told = sentences(caption[done[-1] + 1 if done else 0 :])
    return [] if told == [NOTHING] else told


def _lines(seen: Sequence[str]) -> list[str]:
    """Lines with as many sentences as fit."""
    lines: list[str] = []
    for sentence in seen or [NOTHING]:
        for piece in textwrap.wrap(sentence, LONGEST) if len(sentence) > LONGEST else [sentence]:
            if lines and len(lines[-1]) + len(piece) + 2 <= LONGEST:
                lines[-1] += f". {piece}"
            else:
                lines.append(piece)
    return lines
