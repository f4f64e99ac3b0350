"""Sampling noise and stopping criteria for `generate` of a model in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from llm_service.records import Call


class Noise:
    """Adds Gumbel noise from the call's key to each row, so that its most probable token is a sample (Gumbel's trick).

    argmax(logits / T + g) with g standard Gumbel is distributed as softmax(logits / T).
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        self._temperature = calls[0].parameters.temperature
        self._generators = [torch.Generator().manual_seed(int(call.key("")[:15], 16)) for call in calls]

    def __call__(self, ids: Any, logits: Any) -> Any:
        uniform = torch.stack([torch.rand(logits.shape[1], generator=g) for g in self._generators])
        gumbel = -torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))
        return logits.float() / self._temperature + gumbel.to(logits.device)


class End:
    """Ends a row at an end token or when its text contains a stop text, and remembers where."""

    def __init__(self, tokenizer: Any, network: Any, begin: int, rows: int, stop: tuple[str, ...]) -> None:
        ends = network.generation_config.eos_token_id
        self._ends = set(ends) if isinstance(ends, list) else {ends}
        self._tokenizer, self._begin, self._stop = tokenizer, begin, stop
        self._lengths: list[int | None] = [None] * rows

    def __call__(self, ids: Any, logits: Any, **_: Any) -> Any:
        for row, length in enumerate(self._lengths):
            if length is None:
                count = ids.shape[1] - self._begin
                stopped = self._stop and any(stop in self.text(ids[row], count) for stop in self._stop)
                if stopped or int(ids[row, -1]) in self._ends:
                    self._lengths[row] = count
        return torch.tensor([length is not None for length in self._lengths], device=ids.device)

    def count(self, row: int, length: int) -> int:
        """Number of generated tokens in a row of this length, including the end token."""
        known = self._lengths[row]
        return length - self._begin if known is None else known

    def text(self, ids: Any, count: int) -> str:
        generated = ids[self._begin : self._begin + count].tolist()
        return str(self._tokenizer.decode(generated, skip_special_tokens=True))


def cut(text: str, stop: tuple[str, ...]) -> str:
    """The text before the first stop text."""
    return text[: min((at for at in map(text.find, stop) if at >= 0), default=len(text))]
