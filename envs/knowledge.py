"""What a world publishes of itself for language models: plain data that can be written as JSON.

    envs.knowledge("babyai")  ->  {"name": "babyai", "about": "...", "actions": [...], "goals": [...], ...}

A pattern is a text with slots, such as "go to the {colour} {thing}"; a slot stands for one of its words, and for the
same word wherever it is named again. A pattern is found in a sentence that holds it, in whole words and any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from envs.registry import family, resolve


class Goal(TypedDict):
    """Something that a player could set out to do."""

    goal: str  # pattern: what it is called
    seen: NotRequired[list[str]]  # patterns of which all stand in the observation, or the goal makes no sense here
    needs: NotRequired[list[str]]  # patterns of which all stand in the observation or inventory, or it is too early
    unless: NotRequired[list[str]]  # patterns of which none stands there, or it is reached, or impossible now
    premise: NotRequired[str]  # pattern of a yes/no question that no situation changes, on which it depends
    wanted: NotRequired[bool]  # the answer that makes it a goal; yes if not said
    worth: NotRequired[float]  # beside other goals, in (0, 1]; 1 if not said


class Ending(TypedDict):
    """What is no goal any more in an episode in which another one was reached."""

    reached: str  # pattern of the goal that was reached
    ends: list[str]  # patterns of the goals that end, with the same words in their slots; their slots are those of it


class Progress(TypedDict):
    """An event that makes behaviour better, or worse."""

    seen: str  # pattern in a caption or event
    worth: float  # how much better; negative: worse


class Knowledge(TypedDict):
    """A world as a language model may know it. What is missing is empty."""

    name: str  # the family
    about: str  # a few sentences for a prompt
    actions: list[str]  # their names
    slots: NotRequired[dict[str, list[str]]]  # words by slot
    goals: NotRequired[list[Goal]]
    endings: NotRequired[list[Ending]]
    synonyms: NotRequired[list[list[str]]]  # names of one event each, first the one that goals have
    progress: NotRequired[list[Progress]]
    facts: NotRequired[dict[str, bool]]  # yes/no questions, as patterns; the first that is found in a question counts
    dissent: NotRequired[dict[str, float]]  # of yes/no questions in full: the share of people who say otherwise
    symbols: NotRequired[dict[str, dict[str, int]]]  # numbers in symbolic observations, by channel in its order
    views: NotRequired[dict[str, str]]  # what a field of whole numbers is, in words, by its name
    plan: NotRequired[list[str]]  # lines about where everything is, for prompts about whole behaviours
    other_names: NotRequired[dict[str, list[str]]]  # everyday words for its things, by the word in slots
    corpus: NotRequired[list[str]]  # captions, missions, names of actions: samples, distinct, in a fixed order


def knowledge(name: str, options: Mapping[str, Any] | None = None) -> Knowledge:
    """What a family publishes, or of one world of it if `name` is an id.

    options: of its family; None: the defaults.

    Raises:
        UnknownEnv: there is no such family or id.
        ValueError: one sentence: the options name what cannot be read.
    """
    module, world = resolve(name) if "/" in name else (family(name), "")
    if options is not None and hasattr(module, "knowledge_with"):
        changed: Knowledge = module.knowledge_with(world, module.Config(**options))
        return changed
    result: Knowledge = module.knowledge(world)
    return result


@dataclass(frozen=True, eq=False)
class Labels:
    """What people say of questions about a world, for whoever judges the answers of a language model: no prompt has it.

    Attributes:
        source: who was asked.
        questions: Q of them, each once: premises of the world's goals.
        answers: bool [Q], what people say.
        groups: by what agreement is told, such as "room": a word for each question.
        about: the group of what questions stand for, such as "object": questions about one are no independent ones.
        held_out: words of that group that a published split has for tests; empty: there is no such split.
        rules: answers that need no model, bool [Q] by name, to be better than.
    """

    source: str
    questions: tuple[str, ...]
    answers: NDArray[np.bool_]
    groups: dict[str, NDArray[np.str_]]
    about: str
    held_out: frozenset[str] = frozenset()
    rules: dict[str, NDArray[np.bool_]] = field(default_factory=dict)


def labels(env_id: str, options: Mapping[str, Any]) -> Labels:
    """What people say of the questions of a world, with these options of its family.

    Raises:
        UnknownEnv: there is no such world.
        ValueError: one sentence: nobody has answered questions about it, or what they said cannot be read.
    """
    module, name = resolve(env_id)
    if not hasattr(module, "labels"):
        raise ValueError(f"there are no answers of people to questions about {env_id}; housekeep has some")
    result: Labels = module.labels(name, module.Config(**options))
    return result
