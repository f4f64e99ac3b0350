"""Replies of the scripted backend: one method per task, from the environment's rules and random numbers.

A reply has the form that the task's parser reads, unless it is drawn to be `malformed`. Each method documents the other
errors.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from llm_service.backends.scripted import wording
from llm_service.backends.scripted.chance import Chance
from llm_service.backends.scripted.sense import Choice, Sense, Situation, Verdict, bare
from llm_service.patterns import Pattern
from llm_service.records import Call
from llm_service.world import World

MALFORMED = "Let me think about that for a while and come back to you later"
SUGGESTED = ("senseless", "early", "done", "vague")
"""Kinds of mistaken goals."""
ANSWERED = ("wrong", "early", "senseless")
"""Kinds of mistaken captions and potentials."""
MOST_NAMED = 4
"""Things that a caption names."""
_SENTENCE_END = re.compile(r"[\n;|]+|[.!?]\s")
_WORD = re.compile(r"[^\W_]+")
_SMALL = frozenset(
    _WORD.findall("a an the is are am was were be do does did you your it its there of in on at to and or any")
)
_REACHED = frozenset(("already", "reached", "done", "achieved", "completed", "finished"))


class Script:
    """Answers in one environment."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sense = Sense(world)
        self.known = self._sense.known
        self._corpus = [(sentence, frozenset(_WORD.findall(sentence.lower()))) for sentence in world.corpus]
        self._vocabulary = frozenset().union(*(words for _, words in self._corpus))
        self._things = self._numbers(goal.goal for goal in world.goals)
        self._obstacles = self._numbers(event.seen for event in world.progress if event.worth < 0)
        self._say: dict[str, Callable[[Mapping[str, Any], Chance], str]] = {
            "suggest_goals": self._suggest_goals,
            "label_preference": self._label_preference,
            "caption_trajectory": self._caption_trajectory,
            "judge_trajectory": self._judge_trajectory,
            "write_potential": self._write_potential,
        }

    def reply(self, call: Call, chance: Chance) -> str:
        """Text for a `generate` call; for an unknown task, a matching sentence of the corpus."""
        say = self._say.get(call.task)
        if say is None:
            return self._continuation(call.turns[-1][1] if call.turns else "", chance)
        return MALFORMED if chance.malformed() else say(call.inputs, chance)

    def score(self, call: Call, chance: Chance) -> list[float]:
        """Log-probability of each candidate."""
        if call.task == "yes_no":
            return self._yes_no(call.inputs, chance)
        return self._likely(call, chance)

    # ---- generate ------------------------------------------------------------------------------------------------

    def _suggest_goals(self, inputs: Mapping[str, Any], chance: Chance) -> str:
        """The best goals that it knows, one per line; each line may be senseless, early, done or vague."""
        situation = Situation(inputs["observation"], inputs["inventory"], inputs["achieved"])
        given: list[str] = inputs["candidates"]
        if given:
            choices = [self._choice(text, situation) for text in given]
            choices.sort(key=lambda choice: -choice.worth)
        else:
            choices = self._sense.goals(situation)
        goals = [choice.text for choice in choices if choice.verdict is Verdict.SENSIBLE][: inputs["limit"]]
        for i, goal in enumerate(goals):
            kind = chance.mistake(f"goal {i}", SUGGESTED)
            if given:
                false = [choice.text for choice in choices if kind and _KINDS.get(choice.verdict) == kind]
                goals[i] = chance.pick(false) if false else goal
            elif kind == "vague":
                goals[i] = self._sense.reworded(goal, chance.pick)
            elif kind:
                goals[i] = self._mistaken(kind, situation, chance) or goal
        return "\n".join(f"- {goal}" for goal in goals or ["nothing"])

    def _choice(self, text: str, situation: Situation) -> Choice:
        """A given goal; all are equally good in an environment that publishes none."""
        if not self._sense.known:
            return Choice(text, Verdict.SENSIBLE, 1.0)
        return Choice(text, self._sense.verdict(text, situation), self._sense.worth(text))

    def _mistaken(self, kind: str, situation: Situation, chance: Chance) -> str | None:
        if kind == "senseless":
            return self._sense.nonsense(chance.pick)
        false = {"wrong": self._sense.unseen, "early": self._sense.early, "done": self._sense.done}[kind]
        return false(situation, chance.pick)

    def _label_preference(self, inputs: Mapping[str, Any], chance: Chance) -> str:
        """The more sensible one, or the one that meets the criteria. Wrong: the other; senseless: unsure."""
        wanted = [goal for text in inputs.get("criteria", []) for goal in self._sense.named(text)]
        merits = []
        for lines in (inputs["first"], inputs["second"]):
            merit, done = self._sense.sensible(lines), sum(self._sense.shown(goal, lines) for goal in wanted)
            merits.append(None if merit is None and not done else (merit or 0.0) + 2.0 * done)
        if merits == [None, None]:
            return "Neither shows anything that matters here.\nverdict: unsure"
        first, second = (merit or 0.0 for merit in merits)
        verdict = "tie" if math.isclose(first, second, abs_tol=1e-6) else "first" if first > second else "second"
        kind = chance.mistake("verdict", ("wrong", "senseless"))
        if kind == "wrong":
            verdict = "second" if verdict == "first" else "first"
        elif kind == "senseless":
            verdict = "unsure"
        return f"The first is worth {first:.1f} to me and the second {second:.1f}.\nverdict: {verdict}"

    def _caption_trajectory(self, inputs: Mapping[str, Any], chance: Chance) -> str:
        """What was reached. Wrong: something else; early: one thing that was not; senseless: no goal at all.

        Of many things, it names the last and some earlier ones, in the order that it is asked for. If it is asked to,
        it uses other words for them, and says where the player turned.
        """
        observations: list[list[str]] = inputs["observations"]
        goals = [names[0] for names in self._sense.reached(observations)]
        while len(goals) > MOST_NAMED:
            goals.remove(chance.pick(goals[:-1]))
        end = Situation(observations[-1])
        kind = chance.mistake("caption", ANSWERED)
        if kind and (false := self._mistaken(kind, end, chance)):
            goals = [*goals[:-1], false]
        if not goals:
            goals = [choice.text for choice in self._sense.goals(end) if choice.verdict is Verdict.SENSIBLE][-1:]
            goals = [f"look for a way to {goal}" for goal in goals] or ["look around"]
        elif inputs["directions"]:
            at = [self._reached_at(goal, observations) for goal in goals]
            turns = wording.turns(at, inputs["actions"])
            goals = [f"{turn} and {goal}" if turn else goal for turn, goal in zip(turns, goals, strict=True)]
        if inputs["synonyms"]:
            goals = [wording.in_other_words(goal, self._world.other_names, chance) for goal in goals]
        return f"caption: {wording.caption(goals, inputs['order'], inputs['style'], chance)}"

    def _reached_at(self, goal: str, observations: list[list[str]]) -> int:
        """Number of the first observation that shows a goal that the one before did not; 0 if there is none."""
        shown = [self._sense.shown(goal, seen) for seen in observations]
        return next((i for i in range(1, len(shown)) if shown[i] and not shown[i - 1]), 0)

    def _judge_trajectory(self, inputs: Mapping[str, Any], chance: Chance) -> str:
        """Points for the progress on each goal of the instruction. Wrong: reversed; senseless: random points."""
        observations: list[list[str]] = inputs["observations"]
        wanted = self._sense.named(inputs["instruction"])
        reached = {name for names in self._sense.reached(observations) for name in names}
        shares = [1.0 if goal in reached else 0.6 * self._approached(goal, observations) for goal in wanted]
        share = sum(shares) / len(shares) if shares else 0.5
        kind = chance.mistake("judgement", ("wrong", "senseless"))
        share = {"wrong": 1 - share, "senseless": chance.share("any points")}.get(kind, share)
        points = {}
        for name in inputs["rubric"]:
            points[name] = max(0, min(10, round(10 * share + 2 * chance.share(f"points {name}") - 1)))
        reason = f"{len(reached & set(wanted))} of {len(wanted)} things that were asked for were reached."
        return json.dumps({"scores": points, "overall": round(10 * share), "reason": reason})

    def _approached(self, goal: str, observations: Sequence[Sequence[str]]) -> float:
        """1: could have been done at some time; a half: lacked something; 0: never in view."""
        best = min(self._sense.verdict(goal, Situation(seen)) for seen in observations)
        return {Verdict.SENSIBLE: 1.0, Verdict.EARLY: 0.5}.get(best, 0.0)

    def _write_potential(self, inputs: Mapping[str, Any], chance: Chance) -> str:
        """Hand-written rules that fit any task, the more of them the better; no language model wrote any.

        The view is like BabyAI's: the player in the middle of the last row, looking ahead. Good: seeing things that
        goals name, the closer the better, and best of all holding them; new observations; facing such a thing. Bad:
        actions without effect; facing an obstacle such as a wall. If numbers have no such names, only effects and new
        observations count. A variant has the first one, two or three of these rules, and one more if the evidence has
        equal values or faults.

        Wrong: the sign is reversed; early: uses the oldest view, not the present one; senseless: always zero.
        """
        kind = chance.mistake("potential", ANSWERED)
        if kind == "senseless":
            return _fenced("return 0.0")
        values = [piece["value"] for piece in inputs["evidence"]]
        distinct = len({value for value in values if not isinstance(value, str)})
        rules = self._rules("observations[0]" if kind == "early" else "observations[-1]")
        lines, terms = zip(*rules[: 1 + inputs["variant"] % 3 + (distinct < len(values))], strict=True)
        return _fenced(*lines, f"return {'-' if kind == 'wrong' else ''}({' + '.join(terms)})")

    def _rules(self, view: str) -> list[tuple[str, str]]:
        """Lines of a program, each with its term of the value."""
        acts = "zip(observations, observations[1:], actions)"
        effect = (
            f"idle = sum(1 for before, now, action in {acts} if action >= 0 and before == now)",
            "-0.5 * idle / len(actions)",
        )
        new = (
            "new = sum(1 for i in range(1, len(observations)) if observations[i] not in observations[:i])",
            "0.4 * new / len(actions)",
        )
        if not self._things:
            return [effect, new]
        things = f"for x, column in enumerate({view}) for y, cell in enumerate(column) if cell[0] in {self._things}"
        steps = f"(abs(x - len({view}) // 2) + len(column) - 1 - y)"
        return [
            (f"near = max((1 - {steps} / (len({view}) + len(column)) {things}), default=0)", "0.4 * near"),
            new,
            effect,
            (
                f"ahead = {view}[len({view}) // 2][-2][0]",
                f"0.2 * (ahead in {self._things}) - 0.2 * (ahead in {self._obstacles})",
            ),
        ]

    def _numbers(self, patterns: Iterable[str]) -> tuple[int, ...]:
        """The things in the symbols' first channel, such as BabyAI's objects, that these patterns name."""
        forms = [Pattern(text, self._world.slots) for text in patterns]
        said = ". ".join(
            text for form in forms for text in (form.text, *(w for s in form.slots for w in form.words(s)))
        )
        names = next(iter(self._world.symbols.values()), {})
        return tuple(number for name, number in names.items() if Pattern(name, {}).in_text(said))

    def _continuation(self, prompt: str, chance: Chance) -> str:
        """The sentence of the corpus that shares the most words with the prompt."""
        said = set(_WORD.findall(prompt.lower()))
        most = max((len(words & said) / len(words | said) for _, words in self._corpus), default=0.0)
        best = [sentence for sentence, words in self._corpus if len(words & said) / len(words | said) >= most]
        return chance.pick(best) if best else "I do not know."

    # ---- score ---------------------------------------------------------------------------------------------------

    def _yes_no(self, inputs: Mapping[str, Any], chance: Chance) -> list[float]:
        """An answer from facts, goals and context. It is calibrated as long as `wrong` is at most 0.5 and it believes
        the facts."""
        question: str = inputs["question"]
        fact = self._sense.fact(question)
        answer = self._known(question, inputs["context"]) if fact is None else fact
        if answer is None:
            return [math.log(0.5)] * 2
        rate = self._rate_of_error(chance)
        errs = chance.share("wrong") < rate or (
            fact is not None and chance.misbelieves(question, fact, self._sense.world.dissent.get(question, 0.0))
        )
        says_yes = answer != errs
        sure = min(max(rate, 1 - rate), 1 - 1e-6)
        yes = sure if says_yes else 1 - sure
        return [math.log(yes), math.log1p(-yes)]

    def _rate_of_error(self, chance: Chance) -> float:
        """The error rate of this question: rates differ, and their mean is the rate `wrong`."""
        wrong = chance.rates["wrong"]
        spread = min(wrong, 1 - wrong, abs(0.5 - wrong))
        return wrong + spread * (2 * chance.share("doubt") - 1)

    def _known(self, question: str, context: Sequence[str]) -> bool | None:
        goals = self._sense.named(question)
        words = _words(question)
        if goals and _REACHED & set(words):
            return all(self._sense.shown(goal, context) for goal in goals)
        if goals:
            return all(self._sense.verdict(goal, Situation(context)) is Verdict.SENSIBLE for goal in goals)
        wanted = {word for word in words if word not in _SMALL}
        if not context or not wanted & self._vocabulary:
            return None
        return any(wanted <= set(_words(sentence)) for sentence in context)

    def _likely(self, call: Call, chance: Chance) -> list[float]:
        """Scores from the prompt's words and the goals that make sense after it. Wrong: reversed."""
        prompt = " \n".join(text for _, text in call.turns)
        sentences = [piece.strip() for piece in _SENTENCE_END.split(prompt) if piece.strip()]
        goals = [c for c in self._sense.goals(Situation(sentences)) if c.verdict is Verdict.SENSIBLE]
        said = set(_words(prompt))
        sign = -1.0 if chance.mistake("candidates", ("wrong",)) else 1.0
        heights = []
        for candidate in call.candidates:
            words = set(_words(candidate))
            fits = (3.0 * goal.worth * _likeness(words, set(_words(goal.text))) for goal in goals)
            height = max(fits, default=0.0) + len(words & said) / max(1, len(words))
            heights.append(sign * height + 0.2 * chance.share(f"noise {candidate}"))
        total = math.log(sum(map(math.exp, heights)) or 1.0)
        cost = 0.05  # per token: longer texts are less likely
        return [h - total - cost * len(c) / 4 for h, c in zip(heights, call.candidates, strict=True)]


_KINDS = {
    Verdict.UNSEEN: "early",
    Verdict.EARLY: "early",
    Verdict.DONE: "done",
    Verdict.UNKNOWN: "senseless",
}


def _words(text: str) -> list[str]:
    return _WORD.findall(bare(text).lower())


def _likeness(one: set[str], other: set[str]) -> float:
    return len(one & other) / max(1, len(one | other))


def _fenced(*body: str) -> str:
    lines = "\n".join(f"    {line}" for line in body)
    return f"Here is what fits any task:\n```python\ndef potential(observations, actions):\n{lines}\n```"
