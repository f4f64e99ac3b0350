"""Cases: what a trained language policy is tried in beside the world and the words that it was trained in.

    the run's configuration ── words of a case ──> the same run, elsewhere or told otherwise

Carta et al. 2023 (arXiv 2302.02662), sections 5.2 and 5.3: other nouns, colours and invented words, other names of the
actions, French, objects and tasks that training did not have; 5.4 and the appendix: other numbers of actions and of
distractors. `cluster/stages/generalise.py` plays them.
"""

from __future__ import annotations

from dataclasses import dataclass

from learner.models.language.rewording import REWORDINGS

UNCHANGED = "unchanged"
"""The case that others are compared with; it is always played."""


@dataclass(frozen=True)
class Case:
    """A change of a run's configuration."""

    name: str
    words: tuple[str, ...]  # as `launch.py run` takes them
    about: str  # what is other, for people


_ABOUT = {
    "nouns": "other nouns: chair, table, car",
    "colours": "other colours: vermilion, jade, cyan, ...",
    "invented_nouns": "invented nouns",
    "invented_colours": "invented colours",
    "invented": "invented nouns and colours",
    "wish": "another heading over the goal: I would like ...",
    "duty": "another heading over the goal: You have to ...",
    "rotate": "other names of actions: rotate, move, take, ...",
    "shift": "other names of actions: shift, go ahead, take, ...",
    "french_actions": "French names of actions",
}
_FRENCH = ("env.language=fr", "policy.prompt.language=fr", "policy.prompt.synonyms=0")  # synonyms are English

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        Case(UNCHANGED, (), "as trained"),
        *(
            Case(name, (f"policy.prompt.reword={name}",), _ABOUT.get(name, name))
            for name in REWORDINGS
            if name != "none"
        ),
        Case("french", _FRENCH, "all in French"),
        Case("go_to_french", ("env.id=babyai/GoToFrench", *_FRENCH), "go to, in French"),
        Case("go_to", ("env.id=babyai/GoToLocal",), "go to, one room"),
        Case("distractors", ("env.id=babyai/GoToLocalS8N16",), "go to, 16 distractors"),
        Case("rooms", ("env.id=babyai/GoToOpen",), "go to, nine rooms"),
        Case("held_out_pairs", ("env.id=babyai/MixedTestLocal",), "colours of nouns that training never named"),
        Case("new_composition", ("env.id=babyai/PickUpSeqPickUpLocal",), "pick up, then pick up"),
        Case("fewer_actions", ("env.actions=3", "env.idle_actions=[]"), "turns and steps alone: for tasks of going"),
        Case(
            "more_actions",
            ("env.actions=6", "env.idle_actions=[sleep,do nothing,think]"),
            "three actions more, which do nothing",
        ),
    )
}
"""All, by name, in the order of the report."""
