"""Goals whose questions no situation changes: asked once, answered as the rule wants, mixed up as a control."""

import json
import threading
from concurrent.futures import Future

import numpy as np

import envs
from actors.suggestions.premises import Premises, Reachable, rules
from actors.suggestions.vocabulary import Endings, Vocabulary
from actors.wrappers.goals import Goals
from envs.housekeep import NAMES, OBJECTS, home
from envs.housekeep.people import table
from learner.goals import COLUMN, GoalsConfig
from llm_service.backends.scripted.sense import Sense
from llm_service.records import Answer, Status
from llm_service.world import World
from tests.envs.housekeep_play import busy

KNOWN = envs.knowledge("housekeep/Task1")
GOALS = envs.spec("housekeep/Task1").goals
SUITS = table().suits(home.places())


def wanted(question):
    """What people say."""
    (binding,) = rules(KNOWN)[0].premise.find([question])
    return bool(SUITS[OBJECTS.index(binding["object"]), NAMES.index(binding["place"])])


class LLMClient:
    """Stands for the service: people's answers, and which questions came."""

    def __init__(self, fail=0):
        self.asked, self.fail, self.lock = [], fail, threading.Lock()

    def later(self, method, *args):
        future = Future()

        def work():
            try:
                future.set_result(method(*args))
            except Exception as error:
                future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return future

    def ask(self, task, items):
        assert task == "yes_no"
        with self.lock:
            self.asked += [item["question"] for item in items]
            if self.fail:
                self.fail -= 1
                return [Answer(Status.AWAY, b"", "away") for _ in items]
        said = [{"probability": 0.9 if wanted(item["question"]) else 0.1} for item in items]
        return [Answer(Status.OK, json.dumps(value).encode()) for value in said]


def premises(client, **options):
    return Premises(client, GoalsConfig(source="choice", **options), GOALS, stop=False, rules=rules(KNOWN))


HAND_EMPTY = "You hold nothing. You see the lamp on the kitchen sink. You see the vase on the living room shelf"
HAND_FULL = "You hold the herring fillets. You know of the kitchen fridge. You know of the living room sofa"


def test_a_goal_is_one_if_its_question_has_the_answer_that_it_needs():
    made = premises(LLMClient())
    made.ask([HAND_EMPTY, HAND_FULL, "You hold nothing"])
    found = made.wait()
    assert found["You hold nothing"] == ()
    assert found[HAND_FULL] == ("herring fillets in kitchen fridge",)
    expected = [
        f"pick {thing}"
        for thing, place in (("lamp", "kitchen sink"), ("vase", "living room shelf"))
        if not SUITS[OBJECTS.index(thing), NAMES.index(place)]
    ]
    assert found[HAND_EMPTY] == tuple(expected)
    assert expected


def test_each_question_is_asked_once_in_whatever_situation():
    client = LLMClient()
    made = premises(client)
    for situation in (
        HAND_EMPTY,
        HAND_FULL,
        HAND_EMPTY.replace("vase", "lantern"),
        HAND_FULL + ". You know of the window",
    ):
        made.ask([situation])
        assert situation in made.wait()
    assert len(set(client.asked)) == len(client.asked) == 6
    made.ask(["You hold nothing. You see the lamp on the kitchen sink"])
    assert [*made.wait()] == ["You hold nothing. You see the lamp on the kitchen sink"]
    assert len(client.asked) == 6


def test_what_fails_for_now_is_asked_again(monkeypatch):
    monkeypatch.setattr("actors.suggestions.asked.PAUSE_S", 0.01)
    made = premises(LLMClient(fail=2))
    made.ask([HAND_EMPTY, HAND_FULL])
    assert made.wait().keys() == {HAND_EMPTY, HAND_FULL}


def test_shuffled_answers_are_as_often_yes_and_mean_nothing():
    client = LLMClient()
    plain, mixed = premises(client), premises(client, shuffled=True)
    questions = {q for goal in GOALS for rule in rules(KNOWN) if (q := rule.question(goal))}
    assert len(questions) == 5 * 34
    sense = Sense(World(**envs.knowledge("housekeep")))  # as a run's service knows it
    assert all(sense.fact(question) == wanted(question) for question in questions)
    assert 0 < sum(map(wanted, questions)) < len(questions)
    assert sorted(mixed._stands_for.values()) == sorted(questions)
    moved = [question for question, other in mixed._stands_for.items() if question != other]
    assert len(moved) > 0.9 * len(questions)
    said = {}
    for made in (plain, mixed):
        situations = [
            f"You hold the {thing}. " + ". ".join(f"You know of the {place}" for place in home.places())
            for thing in home.TASKS["Task1"]
        ]
        made.ask(situations)
        said[made] = made.wait()
    counts = [sum(map(len, found.values())) for found in said.values()]
    assert counts[0] == counts[1] == sum(map(wanted, questions))
    assert said[plain] != said[mixed]


def test_a_model_that_says_what_people_say_is_the_oracle():
    """What is told and paid is the same, step by step, and no question comes twice."""
    client, found = LLMClient(), {}
    for source in ("choice", "oracle"):
        env = envs.make("housekeep/Task1", 6, seed=2, size=32, starts="seed")
        config = GoalsConfig(source=source, penalties={"unwanted": -0.25, "failed": -0.2})
        goals = Goals(config, env, lambda config=config: Premises(client, config, GOALS, False, rules(KNOWN)))
        goals.begin()
        told, paid = [], []
        for action in busy(env, 250):
            told.append([sorted(goals.goals_of(i)) for i in range(6)])
            paid.append(goals.advance(action).rewards[COLUMN])
        found[source] = told, np.array(paid)
    assert found["choice"][0] == found["oracle"][0]
    np.testing.assert_array_equal(found["choice"][1], found["oracle"][1])
    assert set(np.unique(found["oracle"][1]).tolist()) == {np.float32(x) for x in (-0.25, -0.2, 0, 1)}
    assert len(set(client.asked)) == len(client.asked) <= 5 * 34


def test_all_that_can_be_reached_is_what_a_model_without_sense_would_say():
    """The baseline of novelty: nothing lies well, and everything may be put anywhere."""
    reachable, client = Reachable(rules(KNOWN)), LLMClient()
    reachable.ask([HAND_EMPTY, HAND_FULL, "You hold nothing"])
    assert reachable.wait() == {
        HAND_EMPTY: ("pick lamp", "pick vase"),
        HAND_FULL: ("herring fillets in kitchen fridge", "herring fillets in living room sofa"),
        "You hold nothing": (),
    }
    assert reachable.poll() == {}
    env = envs.make("housekeep/Task1", 6, seed=2, size=32, starts="seed")
    goals = Goals(GoalsConfig(source="any"), env, lambda: Reachable(rules(KNOWN)))
    goals.begin()
    picks, puts = 0, set()
    for action in busy(env, 250):
        before, events = [set(goals.goals_of(i)) for i in range(6)], None
        paid = goals.advance(action).rewards[COLUMN]
        events = goals.events
        for i in np.flatnonzero(paid > 0).tolist():
            done = env.texts[events[i]]
            assert done in before[i]
            picks += done.startswith("pick")
            puts |= {done} if " in " in done else set()
    places = {put.split(" in ")[1] for put in puts}
    assert picks
    assert len(places) > 3
    assert not client.asked


def test_who_has_put_a_thing_somewhere_is_not_asked_to_put_it_elsewhere_or_to_pick_it():
    words = Vocabulary((), lambda text: np.ones(1, np.float32), Endings(KNOWN))
    names = ("lamp in kitchen sink", "lamp in window", "vase in window", "pick lamp", "pick vase")
    goals, event, pick = [words.goal(name) for name in names], words.event("lamp in window"), words.event("pick lamp")
    lamp, other, vase, *picks = words.ended_by[goals].tolist()
    assert lamp == other != vase
    assert picks == [lamp, vase]
    assert words.ends[goals].tolist() == [lamp, lamp, vase, -1, -1]
    assert words.event_ends[[event, pick]].tolist() == [lamp, -1]
    assert not {lamp, vase} & set(words.meaning[goals].tolist())
