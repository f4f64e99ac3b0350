"""A question's way to its answer.

path         memory, Redis, journal, flight; then calls, parser, repair
questions    an ask as questions with keys
calls        around each call: retries, batch, budget, rate, breaker
limits       caps, and the rate                ledger       money and tokens, spent and put aside
retry        tries, pauses, the breaker
batcher      calls gather and go out together  clock        time, which tests can turn
cache        answers in memory and in Redis    journal      every reply, the truth of what is known
"""
