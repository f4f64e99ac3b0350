"""The wrapper that keeps what is lived: beside a slow bookkeeping, whatever the chunks and the restarts."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import envs
from actors import ActorsConfig, ActorSetup, RolloutActor, rollout, wrappers
from actors.wrappers import tee
from cluster.config.tree import compose
from learner.files import Attempt
from learner.group import build_policy, get_weights
from learner.models import PolicyConfig
from learner.store.episodes import EPISODES, EpisodeStore, EpisodeWriter, Layout, StoreError, shards

ROOT = Path(__file__).resolve().parents[2]
WORLDS = {
    "babyai/GoToLocal": {"captions": True, "max_steps": 9},
    "toy/Line": {},
    "gym/CartPole-v1": {},
}
TOY = "toy/Line"


@pytest.fixture
def stage(tmp_path):
    """A folder of a stage, for a world."""

    def make(env=TOY, name="stage", **options):
        spec, place = envs.spec(env, **options), tmp_path / name
        place.mkdir()
        attempt = Attempt.begin(place / "checkpoints")
        EpisodeWriter(place / EPISODES, Layout.of(spec, spec.fields), {"env": env}, attempt, pieces=True)
        return SimpleNamespace(place=place, attempt=attempt, store=place / EPISODES)

    return make


def setup(at, env=TOY, n=1, steps=3, **options):
    spec = envs.spec(env, **options)
    reads = [name for name in spec.fields if name != "caption"]
    actors = ActorsConfig(n=n, envs=4, steps=steps)
    policy, beside = PolicyConfig(hidden=8, reads=reads), {"tee": tee.Config(actors=n)}
    return ActorSetup(env, options, spec, actors, policy, 5, True, None, beside, stage=at.place, attempt=at.attempt)


def weights(made, seed=0):
    policy = build_policy(made.policy, made.spec, seed)
    torch.manual_seed(seed)
    torch.nn.init.normal_(policy.actor.weight, std=3.0)  # so that other weights do other things
    return get_weights(policy)


def plain(env, name, column):
    """A field as it is told from process to process: a text as a string."""
    if env.env_spec.fields[name].kind == "text":
        return [env.texts.texts(row) if np.ndim(row) else env.texts[int(row)] for row in column]
    return column.copy()


def lived(made, chunks):
    """What happened in the chunks of every actor, told step by step by equal worlds: episodes by (env, number)."""
    found = {}
    for actor, own in enumerate(chunks):
        n = made.actors.envs
        env = envs.make(made.env_id, n, made.seed, actor * n, **made.env_options)
        obs, running = env.begin(), [[] for _ in range(n)]
        for k, chunk in enumerate(own):
            for t, action in enumerate(chunk.action):
                before = {name: plain(env, name, obs[name]) for name in env.env_spec.fields}
                numbers, transition = env.episode, env.advance(action)
                for i in range(n):
                    step = {name: column[i] for name, column in before.items()}
                    running[i].append((step, int(action[i]), float(transition.reward[i])))
                for row, i in enumerate(transition.final_index.tolist()):
                    of = transition.episodes
                    told = [getattr(of, name)[row].item() for name in ("seed", "length", "total", "success", "kind")]
                    source = (k * made.actors.steps + t + 1) * n * made.actors.n
                    found[actor * n + i, int(numbers[i])] = ([*told, source], running[i])
                    running[i] = []
                obs = transition.obs
    return found


def assert_holds(store, expected):
    """The store has these episodes and no others, in order, with every field of every step."""
    keys = [(int(env), int(k)) for env, k in zip(store.env, store.episode, strict=True)]
    assert keys == sorted(expected)
    for e, key in enumerate(keys):
        row, steps = expected[key]
        names = ("seed", "length", "total", "success", "kind", "source")
        assert [getattr(store, name)[e].item() for name in names] == row
        rows = store.rows(np.arange(store.first[e], store.first[e + 1]))
        assert rows.action.tolist() == [action for _, action, _ in steps]
        assert rows.reward.tolist() == [reward for _, _, reward in steps]
        for name, field in store.layout.fields.items():
            column = rows.obs[name]
            if field.kind == "text":
                flat = store.texts(column.ravel())
                width = max(1, int(np.prod(field.shape, dtype=int)))
                told = [flat[i : i + width] for i in range(0, len(flat), width)] if field.shape else flat
                assert told == [step[name] for step, _, _ in steps], name
            else:
                np.testing.assert_array_equal(column, np.stack([step[name] for step, _, _ in steps]), err_msg=name)


@pytest.mark.parametrize("env", WORLDS)
def test_the_store_holds_every_finished_episode_with_all_that_the_world_showed(stage, env):
    at = stage(env, **WORLDS[env])
    made = setup(at, env, n=2, **WORLDS[env])
    actors = [RolloutActor(made, index) for index in range(2)]
    chunks = [[actor.rollout(weights(made), 1)[1] for _ in range(12)] for actor in actors]
    if "captions" in WORLDS[env]:
        assert "caption" not in chunks[0][0].obs  # which the policy does not read
    expected = lived(made, chunks)
    assert len(expected) > 8
    assert any(row[1] > 3 for row, _ in expected.values())  # longer than a chunk
    assert_holds(EpisodeStore(at.store), expected)


class Lived:
    """Chunks of these lengths, by the wrapper alone; actions are given, mostly to stay."""

    def __init__(self, at, lengths, env=TOY, **options):
        world = envs.make(env, 4, 3, **options)
        env = tee.Tee(world, 2, wrappers.Setting("test", stage=at.place, attempt=at.attempt))
        actions = iter(np.random.default_rng(0).choice(3, size=(sum(lengths), 4), p=(0.1, 0.8, 0.1)))
        env.begin()
        for sequence, length in enumerate(lengths):
            record = {name: [] for name in ("action", "episode", "reward", "terminated", "truncated", "final_index")}
            for t in range(length):
                action = next(actions)
                record["episode"].append(env.episode)
                transition = env.advance(action)
                record["action"].append(action)
                for name in ("reward", "terminated", "truncated"):
                    record[name].append(getattr(transition, name).copy())
                record["final_index"] += [(t, i) for i in transition.final_index]
            ended = np.array(record.pop("final_index"), np.int32).reshape(-1, 2)
            columns = {name: np.stack(rows) for name, rows in record.items()}
            chunk = SimpleNamespace(actor=0, sequence=sequence, env_index=env.env_index, final_index=ended, **columns)
            chunk.rewards = {"env": chunk.reward}
            env.finish(chunk)


@pytest.mark.parametrize(
    ("length", "env", "options"),
    [(1, TOY, {}), (2, TOY, {}), (8, TOY, {}), (12, TOY, {}), (8, "crafter/Standard", {"length": 5})],
)
def test_how_envs_are_cut_into_chunks_changes_nothing(stage, length, env, options):
    one, many = (stage(env, name, **options) for name in ("one", "many"))
    Lived(one, [24], env, **options)
    Lived(many, [length] * (24 // length), env, **options)
    whole, cut = EpisodeStore(one.store), EpisodeStore(many.store)
    assert len(whole) > 10
    assert whole.unfinished == cut.unfinished > 0
    for name in ("env", "episode", "seed", "length", "total", "success", "kind", "source", "first"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(cut, name), err_msg=name)
    every = np.arange(whole.steps)
    found, expected = cut.rows(every), whole.rows(every)
    np.testing.assert_array_equal(found.action, expected.action)
    np.testing.assert_array_equal(found.reward, expected.reward)
    for name in whole.layout.fields:
        np.testing.assert_array_equal(found.obs[name], expected.obs[name], err_msg=name)


@pytest.mark.parametrize("late", [False, True])
def test_of_a_chunk_that_is_played_again_the_successors_shard_counts(stage, late):
    """It plays with other weights; the one that it stands in for writes before it, or, given up too early, after."""
    at = stage()
    made = setup(at)
    lost = RolloutActor(made, 0)
    summary, first = lost.rollout(weights(made, 0), 1)
    successor = RolloutActor(made, 0, 1, summary.state)
    if not late:
        gone = [lost.rollout(weights(made, 0), 1)[1] for _ in range(2)]
    again = [successor.rollout(weights(made, 1), 2)[1] for _ in range(3)]
    if late:
        gone = [lost.rollout(weights(made, 0), 1)[1] for _ in range(2)]
    assert any((one.action != other.action).any() for one, other in zip(gone, again, strict=False))
    assert_holds(EpisodeStore(at.store), lived(made, [[first, *again]]))


def test_a_new_crew_comes_after_every_actor_of_the_one_before(stage):
    at = stage()
    made = setup(at)
    gone = RolloutActor(made, 0, incarnation=9).rollout(weights(made), 1)[1]
    chunk = RolloutActor(replace(made, crew=1), 0).rollout(weights(made, 1), 1)[1]
    assert (chunk.action != gone.action).any()
    assert_holds(EpisodeStore(at.store), lived(made, [[chunk]]))


def test_what_nobody_learned_is_forgotten(stage):
    at = stage()
    made = setup(at, n=2)
    actors = [RolloutActor(made, index) for index in range(2)]
    chunks = [[actor.rollout(weights(made), 1)[1] for _ in range(4)] for actor in actors]
    entries = tee.forget_unlearned(at.store, {0: 3}, at.attempt)
    assert list(entries) == list(shards(at.store)) == [tee.shard(0, k) for k in range(3)]
    assert len(list(at.store.glob("*"))) == 1 + 3 * 3  # the files too, but for store.json
    expected = lived(made, [chunks[0][:3]])
    assert_holds(EpisodeStore(at.store), expected)
    assert sum(entry["episodes"] for entry in entries.values()) == len(expected)


def test_nothing_else_is_changed(stage):
    made = setup(stage())
    bare = replace(made, wrappers={})
    for _ in range(2):
        (one, kept), (two, teed) = (RolloutActor(s, 0).rollout(weights(made), 1) for s in (bare, made))
        assert one.state.keys() == two.state.keys()  # nothing is carried
        for name, value in one.state.items():
            np.testing.assert_array_equal(value, two.state[name])
        for name in kept.obs:
            np.testing.assert_array_equal(kept.obs[name], teed.obs[name])
        assert kept.rewards.keys() == teed.rewards.keys()


def test_a_table_of_texts_that_is_begun_anew_changes_nothing(stage, monkeypatch):
    options = WORLDS["babyai/GoToLocal"]
    at = stage("babyai/GoToLocal", **options)
    made = setup(at, "babyai/GoToLocal", **options)
    actor = RolloutActor(made, 0)
    monkeypatch.setattr(rollout, "MOST_TEXTS", 0)
    chunks = [actor.rollout(weights(made), 1)[1] for _ in range(4)]
    assert_holds(EpisodeStore(at.store), lived(made, [chunks]))


def test_its_time_is_its_own_and_evaluation_is_not_kept(stage):
    at = stage()
    made = setup(at)
    actor = RolloutActor(made, 0)
    actor.rollout(weights(made), 1)
    assert actor.numbers()["actor/seconds/tee"] > 0
    before = list(shards(at.store))
    actor.evaluate(weights(made), 1, envs.HELD_OUT_FIRST + np.arange(4), "policy", True, 0)
    assert list(shards(at.store)) == before


def test_without_a_stage_or_a_store_there_is_one_sentence(stage):
    made = setup(stage())
    for lacking, error, said in (
        (replace(made, stage=None), ValueError, "there is none here"),
        (replace(made, stage=made.stage / "checkpoints"), StoreError, "is no store of episodes"),
    ):
        with pytest.raises(error, match=said):
            RolloutActor(lacking, 0).rollout(weights(made), 1)


def test_a_configuration_says_whether_episodes_are_kept():
    assert "tee" not in wrappers.chosen(compose(["env=toy/Line"]))
    for method in ("ppo", "dqn"):
        config = compose(["env=toy/Line", f"method={method}", "method.tee=true", "actors.n=3"])
        assert wrappers.chosen(config)["tee"].actors == 3
        assert config.spec == compose(["env=toy/Line", f"method={method}"]).spec
    with pytest.raises(Exception, match=r"unknown key method\.tee"):
        compose(["env=toy/Line", "method=cloning", "method.tee=true"])


def test_an_actor_that_keeps_nothing_does_not_import_arrow():
    code = "import sys; from actors import wrappers; wrappers.names(); print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "False\n"
