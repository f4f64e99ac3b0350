"""The decoder is the textbook's, sequence by sequence; what is kept, left out, packed or batched changes no number."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.models.sequence import attention as module
from learner.models.sequence.decoder import Decoder

WIDTH, HEADS = 24, 3
LENGTHS = [5, 1, 9, 3]


def build(cross_attention=False, layers=2, **parts):
    """A decoder whose weights are large enough for every part to matter."""
    torch.manual_seed(0)
    decoder = Decoder(WIDTH, layers, HEADS, cross_attention=cross_attention, **parts).eval()
    for weight in decoder.parameters():
        weight.data = torch.randn_like(weight) * (0.3 if weight.ndim > 1 else 1.0)
    return decoder


def tokens(n, seed=1):
    return torch.randn(n, WIDTH, generator=torch.Generator().manual_seed(seed))


def textbook(decoder, x, looks=None):
    """One sequence [L, width], by the formulas. looks: the chunk [., width] that each token looks at, or None."""

    def norm(layer, x):
        return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt() * layer.weight

    def attention(query, keys, values, added):
        """Of one token [width] to several; added: to the scores of each head."""
        size, found = WIDTH // HEADS, []
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            score = keys[:, part] @ query[part] / math.sqrt(size) + added[head]
            found.append(score.softmax(-1) @ values[:, part])
        return torch.cat(found, -1)

    for layer, block in enumerate(decoder.blocks):
        q, k, v = (norm(block.norm, x) @ block.qkv.weight.T).chunk(3, -1)
        seen = []
        for t in range(len(x)):
            first = max(0, t + 1 - decoder.band) if decoder.band else 0
            added = torch.zeros(HEADS, t + 1 - first)
            if decoder.band:
                added = decoder.offsets[layer][:, : t + 1 - first].flip(-1)  # the nearest is the last
            seen.append(attention(q[t], k[first : t + 1], v[first : t + 1], added))
        x = x + torch.stack(seen) @ block.out.weight.T
        if looks is not None:
            q, seen = norm(block.cross_norm, x) @ block.query.weight.T, []
            for query, chunk in zip(q, looks, strict=True):
                if chunk is None or not len(chunk):
                    seen.append(decoder.nothing[layer] if decoder.null_chunk else torch.zeros(WIDTH))
                else:
                    k, v = (chunk @ block.memory.weight.T).chunk(2, -1)
                    seen.append(attention(query, k, v, torch.zeros(HEADS, len(chunk))))
            x = x + torch.stack(seen) @ block.cross_out.weight.T
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
    sizes, fused = [], module.scaled_dot_product_attention
    monkeypatch.setattr(
        module, "scaled_dot_product_attention", lambda q, *a, **k: sizes.append(len(q)) or fused(q, *a, **k)
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


@pytest.mark.parametrize("lengths", [[3], [5], [17], [17, 17], [11, 2, 0, 5, 6]], ids=str)
def test_a_token_sees_the_band_behind_it_and_how_far_back_each_token_is(lengths):
    decoder, x = build(band=5), tokens(sum(lengths))
    found = decoder(x, lengths)
    close(found, torch.cat([textbook(decoder, part) for part in x.split(lengths) if len(part)]), atol=2e-5)
    read = torch.tensor([0, sum(lengths) - 1])
    close(decoder(x, lengths, read), found[read])


def test_a_band_reaches_one_token_less_than_itself_further_in_each_layer():
    decoder, x = build(band=4, layers=3), tokens(20).requires_grad_()
    decoder(x, [20])[15].square().sum().backward()
    assert (x.grad.abs().sum(-1) > 0).tolist() == [15 - 3 * 3 <= i <= 15 for i in range(20)]
    assert (decoder.offsets.grad.abs() > 0).all()


def test_a_ring_is_one_pass_over_episodes_that_are_longer_and_restart_when_they_like():
    decoder = build(band=4)
    begins, steps = [[0, 9], [0, 3, 5, 18], [0]], 23
    rows = torch.stack([tokens(steps, seed=i) for i in range(3)])
    ring, found = decoder.ring(3), []
    with torch.no_grad():
        for t in range(steps):
            ring.restart(torch.tensor([t in begin for begin in begins]))
            found.append(decoder.extend(rows[:, t : t + 1], ring))
        assert ring.keys[0].shape == (3, HEADS, 4, WIDTH // HEADS)
        for row, begin in enumerate(begins):
            lengths = np.diff([*begin, steps]).tolist()
            close(torch.stack(found)[:, row], decoder(rows[row], lengths))
        ring.restart(torch.arange(3))
        at_once = [decoder.extend(rows[:, t : t + 3], ring) for t in range(0, 9, 3)]
        close(torch.stack(at_once, 1), torch.stack([decoder(row[:9], [9])[2::3] for row in rows]))


CHUNKS = [4, 1, 0, 7]
INDEX = [3, 3, -1, 0, 2, 3, 1, 0, -1, 3, 3, 0]  # of two sequences of six; the chunk 2 is empty


@pytest.mark.parametrize("null_chunk", [False, True])
@pytest.mark.parametrize("band", [0, 3])
def test_each_token_looks_at_the_chunk_that_was_found_for_it(null_chunk, band):
    decoder, x = build(True, null_chunk=null_chunk, band=band), tokens(12)
    chunks, index = tokens(12, seed=4).requires_grad_(), torch.tensor(INDEX)
    looks = [None if i < 0 else chunks.split(CHUNKS)[i] for i in INDEX]
    expected = torch.cat([textbook(decoder, x[:6], looks[:6]), textbook(decoder, x[6:], looks[6:])])
    encoded = []
    hooks = [
        block.memory.register_forward_hook(lambda *given: encoded.append(len(given[-1]))) for block in decoder.blocks
    ]
    memory = decoder.remember(chunks, CHUNKS)
    found = decoder(x, [6, 6], None, memory, index)
    assert encoded == [12, 12]  # once a chunk and layer, though 3 is looked at five times
    close(found, expected, atol=5e-5)
    read = torch.tensor([1, 2, 5, 8, 11])
    close(decoder(x, [6, 6], read, memory, index), found[read])
    gradients = []
    for each in (found, expected):
        decoder.zero_grad()
        chunks.grad = None
        each.square().sum().backward(retain_graph=True)
        gradients.append(torch.cat([p.grad.ravel() for p in (chunks, *decoder.parameters())]))
    close(*gradients, atol=1e-3)
    for hook in hooks:
        hook.remove()


@settings(max_examples=25, deadline=None)
@given(index=st.lists(st.integers(-1, 4), min_size=1, max_size=30))
def test_whoever_looks_where_all_see_what_they_would_alone(index):
    decoder = build(True)
    memory, chosen = decoder.remember(tokens(14, seed=4), [3, 2, 0, 5, 4]), torch.tensor(index)
    groups = memory.group(chosen)
    used = {i for i in index if i not in (-1, 2)}
    assert len(used) <= len(groups.chunks) <= 2 * len(used)
    query = torch.randn(len(index), WIDTH)
    found = memory.look(0, query, groups, torch.zeros(WIDTH))
    alone = [
        memory.look(0, q[None], memory.group(i[None]), torch.zeros(WIDTH)) for q, i in zip(query, chosen, strict=True)
    ]
    close(found, torch.cat(alone))


def test_an_empty_memory_is_none_alone_and_among_others():
    decoder, x = build(True), tokens(9)
    without = decoder(x, [4, 5])
    for memory in (decoder.remember(x[:0], []), decoder.remember(x[:2], [2]), decoder.remember(x[:0], [0])):
        assert torch.equal(decoder(x, [4, 5], None, memory, torch.full((9,), -1)), without)
    mixed = decoder(x, [4, 5], None, decoder.remember(tokens(3, seed=4), [0, 3]))
    assert torch.equal(mixed[:4], without[:4])
    assert not torch.isclose(mixed[4:], without[4:]).any()
    taught = build(True, null_chunk=True)
    nothing = taught(x, [4, 5], None, taught.remember(x[:0], []), torch.full((9,), -1))
    close(nothing, torch.cat([textbook(taught, part, [None] * len(part)) for part in x.split([4, 5])]))
    assert torch.equal(taught(x, [4, 5]), nothing)  # without a memory, too


@pytest.mark.parametrize("null_chunk", [False, True])
@pytest.mark.parametrize("band", [0, 3])
def test_acting_with_a_memory_that_grows_equals_one_pass(band, null_chunk):
    decoder, index = build(True, null_chunk=null_chunk, band=band), torch.tensor(INDEX).view(2, 6)
    rows, chunks = tokens(12).view(2, 6, WIDTH), tokens(12, seed=4)
    with torch.no_grad():
        expected = decoder(rows.flatten(0, 1), [6, 6], None, decoder.remember(chunks, CHUNKS), index.flatten())
        cache = decoder.ring(2) if band else decoder.begin(rows[:0, 0], [0, 0])
        if not band:
            cache.spread(torch.arange(2), 6)
        memory = decoder.remember(chunks[:5], CHUNKS[:2])
        memory.add(decoder.remember(chunks[5:], CHUNKS[2:]))
        found = [decoder.extend(rows[:, t : t + 1], cache, memory, index[:, t]) for t in range(6)]
        close(torch.stack(found, 1).flatten(0, 1), expected)


def test_chunks_that_are_added_one_by_one_are_those_of_one_memory():
    decoder, lengths = build(True), [2, 1, 3, 0, 2, 5, 1, 4]
    chunks, x = tokens(sum(lengths), seed=4).split(lengths), tokens(8)
    with torch.no_grad():
        memory = decoder.remember(chunks[0], lengths[:1])
        for chunk, length in zip(chunks[1:], lengths[1:], strict=True):
            memory.add(decoder.remember(chunk, [length]))
        assert len(memory) == 8
        whole = decoder.remember(torch.cat(chunks), lengths)
        close(decoder(x, [8], None, memory, torch.arange(8)), decoder(x, [8], None, whole, torch.arange(8)))


@pytest.mark.parametrize("after", [1, 2, 5, 8])
def test_a_row_that_pauses_goes_on_as_if_there_had_been_no_pause(after):
    decoder, rows = build(band=4), tokens(24).view(2, 12, WIDTH)
    with torch.no_grad():
        ring = decoder.ring(2)
        for t in range(after):
            decoder.extend(rows[:, t : t + 1], ring)
        held = ring.hold(torch.tensor([1]))
        for t in range(after, after + 3):
            expected = decoder.extend(rows[:, t : t + 1], ring)
        ring.resume(held)
        other = decoder.ring(2)
        for t in range(after):
            decoder.extend(rows[:, t : t + 1], other)
        found = decoder.extend(rows[:, 9:10], ring)[1]
        close(found, decoder.extend(rows[:, 9:10], other)[1])
    assert not torch.isclose(found, expected[1]).all()


def test_rows_of_a_cache_look_at_their_chunks_with_several_tokens_at_once():
    decoder, rows = build(True), tokens(12).view(3, 4, WIDTH)
    memory = decoder.remember(tokens(6, seed=5), [4, 2])
    index = torch.tensor([1, -1, 0])
    cache = decoder.begin(rows[:0, 0], [0, 0, 0])
    cache.spread(torch.arange(3), 4)
    decoder.extend(rows[:, :3], cache, memory, index)
    found = decoder.extend(rows[:, 3:], cache, memory, index)
    close(found, decoder(rows.flatten(0, 1), [4] * 3, None, memory, index.repeat_interleave(4))[3::4])


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
