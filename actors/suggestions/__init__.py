"""Goals that a language model suggests, and their names as numbers.

asked        what it suggests in each situation, asked in the background
premises     the same, where a goal depends on questions that hold in every situation, each asked once
vocabulary   names of goals and deeds as numbers, and how alike they are
"""
