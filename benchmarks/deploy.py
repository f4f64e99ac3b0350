"""deploy: robots that act by a sequence model, batched and with cached keys and values, against recomputing everything.

The model has its published shape, 8 million parameters, and random weights. Its input is a text of up to 226 tokens,
then three tokens for each of 400 steps. One thread, CPU time, float32; our side also simulates the house.

    argmax    64 prompts (`--quick`: 16), each for a robot of its own, whole episodes, actions a second

    recompute            as published: one robot at a time, and for each action all 1,426 tokens anew, padding
                         included. An action costs the same at every step, so the peer computes a few, at steps spread
                         over the episode
    recompute_batched    as many robots at once as ours, padded to the longest text and the step so far; again a few
                         steps, in the middles of equal parts of the episode
    cache_one            one robot with cached keys and values, a whole episode

Each peer receives the observations and actions of our episode so far. It must choose the same actions, to 1e-3 of a
world unit.

Limit: reading keys and values, 8 MB a robot at the end of an episode, takes as long as all other work.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from actors.behaviours.deploy import deploy
from benchmarks.measure import Case, DifferentOutputs, Options, Report, compare
from benchmarks.peers.padded_transformer import cached, padded
from envs.navigation import TENTHS, load, simulate
from learner.models.sequence.behaviour_config import BehaviourConfig
from learner.models.sequence.behaviour_transformer import BehaviourModel, Demonstrations
from learner.models.sequence.choice import Choice

CASES = ("argmax",)
QUICK_ROUNDS, QUICK_SECONDS = 1, 47.0
CONFIG = BehaviourConfig(
    width=360, layers=2, heads=4, dropout=0.0, layout="separate", dimensions="independent", device="cpu"
)
VOCABULARY, LONGEST_TEXT, LENGTH = 1500, 226, 400
ASKED = 4
"""Actions that the peer computes in a round."""
ASKED_TOGETHER = 3
"""Steps at which the batched peer acts in a round."""
AT_ONCE = 8
"""Robots of about equally long texts that it computes at once, so that little is padded; 1, 2 and 4 are as fast."""
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
        self.batched, self.single = copy.deepcopy(model), copy.deepcopy(model)
        most = model.longest[0] + model.longest[1] * model.tokens_per_step
        padded(self.peer, most)  # always padded to the longest
        padded(self.batched)  # to the longest of its batch
        cached(self.single, most)
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
            _assert_equal(step, action, ours)
        return len(steps) / seconds

    def play_recompute_batched(self) -> float:
        """Actions a second of the peer that drives all robots at once, without a cache.

        Raises:
            DifferentOutputs: it chooses another action than ours.
        """
        steps = ((np.arange(ASKED_TOGETHER) + 0.5) * self.length / ASKED_TOGETHER).astype(int).tolist()
        order = np.argsort([len(text) for text in self.texts], kind="stable").tolist()
        groups = [order[begin : begin + AT_ONCE] for begin in range(0, len(order), AT_ONCE)]
        told = [(step, [self._told(prompt, step) for prompt in group]) for step in steps for group in groups]
        batches = [(step, _together([shown for shown, _ in group]), group) for step, group in told]
        found = []
        begun = time.process_time()
        with torch.no_grad():
            for step, shown, group in batches:
                features = self.batched(shown)[step :: step + 1]  # the last step of each robot
                found.append(self.batched.choose(features, Choice("argmax"), np.zeros((len(group), 2))).clip(-4, 4))
        seconds = time.process_time() - begun
        for actions, (step, _, group) in zip(found, batches, strict=True):
            for action, (_, ours) in zip(actions, group, strict=True):
                _assert_equal(step, action, ours)
        return len(steps) * len(self.texts) / seconds

    def play_cache_one(self) -> float:
        """Actions a second of the peer that drives one robot with cached keys and values, over a whole episode.

        Raises:
            DifferentOutputs: it chooses another action than ours.
        """
        prompt = int(np.random.default_rng([2, self.round]).integers(len(self.texts)))
        shown, _ = self._told(prompt, self.length - 1)
        driven, model = self.found["action"][prompt, 0], self.single
        found = []
        begun = time.process_time()
        cache = model.begin([self.texts[prompt]])
        code = model.target_code(self.target[prompt, None])
        for step in range(self.length):
            previous = driven[None, step - 1] if step else None
            sensors = shown.sensors[None, step]
            chosen = model.act(cache, step, code, sensors, previous, Choice("argmax"), np.zeros((1, 2)))
            found.append(chosen[0].clip(-4, 4))
        seconds = time.process_time() - begun
        for step, (action, ours) in enumerate(zip(found, driven, strict=True)):
            _assert_equal(step, action, ours)
        return self.length / seconds

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


def _assert_equal(step: int, action: NDArray[np.float32], ours: NDArray[np.float32]) -> None:
    if not np.abs(action - ours).max() <= APART:
        raise DifferentOutputs(f"the action at step {step}: ours is {ours}, the peer's {action}")


def _together(shown: Sequence[Demonstrations]) -> Demonstrations:
    """Episodes as one batch."""
    return Demonstrations(
        tokens=np.concatenate([each.tokens for each in shown]),
        texts=[n for each in shown for n in each.texts],
        target=np.concatenate([each.target for each in shown]),
        sensors=np.concatenate([each.sensors for each in shown]),
        actions=np.concatenate([each.actions for each in shown]),
        steps=[n for each in shown for n in each.steps],
    )


def run(options: Options) -> Report:
    match: Any = Match(build(), 16 if options.quick else 64)
    peers = {
        "recompute": match.play_recompute,
        "recompute_batched": match.play_recompute_batched,
        "cache_one": match.play_cache_one,
    }
    case = Case("deploy", "argmax", "actions", frozenset({"recompute_batched", "cache_one"}))
    for name in peers:
        case.notes[name] = f"{len(match.texts)} robots, {LENGTH} steps"
    return compare(case, match.play_ours, peers, options)
