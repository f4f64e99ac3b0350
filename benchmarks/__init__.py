"""Ours against peers, in turn, on the same machine.

    python -m benchmarks [name ...]     run, print one table      (__main__)
    Case, compare, Row                  rounds, ratios, rows      (measure)
    peers/                              scripts that run in a peer's own environment
    setup                               builds those environments

Every other module of this folder is a benchmark, found by its name. It publishes `CASES` and `run(options) -> Report`.
"""
