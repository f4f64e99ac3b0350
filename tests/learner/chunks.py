"""Chunks that nobody played: drawn, of a world for each network, so that a learner can be run without any simulator."""

import math

import numpy as np

from envs.api import Chunk, EnvSpec, Field
from envs.text import text_hash
from learner import algorithms
from learner.algorithms import LearnerSetup
from learner.config import LearnerConfig
from learner.group import Learner
from learner.models.config import PolicyConfig
from learner.rewards import IntrinsicConfig

SEED, ENVS, STEPS = 3, 6, 8
WORDS = ("a", "ball", "box", "find", "key", "open", "red", "the")
TEXTS = {text_hash(text): text for text in (f"find the {x} {y}" for x in WORDS for y in WORDS[:4])}
SENTENCES = {"mission": Field("text"), "caption": Field("text")}
NUMBERS = {"direction": Field("category", size=4), "speed": Field("vector", (5,))}
WORLDS = {
    "film": {"image": Field("grid", (7, 7, 3)), "direction": NUMBERS["direction"], "mission": SENTENCES["mission"]},
    "drrn": SENTENCES | NUMBERS,
    "language_model": SENTENCES,
    "texts": {"view": Field("pixels", (40, 40, 3)), "told": Field("text", (3,))} | SENTENCES | NUMBERS,
    "resnet": {"view": Field("pixels", (20, 20, 3)), "mission": SENTENCES["mission"]} | NUMBERS,
}
"""What is seen by which network; by any other, one sentence and numbers."""


def world(network):
    fields = WORLDS.get(network, {"mission": SENTENCES["mission"]} | NUMBERS)
    return EnvSpec("nowhere/Drawn", fields, ("left", "right", "open"), words=tuple(sorted({*WORDS, "find", "the"})))


def chunk(spec, version, sequence=0, policy_state=None, envs=ENVS, steps=STEPS):
    """One chunk of an actor, in which some episodes end; what its policy of that version said is drawn, too."""
    random = np.random.default_rng([SEED, sequence])
    ended = random.random((steps, envs)) < 0.2
    cut = ended & (random.random((steps, envs)) < 0.5)
    final_index = np.argwhere(ended).astype(np.int32)
    leads = (steps + 1, envs), (len(final_index),)
    obs, final_obs = ({name: drawn(random, field, lead) for name, field in spec.fields.items()} for lead in leads)
    floats = {"log_prob": (steps, envs), "value": (steps + 1, envs), "final_value": (len(final_index),)}
    said = {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in floats.items()}
    said["log_prob"] -= np.float32(math.log(len(spec.action_names)))
    return Chunk(
        actor=0,
        incarnation=0,
        sequence=sequence,
        version=version,
        env_index=np.arange(envs, dtype=np.int32),
        obs=obs,
        final_obs=final_obs,
        final_index=final_index,
        action=random.integers(len(spec.action_names), size=(steps, envs)),
        rewards={"env": random.random((steps, envs)).astype(np.float32)},
        terminated=ended & ~cut,
        truncated=cut,
        policy_state=policy_state,
        episode=np.cumsum(ended, 0) - ended + 100 * sequence,
        texts=TEXTS,
        llm_status=np.zeros((steps, envs), np.uint8),
        **said,
    )


def drawn(random, field, lead):
    """Entries [*lead, ...] of a field."""
    shape = (*lead, *field.shape)
    if field.kind == "text":
        return random.choice(np.array(list(TEXTS)), shape)
    if field.kind == "vector":
        return random.random(shape).astype(np.float32)
    most = np.array([16, 8, 4]) if field.kind == "grid" else 256 if field.kind == "pixels" else field.size
    return random.integers(most, size=shape).astype(field.dtype)


def setup(algorithm, network, device="cpu", policy=None, intrinsic=None, options=None, **learner):
    """A learner of that world.

    device: of `learner`, and `meta`, which a configuration cannot name.
    policy, intrinsic, options: keys of the policy, of the reward term, and of the algorithm's own part.
    """
    parts, dqn = algorithms.parts(), algorithm == "dqn"
    config = LearnerConfig(algorithm=algorithm, minibatch=16, **learner).model_copy(update={"device": device})
    sized = {"capacity": 4000, "start_steps": 32, "samples_per_insert": 1.0, "keep": "memory"} if dqn else {}
    return LearnerSetup(
        config,
        PolicyConfig(network=network, hidden=16, head="dueling" if dqn else "actor_critic", **policy or {}),
        world(network),
        SEED,
        (1, ENVS),
        parts[algorithm](**sized | (options or {})) if algorithm in parts else None,
        intrinsic=IntrinsicConfig(**intrinsic or {}),
    )


def made(setup, version, lag=0):
    """The chunk of an update of that version, which is `lag` versions old."""
    state = np.zeros((ENVS, 16), np.float32) if setup.policy.memory == "gru" else None
    return chunk(setup.spec, version - lag, version, state)


def learn(setup, lag=0, updates=2):
    """A learner, updated from chunks that are `lag` versions old; its last report, and its weights then."""
    learner = Learner(setup)
    for version in range(updates):
        report, weights = learner.update(version, 0, made(setup, version, lag))
    return learner, report, weights
