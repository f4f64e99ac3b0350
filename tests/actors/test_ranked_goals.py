"""Goals that no model chose: those most like the situation, and the oracle's in an order, up to a limit."""

import numpy as np
import pytest

import envs
from actors import ActorsConfig, ActorSetup, RolloutActor
from actors.suggestions.ranked import Likeness, Order, worths
from actors.wrappers import Setting
from actors.wrappers import goals as wrapper
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from envs.crafter.rules import ELLM
from envs.crafter.tasks import GOALS, way_to
from learner.goals import GoalsConfig
from learner.group import build_policy, get_weights
from learner.models import PolicyConfig
from llm_service.embedding import embed_one

KNOWN = envs.knowledge("crafter")


def begun(n=16, **options):
    """Goals of n players, of whom some hold something."""
    env = envs.make("crafter/Named", n, 3, length=100, success="loose")
    config = GoalsConfig(**options)
    goals = wrapper.make(config, env, Setting("test"))
    goals.begin()
    return env, goals


def steps(env, goals, number=60):
    """Random play: before each step the situations, the possible goals and those given."""
    random = np.random.default_rng(0)
    for _ in range(number):
        possible = [{GOALS[k] for k in np.flatnonzero(row)} for row in env.possible_goals()]
        yield env.texts.texts(env.situations()), possible, [goals.goals_of(i) for i in range(env.num_envs)]
        goals.advance(random.integers(len(env.env_spec.action_names), size=env.num_envs))


# ---- by likeness ---------------------------------------------------------------------------------------------------


def test_the_goals_most_like_a_situation_are_given_as_a_plain_computation_finds_them():
    env, goals = begun(4, source="likeness", limit=4, novelty=False)
    codes = np.stack([embed_one(goal) for goal in GOALS]).astype(np.float64)
    seen = {}
    for situations, _, given in steps(env, goals, 12):
        for situation, own in zip(situations, given, strict=True):
            seen[situation] = own
    assert len(seen) > 5
    for situation, own in seen.items():
        cosines = codes @ embed_one(situation).astype(np.float64)
        assert own == [GOALS[k] for k in np.argsort(-cosines)[:4]]


def test_a_situation_is_embedded_once_and_at_most_all_goals_are_given():
    asked = []

    def embed(text):
        asked.append(text)
        return embed_one(text)

    ranked = Likeness(GOALS[:3], 20, embed)
    ranked.ask(["You see the tree"])
    assert set(ranked.poll()["You see the tree"]) == set(GOALS[:3])
    assert ranked.wait() == {}
    assert asked.count("You see the tree") == 1


def test_reached_goals_are_left_out_of_the_ranked_ones():
    env, goals = begun(4, source="likeness", limit=22)
    assert all(len(goals.goals_of(i)) == 22 for i in range(4))
    chop = env.env_spec.action_names.index("chop grass")
    paid = np.zeros(4)
    for _ in range(10):
        paid += goals.advance(np.full(4, chop)).rewards["goal"]
    assert paid.max() == 1  # trying counts, once
    assert [("chop grass" in goals.goals_of(i)) for i in range(4)] == (paid == 0).tolist()


# ---- the oracle's order and limit ----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["depth", "name", "random"])
@pytest.mark.parametrize("limit", [1, 3])
def test_the_oracle_gives_the_first_of_the_possible_goals(order, limit):
    env, goals = begun(source="oracle", limit=limit, order=order, novelty=False)
    depth = {goal: len(way_to(goal, ELLM.table_wood)) for goal in GOALS}
    of, cut = {}, 0
    for situations, possible, given in steps(env, goals):
        for situation, could, own in zip(situations, possible, given, strict=True):
            assert len(own) == min(limit, len(could))
            assert set(own) <= could
            left = could - set(own)
            cut += bool(left)
            if left and order == "depth":
                assert min(min(depth[goal], 13) for goal in own) >= max(depth[goal] for goal in left)
            elif left and order == "name":
                assert max(own) < min(left)
            if order == "random":
                assert of.setdefault((situation, frozenset(could)), own) == own
    assert cut > 50
    assert goals.given.shape == (16, limit)


def test_random_orders_differ_between_situations_and_not_between_processes():
    order = Order("random", GOALS, KNOWN)
    first = order.of(["a", "b", "a"])
    assert first[0].tolist() == first[2].tolist() != first[1].tolist()
    assert sorted(first[1].tolist()) == list(range(22))
    np.testing.assert_array_equal(Order("random", GOALS, KNOWN).of(["b", "a"]), first[[1, 0]])


def test_without_a_limit_the_oracle_gives_all_in_the_order_of_the_environment():
    env, goals = begun(source="oracle", novelty=False)
    for _, possible, given in steps(env, goals, 20):
        for could, own in zip(possible, given, strict=True):
            assert own == [goal for goal in GOALS if goal in could]
    assert goals.given.shape == (16, 22)


def test_depth_is_read_from_goals_with_slots_too():
    known = envs.knowledge("babyai")
    assert worths(["go to the red ball", "pick up the red ball", "sing"], known) == [0.6, 1.0, 1.0]


@pytest.mark.parametrize(
    "options", [{"source": "likeness"}, {"source": "oracle", "limit": 2, "order": "random"}], ids=["likeness", "random"]
)
def test_a_successor_continues_with_the_same_goals(options):
    env = {"length": 25, "success": "loose"}
    config = GoalsConfig(**options)
    spec = wrapper.spec(config, envs.spec("crafter/Named", **env))
    policy = PolicyConfig(network="texts", hidden=16)
    actors = ActorsConfig(n=1, envs=4, steps=16)
    made = ActorSetup("crafter/Named", env, spec, actors, policy, 3, True, None, {"goals": config})
    weights = get_weights(build_policy(made.policy, made.spec, 0))
    first = RolloutActor(made, 0)
    summary, _ = first.rollout(weights, 1)
    successor = RolloutActor(made, 0, 1, summary.state)
    for _ in range(2):
        (_, one), (_, two) = first.rollout(weights, 1), successor.rollout(weights, 1)
        np.testing.assert_array_equal(one.rewards["goal"], two.rewards["goal"])
        np.testing.assert_array_equal(one.obs["goals"], two.obs["goals"])
    assert one.obs["goals"].shape == (17, 4, 5 if options["source"] == "likeness" else 2)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["env=toy/Line", "method.goals.source=likeness", "method.goals.told=false"], "needs a world that"),
        (["env=crafter", "method.goals.limit=0"], "method.goals.limit"),
        (["env=crafter", "method.goals.order=width"], "method.goals.order"),
    ],
)
def test_what_cannot_be_is_a_sentence(words, sentence):
    with pytest.raises(ConfigError, match=sentence):
        compose(["method=ellm", *words])
