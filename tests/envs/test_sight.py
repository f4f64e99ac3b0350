"""Compiled sight equals the batched view, its sentences the grammar, and ids of texts name what they should."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs import TextTable
from envs.babyai import describe, translate
from envs.babyai.grammar import NOTHING, sentence_ids
from envs.babyai.levels import build
from envs.babyai.missions import VERBS, parse
from envs.babyai.symbols import CODES, COLOURS, DOOR, EMPTY_CODE, OBJECTS, TRIPLE, VIEW, WALL_CODE, code_of
from envs.babyai.view import PADDING, Views
from envs.native.babyai import layout
from envs.native.babyai.layout import CARRYING, CODE, DESCRIPTION, MAP, MARGIN, THING, THINGS, VERB
from envs.native.babyai.packing import pack
from envs.native.babyai.sight import MOST, look, sentences
from envs.native.babyai.texts import Captions, Keys, Missions, _first_slot, _hash
from tests.envs.test_missions import MISSIONS

SEEDS = st.integers(0, 2**32 - 1)
SIDES = st.integers(1, 24)
LANGUAGES = st.sampled_from(["en", "fr"])

KEY, BALL, BOX = (OBJECTS.index(noun) for noun in ("key", "ball", "box"))
PORTABLE = [code_of(kind, colour, 0) for kind in (KEY, BALL, BOX) for colour in range(6)]
DOORS = [code_of(DOOR, colour, state) for colour in range(6) for state in range(3)]


def random_worlds(generator, n, width, height, walls):
    """The same n worlds as rows and as `Views`: a share of walls, a quarter of things; agents anywhere."""
    rows = layout.empty_rows(n, width + 3, height + 2)  # room for larger maps, as where levels vary in size
    views = Views(n, width, height)
    roll = generator.random((n, height, width))
    cells = np.where(roll < walls, WALL_CODE, EMPTY_CODE)
    cells = np.where(roll > 0.75, generator.choice(PORTABLE + DOORS, cells.shape), cells)
    things = (cells != WALL_CODE) & (cells != EMPTY_CODE)
    views.codes[:, PADDING : PADDING + height, PADDING : PADDING + width] = cells
    views.x[:], views.y[:] = generator.integers(0, width, n), generator.integers(0, height, n)
    views.direction[:] = generator.integers(0, 4, n)
    views.carried[:] = generator.choice([EMPTY_CODE, *PORTABLE], n)
    for i, row in enumerate(rows):
        layout.clear(row, width)
        stride = width + 2 * MARGIN
        level = row[MAP : MAP + (height + 2 * MARGIN) * stride].reshape(-1, stride)
        numbers = generator.integers(1, THINGS + 1, (height, width))
        level[MARGIN : MARGIN + height, MARGIN : MARGIN + width] = cells[i] + THING * numbers * things[i]
        row[layout.AT] = layout.cell_at(row, int(views.x[i]), int(views.y[i]))
        row[layout.DIRECTION] = views.direction[i]
        if views.carried[i] != EMPTY_CODE:
            row[CARRYING] = thing = generator.integers(THINGS)
            row[CODE + thing] = views.carried[i]
    return rows, views


def seen(rows, index):
    image = np.full((len(index), VIEW, VIEW, 3), 255, np.uint8)  # whatever the array held before
    look(rows, index, image)
    return image


def said(image):
    """Sentence ids of images, as `sentence_ids` returns them."""
    table_rows, counts = np.full((len(image), MOST), -1, np.int16), np.full(len(image), -1, np.int16)
    sentences(image, table_rows, counts)
    used = np.arange(MOST) < counts[:, None]
    assert (table_rows[~used] == -1).all()
    return counts.tolist(), table_rows[used].tolist()


def expected_sentences(image):
    counts, ids = sentence_ids(image)
    return counts.tolist(), ids.tolist()


def captions_of(image, language="en", fix=False):
    described = describe(image, language, fix=fix)
    return [". ".join(sentences) or NOTHING[language] for sentences in described]


# ---- images and sentences -------------------------------------------------------------------------------------------


@given(SEEDS, SIDES, SIDES, st.floats(0, 0.7))
def test_agents_see_what_the_view_shows(seed, width, height, walls):
    generator = np.random.default_rng(seed)
    rows, views = random_worlds(generator, 20, width, height, walls)
    before = rows.copy()
    index = generator.integers(0, 20, 30)  # in any order, some of them twice
    assert np.array_equal(seen(rows, index), views.images(index))
    assert np.array_equal(rows, before)


def test_what_is_compared_holds_every_case():
    rows, views = random_worlds(np.random.default_rng(1), 600, 9, 8, 0.2)
    image = seen(rows, np.arange(600))
    assert np.array_equal(image, views.images(np.arange(600)))
    own = image[:, 3, 6]
    elsewhere = image.reshape(600, 49, 3)[:, np.arange(49) != 27]
    assert len(np.unique(own, axis=0)) == 19  # empty hands, and each of 18 objects
    assert len(np.unique(elsewhere.reshape(-1, 3), axis=0)) == 39  # unseen, empty, walls, 18 objects, 18 doors
    assert 0.2 < (image[..., 0] == 0).mean() < 0.8


@pytest.mark.parametrize("level", ["GoToLocal", "BossLevel", "SynthLoc", "KeyCorridorS3R3", "UnlockPickup"])
def test_real_levels_are_seen_and_told_as_minigrid_shows_them(level):
    simulator = build(level)
    for seed in range(8):
        simulator.reset(seed=seed)
        rows = layout.empty_rows(1, simulator.width, simulator.height)
        pack(simulator, rows[0])
        image = seen(rows, np.array([0]))
        assert np.array_equal(image[0], simulator.gen_obs()["image"])
        assert said(image) == expected_sentences(image)


@given(SEEDS, SIDES, SIDES, st.floats(0, 0.7))
def test_sentences_are_those_of_the_grammar(seed, width, height, walls):
    rows, _ = random_worlds(np.random.default_rng(seed), 20, width, height, walls)
    image = seen(rows, np.arange(20))
    assert said(image) == expected_sentences(image)


@given(SEEDS, st.integers(0, CODES - 1), st.floats(0, 1))
def test_sentences_of_images_that_no_world_shows(seed, background, share):
    generator = np.random.default_rng(seed)
    codes = np.where(generator.random((20, 7, 7)) < share, generator.integers(0, CODES, (20, 7, 7)), background)
    assert said(TRIPLE[codes]) == expected_sentences(TRIPLE[codes])


def test_at_most_49_sentences():
    full = np.full((3, 7, 7, 3), (BALL, 2, 0), np.uint8)
    full[1, 3, 5] = full[1, 4, 6] = TRIPLE[WALL_CODE]
    full[2, 6, 6] = TRIPLE[WALL_CODE]  # not the first thing met
    assert said(full) == expected_sentences(full)
    assert said(full)[0] == [MOST, MOST, MOST - 1]


# ---- captions -------------------------------------------------------------------------------------------------------


@given(SEEDS, LANGUAGES, st.booleans())
@settings(max_examples=30)
def test_captions_are_the_joined_sentences(seed, language, fix):
    generator = np.random.default_rng(seed)
    texts = TextTable()
    captions = Captions(texts, language, fix)
    for width in (1, 5, 20):
        rows, _ = random_worlds(generator, 40, width, 6, 0.2)
        image = seen(rows, np.arange(40))
        ids = captions.ids(image)
        assert ids.dtype == np.int32
        assert texts.texts(ids) == captions_of(image, language, fix)
        known = len(texts)
        assert np.array_equal(captions.ids(image[::-1].copy()), ids[::-1])
        assert len(texts) == known


def test_100_000_captions():
    generator = np.random.default_rng(7)
    texts = TextTable()
    texts.intern("of another kind")
    captions = Captions(texts)
    batches = []
    for _ in range(30):
        codes = np.full((4096, 49), EMPTY_CODE)
        for _ in range(4):
            codes[np.arange(4096), generator.integers(0, 49, 4096)] = generator.choice(PORTABLE, 4096)
        image = TRIPLE[codes].reshape(-1, 7, 7, 3)
        batches.append((image, captions.ids(image)))
    assert len(texts) > 100_000
    for image, ids in (batches[0], batches[-1]):
        assert np.array_equal(captions.ids(image), ids)
        assert texts.texts(ids) == captions_of(image)
    assert len(texts) == 1 + len({text for image, _ in batches for text in captions_of(image)})


def test_each_half_of_a_key_tells_captions_apart():
    table_rows = np.random.default_rng(8).integers(0, 9912, (20_000, MOST), np.int16)
    table_rows[10_000:] = table_rows[:10_000]
    table_rows[np.arange(10_000), np.arange(10_000) % 3] += 1  # one sentence of three is another
    keys = np.empty((20_000, 2), np.uint64)
    _hash(table_rows, np.full(20_000, 3, np.int16), keys)
    assert len(np.unique(keys[:, 0])) == len(np.unique(keys[:, 1])) == 20_000
    table_rows[:, 3:] = 0  # beyond the count: of no meaning
    again = np.empty_like(keys)
    _hash(table_rows, np.full(20_000, 3, np.int16), again)
    assert np.array_equal(again, keys)


def test_two_worlds_share_nothing():
    images = [TRIPLE[np.full((1, 7, 7), code)] for code in PORTABLE]
    texts, other_texts = TextTable(), TextTable()
    captions, others = Captions(texts), Captions(other_texts, "fr")
    ids = [captions.ids(image)[0] for image in images]
    other_ids = [others.ids(image)[0] for image in reversed(images)]
    assert ids == other_ids == list(range(len(PORTABLE)))
    assert texts.texts(ids) == [captions_of(image)[0] for image in images]
    assert other_texts.texts(other_ids) == [captions_of(image, "fr")[0] for image in reversed(images)]


# ---- missions -------------------------------------------------------------------------------------------------------


def write_mission(row, mission):
    row[layout.LINK] = ["", "then", "after"].index(mission.link)
    row[VERB : VERB + 4] = layout.NO_VERB
    for first, group in ((0, mission.first), (2, mission.second)):
        for clause, action in enumerate(group, start=first):
            row[VERB + clause] = 1 + VERBS.index(action.verb)
            for d, thing in enumerate(action.things, start=2 * clause):
                colour = layout.ANY_COLOUR if thing.colour is None else COLOURS.index(thing.colour)
                noun, place = layout.NOUNS.index(thing.noun), layout.PLACES.index(thing.place or "")
                row[DESCRIPTION + d] = layout.describe_code(noun, colour, place, int(thing.unique))


@given(st.lists(MISSIONS, min_size=1, max_size=20), LANGUAGES)
def test_missions_are_written_from_rows(missions, language):
    rows = layout.empty_rows(2 * len(missions), 1, 1)
    rows[len(missions) :, DESCRIPTION : DESCRIPTION + 8] = 77  # left by an earlier mission where this one says less
    for row, mission in zip(rows, missions * 2, strict=True):
        write_mission(row, mission)
    texts = TextTable()
    table = Missions(texts, language)
    index = np.arange(len(rows))
    ids = table.ids(rows, index)
    assert texts.texts(ids) == [m.english() if language == "en" else m.french() for m in missions * 2]
    assert ids.tolist() == table.ids(rows, index[::-1])[::-1].tolist()
    assert len(texts) == table._keys._used == len(set(missions))


@pytest.mark.parametrize(
    "level", ["BossLevel", "SynthLoc", "GoToLocal", "PutNextLocal", "OpenDoorLoc", "MixedTrainLocal", "ActionObjDoor"]
)
def test_missions_of_real_levels(level):
    simulator = build(level)
    rows = layout.empty_rows(20, simulator.width, simulator.height)
    spoken = []
    for seed, row in enumerate(rows):
        simulator.reset(seed=seed)
        pack(simulator, row)
        spoken.append(simulator.mission)
    english, french = TextTable(), TextTable()
    assert english.texts(Missions(english).ids(rows, np.arange(20))) == spoken
    assert french.texts(Missions(french, "fr").ids(rows, np.arange(20))) == [translate(text) for text in spoken]
    assert [parse(text).english() for text in spoken] == spoken


# ---- keys -----------------------------------------------------------------------------------------------------------


def looked_up(table, keys):
    """Ids of `keys`, and the rows whose texts had to be written."""
    keys, asked = np.asarray(keys, np.uint64).reshape(-1, 2), []

    def write(rows):
        asked.extend(rows.tolist())
        return [f"{first} {second}" for first, second in keys[rows].tolist()]

    return table.ids(keys, write).tolist(), asked


WORDS = st.integers(0, 3) | st.integers(0, 2**64 - 1)


@given(st.lists(st.lists(st.tuples(WORDS, WORDS), max_size=40), max_size=8))
def test_keys_map_as_a_dictionary_does(batches):
    table, known = Keys(TextTable()), {}
    for batch in batches:
        ids, asked = looked_up(table, batch)
        assert asked == [row for row, key in enumerate(batch) if key not in known and key not in batch[:row]]
        for key in batch:
            known.setdefault(key, len(known))
        assert ids == [known[key] for key in batch]
        assert table._used == len(known)


def test_keys_that_want_the_same_slot():
    candidates = np.random.default_rng(3).integers(0, 2**63, (400_000, 2)).astype(np.uint64)
    slots = np.zeros((1024, 3), np.uint64)
    crowd = [key for key in candidates if _first_slot(key[None], 0, slots) == 1023][:300]  # the last: the search wraps
    assert len(crowd) == 300
    table = Keys(TextTable())
    assert looked_up(table, crowd) == (list(range(300)), list(range(300)))
    assert looked_up(table, crowd[::-1]) == (list(range(300))[::-1], [])


def test_a_text_that_could_not_be_written_is_asked_for_again():
    table = Keys(TextTable())
    looked_up(table, [(1, 1)])

    def fail(rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.ids(np.array([(2, 2), (3, 3), (2, 2)], np.uint64), fail)
    assert looked_up(table, [(3, 3), (1, 1), (4, 4), (2, 2), (3, 3)]) == ([1, 0, 2, 3, 1], [0, 2, 3])
    assert looked_up(table, [(1, 1), (2, 2), (3, 3), (4, 4)]) == ([0, 3, 1, 2], [])
