"""Suggested goals by situation, and their names as numbers.

asked        suggestions for each situation, asked in the background
premises     the same, if a goal depends on questions that do not depend on the situation, each asked once
ranked       without a model: by likeness to the situation, and an order for the oracle's goals
rows         arrays that grow while names are found
vocabulary   names of goals and events as numbers, and how alike they are
"""
