"""The base of the service's configuration sections: strict, frozen, no unknown keys, a docstring below each field."""

import ipaddress
import re
from typing import Any

from pydantic import BaseModel, ConfigDict

from llm_service.errors import UsageError


class Part(BaseModel):
    """One section of the configuration. Subclasses declare fields, each with a default and a docstring."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


def variable(key: str, name: Any) -> str:
    """The checked name of an environment variable. Anything else may be the secret itself, which no message may repeat.

    Args:
        key: the option that names it, for the message.

    Raises:
        UsageError: it is not a name in capitals.
    """
    if not (isinstance(name, str) and re.fullmatch(r"[A-Z_][A-Z0-9_]*", name)):
        raise UsageError(
            f"{key}: expected the name of an environment variable, in capitals such as MY_KEY: put the value into it, "
            "and give its name here"
        )
    return name


def this_machine(host: str) -> bool:
    """Whether a host is this machine, by its name alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
