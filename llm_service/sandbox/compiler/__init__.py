"""Compiles written programs to machine code, for rows of one shape: same values as the interpreter, many times faster.

what values are      types and sizes in bytes, known at compile time                    (kinds)
how code is written  blocks, checks, steps, loops                                       (emitter)
what it works on     numbers (arithmetic), lists (sequences), indexing (places), names, comparisons
parts of programs    expressions, calls, reductions of loops to one number (reductions), statements
what runs            one LLVM function over all rows                                    (machine)

A row whose code meets anything unusual (a fault, too many steps, a rare case) *gives up*, and the interpreter runs it
instead. So only the interpreter defines faults, and the code must be right only for rows that it finishes. Every memory
access is bounds-checked, every loop counts its steps, and the code calls only a few functions of the C library.
"""
