"""Language models behind one door: asked in batches, once each, within a budget; what was paid for is kept.

    door         what callers hold                 client       the same over gRPC, `connect`
    records      Ask, Call, Reply, Answer, Status  errors       what can go wrong, by what to do about it
    settings     the configuration, one tree       assembly     a service put together from it

A question's way
    path         memory, Redis, journal, flight; then calls, parser, repair
    questions    an ask as questions with keys     tasks        prompt and parser of each task, found by name
    calls        around each call: retries, batch, budget, rate, breaker
    limits       the ledger and its caps           retry        tries, pauses, the breaker
    batcher      calls gather and go out together  embedding    texts to vectors
    cache        answers in memory and in Redis    journal      every reply, the truth of what is known

Models
    backends     what answers, found by name: scripted, transformers, openai, replay, faulty
    scoring      log-probabilities of candidates   tiny         small models made without network
    world        what a world publishes of itself  patterns     its phrases with slots, found in sentences
    sandbox      the grammar of written code

Processes
    server       the service alone, its signals    servicer     its gRPC methods
    guard        tokens, who may listen where      wire, proto  messages
    durable      jobs on Redis Streams             redis_server a real Redis, ours or yours
    clock        time, which tests can turn

Nothing heavy is imported here. `embed_one`, a text to a frozen sentence embedding, needs no service.
"""

from llm_service.embedding import MINILM_WIDTH, EmbedderMissing, embed_one

__all__ = ["MINILM_WIDTH", "EmbedderMissing", "embed_one"]
