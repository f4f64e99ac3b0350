"""The base of every configuration part of the service: strict, frozen, no unknown keys, fields with a text below."""

import ipaddress
import re
from typing import Any

from pydantic import BaseModel, ConfigDict

from llm_service.errors import UsageError


class Part(BaseModel):
    """One part of the configuration. Subclasses declare fields, each with a default and a docstring."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


def variable(key: str, name: Any) -> str:
    """The name of an environment variable, checked: what is none may be the secret itself, which nothing may repeat.

    Args:
        key: the option that names it, for the message.

    Raises:
        UsageError: it is not a name in capitals.
    """
    if not (isinstance(name, str) and re.fullmatch(r"[A-Z_][A-Z0-9_]*", name)):
        raise UsageError(
            f"{key}: expected the name of an environment variable, in capitals such as MY_KEY: put the value into one, "
            "and name that here"
        )
    return name


def this_machine(host: str) -> bool:
    """Whether a host is this machine, by its name alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
