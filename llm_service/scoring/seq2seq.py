"""T5, mT5 and flan-T5: each prompt is encoded once, and all its candidates share one decoder row.

A decoder row holds the inner nodes of a trie. It attends to one encoded prompt, so cross-attention's keys and values
are computed once for all candidates. If there are fewer nodes than a head has dimensions, keys and values of the prompt
are not computed at all (`_across`). Nodes attend only along their own path, and T5's relative positions are differences
of depths. So each node is computed exactly as if its candidate were alone.

Stacks are run block by block, because only this way can mask and positions both be given. The blocks are the model's
own modules, so adapters, hooks and dropout still work.

Limit: on a CPU the encoder's matrix products take three quarters of the time, forward and backward.

T5: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from llm_service.scoring import packed
from llm_service.scoring.buckets import buckets
from llm_service.scoring.placed import placed
from llm_service.scoring.trie import Tokens, Trie

FAMILY = ("t5", "mt5")
AT_ONCE, LEARNING = 256, 1024
"""Maximum tokens encoded at once on a CPU: as many as fit into the cache. With gradients it is more, since each pass
then also writes as many numbers as there are weights. Decoder rows are so short that reading the weights takes most of
their time. So a micro-batch may be larger, and half of it padding, which only costs cross-attention."""


class Seq2Seq:
    """Computes the distributions at the nodes of tries, given prompts."""

    def __init__(self, model: Any, budget: int, padding: float) -> None:
        self.model = model
        self.budget, self.padding = budget, max(padding, 0.5)  # of a micro-batch
        self._padding = padding  # of what is encoded at once
        self.packed = model.device.type != "cpu"  # see `packed.py`
        from transformers.activations import NewGELUActivation  # seconds to load, and most processes do not need it

        for module in model.modules():
            if isinstance(getattr(module, "act", None), NewGELUActivation):  # the same in one pass instead of eight
                module.act = nn.GELU("tanh")

    @property
    def context(self) -> int | None:
        """Longest row in tokens; None, because T5 has no position table and so no limit."""
        return None

    def row(self, prompt: int, nodes: int) -> int:
        """Length of a row, before padding, for a prompt of `prompt` tokens."""
        return prompt

    def forward(self, prompts: Sequence[Tokens], tries: Sequence[Trie]) -> tuple[Tensor, Tensor]:
        """Distributions after each node.

        Returns:
            Logits [B, n, V], where n is the number of nodes in the largest trie (rows after a trie's own nodes are
            meaningless), and the last layer's state at decoder position 0, [B, D].
        """
        learning = torch.is_grad_enabled()
        at_once = self.budget if self.packed else LEARNING if learning else AT_ONCE
        dear = learning and not self.packed  # on a GPU small groups cost more than padding
        groups = buckets([self._length([p]) for p in prompts], at_once, self._padding / 4 if dear else self._padding)
        longest = self._length(prompts)
        parts = self._encode([[prompts[i] for i in group] for group in groups])
        parts = [functional.pad(part, (0, 0, 0, longest - part.shape[1])) for part in parts]
        back = self._place(np.argsort(np.concatenate(groups)))
        encoded = torch.cat(parts)[back]
        real = np.arange(longest) < np.array([len(prompt) for prompt in prompts])[:, None]
        padding = self._hide(real, encoded.dtype)[:, None, None]
        states = self._decode(encoded, padding, tries)
        config = self.model.config
        scale = config.d_model**-0.5 if getattr(config, "scale_decoder_outputs", False) else 1.0  # T5 1.0's tied head
        return self.model.lm_head(states * scale), states[:, 0]

    def plain(self, prompt: Tokens, continuation: Tokens) -> Tensor:
        """Logits [T, V] of a continuation's tokens, from the model's own forward."""
        given = torch.tensor([[self.model.config.decoder_start_token_id, *continuation[:-1]]], device=self.model.device)
        ids = torch.tensor([prompt], device=self.model.device)
        logits: Tensor = self.model(input_ids=ids, decoder_input_ids=given, use_cache=False).logits[0]
        return logits

    def _encode(self, groups: Sequence[Sequence[Tokens]]) -> list[Tensor]:
        """Encoder states [B, L, D] of each group.

        Tokens of all groups are embedded together, because each lookup's gradient is as large as the whole table.
        """
        encoder = self.model.encoder
        ids = [np.zeros((len(group), self._length(group)), np.int64) for group in groups]
        for rows, group in zip(ids, groups, strict=True):
            for row, prompt in zip(rows, group, strict=True):
                row[: len(prompt)] = prompt
        embedded = encoder.embed_tokens(self._place(np.concatenate([rows.ravel() for rows in ids])))
        if self.packed and packed.able(encoder):
            states = encoder.dropout(embedded).to(packed.arithmetic(embedded))
            shapes = [(len(rows), rows.shape[1]) for rows in ids]
            biases = [
                self._between(group, rows.shape[1], states.dtype) for group, rows in zip(groups, ids, strict=True)
            ]
            for block in encoder.block:
                states = packed.run(block, states, shapes, biases)
            states = encoder.dropout(packed.normed(encoder.final_layer_norm, states))
            every = states.split([rows.size for rows in ids])
            return [part.view(*shape, -1) for part, shape in zip(every, shapes, strict=True)]
        parts = []
        for group, rows, part in zip(groups, ids, embedded.split([rows.size for rows in ids]), strict=True):
            states = encoder.dropout(part.view(*rows.shape, -1))
            bias = self._between(group, rows.shape[1], states.dtype)
            for block in encoder.block:
                states = block(states, None, bias)[0]
            parts.append(encoder.dropout(encoder.final_layer_norm(states)))
        return parts

    def _between(self, group: Sequence[Tokens], longest: int, dtype: torch.dtype) -> Tensor:
        """The bias added to the encoder's attention scores in a group, [B or 1, H, longest, longest]."""
        attention = self.model.encoder.block[0].layer[0].SelfAttention
        distances = torch.arange(1 - longest, longest, device=self.model.device)
        # Contiguous, since fused attention requires a bias that is contiguous along the keys.
        between = _bias(attention, distances, bidirectional=True).to(dtype).contiguous()
        bias = between.unfold(1, longest, 1).flip(1)[None]  # row q of [L, L] is the window of distances -q ... L-1-q
        real = np.arange(longest) < np.array([len(prompt) for prompt in group])[:, None]
        return bias if real.all() else bias + self._hide(real, dtype)[:, None, None]

    def _length(self, prompts: Sequence[Tokens]) -> int:
        """The length, in tokens, to which these prompts are padded."""
        longest = max(map(len, prompts))
        return -(-longest // packed.ALIGNED) * packed.ALIGNED if self.packed else longest

    def _decode(self, encoded: Tensor, padding: Tensor, tries: Sequence[Trie]) -> Tensor:
        """Decoder states [B, n, D]."""
        decoder = self.model.decoder
        widest = max(len(trie.tokens) for trie in tries)
        ids = np.zeros((len(tries), widest), np.int64)
        depths = np.zeros((len(tries), widest), np.int64)
        sees = np.tile(np.eye(widest, dtype=bool), (len(tries), 1, 1))  # padding attends to itself, against 0 / 0
        for row, trie in enumerate(tries):
            n = len(trie.tokens)
            ids[row, :n], depths[row, :n], sees[row, :n, :n] = trie.tokens, trie.depths, trie.sees
        ids[:, 0] = self.model.config.decoder_start_token_id
        states = decoder.dropout(decoder.embed_tokens(self._place(ids)))
        by_parts = self.packed and packed.able(decoder)
        if by_parts:
            states = states.to(packed.arithmetic(states))
        attention = decoder.block[0].layer[0].SelfAttention
        depth = self._place(depths)
        bias = _bias(attention, depth[:, None, :] - depth[:, :, None], bidirectional=False).transpose(0, 1)
        bias = bias.to(states.dtype) + self._hide(sees, states.dtype)[:, None]
        for block in decoder.block:
            if by_parts and _direct(block, widest):
                flat = packed.attend(block.layer[0], states.flatten(0, 1), [(len(tries), widest)], [bias])
                states = flat.view_as(states)
                given = packed.normed(block.layer[1].layer_norm, states)
                states = states + _across(block.layer[1], given, encoded, padding)
                states = packed.perceptron(block.layer[2], states)
            elif _direct(block, widest):
                states = block.layer[0](states, None, bias)[0]
                given = block.layer[1].layer_norm(states)
                states = block.layer[2](states + _across(block.layer[1], given, encoded, padding))
            else:
                across = padding.expand(-1, -1, widest, -1).contiguous()
                states = block(states, None, bias, encoded, None, across)[0]
        norm = decoder.final_layer_norm
        states = decoder.dropout(packed.normed(norm, states) if by_parts else norm(states))
        assert isinstance(states, Tensor)
        return states

    def _place(self, array: Any) -> Tensor:
        return placed(array, self.model.device)

    def _hide(self, visible: Any, dtype: torch.dtype) -> Tensor:
        """0 where visible, otherwise the smallest number of the dtype: an additive attention mask."""
        hidden = self._place(~visible)
        return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, torch.finfo(dtype).min)


def _across(layer: Any, given: Tensor, encoded: Tensor, padding: Tensor) -> Tensor:
    """Cross-attention of n normed nodes to a prompt, without keys and values of the prompt: q (K e) is (q K) e.

    That takes 2 n H D products per prompt token; keys and values would take 2 d H D. For six nodes a GPU waits for the
    host, so what counts here is how many operations there are.
    """
    attention = layer.EncDecAttention
    heads, size = attention.n_heads, attention.key_value_proj_dim
    keys, values = (part.weight.view(heads, size, -1) for part in (attention.k, attention.v))
    rows, nodes, _ = given.shape
    asked = attention.q(given).view(rows * nodes, heads, size).transpose(0, 1)
    asked = (asked @ keys).view(heads, rows, nodes, -1).transpose(0, 1).flatten(1, 2)  # [B, H n, D]
    logits = asked @ encoded.mT
    if attention.scaling != 1:  # T5 has none
        logits = logits * attention.scaling
    weights = (logits + padding[:, 0]).softmax(-1, dtype=torch.float32).to(encoded.dtype)
    weights = functional.dropout(weights, attention.dropout, attention.training)
    read = (weights @ encoded).view(rows, heads, nodes, -1).transpose(0, 1).flatten(1, 2) @ values.mT  # [H, B n, size]
    read = read.view(heads, rows, nodes, size).permute(1, 2, 0, 3).flatten(2)
    return layer.dropout(attention.o(read))  # type: ignore[no-any-return]


def _direct(block: Any, nodes: int) -> bool:
    """Whether `_across` gives the same result as the block's own cross-attention, with less work. Not if a module has a
    hook; transformers adds permanent hooks when hidden states are requested."""
    layer = block.layer[1]
    attention = layer.EncDecAttention
    if nodes >= attention.key_value_proj_dim or any(type(m) is not nn.Linear for m in (attention.k, attention.v)):
        return False
    modules = (block, layer, attention, attention.k, attention.v)
    hooked = any(m._forward_hooks or m._forward_pre_hooks or "forward" in vars(m) for m in modules)
    return not hooked and attention.k.weight.dtype != torch.float16  # in float16 blocks clamp


def _bias(attention: Any, distances: Tensor, bidirectional: bool) -> Tensor:
    """T5's learned bias per head for each distance (key position minus query position): [H, *distances.shape]."""
    buckets = attention._relative_position_bucket(
        distances,
        bidirectional=bidirectional,
        num_buckets=attention.relative_attention_num_buckets,
        max_distance=attention.relative_attention_max_distance,
    )
    return attention.relative_attention_bias(buckets).movedim(-1, 0)  # type: ignore[no-any-return]
