"""Written programs, kept apart from everything else.

grammar                  which programs are programs here; parses, never runs            (grammar)
running them             over many rows at once, by closures of our own                  (interpreter)
what they compute with   numbers and lists of all rows together                          (values)
rows, faults, budgets    which rows still run, what ended the others, what each spent    (batch)
parts of programs        as closures (statements, expressions), and loops at once        (loops)
what Python means        by arithmetic (functions), comparisons (comparisons), indices   (lists)

The text of a program is never evaluated: nothing here hands it to Python.
"""
