"""What a world publishes of itself for language models: plain data that can be written as JSON.

    envs.knowledge("babyai")  ->  {"name": "babyai", "about": "...", "actions": [...], "goals": [...], ...}

A pattern is a text with slots, such as "go to the {colour} {thing}"; a slot stands for one of its words, and for the
same word wherever it is named again. A pattern is found in a sentence that holds it, in whole words and any case.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

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
    synonyms: NotRequired[list[list[str]]]  # names of one deed each, first the one that goals have
    progress: NotRequired[list[Progress]]
    facts: NotRequired[dict[str, bool]]  # yes/no questions, as patterns; the first that is found in a question counts
    symbols: NotRequired[dict[str, dict[str, int]]]  # numbers in symbolic observations, by channel in its order
    views: NotRequired[dict[str, str]]  # what a field of whole numbers is, in words, by its name
    corpus: NotRequired[list[str]]  # captions, missions, names of actions: samples, distinct, in a fixed order


def knowledge(name: str) -> Knowledge:
    """What a family publishes, or of one world of it if `name` is an id.

    Raises:
        UnknownEnv: there is no such family or id.
    """
    module, world = resolve(name) if "/" in name else (family(name), "")
    result: Knowledge = module.knowledge(world)
    return result
