"""Language-grounded generative quality-diversity (Salehi and Doncieux 2023, arXiv 2308.13278).

    search ──> merge ──> annotate ──> describe ──> split ──> drive ──> cluster ──> tokenize ──> imitate ──> deploy
                                                                                                      judge <──┘

    search     novelty search fills archives of behaviours                learner/search, actors/behaviours
    merge      one store, each behaviour once, near-duplicates in groups  learner/behaviours/gather.py
    annotate   what each one passes, at eleven moments                    envs/navigation/scene.py
    describe   a language model says it in words, in three styles         llm_service/tasks/caption_trajectory.py
    split      trials, frozen here, and what is learned from              learner/behaviours/{table,trials,twins}.py
    drive      optional: a driver follows their routes, and finds back    actors/behaviours/{driver,ride}.py
    cluster    k-means of each wheel's speed, on training data            learner/behaviours/clusters.py
    tokenize   the vocabulary of its descriptions                         learner/behaviours/words.py
    imitate    a transformer of (text, end, history) -> action            learner/behaviours/imitation.py
    deploy     trials: distance to the end, obedience to the text         actors/behaviours
    judge      a language model's opinion, and whether it agrees          llm_service/tasks/judge_trajectory.py

Each stage works on the artifacts of earlier stages, and can run alone: `stages=[describe] from=run:NAME/merge` reads
the other run's artifacts where this one has none. Differences from the paper: docs/methods/lgqd.md.
"""

from __future__ import annotations

from typing import Literal

from envs.api import EnvSpec
from envs.config import Part
from learner.behaviours.config import (
    DeployConfig,
    DescribeConfig,
    DriveConfig,
    JudgeConfig,
    SplitConfig,
    TokenizerConfig,
)
from learner.behaviours.gather import GatherConfig
from learner.behaviours.imitation import SequenceConfig
from learner.config import Configuration
from learner.methods import Stage
from learner.search.config import SearchConfig


class Config(Part):
    """Settings of every stage."""

    name: Literal["lgqd"] = "lgqd"
    """The module of `learner/methods`."""
    search: SearchConfig = SearchConfig()
    """Novelty search."""
    merge: GatherConfig = GatherConfig()
    """Merging archives into one store."""
    describe: DescribeConfig = DescribeConfig()
    """Descriptions in words."""
    split: SplitConfig = SplitConfig()
    """The trials, and what is held out for them."""
    drive: DriveConfig = DriveConfig()
    """Demonstrations by a driver."""
    tokenize: TokenizerConfig = TokenizerConfig()
    """The vocabulary."""
    sequence: SequenceConfig = SequenceConfig()
    """Clusters of actions, the transformer and how it is fitted."""
    deploy: DeployConfig = DeployConfig()
    """Acting on trials."""
    judge: JudgeConfig = JudgeConfig()
    """A language model's ratings."""


def stages(config: Configuration) -> list[Stage]:
    return [
        Stage("search", "search", "random"),
        Stage("merge", "curate", "random"),
        Stage("annotate", "curate", "random"),
        Stage("describe", "curate", "language_model"),
        Stage("split", "curate", "random"),
        *([Stage("drive", "curate", "random")] if config.method.part(DriveConfig).drives else []),
        Stage("cluster", "curate", "random"),
        Stage("tokenize", "curate", "random"),
        Stage("imitate", "imitate", "random"),
        Stage("deploy", "deploy", "random"),
        Stage("judge", "judge", "language_model"),
    ]


def check(config: Configuration, spec: EnvSpec) -> None:
    """The pipeline needs the house, whose simulator plays small policies in compiled code."""
    if not spec.id.startswith("navigation/"):
        raise ValueError(f"method lgqd plays small policies in env=navigation only, not in {spec.id}")
    method = config.method
    sequence, driver = method.part(SequenceConfig), method.part(DriveConfig)
    if sequence.particles and not (sequence.odometry and driver.drives):
        raise ValueError(
            "method.sequence.particles correct odometry that a driver's store holds: set method.drive.times"
        )
    if sequence.model.foresight and not driver.drives:
        raise ValueError(
            "method.sequence.model.foresight needs a driver, who knows what lies ahead: set method.drive.times"
        )
    if method.part(DeployConfig).guidance != 1 and not sequence.hush:
        raise ValueError("method.deploy.guidance compares with a text that says nothing: fit with method.sequence.hush")
