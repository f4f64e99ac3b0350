"""Texts by their words, and sums of rows: compiled loops against plain operations of PyTorch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.models.rows import Appearing, sum_rows
from learner.models.text_encoder import PLACES, LearnedText

WORDS = ("cow", "eat", "stone", "the", "tree")
SAID = st.sampled_from((*WORDS, "unheard"))
TEXTS = st.lists(st.lists(SAID, max_size=6).map(" ".join), min_size=1, max_size=6)


def encoder(width=16):
    torch.manual_seed(0)
    return LearnedText(WORDS, width)


def assert_equal_to_plain(texts, width=16):
    """Codes and the gradients of all parameters."""
    text = encoder(width)
    tokens = text.prepare(texts)
    slope, found = torch.randn(len(texts), width), []
    for codes in (text(tokens), text.plainly(tokens)):
        text.zero_grad()
        codes.backward(slope)
        found.append([codes.detach(), *(p.grad.clone() for p in text.parameters())])
    for compiled, plain in zip(*found, strict=True):
        torch.testing.assert_close(compiled, plain, atol=1e-5, rtol=1e-4)
    return found[0]


@settings(max_examples=60)
@given(TEXTS)
def test_words_are_read_as_by_plain_operations(texts):
    assert_equal_to_plain(texts)


@pytest.mark.parametrize("length", [PLACES - 1, PLACES, PLACES + 1, PLACES + 2, 2 * PLACES])
def test_words_of_long_texts_share_the_last_place(length):
    """There, equal windows are equal sums: plain operations halve the slope between them, and both halves go to the
    same rows."""
    random = np.random.default_rng(length)
    assert_equal_to_plain([" ".join(random.choice(WORDS, length)), "eat the cow", "stone " * length])


def test_empty_texts_are_zero_and_teach_nothing():
    codes, *gradients = assert_equal_to_plain(["", ""])
    assert not codes.any()
    assert not any(gradient.any() for gradient in gradients)
    assert not assert_equal_to_plain(["", "eat"])[0][0].any()


def test_what_is_not_a_number_is_passed_on():
    text = encoder()
    with torch.no_grad():
        text.embedding.weight[text.row_of_word["tree"], 0] = torch.nan
    codes = text(text.prepare(["eat the cow", "tree the cow eat", "eat tree"]))
    assert codes.isnan().all(1).tolist() == [False, True, True]
    assert not codes[0].isnan().any()


def test_words_are_read_in_float32_whatever_the_others_compute_in():
    text = encoder()
    tokens = text.prepare(["eat the cow", "tree"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        codes = text(tokens)
    assert codes.equal(text(tokens))
    codes.sum().backward()
    half = encoder().bfloat16()  # weights that are themselves rounded are read by plain operations
    assert half(tokens).equal(half.plainly(tokens))


@settings(max_examples=60)
@given(st.integers(1, 5), st.integers(0, 4), st.integers(0, 4), st.randoms(use_true_random=False))
def test_sums_of_rows_are_those_of_a_gather(rows, sums, each, random):
    table = torch.randn(rows, 3, requires_grad=True)
    ids = torch.tensor([[random.randrange(rows) for _ in range(each)] for _ in range(sums)], dtype=torch.int64)
    ids = ids.reshape(sums, each)
    slope = torch.randn(sums, 3)
    found = []
    for total in (sum_rows(table, ids), table[ids].sum(1)):
        (gradient,) = torch.autograd.grad(total, table, slope)
        found.append((total.detach(), gradient))
    torch.testing.assert_close(*found)
    torch.testing.assert_close(sum_rows(table.detach().T.contiguous().T, ids), found[1][0])  # columns lie together


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(0, 9), max_size=12), min_size=1, max_size=3))
def test_numbers_are_named_by_their_first_appearance(calls):
    appearing = Appearing(10)
    for numbers in calls:  # a call leaves nothing behind for the next
        distinct, place = appearing(np.array(numbers, np.int64))
        assert distinct.tolist() == list(dict.fromkeys(numbers))
        assert distinct[place].tolist() == numbers
