"""Patterns with slots: "go to the {colour} {thing}" is found in sentences, and filled with words.

A slot stands for one of its words, and for the same word wherever it occurs again. A pattern matches a sentence that
contains it as whole words, in any case; blanks may be longer. Each is one regular expression without nested
repetition, so a search takes time linear in the text, whatever the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache

from llm_service.errors import UsageError

Binding = Mapping[str, str]
"""Slot -> its word, in the environment's spelling."""

_SLOT = re.compile(r"\{([^{}]*)\}")


class Pattern:
    """One pattern over `slots`. Raises UsageError if it names a slot that has no words."""

    def __init__(self, text: str, slots: Mapping[str, Sequence[str]]) -> None:
        self.text = text
        self.slots = tuple(dict.fromkeys(_SLOT.findall(text)))
        self._words = {slot: {word.lower(): word for word in slots.get(slot, ())} for slot in self.slots}
        for slot, words in self._words.items():
            if not words:
                raise UsageError(f"llm.world: pattern {text!r} names the slot {slot!r}, which has no words")

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        parts = []
        for i, part in enumerate(_SLOT.split(self.text)):
            if i % 2 == 0:  # text between slots
                parts.append(r"\s+".join(re.escape(piece) for piece in re.split(r"\s+", part.lower())))
                continue
            name = f"s{self.slots.index(part)}"
            longest_first = sorted(self._words[part], key=lambda word: (-len(word), word))
            group = f"(?P<{name}>{'|'.join(map(re.escape, longest_first))})"
            parts.append(f"(?P={name})" if group in parts else group)
        return re.compile(rf"(?<!\w){''.join(parts)}(?!\w)")

    def in_text(self, text: str) -> list[tuple[str, ...]]:
        """The words of the slots wherever the pattern occurs in `text`."""
        return [self._bound(match) for match in self._expression.finditer(text.lower())]

    def _bound(self, match: re.Match[str]) -> tuple[str, ...]:
        return tuple(self._words[slot][match[f"s{i}"]] for i, slot in enumerate(self.slots))

    def words(self, slot: str) -> list[str]:
        """The words that a slot of the pattern may have."""
        return list(self._words[slot].values())

    def find(self, sentences: Iterable[str]) -> list[dict[str, str]]:
        """Every different binding with which the pattern occurs in a sentence, in the order of the sentences."""
        found = dict.fromkeys(words for sentence in sentences for words in _find(self, sentence))
        return [dict(zip(self.slots, words, strict=True)) for words in found]

    def whole(self, text: str) -> dict[str, str] | None:
        """The binding with which the pattern is the whole text, blanks around it aside; None if it is not."""
        match = self._expression.fullmatch(text.strip().lower())
        return None if match is None else dict(zip(self.slots, self._bound(match), strict=True))

    def fill(self, binding: Binding) -> str:
        """The pattern with words in its slots; slots that `binding` does not name stay as they are."""
        return _SLOT.sub(lambda slot: binding.get(slot[1], slot[0]), self.text)


@lru_cache(maxsize=1 << 14)
def _find(pattern: Pattern, sentence: str) -> list[tuple[str, ...]]:
    """Environments repeat the same sentences, so they are cached."""
    return pattern.in_text(sentence)


def agree(one: Binding, other: Binding) -> bool:
    """Whether two bindings give the same words to the slots that both name."""
    return all(other.get(slot, word) == word for slot, word in one.items())


def joined(patterns: Iterable[Pattern], sentences: Sequence[str], given: Binding | None = None) -> list[dict[str, str]]:
    """Every binding, in addition to `given`, with which all patterns occur in the sentences."""
    bindings = [dict(given or {})]
    for pattern in patterns:
        found = pattern.find(sentences)
        bindings = [binding | other for binding in bindings for other in found if agree(binding, other)]
    return bindings
