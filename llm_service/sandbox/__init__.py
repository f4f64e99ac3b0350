"""Runs programs that a language model wrote, behind three barriers, one after the other.

grammar                  which programs are allowed; parses them, never runs them        (grammar)

running them             runs them over many rows at once, as closures                   (interpreter)
what they compute with   numbers and lists of all rows together (values), built from shared observations (views)
rows, faults, budgets    which rows still run, why others stopped, steps spent          (batch)
parts of programs        as closures (statements, expressions); loops run at once        (loops)
what Python means        by arithmetic (functions), comparisons (comparisons), indices   (lists)

machine code             for programs that are called often; bit-identical results       (compiler)

where they run           in a process without any access: callers use `Sandbox`         (process)
that process             what it does (child), what it gives up first (lockdown), its parent's end (connection)

The text of a program is never evaluated: nothing here passes it to `eval` or `exec`. This file imports nothing, because
the child loads this package too.
"""
