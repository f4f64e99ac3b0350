"""Preferences as the potential: a model that was fitted to a language model's preferences between segments.

    method.shaping.preference=FOLDER of a stage prefer ──> windows ──> score ──> fixed scale ──> phi in [-1, 1]

It is fitted once per environment (`learner/knowledge/preference_fit.py`) and used by any number of tasks, without a
language model. The control `permuted` is the same potential, from a stage with `method.prefer.permute=true`.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from envs.api import EnvSpec
from envs.config import Part
from learner.files import sha256
from learner.knowledge.fitted_preference import ABOUT, FittedPreference, read_about
from learner.options import Artifact
from learner.potentials import Potential, PotentialSetup, ShapingConfig
from learner.store.episodes import StoreError
from learner.windows import Windows


class PreferenceConfig(Part):
    """Options of `method.shaping.potential=preference`."""

    preference: Artifact = ""
    """`preference`: the folder of a finished stage `prefer`, or run:NAME/prefer."""


class Preference(Potential):
    """Evaluates windows by the model's score of a segment."""

    Config = PreferenceConfig

    @classmethod
    def check(cls, config: ShapingConfig, spec: EnvSpec) -> None:
        name = config.own(PreferenceConfig).preference
        if not name:
            raise ValueError(
                "method.shaping.potential=preference needs a fitted model: set method.shaping.preference to the folder "
                "of a stage prefer"
            )
        try:
            shape = read_about(_folder(name)).shape
        except StoreError as error:
            raise ValueError(f"method.shaping.preference: {error}") from None
        if shape.window != config.window:
            raise ValueError(
                f"method.shaping.window={config.window}: the model in {name} was fitted to windows of {shape.window} "
                f"observations: set method.shaping.window={shape.window}"
            )
        for field, column in shape.columns.items():
            there = spec.fields.get(field)
            if there is None or (there.kind, there.shape) != (column.kind, column.shape):
                raise ValueError(
                    f"method.shaping.preference: the model in {name} reads {field}, a {column.kind} "
                    f"{list(column.shape)}, which {spec.id} does not show: fit one to this world's own episodes"
                )
        if len(spec.action_names) != shape.actions:
            raise ValueError(
                f"method.shaping.preference: the model in {name} knows {shape.actions} actions, and {spec.id} has "
                f"{len(spec.action_names)}: fit one to this world's own episodes"
            )

    @classmethod
    def content(cls, config: ShapingConfig) -> str:
        """SHA-256 of the model's metadata, which includes the hash of its weights."""
        return sha256(_folder(config.own(PreferenceConfig).preference) / ABOUT)

    def __init__(self, setup: PotentialSetup) -> None:
        self._model = FittedPreference.load(_folder(setup.config.own(PreferenceConfig).preference))
        self.fields = tuple(self._model.about.shape.columns)

    def phi(self, windows: Windows) -> NDArray[np.float32]:
        return self._model.phi(windows)


def _folder(name: str) -> Path:
    return Path(os.path.expanduser(name))  # that of Path raises where there is no such user


POTENTIAL = Preference
