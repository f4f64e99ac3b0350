"""Goals of N envs that are stepped together: given to the policy before a step, rewarded after it.

    situations [N] ──> suggested [N, K] ──> not reached yet in this episode ──> given [N, K]
    events [N], given [N, K] ──> similarity by table ──> reward [N], reached

Everything here is a row number: of a goal, of an event, of a situation. Words are processed once, when they
are new: embedded for the table of similarities, and asked about. A step of N envs is a few gathers on [N, K]; it never
waits for a language model unless `llm.when_away` says so.

Du et al. 2023 (arXiv 2302.06692), section 3.3: the reward is the largest cosine similarity of what was done with a goal
that was given before it was done, if that is above the threshold, otherwise 0. A goal, and an event, is rewarded once
per episode.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import envs
from actors.language import WhenAway
from actors.suggestions.asked import REACHED, Suggestions
from actors.suggestions.premises import Premises, Reachable, rules
from actors.suggestions.ranked import Likeness, Order, first
from actors.suggestions.rows import NONE, Rows, filled, grown, packed, unpacked, wider
from actors.suggestions.vocabulary import Embed, Endings, Vocabulary
from actors.wrappers import Setting
from envs.api import DenseEnv, EnvSpec, Field, Observation, Transition, Wrapper
from envs.text import text_hash
from learner.config import Configuration
from learner.goals import ANSWERED, COLUMN, FIELD, HELD, MISSING, NO_GOAL, GoalsConfig
from llm_service.embedding import embed_one

Config = GoalsConfig
after = ("captioning",)
training_only = False

COUNT_EVERY = 8
"""Steps between two counts of how sensible the suggestions are."""
COUNTS = ("good", "early", "senseless", "paid", "episodes_told", "episodes_paid", "possible", "possible_told")
"""Counts of each goal: steps in which it was given when it made sense, when it was too early, and although it is not a
goal of this environment; rewards; episodes in which it was given, and of these, rewarded; steps in which it made sense,
and of these, was given. Every `COUNT_EVERY`-th step is counted."""

Suggested = Suggestions | Reachable | Likeness


def part(config: Configuration) -> GoalsConfig | None:
    goals = config.method.part(GoalsConfig)
    return None if goals.source in ("none", "task") else goals


def spec(config: GoalsConfig, spec: EnvSpec) -> EnvSpec:
    """The environment with the field `goals`, if the policy is goal-conditioned."""
    if not config.told:
        return spec
    return dataclasses.replace(spec, fields=spec.fields | {FIELD: Field("text", (most(config, spec),))})


def most(config: GoalsConfig, spec: EnvSpec) -> int:
    """Maximum number of goals of an env at a time."""
    if config.source == "actions":
        return len(spec.action_names)
    if config.source == "model":
        return config.most
    given = config.most if config.source == "likeness" else config.limit if config.source == "oracle" else None
    return len(spec.goals) if given is None else min(given, len(spec.goals))


def make(config: GoalsConfig, env: DenseEnv, setting: Setting) -> Goals:
    language, own = setting.language, rules(envs.knowledge(env.env_spec.id))
    if config.source == "any":
        return Goals(config, env, lambda: Reachable(own))
    if config.source == "likeness":
        return Goals(config, env, lambda: Likeness(env.env_spec.goals, most(config, env.env_spec)))
    if not config.asks:
        return Goals(config, env)
    assert language is not None, "the controller starts the service for stages that ask it"
    when_away = "wait" if setting.patient else language.when_away

    def suggestions() -> Suggestions:
        client = language.client(setting.caller, "none")  # `Suggestions` retries by itself
        goals, stop = env.env_spec.goals, when_away == "stop"
        if config.source == "choice" and own:
            return Premises(client, config, goals, stop, own)
        return Suggestions(client, config, goals, stop)

    # Which answer a shuffled one becomes depends on those before it.
    return Goals(config, env, suggestions, when_away, answers=None if config.shuffled else setting.answers)


class Goals(Wrapper):
    """Goals of the running episodes: the field `goals`, the reward column `goal`, `llm_status`, `Episodes.away`.

    Args:
        connect: makes suggestions by situation, for sources that have them; called once, by `begin` or `restore`.
        when_away: what to do while there is no answer.
        answers: by situation, from this and other envs with the same goals. An evaluation comes to states that
            training knows, and would wait for the service at every step.

    Attributes:
        given: int32 [N, K] text ids, for the observation.
        status: uint8 [N], the source of the goals: `ANSWERED`, `HELD`, `MISSING`; 0 if no model is asked.
        away: int32 [N], steps of the running episodes without an answer.
    """

    def __init__(
        self,
        config: GoalsConfig,
        env: DenseEnv,
        connect: Callable[[], Suggested] | None = None,
        when_away: WhenAway = "wait",
        embed: Embed = embed_one,
        answers: dict[str, Sequence[str]] | None = None,
    ) -> None:
        super().__init__(env)
        self._known = {} if answers is None else answers
        self.config, self._connect, self._when_away = config, connect, when_away
        self._suggestions: Suggested | None = None
        spec, n = env.env_spec, env.num_envs
        known = envs.knowledge(spec.id)
        self.words = Vocabulary(known.get("synonyms", ()), embed, Endings(known))
        self._own_goals = np.array([self.words.goal(name) for name in spec.goals], np.int32)  # of the world
        limited = config.source == "oracle" and config.limit is not None
        self._order = Order(config.order, spec.goals, known) if limited else None
        every = spec.action_names if config.source == "actions" else ()
        self._actions = np.array([self.words.goal(name) for name in every], np.int32)
        self.size = most(config, spec)
        width = self._width(len(self._actions))
        self._suggested = np.full((n, width), NONE, np.int32)
        self._offered = self._suggested.copy()  # those that have not been reached
        self._reached = np.zeros((n, 0), np.bool_)  # by meaning
        self._answers = np.full((1, width), NONE, np.int32)  # row 0: not answered
        self._answer_of = np.zeros(0, np.int32)  # by text id of the situation: its row
        self._asked = np.zeros(0, np.bool_)
        self._event_of = np.zeros(0, np.int32)  # by text id of an event: its event + 1, 0: not looked up
        self._text_of = np.zeros(0, np.int32)  # by goal
        self.status = np.zeros(n, np.uint8)
        self.away = np.zeros(n, np.int32)
        self._seconds = 0.0
        self._steps = 0
        self._told_in_episode = np.zeros((n, 0), np.bool_)  # by goal
        self._paid_in_episode = np.zeros((n, 0), np.bool_)
        self._counts = np.zeros((0, len(COUNTS)), np.int64)

    # ---- a step -------------------------------------------------------------------------------------------------

    def begin(self, seeds: NDArray[np.int64] | None = None) -> Observation:
        """Start the next episodes, and ask about their first situations.

        Raises:
            AwayTooLong, BudgetExhausted, UsageError: as in `Suggestions`; also in `advance` and `restore`.
        """
        obs = self.env.begin(seeds)
        self._forget(np.arange(self.num_envs))
        return self._begun(obs)

    def advance(self, actions: NDArray[Any]) -> Transition:
        status = self.status.copy()
        transition = self.env.advance(actions)
        began = time.perf_counter()
        transition.llm_status = status
        self.away += status > ANSWERED
        transition.rewards[COLUMN] = self._pay()
        ended = transition.final_index
        if len(ended):
            if self.config.told:
                transition.final_obs[FIELD] = self._texts(self._left()[ended])
            transition.episodes.away = self.away[ended]
            self._end(ended)
        self._tell()
        transition.obs = self._observed(transition.obs)
        self._seconds += time.perf_counter() - began
        return transition

    def _begun(self, obs: Observation) -> Observation:
        """Get goals in envs that have just begun, or were restored."""
        if self._suggestions is None and self._connect:
            self._suggestions = self._connect()
        self._tell()
        return self._observed(obs)

    def _observed(self, obs: Observation) -> Observation:
        """Add the goals to an observation of all envs, if the policy is goal-conditioned."""
        return obs | {FIELD: self.given} if self.config.told else obs

    def _pay(self) -> NDArray[np.float32]:
        """Reward for what was done [N], and mark it as reached."""
        event, each = self._event_numbers(), np.arange(self.num_envs)
        similarity = self.words.similarity[event[:, None], self._offered]
        hit = similarity > self.config.threshold
        if self.config.novelty:
            hit &= ~self._reached[each, self.words.event_meaning[event]][:, None]
        reward: NDArray[np.float32] = np.where(hit, similarity, np.float32(0)).max(1)
        if self.config.penalties:
            reward += self._penalties(event)
        env, place = np.nonzero(hit)
        paid = self._offered[env, place]
        for number in (self.words.meaning[paid], self.words.ends[paid]):
            self._reached[env, number] = True
        for number in (self.words.event_meaning[event[env]], self.words.event_ends[event[env]]):
            self._reached[env, number] = True
        self._paid_in_episode[env, paid] = True
        np.add.at(self._counts[:, COUNTS.index("paid")], paid[self.env.counted[env]], 1)
        return reward

    def _penalties(self, event: Rows) -> NDArray[np.float32]:
        """The reward for events that were not suggested, whether they were reached before or not, and for failures."""
        suggested = np.where(self._over(), np.int32(NONE), self._suggested)
        alike = self.words.similarity[event[:, None], suggested] > self.config.threshold
        unwanted = (event >= 0) & ~alike.any(1)
        unwanted_costs, failed_costs = (np.float32(self.config.penalties.get(of, 0)) for of in ("unwanted", "failed"))
        taken: NDArray[np.float32] = unwanted * unwanted_costs + self.failed * failed_costs
        return taken

    def _event_numbers(self) -> Rows:
        """What was done in the last step, [N]; `NONE` for nothing of note."""
        events = self.events
        self._event_of = grown(self._event_of, max(1, len(self.texts)))
        for text in np.unique(events[(events >= 0) & (self._event_of[events] == 0)]).tolist():
            self._event_of[text] = 1 + self.words.event(self.texts[text])
        self._make_room()
        found_events: Rows = np.where(events >= 0, self._event_of[events] - 1, NONE)
        return found_events

    def _left(self) -> Rows:
        """The suggested goals [N, K] that still count; the others are `NONE`."""
        gone = self._over()
        if self.config.novelty:
            gone |= self._reached[np.arange(self.num_envs)[:, None], self.words.meaning[self._suggested]]
        return np.where(gone, np.int32(NONE), self._suggested)

    def _over(self) -> NDArray[np.bool_]:
        """Which of the suggested goals are ended by others that were reached, [N, K]."""
        over: NDArray[np.bool_] = self._reached[np.arange(self.num_envs)[:, None], self.words.ended_by[self._suggested]]
        return over

    def _end(self, index: NDArray[np.int32]) -> None:
        """The episodes of these envs are over."""
        counts = self._counts.T
        counted = index[self.env.counted[index]]
        counts[COUNTS.index("episodes_told")] += self._told_in_episode[counted].sum(0)
        counts[COUNTS.index("episodes_paid")] += (self._told_in_episode & self._paid_in_episode)[counted].sum(0)
        self._forget(index)

    def _forget(self, index: NDArray[np.integer[Any]]) -> None:
        """Statistics of the running episodes of these envs."""
        for of_episode in (self._reached, self._told_in_episode, self._paid_in_episode):
            of_episode[index] = False
        self._suggested[index] = NONE
        self.away[index] = 0

    def _tell(self) -> None:
        """Goals for the states that the envs are in now."""
        if self.config.source == "actions":
            self._suggested[:] = self._actions
        elif self.config.source == "oracle":
            self._suggested = self._possible()
        else:
            self._suggest()
        self._make_room()
        self._offered = self._left()
        if self.config.told:
            self.given = self._texts(self._offered)
        env, place = np.nonzero(self._offered >= 0)
        self._told_in_episode[env, self._offered[env, place]] = True
        if self._steps % COUNT_EVERY == 0 and len(self._own_goals):
            self._count()
        self._steps += 1

    def _possible(self) -> Rows:
        """The goals that make sense now, [N, K], the first of them if there are more than K."""
        order = None if self._order is None else self._order.of(self.texts.texts(self.situations()))
        goals = first(self.possible_goals(), self.size, order)
        found = np.where(goals < 0, np.int32(NONE), self._own_goals[goals])
        return filled(found, self._width(goals.shape[1]))

    def _width(self, needed: int) -> int:
        """Columns for this many goals at once. The observation has places for all; other costs depend on the goals in
        use."""
        return self.size if self.config.told else max(1, int(needed))

    # ---- suggestions --------------------------------------------------------------------------------------------

    def _suggest(self) -> None:
        assert self._suggestions is not None, "sources that ask a model get its suggestions"
        situations = self._situations()
        known = len(self.texts)
        self._answer_of, self._asked = grown(self._answer_of, known), grown(self._asked, known)
        # In an evaluation, an env plays on when its episode is over: nobody needs answers there, and they cost money.
        needed = situations[self.env.counted]
        new = np.unique(needed[~self._asked[needed]])
        self._asked[new] = True
        asked = self.texts.texts(new)
        for situation in asked:
            if situation in self._known:
                self._learn(situation, self._known[situation])
        if unknown := [situation for situation in asked if situation not in self._known]:
            self._suggestions.ask(unknown)
        waits = self._when_away in ("wait", "stop") and not self._answer_of[needed].all()
        for situation, goals in (self._suggestions.wait() if waits else self._suggestions.poll()).items():
            self._known[situation] = goals
            self._learn(situation, goals)
        row = self._answer_of[situations]
        self._suggested = filled(self._suggested, self._answers.shape[1])
        held = (row == 0) & (self._when_away == "cached") & (self._suggested >= 0).any(1)
        self._suggested = np.where(held[:, None], self._suggested, self._answers[row])
        self.status[:] = np.where(row > 0, ANSWERED, np.where(held, HELD, MISSING))

    def _situations(self) -> NDArray[np.int32]:
        """Text ids of the running states [N], with what was reached before them if the model is told."""
        situations: NDArray[np.int32] = self.situations()
        if not self.config.told_reached:
            return situations
        self._make_room()
        situations, own = situations.copy(), self._own_goals
        for i, reached in enumerate(self._reached[:, self.words.meaning[own]]):
            if reached.any():
                names = ", ".join(self.words.goals[goal] for goal in own[reached])
                situations[i] = self.texts.intern(f"{self.texts[situations[i]]}{REACHED}{names}")
        return situations

    def _learn(self, situation: str, goals: Sequence[str]) -> None:
        """Process an answer."""
        rows = [self.words.goal(name) for name in goals][: self.size]
        own, width = len(self._answers), max(self._answers.shape[1], self._suggested.shape[1], self._width(len(rows)))
        answer = filled(np.array([rows], np.int32).reshape(1, -1), width)
        self._answers = np.concatenate([filled(self._answers, width), answer])
        # Shuffled: one of the answers so far, including this one; it depends only on the situation's words.
        row = 1 + text_hash(situation) % own if self.config.shuffled else own
        self._answer_of = grown(self._answer_of, len(self.texts))
        self._answer_of[self.texts.intern(situation)] = row

    def _texts(self, goals: Rows) -> Rows:
        """Goals [..., K] as text ids."""
        names = [*self.words.goals, NO_GOAL]
        if len(self._text_of) != len(names):
            self._text_of = np.array([self.texts.intern(name) for name in names], np.int32)
        result: Rows = self._text_of[goals]
        return result

    def _make_room(self) -> None:
        """Columns for new goals and meanings. The last is for no goal, and stays False."""
        meanings, goals = len(self.words.meanings) + 1, len(self.words.meaning)
        self._reached[:, -1:] = False
        self._reached = wider(self._reached, meanings)
        self._told_in_episode, self._paid_in_episode = (
            wider(of_episode, goals) for of_episode in (self._told_in_episode, self._paid_in_episode)
        )
        self._counts = wider(self._counts.T, goals).T

    # ---- statistics ---------------------------------------------------------------------------------------------

    def _count(self) -> None:
        """How sensible the suggestions are now."""
        possible = self.possible_goals()  # [N, world's goals]
        sense = np.zeros((self.num_envs, len(self.words.meanings) + 1), np.bool_)
        own = self.words.meaning[self._own_goals]
        sense[:, own] = possible
        meaning, each = self.words.meaning[self._offered], np.arange(self.num_envs)[:, None]
        good = sense[each, meaning]
        early = np.isin(meaning, own) & ~good
        there = (self._offered >= 0) & self.env.counted[:, None]
        for column, which in (("good", good), ("early", early), ("senseless", ~good & ~early)):
            np.add.at(self._counts[:, COUNTS.index(column)], self._offered[which & there], 1)
        told = np.zeros_like(sense)
        told[each, meaning] = True
        wanted = possible & self.env.counted[:, None]
        if self.config.novelty:
            wanted &= ~self._reached[:, own] & ~self._reached[:, self.words.ended_by[self._own_goals]]
        self._counts[self._own_goals, COUNTS.index("possible")] += wanted.sum(0)
        self._counts[self._own_goals, COUNTS.index("possible_told")] += (wanted & told[:, own]).sum(0)

    def goals_of(self, i: int) -> list[str]:
        return [self.words.goals[goal] for goal in self._offered[i].tolist() if goal >= 0]

    def report(self) -> dict[str, Any]:
        """Counts since the last report, by goal, named as in `COUNTS`."""
        counted = {name: row for name, row in zip(self.words.goals, self._counts.tolist(), strict=False) if any(row)}
        self._counts[:] = 0
        return self.env.report() | {self.name: counted}

    def seconds(self) -> dict[str, float]:
        taken, self._seconds = self._seconds, 0.0
        return self.env.seconds() | {self.name: taken}

    # ---- state between two steps --------------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """Reached and current goals; answers come again from the service, which asks no question twice."""
        own = {
            "goals": packed(self.words.goals),
            "meanings": packed(list(self.words.meanings)),
            "reached": self._reached.copy(),
            "suggested": self._suggested.copy(),
            "away": self.away.copy(),
        }
        return self.env.state() | self._named(own)

    def restore(self, state: dict[str, NDArray[Any]]) -> Observation:
        obs, own = self.env.restore(state), self._own(state)
        goals = np.array([self.words.goal(name) for name in unpacked(own["goals"])] + [NONE], np.int32)
        meanings = [self.words.means(name) for name in unpacked(own["meanings"])]
        self._make_room()
        self._reached[:] = False
        self._reached[:, meanings] = own["reached"][:, : len(meanings)]
        self._suggested = goals[own["suggested"]]
        self.away[:] = own["away"]
        return self._begun(obs)
