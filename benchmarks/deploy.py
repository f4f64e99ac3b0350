"""deploy: robots that act by a sequence model, batched and with cached keys and values, against recomputing everything.

The model has its published shape, 8 million parameters, and random weights. Its input is a text of up to 226 tokens,
then three tokens for each of 400 steps. One thread, CPU time, float32; our side also simulates the house.

    argmax    64 prompts (`--quick`: 16), each for a robot of its own, whole episodes, actions a second

    recompute    as published: one robot at a time, and for each action all 1,426 tokens anew, padding included. An
                 action costs the same at every step, so the peer computes a few, at steps spread over the episode

The peer receives the observations and actions of our episode so far. It must choose the same action, to 1e-3 of a
world unit.

Limit: reading keys and values, 8 MB a robot at the end of an episode, takes as long as all other work.
"""

from __future__ import annotations

import copy
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from actors.behaviours.deploy import deploy
from benchmarks.measure import Case, DifferentOutputs, Options, Report, compare
from benchmarks.peers.padded_transformer import padded
from envs.navigation import TENTHS, load, simulate
from learner.models.sequence.behaviour_transformer import BehaviourConfig, BehaviourModel, Demonstrations
from learner.models.sequence.choice import Choice

CASES = ("argmax",)
QUICK_ROUNDS, QUICK_SECONDS = 1, 47.0
CONFIG = BehaviourConfig(
    width=360, layers=2, heads=4, dropout=0.0, layout="separate", dimensions="independent", device="cpu"
)
VOCABULARY, LONGEST_TEXT, LENGTH = 1500, 226, 400
ASKED = 4
"""Actions that the peer computes in a round."""
APART = 0.5 / TENTHS + 1e-3
"""Tolerance of actions, in world units: ours are rounded to tenths, as a store has them."""


def build(config: BehaviourConfig = CONFIG, longest: tuple[int, int] = (LONGEST_TEXT, LENGTH)) -> BehaviourModel:
    """An untrained model whose actions depend visibly on its input."""
    torch.manual_seed(0)
    centres = tuple(np.array([-1.0, 1.0, 2.5, 4.0], np.float32) for _ in range(2))
    model = BehaviourModel(config, VOCABULARY, longest, centres)
    with torch.no_grad():
        for last in (model.offsets[2], *(head[2] for head in model.heads)):  # type: ignore[index]
            last.weight.mul_(20)
    return model.eval()


class Match:
    """Ours drives all robots; the peer chooses some of their actions again."""

    def __init__(self, model: BehaviourModel, prompts: int) -> None:
        random = np.random.default_rng(0)
        self.model, self.peer, self.house = model, copy.deepcopy(model), load()
        padded(self.peer, model.longest[0] + model.longest[1] * model.tokens_per_step)  # always padded to the longest
        lengths = random.integers(model.longest[0] // 20 + 1, model.longest[0] + 1, prompts)
        self.texts = [random.integers(0, model.vocabulary, n) for n in lengths]
        self.target = (random.random((prompts, 2)) * self.house.world_size).astype(np.float32)
        self.start = np.tile(self.house.start, (prompts, 1)).astype(np.float32)
        self.length, self.round = model.longest[1], 0
        self.found: dict[str, NDArray[np.float32]] = {}

    def play_ours(self) -> float:
        """Actions a second."""
        self.round += 1
        begun = time.process_time()
        self.found = deploy(
            self.model,
            self.house,
            self.texts,
            self.target,
            self.start,
            length=self.length,
            stride=1,
            strategy="argmax",
            memory_gb=4.0,
        )
        return self.found["action"][..., 0].size / (time.process_time() - begun)

    def play_recompute(self) -> float:
        """Actions a second of the peer.

        Raises:
            DifferentOutputs: it chooses another action than ours.
        """
        random = np.random.default_rng([1, self.round])
        steps = np.linspace(0, self.length - 1, ASKED).round().astype(int)
        told = [self._told(int(random.integers(len(self.texts))), step) for step in steps]
        begun = time.process_time()
        actions = []
        with torch.no_grad():
            for shown, _ in told:
                features = self.peer(shown)[-1:]
                actions.append(self.peer.choose(features, Choice("argmax"), np.zeros((1, 2)))[0].clip(-4, 4))
        seconds = time.process_time() - begun
        for step, action, (_, ours) in zip(steps, actions, told, strict=True):
            if not np.abs(action - ours).max() <= APART:
                raise DifferentOutputs(f"the action at step {step}: ours is {ours}, the peer's {action}")
        return len(steps) / seconds

    def _told(self, prompt: int, step: int) -> tuple[Demonstrations, NDArray[np.float32]]:
        """Our episode up to a step, and our action at that step."""
        action = self.found["action"][prompt, 0]
        still = np.zeros((1, 2), np.float32)  # the robot senses its place before it moves
        sensors = simulate(self.house, self.start[prompt], np.concatenate([still, action[:step]])[None])["obs"][0]
        shown = Demonstrations(
            tokens=self.texts[prompt],
            texts=[len(self.texts[prompt])],
            target=self.target[prompt, None],
            sensors=sensors,
            actions=np.concatenate([action[:step], still]),
            steps=[step + 1],
        )
        return shown, action[step]


def run(options: Options) -> Report:
    match: Any = Match(build(), 16 if options.quick else 64)
    case = Case("deploy", "argmax", "actions", frozenset({"recompute"}))
    case.notes["recompute"] = f"{len(match.texts)} robots, {LENGTH} steps"
    return compare(case, match.play_ours, {"recompute": match.play_recompute}, options)
