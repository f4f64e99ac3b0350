"""Error messages for a configuration: values out of bounds, unknown keys, wrong types, too large a minibatch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from cluster.config.overrides import COMMAND_LINE, ConfigError, suggestion
from envs.config import Part
from learner import methods
from learner.algorithms import algorithm
from learner.config import Configuration
from learner.methods import trains

DEFAULT = "default"

BOUNDS = (  # dotted keys, what their values must be, and the test
    (
        r"actors\.(n|envs|steps)|learner\.(n|threads|env_steps|minibatch|ppo\.epochs)|policy\.(hidden|atoms|stack)"
        r"|learner\.dqn\.(n_step|target_every|capacity|decay_steps)|evaluate\.(episodes|validation_episodes)"
        r"|run\.keep_checkpoints|method\.generalise\.episodes|method\.intrinsic\.(neighbours|particles|hidden)"
        r"|method\.collect\.episodes|method\.fit\.(steps|batch|every)",
        "at least 1",
        lambda value: value >= 1,
    ),
    (
        r"seed|actors\.(restarts|backoff_s|ahead)|learner\.chunks"
        r"|learner\.ppo\.(reference_kl|max_lag|value_coefficient|entropy_coefficient)"
        r"|evaluate\.(every|videos)|learner\.dqn\.(start_steps|alpha)|method\.intrinsic\.(alpha|language_weight)"
        r"|method\.fit\.(warmup|weight_decay)",
        "at least 0",
        lambda value: value >= 0,
    ),
    (
        r"learner\.(learning_rate|gradient_clip|reward_scale)|learner\.ppo\.(clip|value_clip|target_kl)"
        r"|(actors|learner)\.timeout_s|actors\.restart_window_s|cluster\.start_timeout_s"
        r"|run\.(max_wall_seconds|checkpoint_every_s|log_every_s)|learner\.dqn\.(samples_per_insert|reward_clip)"
        r"|method\.intrinsic\.(scale|learning_rate)|method\.fit\.(learning_rate|gradient_clip)",
        "greater than 0",
        lambda value: value > 0,
    ),
    (
        r"learner\.discount|learner\.ppo\.gae_lambda|method\.goals\.(threshold|probability)|method\.guide\.share"
        r"|learner\.dqn\.(epsilon_start|epsilon_end|beta)",
        "between 0 and 1",
        lambda value: 0 <= value <= 1,
    ),
    (r"method\.fit\.validation", "between 0 and 0.5", lambda value: 0 <= value <= 0.5),
    (r"learner\.threads", "at most 1024", lambda value: value <= 1024),
    (r"policy\.hidden", "at most 65536", lambda value: value <= 65_536),
    (
        r"(evaluate|method\.generalise)\.episodes|evaluate\.validation_episodes",
        "at most 100000000, the number of held-out seeds",
        lambda value: value <= 100_000_000,
    ),
    (r"method\.collect\.episodes", "at most 1000000000, the number of training seeds", lambda value: value <= 10**9),
    (r"method\.goals\.limit", "between 1 and 20", lambda value: 1 <= value <= 20),
    (r"run\.name", "made of letters, digits and . _ - + =", re.compile(r"(\w[\w.+=-]*)?").fullmatch),
)

MOST = {"actors.n": 100_000, "actors.envs": 20_000, "actors.steps": 1_000_000}
"""On any cluster: Ray is known to support some 40,000 processes, and an env's number among all actors is an int32."""
JOBS = ("slurm", "kubernetes")
"""Clusters that run on other machines, whose memory is not known here."""

EXPECTED = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "string": "a text",
    "list": "a list such as [a,b]",
}


def out_of_bounds(key: str, value: Any) -> str:
    """What the value of `key` must be but is not; "" if the value is fine."""
    if isinstance(value, float) and not math.isfinite(value):
        return "a finite number"
    for keys, must_be, holds in BOUNDS:
        if value is not None and re.fullmatch(keys, key) and not holds(value):
            return must_be
    return ""


def unknown_key(key: str, source: str, known: list[str]) -> str:
    """The message about a key that is not among the `known` dotted keys."""
    where = "on the command line" if source == COMMAND_LINE else f"in {source}"
    if inside := [k for k in known if k.startswith(f"{key}.")]:
        return f"{key} {where} is a section: set one of its keys, for example {inside[0]}"
    near = suggestion(key, known)
    section = key.partition(".")[0]
    siblings = [k.partition(".")[2] for k in known if k.startswith(f"{section}.")]
    elsewhere = "" if near.endswith(f".{key}") else _of_another_method(key)
    if near and not elsewhere:
        hint = f"did you mean {near}?"
    elif elsewhere:
        hint = elsewhere
    elif siblings:
        hint = f"{section} has {', '.join(siblings)}"
    else:
        hint = "python launch.py run --cfg prints every key"
    return f"unknown key {key} {where}: {hint}"


def _of_another_method(key: str) -> str:
    """The method that has such a key of its own, "" if none has."""
    part, _, name = key.removeprefix("method.").partition(".")
    for method in methods.names():
        field = methods.method(method).Config.model_fields.get(part)
        if field and isinstance(field.annotation, type) and name in getattr(field.annotation, "model_fields", ()):
            return f"method={method} has method.{part}.{name}"
    return ""


def wrong_value(error: ValidationError, provenance: Mapping[str, str], prefix: tuple[int | str, ...] = ()) -> str:
    """The message about the first thing that pydantic rejects."""
    first = error.errors(include_url=False)[0]
    place = (*prefix, *first["loc"])
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ValidationError):  # from a part that a validator built
        return wrong_value(cause, provenance, place)
    key = ".".join(part for part in place if isinstance(part, str))
    if isinstance(cause, Exception):  # raised by a validator: already a sentence, which begins with the key
        key = str(cause).partition(":")[0]
        what = str(cause)
    else:
        what = f"{key}: {_rejected(first['type'], first['msg'], first.get('ctx', {}), first['input'])}"
    source = provenance.get(key, DEFAULT)
    return what if source in (DEFAULT, COMMAND_LINE) else f"{what} (in {source})"


def _rejected(kind: str, message: str, context: Mapping[str, Any], value: Any) -> str:
    if kind == "literal_error":
        near = suggestion(str(value), re.findall(r"'(\w+)'", context["expected"]))
        return f"expected {context['expected']}, got {value!r}" + (f"; did you mean {near}?" if near else "")
    if kind == "extra_forbidden":
        return "there is no such key"
    expected = EXPECTED.get(kind.partition("_")[0])
    return f"expected {expected}, got {value!r}" if expected else f"{message.lower()}, got {value!r}"


def assert_bounded(config: Part) -> None:
    """Raise `ConfigError` for a number beyond `MOST`. Of this machine, `cluster.config.limits` says more."""
    for key, most in MOST.items():
        if number(config, key) > most:
            raise ConfigError(f"{key}: must be at most {most}, got {number(config, key)}")


def number(config: Part, key: str) -> int:
    """The integer at a dotted key; 0 if there is no such key."""
    found: Any = config
    for name in key.split("."):
        found = getattr(found, name, 0)
    return int(found)


def assert_minibatch(config: Configuration, provenance: Mapping[str, str]) -> None:
    """Raise `ConfigError` if the command line sets a minibatch larger than the batch; it names the largest one."""
    actors, learner = config.actors, config.learner
    if provenance.get("learner.minibatch") != COMMAND_LINE or not trains(config):
        return
    chunks, batch = learner.chunks or actors.n, algorithm(learner.algorithm).batch(config)
    if learner.minibatch > batch:
        raise ConfigError(
            f"learner.minibatch={learner.minibatch} is larger than the batch of an update, {chunks} chunks of "
            f"actors.envs={actors.envs} x actors.steps={actors.steps}: the largest useful value is {batch}"
        )
