"""Turn the words of a command line into layers of values.

    ["experiment=toy", "env=babyai/GoToDoor", "actors.n=4"]
        ──> configs/method/ppo.yaml  <  configs/env/babyai.yaml  <  configs/llm/scripted.yaml
            <  configs/cluster/local.yaml  <  configs/experiment/toy.yaml  <  command line

Hydra parses every word and resolves the groups `method`, `env`, `llm`, `cluster` and `experiment` to files; the values
are read from those files and from the words, without a change of working directory or of logging. A later layer wins.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from llm_service.errors import UsageError as UsageError  # one class for every user error

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"
GROUPS = ("method", "env", "llm", "cluster", "experiment")
SELECTORS = {
    "method.name": "method",
    "env.id": "env",
    "llm.name": "llm",
    "cluster.name": "cluster",
    "experiment": "experiment",
}
"""The key that names a group's choice: setting it on the command line selects the group."""
COMMAND_LINE = "command line"


class ConfigError(UsageError):
    """The configuration is wrong. The message says what is wrong, where, and what to do."""


@dataclass(frozen=True)
class Layer:
    """Values of one source, by dotted key."""

    source: str
    values: dict[str, Any]
    raw: dict[str, str] = field(default_factory=dict)  # a command-line value as it was typed


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}, "c": {}} -> {"a.b": 1, "c": {}}."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """{"a.b": 1} -> {"a": {"b": 1}}."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *sections, leaf = key.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
        node[leaf] = {} if isinstance(value, Mapping) else value
    return tree


def suggestion(word: str, known: Iterable[str], cutoff: float = 0.7) -> str:
    """The known name that `word` was probably meant to be, "" if none is close."""
    section, _, leaf = word.rpartition(".")
    known = sorted(known, key=lambda name: name.rpartition(".")[0] != section)  # its own section first
    for tail in (word, leaf if "_" in leaf else word):  # goals.limit -> method.goals.limit
        if deeper := [k for k in known if f"_{k}".replace(".", "_").endswith(f"_{tail}".replace(".", "_"))]:
            return min(deeper, key=lambda key: key.count("."))
    same_leaf = [k for k in known if k.rpartition(".")[2] == leaf]
    initials = [k for k in known if "".join(w[:1] for w in k.rpartition(".")[2].split("_")) == leaf]
    inside = [k for k in known if f".{leaf}." in k]  # dqn.guide -> method.guide.policy
    near = difflib.get_close_matches(word, known, 1, cutoff=cutoff)
    return next(iter(same_leaf + initials + inside + near), "") if len(leaf) > 1 else next(iter(near), "")


def options(group: str) -> dict[str, str]:
    """What a group offers: name -> its one-line description (the second line of the file)."""
    found = {}
    for path in sorted((CONFIGS / group).glob("*.yaml")):
        comments = [line[1:].strip() for line in path.read_text().splitlines() if line.startswith("#")]
        found[path.stem] = next((c for c in comments if not c.startswith("@package")), "")
    return found


def parse(word: str) -> Any:
    """One word in Hydra's grammar -> Hydra's `Override`; a `ConfigError` if it is not `key=value`."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import OverrideType
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(word)
    except HydraException:
        raise ConfigError(_unreadable(word)) from None
    if not override.key_or_group:
        raise ConfigError(_unreadable(word))
    if override.type is not OverrideType.CHANGE or override.package is not None:
        raise ConfigError(f"cannot read {shown(word)} on the command line: write key=value, without + ~ or @")
    return override


def shown(word: str) -> str:
    """A word as messages may show it: for `llm` keys only the key, because the value may be a secret."""
    key = re.match(r"\W*llm\b[\w.-]*", word)
    return repr(f"{key[0]}=..." if key and key[0] != word else word)


def _unreadable(word: str) -> str:
    if "=" in word.lstrip("="):
        return f"cannot read {shown(word)} on the command line: quote special characters, as in 'run.name=\"a(b)\"'"
    for group in GROUPS:
        if word.partition("/")[0] in options(group):
            return f"cannot read {shown(word)} on the command line: did you mean {group}={word}?"
    return f"cannot read {shown(word)} on the command line: write key=value, for example actors.n=4"


def layers(words: list[str], only_chosen: bool = False) -> list[Layer]:
    """Every layer that the words `group=name` and `key=value` ask for, the weakest first.

    only_chosen: leave out the groups that no word selects (a saved configuration has the rest).

    Raises:
        ConfigError: a word cannot be read, a group has no such option, a file is not a configuration.
    """
    chosen, command = _split(words)
    if only_chosen and "experiment" in chosen:  # half of it would be merged over later changes of the run
        raise ConfigError("experiment: a run keeps the experiment it started from: change single values instead")
    files, choices = _files(chosen)
    own = _files({k: v for k, v in chosen.items() if k == "experiment"})[1]  # what the experiment would select
    result = []
    for group, path in files:
        values = _read(path)
        if group == "experiment":  # its env options do not fit the env that the command line selects instead
            values = {k: v for k, v in values.items() if choices.get(_section(k)) == own.get(_section(k))}
        if not only_chosen or group in chosen:
            result.append(Layer(_short(path), values))
    if "experiment" in chosen:
        command.values.setdefault("experiment", chosen["experiment"])
    return [*result, command]


def _section(key: str) -> str:
    return key.partition(".")[0]


def _split(words: list[str]) -> tuple[dict[str, str], Layer]:
    """Words -> the groups they select, and the values they set."""
    chosen: dict[str, str] = {}
    command = Layer(COMMAND_LINE, {})
    for word in words:
        override = parse(word)
        key = override.key_or_group
        typed = word.partition("=")[2]
        if override.is_sweep_override() or re.fullmatch(r"-?\d+\.\.-?\d+", typed):
            raise ConfigError(f"{shown(word)} lists several values: add -m to run each combination")
        if "${" in typed:
            raise ConfigError(
                f"cannot read {shown(word)} on the command line: interpolation is not supported, write the value itself"
            )
        if key in GROUPS or key in SELECTORS:
            _choose(SELECTORS.get(key, key), typed.strip("\"'"), chosen, command)
            continue
        command.raw[key] = typed
        command.values.update(flatten({key: override.value()}))
    return chosen, command


def _choose(group: str, name: str, chosen: dict[str, str], command: Layer) -> None:
    option, slash, _ = name.partition("/")
    if group != "env" and slash:
        option = name
    if group == "experiment" and name in ("", "null", "none"):
        return
    known = options(group)
    if option not in known:
        near = suggestion(option, known, cutoff=0.6)
        hint = f"did you mean {group}={near}?" if near else f"choose one of {', '.join(known)}"
        raise ConfigError(f"unknown {group} {option!r} on the command line: {hint}")
    chosen[group] = option
    if group == "env" and slash:
        command.values["env.id"] = name
    elif group == "env":
        command.values.pop("env.id", None)  # the last word wins: `env=babyai` after `env=toy/Line`


def _files(chosen: dict[str, str]) -> tuple[list[tuple[str, Path]], dict[str, str]]:
    """The selected groups -> (group, file), weakest first, in the order of Hydra's defaults lists; and every choice."""
    stamps = tuple((path, path.stat().st_mtime_ns) for path in sorted(CONFIGS.rglob("*.yaml")))
    return _resolved(tuple(chosen.items()), stamps)


@lru_cache(maxsize=256)
def _resolved(
    choices: tuple[tuple[str, str], ...], stamps: tuple[tuple[Path, int], ...]
) -> tuple[list[tuple[str, Path]], dict[str, str]]:
    """`_files`, cached, because Hydra takes a tenth of a second; `stamps` show whether a file has changed."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from hydra.types import RunMode

    chosen = dict(choices)
    words = [f"{group}={name}" for group, name in choices]
    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3", job_name="cairn"):
            loader = GlobalHydra.instance().config_loader()
            plan = loader.compute_defaults_list("config", words, RunMode.RUN)
    except HydraException as error:
        where = f"experiment/{chosen['experiment']}" if "experiment" in chosen else "config"
        what = str(error).splitlines()[0].partition(": ")[2]
        raise ConfigError(f"configs/{where}.yaml: its defaults list does not resolve: {what}") from None
    except yaml.YAMLError as error:
        raise ConfigError(_broken(error)) from None
    found = []
    for default in plan.defaults:
        group = (default.config_path or "").partition("/")[0]
        if group in GROUPS:
            found.append((group, CONFIGS / f"{default.config_path}.yaml"))
    return found, {g: plan.overrides.known_choices.get(g) for g in GROUPS}


def _broken(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"{_short(Path(mark.name))}, line {mark.line + 1}," if mark else "a file of configs/"
    return f"{where} is not YAML: {getattr(error, 'problem', None) or error}"


def _short(path: Path) -> str:
    """A file of `configs/` as a message names it."""
    return str(path.relative_to(CONFIGS.parent))


def _read(path: Path) -> dict[str, Any]:
    """Values of one file by dotted key, without its defaults list."""
    from omegaconf import DictConfig, OmegaConf

    tree = OmegaConf.load(path)  # OmegaConf's YAML reads 1e-4 as a number, plain YAML 1.1 as a string
    if not isinstance(tree, DictConfig):
        raise ConfigError(f"{_short(path)} contains a list: write keys and values")
    plain: dict[str, Any] = OmegaConf.to_container(tree, resolve=False)  # type: ignore[assignment]
    plain.pop("defaults", None)
    return flatten(plain)
