"""Finds worlds by name: `family/Name`, where `envs/<family>` is a module (or package) of this folder.

A family module publishes

    Config                       a `Part`: the family's options, with defaults
    names() -> list[str]         the names after the slash, as far as they can be listed
    has(name) -> bool            whether there is one of this name
    spec(name, config) -> EnvSpec
    make(name, num_envs, seed, first_index, config) -> VectorEnv
    knowledge(name) -> Knowledge what a language model may know of it; name "" for the family as a whole
    knowledge_with(name, config) -> Knowledge  where options change it, such as a map: the same with these
    missing(config) -> str       where it needs an extra: what to do if that is not there, empty if it is
    labels(name, config) -> Labels  where people have answered questions about it: what they say
    compile_further()            where it has more machine code than steps of its worlds need: compiles that, in set-up
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from typing import Any

import gymnasium

from envs.api import EnvSpec, VectorEnv

_CONTRACT = {
    "api",
    "compiler",
    "config",
    "knowledge",
    "native",
    "picture",
    "pool",
    "registry",
    "single",
    "text",
}  # what is no world here


class UnknownEnv(LookupError):
    """No world has this id. The message suggests near ones."""


def families() -> list[str]:
    """Names of all world modules, sorted."""
    worlds = pkgutil.iter_modules(importlib.import_module(__package__).__path__)
    return sorted(module.name for module in worlds if module.name not in _CONTRACT)


def family(name: str) -> Any:
    """The module of a family.

    Raises:
        UnknownEnv: there is none.
    """
    if name not in families():
        near = difflib.get_close_matches(name, families(), 1)
        hint = f"did you mean {near[0]}?" if near else f"families are {', '.join(families())}"
        raise UnknownEnv(f"unknown env family {name!r}: {hint}")
    return importlib.import_module(f"envs.{name}")


def ids() -> list[str]:
    """Every id that can be listed, `family/Name`."""
    return [f"{f}/{name}" for f in families() for name in family(f).names()]


def resolve(env_id: str) -> tuple[Any, str]:
    """`family/Name` -> (family module, name).

    Raises:
        UnknownEnv: no such family, or the family does not have the name.
    """
    family_name, slash, name = env_id.partition("/")
    if not slash:
        raise UnknownEnv(f"env id {env_id!r} is not of the form family/Name, for example babyai/GoToLocal")
    module = family(family_name)
    if not module.has(name):
        near = difflib.get_close_matches(name, module.names(), 1, cutoff=0.4)
        hint = f"did you mean {family_name}/{near[0]}?" if near else "python launch.py lists them"
        raise UnknownEnv(f"unknown env {env_id!r}: {hint}")
    return module, name


def missing(env_id: str, **options: Any) -> str:
    """What to do where packages or files are missing that the world needs; empty where all are there."""
    module, _ = resolve(env_id)
    return str(module.missing(module.Config(**options))) if hasattr(module, "missing") else ""


def spec(env_id: str, **options: Any) -> EnvSpec:
    """What a policy must know of the world, without keeping it."""
    module, name = resolve(env_id)
    result: EnvSpec = module.spec(name, module.Config(**options))
    return result


def make(env_id: str, num_envs: int = 1, seed: int = 0, first_index: int = 0, **options: Any) -> VectorEnv:
    """Build N envs of a world.

    Args:
        env_id: `family/Name`, for example `babyai/GoToLocal`.
        num_envs: N, at least 1.
        seed: root seed; episode k of env i depends on (seed, i, k) alone.
        first_index: global index of the first env, when a world is spread over several processes.
        options: fields of the family's `Config`.

    Raises:
        UnknownEnv: with a suggestion.
        pydantic.ValidationError: an option is unknown or of the wrong type.
    """
    module, name = resolve(env_id)
    result: VectorEnv = module.make(name, num_envs, seed, first_index, module.Config(**options))
    return result


def register_all() -> None:
    """Register every listed id with Gymnasium as `cairn/family-Name-v0` (a name's own version suffix is kept)."""
    for env_id in ids():
        gymnasium_id = f"cairn/{env_id.replace('/', '-')}-v0"
        if gymnasium_id not in gymnasium.registry:
            gymnasium.register(
                gymnasium_id,
                entry_point="envs.single:SingleEnv",
                vector_entry_point="envs.registry:make",
                kwargs={"env_id": env_id},
            )
