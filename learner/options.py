"""A part of the configuration that has, beside its own fields, the options of every module of a folder."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, create_model, model_validator

from envs.config import Part

Own = TypeVar("Own", bound=Part)
ARTIFACT = "artifact"
Artifact = Annotated[str, ARTIFACT]
"""An option that names what another run has left. Where a user writes run:NAME/STAGE, the module gets the path of that
stage's folder; a path that is not there is looked for in the project too."""


class WithOptions(Part):
    """Subclasses say in `modules` which parts the modules declare; each is checked and has its defaults."""

    model_config = ConfigDict(extra="allow")

    @classmethod
    def modules(cls) -> list[type[Part]]:
        """The options that modules have to themselves, each class once."""
        raise NotImplementedError

    @model_validator(mode="before")
    @classmethod
    def _with_options_of_modules(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """Checks what is not declared here against the options of the modules, and adds their defaults."""
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
    """The options of all modules as one part.

    Raises:
        TypeError: two modules have an option of the same name.
    """
    options = [option for part in parts for option in part.model_fields]
    if twice := {option for option in options if options.count(option) > 1}:
        raise TypeError(f"more than one module has an option {', '.join(sorted(twice))}")
    return create_model("Options", __base__=parts or (Part,))
