"""A band, its ring, and a memory are the textbook's too: what is kept, let go or looked at changes no number."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.learner.textbook import HEADS, WIDTH, build, close, textbook, tokens


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


def test_a_ring_keeps_no_graph_of_the_steps_before():
    decoder, x = build(band=4), tokens(10).requires_grad_()
    ring = decoder.ring(1)
    for t in range(10):
        found = decoder.extend(x[None, t : t + 1], ring)
    assert not any(each.requires_grad for each in ring.keys + ring.values)
    found.square().sum().backward()
    assert (x.grad.abs().sum(-1) > 0).tolist() == [False] * 9 + [True]  # the newest token's alone


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


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_memory_that_grows_chunk_by_chunk_is_copied_seldom(at_once):
    decoder, lengths = build(True), [2, 1, 0, 3, 2, 1] * 10
    chunks = tokens(sum(lengths), seed=4).split(lengths)
    whole, places, memory = decoder.remember(torch.cat(chunks), lengths), [], decoder.remember(tokens(0), [])
    for i in range(0, 60, at_once):
        some = slice(i, i + at_once)
        memory.add(decoder.remember(torch.cat(chunks[some]), lengths[some]))
        places.append(memory.keys[0].data_ptr())
    moved = sum(before != after for before, after in pairwise(places))
    assert moved <= 12  # 1.5 ** 10 is 58, and a longer chunk moves all, too
    assert len(memory.keys[0]) <= 90  # half as much again
    assert not any(each.requires_grad for each in memory.keys + memory.values)
    assert (len(memory), memory.lengths.tolist()) == (60, lengths)
    x, index = tokens(120), torch.arange(120) % 61 - 1
    close(decoder(x, [120], None, memory, index), decoder(x, [120], None, whole, index))


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
