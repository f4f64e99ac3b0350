"""TextTable: ids are a bijection with texts, hashes are the same everywhere."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

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
