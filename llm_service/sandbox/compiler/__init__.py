"""Machine code of written programs, for rows of one shape: the interpreter's values, many times faster.

what values are      and how many bytes they take                                       (kinds)
how code is written  blocks, checks, steps, loops                                       (emitter)
what it is about     numbers (arithmetic), lists (sequences), places in them (places), names, comparisons
parts of programs    expressions, calls, loops that become one number (reductions), statements
what runs            one function over all rows, of LLVM                                (machine)

A row whose code meets anything out of the ordinary (a fault, too many steps, a rare case) gives up, and the interpreter
runs it: so it alone says what a fault is, and code has to be right only about what it finishes. Every access is within
bounds that are checked, every loop counts its steps, and no code calls anything but a few functions of C's mathematics.
"""
