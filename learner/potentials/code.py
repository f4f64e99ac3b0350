"""A written program as the potential: by a person, or by a language model that was asked once about the world.

    method.shaping.program=FILE ──> checked, kept in the run's configuration ──> sandbox ──> phi

The program never runs in this process: `llm_service/sandbox` interprets it in one that can reach nothing. Where it
fails (a wrong index, no number, too long) phi is 0, and the window is counted.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import field_validator

from envs.api import EnvSpec
from envs.config import Part
from learner.options import Artifact
from learner.potentials import Potential, PotentialSetup, ShapingConfig, shown
from learner.windows import Windows
from llm_service.sandbox.grammar import CodeRefused, normalise
from llm_service.sandbox.process import Sandbox

FILE = "program.py"
"""The file with the selected program, in the folder of a stage that had programs written."""


class CodeConfig(Part):
    """Options of `method.shaping.potential=code`."""

    program: Artifact = ""
    """`code`: a file with one function `potential(observations, actions)` in the language that docs/shaping.md
    describes; or its text; or run:NAME/label, a language model's program from that run. A run keeps the text, so the
    file may change or disappear."""
    shows: str = ""
    """`code`: the integer field that the program reads; empty: the first grid, otherwise the first integer field."""

    @field_validator("program")
    @classmethod
    def _read(cls, program: str) -> str:
        if not program:
            return program
        if "\n" not in program:  # the text of a program has lines
            path = Path(os.path.expanduser(program))
            if path.is_dir() and not (path / FILE).exists():
                raise ValueError(
                    f"method.shaping.program: {program} holds no {FILE}: name a file, or the folder of a stage label "
                    "that chose one"
                )
            try:
                program = (path / FILE if path.is_dir() else path).read_text()
            except (OSError, ValueError) as error:
                raise ValueError(f"method.shaping.program: {program} cannot be read: {error}") from None
        try:
            return normalise(program)
        except CodeRefused as refused:
            raise ValueError(f"method.shaping.program: refused: {refused}") from None


class Code(Potential):
    """Calls the sandbox once per chunk."""

    Config = CodeConfig

    @classmethod
    def check(cls, config: ShapingConfig, spec: EnvSpec) -> None:
        own = config.own(CodeConfig)
        if not own.program:
            raise ValueError("method.shaping.potential=code needs a program: set method.shaping.program=FILE.py")
        if not shown(own.shows, spec.fields):
            raise ValueError(f"method.shaping.shows={own.shows}: {spec.id} has no such field of whole numbers")

    @classmethod
    def content(cls, config: ShapingConfig) -> str:
        return hashlib.sha256(config.own(CodeConfig).program.encode()).hexdigest()

    def __init__(self, setup: PotentialSetup) -> None:
        own = setup.config.own(CodeConfig)
        self.fields = (shown(own.shows, setup.fields),)
        self.program, self.sandbox, self.faults = own.program, Sandbox(), Counter[str]()

    def phi(self, windows: Windows) -> NDArray[np.float32]:
        found = self.sandbox.phi(self.program, windows.rows[self.fields[0]], windows.actions, windows.index)
        self.faults.update(found.faults)
        return found.values

    def report(self) -> Counter[str]:
        faults, self.faults = self.faults, Counter[str]()
        return faults


POTENTIAL = Code
