"""Learners of small networks on random chunks: timing an update needs no simulator.

BabyAI's view, direction and mission go to a FiLM network; observations, actions and rewards are random.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.gpu_rows.chip import APART, Chip
from benchmarks.measure import DifferentOutputs, OursFailed
from envs.api import Chunk, EnvSpec, Field
from envs.text import text_hash
from learner import algorithms
from learner.algorithms import LearnerSetup
from learner.config import LearnerConfig
from learner.group import Learner
from learner.models.config import PolicyConfig

ENVS = 128
WORDS = ("ball", "blue", "box", "go", "green", "grey", "key", "red", "the", "to")
TEXTS = {text_hash(text): text for text in (f"go to the {c} {x}" for c in ("red", "blue", "grey") for x in WORDS[:7:2])}
FIELDS = {
    "image": Field("grid", (7, 7, 3)),
    "direction": Field("category", size=4),
    "mission": Field("text"),
}
SPEC = EnvSpec("nowhere/Drawn", FIELDS, ("left", "right", "forward", "pick", "drop", "toggle"), words=WORDS)


def learner(algorithm: str, device: str, minibatch: int, due: int) -> Learner:
    """A learner with one epoch a chunk; for dqn, with about `due` gradient steps for every 8 steps of all envs.

    Raises:
        OursFailed: its policy is on another device.
    """
    dqn = algorithm == "dqn"
    config = LearnerConfig(algorithm=algorithm, minibatch=minibatch).model_copy(update={"device": device})
    kept = {"capacity": 65_536, "start_steps": minibatch, "samples_per_insert": due * minibatch / (8 * ENVS)}
    own = {**kept, "keep": "memory"} if dqn else {"epochs": 1}
    policy = PolicyConfig(network="film", head="dueling" if dqn else "actor_critic")
    options = algorithms.parts()[algorithm](**own)
    made = Learner(LearnerSetup(config, policy, SPEC, 1, (1, ENVS), options))
    found = next(made.policy.parameters()).device.type
    if found != device:
        raise OursFailed(f"the learner of {algorithm} is on {found}, and learner.device is {device}")
    return made


def chunk(steps: int, version: int) -> Chunk:
    """A random chunk of `steps` steps of all envs, in which one episode in fifty ends at each step."""
    random = np.random.default_rng(version)
    ended = random.random((steps, ENVS)) < 0.02
    final_index = np.argwhere(ended).astype(np.int32)

    def seen(*lead: int) -> dict[str, np.ndarray]:
        return {
            "image": random.integers([11, 6, 3], size=(*lead, 7, 7, 3)).astype(np.uint8),
            "direction": random.integers(4, size=lead).astype(FIELDS["direction"].dtype),
            "mission": random.choice(np.array(list(TEXTS)), lead),
        }

    def said(*shape: int) -> np.ndarray:
        return random.normal(0, 0.3, shape).astype(np.float32)

    return Chunk(
        actor=0,
        incarnation=0,
        sequence=version,
        version=version,
        env_index=np.arange(ENVS, dtype=np.int32),
        obs=seen(steps + 1, ENVS),
        final_obs=seen(len(final_index)),
        final_index=final_index,
        action=random.integers(len(SPEC.action_names), size=(steps, ENVS)),
        log_prob=said(steps, ENVS) - np.float32(math.log(len(SPEC.action_names))),
        value=said(steps + 1, ENVS),
        final_value=said(len(final_index)),
        rewards={"env": random.random((steps, ENVS)).astype(np.float32)},
        terminated=ended,
        truncated=np.zeros_like(ended),
        policy_state=None,
        episode=np.cumsum(ended, 0, np.int64) - ended + 1000 * version,
        texts=TEXTS,
        llm_status=np.zeros((steps, ENVS), np.uint8),
    )


class Small:
    """One learner on the GPU and one on the processor, with the same weights and the same chunks."""

    def __init__(self, chip: Chip, name: str, minibatch: int, due: int = 16) -> None:
        self.steps = 8 if name == "dqn" else due * minibatch // ENVS
        self.due, self.losses = due, "losses/q" if name == "dqn" else "losses/value"
        self.ours, self.peer = (learner(name, on, minibatch, due) for on in (chip.device.type, "cpu"))
        self.note = f"beside {torch.get_num_threads()} thread of the processor"
        self.version, self.loss = 0, 0.0
        filled = chunk(2 * minibatch // ENVS + 8, 0)
        for each in (self.ours, self.peer):
            each.update(0, 0, filled)  # one-time work is not timed; for dqn, this also fills the replay
        self.play_ours()
        self.play_peer()

    def work(self) -> Callable[[], object]:
        """Our update from another chunk; not yet begun."""
        self.version += 1
        self.chunk = chunk(self.steps, self.version)
        return lambda: self._play(self.ours)

    def play_ours(self) -> float:
        """Gradient steps a second, including the learner's report and copying its weights to the host."""
        self.work()
        rate, self.loss = self._play(self.ours)
        return rate

    def play_peer(self) -> float:
        """
        Raises:
            DifferentOutputs: the processor's loss differs from ours.
        """
        rate, loss = self._play(self.peer)
        if not abs(self.loss - loss) <= APART * abs(loss):
            raise DifferentOutputs(f"loss of an update: ours is {self.loss}, the processor's {loss}")
        return rate

    def _play(self, side: Learner) -> tuple[float, float]:
        begun = time.perf_counter()
        report, _ = side.update(self.version, 0, self.chunk)
        return self.due / (time.perf_counter() - begun), report[self.losses]
