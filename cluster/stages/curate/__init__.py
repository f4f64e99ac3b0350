"""The engine of curate stages: operations on artifacts, each a module with the stage's name and `run(work)`.

merge     archives            ──> stages/merge/       an EpisodeStore, behaviours.safetensors
annotate  the store           ──> stages/annotate/    annotations.jsonl: route and eleven moments of each
describe  annotations, LLM    ──> stages/describe/    texts.jsonl
split     texts, behaviours   ──> stages/split/       parts.safetensors, trials.jsonl
drive     routes of behaviours ──> stages/drive/      an EpisodeStore: a driver follows them, and finds back
cluster   the training part   ──> stages/cluster/     centres.safetensors
tokenize  its texts           ──> stages/tokenize/    tokenizer.json
"""

from __future__ import annotations

import importlib

from cluster.config.tree import Config
from cluster.roles.drawing import Topology
from cluster.runs.stage import Outcome
from cluster.stages._shared.lgqd import BehaviourStage


class Engine(BehaviourStage):
    """Runs the operation of its stage."""

    def run(self) -> Outcome | None:
        outcome: Outcome | None = importlib.import_module(f"{__name__}.{self.stage.name}").run(self)
        return outcome

    @classmethod
    def roles(cls, config: Config) -> Topology:
        return Topology((), (("archive", "store", "episodes, groups, texts, trials"),))
