"""Members of a sweep: one run for every combination of the listed values.

learner.learning_rate=1e-4,3e-4 seed=0..4        10 members
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path

from cluster.config import limits
from cluster.config.overrides import ConfigError, parse, shown
from cluster.config.tree import Config, compose, named

DONE, CRASHED, STOPPED = 0, 1, 3


@dataclass
class Member:
    """One run of a sweep."""

    name: str
    words: list[str]  # what distinguishes it
    exit_code: int | None = None  # None: not ended yet
    seconds: float = 0.0


def expand(words: list[str]) -> tuple[list[str], list[list[str]]]:
    """Overrides -> those with one value, combinations of the others. `ConfigError`: unreadable, or an empty list."""
    fixed, axes = [], []
    for word in words:
        if (values := _values(word)) is None:
            fixed.append(word)
        else:
            key = word.partition("=")[0]
            axes.append([f"{key}={value}" for value in values])
    return fixed, [list(combination) for combination in itertools.product(*axes)]


def _values(word: str) -> list[str] | None:
    """The values that an override lists, None if it sets one value."""
    if span := re.fullmatch(r"[^=]+=(-?\d+)\.\.(-?\d+)", word):
        values = [str(i) for i in range(int(span[1]), int(span[2]) + 1)]
    else:
        override = parse(word)
        if not override.is_sweep_override():
            return None
        if not override.is_discrete_sweep():
            raise ConfigError(f"cannot sweep {shown(word)}: list values, as in a=1,2 or a=range(0,5) or a=0..4")
        values = list(override.sweep_string_iterator())
    if not values:
        raise ConfigError(f"cannot sweep {shown(word)}: it lists no value")
    return values


def plan(words: list[str]) -> tuple[Config, list[str], list[Member]]:
    """The configuration of the first member (with the sweep's name), the common overrides, all members.

    Raises:
        ConfigError: a member's configuration is wrong, or the name belongs to another sweep.
    """
    fixed, combinations = expand(words)
    if any(word.startswith("run.name=") for word in combinations[0]):
        raise ConfigError("run.name: give one name for the whole sweep; its members are numbered")
    configs = [
        compose(fixed + combination) for combination in combinations
    ]  # all of them: a mistake shows before any member starts
    for config in configs:
        limits.assert_fits(config)
    first = named(configs[0])
    fixed = [word for word in fixed if not word.startswith("run.name=")]
    path = Path(first.run.folder) / first.run.name / "sweep.json"
    members = _known_members(path, fixed)
    known = {tuple(member.words) for member in members}
    for combination in combinations:
        if tuple(combination) not in known:
            members.append(Member(f"{first.run.name}-{len(members)}{_label(combination)}", combination))
    if (path.parent / "config.yaml").exists():
        raise ConfigError(f"run.name: {first.run.name} is a run, not a sweep: choose another name")
    return first, fixed, members


def _known_members(path: Path, fixed: list[str]) -> list[Member]:
    if not path.exists():
        return []
    try:
        saved = json.loads(path.read_text())
        members = [Member(**member) for member in saved["members"]]
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{path} is damaged: choose another run.name") from None
    if sorted(saved["words"]) != sorted(fixed):
        was = " ".join(saved["words"]) or "no common words"
        raise ConfigError(f"run.name: a sweep of this name has other common settings ({was}): choose another name")
    return members


def _label(words: list[str]) -> str:
    parts = [f"-{word.partition('=')[0].rpartition('.')[2]}-{word.partition('=')[2]}" for word in words]
    return re.sub(r"[^\w.-]+", "-", "".join(parts))[:48].rstrip("-.")
