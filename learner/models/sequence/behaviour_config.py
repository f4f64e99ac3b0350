"""Settings of the transformer that follows a text (`behaviour_transformer.py`)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from envs.config import Part


class BehaviourConfig(Part):
    """The transformer that acts from a text, a target place and its own history."""

    width: int = Field(default=128, ge=1)
    """Width of a token."""
    layers: int = Field(default=3, ge=1)
    """Number of blocks of attention and perceptron."""
    heads: int = Field(default=4, ge=1)
    """Number of attention heads; must divide the width."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Dropout in training, for the outputs of blocks and the input tokens."""
    layout: Literal["separate", "merged"] = "merged"
    """Tokens of a step: one each for target, sensors and action, as published; or one for all inputs."""
    dimensions: Literal["independent", "conditional"] = "conditional"
    """Clusters of an action's dimensions: independent, as published, or each conditioned on those before it."""
    gamma: float = Field(default=2.0, ge=0)
    """Exponent of the focal loss of clusters; 0 is cross-entropy."""
    offset_weight: float = Field(default=1.0, ge=0)
    """Weight of the squared error of centre plus offset, relative to the loss of clusters."""
    hidden: int = Field(default=1, ge=1, le=4)
    """Hidden layers of the perceptrons that encode inputs and predict clusters and offsets; 2 as published."""
    offset_width: int = Field(default=0, ge=0)
    """Width of the hidden layers that predict offsets; 0: twice the width of a token. 1,024 as published."""
    foresight: float = Field(default=0.0, ge=0)
    """Weight of predicting where the robot will be after 5, 10 and 20 actions, which a driver knows: a text is about
    the way ahead, and single actions say little of it. The mean absolute error, the world's half width being 1."""
    places: int = Field(default=0, ge=0)
    """Rows of the table of positions in a text, if that is more than the longest text needs; 1,435 as published."""
    times: int = Field(default=0, ge=0)
    """Rows of the table of steps, if that is more than an episode needs; 1,000 as published."""
    waves: int = Field(default=0, ge=0, le=12)
    """Number of wavelengths, halving from the world's width, that encode targets and sensors besides their plain values
    (Tancik et al. 2020, arXiv 2006.10739): walls matter at a finer scale than the world's."""
    ablate: Literal["none", "text", "target", "both"] = "none"
    """Inputs that the model never sees, in training and after."""
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    """Arithmetic; weights stay in float32. `auto`: bfloat16 where the machine supports it."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto`: a GPU if there is one."""

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> BehaviourConfig:
        if self.width % self.heads:
            raise ValueError(f"a width of {self.width} cannot be divided among {self.heads} heads: choose a multiple")
        return self

    @property
    def blind_to(self) -> tuple[str, ...]:
        """The ablated inputs, of text and target."""
        return ("text", "target") if self.ablate == "both" else (self.ablate,)
