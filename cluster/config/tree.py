"""The configuration of a run: one frozen tree of sections, and how to build, save and load it.

    compose(["env=babyai/GoToLocal", "actors.n=4"]) -> Config        what `launch.py run` builds
    update(config, ["cluster=inline"]) -> Config                     what `launch.py resume` builds
    save(config, path), load(path)                                   `config.yaml` in the run's folder

Defaults are in the sections and nowhere else; files and words state differences (`overrides.layers`). Any mistake
raises `ConfigError` before anything is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationError,
    model_validator,
)

from actors import ActorsConfig, EvaluateConfig, players, wrappers
from cluster.config import artifacts
from cluster.config.cases import CASES
from cluster.config.checks import (
    DEFAULT,
    JOBS,
    assert_bounded,
    assert_minibatch,
    out_of_bounds,
    unknown_key,
    wrong_value,
)
from cluster.config.overrides import COMMAND_LINE, ConfigError, Layer, flatten, layers, nest, suggestion
from cluster.config.sections import ClusterConfig, EnvConfig, LearnerSection, RunConfig
from cluster.metrics import sinks
from envs import registry
from envs.api import EnvSpec
from envs.config import Part
from learner import algorithms, histories, methods, potentials, rewards
from learner.files import Attempt, replace_file, sync_folder
from learner.goals import check_goals
from learner.histories import HistoriesConfig
from learner.intrinsic import check_intrinsic
from learner.models import networks
from learner.models.config import HISTORY, LANGUAGE_MODEL, PolicyConfig, visible
from learner.models.language.llm_policy import check_language_policy
from learner.models.language.prompt import check_prompt
from learner.parts import CollectConfig, GeneraliseConfig, GuideConfig
from learner.potentials import ShapingConfig
from learner.rewards import NONE, IntrinsicConfig
from learner.search import descriptors, emitters, qualities
from learner.search.config import SearchConfig
from llm_service.errors import UsageError
from llm_service.settings import LLMConfig


def method_module(name: str) -> Any:
    """The module of a method: it publishes `Config`, `stages(config)` and `check(config, env_spec)`."""
    if name not in methods.names():
        raise ConfigError(f"method.name: unknown method {name!r}: choose one of {', '.join(methods.names())}")
    return methods.method(name)


def _of_the_method(tree: Any) -> Any:
    return method_module(tree["name"]).Config(**tree) if isinstance(tree, Mapping) else tree


class Config(Part):
    """Everything that determines a run."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    experiment: str = ""
    """The file of `configs/experiment` that this run started from; a label."""
    method: Annotated[SerializeAsAny[Part], BeforeValidator(_of_the_method)] = Field(
        default_factory=lambda: method_module("ppo").Config()
    )
    """The method, its own fields, and the sections of its stages."""
    env: EnvConfig = Field(default_factory=EnvConfig)
    """The environment, and its family's own fields."""
    policy: PolicyConfig = PolicyConfig()
    """The policy network."""
    actors: ActorsConfig = ActorsConfig()
    """The rollout actors."""
    learner: LearnerSection = Field(default_factory=LearnerSection)
    """The learners, and their algorithms."""
    evaluate: EvaluateConfig = EvaluateConfig()
    """Evaluation on held-out seeds."""
    llm: LLMConfig = LLMConfig()
    """The language model service; it runs if the method needs it."""
    cluster: ClusterConfig = ClusterConfig()
    """Where the roles run."""
    stages: list[str] = Field(default=[])
    """Run only these stages of the method; empty runs all."""
    from_: str = Field(default="", alias="from")
    """Another run's artifact to start from: `run:NAME/stage` or a path."""
    seed: int = 0
    """The seed from which every random number derives."""
    sync: bool = False
    """Make the run bitwise reproducible: chunks and batches in a fixed order, acting and learning in turn."""
    run: RunConfig = RunConfig()
    """Where the run lives, and what it writes."""

    @cached_property
    def spec(self) -> EnvSpec:
        """What the policy observes: the environment, and the fields that wrappers add."""
        return wrappers.seen(wrappers.chosen(self), registry.spec(self.env.id, **self.env.options))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy, which computes its own `spec`."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("spec", None)
        return copied

    @model_validator(mode="after")
    def _within_bounds(self) -> Self:
        for key, value in flatten(self.model_dump()).items():
            if must_be := out_of_bounds(key, value):
                raise ValueError(f"{key}: must be {must_be}, got {value!r}")
        return self


# ---- building a tree ------------------------------------------------------------------------------------------------


def compose(words: list[str]) -> Config:
    """The configuration for `group=name` and `key=value` words; a `ConfigError` with one sentence if they are wrong."""
    return explain(words)[0]


def explain(words: list[str]) -> tuple[Config, dict[str, str]]:
    """`compose`, and the source of each value that is not a default: dotted key -> a file, or `command line`."""
    config, provenance = _merge({}, layers(words))
    _check(config, provenance)
    artifact(config, "from", config.from_)
    artifact(config, "method.guide.policy", config.method.part(GuideConfig).policy)
    return config, provenance


def update(config: Config, words: list[str]) -> Config:
    """`config` with further words, or a `ConfigError`; a group's file is merged only if a word selects the group."""
    changed, provenance = _merge(flatten(config.model_dump()), layers(words, only_chosen=True))
    _check(changed, provenance)
    return changed


def artifact(config: Config, key: str, name: str) -> Path | None:
    """The path that `key` gives as `run:NAME/stage` or a path, None if empty; a `ConfigError` if it does not exist."""
    return artifacts.path_of(config.run.folder, key, name) if name else None


def _check(config: Config, provenance: Mapping[str, str]) -> None:
    """Check that policy and method work on this env, and that the method has these stages."""
    _known("policy.network", config.policy.network, [*networks.names(), LANGUAGE_MODEL])
    _known("learner.algorithm", config.learner.algorithm, algorithms.names())
    method, intrinsic = config.method, config.method.part(IntrinsicConfig)
    _known("method.intrinsic.name", intrinsic.name, [NONE, *rewards.names()])
    _known("method.shaping.potential", method.part(ShapingConfig).potential, [NONE, *potentials.names()])
    _known("method.collect.player", method.part(CollectConfig).player, players.nameable())
    _known("method.histories.learner", method.part(HistoriesConfig).learner, histories.names())
    _known("method.search.descriptor", method.part(SearchConfig).descriptor, descriptors.names())
    _known("method.search.quality", method.part(SearchConfig).quality, qualities.names())
    _known("method.search.emitter", method.part(SearchConfig).emitter, emitters.names())
    for sink in config.run.sinks:
        _known("run.sinks", sink, sinks.names())
    name = method.model_dump()["name"]
    module = method_module(name)
    try:
        spec = registry.spec(config.env.id, **config.env.options)
        check_goals(config, spec)
        _check_evaluated(config, spec)
        read = visible(config.policy, config.spec).fields
        judged = algorithms.algorithm(config.learner.algorithm).batch(config) // config.learner.n
        check_intrinsic(intrinsic, read, judged)
        module.check(config, spec)
        for player in config.evaluate.beside:
            method_module(player).check(config, spec)
        if config.policy.network == LANGUAGE_MODEL:
            check_language_policy(config.policy, spec)
        elif config.policy.text != "minilm" and not spec.words and any(f.kind == "text" for f in read.values()):
            raise ValueError(
                f"{spec.id} publishes no vocabulary for policy.text={config.policy.text}: choose policy.text=minilm"
            )
        elif HISTORY in read:
            check_prompt(config.policy.prompt, spec)
    except registry.UnknownEnv as unknown:
        raise ConfigError(f"env.id: {unknown.args[0]}") from None
    except ValueError as reason:
        raise ConfigError(f"impossible combination: {reason}") from None
    if config.cluster.name in JOBS:
        assert_bounded(config)
    actors, learner = config.actors, config.learner
    if actors.n % learner.n or learner.chunks % learner.n:
        raise ConfigError(
            f"impossible combination: chunks are dealt to learner.n={learner.n} ranks by actor, so actors.n={actors.n} "
            f"and learner.chunks={learner.chunks} must be multiples of it"
        )
    if config.cluster.name == "inline" and learner.n > 1:
        raise ConfigError("impossible combination: learner ranks wait for each other, so cluster=inline has only one")
    if config.sync and learner.chunks:
        raise ConfigError(
            "impossible combination: sync=true learns one chunk of each actor, so learner.chunks must be 0"
        )
    for stage in config.stages:
        _known(f"stages of method {name}", stage, [s.name for s in methods.every_stage(config)])
    for case in method.part(GeneraliseConfig).cases:
        _known("method.generalise.cases", case, list(CASES))
    assert_minibatch(config, provenance)


def _check_evaluated(config: Config, spec: EnvSpec) -> None:
    """Check that evaluations show the policy the same fields as training, and use the same score."""
    options = config.evaluate.env
    if not options:
        return
    try:
        evaluated = registry.spec(config.env.id, **config.env.options | options)
    except ValidationError as error:
        raise ConfigError(wrong_value(error, {}, ("evaluate", "env"))) from None
    for what in ("fields", "action_names", "action_shape", "words", "goals", "score"):
        if getattr(evaluated, what) != getattr(spec, what):
            raise ValueError(
                f"evaluate.env={options} changes the {what} of the environment, which must stay as in training"
            )


def _known(key: str, name: str, known: list[str]) -> None:
    if name not in known:
        near = suggestion(name, known, cutoff=0.6)
        hint = f"did you mean {near}?" if near else f"choose from {', '.join(known)}"
        raise ConfigError(f"{key}: there is no {name!r}: {hint}")


def _merge(base: dict[str, Any], stack: list[Layer]) -> tuple[Config, dict[str, str]]:
    """`base` and the layers over the defaults; the source of every value."""
    provenance = {key: layer.source for layer in stack for key in layer.values}
    chosen = {key: value for values in (base, *(layer.values for layer in stack)) for key, value in values.items()}
    defaults = _defaults(chosen, provenance)
    # If the new words replace the env or method, the options of the old one are unknown: they are dropped.
    values = {**defaults, **{key: value for key, value in base.items() if _belongs(key, defaults)}}
    for layer in stack:
        for key, value in layer.values.items():
            if not _belongs(key, defaults):
                raise ConfigError(unknown_key(key, layer.source, list(defaults)))
            values[key] = _meant(value, defaults.get(key), layer.raw.get(key))
    artifacts.place(values)
    return _build(nest(values), provenance), provenance


def _defaults(chosen: Mapping[str, Any], provenance: Mapping[str, str]) -> dict[str, Any]:
    """Every key with its default, for the selected method and env."""
    selectors = {key: chosen[key] for key in ("method.name", "env.id", "llm.name") if key in chosen}
    return flatten(_build(nest(selectors), provenance).model_dump())


def _belongs(key: str, defaults: Mapping[str, Any]) -> bool:
    """Whether the tree has this key, or a mapping above it that takes any key (such as `env.arguments`)."""
    sections = key.split(".")
    above = (".".join(sections[:depth]) for depth in range(1, len(sections)))
    return key in defaults or any(isinstance(defaults.get(section), Mapping) for section in above)


def _meant(value: Any, default: Any, typed: str | None) -> Any:
    """Convert common spellings: 1e6 to an integer, none to nothing, 007 to a name."""
    if isinstance(default, str):
        return typed if typed is not None and isinstance(value, int | float) else value
    if value in ("none", "None"):
        return None
    whole = isinstance(value, float) and value.is_integer()
    return int(value) if whole and isinstance(default, int) and not isinstance(default, bool) else value


def _build(tree: dict[str, Any], provenance: Mapping[str, str]) -> Config:
    try:
        return Config(**tree)
    except ValidationError as error:
        raise ConfigError(wrong_value(error, provenance)) from None
    except UsageError as error:  # a sentence that begins with the key, and repeats no value
        key = str(error).partition(" ")[0].rstrip(":")
        source = provenance.get(key, COMMAND_LINE)
        raise ConfigError(str(error) if source == COMMAND_LINE else f"{error} (in {source})") from None


# ---- a tree on disk -------------------------------------------------------------------------------------------------

HARMLESS = re.compile(
    r"run\..*|cluster\..*|experiment|stages|evaluate\.videos|learner\.threads"
    r"|(actors|learner)\.timeout_s|actors\.(restarts|restart_window_s|backoff_s)"
    r"|llm\.(address|when_away|record|fsync|memory_mb|consumers|replicas|gpus|probe_s|concurrency|timeout_s)"
    r"|llm\.(batch|retry|limits|redis|durable|server)\..*"
)


def alters_meaning(key: str) -> bool:
    """Whether changing `key` during a run makes it another experiment (then resume needs `--allow-change`). The path of
    another run's artifact does not: its content is compared with what the run was trained with."""
    return HARMLESS.fullmatch(key) is None and key not in artifacts.named()


def difference(old: Config, new: Config) -> list[tuple[str, Any, Any]]:
    """Dotted keys whose values differ, with both values; None if one has no such key."""
    before, after = flatten(old.model_dump()), flatten(new.model_dump())
    keys = list(dict.fromkeys([*before, *after]))
    return [(key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)]


def named(config: Config, now: datetime | None = None) -> Config:
    """`config` with `run.name` filled in, if it was empty."""
    if config.run.name:
        return config
    env = config.env.id.rpartition("/")[2].lower()
    what = config.experiment or f"{config.method.model_dump()['name']}-{env}"
    name = f"{re.sub(r'[^A-Za-z0-9_.-]', '-', what)}-{now or datetime.now():%Y%m%d-%H%M%S}"
    return config.model_copy(update={"run": config.run.model_copy(update={"name": name})})


def save(config: Config, path: Path, attempt: Attempt | None = None) -> None:
    """Write the whole tree as YAML, complete or absent. It is on disk when this returns: no run continues without it.

    `Superseded`: a newer attempt has begun.
    """
    replace_file(path, as_yaml(config), attempt)
    sync_folder(path.parent)


def as_yaml(config: Config) -> bytes:
    """The whole tree as `config.yaml` has it. It begins and ends with YAML's own marks, so that a cut is seen."""
    text: str = yaml.safe_dump(config.model_dump(), sort_keys=False, explicit_start=True, explicit_end=True)
    return text.encode()


def load(path: Path) -> Config:
    """Read what `save` wrote, or raise `ConfigError`; keys that are newer than the file get their defaults."""
    try:
        text = path.read_text(encoding="utf-8")
        tree = yaml.safe_load(text)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ConfigError(f"{path} is damaged: it is not YAML") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} is damaged: it holds no keys")
    if text.startswith("---") and not text.rstrip().endswith("\n..."):  # older files have neither
        raise ConfigError(f"{path} is damaged: its end is missing, and what it said there is not known")
    values = flatten(tree)
    defaults = _defaults(values, {})
    if foreign := [key for key in values if not _belongs(key, defaults)]:
        raise ConfigError(
            f"{unknown_key(foreign[0], str(path), list(defaults))} Another version wrote it: continue it with commit "
            f"{commit_of(path.parent)}; this version can use its weights with from=, and make its report"
        )
    try:
        return _merge({}, [Layer(str(path), values)])[0]
    except UsageError as error:  # it is too late for overrides
        raise ConfigError(
            f"{error}; a run keeps the configuration that it started with: correct the file by hand"
        ) from None


def commit_of(folder: Path) -> str:
    """The commit that a run started with, from its manifest."""
    try:
        return str(json.loads((folder / "manifest.json").read_text())["commit"])
    except (OSError, ValueError, KeyError):
        return "of its time"


def render(config: Config, provenance: Mapping[str, str], foreign: Callable[[Config, str], bool]) -> str:
    """The tree as YAML without the `foreign` keys, each value with its source as a comment."""
    lines: list[tuple[str, str]] = []
    tree = {key: value for key, value in flatten(config.model_dump()).items() if not foreign(config, key)}
    _render(nest(tree), "", provenance, lines)
    width = min(44, max(len(text) for text, _ in lines))
    return "\n".join(f"{text:<{width}}  # {source}" if source else text for text, source in lines)


def _render(tree: Mapping[str, Any], prefix: str, provenance: Mapping[str, str], lines: list[tuple[str, str]]) -> None:
    for name, value in tree.items():
        indent = "  " * prefix.count(".")
        if isinstance(value, Mapping) and value:
            lines.append((f"{indent}{name}:", ""))
            _render(value, f"{prefix}{name}.", provenance, lines)
        else:
            text = yaml.safe_dump({name: value}, default_flow_style=True, width=10**6).strip()[1:-1]
            lines.append((indent + text, provenance.get(prefix + name, DEFAULT)))
