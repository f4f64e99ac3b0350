"""Machine code for written programs, for rows of one shape: the interpreter's values, many times faster.

what values are      and how many bytes they take                                       (kinds)
how code is written  blocks, checks, steps, loops                                       (emitter)
what it is about     numbers (arithmetic), lists (sequences), places in them (places), names, comparisons
parts of programs    expressions, calls, loops that become one number (reductions), statements
what runs            one function over all rows, of LLVM                                (machine)

If a row meets anything unusual (a fault, too many steps, a rare case), its code gives up and the interpreter runs the
row. So only the interpreter defines faults, and the code must be right only for rows that it finishes. Every access is
bounds-checked, every loop counts its steps, and the code calls nothing but a few functions of C's mathematics library.
"""
