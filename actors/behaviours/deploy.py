"""Robots that act by a sequence model, thousands at a time: each prompt in several trials.

    texts ── once each ──> Cache ── shared by trials ────┐
    house: sensor readings ──────────────────────────────┴──> actions, each held for `stride` steps ──> house, ...

Keys and values of earlier tokens are cached, so an action costs only its own tokens. Robots are processed in batches
that fit in memory. Trial r of a prompt uses the random numbers of (seed, noise of the prompt, r), so its batch does not
matter, except for the last bits of matrix products. Where these decide on which side of a corner a robot passes, only
equal batches give equal runs.

The bottleneck is reading keys and values, and the weights of some million parameters for each batch of robots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from actors.behaviours.ride import Decide, Moment, Sense, ride, rounded
from envs.navigation import SENSORS, Map
from envs.navigation.odometry import felt
from learner.models.sequence.behaviour_transformer import BehaviourModel
from learner.models.sequence.choice import Choice
from llm_service.errors import UsageError


@torch.no_grad()
def deploy(
    model: BehaviourModel,
    house: Map,
    tokens: Sequence[NDArray[np.integer[Any]]],
    target: NDArray[np.float32],
    start: NDArray[np.float32],
    trials: int = 1,
    length: int = 400,
    *,
    stride: int,
    strategy: Literal["sample", "argmax", "nucleus"] = "sample",
    temperature: float = 1.0,
    mass: float = 0.95,
    guidance: float = 1.0,
    seed: int = 0,
    noise: Sequence[int] | None = None,
    memory_gb: float = 1.0,
    sense: Sense | None = None,
) -> dict[str, NDArray[np.float32]]:
    """Let robots follow instructions.

    Args:
        model: the fitted model; it is switched to inference mode.
        tokens: token ids of P texts.
        target: [P, 2], where each should end, world units; nan: it is not told.
        start: [P, 3], x, y in world units and heading in radians.
        trials: R, of each prompt.
        length: steps of an episode.
        stride: steps for which an action is held, as when the model was fitted.
        strategy, temperature, mass, guidance: how clusters are sampled, see `Choice`.
        seed: seed of sampling. `argmax` samples nothing.
        noise: a number for each prompt, not negative. Prompts of one number draw the same random numbers, so that their
            episodes differ only by what they are asked. None: its own number for each.
        sense: how robots know their place, if the model was fitted with odometry.
        memory_gb: memory limit of keys and values; at least one prompt's trials are processed together.

    Returns:
        `pose` float32 [P, R, length, 3] after each step; `action` float32 [P, R, length, 2], as executed.

    Raises:
        UsageError: the prompts contradict each other or the model; an option is invalid; an action is not finite.
        ValueError: a robot would start in a wall.
    """
    _check(model, tokens, target, start, trials, length, stride)
    if noise is not None and (len(noise) != len(tokens) or min(noise, default=0) < 0):
        raise UsageError(f"noise is a number from 0 for each of {len(tokens)} texts: got {list(noise)[:8]}")
    choice = Choice(strategy, temperature, mass, guidance)
    if (sense is None) != (len(model.sensor_scale) == SENSORS):
        raise UsageError(f"the model was fitted to {len(model.sensor_scale)} sensor values: {SENSORS} without odometry")
    if memory_gb <= 0:
        raise UsageError(f"memory_gb must be above 0: got {memory_gb}")
    alike = trials if strategy == "argmax" else 1  # trials without sampling are equal: they are played once
    trials //= alike
    steps = -(-length // stride)
    config, lengths = model.config, [len(text) for text in tokens]
    columns = max(lengths, default=0) + steps * model.tokens_per_step
    bytes_each = (4 if choice.guided else 2) * config.layers * config.width * columns * (2 if model.in_half else 4)
    at_once = max(1, int(memory_gb * 1e9 / bytes_each / trials))  # prompts
    pose = np.empty((len(tokens), trials, length, 3), np.float32)
    action = np.empty((len(tokens), trials, length, 2), np.float32)
    streams = range(len(tokens)) if noise is None else noise
    order = np.argsort(lengths, kind="stable")  # prompts of a batch have about the same length, so no memory is wasted
    with model.arithmetic():  # around everything, so that weights are converted once
        for begin in range(0, len(tokens), at_once):
            own = order[begin : begin + at_once]
            uniform = [
                np.random.default_rng([seed, streams[p], r]).random((steps, 2)) for p in own for r in range(trials)
            ]
            texts = [tokens[p] for p in own]
            targets, starts = np.repeat(target[own], trials, 0), np.repeat(start[own], trials, 0)
            decide = pilot(model, texts, targets, stride, choice, np.stack(uniform), sense is not None)
            driven = ride(house, starts, length, stride, sense or Sense(), decide)
            for found, all_of_them in zip(driven, (pose, action), strict=True):
                all_of_them[own] = found.reshape(len(own), trials, length, -1)
    if alike > 1:
        pose, action = np.repeat(pose, alike, 1), np.repeat(action, alike, 1)
    return {"pose": pose, "action": action}


def pilot(
    model: BehaviourModel,
    texts: Sequence[NDArray[np.integer[Any]]],
    target: NDArray[np.float32],
    stride: int,
    choice: Choice,
    uniform: NDArray[np.float64],
    odometry: bool,
) -> Decide:
    """A model as the one who decides for B robots, as many of each text, from their first action on.

    Args:
        model: it is switched to inference mode.
        texts: token ids.
        target: [B, 2], world units; nan: not given.
        stride: steps for which an action is held.
        uniform: numbers in [0, 1) by which actions are drawn, [B, actions, 2].
        odometry: whether the model senses its place.
    """
    model.eval()
    actions, robots, texts = uniform.shape[1], len(target), list(texts)
    rows = torch.arange(len(texts)).repeat_interleave(robots // len(texts))
    if choice.guided:  # every robot once more, with a text that says nothing
        texts, rows = [*texts, *(text[[0, -1]] for text in texts)], torch.cat([rows, rows + len(texts)])
    cache = model.begin(texts)
    cache.spread(rows, actions * model.tokens_per_step)
    code = model.target_code(np.tile(target, (len(rows) // robots, 1)))
    guide = None if "target" in model.config.blind_to else target
    done: NDArray[np.float32] | None = None

    def decide(now: Moment) -> NDArray[np.float32]:
        nonlocal done
        known = np.concatenate([now.sensed, felt(now.believed, guide)], 1) if odometry else now.sensed
        number = now.step // stride
        seen = np.tile(known, (len(rows) // robots, 1))
        before = None if done is None else np.tile(done, (len(rows) // robots, 1))
        wish = model.act(cache, number, code, seen, before, choice, uniform[:, number])
        if not np.isfinite(wish).all():
            raise UsageError(f"the model's action at step {now.step} is not a number: its weights are damaged")
        done = rounded(wish, stride)
        return done

    return decide


def _check(
    model: BehaviourModel,
    tokens: Sequence[NDArray[np.integer[Any]]],
    target: NDArray[np.float32],
    start: NDArray[np.float32],
    trials: int,
    length: int,
    stride: int,
) -> None:
    """Raise UsageError unless the model supports these prompts and options."""
    prompts = len(tokens)
    if target.shape != (prompts, 2) or start.shape != (prompts, 3):
        raise UsageError(
            f"each of {prompts} texts needs a target [2] and a start [3]: there are {list(target.shape)} and "
            f"{list(start.shape)}"
        )
    if min(trials, length, stride) < 1:
        raise UsageError(f"trials, length and stride must be at least 1: got {trials}, {length} and {stride}")
    senseless = ~(np.isfinite(target).all(1) | np.isnan(target).all(1))
    if senseless.any():
        raise UsageError(f"the target of prompt {senseless.argmax()} is not a place")
    most, steps = model.longest
    for prompt, text in enumerate(tokens):
        if not 0 < len(text) <= most:
            raise UsageError(f"the text of prompt {prompt} has {len(text)} tokens: the model reads 1 to {most}")
        if text.min() < 0 or text.max() >= model.vocabulary:
            raise UsageError(f"the text of prompt {prompt} contains a token that is not in 0 to {model.vocabulary - 1}")
    if -(-length // stride) > steps:
        raise UsageError(f"{length} steps with a stride of {stride} are more than the {steps} actions the model knows")
