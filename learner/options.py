"""A section of the configuration that has, besides its own fields, the options of every module of a folder."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, create_model, model_validator

from envs.config import Part

Own = TypeVar("Own", bound=Part)
ARTIFACT = "artifact"
Artifact = Annotated[str, ARTIFACT]
"""An option that names another run's artifact. If a user writes run:NAME/STAGE, the module gets the path of that
stage's folder; a missing path is also looked up in the project."""


class WithOptions(Part):
    """Subclasses list the modules' sections in `modules`; each is checked and has its defaults."""

    model_config = ConfigDict(extra="allow")

    @classmethod
    def modules(cls) -> list[type[Part]]:
        """The modules' own options, each class once."""
        raise NotImplementedError

    @model_validator(mode="before")
    @classmethod
    def _with_options_of_modules(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """Check undeclared fields against the options of the modules, and add their defaults."""
        options = {name: value for name, value in tree.items() if name not in cls.model_fields}
        found = _together(tuple(cls.modules()))(**options).model_dump()
        if taken := cls.model_fields.keys() & found.keys():
            raise TypeError(f"a module has an option {', '.join(sorted(taken))}, which is a field of all of them")
        return {**tree, **found}

    def own(self, part: type[Own]) -> Own:
        """The options of one module, of its class `Config`."""
        return part(**{name: getattr(self, name) for name in part.model_fields})


@cache
def _together(parts: tuple[type[Part], ...]) -> type[Part]:
    """The options of all modules as one section.

    Raises:
        TypeError: two modules have an option of the same name.
    """
    options = [option for part in parts for option in part.model_fields]
    if twice := {option for option in options if options.count(option) > 1}:
        raise TypeError(f"more than one module has an option {', '.join(sorted(twice))}")
    return create_model("Options", __base__=parts or (Part,))
