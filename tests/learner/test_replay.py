"""The replay against lists of steps: what is drawn was lived, whatever was overwritten, lost or replayed twice."""

import json
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.api import Field
from learner.store.columns import ReplayError
from learner.store.priorities import SumTree
from learner.store.replay import Replay
from tests.learner.lives import APART, Lives, n_step

DISCOUNT = 0.9


def plain(walk):
    """Rewards as they are: the two columns of a life add up to the number that was drawn."""
    return walk.rewards["env"] + walk.rewards["goal"]


def replay_of(lives, length, n=3, **options):
    index = np.concatenate([life.env_index for life in lives])
    return Replay(lives[0].fields, 3, index, length * len(index), n, **options)


def drawn(replay, n=64, seed=0, discount=DISCOUNT):
    return replay.sample(n, np.random.default_rng(seed), discount, plain)


def assert_lived(replay, sample, lives, n):
    """Every row of a sample is what the loop over the steps of its env says. Returns the numbers drawn."""
    numbers = sample.obs["number"][:, 0].astype(int)
    by_number = {step.obs: (steps, i) for life in lives for steps in life.steps for i, step in enumerate(steps)}
    for b, number in enumerate(numbers.tolist()):
        steps, i = by_number[number]
        total, discount, following = n_step(steps, i, n, DISCOUNT)
        assert sample.action[b] == steps[i].action
        assert sample.reward[b] == pytest.approx(total, abs=1e-5)
        assert sample.discount[b] == pytest.approx(discount, abs=1e-6)
        assert sample.following["number"][b, 0] == following
        for obs, k in ((sample.obs, number), (sample.following, following)):
            assert obs["kind"][b] == k % 300
            assert (obs["view"][b] == k % 256).all()
            assert replay.texts[obs["said"][b]] == f"text {k % 7}"
    assert sample.obs["kind"].dtype == np.int64
    return set(numbers.tolist())


def may_be_drawn(life, n):
    """Numbers of steps after which n rows came; an episode's end is a row too."""
    return {
        step.obs
        for e, steps in enumerate(life.steps)
        for step in steps
        if step.obs + n < life.number[e]  # the last observation has no row yet
    }


@given(
    length=st.integers(1, 6), envs=st.integers(1, 3), chunks=st.integers(1, 12), n=st.integers(1, 4),
    ends=st.sampled_from([0.0, 0.2, 0.6, 1.0]), seed=st.integers(0, 99),
)  # fmt: skip
@settings(deadline=None, database=None, max_examples=60)
def test_what_is_drawn_was_lived(length, envs, chunks, n, ends, seed):
    lives = [Lives(envs, seed, actor) for actor in range(2)]
    replay = replay_of(lives, 4 * length + n + 3, n)
    for _ in range(chunks):
        for life in lives:
            assert replay.insert(life.some(length, ends)) == length * envs
    whole = set().union(*(may_be_drawn(life, n) for life in lives))
    if not whole:
        with pytest.raises(ValueError, match="nothing to draw"):
            drawn(replay)
    else:
        assert assert_lived(replay, drawn(replay, seed=seed), lives, n) <= whole


@pytest.mark.parametrize("kind", ["terminated", "truncated"])
@pytest.mark.parametrize("at", range(11))
def test_an_end_at_every_offset_of_two_chunks(kind, at):
    flags = {"terminated": np.zeros((12, 1), bool), "truncated": np.zeros((12, 1), bool)}
    flags[kind][at] = True
    life = Lives(1)
    replay = replay_of([life], 60)
    for part in (slice(0, 5), slice(5, 10), slice(10, 12)):
        replay.insert(life.chunk(flags["terminated"][part], flags["truncated"][part]))
    assert assert_lived(replay, drawn(replay, 256), [life], 3) == may_be_drawn(life, 3)


def test_all_rows_are_equally_likely_and_the_ends_are_never_drawn():
    life = Lives(2)
    replay = replay_of([life], 200)
    for _ in range(10):
        replay.insert(life.some(10))
    expected = may_be_drawn(life, 3)
    numbers = np.concatenate([drawn(replay, 500, seed).obs["number"][:, 0] for seed in range(40)])
    found, counts = np.unique(numbers, return_counts=True)
    assert set(found.astype(int)) == expected
    even = len(numbers) / len(expected)
    assert ((counts - even) ** 2 / even).sum() < chi_square_bound(len(expected) - 1)


def chi_square_bound(freedom):
    """Exceeded by one in ten thousand (Wilson and Hilferty's approximation)."""
    return freedom * (1 - 2 / (9 * freedom) + 3.72 * (2 / (9 * freedom)) ** 0.5) ** 3


def test_lanes_are_rings_and_their_oldest_tenth_rests():
    life = Lives(2)
    replay = replay_of([life], 50)
    for _ in range(40):
        replay.insert(life.some(5, ends=0.0))
    found = set().union(*(assert_lived(replay, drawn(replay, 200, seed), [life], 3) for seed in range(5)))
    assert found == {e * APART + k for e in range(2) for k in range(200 - 50 + 5, 200 - 3)}
    assert replay.rows == len(found)


def test_a_chunk_is_inserted_once():
    life = Lives(2)
    replay = replay_of([life], 100)
    first, second, third = (life.some(5) for _ in range(3))
    assert [replay.insert(chunk) for chunk in (first, second, second, first, third)] == [10, 10, 0, 0, 10]
    assert replay.ignored == 2
    assert assert_lived(replay, drawn(replay), [life], 3) <= may_be_drawn(life, 3)


def test_nothing_is_made_up_where_a_chunk_never_came():
    """The last observation before the gap is one that nothing is known to have followed."""
    life = Lives(1)
    replay = replay_of([life], 100, 2)
    quiet = np.zeros((5, 1), bool)
    before, _, after = (life.chunk(quiet, quiet) for _ in range(3))
    replay.insert(before)
    replay.insert(after)
    sample = drawn(replay, 200)
    numbers = sample.obs["number"][:, 0].astype(int)
    assert set(numbers) == {0, 1, 2, 3, 10, 11, 12}  # 4 was the last before the gap
    last = numbers == 3
    assert (sample.following["number"][last, 0] == 4).all()
    assert sample.discount[last] == pytest.approx(DISCOUNT)
    assert (sample.following["number"][numbers >= 10, 0] == numbers[numbers >= 10] + 2).all()


def test_steps_may_be_valued_anew_by_what_was_seen_before_and_after():
    def covered(walk):
        seen = walk.observe(walk.row)["number"][..., 0]
        return 10 * (seen[:, 1:] - seen[:, :-1]) + np.where(walk.live, 0, np.nan)

    life = Lives(2)
    replay = replay_of([life], 100)
    for _ in range(5):
        replay.insert(life.some(8))
    sample = replay.sample(64, np.random.default_rng(0), DISCOUNT, covered)
    steps = sample.following["number"][:, 0] - sample.obs["number"][:, 0]
    assert set(steps) == {1, 2, 3}
    np.testing.assert_allclose(sample.reward, 10 * (1 - DISCOUNT**steps) / (1 - DISCOUNT), rtol=1e-5)


def test_frames_are_stacked_within_an_episode():
    fields = {"number": Field("vector", (1,)), "frame": Field("pixels", (2, 2, 1))}
    life = Lives(2, fields=fields)
    replay = replay_of([life], 40, stack=4)
    for _ in range(30):
        replay.insert(life.some(5, ends=0.15))
        if replay.rows < 10:
            continue
        sample = drawn(replay, 32)
        first = {number: s.first for steps in life.steps for s in steps for number in (s.obs, s.following)}
        for obs in (sample.obs, sample.following):
            numbers = obs["number"][:, 0].astype(int)
            assert obs["frame"].shape == (32, 4, 2, 2, 1)
            begins = np.array([first[k] for k in numbers])
            expected = np.maximum(numbers[:, None] + np.arange(-3, 1), begins[:, None]) % 256
            np.testing.assert_array_equal(obs["frame"][..., 0, 0, 0], expected)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(0, 99))
@settings(deadline=None, database=None, max_examples=50)
def test_the_tree_finds_what_the_running_sum_finds(priorities, seed):
    tree, random = SumTree(len(priorities)), np.random.default_rng(seed)
    for row in random.permutation(len(priorities)):
        tree.set(np.array([row]), np.array([float(priorities[row])]))
    assert tree.total == sum(priorities)
    again = SumTree(len(priorities))
    again.replace(np.array(priorities, float))
    mass = random.random(50) * tree.total
    if tree.total:
        expected = np.searchsorted(np.cumsum(priorities), mass, side="right")
        for one in (tree, again):
            np.testing.assert_array_equal(one.find(mass), expected)


def test_rows_are_drawn_in_proportion_to_their_priority_and_weighed_back():
    life, alpha, beta = Lives(2), 0.6, 0.5
    replay = replay_of([life], 100, alpha=alpha)
    for _ in range(5):
        replay.insert(life.some(8))
    expected = sorted(may_be_drawn(life, 3))
    assert len(np.unique(replay.tree.leaves[replay.tree.leaves > 0])) == 1  # new rows are alike
    rows = {int(n): r for n, r in zip(drawn(replay, 2000).obs["number"][:, 0], drawn(replay, 2000).row, strict=True)}
    assert sorted(rows) == expected
    errors = np.random.default_rng(1).random(len(expected)).astype(np.float32) * 3
    replay.prioritise(np.array([rows[n] for n in expected]), errors)
    probability = (errors.astype(float) + 1e-6) ** alpha
    probability /= probability.sum()
    samples = [replay.sample(500, np.random.default_rng(seed), DISCOUNT, plain, beta) for seed in range(40)]
    numbers = np.concatenate([sample.obs["number"][:, 0] for sample in samples]).astype(int)
    counts = np.array([(numbers == n).sum() for n in expected])
    even = len(numbers) * probability
    assert ((counts - even) ** 2 / even).sum() < chi_square_bound(len(expected) - 1)
    of = dict(zip(expected, probability, strict=True))
    weight = np.array([(len(expected) * of[int(n)]) ** -beta for n in samples[0].obs["number"][:, 0]])
    np.testing.assert_allclose(samples[0].weight, weight / weight.max(), rtol=1e-4)
    before = replay.largest
    assert before == pytest.approx(float(replay.tree.leaves.max()))
    replay.insert(life.some(8))
    assert (replay.tree.leaves == before).sum() > 3  # what came has the largest priority so far


@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_priorities_follow_the_window_round_the_ring(alpha):
    lives = [Lives(2, actor=actor) for actor in range(2)]
    replay = replay_of(lives, 40, alpha=alpha)
    for _ in range(30):
        for life in lives:
            replay.insert(life.some(6))
        if replay.tree is not None:
            inside = replay._between(np.arange(4), *replay._window())
            assert set(np.flatnonzero(replay.tree.leaves)) == set(inside[replay.columns["acted"][inside]])
            assert_lived(replay, drawn(replay), lives, 3)


# ---- at rest --------------------------------------------------------------------------------------------------------


def same(one, other):
    for name in ("row", "action", "reward", "discount", "weight"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in one.obs:
        np.testing.assert_array_equal(one.obs[name], other.obs[name])
        np.testing.assert_array_equal(one.following[name], other.following[name])


@pytest.mark.parametrize("alpha", [0.0, 0.7])
@pytest.mark.parametrize("since", [0, 1, 2])
def test_a_learner_that_goes_back_draws_what_it_would_have_drawn(tmp_path, alpha, since):
    life = Lives(2)
    replay = replay_of([life], 200, alpha=alpha, folder=tmp_path / "replay")
    for _ in range(60):
        replay.insert(life.some(5, ends=0.2))
    replay.prioritise(drawn(replay).row, np.linspace(0, 2, 64, dtype=np.float32))
    state = {name: value.copy() for name, value in replay.state().items()}
    expected, texts = drawn(replay, seed=1), len(replay.texts)
    chunks = [life.some(5, ends=0.2) for _ in range(4)]
    for chunk in chunks[:since]:  # at most 20 rows of a lane, which is what rests
        replay.insert(chunk)
    shutil.copytree(tmp_path / "replay", tmp_path / "again")  # as the process left it
    again = replay_of([life], 200, alpha=alpha, folder=tmp_path / "again")
    again.restore(state)
    assert again.lost == 0
    assert len(again.texts) == texts
    same(drawn(again, seed=1), expected)
    for chunk in chunks:
        again.insert(chunk)
    for chunk in chunks[since:]:
        replay.insert(chunk)
    same(drawn(again, seed=2), drawn(replay, seed=2))


@pytest.mark.parametrize(
    ("since", "lost", "left"), [(4, 0, 177), (5, 5, 177), (20, 80, 127), (45, 177, 27), (80, 177, 27)]
)
def test_rows_that_were_overwritten_since_are_given_up_and_counted(tmp_path, since, lost, left):
    life = Lives(1)
    replay = replay_of([life], 200, folder=tmp_path)
    for _ in range(50):
        replay.insert(life.some(5, ends=0.0))
    state = replay.state()
    chunks = [life.some(5, ends=0.0) for _ in range(since + 6)]
    for chunk in chunks[:since]:
        replay.insert(chunk)
    again = replay_of([life], 200, folder=tmp_path)
    again.restore(state)
    assert again.lost == lost
    for chunk in chunks[:6]:  # they are lived again
        again.insert(chunk)
    assert again.rows == left
    assert assert_lived(again, drawn(again, 200), [life], 3) <= set(range(277 - left, 277))


def test_rows_in_memory_end_with_the_process():
    life = Lives(2)
    replay = replay_of([life], 100)
    for _ in range(4):
        replay.insert(life.some(5, ends=0.0))
    again = replay_of([life], 100)
    again.restore(replay.state())
    assert (again.rows, again.lost) == (0, 34)
    assert again.insert(life.some(5)) == 10


def test_what_is_on_disk_is_small_and_plain(tmp_path):
    life = Lives(2)
    replay = replay_of([life], 100, folder=tmp_path)
    replay.insert(life.some(5))
    replay.state()
    assert {path.suffix for path in tmp_path.iterdir()} == {".raw", ".json", ".jsonl"}
    kinds = {name: kind for name, kind, _ in json.loads((tmp_path / "schema.json").read_text())["columns"]}
    assert kinds == {
        "action": "uint8", "acted": "bool", "terminated": "bool", "reward.env": "float32", "reward.goal": "float32",
        "obs.number": "float32", "obs.kind": "uint16", "obs.view": "uint8", "obs.said": "int32",
    }  # fmt: skip
    assert (tmp_path / "07-obs.view.raw").stat().st_size == 200 * 6
    assert set(map(json.loads, (tmp_path / "texts.jsonl").read_text().splitlines())) <= {f"text {k}" for k in range(7)}
    life = Lives(2)
    afresh = replay_of([life], 100, folder=tmp_path)  # a new learner without a checkpoint begins with nothing
    afresh.insert(life.some(3))
    assert afresh.columns["acted"].sum() == 6


def test_what_does_not_fit_is_refused(tmp_path):
    life = Lives(2)
    replay = replay_of([life], 100, folder=tmp_path)
    with pytest.raises(ValueError, match="no lanes for the envs of actor 1"):
        replay.insert(Lives(2, actor=1).some(5))
    with pytest.raises(ValueError, match="too short for chunks of 26"):
        replay.insert(life.some(26))
    life = Lives(2)
    first, second = life.some(5), life.some(5)
    replay.insert(first)
    second.rewards["env"][1, 1] = np.nan
    before = replay.state()
    with pytest.raises(FloatingPointError, match="chunk 1 of actor 0"):
        replay.insert(second)
    assert all((value == before[name]).all() for name, value in replay.state().items())
    del second.rewards["env"]
    with pytest.raises(ReplayError, match=r"reward\.env differ"):
        replay.insert(second)


@pytest.mark.parametrize(("before", "after"), [(0.0, 0.7), (0.7, 0.0)])
def test_priorities_may_begin_and_end_within_a_run(tmp_path, before, after):
    life = Lives(2)
    replay = replay_of([life], 100, alpha=before, folder=tmp_path)
    for _ in range(30):
        replay.insert(life.some(5))
    replay.prioritise(drawn(replay).row, np.full(64, 9, np.float32))
    again = replay_of([life], 100, alpha=after, folder=tmp_path)
    again.restore(replay.state())
    assert (again.lost, again.rows) == (0, replay.rows)
    assert_lived(again, drawn(again), [life], 3)
    if again.tree is not None:  # all that may be drawn, alike
        inside = again._between(np.arange(2), *again._window())
        drawable = set(inside[again.columns["acted"][inside]])
        assert set(np.flatnonzero(again.tree.leaves == again.largest)) == drawable
        assert set(np.flatnonzero(again.tree.leaves)) == drawable
