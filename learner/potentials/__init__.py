"""Potentials: how sensible it is to be in a state, as one number. One module each, found by name.

    windows [M, K, ...] ──> phi [M] ──> a form (`learner/forms.py`): F = gamma phi(s') - phi(s) ──> the column `shaping`

A module publishes

    POTENTIAL = TheClass            a subclass of `Potential`, below

`method.shaping.potential=NAME` chooses the module. Options of a potential's own are further keys
of `method.shaping`. The wrapper `actors/wrappers/shaping.py` pays it, once a chunk.

Ng, Harada and Russell 1999 ("Policy invariance under reward transformations"): whatever phi is, F changes no optimal
policy. That needs three things, which the form `potential` and the wrapper see to: gamma is the learner's; phi is 0
where an episode terminated, and only there; where one was cut off, phi is that of its own last state, not of the next
episode's first. A potential of the last K observations and actions keeps this, in the process whose states are these
windows.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Option

from envs.api import EnvSpec, Field
from envs.config import Part
from envs.text import TextTable
from learner.forms import FormName
from learner.options import ARTIFACT, WithOptions
from learner.windows import Windows

NONE = "none"
"""The name of no potential."""
COLUMN = "shaping"
"""The column of rewards that potentials pay."""


class ShapingConfig(WithOptions):
    """Shaping: reward for moving to where it is more sensible to be, which changes no optimal policy. It has the
    options of every potential, each declared in its module; `learner.reward_weights.shaping` is its weight."""

    potential: str = NONE
    """`none`, or a module of `learner/potentials`. `code`: a program, run in a sandbox. `preference`: a model fitted to
    preferences between segments. `goal`: likeness to goals that were named in similar situations. `random`: a number
    drawn for every entry of an observation, which knows nothing: a control. `oracle`: minus the distance to the target,
    which only the world knows: the other control."""
    form: FormName = "potential"
    """How phi becomes reward. `potential`: gamma phi(s') - phi(s). To compare with it: `additive` pays phi(s') itself,
    which changes what is best; `published` does what the code of Zhang et al. 2024 does, late and on a moving scale."""
    window: int = Option(default=5, ge=1, le=64)
    """K: observations that a potential sees, the present one included."""
    scale: float = 1.0
    """The potential is multiplied by this. It stays the same for a whole run: a scale that moves would be paid for."""

    @classmethod
    def modules(cls) -> list[type[Part]]:
        return list(dict.fromkeys(part for name in names() if (part := potential(name).Config) is not Part))


@dataclass(frozen=True)
class PotentialSetup:
    """What a potential is built of."""

    config: ShapingConfig
    fields: Mapping[str, Field]  # what the world shows, whether or not the policy reads it
    seed: int
    texts: TextTable = field(default_factory=TextTable)  # what the ids in fields of text mean
    action_names: Sequence[str] = ()


class Potential(ABC):
    """Phi of windows. It must not depend on what else is asked in the same call, nor on what was asked before.

    Attributes:
        fields: names of the observation's fields that it reads. Of texts, windows hold ids in `PotentialSetup.texts`,
            which mean something as long as this potential lives: what is kept of them is kept by text, or by hash.
    """

    Config: ClassVar[type[Part]] = Part
    """Options of its own; none unless it says so."""

    fields: tuple[str, ...]

    @classmethod  # noqa: B027 - most have nothing to refuse
    def check(cls, config: ShapingConfig, spec: EnvSpec) -> None:
        """Raise ValueError with the reason if it cannot be had in this world."""

    @classmethod
    def content(cls, config: ShapingConfig) -> str:
        """SHA-256 in hex of what phi is made of beside plain options: a program, files that an option names; "" where
        there is nothing. Options of the type `Artifact` count by this alone: a folder may move, a run goes on.
        """
        return ""

    @abstractmethod
    def __init__(self, setup: PotentialSetup) -> None: ...

    @abstractmethod
    def phi(self, windows: Windows) -> NDArray[np.float32]:
        """Float32 [M], finite, of M windows."""

    def report(self) -> Mapping[str, int]:
        """How many windows could not be judged since the last report, by the reason; phi was 0 there."""
        return {}

    def counts(self) -> Mapping[str, int]:
        """What else was counted since the last report."""
        return {}


def depends_on(config: ShapingConfig) -> dict[str, Any]:
    """What a potential depends on beside the world and the seed, as plain data: its name, the hash of its content, and
    its own options but those that only say where that content is."""
    chosen = potential(config.potential)
    where = {name for name, option in chosen.Config.model_fields.items() if ARTIFACT in option.metadata}
    options = config.own(chosen.Config).model_dump(exclude=where)
    return {"potential": config.potential, "content": chosen.content(config), "options": options}


def whole_numbers(fields: Mapping[str, Field]) -> list[str]:
    """Names of the fields that hold whole numbers."""
    return [name for name, field in fields.items() if field.kind in ("grid", "category", "pixels")]


def shown(wanted: str, fields: Mapping[str, Field]) -> str:
    """The field of whole numbers that a program is shown: the wanted one, or if "" the first grid, else the first there
    is; "" where there is none."""
    fitting = sorted(whole_numbers(fields), key=lambda name: fields[name].kind != "grid")
    return next((name for name in fitting if wanted in ("", name)), "")


def names() -> list[str]:
    """Names of all potentials, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def potential(name: str) -> type[Potential]:
    """The class that a module publishes; KeyError if there is no such module."""
    if name not in names():
        raise KeyError(name)
    found: type[Potential] = importlib.import_module(f"{__name__}.{name}").POTENTIAL
    return found
