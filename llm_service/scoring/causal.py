"""Decoder-only models such as GPT-2, Llama and Qwen: a prompt and the trie of its candidates in one row.

    column      pad pad  p0 p1 ... pL   n1 n2 n3 ...      prompts end, and tries begin, in one column for all rows
    position     0   0   0  1  ... L    L + depth
    attends to  itself   causally       the prompt, its ancestors and itself

The root of a trie is the prompt's last token, so the last n columns are the inner nodes, and the model's own forward
computes logits only for those.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from llm_service.scoring.placed import placed
from llm_service.scoring.trie import Tokens, Trie


class Causal:
    """Computes the distributions at the nodes of tries, given prompts."""

    def __init__(self, model: Any, budget: int, padding: float) -> None:
        self.model = model
        self.budget, self.padding = budget, padding  # of a micro-batch

    @property
    def context(self) -> int | None:
        """Longest path in tokens. Beyond a sliding window our mask would have to differ by layer."""
        config = self.model.config.get_text_config()
        sliding = getattr(config, "use_sliding_window", True) and getattr(config, "sliding_window", None)
        limits = [getattr(config, "max_position_embeddings", None), sliding or None]
        return min((limit for limit in limits if limit is not None), default=None)

    def row(self, prompt: int, nodes: int) -> int:
        """Length of a row, before padding, for a prompt of `prompt` tokens and a trie of `nodes` nodes."""
        return prompt + nodes - 1

    def forward(self, prompts: Sequence[Tokens], tries: Sequence[Trie]) -> tuple[Tensor, Tensor]:
        """Distributions after each node.

        Returns:
            Logits [B, n, V], where n is the number of nodes in the largest trie (rows after a trie's own nodes are
            meaningless), and the last layer's state at the prompt's last token, [B, D].
        """
        longest = max(map(len, prompts))
        widest = max(len(trie.tokens) for trie in tries)
        length = longest + widest - 1
        ids = np.zeros((len(prompts), length), np.int64)
        positions = np.zeros((len(prompts), length), np.int64)
        sees = np.tile(np.eye(length, dtype=bool), (len(prompts), 1, 1))  # padding attends to itself, against 0 / 0
        for row, (prompt, trie) in enumerate(zip(prompts, tries, strict=True)):
            begin, root, end = longest - len(prompt), longest - 1, longest - 1 + len(trie.tokens)
            ids[row, root:end] = trie.tokens
            positions[row, root:end] = len(prompt) - 1 + trie.depths
            sees[row, root:end, root:end] = trie.sees
            sees[row, root:end, begin:root] = True
            ids[row, begin:longest] = prompt
            positions[row, begin:longest] = np.arange(len(prompt))
            sees[row, begin:longest, begin:longest] = np.tri(len(prompt), dtype=bool)
        hidden = self._place(~sees[:, None])
        dtype = self.model.dtype
        mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, torch.finfo(dtype).min)
        states: list[Tensor] = []
        hook = self.model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: states.append(inputs[0]))
        try:
            output = self.model(
                input_ids=self._place(ids),
                attention_mask=mask,
                position_ids=self._place(positions),
                use_cache=False,
                logits_to_keep=widest,
            )
        finally:
            hook.remove()
        return output.logits, states[0][:, 0]

    def plain(self, prompt: Tokens, continuation: Tokens) -> Tensor:
        """Logits [T, V] of a continuation's tokens, from the model's own forward."""
        ids = torch.tensor([[*prompt, *continuation[:-1]]], device=self.model.device)
        logits: Tensor = self.model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 :]
        return logits

    def _place(self, array: Any) -> Tensor:
        return placed(array, self.model.device)
