"""Programs that a language model wrote, kept apart from everything else: three walls, one behind the other.

grammar                  which programs are programs here; parses, never runs   (grammar)
interpreter              runs their syntax tree over arrays                      (interpreter, functions, values, batch)
process                  runs the interpreter where it reaches nothing           (process, connection | child, lockdown)

Callers use `process.Sandbox`. Nothing is imported here: the child loads this package too.
"""
