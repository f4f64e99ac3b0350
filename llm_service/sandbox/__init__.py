"""Programs that a language model wrote, kept apart from everything else: three walls, one behind the other.

grammar                  which programs are programs here; parses, never runs
interpreter              runs their syntax tree over arrays; statements, expressions, loops, functions, values, batch
process                  runs the interpreter where it reaches nothing; connection | child, lockdown

Callers use `process.Sandbox`. Nothing is imported here: the child loads this package too.
"""
