"""From archives to what is learned from: gathering, clusters, words, trials, baselines, agreement."""

import itertools
import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.behaviours.novelty import EvaluatorSetup, NoveltyEvaluator
from envs import navigation
from envs.navigation import PARAMETERS
from learner.behaviours import trials, words
from learner.behaviours.agreement import agreement, kendall, pearson, spearman
from learner.behaviours.baselines import replayed
from learner.behaviours.clusters import centres
from learner.behaviours.demonstrations import UNKNOWN
from learner.behaviours.gather import GatherConfig, gather, nearby
from learner.behaviours.table import Behaviours
from learner.search.novelty_search import columns
from learner.store.archive import Archive, ArchiveError
from learner.store.episodes import EpisodeStore, StoreError

LENGTH = 80
HOUSE = navigation.load()
SCENE = navigation.Scene(HOUSE)


def an_archive(folder, policies, ids=None):
    played = NoveltyEvaluator(EvaluatorSetup("", LENGTH)).play(policies)
    count = len(policies)
    archive = Archive(folder, 2, columns(PARAMETERS, LENGTH), {"made": folder.name})
    payload = {"weights": policies, "action": played.action, "effort": played.effort}
    payload |= {"novelty": np.ones(count), "generation": np.zeros(count, np.int32)}
    archive.append(np.arange(count) if ids is None else ids, played.descriptor, payload)
    archive.flush()
    return archive


def policies(count, seed=0):
    return np.random.default_rng(seed).normal(0, 0.4, (count, PARAMETERS)).astype(np.float32)


# ---- gathering -------------------------------------------------------------------------------------------------------


def test_a_store_holds_every_behaviour_once(tmp_path):
    found = policies(12)
    first, second = an_archive(tmp_path / "a", found[:8]), an_archive(tmp_path / "b", found[5:])
    table = gather([first, second], HOUSE, LENGTH, GatherConfig(), 0, tmp_path / "store", {})
    assert len(table) == 12
    assert table.archive.tolist() == [0] * 8 + [1] * 4
    store = EpisodeStore(tmp_path / "store")
    assert store.seed.tolist() == table.id.tolist()
    played = navigation.rollout(HOUSE, None, found, LENGTH)
    steps = store.rows(np.arange(store.steps))
    assert steps.action.reshape(12, LENGTH, 2).tolist() == played["action"].tolist()
    assert steps.obs["observation"].reshape(12, LENGTH, 5).tolist() == played["obs"].tolist()
    assert table.descriptor.tolist() == played["pose"][:, -1, :2].tolist()
    again = Behaviours.load(tmp_path / "store")
    assert all(np.array_equal(getattr(again, name), getattr(table, name)) for name in vars(table))


def test_copies_begin_nearby_and_stay_in_their_group(tmp_path):
    archive = an_archive(tmp_path / "a", policies(10))
    table = gather([archive], HOUSE, LENGTH, GatherConfig(copies=2), 5, tmp_path / "store", {})
    assert len(table) == 30
    assert len(set(table.id.tolist())) == 30
    own = table.id % 2**36
    for number in range(10):
        assert len(set(table.group[own == number].tolist())) == 1
    apart = np.abs(table.start - np.array(HOUSE.start, np.float32))
    assert (apart[:10] == 0).all()
    assert (apart[10:].max(0) <= [15, 15, np.radians(15) + 1e-6]).all()
    assert (apart[10:].max(0) > [8, 8, np.radians(8)]).all()
    expected = navigation.rollout(HOUSE, table.start, table.weights, LENGTH)["pose"][:, -1, :2]
    assert table.descriptor.tolist() == expected.tolist()


def test_who_stands_too_long_is_left_out(tmp_path):
    found = policies(20)
    archive = an_archive(tmp_path / "a", found)
    table = gather([archive], HOUSE, LENGTH, GatherConfig(still=0.25, copies=1), 5, tmp_path / "store", {})
    expected = []
    for copy in range(2):
        start = nearby(HOUSE, copy * 2**36 + np.arange(20), 5, 15.0, 15.0) if copy else None
        for number, pose in enumerate(navigation.rollout(HOUSE, start, found, LENGTH)["pose"]):
            standing = np.hypot(*np.diff(pose[:, :2], axis=0).T) < 0.05
            expected += [copy * 2**36 + number] * int(np.mean(standing) <= 0.25)
    assert table.id.tolist() == expected
    assert 5 < len(expected) < 35
    assert len(EpisodeStore(tmp_path / "store")) == len(expected)


def test_an_archive_of_another_house_is_refused(tmp_path):
    archive = an_archive(tmp_path / "a", policies(4))
    tree = HOUSE.as_json()
    tree["start_pose_deg"] = [300, 350, 0]
    with pytest.raises(ArchiveError, match="another house or simulator"):
        gather([archive], navigation.load(tree), LENGTH, GatherConfig(), 0, tmp_path / "store", {})


def test_nothing_to_gather_is_a_sentence(tmp_path):
    archive = Archive(tmp_path / "a", 2, columns(PARAMETERS, LENGTH), {})
    with pytest.raises(ArchiveError, match="search longer"):
        gather([archive], HOUSE, LENGTH, GatherConfig(), 0, tmp_path / "store", {})


def test_a_missing_table_is_a_sentence(tmp_path):
    with pytest.raises(StoreError, match="run the stage merge again"):
        Behaviours.load(tmp_path)


def test_starts_nearby_follow_from_seed_and_number_and_are_free():
    ids = np.arange(300)
    found = nearby(HOUSE, ids, 1, 60.0, 180.0)
    assert navigation.free(HOUSE, found).all()
    assert found[200:].tolist() == nearby(HOUSE, ids[200:], 1, 60.0, 180.0).tolist()
    assert found.tolist() != nearby(HOUSE, ids, 2, 60.0, 180.0).tolist()


# ---- clusters --------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-40, 40), min_size=1, max_size=60), st.integers(1, 5))
def test_centres_are_the_means_of_what_is_nearest(tenths, count):
    values = np.array(tenths, np.float32) / 10
    found = centres(values, count)
    assert len(found) == min(count, len(set(tenths)))
    assert (np.diff(found) > 0).all()
    cluster = np.abs(values[:, None] - found).argmin(1)
    for number, centre in enumerate(found):
        assert abs(values[cluster == number].astype(np.float64).mean() - centre) < 1e-5


def test_centres_find_what_is_there():
    random = np.random.default_rng(0)
    values = np.concatenate([random.normal(c, 0.05, n) for c, n in ((-3, 50), (0, 5000), (2, 300), (3.5, 40))])
    np.testing.assert_allclose(centres(values.astype(np.float32), 4), [-3, 0, 2, 3.5], atol=0.05)


# ---- words -----------------------------------------------------------------------------------------------------------


def test_texts_name_places_in_order():
    text = "Please go to the File Cabinet, then the cabinet; cross the red floor to the bed, the bed and bedroom."
    assert words.asked(SCENE, text) == ["file cabinet", "cabinet", "red tile", "bed"]
    assert words.asked(SCENE, "dance") == []


def test_synonyms_of_the_map_stand_for_its_places():
    text = "From the Couch over grey ground to the filing cabinet, the cupboard and the bath, then a bathroom."
    assert words.asked(SCENE, text) == ["sofa", "gray tile", "file cabinet", "cabinet", "bathtub"]
    assert words.asked(SCENE, "the settee, the sofa, the couch") == ["sofa"]
    tree = HOUSE.as_json() | {"objects": [{"name": "Grand_Piano", "x": 98, "y": 175}]}
    scene = navigation.Scene(navigation.load(tree | {"synonyms": {"Grand_Piano": ["Steinway"], "sofa": ["couch"]}}))
    assert words.asked(scene, "to the couch, the steinway, the blue tile, the grand piano") == [
        "Grand Piano",
        "blue tile",
        "Grand Piano",
    ]


def test_ways_are_those_of_the_compass_with_y_up():
    places = [(50, 50), (50, 80), (60, 79), (100, 100), (94, 20), (94, 14), (20, 14), (10, 40), (10, 40)]
    ways = [" north", " east", " north east", " south", "", " west", " north west", ""]
    assert words.headed(places) == [f"drive{way}" for way in ways]
    assert words.headed(places[:1]) == []


def test_the_end_stands_in_a_text_before_its_last_mark():
    assert words.with_end("Go to the bed.", (311.6, 87.2)) == "Go to the bed [x=312, y=87]."
    assert words.with_end("Could you go to the bed?", (0, 600)) == "Could you go to the bed [x=0, y=600]?"
    assert words.with_end("go to the bed", (5, 6)) == "go to the bed [x=5, y=6]"


def test_a_judge_is_told_where_a_robot_was():
    pose = navigation.rollout(HOUSE, None, policies(2, 3), 100)["pose"]
    symbols = SCENE.symbols(pose)
    for n in range(2):
        told, plain = words.told(SCENE, symbols, n, positions=True), words.told(SCENE, symbols, n)
        assert [moment[:-1] for moment in told] == plain
        x, y = pose[n, -1, 0] / 3, 200 - pose[n, -1, 1] / 3
        assert [float(v) for v in re.findall(r"\d+", told[-1][-1])] == pytest.approx([x, y], abs=0.51)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from("abcd"), max_size=5), st.lists(st.sampled_from("abcd"), max_size=8))
def test_obedience_is_the_longest_common_subsequence_and_the_end(wanted, route):
    best = max(
        n
        for n in range(len(wanted) + 1)
        for chosen in itertools.combinations(wanted, n)
        if any(tuple(route[i] for i in at) == chosen for at in itertools.combinations(range(len(route)), n))
    )
    assert words.in_order(wanted, route) == best
    last = {"a"}
    if wanted:
        expected = (best + (wanted[-1] in last)) / (len(wanted) + 1)
        assert words.obeyed(wanted, route, last) == expected
    else:
        assert words.obeyed(wanted, route, last) == 0


def test_what_is_told_was_visited():
    pose = navigation.rollout(HOUSE, None, policies(40, 3), 400)["pose"]
    symbols, (routes, last) = SCENE.symbols(pose), words.visited(SCENE, pose)
    for n in range(40):
        said = " ".join(sentence for moment in words.told(SCENE, symbols, n) for sentence in moment)
        assert set(words.asked(SCENE, said)) <= set(routes[n])
        for place in set(routes[n]):
            assert words.is_true([place], routes[n], last[n]) == (place in last[n])
        assert last[n] <= set(routes[n])
        assert words.obeyed(routes[n][-2:], routes[n], last[n]) >= 2 / 3
    told = words.asked(SCENE, "go to the stove, then to the bed")
    assert words.is_true(told, ["stove", "fan", "bed", "sofa"], {"bed", "sofa"})
    assert not words.is_true(told, ["stove", "fan", "bed", "sofa"], {"sofa"})  # it passed the bed only
    assert not words.is_true(told, ["bed", "stove"], {"bed"})
    assert not words.is_true(words.asked(SCENE, "go to the moon"), ["stove"], {"stove"})


@pytest.mark.parametrize(
    ("order", "text"),
    [
        ("forwards", "to the stove, then to the couch, then to the bed"),
        ("end first", "to the bed, but first to the stove and the sofa"),
        ("backwards", "to the bed after the sofa after the stove"),
    ],
)
def test_what_is_asked_for_is_in_the_order_of_time(order, text):
    assert words.asked(SCENE, text, order) == ["stove", "sofa", "bed"]
    assert words.asked(SCENE, "to the bed", order) == ["bed"]
    assert words.asked(SCENE, "anywhere", order) == []


def test_a_text_that_names_one_place_is_no_route():
    assert words.describes_route(["stove", "bed"])
    assert not words.describes_route(["bed"])
    assert not words.describes_route(["bed", "bed"])
    assert not words.describes_route([])


def test_likeness_is_the_share_of_places_that_are_shared_in_order():
    assert words.likeness(["a", "b", "c"], ["a", "b", "c"]) == 1
    assert words.likeness(["a", "b", "c"], ["c", "b"]) == 2 / 5
    assert words.likeness(["a", "b"], ["b", "a"]) == 0.5
    assert words.likeness(["a"], ["b"]) == words.likeness([], []) == 0


def test_tokens_are_words_between_two_marks():
    texts = ["Go to the red tile", "go to the BED", "gó to the sofa"] * 4
    tokenizer = words.train_tokenizer(texts, 200, 2)
    found = words.encode(tokenizer, ["go to the bed", "gone", "\N{SNOWMAN}"], 226)
    vocabulary = tokenizer.get_vocab()
    assert found[0].tolist() == [vocabulary[t] for t in ("[CLS]", "go", "to", "the", "bed", "[SEP]")]
    assert found[1].tolist() == found[2].tolist() == [vocabulary[t] for t in ("[CLS]", "[UNK]", "[SEP]")]
    assert vocabulary["[UNK]"] == UNKNOWN
    again = words.train_tokenizer(texts[::-1], 200, 2)
    assert again.to_str() == tokenizer.to_str()
    assert words.train_tokenizer(texts, 64, 5).token_to_id("bed") is None
    with pytest.raises(ValueError, match="at most 4 are read"):
        words.encode(tokenizer, ["go to the bed"], 4)


# ---- trials ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 5])
def test_other_words_ask_for_the_same_places_in_the_same_order(count):
    wanted = list(SCENE.places[3 : 3 + count])
    said = {trials.reworded(wanted, number) for number in range(8)}
    assert len(said) == 4
    for text in said:
        assert words.asked(SCENE, text) == wanted
        assert not text.lower().startswith(
            ("please", "could you", "i need", "i want", "i would", "the player", "go to")
        )


FORMS = [re.escape(form) for form in (*trials.PARAPHRASED, *trials.SHORT_PARAPHRASED)]
PATTERNS = [re.compile(re.sub(r"\\{\w+\\}", ".+", form), re.IGNORECASE) for form in FORMS]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_another_grammar_asks_for_the_same_places_and_mostly_in_another_order_of_words(count):
    wanted = [SCENE.places[k] for k in (4, 12, 3, 15, 9)][:count]
    said = [trials.paraphrased(wanted, number, SCENE.other_names) for number in range(8)]
    assert len(set(said)) == 8
    for number, text in enumerate(said):
        assert sorted(words.asked(SCENE, text)) == sorted(wanted)  # by name or synonym
        assert (words.asked(SCENE, text) == wanted) == (number % 4 == 3)
        assert any(pattern.match(text) for pattern in PATTERNS)
        assert not any(pattern.match(trials.reworded(wanted, number)) for pattern in PATTERNS)
        known = [place.removesuffix(" tile") for place in wanted if place.removesuffix(" tile") in SCENE.other_names]
        assert known
        assert all((f"the {name}" in text.lower()) == (number < 4) for name in known)
    assert {trials.paraphrased(wanted, number, {}) for number in range(8)} == set(said[:4])


def test_the_last_place_is_asked_for_first():
    wanted = ["bed", "fan", "sofa", "white tile"]
    said = [trials.paraphrased(wanted, number, {}) for number in range(4)]
    assert said[0].startswith("The white tile is where I want you to be in the end; before that, call at the bed")
    assert words.asked(SCENE, said[1]) == ["white tile", "bed", "fan", "sofa"]
    assert words.asked(SCENE, said[2]) == ["white tile", "sofa", "fan", "bed"]


def route(told, passed, end=(0.0, 0.0), last=None):
    return trials.Route(told.split(), passed.split(), {last or passed.split()[-1]}, end)


def test_a_pair_passes_other_places_to_the_same_end():
    west, east = route("stove fan bed", "pink stove fan red bed"), route("chair sofa bed", "pink chair table sofa bed")
    assert west.differs(east, 30.0)
    assert east.differs(west, 30.0)
    mentions = route("pink red bed", "pink stove fan red bed")  # the same robot, another text
    assert not mentions.differs(west, 30.0)  # what they say differs, but both drive alike
    assert not west.differs(route("chair sofa bed", "pink chair table sofa bed", (20.0, 25.0)), 30.0)
    assert not west.differs(route("chair sofa lamp", "pink chair sofa lamp bed"), 30.0)
    assert not west.differs(route("chair sofa bed", "chair sofa stove fan bed"), 30.0)  # it passes both ways
    assert not route("stove bed", "stove bed").differs(route("chair bed", "chair bed"), 30.0)  # the end is two thirds


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_rivals_are_pairs_that_differ_each_in_one_at_most(seed):
    random = np.random.default_rng(seed)
    names = np.array(list("abcdefgh"))
    found = []
    for _ in range(80):
        passed = random.permutation(names)[: random.integers(1, 6)].tolist()
        told = [place for place in passed[:-1] if random.random() < 0.8] + passed[-1:]
        found.append(trials.Route(told, passed, {passed[-1]}, tuple(random.uniform(0, 60, 2))))
    pairs = trials.rivals(found, 30.0, 5, random)
    assert len(pairs) <= 5
    assert len({row for pair in pairs for row in pair}) == 2 * len(pairs)
    for a, b in ((found[i], found[j]) for i, j in pairs):
        assert a.differs(b, 30.0)
        for own, other in ((a, b), (b, a)):
            assert words.obeyed(own.wanted, own.passed, own.last) == 1
            assert words.obeyed(own.wanted, other.passed, other.last) <= 0.5
    every = trials.rivals(found, 30.0, 99, random)
    left = set(range(80)) - {row for pair in every for row in pair}
    left = [found[row] for row in left if words.describes_route(found[row].wanted)]
    assert not any(a.differs(b, 30.0) for a, b in itertools.combinations(left, 2))


def test_trials_are_kept_as_they_were(tmp_path):
    frozen = [trials.Trial("go", ["bed"], [], [1.0, 2.0], [3.0, 4.0, 0.5], 2**40 + 1, 3, "plain", "described", "map")]
    trials.save(frozen, tmp_path)
    assert trials.load(tmp_path) == frozen
    (tmp_path / trials.FILE).write_text(json.dumps({"text": 1}))
    with pytest.raises(StoreError, match="run the stage split again"):
        trials.load(tmp_path)


# ---- baselines -------------------------------------------------------------------------------------------------------


def test_an_archive_is_replayed_by_end_by_text_or_at_random():
    def asked(wanted, target, pair):
        return trials.Trial("go", wanted, [], target, [0.0] * 3, 0, pair, "how", "described", "map")

    descriptor = np.array([[0, 0], [10, 0], [20, 0], [30, 0]], np.float32)
    texts = [[["stove", "bed"]], [], [["stove", "bed"], ["fan", "sofa", "bed"]], [["chair", "bed"]]]
    rows = [(["stove", "bed"], [11.0, 0.0]), (["chair", "bed"], [11.0, 0.0]), (["fan", "sofa", "bed"], [0.0, 0.0])]
    found = replayed([asked(*row, 0) for row in rows], descriptor, texts, 0)
    assert found["text_blind_replay"].tolist() == [1, 1, 0]
    assert found["text_aware_replay"].tolist() == [2, 3, 2]  # of two with the same text the one that ends nearer
    assert len(set(found["random"].tolist())) == 1  # trials of a pair share the draw
    drawn = replayed([asked(*rows[0], pair) for pair in range(400)], descriptor, texts, 0)["random"]
    assert np.bincount(drawn).min() > 70


# ---- agreement -------------------------------------------------------------------------------------------------------


def test_measures_of_agreement():
    a, b = np.array([0.0, 0.2, 0.2, 0.9, 1.0]), np.array([0.1, 0.3, 0.2, 0.2, 1.0])
    assert pearson(a, b) == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert spearman(a, b) == pytest.approx(np.corrcoef([1, 2.5, 2.5, 4, 5], [1, 4, 2.5, 2.5, 5])[0, 1])
    same = opposite = one = other = 0
    for i, j in itertools.combinations(range(5), 2):
        x, y = np.sign(a[i] - a[j]), np.sign(b[i] - b[j])
        same, opposite, one, other = same + (x * y > 0), opposite + (x * y < 0), one + (x != 0), other + (y != 0)
    assert kendall(a, b) == pytest.approx((same - opposite) / np.sqrt(one * other))


def test_intervals_of_agreement_hold_what_they_are_of():
    random = np.random.default_rng(0)
    truth = random.random(200)
    found = agreement(truth, truth + random.normal(0, 0.2, 200))
    for name in ("pearson", "spearman", "kendall", "mse"):
        assert found[name]["low"] < found[name]["value"] < found[name]["high"]
    assert found["pearson"]["low"] > 0.6
    repeated = agreement(
        np.repeat(truth, 4), np.repeat(truth + random.normal(0, 0.2, 200), 4), np.repeat(range(200), 4)
    )
    width = repeated["pearson"]["high"] - repeated["pearson"]["low"]
    assert 0.6 < width / (found["pearson"]["high"] - found["pearson"]["low"]) < 1.6
    flat = agreement(np.ones(10), random.random(10))
    assert flat["kendall"] == {"value": None, "low": None, "high": None}
    with pytest.raises(ValueError, match="pairs"):
        agreement(np.zeros(0), np.zeros(0))
