"""A language model's policy at work: each state once per version, and nothing that was met before shows."""

import numpy as np
import pytest

import envs
from actors import ActorsConfig, ActorSetup, RolloutActor
from actors.evaluate import play
from actors.players import language_policy
from actors.players.language_policy import LocalModel, PromptedPlayer
from actors.wrappers.history import History
from envs.api.records import HELD_OUT_FIRST
from learner.group import build_policy, get_weights
from learner.models.config import HISTORY as FIELD
from learner.models.config import remembered
from tests.learner.language_policies import OPTIONS, WORLD, config_of, policy_of

WORDY = {"observations": 3, "paraphrase": 0.5, "synonyms": 0.5}


class Count:
    """How many states the model is asked about."""

    def __init__(self, policy):
        self.asked, self._real = [], policy.scorer.micro_batches
        policy.scorer.micro_batches = self

    def __call__(self, questions, *rest):
        self.asked.append(len(questions))
        return self._real(questions, *rest)

    def taken(self):
        found, self.asked = sum(self.asked), []
        return found


def world(n=4, seed=3):
    """An env, what it observes first, and the same states in another order with one of them twice."""
    env = envs.make("babyai/GoToLocal", n, seed, **OPTIONS)
    obs = env.begin()
    assert len({tuple(row) for row in zip(obs["mission"].tolist(), obs["caption"].tolist(), strict=True)}) == n
    return env, obs, {name: column[[2, 0, 2, 1, 3]] for name, column in obs.items()}


def at_work(policy, env, alone=False):
    player = PromptedPlayer(LocalModel(policy), alone)
    player.begin(env)
    return player


def spec():
    return envs.spec("babyai/GoToLocal", **OPTIONS)


def other_weights(policy):
    return {name: value + 0.01 for name, value in get_weights(policy).items()}


# ---- once per version -----------------------------------------------------------------------------------------------


def test_a_state_is_computed_once_until_the_weights_change():
    env, obs, mixed = world()
    policy = policy_of("llama", spec())
    first, second = get_weights(policy), other_weights(policy)
    acting, count = at_work(policy, env), Count(policy)
    acting.load(first, 0)
    logits, values, memory = acting.step(obs)
    assert count.taken() == 4
    assert (logits.shape, values.shape, memory) == ((4, 6), (4,), None)
    again = acting.step(mixed)
    assert count.taken() == 0
    assert np.array_equal(again[0], logits[[2, 0, 2, 1, 3]])
    assert np.array_equal(again[1], values[[2, 0, 2, 1, 3]])

    acting.load(second, 0)  # of the version that is there: not loaded
    acting.step(obs)
    assert count.taken() == 0
    acting.load(second, 1)
    changed, _, _ = acting.step(mixed)
    assert count.taken() == 4
    assert not np.isclose(changed[0], logits[2]).any()
    acting.load(first, 2)
    np.testing.assert_allclose(acting.step(obs)[0], logits, rtol=1e-5, atol=1e-5)
    assert count.taken() == 4


def test_only_what_is_new_is_computed_among_what_is_known():
    env, obs, _ = world()
    policy = policy_of("t5", spec())
    acting, count = at_work(policy, env), Count(policy)
    acting.step({name: column[:2] for name, column in obs.items()})
    logits, values, _ = acting.step(obs)
    assert count.taken() == 4
    expected = policy.decide({name: obs[name] for name in policy.fields}, env.texts)
    for found, right in zip((logits, values), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(language_policy, "REMEMBERED", 3)
    env, obs, _ = world()
    policy = policy_of("t5", spec())
    acting, count = at_work(policy, env), Count(policy)
    whole = acting.step(obs)[0]
    for part in (slice(2), slice(2, 4)):
        some = acting.step({name: column[part] for name, column in obs.items()})[0]
        np.testing.assert_allclose(some, whole[part], rtol=1e-5, atol=1e-5)
        assert len(acting._known) <= 3 + 4
    assert count.taken() == 4 + 4  # the first four were more than may be: begun anew


def test_alone_what_was_met_before_does_not_show():
    """In bits: one has met all states in another order and in another company, one has met none."""
    env, obs, mixed = world()
    policy = policy_of("llama", spec())
    experienced, fresh = at_work(policy, env, alone=True), at_work(policy, env, alone=True)
    experienced.step(mixed)
    experienced.step({name: column[1:3] for name, column in obs.items()})
    count = Count(policy)
    found, expected = experienced.step(obs), fresh.step(obs)
    assert count.taken() == 8
    assert all(np.array_equal(a, b) for a, b in zip(found[:2], expected[:2], strict=True))


@pytest.mark.parametrize("alone", [False, True])
def test_in_another_env_whose_texts_have_other_ids_it_is_the_same_policy(alone):
    env, obs, _ = world()
    policy = policy_of("t5", spec())
    acting = at_work(policy, env, alone)
    acting.load(get_weights(policy), 7)
    logits, values, _ = acting.step(obs)
    twin = envs.make("babyai/GoToLocal", 4, 3, **OPTIONS)
    for text in ("something else", "and more"):
        twin.texts.intern(text)
    same = twin.begin()
    assert (same["caption"] != obs["caption"]).any()
    other, count = acting.twin(), Count(policy)
    other.begin(twin)
    assert (other.env, other.version, other.alone) == (twin, 7, alone)
    found = other.step(same)
    assert count.taken() == 4  # ids of the first env mean nothing here
    assert np.array_equal(found[0], logits)
    assert np.array_equal(found[1], values)
    acting.step(obs)
    assert count.taken() == (4 if alone else 0)  # which still knows its own


# ---- evaluation -----------------------------------------------------------------------------------------------------


def test_evaluation_has_plain_prompts_and_training_goes_on_with_varied_ones():
    config = config_of("llama", WORDY)
    seen = remembered(config, spec())
    policy, plain = (policy_of("llama", spec(), prompt=prompt) for prompt in (WORDY, {"observations": 3}))
    env = History(envs.make("babyai/GoToLocal", 4, 3, **OPTIONS), ["caption"], 3)
    obs = env.begin()
    acting = at_work(policy, env)
    assert set(policy.fields) == {"mission", "caption", FIELD} < set(seen.fields)
    before = acting.step(obs)[0]
    unvaried = at_work(plain, env).step(obs)[0]
    assert not np.allclose(before, unvaried, atol=1e-3)

    seeds = HELD_OUT_FIRST + np.arange(4)
    played = []
    for one in (policy, plain):
        held = History(envs.make("babyai/GoToLocal", 4, **OPTIONS), ["caption"], 3)
        player = (acting if one is policy else at_work(plain, env)).twin()
        played.append(play(held, player, seeds).episodes)
    np.testing.assert_array_equal(played[0].length, played[1].length)
    np.testing.assert_array_equal(played[0].total, played[1].total)
    acting._known.clear()
    np.testing.assert_allclose(acting.step(obs)[0], before, rtol=1e-5, atol=1e-5)


# ---- the actor ------------------------------------------------------------------------------------------------------


def setup(sync=True, **lm):
    config = config_of("llama", WORDY, temperature=8.0, **lm)
    options = OPTIONS | {"max_steps": 7}
    seen = remembered(config, envs.spec(WORLD, **options))
    return ActorSetup(
        WORLD, options, seen, ActorsConfig(n=1, envs=3, steps=5), config, 5, sync, wrappers={"history": config}
    )


def equal(one, other):
    columns = ("action", "log_prob", "value", "terminated", "truncated", "final_index", "final_value", "episode")
    for name in columns:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for part in ("obs", "final_obs"):
        for name, value in getattr(one, part).items():
            np.testing.assert_array_equal(value, getattr(other, part)[name], err_msg=f"{part} {name}")
    assert one.texts == other.texts


def test_a_successor_continues_with_the_very_chunk_that_was_lost():
    made = setup()
    weights = get_weights(build_policy(made.policy, made.spec, 1))
    actor = RolloutActor(made, 0)
    for _ in range(2):
        summary, _ = actor.rollout(weights, 0)
    (lost_summary, lost), (_, later) = actor.rollout(weights, 0), actor.rollout(weights, 0)
    assert len(later.final_index) + len(lost.final_index) > 0
    successor = RolloutActor(made, 0, 1, summary.state)
    summary, again = successor.rollout(weights, 0)
    equal(again, lost)
    assert summary.state.keys() == lost_summary.state.keys()
    for name, value in lost_summary.state.items():
        np.testing.assert_array_equal(value, summary.state[name], err_msg=name)
    equal(successor.rollout(weights, 0)[1], later)


def test_an_actor_that_forgets_its_texts_makes_the_same_chunks(monkeypatch):
    made = setup()
    weights = get_weights(build_policy(made.policy, made.spec, 1))
    chunks = []
    for limit in (10**9, 0):
        monkeypatch.setattr("actors.rollout.MOST_TEXTS", limit)
        actor = RolloutActor(made, 0)
        chunks.append([actor.rollout(weights, 0)[1] for _ in range(4)])
    for one, other in zip(*chunks, strict=True):
        equal(one, other)
    assert len({text for chunk in chunks[0] for text in chunk.texts.values()}) > 10


def test_a_chunk_holds_the_texts_of_the_prompts_alone():
    made = setup(sync=False)
    _, chunk = RolloutActor(made, 0).rollout(get_weights(build_policy(made.policy, made.spec, 1)), 0)
    assert set(chunk.obs) == set(chunk.final_obs) == {"mission", "caption", FIELD}
    assert chunk.obs[FIELD].shape == (6, 3, 4)
    named = {int(h) for obs in (chunk.obs, chunk.final_obs) for column in obs.values() for h in np.unique(column)}
    assert named == set(chunk.texts)
    assert set(made.spec.action_names) & set(chunk.texts.values())  # what was done
    assert chunk.policy_state is None
