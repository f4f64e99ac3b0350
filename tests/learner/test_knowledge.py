"""What is drawn from episodes for a language model: segments as potentials see them, pairs; and what it is told."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.api import Episodes, Field, Transition
from envs.text import text_hash
from learner.knowledge import captions
from learner.knowledge.config import LabelConfig, told_fields
from learner.knowledge.draw import draw, pairs, strata
from learner.knowledge.preferences import FILE, Preferences
from learner.knowledge.programs import EVIDENCE, EVIDENCE_CHARACTERS, Judge, best, halves
from learner.knowledge.segments import Segments
from learner.store.episodes import EpisodeStore, EpisodeWriter, Layout, Steps, StoreError
from learner.windows import Trail
from llm_service import tasks
from llm_service.sandbox.process import Sandbox

FIELDS = {
    "at": Field("category", size=100),
    "seen": Field("text"),
    "goals": Field("text", (2,)),
    "mission": Field("text"),
}
ACTIONS = ("left", "right", "stay")
DISCOUNT = 0.9


def store_of(folder, episodes, shards=1, actions=ACTIONS):
    """A store of episodes, each a list of (where, action, reward); what is seen says where."""
    layout = Layout(FIELDS, actions, () if actions else (1,))
    texts = [f"You are at {i}. You see {'much' if i % 2 else 'little'}." for i in range(100)] + ["go", "a", "b"]
    known = {text_hash(text): text for text in texts}
    hashes = np.array([text_hash(text) for text in texts])
    writer = EpisodeWriter(folder, layout, {})
    for number, part in enumerate(np.array_split(np.arange(len(episodes)), shards)):
        lived = [episodes[i] for i in part]
        at, action, reward = np.array([step for episode in lived for step in episode]).T
        obs = {"at": at.astype(np.int64), "seen": hashes[at.astype(int)], "mission": np.full(len(at), hashes[100])}
        obs["goals"] = np.tile(hashes[101:103], (len(at), 1))
        n, zeros = len(lived), np.zeros(len(lived))
        length = np.array([len(episode) for episode in lived], np.int32)
        about = Episodes(zeros, zeros, np.arange(n), length, zeros, zeros > 0, zeros, zeros, zeros)
        action = action.astype(np.int64) if actions else action.astype(np.float32)[:, None]
        writer.write(f"{number}", about, Steps(obs, action, reward.astype(np.float32)), known)
    return EpisodeStore(folder)


def walks(seed, lengths, paid=0.2):
    generator = np.random.default_rng(seed)
    return [
        [(int(generator.integers(100)), int(generator.integers(3)), float(generator.random() < paid)) for _ in range(n)]
        for n in lengths
    ]


def same(ours, theirs):
    assert ours.captions == theirs.captions
    for name in ("actions", "episode", "step", "source", "to_come"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    for name, column in ours.obs.items():
        np.testing.assert_array_equal(column, theirs.obs[name])


# ---- segments -------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    window=st.integers(2, 6),
    seed=st.integers(0, 2**32 - 1),
)
def test_segments_are_the_windows_that_potentials_see(tmp_path_factory, lengths, window, seed):
    episodes = walks(seed, lengths)
    store = store_of(tmp_path_factory.mktemp("s") / "store", episodes, shards=min(2, len(lengths)))
    found = draw(store, 10_000, window, DISCOUNT, ["seen"], seed)
    expected = {}
    for number, episode in enumerate(episodes):
        trail = Trail(["at"], window)
        trail.begin({"at": np.array([episode[0][0]])})
        none = np.zeros(0, np.int32)
        for step in range(len(episode)):
            if step:
                action, now = np.array([episode[step - 1][1]]), {"at": np.array([episode[step][0]])}
                zeros = np.zeros(1)
                trail.add(action, Transition(now, zeros, zeros > 0, zeros > 0, none, {}, None))
            seen = trail.now()
            expected[number, step] = seen.obs("at")[0].tolist(), seen.actions[0].tolist()
    for i, place in enumerate(zip(found.episode.tolist(), found.step.tolist(), strict=True)):
        assert (found.obs["at"][i].tolist(), found.actions[i].tolist()) == expected[place]
        rewards = [reward for _, _, reward in episodes[place[0]][place[1] :]]
        assert found.to_come[i] == pytest.approx(sum(DISCOUNT**t * r for t, r in enumerate(rewards)), abs=1e-5)
    contents = {(tuple(at), tuple(done)) for at, done in expected.values()}  # nothing twice, and nothing left out
    assert Counter(
        (tuple(a), tuple(d)) for a, d in zip(found.obs["at"].tolist(), found.actions.tolist(), strict=True)
    ) == (Counter(contents))


def test_what_is_drawn_follows_from_the_seed_and_not_from_the_shards(tmp_path):
    episodes = walks(1, [7] * 30)
    one, many = store_of(tmp_path / "one", episodes), store_of(tmp_path / "many", episodes, shards=5)
    first = draw(one, 40, 5, DISCOUNT, ["seen"], 3)
    same(first, draw(many, 40, 5, DISCOUNT, ["seen"], 3))
    assert draw(one, 40, 5, DISCOUNT, ["seen"], 4).captions != first.captions
    assert len(first) == 40
    np.testing.assert_array_equal(pairs(first, 30, 3), pairs(first, 30, 3))


def test_every_stratum_gives_as_many_as_it_can(tmp_path, monkeypatch):
    """Of 40 episodes one came to something; late ones are as many as early ones, though these lasted longer."""
    lengths = [30] * 30 + [4] * 10
    episodes = walks(2, lengths, paid=0)
    episodes[35][-1] = (5, 0, 1.0)
    store = store_of(tmp_path / "store", episodes)
    store.source = np.arange(40) * 1000
    found = draw(store, 60, 3, DISCOUNT, ["seen"], 0)
    assert set(found.source.tolist()) <= set(store.source.tolist())
    np.testing.assert_array_equal(found.source, found.episode * 1000)
    assert (found.to_come > 0).sum() == 4  # all that there are
    unpaid = np.bincount(strata(np.repeat(store.source, lengths), np.zeros(store.steps))).size
    quarter = np.searchsorted(np.quantile(np.repeat(store.source, lengths), [0.25, 0.5, 0.75]), found.source)
    counts = np.bincount(quarter[found.to_come == 0])
    assert len(counts) == unpaid == 4
    assert counts.max() - counts.min() <= 1


def test_equal_contents_are_drawn_once(tmp_path):
    store = store_of(tmp_path / "store", [[(3, 1, 0.0), (4, 2, 0.0)]] * 50 + [[(3, 1, 0.0), (5, 2, 0.0)]] * 50)
    found = draw(store, 1000, 5, DISCOUNT, ["seen"], 0)
    assert sorted(found.obs["at"][:, -1].tolist()) == [3, 4, 5]


def test_segments_are_kept_and_read_again(tmp_path):
    found = draw(store_of(tmp_path / "store", walks(0, [5] * 5)), 9, 4, DISCOUNT, ["seen"], 0)
    found.save(tmp_path)
    same(Segments.load(tmp_path), found)
    some = found.take(np.array([3, 1]))
    assert some.captions == [found.captions[3], found.captions[1]]
    np.testing.assert_array_equal(some.obs["at"], found.obs["at"][[3, 1]])


def test_texts_are_told_but_the_task_or_there_is_a_sentence():
    assert told_fields(FIELDS, [], "it") == ["seen", "goals"]
    assert told_fields(FIELDS, ["goals"], "it") == ["goals"]
    for name in ("mission", "at", "nothing"):  # the task is told to nobody
        with pytest.raises(ValueError, match=f"captions: it has no text field {name}: there is seen, goals"):
            told_fields(FIELDS, [name], "it")
    with pytest.raises(ValueError, match="it holds no texts") as told:
        told_fields({name: FIELDS[name] for name in ("at", "mission")}, [], "it")
    assert "env.captions=true" in str(told.value)
    assert "env.observe=[symbols,around]" in str(told.value)


def test_what_cannot_be_drawn_from_is_a_sentence(tmp_path):
    dumb = EpisodeWriter(tmp_path / "dumb", Layout({"at": FIELDS["at"], "mission": FIELDS["mission"]}, ACTIONS), {})
    with pytest.raises(StoreError, match="holds no episodes"):
        draw(EpisodeStore(dumb.folder), 3, 3, DISCOUNT, [], 0)
    with pytest.raises(StoreError, match="vectors"):
        draw(store_of(tmp_path / "vectors", walks(0, [5]), actions=()), 3, 3, DISCOUNT, ["seen"], 0)


# ---- pairs ----------------------------------------------------------------------------------------------------------


def segments_of(to_come, said):
    n = len(to_come)
    zeros = np.zeros(n, np.int64)
    obs = {"at": np.arange(n * 3).reshape(n, 3)}
    return Segments(obs, np.zeros((n, 2), np.int64), zeros, zeros, zeros, np.array(to_come, np.float32), said)


@settings(max_examples=40, deadline=None)
@given(total=st.integers(2, 60), kinds=st.integers(1, 8), number=st.integers(1, 200), seed=st.integers(0, 1000))
def test_pairs_are_of_segments_that_are_told_apart_and_none_is_twice(total, kinds, number, seed):
    generator = np.random.default_rng(seed)
    segments = segments_of(generator.random(total), [[f"{kind}"] for kind in generator.integers(0, kinds, total)])
    found = pairs(segments, number, seed)
    assert len(found) <= number
    assert len({frozenset(pair) for pair in found.tolist()}) == len(found)
    for one, other in found.tolist():
        assert segments.captions[one] != segments.captions[other]
    if kinds == 1:
        assert len(found) == 0


def test_pairs_are_of_segments_that_came_to_different_ends_each_in_few():
    generator = np.random.default_rng(0)
    to_come = np.where(generator.random(400) < 0.5, 0, generator.random(400))
    segments = segments_of(to_come, [[f"{i}"] for i in range(400)])
    found = pairs(segments, 600, 0)
    assert len(found) == 600
    assert np.bincount(found.ravel()).max() <= 4
    stratum = strata(segments.source, segments.to_come)
    assert (stratum[found[:, 0]] == stratum[found[:, 1]]).mean() < 0.25
    assert 0.35 < (found[:, 0] < found[:, 1]).mean() < 0.65  # who stands first says nothing


# ---- captions -------------------------------------------------------------------------------------------------------


def test_captions_tell_what_was_seen_and_done_in_order_without_the_task(tmp_path):
    store = store_of(tmp_path / "store", [[(1, 0, 0.0), (2, 1, 0.0), (3, 2, 0.0)]])
    found = draw(store, 9, 3, DISCOUNT, told_fields(store.layout.fields, [], "it"), 0)
    last = int(np.argmax(found.step))
    assert found.captions[last] == [
        "You are at 1. You see much. a. b",
        "You choose: left",
        "You are at 2. You see little. a. b",
        "You choose: right",
        "You are at 3. You see much. a. b",
    ]
    assert captions.situation(found.captions[last]) == ["You are at 3", "You see much", "a", "b"]
    first = int(np.argmin(found.step))  # what was not lived is not told
    assert found.captions[first] == ["You are at 1. You see much. a. b"]


@settings(max_examples=50, deadline=None)
@given(
    seen=st.lists(
        st.lists(st.text("abc d", min_size=1).map(str.strip).filter(bool), max_size=60), min_size=1, max_size=16
    )
)
def test_long_observations_are_several_lines_that_a_task_takes(seen):
    told = captions.tell(seen, ["go"] * (len(seen) - 1))
    assert all(0 < len(line) <= captions.LONGEST for line in told)
    words = [word for sentence in seen[-1] for word in sentence.split()]
    assert [word for line in captions.situation(told) for word in line.split()] == words


def test_captions_of_the_longest_windows_fit_into_a_question():
    sentence = "You see a closed purple door 3 steps right and 6 steps forward"
    told = captions.tell([[sentence] * 9] * 16, ["go forward"] * 15)
    tasks.contents("label_preference", [{"first": told, "second": [*told[:-1], "another"]}])


# ---- programs -------------------------------------------------------------------------------------------------------

FIRST = "def potential(observations, actions):\n    return observations[-1] / 100"
FAULTY = "def potential(observations, actions):\n    return 1 / (observations[-1] % 2)"


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as made:
        yield made


def preferring(values, seed=0, number=200):
    """Preferences of who knows these values, one in ten the wrong way, one in ten a tie."""
    generator = np.random.default_rng(seed)
    first, second = generator.integers(0, len(values), (2, number))
    probability = (values[first] > values[second]).astype(np.float32)
    draws = generator.random(number)
    probability = np.where(draws < 0.1, 1 - probability, np.where(draws < 0.2, 0.5, probability))
    return Preferences(first, second, probability.astype(np.float32))


def test_the_program_that_agrees_most_is_chosen(sandbox):
    segments = segments_of(np.zeros(50), [[f"{i}"] for i in range(50)])
    judge = Judge(sandbox, segments, "at", preferring(segments.obs["at"][:, -1]), 0)
    reverse = judge.judge(0, 0, FIRST.replace("return", "return -"), "x")
    right = judge.judge(1, 0, FIRST, "y")
    faulty = judge.judge(2, 0, FAULTY, "z")
    assert right.agreement > 0.8 > 0.2 > reverse.agreement
    assert right.valid
    assert faulty.faults == {"division": 25}
    assert not faulty.valid
    assert best([faulty, reverse, right]) is right
    assert best([faulty]) is None
    np.testing.assert_allclose(right.values, segments.obs["at"][:, -1] / 100, rtol=1e-6)


def test_evidence_is_what_the_program_said_of_other_segments_each_round(sandbox):
    segments = segments_of(np.zeros(50), [[f"{i}"] for i in range(50)])
    judge = Judge(sandbox, segments, "at", preferring(np.arange(50)), 0)
    rounds = [judge.evidence(FAULTY, turn) for turn in (1, 2)]
    assert [len(shown) for shown in rounds] == [EVIDENCE, EVIDENCE]
    assert rounds[0] != rounds[1]
    assert rounds[0] == judge.evidence(FAULTY, 1)
    for piece in rounds[0] + rounds[1]:
        now = segments.obs["at"][int(piece["caption"][0]), -1]
        assert piece["value"] == (1.0 if now % 2 else "division")
    tasks.contents("write_potential", [{"window": 3, "previous": FAULTY, "evidence": rounds[0]}])
    long = segments_of(np.zeros(9), [["x" * 300] * 16] * 9)
    shown = Judge(sandbox, long, "at", preferring(np.arange(9)), 0).evidence(FIRST, 0)
    assert 0 < len(shown) <= EVIDENCE_CHARACTERS // 4800
    tasks.contents("write_potential", [{"window": 3, "previous": FIRST, "evidence": shown}])


def test_a_program_is_not_judged_by_what_it_was_chosen_by():
    told = preferring(np.arange(30), number=101)
    told = Preferences(np.arange(101), told.second, told.probability)  # each is known by its number
    one, other = halves(told, 5)
    assert len(one) == 51
    assert sorted([*one.first, *other.first]) == list(range(101))
    assert set(halves(told, 6)[0].first) != set(one.first)


def test_programs_are_chosen_by_preferences():
    with pytest.raises(ValueError, match="programs are chosen by preferences"):
        LabelConfig(asks=["programs"])
    assert LabelConfig(asks=["goals"]).asks == ["goals"]


def test_preferences_without_an_opinion_are_left_out(tmp_path):
    lines = ['{"first": 0, "second": 1, "probability": 1.0}', '{"first": 1, "second": 2, "probability": null}']
    (tmp_path / FILE).write_text("\n".join(lines))
    told = Preferences.load(tmp_path)
    assert len(told) == 1
    assert told.agreement(np.array([1, 0, 0], np.float32)) == 1.0
