"""Language models behind one door: asked in batches, once each, within a budget; what was paid for is kept.

    door         what callers hold                 client       the same over gRPC, `connect`
    records      Ask, Call, Reply, Answer, Status  errors       what can go wrong, by what to do about it
    settings     the configuration, one tree       config       the base of its parts
    metrics      what its numbers are called

A question's way
    pipeline     caches, journal, calls, retries, batches, budget
    tasks        prompt and parser of each, found by name
    durable      jobs on Redis Streams, and a real Redis

Models
    backends     what answers, found by name: scripted, transformers, openai, replay, faulty
    embedding    texts to vectors                  scoring      log-probabilities of candidates
    tiny         small models made without network
    world        what a world publishes of itself  patterns     its phrases with slots, found in sentences
    sandbox      the grammar and the interpreter of written code

Processes
    server       the service put together, and alone in a process
    proto        messages on the wire

Nothing heavy is imported here. `embed_one`, a text to a frozen sentence embedding, needs no service.
"""

from llm_service.embedding import MINILM_WIDTH, EmbedderMissing, embed_one

__all__ = ["MINILM_WIDTH", "EmbedderMissing", "embed_one"]
