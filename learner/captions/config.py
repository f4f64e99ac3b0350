"""Options of captions: who makes those of a run, and how a captioner is fitted."""

from __future__ import annotations

from pydantic import Field

from envs.config import Part
from learner.options import Artifact


class CaptioningConfig(Part):
    """Who tells what is in view, held and done: the environment, or a captioner; and with how many mistakes."""

    captioner: Artifact = ""
    """The folder of a captioner, or run:NAME/captioner: sentences, events and situations are what it predicts from
    pictures, so `env.observe` has `pixels`. Empty: the environment's own."""
    noise: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the things, items, feelings and events told that are wrong: half of them are left out, half replaced by
    another of their kind. With the environment's own captions, `env.observe` has `facts`."""

    @property
    def changed(self) -> bool:
        """Whether captions are other than the environment's own."""
        return bool(self.captioner) or self.noise > 0


class CaptionerConfig(Part):
    """Fitting a captioner."""

    steps: int = Field(default=3500, ge=1)
    """Gradient steps."""
    batch: int = Field(default=192, ge=1)
    """Env steps per gradient step, two pictures each."""
    learning_rate: float = Field(default=2e-3, gt=0)
    """Largest step size of Adam."""
    warmup: int = Field(default=50, ge=0)
    """Gradient steps over which the step size rises from 0; then it falls to 0 along half a cosine."""
    gradient_clip: float = Field(default=1.0, gt=0)
    """Largest global norm of a gradient."""
    players: int = Field(default=256, ge=1)
    """Players of training episodes; each takes a step every fourth gradient step."""
    recent: int = Field(default=8192, ge=1)
    """Env steps that are kept to learn from, 24 kB each."""
    width: int = Field(default=64, ge=1, le=1024)
    """Channels of a cell of a picture."""
    hidden: int = Field(default=128, ge=1, le=4096)
    """Units of the layers over all cells."""
