"""Prompts of glam's benchmark: those that a BabyAI agent gets in real play, and random ones of given lengths."""

from __future__ import annotations

import contextlib
import functools
import io
from collections import deque
from collections.abc import Sequence
from typing import Literal

import numpy as np

import envs
from benchmarks.scoring import LONGEST, SHORTEST, Prompt, Question
from envs.babyai import Expert
from learner.models.language.prompt import Prompt as PromptBuilder
from learner.models.language.prompt import PromptConfig, State
from llm_service.embedding import minilm_folder
from llm_service.scoring.tokens import Boundary

ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
LEVEL, ENVS = "babyai/MixedTrainLocal", 32
Agent = Literal["beginner", "planner"]
AGENTS: dict[Agent, tuple[int, float]] = {"beginner": (1, 1.0), "planner": (3, 0.2)}
"""Agent -> observations in its prompts, and its share of random actions."""


@functools.cache
def prompter(observations: int = 1) -> tuple[PromptBuilder, Boundary]:
    """The builder of prompts, with a trained word-piece vocabulary, so that token counts are realistic."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(minilm_folder(), local_files_only=True)
    boundary = Boundary(tokenizer, seq2seq=True)
    return PromptBuilder(PromptConfig(observations=observations), ACTIONS, boundary), boundary


def folded(ids: Prompt, vocabulary: int) -> Prompt:
    """Token ids mapped to a vocabulary that may be smaller, without its first five special tokens."""
    return tuple(5 + token % (vocabulary - 5) for token in ids)


@functools.cache
def candidates(vocabulary: int) -> tuple[Prompt, ...]:
    """Token ids of the actions."""
    return tuple(folded(ids, vocabulary) for ids in prompter()[1].candidates(ACTIONS, ""))


def draw(lengths: Sequence[int], vocabulary: int, seed: int) -> list[Question]:
    """Random prompts of these lengths, shuffled, each with the six actions."""
    generator = np.random.default_rng(seed)
    asked = candidates(vocabulary)
    prompts = [tuple(generator.integers(5, vocabulary, length).tolist()) for length in generator.permutation(lengths)]
    return [(prompt, asked) for prompt in prompts]


def mixed(n: int) -> list[int]:
    """Evenly spread lengths of n prompts."""
    return [int(length) for length in np.linspace(SHORTEST, LONGEST, n)]


@functools.cache
def record(steps: int, agent: Agent) -> list[list[Prompt]]:
    """Prompts of real play: for each step, the prompts of 32 envs."""
    env = envs.make(LEVEL, ENVS, captions=True, actions=len(ACTIONS))
    told_at_once, errors = AGENTS[agent]
    expert, generator, prompt = Expert(), np.random.default_rng(0), prompter(told_at_once)[0]
    length = 2 * (prompt.config.observations - 1)  # the text and the action of each earlier observation
    earlier: list[deque[str]] = [deque(maxlen=length) for _ in range(ENVS)]
    told: list[list[Prompt]] = []
    with contextlib.redirect_stdout(io.StringIO()):  # Minigrid reports every level that it rejects
        obs = env.begin()
        for _ in range(steps):
            goals, seen = env.texts.texts(obs["mission"]), env.texts.texts(obs["caption"])
            states = [State(g, [s], tuple(e)) for g, s, e in zip(goals, seen, earlier, strict=True)]
            told.append([prompt.tokens(state) for state in states])
            errs, actions = generator.random(ENVS) < errors, generator.integers(len(ACTIONS), size=ENVS)
            if not errs.all():
                actions = np.where(errs, actions, expert.act(env))  # type: ignore[arg-type] # it is a BabyAI env
            transition = env.advance(actions)
            for past, text, action in zip(earlier, seen, actions.tolist(), strict=True):
                past.extend((text, ACTIONS[action]))
            for i in transition.final_index.tolist():
                earlier[i].clear()
            obs = transition.obs
    return told


def stream(round_number: int, vocabulary: int, steps: int, width: int, agent: Agent) -> list[list[Question]]:
    """The questions of each step, from `width` envs that change with the round."""
    asked = candidates(vocabulary)
    chosen = [(round_number * width + i) % ENVS for i in range(width)]
    return [[(folded(prompts[i], vocabulary), asked) for i in chosen] for prompts in record(steps, agent)]
