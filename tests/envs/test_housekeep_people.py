"""Preferences: read without running anything, kept, our own; what is right in a house."""

import contextlib
import hashlib
import io
import os
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.metrics import answers as answered
from envs.housekeep.names import KINDS, NAMES, OBJECTS, PLACES, ROOMS
from envs.housekeep.people import Preferences, affinities, own, published, table
from envs.housekeep.people.preferences import HEIRS, PLACE_NAMES
from tests.envs.housekeep_data import DATA, needs_data

STORAGE = np.isin([kind for _, kind in PLACES], ["shelf", "bottom cabinet", "top cabinet", "chest"])
RS = {
    "bathroom": "carpet, mirror, shower, sink, toilet, towel rack",
    "bedroom": "bed, bottom cabinet",
    "kitchen": "bottom cabinet, dishwasher, fridge, microwave, oven, sink, top cabinet, trash can",
    "living room": "bottom cabinet, carpet, chair, coffee table, floor lamp, loudspeaker, office chair, picture, "
    "shelf, sofa, standing tv, stool, table",
    "lobby": "bottom cabinet",
    "": "counter, door, picture, window",
}
RS_NAMES = [f"{room} {kind}".strip() for room, kinds in RS.items() for kind in kinds.split(", ")]
TASKS = (
    "peppermint, lamp, lantern, herring fillets, vase",
    "lamp, sparkling water, plant, candle holder, mustard bottle",
    "pepsi can pack, electric heater, helmet, golf ball, fruit snack",
    "chocolate, ramekin, pan, shredder, knife",
)


def answers(seed):
    """Preferences of raters who throw dice, so that about a fifth of the places is right."""
    return Preferences(np.random.default_rng(seed).integers(-9, 11, (269, 128, 10)).astype(np.int8), f"dice {seed}")


def npy(value, protocol=3):
    """An npy file of one object, as numpy of that time wrote it."""
    stream = pickle.dumps(np.array(value, object), protocol)
    header = "{'descr': '|O', 'fortran_order': False, 'shape': (), }".ljust(117) + "\n"
    head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    return head + stream.replace(b"numpy._core.", b"numpy.core.")


def as_published(preferences, **changed):
    """What the published file holds, of other preferences."""
    return {
        "ranks": np.ascontiguousarray(np.moveaxis(preferences.ranks, 1, 0)).astype(np.int64),
        "objects": [np.str_(name.replace(" ", "_")) for name in OBJECTS],
        "room_receptacles": ["|".join(place).replace(" ", "_") for place in PLACES],
    } | changed


def rule(right, present):
    """The published rule, word by word: bool [269, len(NAMES)]."""
    found = np.zeros((len(OBJECTS), len(NAMES)), bool)
    places = [f"{room}-{kind}" for room, kind in PLACES]
    keys = [f"{room}-{kind}" for room in ROOMS for kind in KINDS]
    here = [column for column, place in enumerate(places) if place in {keys[name] for name in present}]
    for name in present:
        for column in here:
            if places[column] in keys[name]:
                found[:, name] |= right[:, column]
    return found


def test_a_file_in_the_published_form_is_read(tmp_path):
    wanted = answers(3)
    (tmp_path / "data.npy").write_bytes(npy(as_published(wanted)))
    found = published.read(tmp_path / "data.npy")
    np.testing.assert_array_equal(found.ranks, wanted.ranks)
    assert "372" in found.source


def test_names_may_come_in_another_order(tmp_path):
    wanted, order = answers(4), np.random.default_rng(0).permutation(269)
    tree = as_published(wanted)
    tree |= {"objects": [tree["objects"][i] for i in order], "ranks": tree["ranks"][:, order]}
    (tmp_path / "data.npy").write_bytes(npy(tree))
    np.testing.assert_array_equal(published.read(tmp_path / "data.npy").ranks, wanted.ranks)


class Deed:
    """Unpickled, it makes a folder."""

    def __init__(self, call, *arguments):
        self.parts = call, arguments

    def __reduce__(self):
        return self.parts


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("deed", ["system", "mkdir", "eval"])
def test_a_deed_in_the_file_is_refused_and_not_done(tmp_path, deed, protocol):
    mark = tmp_path / "done"
    deeds = {
        "system": (os.system, f"mkdir {mark}"),
        "mkdir": (os.mkdir, str(mark)),
        "eval": (eval, f"__import__('os').mkdir({str(mark)!r})"),
    }
    path = tmp_path / "data.npy"
    path.write_bytes(npy(as_published(answers(0), extra=Deed(*deeds[deed])), protocol))
    with pytest.raises(ValueError, match="nothing in it was run") as refused:
        published.read(path)
    said = str(refused.value)
    assert said.startswith(str(path))
    assert "take the file from" in said
    assert "\n" not in said
    assert not mark.exists()


@pytest.mark.parametrize("name", ["system", "mkdir", "_reconstruct2", "ndarray.tofile"])
def test_only_four_names_are_known(name):
    module = "os" if name in ("system", "mkdir") else "numpy"
    with pytest.raises(published.Refused, match="names"):
        published.values(f"c{module}\n{name}\n.".encode())


def test_calls_are_noted_and_not_made():
    found = published.values(b"cnumpy\nndarray\n(K\x05tR.")
    assert isinstance(found, published.Call)
    assert (found.what, found.arguments, found.state) == ("numpy ndarray", (5,), None)


WRONG = {
    "another shape": ({"ranks": np.zeros((128, 268, 10), np.int64)}, "int64"),
    "another type": ({"ranks": np.zeros((128, 269, 10), np.float64)}, "int64"),
    "two axes": ({"ranks": np.zeros((128, 269), np.int64)}, "three axes"),
    "a large rank": ({"ranks": np.full((128, 269, 10), 300)}, "300"),
    "no ranks": ({"ranks": None}, "three axes"),
    "an object less": ({"objects": list(OBJECTS[1:])}, "action figure"),
    "an object twice": ({"objects": [OBJECTS[0], *OBJECTS[:-1]]}, "objects"),
    "an object that is no name": ({"objects": [None, *OBJECTS[1:]]}, "no name"),
    "another place": ({"room_receptacles": ["attic|trunk", *map("|".join, PLACES[1:])]}, "attic"),
    "places as a number": ({"room_receptacles": 7}, "places"),
}


@pytest.mark.parametrize("case", WRONG)
def test_another_content_is_one_sentence(tmp_path, case):
    changed, words = WRONG[case]
    (tmp_path / "data.npy").write_bytes(npy(as_published(answers(0), **changed)))
    with pytest.raises(ValueError, match=words) as refused:
        published.read(tmp_path / "data.npy")
    assert "\n" not in str(refused.value)


def test_another_file_is_one_sentence(tmp_path):
    path = tmp_path / "data.npy"
    with pytest.raises(ValueError, match=r"data\.npy"):
        published.read(path)
    np.save(path, np.zeros((128, 269, 10), np.int64))
    with pytest.raises(ValueError, match="header"):
        published.read(path)
    path.write_bytes(b"hello")
    with pytest.raises(ValueError, match="npy"):
        published.read(path)
    path.write_bytes(npy([1, 2]))
    with pytest.raises(ValueError, match="dictionary"):
        published.read(path)
    with path.open("wb") as file:
        file.truncate(published.MOST_BYTES + 1)
    with pytest.raises(ValueError, match="MiB"):
        published.read(path)


WHOLE = npy(as_published(answers(1)))


@settings(max_examples=25)
@given(st.one_of(st.integers(0, len(WHOLE) - 1), st.integers(0, 600), st.integers(len(WHOLE) - 4000, len(WHOLE) - 1)))
def test_a_cut_file_is_one_sentence(tmp_path_factory, length):
    path = tmp_path_factory.mktemp("cut") / "data.npy"
    path.write_bytes(WHOLE[:length])
    with pytest.raises(ValueError, match="take the file from"):
        published.read(path)


SMALL = pickle.dumps([{"a": np.array([1, 2]), "b": [np.str_("cup")]}, (None, True, 300, -1, b"x")], 3).replace(
    b"numpy._core.", b"numpy.core."
)


@settings(max_examples=400)
@given(st.data())
def test_garbled_streams_are_refused_or_inert(data):
    stream = bytearray(SMALL)
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    refused_or_inert(bytes(stream))


@settings(max_examples=400)
@given(st.binary(max_size=60))
def test_random_streams_are_refused_or_inert(stream):
    refused_or_inert(stream + b".")


def refused_or_inert(stream):
    with contextlib.suppress(published.Refused):
        inert(published.values(stream))


def inert(value, depth=0):
    """Fails unless a value is made of plain ones."""
    kinds = (type(None), bool, int, str, bytes, tuple, list, dict, published.Name, published.Call)
    assert type(value) in kinds
    if depth < 5:
        parts = {
            tuple: list,
            list: list,
            dict: lambda d: [*d, *d.values()],
            published.Call: lambda c: [*c.arguments, c.state],
        }
        for part in parts.get(type(value), lambda _: [])(value):
            inert(part, depth + 1)


def test_deep_values_are_no_crash():
    deep = b")" + b"\x85" * 1_000_000
    assert isinstance(published.values(deep + b"."), tuple)
    with pytest.raises(published.Refused, match="garbled"):
        published.values(b"}(" + deep + b"K\x01u.")


def test_a_small_stream_is_what_it_says():
    array = published.values(SMALL)[0]["a"]
    assert array.state[1] == (2,)
    assert np.frombuffer(array.state[4], np.int64).tolist() == [1, 2]
    assert published.values(SMALL)[1] == (None, True, 300, -1, b"x")


@settings(max_examples=5)
@given(st.integers(0, 2**31))
def test_preferences_are_kept(tmp_path_factory, seed):
    path, wanted = tmp_path_factory.mktemp("kept") / "table.npz", answers(seed)
    wanted.save(path)
    for found in (Preferences.load(path), table(path)):
        np.testing.assert_array_equal(found.ranks, wanted.ranks)
        assert found.source == wanted.source


def test_a_kept_file_that_is_none_is_one_sentence(tmp_path):
    path, mark = tmp_path / "table.npz", tmp_path / "done"
    arrays_of = {
        "objects": np.array(OBJECTS),
        "places": np.array(["|".join(p) for p in PLACES]),
        "source": np.array("me"),
    }
    ranks = answers(0).ranks
    for broken in (
        {},
        {"ranks": ranks[1:], **arrays_of},
        {"ranks": ranks.astype(float), **arrays_of},
        {"ranks": np.array(Deed(os.mkdir, str(mark)), object), **arrays_of},
        {"ranks": ranks, **arrays_of, "objects": np.array(OBJECTS[::-1][1:])},
    ):
        np.savez(path, **broken)
        with pytest.raises(ValueError, match="holds no preferences") as refused:
            Preferences.load(path)
        assert "\n" not in str(refused.value)
        assert str(path) in str(refused.value)
    for content in (b"", b"PK\x03\x04nothing", b"hello"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="holds no preferences"):
            Preferences.load(path)
    np.save(tmp_path / "table.npy", ranks)
    for other in (tmp_path / "missing.npz", tmp_path / "table.npy", tmp_path):
        with pytest.raises(ValueError, match="holds no preferences"):
            Preferences.load(other)
    assert not mark.exists()


KEPT = io.BytesIO()
np.savez(
    KEPT, ranks=np.zeros((2, 2), np.int8), objects=np.array(["cup"]), places=np.array(["a|b"]), source=np.array("")
)


@settings(max_examples=60)
@given(st.integers(0, len(KEPT.getvalue()) - 1), st.integers(0, 255), st.booleans())
def test_a_garbled_kept_file_is_one_sentence(tmp_path_factory, place, byte, cut):
    path, content = tmp_path_factory.mktemp("garbled") / "table.npz", bytearray(KEPT.getvalue())
    content[place] = byte
    path.write_bytes(content[:place] if cut else content)
    with pytest.raises(ValueError, match="holds no preferences"):
        Preferences.load(path)


def test_ranks_of_another_kind_are_refused():
    with pytest.raises(ValueError, match="int8"):
        Preferences(np.zeros((269, 128, 10), np.int64), "me")
    with pytest.raises(ValueError, match="-128"):
        Preferences(np.full((269, 128, 10), -128, np.int8), "me")


def test_counts_and_quality_are_those_of_the_ranks():
    ranks = np.zeros((269, 128, 10), np.int8)
    ranks[0, 0] = [1, 2, 2, 1, 4, 1, 0, -3, -1, 0]
    ranks[0, 1] = [1, 1, 1, 1, 1, -1, -1, -1, -1, -1]
    ranks[0, 2] = [-1, -1, -1, -1, -1, -2, 0, 0, 1, 1]
    found = Preferences(ranks, "me")
    assert found.positive[0, :3].tolist() == [6, 5, 2]
    assert found.negative[0, :3].tolist() == [2, 5, 6]
    assert np.argwhere(found.right).tolist() == [[0, 0]]
    assert np.argwhere(found.misplaced).tolist() == [[0, 2]]
    assert found.quality[0, 0] == pytest.approx((1 + 0.5 + 0.5 + 1 + 0.25 + 1) / 6)
    assert found.quality.sum() == found.quality[0, 0]


LIKELY = sorted({*PLACE_NAMES.tolist(), *(heir for _, heir in HEIRS)})


@settings(max_examples=30)
@given(st.lists(st.one_of(st.sampled_from(LIKELY), st.integers(0, len(NAMES) - 1)), max_size=40), st.integers(0, 3))
def test_what_suits_is_the_published_rule(present, seed):
    preferences = answers(seed)
    wanted = rule(preferences.right, present)
    np.testing.assert_array_equal(preferences.suits(present), wanted)
    np.testing.assert_array_equal(preferences.suits([NAMES[name] for name in present]), wanted)
    objects = np.arange(10)[None] * 7
    if present:
        found = preferences.placed(objects, np.array([[*present, -1]]))
        np.testing.assert_array_equal(found[0, :, :-1], wanted[objects[0]][:, present])
        assert not found[..., -1].any()


def test_houses_of_a_batch_do_not_lend_each_other_furniture():
    preferences = own.preferences()
    no_top, cabinet = (NAMES.index(f"kitchen bottom cabinet{end}") for end in (" no top", ""))
    pan = np.full((2, 1), OBJECTS.index("pan"))
    found = preferences.placed(pan, np.array([[no_top, cabinet], [no_top, no_top]]))
    assert found[:, 0].tolist() == [[True, True], [False, False]]


def test_names_that_nobody_knows_are_refused():
    with pytest.raises(ValueError, match="attic trunk"):
        own.preferences().suits(["attic trunk"])
    with pytest.raises(ValueError, match="918"):
        own.preferences().suits([918])
    with pytest.raises(ValueError, match="-1"):
        own.preferences().suits([-1])


def test_no_name_is_a_place_unless_asked():
    preferences = own.preferences()
    np.testing.assert_array_equal(preferences.plain[:, PLACE_NAMES], preferences.right)
    assert preferences.plain.sum() == preferences.right.sum()
    assert not preferences.suits(["window", "bathroom mirror", "kitchen trash can"]).any()


def test_our_own_table_is_one_and_the_same():
    found = own.preferences()
    assert found is own.preferences()
    assert table() is found
    assert hashlib.sha256(found.ranks.tobytes()).hexdigest() == OWN_HASH
    assert (own.preferences(1).right != found.right).any()


OWN_HASH = "17e1c1e73d6ab1a03f25dc8f5c3f30b31527eef65dced85e22821b2d8bddd9a8"


def test_our_own_raters_are_calibrated():
    found = own.preferences()
    per_object = found.right.sum(1)
    assert found.right.mean() == pytest.approx(0.109, abs=0.002)
    assert found.misplaced.mean() == pytest.approx(0.212, abs=0.003)
    assert found.right[:, STORAGE].sum() / found.right.sum() == pytest.approx(0.9, abs=0.02)
    assert per_object.min() == 1
    assert (per_object == 1).sum() >= 3
    assert per_object.max() < 40


def test_ranks_of_a_rater_count_up_within_a_room():
    ranks = own.preferences().ranks
    for room in ("kitchen", "bathroom"):
        here = ranks[:, [place == room for place, _ in PLACES]]
        for sign in (1, -1):
            given = np.sort(np.where(here * sign > 0, here * sign, 99), 1)
            upwards = np.arange(1, given.shape[1] + 1)[None, :, None]
            assert ((given == upwards) | (given == 99)).all()


def test_every_object_has_one_group_and_known_places():
    assert len(affinities.GROUPS) == 19
    found = own.affinities_of_places()
    assert found.shape == (269, 128)
    assert found.min() >= 0
    assert found.max() <= 3
    for name in affinities.ONLY:
        places = [" ".join(PLACES[i]) for i in np.flatnonzero(own.preferences().right[OBJECTS.index(name)])]
        wanted = [" ".join(place.split()) for place in affinities.ONLY[name].split(",")]
        assert set(wanted) & set(places), (name, places)


def test_the_affinities_are_common_sense():
    right = own.preferences().right
    where = {name: {" ".join(PLACES[i]) for i in np.flatnonzero(right[OBJECTS.index(name)])} for name in OBJECTS}
    assert where["herring fillets"] == {"kitchen fridge", "pantry room fridge"}
    assert where["chocolate"] == where["shredder"] == {"kitchen top cabinet"}
    assert "bedroom bottom cabinet" in where["helmet"]
    assert "living room table" in where["lamp"]
    assert {"kitchen bottom cabinet", "kitchen top cabinet"} <= where["pan"]
    assert {"garage shelf", "garage bottom cabinet"} <= where["hammer"]
    assert {"childs room shelf", "playroom shelf"} <= where["toy animal"]
    assert {"bathroom bottom cabinet", "closet shelf"} <= where["towel"]
    assert "bedroom bed" in where["pillow"]
    assert not where["banana"] & {"bedroom bed", "bathroom toilet", "garage shelf", "living room carpet"}
    assert not any(place.endswith((" toilet", " washer", " oven")) for places in where.values() for place in places)


def test_objects_of_the_tasks_have_right_places_and_many_wrong_ones():
    suits = own.preferences().suits(RS_NAMES)
    columns = [NAMES.index(name) for name in RS_NAMES]
    assert len(set(columns)) == 34
    for objects in TASKS:
        for name in objects.split(", "):
            right = suits[OBJECTS.index(name), columns].sum()
            assert 1 <= right <= 8, (name, right)


@needs_data
def test_invariants_of_what_people_said():
    found = published.read(DATA)
    assert hashlib.sha256(DATA.read_bytes()).hexdigest().startswith("40d083e88eaf4d2eee644c35525c48c4")
    assert (found.ranks.min(), found.ranks.max()) == (-16, 14)
    shares = [(found.ranks > 0).mean(), (found.ranks < 0).mean(), (found.ranks == 0).mean()]
    assert [round(100 * float(share), 2) for share in shares] == [26.28, 37.97, 35.75]
    assert len({room for room, _ in PLACES}) == 17
    assert len({kind for _, kind in PLACES}) == 32
    assert (found.right.sum(), found.misplaced.sum()) == (3760, 7305)
    assert (~found.right & ~found.misplaced).sum() == 23367
    assert [int((found.positive == k).sum()) for k in range(6, 11)] == [1849, 1158, 538, 198, 17]
    types = found.right.sum(1)
    assert types.mean() == pytest.approx(13.98, abs=0.005)
    assert types.max() == 37
    assert [OBJECTS[i] for i in np.flatnonzero(types == 0)] == ["chocolate powder"]
    kinds = np.array([kind for _, kind in PLACES])
    share = {kind: 100 * found.right[:, kinds == kind].sum() / found.right.sum() for kind in kinds}
    for kind, percent in {
        "shelf": 35.1,
        "bottom cabinet": 31.5,
        "top cabinet": 18.0,
        "chest": 6.7,
        "counter": 2.5,
    }.items():
        assert share[kind] == pytest.approx(percent, abs=0.06)
    assert {kind for kind, percent in share.items() if percent == 0} == {
        *("bathtub", "toilet", "dryer", "washer", "treadmill", "coffee machine", "cooktop", "dishwasher"),
        *("microwave", "oven", "speaker system", "piano"),
    }
    cells = answered.counts(np.broadcast_to(STORAGE, found.right.shape).ravel(), found.right.ravel())
    dumb = answered.measures(cells)
    assert (dumb["recall"][0], dumb["precision"][0]) == pytest.approx((0.913, 0.355), abs=0.001)
    assert table(DATA).positive.tolist() == found.positive.tolist()


@needs_data
def test_the_published_file_cut_or_changed_is_refused(tmp_path):
    content, path = DATA.read_bytes(), tmp_path / "data.npy"
    for other in (
        content[:-1],
        content[:2_000_000],
        content + b".",
        content.replace(b"numpy\nndarray", b"numpy\nndarras"),
    ):
        path.write_bytes(other)
        with pytest.raises(ValueError, match="take the file from"):
            published.read(path)


@needs_data
def test_how_far_our_own_table_agrees_with_people():
    """The card's numbers, docs/housekeep_preferences.md."""
    people, ours = published.read(DATA), own.preferences()
    assert measures(ours.right, people.right) == [0.88, 0.43, 0.43]
    rooms = np.array([room for room, _ in PLACES])
    for room, expected in {
        "kitchen": [0.89, 0.39, 0.47],
        "living room": [0.90, 0.38, 0.51],
        "bathroom": [0.89, 0.45, 0.23],
    }.items():
        assert measures(ours.right[:, rooms == room], people.right[:, rooms == room]) == expected
    one, other = ((half > 0).sum(2) >= 3 for half in np.split(people.ranks, 2, axis=2))
    assert measures(one, other) == [0.82, 0.46, 0.43]
    objects = [OBJECTS.index(name) for name in {name for task in TASKS for name in task.split(", ")}]
    places = [i for i, place in enumerate(PLACES) if " ".join(place) in RS_NAMES]
    assert (len(objects), len(places)) == (19, 23)
    of_tasks = (table.right[np.ix_(objects, places)] for table in (ours, people))
    assert measures(*of_tasks) == [0.88, 0.59, 0.55]
    assert (ours.right & people.misplaced).sum() / ours.right.sum() == pytest.approx(0.12, abs=0.005)


def measures(answers, labels):
    """Accuracy, precision and recall."""
    return [
        round(float(value[0]), 2)
        for value in list(answered.measures(answered.counts(answers.ravel(), labels.ravel())).values())[:3]
    ]
