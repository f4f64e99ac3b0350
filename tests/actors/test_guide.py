"""The second half of a life: exploring by a trained guide, and being told the world's task as a goal."""

import numpy as np
import pytest
import torch

import envs
from actors import ActorsConfig, ActorSetup, RolloutActor
from actors.players.guided import GuidedPlayer
from actors.players.policy import TorchPlayer
from actors.setup import Guidance
from actors.wrappers import goals as suggested
from actors.wrappers import task
from learner.goals import MISSION, NO_GOAL, GoalsConfig
from learner.group import build_policy, get_weights, set_weights
from learner.models import PolicyConfig

TASK = {"task": "place crafting table", "length": 40}
POLICY = PolicyConfig(network="texts", head="dueling", hidden=16)
GOALS = GoalsConfig(source="task", limit=3)


def seen():
    return task.spec(GOALS, envs.spec("crafter/Named", **TASK))


def policy(seed, epsilon):
    made = build_policy(POLICY, seen(), seed)
    made.q.epsilon.fill_(epsilon)
    return made


def world(n=6, **options):
    env = task.TaskGoal(envs.make("crafter/Named", n, 5, **TASK | options), GOALS.most)
    return env, env.begin()


def setup(guidance=None, envs_=4):
    return ActorSetup(
        "crafter/Named",
        TASK,
        seen(),
        ActorsConfig(n=1, envs=envs_, steps=8),
        POLICY,
        7,
        True,
        None,
        {"task": GOALS},
        guidance,
    )


# ---- guided exploration ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_guided_behaviour_is_the_mixture_of_best_guide_and_any(epsilon, share):
    env, obs = world()
    explorer, trained = (TorchPlayer(policy(*each), alone=False) for each in ((1, epsilon), (2, 0.5)))
    player = GuidedPlayer(explorer, trained, share)
    player.begin(env)
    logits = explorer.step(obs, None)[0]
    mixed = np.exp(player.step(obs)[0])
    n = mixed.shape[1]
    expected = np.full_like(mixed, epsilon * (1 - share) / n)
    each = np.arange(len(mixed))
    expected[each, logits.argmax(-1)] += 1 - epsilon
    expected[each, trained.step(obs, None)[0].argmax(-1)] += epsilon * share
    np.testing.assert_allclose(mixed, expected, atol=1e-6)


def test_a_guide_that_draws_its_actions_is_drawn_from():
    env, obs = world()
    trained = build_policy(POLICY.model_copy(update={"head": "actor_critic"}), seen(), 2)
    trained.actor.weight.data.mul_(300)  # some actions are likelier than others
    actor = RolloutActor(setup(Guidance(get_weights(trained), 0.6)), 0)
    actor.player.load(get_weights(policy(1, 0.5)), 1)
    actor.player.begin(env)
    mixed, alone = np.exp(actor.player.step(obs)[0]), np.exp(actor.player.explorer.step(obs)[0])
    guide = actor.player.guide.step(obs)[0]
    guide = np.exp(guide - np.logaddexp.reduce(guide, -1, keepdims=True))
    assert guide.max() > 2 / guide.shape[1]
    np.testing.assert_allclose(mixed, alone + 0.5 * 0.6 * (guide - 1 / guide.shape[1]), atol=1e-6)


def test_an_actor_that_only_explores_does_what_its_guide_does():
    guide, explorer = policy(2, 0.0), policy(1, 0.999)
    led = RolloutActor(setup(Guidance(get_weights(guide), 1.0)), 0)
    alone = RolloutActor(setup(), 0)
    _, chunk = led.rollout(get_weights(explorer), 1)
    _, other = alone.rollout(get_weights(explorer), 1)
    texts = chunk.texts
    env, _ = world(4)
    acting = TorchPlayer(guide, alone=True)
    acting.begin(env)
    intern = np.vectorize(lambda key: env.texts.intern(texts[key]))
    share = []
    for t in range(len(chunk.action)):
        obs = {name: value[t] for name, value in chunk.obs.items()}
        obs |= {name: intern(obs[name]).astype(np.int32) for name in acting.policy.text_fields}
        share.append((acting.step(obs, None)[0].argmax(-1) == chunk.action[t]).mean())
    assert np.mean(share) > 0.9  # but for one action in a thousand that is the explorer's own
    assert (chunk.action != other.action).any()


def test_a_guide_stays_as_it_is_while_the_explorer_is_given_weights():
    actor = RolloutActor(setup(Guidance(get_weights(policy(2, 0.0)), 0.5)), 0)
    before = get_weights(actor.player.guide.policy)
    for version in (1, 2):
        actor.rollout(get_weights(policy(version, 0.5)), version)
    after = get_weights(actor.player.guide.policy)
    assert all((before[name] == after[name]).all() for name in before)


def test_an_actor_with_a_guide_forgets_texts_without_a_change(monkeypatch):
    guidance = Guidance(get_weights(policy(2, 0.0)), 0.5)
    first = RolloutActor(setup(guidance), 0)
    expected = [first.rollout(get_weights(policy(1, 0.8)), 1)[1].action for _ in range(4)]
    monkeypatch.setattr("actors.rollout.MOST_TEXTS", 0)
    second = RolloutActor(setup(guidance), 0)
    np.testing.assert_array_equal(
        [second.rollout(get_weights(policy(1, 0.8)), 1)[1].action for _ in range(4)], expected
    )


# ---- the task as a goal ---------------------------------------------------------------------------------------------


def test_the_task_stands_where_goals_stood_and_only_there():
    spec = seen()
    assert MISSION not in spec.fields
    assert spec.fields["goals"].shape == (3,)
    env, obs = world()
    for _ in range(60):
        names = [[env.texts[int(text)] for text in row] for row in obs["goals"]]
        assert names == [["place crafting table", NO_GOAL, NO_GOAL]] * 6
        assert env.goals_of(2) == ["place crafting table"]
        transition = env.advance(np.random.default_rng(0).integers(0, 27, 6))
        assert (transition.rewards["goal"] == 0).all()
        obs = transition.obs
        if len(transition.final_index):
            assert transition.final_obs["goals"].shape == (len(transition.final_index), 3)
            break
    else:
        raise AssertionError("no episode ended")


def test_subgoals_are_told_one_after_the_other():
    env, obs = world(1, subgoals="shown", task="place crafting table")
    assert env.texts[int(obs["goals"][0, 0])] == env.texts[int(obs[MISSION][0])] != "place crafting table"
    assert env.goals_of(0) == [env.texts[int(obs[MISSION][0])]]


def test_a_policy_pretrained_with_suggested_goals_can_be_told_a_task():
    goals = GoalsConfig(source="model", limit=3)
    before = build_policy(POLICY, suggested.spec(goals, envs.spec("crafter/Named", length=40)), 0)
    after = build_policy(POLICY, seen(), 1)
    set_weights(after, get_weights(before))
    assert torch.equal(after.q.value[0].weight, before.q.value[0].weight)
