"""Lets a model write: tokens after prompts, drawn one by one with a cache, from numbers that the caller gives.

    equal prompts ──> computed once ──> their keys and values, one copy for each answer ──> token ──> token ──> ... end

A row's answer follows from its own prompt and random numbers, not from what else is in the batch, up to the last bits
of the arithmetic. Log-probabilities of what was written are the business of `Scorer`, which also has gradients: so
whoever acts and whoever learns compute them by one function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from llm_service.scoring.trie import Tokens


class Writer:
    """
    Args:
        model: a T5 or a decoder-only model of transformers, in evaluation mode.
        end: the token that ends an answer.
        temperature: divisor of the logits.
        most: tokens of an answer, its end included; a longer one is cut.
    """

    def __init__(self, model: Any, end: int, temperature: float, most: int) -> None:
        self.model, self.end, self.temperature, self.most = model, end, temperature, most

    @torch.no_grad()
    def write(self, prompts: Sequence[Tokens], uniform: NDArray[np.float64] | None) -> list[Tokens]:
        """An answer to each of B prompts, of at least one token. One that is not cut has the end as its last token.

        uniform: [B, most] in [0, 1), from which tokens are drawn; None: the most probable ones.
        """
        if not prompts:
            return []
        distinct = {prompt: row for row, prompt in enumerate(dict.fromkeys(prompts))}
        given = self._begin(list(distinct), [distinct[prompt] for prompt in prompts])
        answers: list[list[int]] = [[] for _ in prompts]
        for t in range(self.most):
            output = self.model(**given, use_cache=True)
            tokens = self._choose(output.logits[:, -1], None if uniform is None else uniform[:, t])
            going = [answer for answer in answers if answer[-1:] != [self.end]]
            for answer, token in zip(answers, tokens.tolist(), strict=True):
                if answer[-1:] != [self.end]:
                    answer.append(token)
            if all(answer[-1] == self.end for answer in going):
                break
            given = self._next(given, tokens[:, None], output.past_key_values)
        return [tuple(answer) for answer in answers]

    def _choose(self, logits: Tensor, uniform: NDArray[np.float64] | None) -> Tensor:
        """The next tokens [B]."""
        if uniform is None:
            return logits.argmax(-1)
        # On the processor, which needs the tokens anyway: a GPU's sums in a row are not the same each time.
        reached = (logits.double() / self.temperature).softmax(-1).cpu().cumsum(-1)
        wanted = torch.from_numpy(uniform).to(reached)[:, None] * reached[:, -1:]
        found = torch.searchsorted(reached, wanted, right=True).squeeze(-1).clamp(max=logits.shape[-1] - 1)
        return found.to(logits.device)

    def _begin(self, distinct: Sequence[Tokens], rows: Sequence[int]) -> dict[str, Any]:
        """The model's first arguments for answers that follow the prompts `rows` of the distinct ones."""
        device, config = self.model.device, self.model.config
        longest, left = max(map(len, distinct)), not config.is_encoder_decoder  # answers begin in one column
        ids, mask = np.zeros((2, len(distinct), longest), np.int64)
        for row, prompt in enumerate(distinct):
            at = slice(longest - len(prompt), None) if left else slice(len(prompt))
            ids[row, at], mask[row, at] = prompt, 1
        index, seen = torch.tensor(rows, device=device), torch.from_numpy(mask).to(device)
        prompts = torch.from_numpy(ids).to(device)
        if config.is_encoder_decoder:
            encoded = self.model.get_encoder()(input_ids=prompts, attention_mask=seen)
            encoded.last_hidden_state = encoded.last_hidden_state[index]
            start = torch.full((len(rows), 1), config.decoder_start_token_id, device=device)
            return {"encoder_outputs": encoded, "attention_mask": seen[index], "decoder_input_ids": start}
        given = {"input_ids": prompts[index, -1:], "attention_mask": seen[index]}
        given["position_ids"] = given["attention_mask"].sum(1, keepdim=True) - 1
        if longest > 1:
            before, positions = seen[:, :-1], (seen.cumsum(1) - 1).clamp(min=0)[:, :-1]
            told = self.model(
                input_ids=prompts[:, :-1],
                attention_mask=before,
                position_ids=positions,
                use_cache=True,
                logits_to_keep=1,
            )
            told.past_key_values.batch_select_indices(index)
            given["past_key_values"] = told.past_key_values
        return given

    def _next(self, given: dict[str, Any], tokens: Tensor, cache: Any) -> dict[str, Any]:
        """The arguments that continue with these tokens [B, 1]."""
        if "encoder_outputs" in given:
            return given | {"decoder_input_ids": tokens, "past_key_values": cache}
        mask = torch.cat([given["attention_mask"], torch.ones_like(tokens)], 1)
        positions = given["position_ids"] + 1
        return {"input_ids": tokens, "attention_mask": mask, "position_ids": positions, "past_key_values": cache}
