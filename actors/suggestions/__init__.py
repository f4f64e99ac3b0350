"""Goals that a language model suggests, and their names as numbers.

asked        suggestions for each situation, asked in the background
premises     the same, if a goal depends on questions that do not depend on the situation, each asked once
vocabulary   names of goals and events as numbers, and how alike they are
"""
