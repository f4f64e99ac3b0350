"""What makes sense in an environment, by rules over sentences: what the model knows of its goals (`manual.py`), and the
environment's description.

Sense(world).goals(observation, inventory, achieved)   goals with something in view, each with a verdict
Sense(world).verdict("open the red door", ...)         SENSIBLE, EARLY (prerequisite missing), DONE, UNSEEN, UNKNOWN
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import IntEnum
from itertools import islice, pairwise, product
from typing import NamedTuple

from llm_service.backends.scripted.manual import Known, known
from llm_service.patterns import Binding, Pattern, joined
from llm_service.tasks.label_preference import CHOSEN
from llm_service.world import World

MAX_FREE = 64  # words tried for one goal's slots that nothing in view binds
_PARTS = re.compile(r"[.,]\s+")
_STEPS = re.compile(r"(\d+) steps?\b")
NEAR, IDLE, NEW = 0.3, -0.2, 0.5
"""Value of a goal's object one step away; value of an action that changes nothing; value if every action led to a new
observation."""
_ARTICLE = re.compile(r"\b(?:an?|the)\s+", re.IGNORECASE)


class Verdict(IntEnum):
    """Verdict on a goal in the current situation; smaller is better."""

    SENSIBLE = 0
    EARLY = 1  # right goal, wrong time: a prerequisite is not met
    DONE = 2  # reached already, or impossible now
    UNSEEN = 3  # a goal of this environment, but nothing of it is in view
    UNKNOWN = 4  # not a goal of this environment


class Choice(NamedTuple):
    """A goal that a player could pursue."""

    text: str  # if it is EARLY, unbound slots may stay open
    verdict: Verdict
    worth: float


class Situation(NamedTuple):
    """What a player knows when it selects a goal."""

    observation: Sequence[str]
    inventory: Sequence[str] = ()
    achieved: Sequence[str] = ()  # goals

    @property
    def sentences(self) -> list[str]:
        return [*self.observation, *self.inventory]


class _Form:
    """One kind of goal, its patterns compiled."""

    def __init__(self, world: World, goal: Known) -> None:
        self.worth = goal.worth
        self.name = Pattern(goal.goal, world.slots)
        self.bare = Pattern(bare(goal.goal), world.slots)
        self.seen, self.needs, self.unless, self.signs, self.said = (
            [Pattern(text, world.slots) for text in texts]
            for texts in (goal.seen, goal.needs, goal.unless, goal.pointless_without, goal.said)
        )
        # Patterns that forbid the goal and name everything in it: they describe the goal when it is reached.
        self.reached = [pattern for pattern in self.unless if set(pattern.slots) >= set(self.name.slots)]

    def part(self, binding: Binding) -> dict[str, str]:
        """The part of a binding for the goal's own slots."""
        return {slot: binding[slot] for slot in self.name.slots if slot in binding}

    def own(self, bindings: Sequence[Binding]) -> Iterator[dict[str, str]]:
        """Bindings of the goal's own slots; an unbound slot takes each of its words."""
        for given in map(self.part, bindings):
            free = [slot for slot in self.name.slots if slot not in given]
            for words in islice(product(*(self.name.words(slot) for slot in free)), MAX_FREE):
                yield given | dict(zip(free, words, strict=True))

    def verdict(self, binding: Binding, situation: Situation) -> Verdict:
        """`binding` has the words of the goal's own slots."""
        sentences = situation.sentences
        name = self.name.fill(binding)
        if any(_alike(name, goal) for goal in situation.achieved):
            return Verdict.DONE
        visible = joined(self.seen, situation.observation, binding)
        if any(joined([pattern], sentences, binding) for pattern in self.unless):
            return Verdict.DONE
        if self.signs and not any(joined([pattern], sentences, binding) for pattern in self.signs):
            return Verdict.DONE
        if not visible:
            return Verdict.UNSEEN
        return Verdict.SENSIBLE if any(joined(self.needs, sentences, one) for one in visible) else Verdict.EARLY


class Sense:
    """The rules of one environment. Raises UsageError if one of its patterns names a slot without words."""

    def __init__(self, world: World) -> None:
        self.world, self.known = world, known(world)
        self._forms = [_Form(world, goal) for goal in self.known]
        self._names = frozenset(bare(name) for names in world.synonyms for name in names)
        # Where all goals begin alike, "go to the ...", the things that follow are enough to name them.
        begins = {bare(goal.goal).partition("{")[0] for goal in self.known if "{" in goal.goal}
        begin = begins.pop() if len(begins) == 1 and all("{" in goal.goal for goal in self.known) else ""
        self._short = [Pattern(bare(goal.goal).removeprefix(begin), world.slots) for goal in self.known]
        self._plain = {other.lower(): name for name, others in world.other_names.items() for other in others}
        longest = sorted(self._plain, key=len, reverse=True)
        self._other = re.compile(rf"\b({'|'.join(map(re.escape, longest))})\b" if longest else "(?!)", re.IGNORECASE)
        self._progress = [(Pattern(event.seen, world.slots), event.worth) for event in world.progress]
        # With its plain words: there are thousands of facts, most of which need no search.
        self._facts = [
            (Pattern(question, world.slots), " ".join(question.lower().split()), answer)
            for question, answer in world.facts.items()
        ]

    # ---- goals ---------------------------------------------------------------------------------------------------

    def goals(self, situation: Situation) -> list[Choice]:
        """Every goal with something in view, the best first."""
        found: dict[str, Choice] = {}
        for form in self._forms:
            for visible in joined(form.seen, situation.observation):
                ready = joined(form.needs, situation.sentences, visible)
                for own in form.own(ready) if ready else [form.part(visible)]:
                    choice = Choice(form.name.fill(own), form.verdict(own, situation), form.worth)
                    if choice.text not in found or choice.verdict < found[choice.text].verdict:
                        found[choice.text] = choice
        return sorted(found.values(), key=lambda choice: (choice.verdict, -choice.worth))

    def verdict(self, text: str, situation: Situation) -> Verdict:
        """The verdict on one goal, whatever its articles and case."""
        bindings = [(form, form.bare.whole(bare(text))) for form in self._forms]
        verdicts = [form.verdict(binding, situation) for form, binding in bindings if binding is not None]
        return min(verdicts, default=Verdict.UNKNOWN)

    def worth(self, text: str) -> float:
        """The rank of a goal among others; 0 if it is not a goal of this environment."""
        return max((form.worth for form in self._forms if form.bare.whole(bare(text)) is not None), default=0.0)

    def named(self, text: str) -> list[str]:
        """Goals that a longer text names, such as the parts of an instruction, by whatever names things have."""
        told = self._other.sub(lambda other: self._plain[other[0].lower()], bare(text))
        forms = zip(self._forms, self._short, strict=True)
        found = [form.name.fill(binding) for form, short in forms for binding in short.find([told])]
        return list(dict.fromkeys(found))

    def reached(self, observations: Sequence[Sequence[str]]) -> list[list[str]]:
        """Goals reached from one observation to the next, in order of time; each with all its names."""
        found: dict[tuple[str, ...], list[str]] = {}
        for before, now in pairwise(observations):
            for form in self._forms:
                for pattern in form.reached:
                    for own in map(form.part, joined([pattern], now)):
                        if not joined([pattern], before, own) and joined(form.seen, before, own):
                            names = found.setdefault((pattern.text, *own.values()), [])
                            names += [] if (name := form.name.fill(own)) in names else [name]
        return list(found.values())

    def shown(self, goal: str, sentences: Sequence[str]) -> bool:
        """Whether a goal looks reached in these sentences."""
        for form in self._forms:
            binding = form.bare.whole(bare(goal))
            if binding is not None and any(joined([pattern], sentences, binding) for pattern in form.reached):
                return True
        return False

    # ---- errors --------------------------------------------------------------------------------------------------

    def filled(self, text: str, pick: Callable[[Sequence[str]], str]) -> str:
        """A goal with a random word in every open slot."""
        pattern = Pattern(text, self.world.slots)
        return pattern.fill({slot: pick(self.world.slots[slot]) for slot in pattern.slots})

    def unseen(self, situation: Situation, pick: Callable[[Sequence[str]], str]) -> str | None:
        """A goal of this environment with nothing in view; None if none is found soon."""
        names = [form.name.text for form in self._forms]
        tries = (self.filled(pick(names), pick) for _ in range(32 if names else 0))
        return next((goal for goal in tries if self.verdict(goal, situation) is Verdict.UNSEEN), None)

    def early(self, situation: Situation, pick: Callable[[Sequence[str]], str]) -> str | None:
        """A goal that lacks something, else one with nothing in view; None if there is none."""
        return self._one_of(Verdict.EARLY, situation, pick) or self.unseen(situation, pick)

    def done(self, situation: Situation, pick: Callable[[Sequence[str]], str]) -> str | None:
        """A goal that is reached already, or pointless now; None if there is none."""
        return self._one_of(Verdict.DONE, situation, pick)

    def _one_of(self, verdict: Verdict, situation: Situation, pick: Callable[[Sequence[str]], str]) -> str | None:
        pool = [choice.text for choice in self.goals(situation) if choice.verdict is verdict]
        return self.filled(pick(pool), pick) if pool else None

    def reworded(self, goal: str, pick: Callable[[Sequence[str]], str]) -> str:
        """A goal in other words."""
        for form in self._forms:
            binding = form.name.whole(goal)
            if binding is not None and form.said:
                return pick([pattern.fill(binding) for pattern in form.said])
        return f"go and {goal}"

    def nonsense(self, pick: Callable[[Sequence[str]], str]) -> str | None:
        """The verb of one goal with the object of another, which is no goal; None if none is found soon."""
        names = [form.name.text for form in self._forms]
        for _ in range(32 if names else 0):
            verb, thing = pick(names).split("{")[0], pick(names)
            thing = thing[thing.find("{") :] if "{" in thing else thing.partition(" ")[2]
            text = self.filled(f"{verb if verb.endswith(' ') else verb.partition(' ')[0] + ' '}{thing}", pick)
            if thing and bare(text) not in self._names and self.verdict(text, Situation(())) is Verdict.UNKNOWN:
                return text
        return None

    # ---- questions and behaviour ---------------------------------------------------------------------------------

    def fact(self, question: str) -> bool | None:
        """The environment's answer to a question; None if it has none."""
        told = self.world.facts.get(question)
        if told is not None:
            return told
        said = " ".join(question.lower().split())
        likely = ((pattern, answer) for pattern, plain, answer in self._facts if pattern.slots or plain in said)
        return next((answer for pattern, answer in likely if pattern.find([question])), None)

    def merit(self, sentences: Collection[str]) -> float | None:
        """Value of a behaviour from the events in its sentences, each counted once; None if there are none."""
        events = [worth for pattern, worth in self._progress for _ in pattern.find(sentences)]
        return sum(events) if events else None

    def sensible(self, lines: Sequence[str]) -> float | None:
        """Value of a segment with its actions between observations: from its events, including actions that changed
        something, from how close a goal's object is at the end, from new observations, and from actions that changed
        nothing. None if there is nothing of these.

        Hand-written rules that know no task; no language model wrote them.
        """
        seen: list[list[str]] = [[]]
        done: list[str] = []
        for line in lines:
            if line.startswith(CHOSEN):
                done.append(line)
                seen.append([])
            else:
                seen[-1] += _PARTS.split(line)
        changed = [before != now for before, now in pairwise(seen)]
        events = [event for event, new in zip(done, changed, strict=True) if new]
        merit = self.merit([part for now in (*seen, events) for part in now])
        about = [pattern for form in self._forms for pattern in form.seen]
        near = [NEAR / _steps(told) for told in seen[-1] if any(pattern.find([told]) for pattern in about)]
        new = sum(now not in seen[:i] for i, now in enumerate(seen) if i)
        if merit is None and all(changed) and not near and not new:
            return None
        return (merit or 0.0) + IDLE * changed.count(False) + max(near, default=0.0) + NEW * new / max(1, len(done))


def _steps(sentence: str) -> int:
    """The distance that a sentence gives, summed over directions; 1 if it gives none."""
    return max(1, sum(map(int, _STEPS.findall(sentence))))


def bare(text: str) -> str:
    """The text without articles."""
    return _ARTICLE.sub("", text)


def _alike(one: str, other: str) -> bool:
    return bare(one).lower().split() == bare(other).lower().split()
