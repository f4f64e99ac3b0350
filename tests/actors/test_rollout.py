"""Actors: what a chunk holds, what a successor restores, and that the world does not depend on who steps it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import envs
from actors import ActorsConfig, ActorSetup, RolloutActor, sample
from learner.batch import collate
from learner.group import build_policy, get_weights
from learner.models import PolicyConfig


def setup(env, n=1, size=4, steps=8, memory="none", **options):
    spec = envs.spec(env, **options)
    policy = PolicyConfig(hidden=16, memory=memory)
    return ActorSetup(env, options, spec, ActorsConfig(n=n, envs=size, steps=steps), policy, 5, True)


def weights(made, seed=1):
    policy = build_policy(made.policy, made.spec, seed)
    torch.nn.init.normal_(policy.actor.weight)
    return get_weights(policy)


@pytest.mark.parametrize("env", ["toy/Line", "babyai/GoToLocal", "babyai/MixedTrainLocal", "gym/CartPole-v1"])
def test_a_fixed_action_table_gives_equal_transitions_with_1_and_4_actors_and_any_batch_size(env):
    """Env i over 1,000 steps: one actor of 8 envs, four actors of 2, eight actors of 1."""
    steps = 1000
    actions = len(envs.spec(env).action_names)
    table = np.random.default_rng(0).integers(actions, size=(steps, 8))
    histories = []
    for n in (1, 4, 8):
        size = 8 // n
        actors = [RolloutActor(setup(env, n, size), index) for index in range(n)]
        for actor in actors:
            actor.begin()
        history = {}
        for t in range(steps):
            parts = [a.env.advance(table[t, i * size : (i + 1) * size]) for i, a in enumerate(actors)]
            rows = {"reward": [p.reward for p in parts], "terminated": [p.terminated for p in parts]}
            rows |= {"truncated": [p.truncated for p in parts], "episode": [a.env.episode for a in actors]}
            for name, field in actors[0].setup.spec.fields.items():
                text = field.kind == "text"
                rows[name] = [
                    a.env.texts.hashes(p.obs[name]) if text else p.obs[name].copy()
                    for a, p in zip(actors, parts, strict=True)
                ]
            for name, columns in rows.items():
                history.setdefault(name, []).append(np.concatenate(columns))
        histories.append({name: np.stack(rows) for name, rows in history.items()})
    for other in histories[1:]:
        for name, rows in histories[0].items():
            np.testing.assert_array_equal(rows, other[name], err_msg=name)
    assert histories[0]["episode"][-1].min() > 0  # the table crossed the end of episodes


def test_an_actor_that_is_prepared_has_its_policy_and_has_begun_nothing():
    """Other players need no PyTorch; a world's beginning may wait for a language model, a start may not."""
    actor = RolloutActor(setup("toy/Line"), 0)
    assert actor.ready()
    assert "player" not in vars(actor)
    assert actor.prepare()
    assert "player" in vars(actor)
    assert actor.obs == {}


@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize("env", ["toy/Line", "babyai/GoToLocal"])
def test_a_successor_continues_with_the_very_chunk_that_was_lost(env, memory):
    made = setup(env, memory=memory)
    policy = weights(made)
    actor = RolloutActor(made, 0)
    summary, _ = actor.rollout(policy, 0)
    lost_summary, lost = actor.rollout(policy, 0)
    successor = RolloutActor(made, 0, 1, summary.state)
    summary, again = successor.rollout(policy, 0)
    assert (again.sequence, again.incarnation) == (lost.sequence, 1)
    for name in ("action", "log_prob", "value", "terminated", "truncated", "final_index", "final_value", "episode"):
        np.testing.assert_array_equal(getattr(lost, name), getattr(again, name), err_msg=name)
    for name, value in lost.obs.items():
        np.testing.assert_array_equal(value, again.obs[name])
    np.testing.assert_array_equal(lost.rewards["env"], again.rewards["env"])
    for name, value in lost_summary.state.items():
        np.testing.assert_array_equal(value, summary.state[name])


def test_evaluations_have_a_world_of_their_own():
    """The same episodes as of an actor whose training has these options, and training's own envs stay as they were."""
    home, seeds = (
        {"observe": ["pose"], "size": 8, "length": 6, "starts": "exploring"},
        envs.HELD_OUT_FIRST + np.arange(5),
    )
    made = replace(setup("housekeep/Task1", **home), evaluated={"starts": "fixed", "length": 9})
    actor = RolloutActor(made, 0)
    actor.begin()
    before = actor.env.state()
    found = actor.evaluate(None, 0, seeds, "random", True, 0)
    there = RolloutActor(setup("housekeep/Task1", **home | made.evaluated), 0)
    wanted = there.evaluate(None, 0, seeds, "random", True, 0)
    assert set(found.episodes.length.tolist()) == {9}
    for name, column in vars(wanted.episodes).items():
        np.testing.assert_array_equal(getattr(found.episodes, name), column)
    for name, column in actor.env.state().items():
        np.testing.assert_array_equal(column, before[name])


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_the_learner_recomputes_what_the_actor_computed(memory):
    """Ratio 1 on fresh data: log-probabilities and values of a chunk, by the learner's unrolled pass."""
    made = setup("babyai/GoToLocal", size=6, steps=40, memory=memory)
    policy = build_policy(made.policy, made.spec, 1)
    torch.nn.init.normal_(policy.actor.weight)
    actor = RolloutActor(made, 0)
    for _ in range(2):  # the second chunk begins in the middle of episodes
        _, chunk = actor.rollout(get_weights(policy), 0)
    batch = collate([chunk], policy, 0, 1.0)
    with torch.no_grad():
        codes = policy.codes(batch.texts)
        logits, values, states = policy.unroll(batch.obs, codes, batch.state, batch.episode_starts)
        log_prob = torch.log_softmax(logits[:-1], -1).gather(-1, torch.from_numpy(batch.action)[..., None])[..., 0]
        at = torch.from_numpy(chunk.final_index).long()
        state = None if states is None else states[at[:, 0], at[:, 1]]
        final = policy.step(batch.final_obs, codes, state)[1]
    assert len(chunk.final_index) > 0
    np.testing.assert_allclose(log_prob, chunk.log_prob, atol=2e-5)
    np.testing.assert_allclose(values, chunk.value, atol=2e-5)
    np.testing.assert_allclose(final, chunk.final_value, atol=2e-5)


def test_a_chunk_carries_every_text_it_names():
    made = setup("babyai/GoToLocal", size=4, steps=64, captions=True)
    _, chunk = RolloutActor(made, 0).rollout(weights(made), 0)
    named = {int(h) for obs in (chunk.obs, chunk.final_obs) for n in ("mission", "caption") for h in np.unique(obs[n])}
    assert named == set(chunk.texts)
    assert all(envs.text_hash(text) == key for key, text in chunk.texts.items())


def test_an_actor_that_forgets_its_texts_makes_the_same_chunks(monkeypatch):
    made = setup("babyai/GoToLocal", memory="gru", captions=True)
    policy = weights(made)
    chunks = []
    for limit in (10**9, 0):
        monkeypatch.setattr("actors.rollout.MOST_TEXTS", limit)
        actor = RolloutActor(made, 0)
        chunks.append([actor.rollout(policy, 0)[1] for _ in range(3)])
        known = len(actor.env.texts)
    assert known < len({text for chunk in chunks[1] for text in chunk.texts})
    for one, other in zip(*chunks, strict=True):
        np.testing.assert_array_equal(one.action, other.action)
        np.testing.assert_array_equal(one.obs["caption"], other.obs["caption"])
        np.testing.assert_array_equal(one.value, other.value)


def test_chunk_shapes_are_as_documented():
    made = setup("babyai/GoToLocal", size=3, steps=5, captions=True)
    _, chunk = RolloutActor(made, 2).rollout(weights(made), 7)
    assert chunk.obs["image"].shape == (6, 3, 7, 7, 3)
    assert chunk.obs["caption"].dtype == np.int64
    assert chunk.version == 7
    assert chunk.env_index.tolist() == [6, 7, 8]
    assert chunk.value.shape == (6, 3)
    for name in ("action", "log_prob", "terminated", "truncated", "episode", "llm_status"):
        assert getattr(chunk, name).shape == (5, 3), name
    assert chunk.steps == 15


def test_an_actor_counts_what_it_did_and_its_time_adds_up(monkeypatch):
    made = setup("toy/Line", size=4, steps=8)
    now = [100.0]
    monkeypatch.setattr("actors.rollout.time.monotonic", lambda: now[0])
    monkeypatch.setattr("actors.rollout.time.perf_counter", lambda: now[0])
    actor = RolloutActor(made, 0)
    assert actor.numbers() == {"actor/steps": 0.0, "actor/rollouts": 0.0, "actor/episodes": 0.0}
    step = actor.env.advance

    def slow(action):
        now[0] += 0.25
        return step(action)

    monkeypatch.setattr(actor.env, "advance", slow)
    given = weights(made)
    now[0] = 103.0
    actor.rollout(given, 0)
    now[0] = 110.0
    actor.rollout(given, 0)
    found = actor.numbers()
    assert (found["actor/steps"], found["actor/rollouts"]) == (64, 2)
    assert found["actor/seconds/start"] == 3.0
    assert found["actor/seconds/rollout"] == 8 * 0.25 + 8 * 0.25
    assert found["actor/seconds/idle"] == 5.0
    assert found["actor/seconds/policy"] == 0.0


def test_an_actor_whose_calendar_is_set_back_has_spent_no_time_less(monkeypatch):
    made = setup("toy/Line", size=4, steps=8)
    actor = RolloutActor(made, 0)
    given = weights(made)
    for days in (3, 2, 1):
        monkeypatch.setattr("actors.rollout.time.time", lambda days=days: 86_400.0 * days)
        before = actor.numbers()
        actor.rollout(given, 0)
        assert 0 <= actor.heartbeat()["seconds"] < 60
        found = actor.numbers()
        spent = {name: found[name] - before.get(name, 0.0) for name in found if "/seconds/" in name}
        assert all(0 <= seconds < 60 for seconds in spent.values()), spent


def test_sampling_follows_the_probabilities():
    logits = torch.log(torch.tensor([[0.1, 0.2, 0.7]])).expand(20_000, 3)
    action, log_prob = sample(logits, np.random.default_rng(0).random(20_000, np.float32))
    np.testing.assert_allclose(np.bincount(action, minlength=3) / 20_000, [0.1, 0.2, 0.7], atol=0.015)
    np.testing.assert_allclose(np.exp(log_prob), np.array([0.1, 0.2, 0.7])[action], rtol=1e-5)


def test_sampling_never_leaves_the_action_space():
    logits = torch.randn(1000, 5)
    assert sample(logits, np.full(1000, np.nextafter(np.float32(1), np.float32(0))))[0].max() <= 4
    assert sample(logits, np.zeros(1000, np.float32))[0].min() >= 0


def grouped(env="babyai/GoToLocal", group=2, steps=80, **options):
    made = setup(env, size=4, steps=steps, **options)
    return replace(made, actors=made.actors.model_copy(update={"group": group}))


def test_envs_of_a_group_play_equal_episodes_that_begin_with_each_chunk():
    made = grouped()
    policy, actor, seen = weights(made), RolloutActor(made, 0), []
    for version in range(2):
        summary, chunk = actor.rollout(policy, version)
        assert chunk.group == 2
        first = {name: column[0] for name, column in chunk.obs.items()}
        for name, column in first.items():
            np.testing.assert_array_equal(column[0], column[1], err_msg=name)
            np.testing.assert_array_equal(column[2], column[3], err_msg=name)
        assert any((column[0] != column[2]).any() for column in first.values())
        assert len(set(chunk.episode[0].tolist())) == 1
        seen.append(chunk.episode)
        seeds = {}
        for env, episode, seed in zip(*(getattr(summary.episodes, n) for n in ("env", "episode", "seed")), strict=True):
            assert seeds.setdefault((env // 2, episode), seed) == seed
        assert len(set(seeds.values())) == len(seeds)
    assert seen[1].min() > seen[0].max()  # counters never come again


def test_a_successor_continues_with_the_very_chunk_of_groups_that_was_lost():
    made = grouped()
    policy, actor = weights(made), RolloutActor(made, 0)
    summary, _ = actor.rollout(policy, 0)
    _, expected = actor.rollout(policy, 1)
    _, again = RolloutActor(made, 0, 1, summary.state).rollout(policy, 1)
    for name in ("action", "log_prob", "episode", "terminated", "value"):
        np.testing.assert_array_equal(getattr(again, name), getattr(expected, name), err_msg=name)
    for name, column in expected.obs.items():
        np.testing.assert_array_equal(again.obs[name], column, err_msg=name)


def test_chunks_side_by_side_have_groups_of_their_own():
    made = grouped(steps=4)
    actor, policy = RolloutActor(made, 0), build_policy(made.policy, made.spec, 1)
    chunks = [actor.rollout(get_weights(policy), 0)[1] for _ in range(2)]
    batch = collate(chunks, policy, 0, 1.0)
    assert batch.group.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert batch.episode.shape == (4, 8)
    states = batch.equal_states().reshape(4, 8)[0]
    assert states[0] == states[1] != states[2] == states[3] != states[4] == states[5]
