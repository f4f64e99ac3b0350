"""Goals: what is told, what is paid, once; by whom they are suggested; and what a successor restores."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envs
from actors import ActorsConfig, ActorSetup, RolloutActor
from actors.suggestions.asked import Suggestions
from actors.suggestions.vocabulary import Vocabulary
from actors.wrappers import goals as wrapper
from actors.wrappers.goals import COUNTS, Goals
from learner.goals import ANSWERED, COLUMN, HELD, MISSING, NO_GOAL, GoalsConfig
from learner.group import build_policy, get_weights
from learner.models import PolicyConfig
from llm_service.embedding import embed_one
from llm_service.errors import AwayTooLong, BudgetExhausted, UsageError
from llm_service.records import Answer, Status

SEED = 3


def world(n=8, env="crafter/Named", **options):
    return envs.make(env, n, SEED, **{"length": 60, "success": "loose"} | options)


class LLMClient:
    """Stands for the service: answers by a function of the situation, from a thread, when it may."""

    def __init__(self, suggest, open_=True):
        self.suggest, self.asked = suggest, []
        self.open = threading.Event()
        if open_:
            self.open.set()

    def later(self, method, *args):
        from concurrent.futures import Future

        future = Future()

        def work():
            self.open.wait(20)
            try:
                future.set_result(method(*args))
            except Exception as error:
                future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return future

    def ask(self, task, items):
        self.asked += [". ".join(item["observation"]) for item in items]
        return [self.suggest(". ".join(item["observation"])) for item in items]


def answer(*goals):
    import json

    return Answer(Status.OK, json.dumps({"goals": list(goals), "dropped": 0}).encode())


def by_model(env, client, when_away="wait", **options):
    config = GoalsConfig(source="model", **options)
    return begun(config, env, lambda: Suggestions(client, config, env.env_spec.goals, when_away == "stop"), when_away)


def begun(*args):
    goals = Goals(*args)
    goals.begin()
    return goals


def reward(goals, action):
    return goals.advance(np.asarray(action)).rewards[COLUMN]


def event(env, name):
    return env.env_spec.action_names.index(name)


# ---- what is paid ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["crafter/Named", "crafter/Text"])
def test_there_is_no_reward_without_the_event_that_a_told_goal_names(name):
    """Random play under the oracle, beside a bookkeeping of its own with sets of strings."""
    env = world(16, name, success="strict")
    goals = begun(GoalsConfig(source="oracle"), env)
    random = np.random.default_rng(0)
    synonyms = {"make crafting table": "place crafting table", "eat cow": "attack cow"}
    reached, paid = [set() for _ in range(16)], 0
    for _ in range(200):
        told_now = [goals.goals_of(i) for i in range(16)]
        for i in range(16):
            assert not {synonyms.get(g, g) for g in told_now[i]} & reached[i], "told again after it was reached"
        transition = goals.advance(random.integers(len(env.env_spec.action_names), size=16))
        done = [env.texts[e] if e >= 0 else "" for e in env.events.tolist()]
        done = [synonyms.get(d, d) for d in done]
        reward = transition.rewards[COLUMN]
        for i in range(16):
            expected = done[i] in {synonyms.get(g, g) for g in told_now[i]} and done[i] not in reached[i]
            assert (reward[i] > 0) == expected, (done[i], told_now[i])
            assert reward[i] in (0.0, 1.0)
            reached[i] |= {done[i]} if expected else set()
        for i in transition.final_index:
            reached[i] = set()
        paid += int((reward > 0).sum())
    assert paid > 5


@pytest.mark.parametrize("told", [True, False])
def test_without_novelty_a_goal_pays_whenever_it_is_reached(told):
    def everything(novelty, env):
        return begun(GoalsConfig(source="actions", novelty=novelty, told=told), env)

    twice = []
    for novelty in (True, False):
        env = world(1, length=20)
        goals = everything(novelty, env)
        twice.append(sum(float(reward(goals, [event(env, "do nothing")])[0]) for _ in range(10)))
    # Doing nothing is no event in the strict or loose sense: nobody is paid for it.
    assert twice == [0.0, 0.0]
    worlds = [world(4, success="any", length=20) for _ in range(2)]
    both = [everything(novelty, env) for novelty, env in zip((True, False), worlds, strict=True)]
    sums = np.zeros((2, 4))
    for _ in range(6):
        sums += [reward(goals, np.full(4, event(env, "drink water"))) for goals, env in zip(both, worlds, strict=True)]
    np.testing.assert_array_equal(sums, [[1] * 4, [6] * 4])


def test_what_one_env_was_told_another_knows_without_asking():
    client, answers = LLMClient(lambda situation: answer("collect sapling", "wake up")), {}
    config = GoalsConfig(source="model")

    def played():
        env = world()
        goals = begun(
            config, env, lambda: Suggestions(client, config, env.env_spec.goals, False), "wait", embed_one, answers
        )
        told = []
        for step in range(20):
            goals.advance(np.full(env.num_envs, step % 5))
            told.append([goals.goals_of(i) for i in range(env.num_envs)])
            assert (goals.status == ANSWERED).all()
        return told

    first, asked = played(), len(client.asked)
    assert asked == len(answers) > 1
    assert played() == first
    assert len(client.asked) == asked


def test_an_evaluation_knows_what_training_was_told_unless_its_goals_are_others(monkeypatch):
    seen = []
    monkeypatch.setattr("actors.rollout.wrap", lambda env, wrappers, setting: seen.append(setting.answers) or env)
    actor = RolloutActor(setup(), 0)
    actor._make_others(actor.setup, 2)
    actor._make_others(replace(actor.setup, wrappers={"goals": GoalsConfig(source="oracle", threshold=0.9)}), 2)
    assert seen[0] is seen[1] is not seen[2]


def test_nothing_is_asked_where_an_evaluations_episode_is_over():
    """Such envs play on, in situations that nobody needs to know about."""
    env = world()
    client = LLMClient(lambda situation: answer("collect sapling"))
    goals = by_model(env, client)
    still = np.zeros(env.num_envs, np.int64)
    env.counted[1:] = False
    del client.asked[:]
    seen = set()
    for _ in range(40):
        goals.advance(still)
        seen.add(env.texts[int(goals.situations()[0])])
    assert set(client.asked) <= seen
    assert goals.status[0] == ANSWERED
    env.counted[:] = True
    goals.advance(still)
    assert (goals.status == ANSWERED).all()


def test_a_goal_in_other_words_is_paid_by_its_likeness():
    env = world(1, success="any")
    goals = by_model(env, LLMClient(lambda _: answer("drink the water", "chop cow", "place a stone", "sing")))
    assert set(goals.goals_of(0)) == {"drink the water", "chop cow", "place a stone", "sing"}
    assert 0.88 < reward(goals, [event(env, "place stone")])[0] <= 1
    assert "place a stone" not in goals.goals_of(0)
    assert reward(goals, [event(env, "sleep")])[0] == 0


@given(
    names=st.lists(st.sampled_from(["a", "b", "c", "the d", "e"]), min_size=1, max_size=8),
    found_events=st.lists(st.sampled_from(["a", "c", "d", "x"]), min_size=1, max_size=6),
)
@settings(max_examples=60, deadline=None)
def test_the_table_of_likenesses_is_right_in_whatever_order_names_come(names, found_events):
    def vector(text):
        v = np.random.default_rng(sum(text.encode())).normal(size=4).astype(np.float32)
        return v / np.linalg.norm(v)

    words = Vocabulary([["e", "x"]], vector)
    for i in range(max(len(names), len(found_events))):
        for word, take in ((names[i : i + 1], words.goal), (found_events[i : i + 1], words.event)):
            for one in word:
                take(one)
    means = {"the d": "d", "x": "e"}
    for event_ in found_events:
        for goal in names:
            same = means.get(event_, event_) == means.get(goal, goal)
            expected = 1.0 if same else float(vector(event_) @ vector(goal))
            assert words.similarity[words.event(event_), words.goal(goal)] == pytest.approx(expected)
    assert (words.similarity[-1] == -1).all()
    assert (words.similarity[:, -1] == -1).all()


# ---- who suggests ---------------------------------------------------------------------------------------------------


def test_a_situation_is_asked_about_once_whoever_meets_it_and_however_often():
    env = world(32)
    client = LLMClient(lambda _: answer("chop tree"))
    goals = by_model(env, client)
    random = np.random.default_rng(0)
    met = set(env.texts.texts(env.situations()))
    for _ in range(80):
        goals.advance(random.integers(27, size=32))
        met |= set(env.texts.texts(env.situations()))
        assert (goals.status == ANSWERED).all()
    assert len(client.asked) == len(set(client.asked))
    assert set(client.asked) == met


@pytest.mark.parametrize("told", [False, True])
def test_the_question_says_what_was_reached_if_it_is_to(told):
    """A model that is told can suggest other goals instead; each situation is asked about with what was reached."""
    env = world(8, length=30)

    class Asked(LLMClient):
        def ask(self, task, items):
            self.items = [*getattr(self, "items", []), *items]
            wanted = ("chop grass", "drink water", "sleep")
            left = [[goal for goal in wanted if goal not in item.get("achieved", ())][:1] for item in items]
            return [answer(*goals) for goals in left]

    client = Asked(None)
    goals = by_model(env, client, told_reached=told, limit=1)
    random, empty = np.random.default_rng(0), 0
    for _ in range(60):
        assert all("\n" not in name for i in range(8) for name in goals.goals_of(i))
        number = [len(goals.goals_of(i)) for i in range(8)]
        assert max(number) <= 1
        empty += number.count(0)
        goals.advance(random.choice([event(env, name) for name in ("chop grass", "drink water")], size=8))
    assert (empty == 0) == told
    pairs = [(". ".join(item["observation"]), tuple(item.get("achieved", ()))) for item in client.items]
    assert len(pairs) == len(set(pairs))
    reached = {name for _, names in pairs for name in names}
    assert ("chop grass" in reached) == told
    assert reached <= {"chop grass", "drink water"}
    assert {item["prompt"] for item in client.items} == {"open"}
    assert all("Reached" not in seen for seen, _ in pairs)


def test_what_stands_while_an_answer_is_not_there():
    policies = {}
    for when_away in ("none", "cached"):
        env = world(4, length=1000)
        client = LLMClient(lambda _: answer("chop grass"))
        goals = by_model(env, client, when_away)
        until(lambda goals=goals: not goals.advance(np.zeros(4, int)) or all_answered(goals))
        client.open.clear()
        states = set()
        for _ in range(60):
            goals.advance(np.random.default_rng(1).integers(27, size=4))
            states |= {(int(s), tuple(goals.goals_of(i))) for i, s in enumerate(goals.status)}
        client.open.set()
        policies[when_away] = states
        assert goals.away.sum() > 0
    assert {status for status, _ in policies["none"]} == {ANSWERED, MISSING}
    assert {status for status, _ in policies["cached"]} == {ANSWERED, HELD}
    assert all(not names for status, names in policies["none"] if status == MISSING)


def all_answered(goals):
    return bool((goals.status == ANSWERED).all())


def until(holds, seconds=20):
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, "it did not come to pass"
        time.sleep(0.01)


def test_a_model_that_is_away_is_asked_again_and_an_episode_says_how_long_it_was(monkeypatch):
    monkeypatch.setattr("actors.suggestions.asked.PAUSE_S", 0.02)
    env = world(2, length=30)
    away = [True]
    client = LLMClient(lambda _: Answer(Status.AWAY, reason="no route") if away[0] else answer("chop tree"))
    goals = by_model(env, client, "none")
    for _ in range(20):
        goals.advance(np.zeros(2, int))
    away[0] = False

    ended = []
    until(
        lambda: (
            ended.extend(goals.advance(np.zeros(2, int)).episodes.away.tolist())
            or (all_answered(goals) and len(ended) >= 2)
        )
    )
    assert ended[0] >= 20  # steps


@pytest.mark.parametrize(
    ("status", "when_away", "error"),
    [
        (Status.AWAY, "stop", AwayTooLong),
        (Status.BUDGET, "cached", BudgetExhausted),
        (Status.REFUSED, "none", UsageError),
    ],
)
def test_failures_that_do_not_pass_end_the_actor(status, when_away, error):
    env = world(2)

    def play():
        goals = by_model(env, LLMClient(lambda _: Answer(status, reason="why it is so")), when_away)
        for _ in range(200):
            goals.advance(np.zeros(2, int))
            time.sleep(0.01)

    with pytest.raises(error, match="why it is so"):
        play()


def test_an_answer_that_is_none_means_no_goals_and_is_not_asked_for_again():
    env = world(2)
    client = LLMClient(lambda _: Answer(Status.MALFORMED, reason="prose"))
    goals = by_model(env, client)
    assert all_answered(goals)
    assert goals.goals_of(0) == []
    assert env.texts[int(goals.given[0, 0])] == NO_GOAL


def test_shuffled_answers_are_those_of_other_situations():
    plain, mixed = (
        by_model(world(32), LLMClient(lambda s: answer(f"see {len(s)}")), shuffled=s) for s in (False, True)
    )
    random, same = np.random.default_rng(0), []
    for _ in range(60):
        action = random.integers(27, size=32)
        plain.advance(action)
        mixed.advance(action)
        same += [plain.goals_of(i) == mixed.goals_of(i) for i in range(32)]
        assert {n for i in range(32) for n in mixed.goals_of(i)} <= set(plain.words.goals)
    assert np.mean(same) < 0.6


# ---- actors ---------------------------------------------------------------------------------------------------------


def setup(source="oracle", **options):
    env = {"length": 25, "success": "loose"}
    goals = GoalsConfig(source=source, **options)
    spec = wrapper.spec(goals, envs.spec("crafter/Named", **env))
    policy = PolicyConfig(network="texts", hidden=16)
    actors = ActorsConfig(n=1, envs=4, steps=16)
    return ActorSetup("crafter/Named", env, spec, actors, policy, SEED, True, None, {"goals": goals})


@pytest.mark.parametrize("novelty", [True, False])
def test_a_successor_continues_with_the_very_chunk_goals_and_all(novelty):
    made = setup(novelty=novelty)
    weights = get_weights(build_policy(made.policy, made.spec, 0))
    first = RolloutActor(made, 0)
    for _ in range(3):
        summary, _ = first.rollout(weights, 1)
    successor = RolloutActor(made, 0, 1, summary.state)
    for _ in range(3):
        (_, one), (_, two) = first.rollout(weights, 1), successor.rollout(weights, 1)
        np.testing.assert_array_equal(one.rewards["goal"], two.rewards["goal"])
        np.testing.assert_array_equal(one.obs["goals"], two.obs["goals"])
        np.testing.assert_array_equal(one.final_obs["goals"], two.final_obs["goals"])
        np.testing.assert_array_equal(one.action, two.action)
    assert one.obs["goals"].shape == (17, 4, 22)


def test_a_chunk_pays_in_a_column_of_its_own_and_names_every_goal():
    made = setup()
    actor = RolloutActor(made, 0)
    weights = get_weights(build_policy(made.policy, made.spec, 0))
    summary, chunk = actor.rollout(weights, 1)
    assert set(chunk.rewards) == {"env", "goal"}
    assert chunk.rewards["goal"].sum() > 0
    assert set(np.unique(chunk.obs["goals"]).tolist()) <= set(chunk.texts)
    assert summary.report["goals"]["chop grass"][COUNTS.index("good")] > 0


def test_an_emptied_table_of_texts_does_not_change_what_happens(monkeypatch):
    made = setup()
    weights = get_weights(build_policy(made.policy, made.spec, 0))
    one = RolloutActor(made, 0)
    chunks = [one.rollout(weights, 1)[1] for _ in range(3)]
    monkeypatch.setattr("actors.rollout.MOST_TEXTS", 0)
    other = RolloutActor(made, 0)
    for chunk in chunks:
        again = other.rollout(weights, 1)[1]
        np.testing.assert_array_equal(chunk.rewards["goal"], again.rewards["goal"])
        np.testing.assert_array_equal(chunk.obs["goals"], again.obs["goals"])
