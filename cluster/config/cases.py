"""Cases: the other environments and wordings in which a trained language policy is tested.

    the run's configuration ── overrides of a case ──> the same run, in another environment or with other words

Carta et al. 2023 (arXiv 2302.02662), sections 5.2 and 5.3: other nouns, colours and invented words, other names for the
actions, French, and objects and tasks that were not in training; 5.4 and the appendix: other numbers of actions and of
distractors. `cluster/stages/generalise.py` plays them.
"""

from __future__ import annotations

from dataclasses import dataclass

from learner.models.language.rewording import REWORDINGS

UNCHANGED = "unchanged"
"""The case that the others are compared with; it is always played."""


@dataclass(frozen=True)
class Case:
    """A change of a run's configuration."""

    name: str
    words: tuple[str, ...]  # as `launch.py run` takes them
    about: str  # what differs, for people


_ABOUT = {
    "nouns": "other nouns: chair, table, car",
    "colours": "other colours: vermilion, jade, cyan, ...",
    "invented_nouns": "invented nouns",
    "invented_colours": "invented colours",
    "invented": "invented nouns and colours",
    "wish": "another phrase before the goal: I would like ...",
    "duty": "another phrase before the goal: You have to ...",
    "rotate": "other action names: rotate, move, take, ...",
    "shift": "other action names: shift, go ahead, take, ...",
    "french_actions": "French action names",
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
        Case("held_out_pairs", ("env.id=babyai/MixedTestLocal",), "colour and noun pairs that training never named"),
        Case("new_composition", ("env.id=babyai/PickUpSeqPickUpLocal",), "pick up, then pick up"),
        Case("fewer_actions", ("env.actions=3", "env.idle_actions=[]"), "only turns and steps: for tasks of going"),
        Case(
            "more_actions",
            ("env.actions=6", "env.idle_actions=[sleep,do nothing,think]"),
            "three extra actions that do nothing",
        ),
    )
}
"""All, by name, in the order of the report."""
