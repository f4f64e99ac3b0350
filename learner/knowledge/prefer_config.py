"""Options of fitting a model to preferences: the section of methods with a stage of kind `prefer`."""

from __future__ import annotations

from pydantic import Field

from envs.config import Part
from learner.parts import step_size


class PreferConfig(Part):
    """Fitting a model to preferences between segments."""

    steps: int = Field(default=300, ge=1)
    """Gradient steps."""
    batch: int = Field(default=64, ge=1)
    """Pairs per gradient step."""
    learning_rate: float = Field(default=1e-2, gt=0)
    """Largest step size of AdamW."""
    warmup: int = Field(default=50, ge=0)
    """Gradient steps over which the step size rises from 0; then it falls to 0 along a cosine."""
    weight_decay: float = Field(default=2.0, ge=0)
    """Weight decay of matrices, times the step size: large, because pairs are few."""
    gradient_clip: float = Field(default=1.0, gt=0)
    """Largest global norm of a gradient."""
    width: int = Field(default=64, ge=8, le=512, multiple_of=8)
    """Width of a token."""
    validation: float = Field(default=0.25, ge=0, le=0.5)
    """Share of segments that are held out from a second model, which is evaluated on pairs of these."""
    permute: bool = False
    """Shuffle the labels among the pairs: a control, whose model knows nothing about the preferences."""

    def step_size(self, step: int) -> float:
        """AdamW's step size for step 0, 1, ..., `steps` - 1."""
        return step_size(step, self.steps, self.learning_rate, self.warmup)
