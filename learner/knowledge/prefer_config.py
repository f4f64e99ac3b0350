"""How a model is fitted to preferences: the part of a method that has a stage of kind `prefer`."""

from __future__ import annotations

from pydantic import Field

from envs.config import Part
from learner.parts import step_size


class PreferConfig(Part):
    """Fitting a model of segments to preferences between them."""

    steps: int = Field(default=400, ge=1)
    """Gradient steps."""
    batch: int = Field(default=64, ge=1)
    """Pairs that a gradient step learns from."""
    learning_rate: float = Field(default=3e-3, gt=0)
    """Largest step size of AdamW."""
    warmup: int = Field(default=50, ge=0)
    """Gradient steps over which the step size rises from 0; then it falls to 0 along a cosine."""
    weight_decay: float = Field(default=5.0, ge=0)
    """Share of their size, times the step size, that matrices lose in each step: much, for pairs are few."""
    gradient_clip: float = Field(default=1.0, gt=0)
    """Largest global norm of a gradient."""
    width: int = Field(default=64, ge=8, le=512, multiple_of=8)
    """Numbers of a token."""
    validation: float = Field(default=0.25, ge=0, le=0.5)
    """Share of segments that a twin of the model never sees: on pairs of these it is measured."""
    permute: bool = False
    """Deal the labels anew among the pairs: a control, whose model knows nothing of what was preferred."""

    def step_size(self, step: int) -> float:
        """AdamW's step size for step 0, 1, ..., `steps` - 1."""
        return step_size(step, self.steps, self.learning_rate, self.warmup)
