"""TextTable: ids are a bijection with texts, hashes are the same everywhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs import TextTable, UnknownText, text_hash

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
def test_hashes_and_back(texts):
    table, ids = table_of(texts)
    hashes = table.hashes(ids)
    assert hashes.dtype == np.int64
    assert hashes.tolist() == [text_hash(text) for text in texts]
    assert np.array_equal(table.ids(hashes), ids)
    assert table.ids(hashes.reshape(-1, 1)).shape == (len(texts), 1)


@given(TEXTS, TEXTS)
def test_a_receiver_understands_what_it_was_sent(first, second):
    sender, _ = table_of(first + second)
    receiver = TextTable()
    receiver.intern("its own text")
    sent: set[int] = set()
    for texts in (first, second):
        ids = np.array([sender.intern(text) for text in texts], np.int32)
        receiver.receive(sender.export(ids, sent))
        assert receiver.texts(receiver.ids(sender.hashes(ids))) == texts


@given(TEXTS)
def test_nothing_is_sent_twice(texts):
    table, ids = table_of(texts)
    sent: set[int] = set()
    assert set(table.export(ids, sent).values()) == set(texts)
    assert table.export(ids, sent) == {}


@given(st.lists(st.text(max_size=8), unique=True, min_size=2, max_size=50))
def test_different_texts_have_different_hashes(texts):
    assert len({text_hash(text) for text in texts}) == len(texts)


def test_hashes_do_not_change_between_versions():
    """They are on disk: replay, journals and archives hold them."""
    assert text_hash("go to the red ball") == 3197333803391655934


def test_an_unknown_hash_is_refused():
    table, _ = table_of(["known"])
    with pytest.raises(UnknownText, match="not sent to this process; 1 texts are known"):
        table.ids(np.array([text_hash("unknown")]))
