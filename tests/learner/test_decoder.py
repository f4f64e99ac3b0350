"""The decoder is the textbook's, sequence by sequence; what is kept, left out or packed changes no number."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.models.sequence import decoder as module
from learner.models.sequence.decoder import Decoder

WIDTH, HEADS = 24, 3
LENGTHS = [5, 1, 9, 3]


def build(cross_attention=False, layers=2, seed=0):
    """A decoder whose weights are large enough for every part to matter."""
    torch.manual_seed(seed)
    decoder = Decoder(WIDTH, layers, HEADS, cross_attention=cross_attention).eval()
    for weight in decoder.parameters():
        weight.data = torch.randn_like(weight) * (0.3 if weight.ndim > 1 else 1.0)
    return decoder


def tokens(n, seed=1):
    return torch.randn(n, WIDTH, generator=torch.Generator().manual_seed(seed))


def textbook(decoder, x, memory=None):
    """One sequence [L, width], by the formulas."""

    def norm(layer, x):
        return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt() * layer.weight

    def attention(query, keys, values, hidden):
        size, found = WIDTH // HEADS, []
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            score = query[:, part] @ keys[:, part].T / math.sqrt(size)
            found.append(score.masked_fill(hidden, -math.inf).softmax(-1) @ values[:, part])
        return torch.cat(found, -1)

    for block in decoder.blocks:
        q, k, v = (norm(block.norm, x) @ block.qkv.weight.T).chunk(3, -1)
        x = x + attention(q, k, v, torch.ones(len(x), len(x), dtype=bool).triu(1)) @ block.out.weight.T
        if memory is not None:
            k, v = (memory @ block.memory.weight.T).chunk(2, -1)
            q = norm(block.cross_norm, x) @ block.query.weight.T
            x = x + attention(q, k, v, torch.zeros(len(x), len(memory), dtype=bool)) @ block.cross_out.weight.T
        inner = norm(block.wide_norm, x) @ block.up.weight.T
        inner = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
        x = x + inner @ block.down.weight.T
    return norm(decoder.norm, x)


def close(found, expected, atol=1e-5):
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, atol=atol, rtol=atol)


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
    more = (tokens(10, seed=3), [4, 1, 2, 3]) if cross_attention else ()
    read = torch.tensor([0, 3, 4, 6, 14, 17])  # none of the second sequence
    rows = []
    decoder.blocks[-1].up.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    close(decoder(x, LENGTHS, read, *more), decoder(x, LENGTHS, None, *more)[read])
    assert rows == [6, 18]
    gradients = []
    for chosen in (decoder(x, LENGTHS, read, *more), decoder(x, LENGTHS, None, *more)[read]):
        decoder.zero_grad()
        chosen.square().sum().backward()
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


def test_each_sequence_looks_at_its_own_memory():
    decoder, x, memory = build(True), tokens(8), tokens(9, seed=4).requires_grad_()
    found = decoder(x, [3, 5], None, memory, [7, 2])
    close(found, torch.cat([textbook(decoder, x[:3], memory[:7]), textbook(decoder, x[3:], memory[7:])]), atol=1e-4)
    found[1].square().sum().backward()
    assert ((memory.grad.abs().sum(-1) > 0) == torch.tensor([True] * 7 + [False] * 2)).all()
    assert all(block.memory.weight.grad.abs().sum() > 0 for block in decoder.blocks)
    close(decoder(x, [3, 5]), torch.cat([textbook(decoder, part) for part in x.split([3, 5])]))  # without one


def test_a_cache_looks_at_memories_of_different_lengths_which_may_change():
    decoder, x = build(True), tokens(12)
    cache = decoder.begin(x[:0], [0, 0])
    memory = tokens(6, seed=5), [4, 2]
    decoder.remember(cache, *memory)
    cache.spread(torch.tensor([0, 1, 1]), 4)
    rows = torch.stack(x.split(4))
    parts = memory[0].split(memory[1])
    for step in range(3):
        found = decoder.extend(rows[:, step : step + 1], cache)
    for row, own in enumerate((0, 1, 1)):
        close(found[row], textbook(decoder, rows[row, :3], parts[own])[-1], atol=1e-4)
    other = tokens(5, seed=6)
    decoder.remember(cache, other, [1, 3, 1])
    changed = decoder.extend(rows[:, 3:], cache)
    unlike = textbook(decoder, rows[0], parts[0])[-1]
    assert (changed[0] - unlike).abs().max() > 0.1  # the last token saw another memory


@pytest.mark.parametrize("fused", [0, 1024], ids=["fused", "by products"])
def test_half_the_precision_gives_nearly_the_same(fused, monkeypatch):
    monkeypatch.setattr(module, "FUSED", fused)
    decoder, x = build(), tokens(sum(LENGTHS))
    with torch.autocast("cpu", torch.bfloat16):
        found = decoder(x, LENGTHS)
    exact = decoder(x, LENGTHS)
    assert (found - exact).abs().max() < 0.15
    assert 1e-4 < (found - exact).abs().mean() < 0.02


def test_initial_weights_are_small_and_smaller_where_blocks_add_up():
    torch.manual_seed(0)
    for name, weight in Decoder(64, 8, 4, cross_attention=True).named_parameters():
        expected = 0.02 / 4 if name.split(".")[-2] in ("out", "down", "cross_out") else 0.02
        assert weight.ndim == 1 or abs(float(weight.detach().std()) - expected) < 0.05 * expected, name
        assert weight.ndim > 1 or (weight == 1).all()


def test_dropout_drops_in_training_only():
    torch.manual_seed(0)
    decoder, x = Decoder(WIDTH, 2, HEADS, dropout=0.5), tokens(5)
    assert not torch.equal(decoder(x, [5]), decoder(x, [5]))
    decoder.eval()
    assert torch.equal(decoder(x, [5]), decoder(x, [5]))


def test_heads_that_do_not_divide_the_width_are_said():
    with pytest.raises(ValueError, match="24 cannot be divided among 5"):
        Decoder(24, 1, 5)
