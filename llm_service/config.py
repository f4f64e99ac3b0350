"""The base of every configuration part of the service: strict, frozen, no unknown keys, fields with a text below."""

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """One part of the configuration. Subclasses declare fields, each with a default and a docstring."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)
