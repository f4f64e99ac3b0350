"""TextTable: ids are a bijection with texts, hashes are the same everywhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import envs.text
from envs import TextTable, text_hash

TEXTS = st.lists(st.text(max_size=30), min_size=1, max_size=120)


def table_of(texts):
    table = TextTable()
    return table, np.array([table.intern(text) for text in texts], np.int32)


@given(TEXTS)
def test_ids_are_consecutive_in_order_of_first_appearance(texts):
    table, ids = table_of(texts)
    assert [table[i] for i in range(len(table))] == list(dict.fromkeys(texts))
    assert table.texts(ids) == texts


@given(TEXTS)
def test_hashes_are_those_of_the_texts_in_any_shape(texts):
    table, ids = table_of(texts)
    hashes = table.hashes(ids)
    assert hashes.dtype == np.int64
    assert hashes.tolist() == [text_hash(text) for text in texts]
    assert table.hashes(ids.reshape(-1, 1)).shape == (len(texts), 1)


@given(TEXTS)
def test_what_is_exported_is_what_is_named(texts):
    table, ids = table_of(["another text", *texts])
    assert table.export(ids[1:]) == {text_hash(text): text for text in texts}


@given(st.lists(st.text(max_size=8), unique=True, min_size=2, max_size=50))
def test_different_texts_have_different_hashes(texts):
    assert len({text_hash(text) for text in texts}) == len(texts)


def test_hashes_do_not_change_between_versions():
    """They are on disk: replay, journals and archives hold them."""
    assert text_hash("go to the red ball") == 3197333803391655934


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_texts_of_any_integers(dtype):
    table, _ = table_of(["a", "b", "c"])
    assert table.texts(np.array([2, 0, 2], dtype)) == ["c", "a", "c"]
    assert table.texts(np.array([], dtype)) == []
    assert table.texts(iter([1, np.int32(0)])) == ["b", "a"]


def test_a_text_is_hashed_when_first_asked_for_and_once(monkeypatch):
    hashed = []

    def counted(text):
        hashed.append(text)
        return text_hash(text)

    monkeypatch.setattr(envs.text, "text_hash", counted)
    table, ids = table_of([f"text {i}" for i in range(1000)])
    assert hashed == []
    assert table.hashes(ids[[900, 3, 900]]).tolist() == [text_hash(f"text {i}") for i in (900, 3, 900)]
    assert sorted(hashed) == ["text 3", "text 900"]
    assert table.export(ids[[3, 4]]) == {text_hash("text 3"): "text 3", text_hash("text 4"): "text 4"}
    assert sorted(hashed) == ["text 3", "text 4", "text 900"]


@given(st.lists(st.tuples(TEXTS, st.data()), min_size=1, max_size=4))
def test_hashes_stay_right_while_texts_are_added(rounds):
    table = TextTable()
    for texts, data in rounds:
        for text in texts:
            table.intern(text)
        ids = np.array(data.draw(st.lists(st.integers(0, len(table) - 1), max_size=20)), np.int32)
        assert table.hashes(ids).tolist() == [text_hash(table[i]) for i in ids]
