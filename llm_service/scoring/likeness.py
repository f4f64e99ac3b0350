"""`Likeness`: how alike prompts and candidates are to an encoder, with nothing computed twice.

    prompt ──encoder, mean over tokens──> state [D] ──┐
    candidate ──the same encoder──────────────────────┴─> cosine of the two

It stands where `Scorer` does for models that write, and answers the same questions. Equal prompts are one row, and a
candidate is encoded once a micro-batch, whatever the number of prompts that ask about it. Gradients flow through both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from llm_service.errors import ContextTooLong, Refused
from llm_service.scoring.buckets import buckets
from llm_service.scoring.computed import Computed
from llm_service.scoring.placed import placed
from llm_service.scoring.scorer import Question, Scores
from llm_service.scoring.tokens import Boundary
from llm_service.scoring.trie import Tokens

PADDING = 0.125
"""Maximum share of padding among the tokens of a micro-batch."""


class Likeness:
    """Compares texts by an encoder of transformers: BERT's family.

    Attributes:
        computed: how much it has computed.
        learned: how much of that with gradients.
    """

    def __init__(self, model: Any, tokenizer: Any, *, context: int | None = None, budget: int | None = None) -> None:
        """
        Args:
            model: as loaded by transformers, on its device; means and cosines are float32.
            tokenizer: its tokenizer.
            context: maximum tokens of a text; None: the model's limit.
            budget: maximum tokens in a micro-batch, including padding. None: on CPU 2048, elsewhere 8192.
        """
        self.model = model
        self.computed = self.learned = Computed()
        self.boundary = Boundary(tokenizer, seq2seq=False, encoder=True)
        self.budget = budget or (8192 if model.device.type != "cpu" else 2048)
        self.context = context or model.config.max_position_embeddings

    def micro_batches(self, questions: Sequence[Question]) -> Iterator[tuple[list[int], Scores]]:
        """One micro-batch at a time, each with the indices of its questions; `Scorer.micro_batches` says why.

        `Scores.scores` are cosines in [-1, 1]; a question without candidates has none. There are no tokens.
        `Scores.states` [N, D] are means of the last layer's states over the tokens of prompts.

        Raises:
            Refused: a prompt or candidate without tokens.
            ContextTooLong: a text does not fit the model's context. Both before anything is computed.
        """
        asked: dict[Tokens, list[int]] = {}
        for index, (prompt, candidates) in enumerate(questions):
            self._refuse(prompt, candidates, index)
            asked.setdefault(prompt, []).append(index)
        prompts = list(asked)
        for group in buckets([len(prompt) for prompt in prompts], self.budget, PADDING):
            indices = [index for at in group for index in asked[prompts[at]]]
            owners = np.repeat(np.arange(len(group)), [len(asked[prompts[at]]) for at in group])
            states = self._encode([prompts[at] for at in group])
            own = states[placed(owners, states.device)]
            yield indices, Scores(self._alike(own, [questions[index][1] for index in indices]), [], own)

    def _alike(self, states: Tensor, candidates: Sequence[tuple[Tokens, ...]]) -> list[Tensor]:
        """Cosines [K] of each of N states [N, D] with its own candidates."""
        places = {name: place for place, name in enumerate(dict.fromkeys(chain.from_iterable(candidates)))}
        if not places:
            return []
        names = normalize(self._encode(list(places)), dim=-1)
        cosines = normalize(states, dim=-1) @ names.T
        if len(set(candidates)) == 1:
            return list(cosines)
        columns = [placed(np.array([places[name] for name in own], np.int64), states.device) for own in candidates]
        return [row[column] for row, column in zip(cosines, columns, strict=True)]

    def _encode(self, texts: Sequence[Tokens]) -> Tensor:
        """The mean [N, D] of each text's last states, float32."""
        computed = Computed.of([len(text) for text in texts], [0] * len(texts))
        self.computed += computed
        if torch.is_grad_enabled():
            self.learned += computed
        ids = np.zeros((len(texts), max(map(len, texts))), np.int64)
        real = np.zeros(ids.shape, np.bool_)
        for row, text in enumerate(texts):
            ids[row, : len(text)], real[row, : len(text)] = text, True
        there = placed(real, self.model.device)
        seen = there[:, None, None].expand(-1, 1, ids.shape[1], -1)  # of a mask [N, L] the library would read values
        states = self.model(input_ids=placed(ids, self.model.device), attention_mask=seen).last_hidden_state
        mean: Tensor = (states.float() * there[..., None]).sum(1) / there.sum(1, keepdim=True)
        return mean

    def _refuse(self, prompt: Tokens, candidates: Sequence[Tokens], index: int) -> None:
        if not prompt or not all(candidates):
            raise Refused(f"prompt {index} or one of its candidates has no tokens: there is nothing to compare")
        longest = max(map(len, (prompt, *candidates)))
        if longest > self.context:
            raise ContextTooLong(f"prompt {index} has {longest} tokens, the model's context has {self.context}")
