"""What a chunk itself paid: a sum of its rewards, which an entry keeps and a score may ask for."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.context.chunks import chunks_of, paid_in, to_go
from learner.context.config import RetrieveConfig
from learner.context.lookup import look_up
from learner.context.reader import Reader
from tests.learner.histories import written

RETRIEVE = RetrieveConfig(every=3, past=2, future=3, pool=3, nearest=50, minimum=0, terms={"paid": 1})


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    every=st.integers(1, 5),
    past=st.integers(0, 6),
    future=st.integers(1, 6),
    seed=st.integers(0, 2**31),
)
def test_a_chunk_paid_the_sum_of_its_rewards_to_the_bit(lengths, every, past, future, seed):
    """Nothing of what came before or after shows, so that chunks which paid the same are equal."""
    reward = np.random.default_rng(seed).choice(np.array([0, 0.1, -0.7, 1e3], np.float32), sum(lengths))
    cut, first = chunks_of(np.array(lengths), RetrieveConfig(every=every, past=past, future=future)), np.cumsum(lengths)
    begin = (first - lengths)[cut.episode]
    found = paid_in(to_go(reward, lengths), begin + cut.start, begin + cut.stop, first[cut.episode])
    plain = [reward[a + i : a + j].sum(dtype=np.float64) for a, i, j in zip(begin, cut.start, cut.stop, strict=True)]
    assert found.tolist() == plain


def test_a_lookup_by_what_was_paid_takes_a_chunk_of_the_task_that_paid_most(tmp_path):
    store = written(tmp_path / "store", [[7, 9, 9, 4], [9] * 5])
    reader, random = Reader(store), np.random.default_rng(0)
    vectors = {e: random.normal(size=(9, 4)).astype(np.float32) for e in range(len(store))}
    table = look_up(
        reader,
        RETRIEVE.model_copy(update={"at_most": 2.0}),
        "nearest",
        lambda episodes, at: np.concatenate([vectors[e][own] for e, own in zip(episodes.tolist(), at, strict=True)]),
        0,
    )
    reward, cut = store.rows(np.arange(store.steps)).reward, chunks_of(store.length, RETRIEVE)

    def paid(episode, start, stop):
        return reward[store.first[episode] + start : store.first[episode] + stop].sum()

    every = np.array([paid(*chunk) for chunk in zip(cut.episode, cut.start, cut.stop, strict=True)])
    assert len(set(every)) > 2
    for at, e in enumerate(np.repeat(np.arange(len(store)), np.diff(table.first))):
        others = (store.task[cut.episode] == store.task[e]) & (cut.episode != e)
        assert paid(table.episode[at], table.start[at], table.stop[at]) == every[others].max()
