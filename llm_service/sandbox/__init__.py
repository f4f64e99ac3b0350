"""Programs that a language model wrote, isolated from everything else by three walls, one behind the other.

grammar                  which programs are programs here; parses, never runs            (grammar)

running them             over many rows at once, by closures of our own                  (interpreter)
what they compute with   numbers and lists of all rows together (values), made of shared observations (views)
rows, faults, budgets    which rows still run, what ended the others, what each spent    (batch)
parts of programs        as closures (statements, expressions), and loops at once        (loops)
what Python means        by arithmetic (functions), comparisons (comparisons), indices   (lists)

machine code             of programs that are asked for often, equal to the bit         (compiler)

where they run           in a process that reaches nothing: callers use `Sandbox`        (process)
that process             what it does (child), gives up first (lockdown), how it is spoken to (connection)

The text of a program is never evaluated: nothing here hands it to Python. Nothing is imported here: the child loads
this package too.
"""
