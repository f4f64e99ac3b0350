"""The engine of an imitate stage: fits the transformer that follows instructions to the training behaviours.

store, texts, centres, tokenizer ──> ranks of `learner.n` ──> stages/<stage>/model.safetensors
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import safetensors.numpy

from cluster.config.tree import Config
from cluster.runs.folder import RunError
from cluster.runs.stage import Outcome
from cluster.stages._shared.fitting import Fitting
from cluster.stages._shared.lgqd import CENTRES, MODEL, BehaviourStage
from envs.navigation.odometry import GUIDED, SENSED
from learner.behaviours import words
from learner.behaviours.imitation import SequenceConfig, SequenceFitter, SequenceSetup
from learner.models.sequence.behaviour_transformer import Scales
from learner.models.weights import get_weights


class Engine(BehaviourStage, Fitting):
    """Fits a transformer to behaviours with texts."""

    section = SequenceConfig
    items = "episodes"

    @classmethod
    def device(cls, config: Config) -> str:
        return "method.sequence.model.device"

    def run(self) -> Outcome | None:
        if self.method.drive.practice:  # it goes on from the transformer that practised
            self.given.initial = get_weights(self.model("cpu"))  # the controller has no GPU
        if not self.fit(SequenceFitter, self._setup()):
            return None
        found = self.given.newest()
        self.folder.write(self.place / MODEL, safetensors.numpy.save(found.arrays["model"]))
        parameters = sum(value.size for name, value in found.arrays["model"].items() if not name.endswith("scale"))
        about = {"parameters": parameters, "ablate": self.method.sequence.model.ablate}
        return Outcome(found.record["counters"] | about)

    def _setup(self) -> SequenceSetup:
        settings = self.method.sequence
        texts, tokenizer = self.texts(), self.tokenizer()
        place, episodes, table, rows = self.shown("train", "validation")
        told = np.isin(table.id[rows], list(texts))
        if not told.any():
            raise RunError("no training behaviour has a text: run the stage describe again")
        episodes, rows = episodes[told], rows[told]
        own = [texts[number] for number in table.id[rows].tolist()]
        flat = words.encode(tokenizer, [text for each in own for text, _ in each], self.method.tokenize.longest)
        ends = np.cumsum([0, *map(len, own)])
        found = safetensors.numpy.load_file(self.given.artifact("cluster") / CENTRES)
        return SequenceSetup(
            settings,
            self.config.learner,
            self.config.seed,
            place,
            episodes,
            [flat[a:b] for a, b in pairwise(ends.tolist())],
            table.descriptor[rows],
            np.isin(rows, self.part("validation")[1]),
            tokenizer.get_vocab_size(),
            tuple(found[f"{d}"] for d in range(len(found))),
            self._scales(),
            self.odometry,
            (self.method.tokenize.longest, -(-self.length // settings.stride)),
            self.config.sync,
        )

    def _scales(self) -> Scales:
        plain = Scales(world=float(self.house.world_size))
        if not self.method.sequence.odometry:
            return plain
        guided = GUIDED if "target" not in self.method.sequence.model.blind_to else ()
        return replace(plain, sensors=(*plain.sensors, *SENSED, *guided))
