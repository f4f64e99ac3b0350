"""The base of every configuration part: strict, frozen, no unknown keys, fields documented by the text below them."""

from typing import TypeVar

from pydantic import BaseModel, ConfigDict

Inner = TypeVar("Inner", bound="Part")


class Part(BaseModel):
    """One part of the configuration tree. Subclasses declare fields, each with a default and a docstring."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    def part(self, kind: type[Inner]) -> Inner:
        """The part of this kind that stands in this one; the kind's defaults where none does."""
        return next((value for _, value in self if isinstance(value, kind)), None) or kind()
