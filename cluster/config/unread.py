"""Settings on the command line that have no effect: keys that no part of this run reads.

The user meant such a setting to matter, so one line says that it does not, and the run continues. Settings from files
and defaults are not reported, because they are written for many runs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from cluster.config.checks import JOBS
from cluster.config.overrides import COMMAND_LINE, flatten, layers
from cluster.topology import asks_a_language_model, learns
from learner import algorithms, histories, potentials
from learner.algorithms.dqn import DQNConfig
from learner.context.config import ARMS, Arm, RetrieveConfig, TrialsConfig
from learner.goals import GoalsConfig
from learner.histories import HistoriesConfig
from learner.methods import selected, trains
from learner.models.config import LANGUAGE_MODEL
from learner.parts import GuideConfig
from learner.potentials import NONE as NO_POTENTIAL
from learner.potentials import ShapingConfig
from learner.rewards import NONE, IntrinsicConfig

if TYPE_CHECKING:
    from cluster.config.tree import Config

OF_ALGORITHM = "with method={method.name} and learner.algorithm={learner.algorithm}"
OF_ARM = "with method.arm={method.arm}"
Rule = tuple[str, Callable[["Config"], bool], str]

FOREIGN: tuple[
    Rule, ...
] = (  # keys of parts that a run lacks: what would read them, and why it is missing; {key} is a value
    (r"cluster\.slurm\..+", lambda c: c.cluster.name == "slurm", "with cluster={cluster.name}"),
    (r"cluster\.kubernetes\..+", lambda c: c.cluster.name == "kubernetes", "with cluster={cluster.name}"),
    (r"method\.((intrinsic|guide)\..+|tee)", trains, "with method={method.name} and no stage that trains"),
    (
        r"method\.shaping\..+",
        lambda c: trains(c) or (_does(c, "evaluate") and c.evaluate.videos > 0),  # recordings show its values
        "with method={method.name} and no stage that trains or records",
    ),
    (
        r"learner\.(?!(n|threads|timeout_s|env_steps|algorithm)$).+",
        trains,
        "with method={method.name} and no stage that trains",
    ),
    *(
        (rf"learner\.{name}\..+", lambda c, name=name: c.learner.algorithm == name, OF_ALGORITHM)
        for name in algorithms.parts()
    ),
    (
        r"learner\.(threads|timeout_s)",
        lambda c: learns(c) or any(_does(c, kind) for kind in ("imitate", "context", "captioner")),
        "with method={method.name}",
    ),
    (
        r"llm\..+",
        lambda c: asks_a_language_model(c) or c.cluster.name in JOBS,  # a job may provide it to other runs
        "with method={method.name}, which uses no language model",
    ),
    (
        r"policy\.lm\.(?!action_tokens$).+",
        lambda c: c.policy.network == LANGUAGE_MODEL,
        "with policy.network={policy.network}",
    ),
    (r"method\.fit\..+", lambda c: _does(c, "fit"), "without a stage that fits"),
    (r"method\.collect\..+", lambda c: _does(c, "collect"), "without a stage that collects"),
    (r"method\.generalise\..+", lambda c: _does(c, "generalise"), "without a stage that generalises"),
    *(
        (
            rf"method\.histories\.{name}\..+",
            lambda c, name=name: c.method.part(HistoriesConfig).learner == name,
            "with method.histories.learner={method.histories.learner}",
        )
        for name in histories.parts()
    ),
    (r"method\.trials\..+", lambda c: _does(c, "trials"), "without a stage of trials"),
    (r"evaluate\.(videos|beside)", lambda c: _does(c, "evaluate"), "without a stage that evaluates"),
    (
        r"evaluate\.episodes",
        lambda c: _does(c, "evaluate") or _does(c, "captioner"),
        "without a stage that evaluates",
    ),
    (
        r"evaluate\.env\..+",
        lambda c: trains(c) or any(_does(c, kind) for kind in ("evaluate", "generalise", "captioner")),
        "without a stage that evaluates",
    ),
    (r"evaluate\.every", trains, "without a stage that trains"),
)
SWITCHED_OFF: tuple[Rule, ...] = (  # keys that another key of the run makes ineffective
    (r"cluster\.dashboard", lambda c: c.cluster.name != "inline", "with cluster=inline"),
    (r"actors\.ahead", lambda c: not c.sync, "with sync=true"),
    (
        r"learner\.dqn\.(alpha|beta)",
        lambda c: c.learner.part(DQNConfig).prioritised,
        "with learner.dqn.prioritised=false",
    ),
    (r"method\.(retrieve\..+|trials\.(memory|newest|terms.*))", lambda c: _arm(c).looks != "nowhere", OF_ARM),
    (r"method\.(retrieve\.(every|past|future)|trials\.newest)", lambda c: not _arm(c).whole, OF_ARM),
    (
        r"method\.(retrieve\.(?!every$|past$|future$|nothing$).+|trials\.terms.*)",
        lambda c: _arm(c).looks == "nearest",
        OF_ARM,
    ),
    (r"method\.sequence\.band", lambda c: not _arm(c).alone and _arm(c).episodes == 1, OF_ARM),
    (r"method\.(sequence\.bins|trials\.(target|deviation|within_reach))", lambda c: _arm(c).conditioned, OF_ARM),
    (
        r"method\.trials\.(newest|terms.*)",
        lambda c: c.method.part(TrialsConfig).memory != "none",
        "with method.trials.memory=none",
    ),
    (
        r"method\.trials\.(keep|noise)",
        lambda c: c.method.part(TrialsConfig).temperature > 0,
        "with method.trials.temperature=0",
    ),
    (r"method\.trials\.keep", lambda c: c.spec.discrete, "with env.id={env.id}, whose actions are vectors"),
    (r"method\.trials\.noise", lambda c: not c.spec.discrete, "with env.id={env.id}, whose actions are not vectors"),
    (
        r"method\.retrieve\.(told|projection)",
        lambda c: c.method.part(RetrieveConfig).frozen,
        "with method.retrieve.encoder=fitted",
    ),
    (
        r"method\.retrieve\.beta",
        lambda c: c.method.part(RetrieveConfig).encoder == "hopfield",
        "with method.retrieve.encoder={method.retrieve.encoder}",
    ),
    (r"method\.sequence\.skip", lambda c: _arm(c).episodes > 1, OF_ARM),
    (r"method\.guide\.share", lambda c: bool(c.method.part(GuideConfig).policy), "without method.guide.policy"),
    (
        r"method\.goals\.(?!source$).+",
        lambda c: c.method.part(GoalsConfig).source != "none",
        "with method.goals.source=none",
    ),
    (
        r"method\.goals\.order",
        lambda c: c.method.part(GoalsConfig).source == "oracle" and c.method.part(GoalsConfig).limit is not None,
        "without method.goals.source=oracle and method.goals.limit",
    ),
    (
        r"method\.goals\.prompt",
        lambda c: c.method.part(GoalsConfig).source == "model",
        "with method.goals.source={method.goals.source}",
    ),
    (
        r"method\.intrinsic\.(?!name$).+",
        lambda c: c.method.part(IntrinsicConfig).name != NONE,
        "with method.intrinsic.name=none",
    ),
    (
        r"method\.shaping\.(?!potential$).+",
        lambda c: c.method.part(ShapingConfig).potential != NO_POTENTIAL,
        "with method.shaping.potential=none",
    ),
    *(
        (
            rf"method\.shaping\.({'|'.join(potentials.potential(name).Config.model_fields)})",
            lambda c, name=name: c.method.part(ShapingConfig).potential == name,
            f"without method.shaping.potential={name}",
        )
        for name in potentials.names()
        if potentials.potential(name).Config.model_fields
    ),
    (
        r"evaluate\.validation_episodes",
        lambda c: trains(c) and c.evaluate.every > 0,
        "without evaluations during training",
    ),
)


def foreign(config: Config, key: str) -> bool:
    """Whether a key belongs to something this run lacks: another algorithm, another cluster, another kind of stage."""
    return any(re.fullmatch(pattern, key) and not reads(config) for pattern, reads, _ in FOREIGN)


def tell(config: Config, provenance: dict[str, str]) -> tuple[Config, dict[str, str]]:
    """Print settings of the command line that nothing reads on stderr, a line per reason. Returns both arguments."""
    values = flatten(config.model_dump())
    told: dict[str, list[str]] = {}
    for key in (key for key, source in provenance.items() if source == COMMAND_LINE):
        for pattern, reads, why in (*FOREIGN, *SWITCHED_OFF):
            if re.fullmatch(pattern, key) and not reads(config):
                reason = re.sub(r"\{(.+?)\}", lambda found: str(values[found[1]]), why)
                value = str(values.get(key))
                told.setdefault(reason, []).append(key if "\n" in value else f"{key}={value}")
                break
    for reason, words in told.items():
        print(f"note: {', '.join(words)} {'has' if len(words) == 1 else 'have'} no effect {reason}", file=sys.stderr)
    return config, provenance


def tell_words(config: Config, words: list[str]) -> None:
    """`tell`, for words that were applied to a saved configuration."""
    if words:
        tell(config, dict.fromkeys(layers(words, only_chosen=True)[-1].values, COMMAND_LINE))


def _arm(config: Config) -> Arm:
    return ARMS[config.method.model_dump()["arm"]]


def _does(config: Config, kind: str) -> bool:
    return any(stage.kind == kind for stage in selected(config))
