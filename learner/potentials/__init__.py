"""Potentials: how sensible it is to be in a state, as one number. One module each, found by name.

    windows [M, K, ...] ──> phi [M] ──> a form (`learner/forms.py`): F = gamma phi(s') - phi(s) ──> the column `shaping`

A module publishes

    POTENTIAL = TheClass            a subclass of `Potential`, below

`method.shaping.potential=NAME` chooses the module. A potential's own options are further keys of `method.shaping`. The
wrapper `actors/wrappers/shaping.py` computes the reward, once per chunk.

Ng, Harada and Russell 1999 ("Policy invariance under reward transformations"): whatever phi is, F changes no optimal
policy. This has three conditions, which the form `potential` and the wrapper ensure: gamma is the learner's; phi is 0
where an episode terminated, and only there; where one was truncated, phi is taken at its own last state, not at the
next episode's first. A potential of the last K observations and actions satisfies this in the process whose states are
these windows.
"""

from __future__ import annotations

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
from learner.room import Room
from learner.windows import Windows

NONE = "none"
"""The name that means no potential."""
COLUMN = "shaping"
"""The reward column of potentials."""


class ShapingConfig(WithOptions):
    """Shaping: reward for moving to more sensible states, which changes no optimal policy. It has the options of every
    potential, each declared in its module; `learner.reward_weights.shaping` is its weight."""

    potential: str = NONE
    """`none`, or a module of `learner/potentials`. `code`: a program, run in a sandbox. `preference`: a model fitted to
    preferences between segments. `goal`: similarity to goals that were named in similar situations. `random`, a
    control: a random number for every entry of an observation, without any knowledge. `oracle`, the other control:
    minus the distance to the target, which only the environment knows."""
    form: FormName = "potential"
    """How phi becomes reward. `potential`: gamma phi(s') - phi(s). For comparison: `additive` pays phi(s') itself,
    which can change the optimal policy; `published` reproduces the code of Zhang et al. 2024, one step late and on a
    moving scale."""
    window: int = Option(default=5, ge=1, le=64)
    """K: number of observations that a potential sees, including the current one."""
    scale: float = 1.0
    """Factor of the potential. It is constant over a run, because a moving scale would create reward."""

    @classmethod
    def modules(cls) -> list[type[Part]]:
        return list(dict.fromkeys(part for name in names() if (part := potential(name).Config) is not Part))


@dataclass(frozen=True)
class PotentialSetup:
    """What a potential is built from."""

    config: ShapingConfig
    fields: Mapping[str, Field]  # all observation fields, whether or not the policy reads them
    seed: int
    texts: TextTable = field(default_factory=TextTable)  # the texts of the ids in text fields
    action_names: Sequence[str] = ()


class Potential(ABC):
    """Phi of windows. It must not depend on other windows in the same call, nor on earlier calls.

    Attributes:
        fields: names of the observation's fields that it reads. For texts, windows hold ids in `PotentialSetup.texts`,
            which are valid only while this potential lives: saved data must refer to texts by their content or hash.
    """

    Config: ClassVar[type[Part]] = Part
    """Its own options; none by default."""

    fields: tuple[str, ...]

    @classmethod  # noqa: B027 - most have nothing to check
    def check(cls, config: ShapingConfig, spec: EnvSpec) -> None:
        """Raise ValueError with the reason if it does not work in this environment."""

    @classmethod
    def content(cls, config: ShapingConfig) -> str:
        """SHA-256 in hex of phi's sources besides plain options: a program, files that an option names; "" without any.
        Options of the type `Artifact` count only by this hash, so that a run can continue after a folder moved.
        """
        return ""

    @abstractmethod
    def __init__(self, setup: PotentialSetup) -> None: ...

    @abstractmethod
    def phi(self, windows: Windows) -> NDArray[np.float32]:
        """Float32 [M], finite, of M windows."""

    def report(self) -> Mapping[str, int]:
        """Number of windows since the last report that could not be evaluated, by reason; phi was 0 there."""
        return {}

    def counts(self) -> Mapping[str, int]:
        """Other counters since the last report."""
        return {}


def depends_on(config: ShapingConfig) -> dict[str, Any]:
    """What a potential depends on besides the environment and the seed, as plain data: its name, the hash of its
    content, and its own options, except those that only locate that content."""
    chosen = potential(config.potential)
    where = {name for name, option in chosen.Config.model_fields.items() if ARTIFACT in option.metadata}
    options = config.own(chosen.Config).model_dump(exclude=where)
    return {"potential": config.potential, "content": chosen.content(config), "options": options}


def whole_numbers(fields: Mapping[str, Field]) -> list[str]:
    """Names of the fields that hold whole numbers."""
    return [name for name, field in fields.items() if field.kind in ("grid", "category", "pixels")]


def shown(wanted: str, fields: Mapping[str, Field]) -> str:
    """The integer field that a program reads: the requested one, or if "" the first grid, otherwise the first integer
    field; "" if there is none."""
    fitting = sorted(whole_numbers(fields), key=lambda name: fields[name].kind != "grid")
    return next((name for name in fitting if wanted in ("", name)), "")


POTENTIALS = Room[type[Potential]](__name__, "POTENTIAL")
names, potential = POTENTIALS.names, POTENTIALS.get
