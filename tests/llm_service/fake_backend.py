"""A backend whose answers, time and failures a test decides, and keys that a test can read."""

import asyncio

import numpy as np

from llm_service.errors import BackendError
from llm_service.records import Reply


class FakeBackend:
    """Answers every prompt with its last turn in capitals, unless told otherwise.

    replies: prompt -> text, or an error to give or raise.
    """

    def __init__(self, replies=None, *, model="fake", max_batch=64, concurrency=1, bucket_ratio=None, price=0.0):
        self.replies = replies or {}
        self.model, self.max_batch, self.concurrency, self.bucket_ratio = model, max_batch, concurrency, bucket_ratio
        self.verbs = frozenset(("generate", "score", "embed"))
        self.options = frozenset(("raw",))
        self.paid = price > 0
        self._price = price
        self.batches = []
        self.gate = None  # an asyncio.Event that every batch waits for

    @property
    def asked(self):
        return [call.turns[-1][1] for batch in self.batches for call in batch]

    async def answer(self, calls):
        self.batches.append(list(calls))
        if self.gate is not None:
            await self.gate.wait()
        else:
            await asyncio.sleep(0)
        return [self._reply(call) for call in calls]

    def _reply(self, call):
        prompt = call.turns[-1][1]
        text = self.replies(call) if callable(self.replies) else self.replies.get(prompt, prompt.upper())
        if isinstance(text, BackendError):
            return text
        if isinstance(text, Exception):
            raise text
        scores = tuple(-float(len(candidate)) for candidate in call.candidates)
        vector = np.full(4, 0.5, np.float32) if call.verb == "embed" else None
        return Reply(text, scores, vector, prompt_tokens=len(prompt), completion_tokens=len(text))

    def estimate(self, call):
        return call.characters, call.parameters.max_tokens

    def price(self, prompt_tokens, completion_tokens):
        return self._price * (prompt_tokens + completion_tokens)

    async def probe(self):
        """Always works."""

    async def close(self):
        """Nothing to close."""


def keys(ask):
    """Keys of an ask's items as a service's `keys`: the first word of what is asked."""
    return [content.partition(" ")[0] for content in ask.contents]
