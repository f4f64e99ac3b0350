"""Words of a command line that do nothing: keys that no part of this run reads.

What a user wrote was meant to matter: it is told in one line, and the run goes on. What files and defaults set is not
judged: they are written for many runs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from cluster.config.overrides import COMMAND_LINE, flatten, layers
from cluster.topology import asks_a_language_model, learns
from learner import algorithms
from learner.algorithms import algorithm
from learner.methods import selected, trains
from learner.models.config import LANGUAGE_MODEL

if TYPE_CHECKING:
    from cluster.config.tree import Config

READERS = {
    key: {name for name in algorithms.names() if key in algorithm(name).reads}
    for name in algorithms.names()
    for key in sorted(algorithm(name).reads)
}
"""The algorithms that read a key of `learner` which not all of them do."""
OF_ALGORITHM = "with method={method.name} and learner.algorithm={learner.algorithm}"
Rule = tuple[str, Callable[["Config"], bool], str]


def _learns_by(names: Collection[str], config: Config) -> bool:
    return config.learner.algorithm in names


RULES: tuple[Rule, ...] = (  # keys, when something reads them, and what is so when nothing does: {key} is a value
    (r"cluster\.slurm\..+", lambda c: c.cluster.name == "slurm", "with cluster={cluster.name}"),
    (r"cluster\.kubernetes\..+", lambda c: c.cluster.name == "kubernetes", "with cluster={cluster.name}"),
    (r"cluster\.dashboard", lambda c: c.cluster.name != "inline", "with cluster=inline"),
    (r"actors\.ahead", lambda c: not c.sync, "with sync=true"),
    (rf"({'|'.join(algorithms.parts())}|intrinsic)\..+", trains, "with method={method.name} and no stage that trains"),
    (
        r"learner\.(?!(n|threads|timeout_s|env_steps|algorithm)$).+",
        trains,
        "with method={method.name} and no stage that trains",
    ),
    (r"learner\.(threads|timeout_s)", lambda c: learns(c) or _does(c, "imitate"), "with method={method.name}"),
    *((rf"{name}\..+", partial(_learns_by, {name}), OF_ALGORITHM) for name in algorithms.parts()),
    *((rf"learner\.{key}", partial(_learns_by, readers), OF_ALGORITHM) for key, readers in READERS.items()),
    (r"dqn\.(alpha|beta)", lambda c: c.dqn.prioritised, "with dqn.prioritised=false"),
    (r"dqn\.guide_share", lambda c: bool(c.dqn.guide), "without dqn.guide"),
    (r"goals\.(?!source$).+", lambda c: c.goals.source != "none", "with goals.source=none"),
    (r"intrinsic\.(?!name$).+", lambda c: c.intrinsic.name != "none", "with intrinsic.name=none"),
    (
        r"llm\..+",
        lambda c: asks_a_language_model(c) or _queued(c),
        "with method={method.name}, which asks no language model",
    ),
    (
        r"policy\.lm\.(?!action_tokens$).+",
        lambda c: c.policy.network == LANGUAGE_MODEL,
        "with policy.network={policy.network}",
    ),
    (r"fit\..+", lambda c: _does(c, "fit"), "without a stage that fits"),
    (r"collect\..+", lambda c: _does(c, "collect"), "without a stage that collects"),
    (r"generalise\..+", lambda c: _does(c, "generalise"), "without a stage that generalises"),
    (r"evaluate\.(episodes|videos|beside)", lambda c: _does(c, "evaluate"), "without a stage that evaluates"),
    (r"evaluate\.every", trains, "without a stage that trains"),
    (
        r"evaluate\.validation_episodes",
        lambda c: trains(c) and c.evaluate.every > 0,
        "without evaluations during training",
    ),
)


def lines(config: Config, keys: Iterable[str]) -> list[str]:
    """What to say of keys that were given and that nothing reads: one line a reason, empty if all are read."""
    values: Mapping[str, Any] = flatten(config.model_dump())
    told: dict[str, list[str]] = {}
    for key in keys:
        for pattern, reads, why in RULES:
            if re.fullmatch(pattern, key) and not reads(config):
                reason = re.sub(r"\{(.+?)\}", lambda found: str(values[found[1]]), why)
                told.setdefault(reason, []).append(f"{key}={values.get(key)}")
                break
    return [f"{', '.join(words)} {'has' if len(words) == 1 else 'have'} no effect {w}" for w, words in told.items()]


def tell(config: Config, origins: dict[str, str]) -> tuple[Config, dict[str, str]]:
    """Print on stderr what `lines` says of the command line. Returns both as they came."""
    for line in lines(config, (key for key, origin in origins.items() if origin == COMMAND_LINE)):
        print(f"note: {line}", file=sys.stderr)
    return config, origins


def tell_words(config: Config, words: list[str]) -> None:
    """`tell`, of words that were laid over a saved configuration."""
    if words:
        tell(config, dict.fromkeys(layers(words, only_chosen=True)[-1].values, COMMAND_LINE))


def _queued(config: Config) -> bool:
    """Whether jobs are made of it, which may serve a language model to other runs."""
    return config.cluster.name in ("slurm", "kubernetes")


def _does(config: Config, kind: str) -> bool:
    return any(stage.kind == kind for stage in selected(config))
