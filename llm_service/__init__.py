"""Language models behind one interface: asked in batches, each question once, within a budget; paid answers are kept.

    interface    what callers call                 client       its implementation over gRPC, `connect`
    records      Ask, Call, Reply, Answer, Status  errors       errors, by what to do about them
    settings     the configuration, one tree       config       the base of its sections
    metrics      names and meanings of its metrics

The path of a question
    pipeline     caches, journal, calls, retries, batches, budget
    tasks        prompt and parser of each, found by name
    durable      jobs on Redis Streams, and a real Redis

Models
    backends     models that answer, found by name: scripted, transformers, openai, replay, faulty
    embedding    texts to vectors                  scoring      log-probabilities of candidates
    tiny         small models made without a network
    world        an environment's description      patterns     its phrases with slots, found in sentences
    sandbox      written programs: grammar, interpreter, an isolated process

Processes
    server       the assembled service, and a server process for it
    proto        messages on the wire

Nothing heavy is imported here. `embed_one`, a frozen sentence embedding of a text, needs no service.
"""

from llm_service.embedding import MINILM_WIDTH, EmbedderMissing, embed_one

__all__ = ["MINILM_WIDTH", "EmbedderMissing", "embed_one"]
