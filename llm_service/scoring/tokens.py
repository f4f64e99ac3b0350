"""The token boundary between a prompt and a candidate.

Prompt and candidate are always tokenised separately, and no token crosses the boundary. So a prompt has the same tokens
whatever follows it, and a candidate the same tokens whatever precedes it.

    decoder-only    prompt: the tokenizer's usual tokens, with the BOS token if it adds one
                    candidate: the tokens of its text without special tokens. Where words carry their leading space
                    ("Ġleft", byte-level BPE) it gets one, unless the prompt ends or the candidate begins with white
                    space; SentencePiece ("▁left") adds its own
    seq2seq         prompt: the usual tokens, with the end token that T5 puts there
                    candidate: the tokens of its text without special tokens, and no space: it begins the decoder's text
    encoder         prompt and candidate: the usual tokens, with special ones: each is a text of its own

A prompt should not end with a space: the candidate adds its own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from llm_service.errors import Refused
from llm_service.scoring.trie import Tokens


class Boundary:
    """Turns prompts and candidates into token ids."""

    def __init__(self, tokenizer: Any, seq2seq: bool, encoder: bool = False) -> None:
        self.tokenizer = tokenizer
        self._known = functools.lru_cache(maxsize=65_536)(functools.partial(self.prompt, special=encoder))
        first = tokenizer.convert_ids_to_tokens(self.prompt("a", special=False)[0])
        self._spaced = not seq2seq and not encoder and not first.startswith("▁")

    def prompt(self, text: str, special: bool = True) -> Tokens:
        """Token ids of a prompt. Use `special=False` if it already contains its special tokens (a chat template)."""
        return tuple(self.tokenizer(text, add_special_tokens=special).input_ids)

    def candidates(self, texts: Sequence[str], prompt: str) -> tuple[Tokens, ...]:
        """Token ids of the candidates after the prompt. Raises Refused if there are none, or one has no tokens."""
        if not texts:
            raise Refused("there is nothing to score: give at least one candidate")
        result = []
        for index, text in enumerate(texts):
            space = self._spaced and not prompt[-1:].isspace() and not text[:1].isspace()
            ids = self._known(f" {text}" if space and text else text)
            if not ids:
                raise Refused(f"candidate {index} is empty: a candidate needs at least one token")
            result.append(ids)
        return tuple(result)
