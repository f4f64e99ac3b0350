"""The decoder is the textbook's, sequence by sequence; what is kept, left out, packed or batched changes no number."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from learner.models.sequence import attention
from learner.models.sequence.decoder import Decoder
from tests.learner.textbook import HEADS, WIDTH, build, close, textbook, tokens

LENGTHS = [5, 1, 9, 3]


def test_packed_sequences_are_the_textbooks_one_by_one():
    decoder, x = build(), tokens(sum(LENGTHS))
    expected = torch.cat([textbook(decoder, part) for part in x.split(LENGTHS)])
    close(decoder(x, LENGTHS), expected)
    assert expected.std() > 0.1


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 8), min_size=1, max_size=5), data=st.data())
def test_a_token_depends_on_its_own_past_and_on_nothing_else(lengths, data):
    decoder, x = build(), tokens(sum(lengths)).requires_grad_()
    at = data.draw(st.integers(0, sum(lengths) - 1))
    decoder(x, lengths)[at].square().sum().backward()
    first = max(begin for begin in np.cumsum([0, *lengths[:-1]]).tolist() if begin <= at)
    touched = x.grad.abs().sum(-1) > 0
    assert touched.tolist() == [first <= i <= at for i in range(sum(lengths))]


def test_neighbours_do_not_matter_to_the_last_bit():
    decoder, x = build(), tokens(sum(LENGTHS))
    other = torch.cat([x[:6], tokens(9, seed=9), x[15:]])
    before, after = decoder(x, LENGTHS), decoder(other, LENGTHS)
    assert torch.equal(before[:6], after[:6])
    assert torch.equal(before[15:], after[15:])
    assert not torch.isclose(before[6:15], after[6:15]).any(-1).all()


@pytest.mark.parametrize("cross_attention", [False, True])
def test_what_is_not_read_need_not_be_computed(cross_attention):
    decoder, x = build(cross_attention), tokens(sum(LENGTHS))
    more = (decoder.remember(tokens(10, seed=3), [4, 1, 2, 3]),) if cross_attention else ()
    read = torch.tensor([0, 3, 4, 6, 14, 17])  # none of the second sequence
    rows = []
    decoder.blocks[-1].up.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    close(decoder(x, LENGTHS, read, *more), decoder(x, LENGTHS, None, *more)[read])
    assert rows == [6, 18]
    gradients = []
    for chosen in (decoder(x, LENGTHS, read, *more), decoder(x, LENGTHS, None, *more)[read]):
        decoder.zero_grad()
        chosen.square().sum().backward(retain_graph=True)  # the memory is the same
        gradients.append(torch.cat([p.grad.ravel() for p in decoder.parameters() if p.grad is not None]))
    close(*gradients, atol=1e-4)


@pytest.mark.parametrize("prompts", [[4, 7, 1], [3, 3, 3], [0, 2, 5], [0, 0, 0]])
@pytest.mark.parametrize("at_once", [1, 3])
def test_acting_step_by_step_equals_one_pass(prompts, at_once):
    decoder, more = build(), 6
    whole = [tokens(n + more, seed=n + 10 * i) for i, n in enumerate(prompts)]
    expected = torch.stack([decoder(x, [len(x)])[-more:] for x in whole])
    cache = decoder.begin(torch.cat([x[:n] for x, n in zip(whole, prompts, strict=True)]), prompts)
    cache.spread(torch.arange(3), more)
    new = torch.stack([x[-more:] for x in whole])
    found = [decoder.extend(new[:, i : i + at_once], cache) for i in range(0, more, at_once)]
    close(torch.stack(found, 1), expected[:, at_once - 1 :: at_once])
    with pytest.raises(ValueError, match="room"):
        decoder.extend(new[:, :1], cache)


def test_a_prompt_is_computed_once_for_all_rows_that_follow_it():
    decoder, rows = build(), torch.tensor([1, 1, 0, 1])
    prompts = tokens(7).split([4, 3])
    cache = decoder.begin(torch.cat(prompts), [4, 3])
    cache.spread(rows, 2)
    assert (cache.rows, cache.filled, cache.capacity) == (4, 4, 6)
    new = torch.stack([tokens(2, seed=20 + i) for i in range(4)])
    decoder.extend(new[:, :1], cache)
    found = decoder.extend(new[:, 1:], cache)
    for row, prompt in enumerate(rows.tolist()):
        x = torch.cat([prompts[prompt], new[row]])
        close(found[row], decoder(x, [len(x)])[-1])


@pytest.mark.parametrize("read", [None, [1, 3, 4, 6, 8, 11]], ids=["all", "two of each"])
def test_sequences_of_equal_length_are_computed_at_once(read, monkeypatch):
    decoder, x = build(), tokens(12)
    read = None if read is None else torch.tensor(read)
    sizes, fused = [], attention.scaled_dot_product_attention
    monkeypatch.setattr(
        attention, "scaled_dot_product_attention", lambda q, *a, **k: sizes.append(len(q)) or fused(q, *a, **k)
    )
    found = decoder(x, [4, 4, 4], read)
    assert sizes == [3, 3]
    whole = torch.cat([decoder(part, [4]) for part in x.split(4)])
    close(found, whole if read is None else whole[read])
    close(whole, torch.cat([textbook(decoder, part) for part in x.split(4)]))
    other = torch.cat([x[:4], tokens(4, seed=9), x[8:]])
    again, far = decoder(other, [4, 4, 4], read), len(found) // 3
    assert torch.equal(found[:far], again[:far])  # neighbours do not matter, to the last bit
    assert torch.equal(found[-far:], again[-far:])
    assert not torch.isclose(found[far:-far], again[far:-far]).any(-1).all()


@pytest.mark.parametrize("fused", [0, 1024], ids=["fused", "by products"])
def test_half_the_precision_gives_nearly_the_same(fused, monkeypatch):
    monkeypatch.setattr(attention, "FUSED", fused)
    decoder, x = build(), tokens(sum(LENGTHS))
    with torch.autocast("cpu", torch.bfloat16):
        found = decoder(x, LENGTHS)
    exact = decoder(x, LENGTHS)
    assert (found - exact).abs().max() < 0.15
    assert 1e-4 < (found - exact).abs().mean() < 0.02


def test_initial_weights_are_small_and_smaller_where_blocks_add_up():
    torch.manual_seed(0)
    decoder = Decoder(64, 8, 4, cross_attention=True, null_chunk=True, band=5)
    for name, weight in decoder.named_parameters():
        if name in ("nothing", "offsets"):
            assert (weight == 0).all()  # what is not learned yet adds nothing, however far back
            continue
        expected = 0.02 / 4 if name.split(".")[-2] in ("out", "down", "cross_out") else 0.02
        assert weight.ndim == 1 or abs(float(weight.detach().std()) - expected) < 0.05 * expected, name
        assert weight.ndim > 1 or (weight == 1).all()


@pytest.mark.parametrize("band", [0, 2])
@pytest.mark.parametrize("lengths", [[], [0], [0, 0]], ids=str)
def test_of_no_tokens_there_are_no_outputs(lengths, band):
    decoder, none = build(True, band=band), tokens(0)
    memory = decoder.remember(tokens(2), [2])
    assert decoder(none, lengths).shape == (0, WIDTH)
    assert decoder(none, lengths, torch.zeros(0, dtype=torch.int64), memory).shape == (0, WIDTH)


def test_dropout_drops_in_training_only():
    torch.manual_seed(0)
    decoder, x = Decoder(WIDTH, 2, HEADS, dropout=0.5), tokens(5)
    assert not torch.equal(decoder(x, [5]), decoder(x, [5]))
    decoder.eval()
    assert torch.equal(decoder(x, [5]), decoder(x, [5]))


def test_heads_that_do_not_divide_the_width_are_said():
    with pytest.raises(ValueError, match="24 cannot be divided among 5"):
        Decoder(24, 1, 5)


def test_what_cannot_be_is_said():
    with pytest.raises(ValueError, match="band of -1"):
        Decoder(24, 1, 3, band=-1)
    with pytest.raises(ValueError, match="set cross_attention"):
        Decoder(24, 1, 3, null_chunk=True)
    plain, banded, x = build(True), build(band=2), tokens(4)
    with pytest.raises(ValueError, match="only a decoder with a band"):
        plain.ring(1)
    with pytest.raises(ValueError, match="keeps no prompts"):
        banded.begin(x, [4])
    memory = plain.remember(x, [2, 2])
    with pytest.raises(ValueError, match="chunks -1 to 2, but the memory has 2"):
        plain(x, [4], None, memory, torch.tensor([-1, 0, 1, 2]))
    with pytest.raises(ValueError, match="index of 3 for 4 tokens"):
        plain(x, [4], None, memory, torch.tensor([0, 0, 0]))
    with pytest.raises(ValueError, match="looks at a memory: set cross_attention"):
        banded.remember(x, [4])
    cache = plain.begin(x, [1, 1, 2])
    cache.spread(torch.arange(3), 1)
    for decoder, kept in ((plain, cache), (banded, banded.ring(3))):
        with pytest.raises(ValueError, match="tokens of 1 rows for a cache of 3"):
            decoder.extend(x[None, :1], kept)


@pytest.mark.parametrize("width", [32, 20, 360])
def test_one_call_of_attention_for_all_sequences_gives_what_one_call_each_does(width, monkeypatch):
    """What a GPU's decoder hands to attention, which only a GPU has a kernel for; it refuses heads off 8."""
    torch.manual_seed(0)
    model, lengths, read = Decoder(width, 2, 4), [5, 0, 1, 9, 7], torch.tensor([0, 4, 5, 8, 21])
    tokens = torch.randn(22, width)
    expected, whole = model(tokens, lengths, read), model(tokens, lengths)
    calls = []

    def one_call(parts, offsets, real, scale):
        calls.append(real)
        assert offsets.diff().tolist() == real == [5, 1, 9, 7]
        assert parts.shape[3] % 8 == 0
        own = torch.split(parts.transpose(1, 2), real, 2)  # [3, heads, length, size of a head]
        seen = [scaled_dot_product_attention(*part, is_causal=True, scale=scale) for part in own]
        return torch.cat(seen, 1).transpose(0, 1)

    monkeypatch.setattr(attention, "_one_call", one_call)
    monkeypatch.setattr(Decoder, "_ragged", lambda self, tokens: True)
    torch.testing.assert_close(model(tokens, lengths, read), expected)
    torch.testing.assert_close(model(tokens, lengths), whole)
    assert len(calls) == 4
