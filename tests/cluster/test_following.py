"""Whether robots follow texts: each measure by hand, and what must hold of any robots."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.metrics import following
from cluster.metrics.following import Played, Seed, normalised, two_alternative
from learner.behaviours.trials import Trial
from learner.behaviours.words import obeyed

WEST, EAST = ["stove", "fan", "cabinet", "bed"], ["chair", "table", "sofa", "bed"]


def trial(own, rival, pair, kind="how", wording="described", begins="map"):
    return Trial("go", own, rival, [0.0, 0.0], [0.0, 0.0, 0.0], pair, pair, kind, wording, begins)


def pairs(count):
    """Trials of `count` pairs: each pair's first is asked to go west, its second east."""
    return [trial(*own, pair) for pair in range(count) for own in ((WEST, EAST), (EAST, WEST))]


def played(asked, routes, error=0.1):
    """Robots that drive routes [P][R], and end at the last place of each."""
    score, rival = np.full((2, len(asked), len(routes[0])), np.nan)
    for p, (t, own) in enumerate(zip(asked, routes, strict=True)):
        score[p] = [obeyed(t.wanted, r, set(r[-1:])) for r in own]
        if t.rival:
            rival[p] = [obeyed(t.rival, r, set(r[-1:])) for r in own]
    return Played(score, rival, np.full(score.shape, error))


def table(*seeds):
    return {(row["arm"], row["trials"], row["metric"]): row for row in following.rows(list(seeds))}


def test_the_measures_by_hand():
    """Two pairs. The first robot does as asked, the second goes west always, the third to the end only, the fourth
    passes half of each way."""
    asked = pairs(2)
    routes = [[WEST], [WEST], [["bed"]], [["chair", "fan", "bed"]]]
    blind = played(asked, [[WEST]] * 4, 0.0)
    text = played(asked, routes)
    assert text.score[:, 0].tolist() == [1.0, 0.4, 0.4, 0.6]  # the last place in order, and as the end
    assert text.rival[:, 0].tolist() == [0.4, 1.0, 0.4, 0.6]
    assert two_alternative(text.score, text.rival)[:, 0].tolist() == [1.0, 0.0, 0.5, 0.5]
    found = table(Seed(7, asked, {"text": text, "text_blind_replay": blind}))
    assert found["text", "all", "two_alternative"]["value"] == 0.5
    assert found["text", "all", "obedience"]["value"] == pytest.approx(0.6)
    assert found["text_blind_replay", "all", "obedience"]["value"] == pytest.approx(0.7)
    assert found["text", "all", "normalised_obedience"]["value"] == pytest.approx((0.6 - 0.7) / (1 - 0.7))
    assert found["text", "all", "distance"]["value"] == 0.1
    assert found["text - text_blind_replay", "all", "distance"]["value"] == 0.1
    assert found["text", "how", "obedience"]["n"] == 4
    assert found["text", "how", "obedience"]["seeds"] == [7]
    assert ("text", "plain", "obedience") not in found  # there are none


def test_a_median_is_numpys_of_the_draws_too():
    random = np.random.default_rng(0)
    asked = pairs(9)
    error = random.random((18, 3))
    arm = Played(np.zeros((18, 3)), np.zeros((18, 3)), error)
    found = following._Set(Seed(0, asked, {"text": arm}), "", "")
    drawn = found.drawn("text", "distance")
    assert drawn[0] == np.median(error)
    assert found.drawn("text", "best_distance")[0] == np.median(error.min(1))
    for resample in range(1, 30):
        times = found.weight[resample].astype(int)
        assert drawn[resample] == np.median(np.repeat(error, times, axis=0))
        assert set(times[::2] - times[1::2]) == {0}  # pairs stay together


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=40))
def test_swapping_own_and_rival_gives_one_minus_the_accuracy(scores):
    own, rival = np.array(scores, np.float64).T[:, :, None] / 5
    np.testing.assert_allclose(two_alternative(rival, own), 1 - two_alternative(own, rival))
    asked = [trial(WEST, EAST, pair) for pair in range(len(own))]
    error = np.zeros_like(own)
    arms = {"text": Played(own, rival, error), "text_blind_replay": Played(rival, own, error)}
    found = table(Seed(0, asked, arms))
    values = [found[arm, "all", "two_alternative"]["value"] for arm in arms]
    assert values[0] == pytest.approx(1 - values[1])


def test_whoever_drives_the_described_routes_has_full_marks():
    asked = pairs(20)
    perfect = played(asked, [[t.wanted, t.wanted] for t in asked])
    found = table(Seed(0, asked, {"text": perfect, "text_blind_replay": played(asked, [[WEST]] * 40)}))
    for metric in ("two_alternative", "normalised_obedience", "obedience"):
        row = found["text", "all", metric]
        assert (row["value"], row["low"], row["high"]) == (1, 1, 1), metric


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_whoever_reads_no_text_is_right_half_of_the_time(seed):
    """With target, start and noise held, such a robot drives the same for both texts: exactly a half, in every draw."""
    random = np.random.default_rng(seed)
    asked = pairs(30)
    ways = [random.permutation(WEST + EAST)[: random.integers(1, 9)].tolist() for _ in range(30)]
    blind = played(asked, [[way] for way in ways for _ in range(2)])
    floor = played(asked, [[WEST]] * 60)
    row = table(Seed(0, asked, {"no_text": blind, "text_blind_replay": floor}))["no_text", "all", "two_alternative"]
    assert (row["value"], row["low"], row["high"]) == pytest.approx((0.5, 0.5, 0.5))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_who_drives_anew_without_reading_has_a_half_in_the_interval(seed):
    """With noise of its own for each text. 95 % intervals miss: their bounds are given half of their width more."""
    random = np.random.default_rng(seed)
    asked = pairs(200)
    drives = played(asked, [[(WEST, EAST)[random.integers(2)]] for _ in asked])
    row = table(Seed(0, asked, {"no_text": drives, "text_blind_replay": drives}))["no_text", "all", "two_alternative"]
    reach = row["high"] - row["low"]
    assert row["low"] - reach / 2 < 0.5 < row["high"] + reach / 2
    assert 0.05 < reach < 0.2


def test_the_floor_is_zero_and_a_lookup_that_reads_is_above():
    asked = pairs(10)
    blind, aware = played(asked, [[WEST]] * 20), played(asked, [[t.wanted] for t in asked])
    found = table(Seed(0, asked, {"text_blind_replay": blind, "text_aware_replay": aware}))
    row = found["text_blind_replay", "all", "normalised_obedience"]
    assert (row["value"], row["low"], row["high"]) == (0, 0, 0)
    assert found["text_aware_replay", "all", "normalised_obedience"]["value"] == 1
    assert np.isnan(normalised(np.ones(1), np.ones(1)))


def test_sets_of_trials_are_told_apart():
    asked = [
        trial(WEST, EAST, k, "how", w, b) for k, (w, b) in enumerate([("described", "map"), ("reworded", "nearby")])
    ]
    asked.append(trial(WEST, [], 2, "plain"))
    text = played(asked, [[WEST], [EAST], [["bed"]]])
    found = table(Seed(0, asked, {"text": text, "text_blind_replay": text}))
    expected = {"all": 0.6, "plain": 0.4, "how": 0.7, "described": 0.7, "reworded": 0.4, "map": 0.7, "nearby": 0.4}
    assert {case: found["text", case, "obedience"]["value"] for case in expected} == pytest.approx(expected)
    assert found["text", "all", "two_alternative"]["value"] == 0.5
    assert found["text", "all", "two_alternative"]["n"] == 2  # a plain trial has no rival
    assert ("text", "plain", "two_alternative") not in found


def test_arms_are_compared_pair_by_pair():
    """Obedience differs much from pair to pair, and by little between arms: the difference is known well."""
    random = np.random.default_rng(0)
    asked = pairs(60)
    base = np.repeat(random.random(60), 2)[:, None] * 0.9
    better = Played(base + 0.05, base, base)
    found = table(Seed(0, asked, {"text": better, "no_text": Played(base, base, base), "text_blind_replay": better}))
    apart, alone = found["text - no_text", "all", "obedience"], found["text", "all", "obedience"]
    assert apart["value"] == pytest.approx(0.05)
    assert apart["high"] - apart["low"] < 1e-9 < alone["high"] - alone["low"]


def of_seeds(*values):
    """Arms of seeds with these values of obedience; the floor is the first one."""
    asked = pairs(50)
    arms = [Played(np.full((100, 1), value), np.zeros((100, 1)), np.zeros((100, 1))) for value in values]
    return table(*(Seed(k, asked, {"text": arm, "text_blind_replay": arms[0]}) for k, arm in enumerate(arms)))


def test_seeds_that_differ_widen_the_interval_to_students():
    found = of_seeds(0.2, 0.5, 0.8)
    row = found["text - text_blind_replay", "all", "obedience"]
    reach = 4.302653 * np.std([0, 0.3, 0.6], ddof=1) / 3**0.5
    assert (row["low"], row["high"]) == pytest.approx((0.3 - reach, 0.3 + reach))
    found = of_seeds(0.4, 0.5, 0.6)
    row = found["text", "all", "obedience"]
    reach = 4.302653 * np.std([0.4, 0.5, 0.6], ddof=1) / 3**0.5
    assert row["value"] == pytest.approx(0.5)
    assert (row["low"], row["high"]) == pytest.approx((0.5 - reach, 0.5 + reach))
    assert row["seeds"] == [0, 1, 2]
    same = found["text_blind_replay", "all", "obedience"]
    assert (same["low"], same["high"]) == pytest.approx((0.4, 0.4))


def test_an_interval_ends_where_its_measure_does():
    found = of_seeds(0.1, 0.5, 0.9)
    assert [found["text", "all", "obedience"][end] for end in ("low", "high")] == [0, 1]
    assert found["text", "all", "normalised_obedience"]["high"] <= 1
    assert found["text", "all", "distance"]["low"] == 0
