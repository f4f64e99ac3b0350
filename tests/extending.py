"""The examples of `docs/extending.md`: each file as it is there, and the command that follows it."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs/extending.md"
FILES: dict[str, str] = dict(re.findall(r"^`([\w/]+\.(?:py|yaml))`\n```\w+\n(.*?)^```$", PAGE.read_text(), re.M | re.S))
"""Path in this repository -> content."""
COMMANDS: list[list[str]] = [
    words.split() for words in re.findall(r"^```\npython launch\.py run (.*)\n```$", PAGE.read_text(), re.M)
]
"""Words of every run, in the order of the page."""
LABELS: list[tuple[str, ...]] = re.findall(
    r"^```\necho '(.*)' > \S+\npython launch\.py llm label (.*)\n```$", PAGE.read_text(), re.M
)
"""Inputs of every labelling job, and its words."""


def example(path: str) -> str:
    """The content of a file of the page; KeyError if it is not there."""
    return FILES[path]
