"""Methods: what is trained, as data. One module each, found by name.

A method module publishes

    Config                          a `Part` with a `name` field and the method's own options
    stages(config) -> list[Stage]   what runs, in order
    check(config, spec)             raises ValueError with the reason if the method cannot run in that world

where `config` is the whole resolved configuration. The engines in `actors` and `cluster` run the stages.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Player = Literal["policy", "random", "expert", "language_model"]
Kind = Literal["collect", "fit", "train", "evaluate", "generalise", "search", "curate", "imitate", "deploy", "judge"]


@dataclass(frozen=True)
class Stage:
    """One step of a method. Its artifact is `stages/<name>/` in the run folder."""

    name: str
    kind: Kind
    player: Player = "policy"  # who acts in a `collect` or `evaluate` stage
    asked_for: bool = False  # runs only where `stages` names it

    def asks(self, config: Any) -> bool:
        """Whether the LLM service must run for it."""
        return self.kind != "fit" and (self.player == "language_model" or config.goals.asks)

    @property
    def learns(self) -> bool:
        """Whether weights come out of it."""
        return self.kind in ("fit", "train")

    @property
    def needs_weights(self) -> bool:
        """Whether it cannot do without weights from elsewhere."""
        return self.kind in ("collect", "evaluate", "generalise") and self.player == "policy"


def names() -> list[str]:
    """Names of all method modules, sorted."""
    return sorted(m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)]))


def method(name: str) -> Any:
    """The module of a method; KeyError if there is none."""
    if name not in names():
        raise KeyError(name)
    return importlib.import_module(f"learner.methods.{name}")
