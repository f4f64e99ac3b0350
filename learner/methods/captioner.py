"""Captioner: no training by acting; a network is fitted that captions an environment's pictures.

    captioner

Runs of other methods use it with `method.captioning.captioner=run:NAME/captioner`, in place of the environment's own
captions (Du et al. 2023, arXiv 2302.06692, which use an oracle captioner, and compare it with a learned one).
"""

from __future__ import annotations

from typing import Literal

from envs.api import CELLS, FACTS, EnvSpec
from envs.config import Part
from learner.captions.about import PICTURE
from learner.captions.config import CaptionerConfig
from learner.config import Configuration
from learner.methods import Stage


class Config(Part):
    """The network and its fit. Of `evaluate`, `episodes` and `env` count: the held-out episodes that measure it."""

    name: Literal["captioner"] = "captioner"
    """The module of `learner/methods`."""
    captioner: CaptionerConfig = CaptionerConfig()
    """Fitting the captioner."""


def stages(config: Configuration) -> list[Stage]:
    return [Stage("captioner", "captioner", player="")]


def check(config: Configuration, spec: EnvSpec) -> None:
    """The environment makes captions of facts, and shows these and pictures.

    Raises:
        ValueError: one sentence.
    """
    if not spec.facts:
        raise ValueError(f"method captioner needs an environment that makes captions of facts: {spec.id} does not")
    if missing := [name for name in (PICTURE, CELLS, FACTS) if name not in spec.fields]:
        raise ValueError(f"method captioner learns from the field {missing[0]}: add it to env.observe")
