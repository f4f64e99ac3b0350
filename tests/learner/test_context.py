"""Learning in context: acting is one pass, lookups are those of a plain loop, a batch is its episodes one by one."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learner import checkpoint
from learner.config import LearnerConfig
from learner.context.chunks import chunks_of, points_of, to_go
from learner.context.config import ARMS, ENCODED, RetrieveConfig, arm_of
from learner.context.encoders.fitted import Fitted
from learner.context.fit import HistoryFitter, held_out
from learner.context.keys import Pooled
from learner.context.lookup import keys_by, look_up
from learner.context.reader import Reader
from learner.models.sequence.history_steps import ChunkSteps, StepInputs
from learner.models.sequence.history_transformer import HistoryTransformer
from learner.models.weights import get_weights
from learner.store.episodes import EpisodeStore, StoreError
from tests.learner.histories import SPEC, written
from tests.learner.ranks import both
from tests.learner.transformers import CONFIG, LENGTHS, RETRIEVE, close, fitter, loud, model, setup


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return written(tmp_path_factory.mktemp("histories") / "store", LENGTHS)


def rows_of(inputs, at):
    """Some steps of `StepInputs` or `ChunkSteps`."""
    return replace(
        inputs,
        obs={name: column[at] for name, column in inputs.obs.items()},
        **{name: getattr(inputs, name)[at] for name in inputs.__annotations__ if name != "obs"},
    )


# ---- the transformer ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("conditioned", [True, False])
def test_a_step_at_a_time_is_one_pass_with_a_memory_that_changes(store, conditioned):
    """Rows of whole histories, one episode after the other: each step as lived is that of a pass over its episode."""
    reader, made = Reader(store), model(conditioned)
    every, lengths = [np.array([0, 1, 2]), np.array([6, 7, 8])], []
    memory = made.remember(*reader.chunks(np.array([3, 9, 13]), np.array([0, 2, 0]), np.array([4, 7, 5])))
    expected, given = [], []
    for row in every:
        steps, _, lengths = reader.episodes(row)
        index = torch.arange(sum(lengths)) // 2 % 4 - 1  # another chunk, or none, every second step
        expected.append(made(steps, lengths, memory, index))
        given.append((steps, lengths, index))
    ring = made.ring(2)
    begins = [set(np.cumsum([0, *lengths]).tolist()) for _, lengths, _ in given]
    shortest = min(len(index) for _, _, index in given)
    for t in range(shortest):
        ring.restart(torch.tensor([t in begin for begin in begins]))
        both = [rows_of(steps, torch.tensor([t])) for steps, _, _ in given]
        now = StepInputs(
            {name: torch.cat([each.obs[name] for each in both]) for name in SPEC.fields},
            *(torch.cat([getattr(each, name) for each in both]) for name in ("to_go", "last_action", "last_reward")),
        )
        found = made.step(now, ring, memory, torch.stack([index[t] for _, _, index in given]))
        close(found, torch.stack([each[t] for each in expected]))


def test_what_is_not_told_does_not_matter_and_all_else_does(store):
    reader = Reader(store)
    steps, _, lengths = reader.episodes(np.array([1, 8]))
    chunks, sizes = reader.chunks(np.array([2, 9]), np.array([0, 1]), np.array([4, 6]))
    unknown = torch.full_like(steps.to_go, torch.nan)
    blind = model(conditioned=False)
    hidden = blind(steps, lengths, blind.remember(chunks, sizes))
    told = blind(replace(steps, to_go=unknown), lengths, blind.remember(replace(chunks, to_go=unknown[:9]), sizes))
    assert torch.equal(hidden, told)
    present = model(last=False)
    hidden = present(steps, lengths, present.remember(chunks, sizes))
    other = replace(steps, last_action=steps.last_action.roll(1), last_reward=steps.last_reward.roll(1))
    assert torch.equal(hidden, present(other, lengths, present.remember(chunks, sizes)))
    seeing = model()
    hidden = seeing(steps, lengths, seeing.remember(chunks, sizes))
    for name in ("to_go", "last_action", "last_reward"):
        changed = replace(steps, **{name: getattr(steps, name).roll(1)})
        assert not torch.allclose(seeing(changed, lengths, seeing.remember(chunks, sizes)), hidden, atol=1e-3), name
    for name in ("to_go", "action", "reward"):
        changed = replace(chunks, **{name: getattr(chunks, name).roll(1)})
        assert not torch.allclose(seeing(steps, lengths, seeing.remember(changed, sizes)), hidden, atol=1e-3), name
    turned = rows_of(chunks, torch.tensor([3, 2, 1, 0, 4, 5, 6, 7, 8]))
    assert not torch.allclose(seeing(steps, lengths, seeing.remember(turned, sizes)), hidden, atol=1e-3)  # places


def test_no_memory_no_chunk_and_an_empty_one_are_the_same(store):
    made = model()
    steps, _, lengths = Reader(store).episodes(np.array([1, 8]))
    chunks, _ = Reader(store).chunks(np.array([2]), np.array([0]), np.array([4]))
    alone = made(steps, lengths)
    memory = made.remember(chunks, [4, 0])
    close(made(steps, lengths, memory, torch.full((sum(lengths),), -1)), alone)
    close(made(steps, lengths, memory, torch.ones(sum(lengths), dtype=torch.int64)), alone)
    assert not torch.allclose(made(steps, lengths, memory, torch.zeros(sum(lengths), dtype=torch.int64)), alone)


@pytest.mark.parametrize(("conditioned", "chunk", "last"), [(True, 5, True), (True, 0, True), (False, 5, False)])
def test_weights_say_what_the_configuration_does_not(conditioned, chunk, last):
    made = model(conditioned, chunk, last)
    again = HistoryTransformer.of(CONFIG, SPEC, get_weights(made))
    assert again.shape == made.shape
    assert all(torch.equal(value, again.payload()[name]) for name, value in made.payload().items())
    with pytest.raises(ValueError, match="do not fit this transformer of histories"):
        HistoryTransformer.of(CONFIG.model_copy(update={"layers": 3}), SPEC, get_weights(made))
    with pytest.raises(ValueError, match="no weights of a transformer of histories"):
        HistoryTransformer.of(CONFIG, SPEC, {})


def test_what_cannot_be_looked_at_is_refused_in_one_sentence():
    steps = ChunkSteps({"cell": torch.zeros(6).long(), "sensors": torch.zeros(6, 3)}, *torch.zeros(3, 6).long())
    with pytest.raises(ValueError, match="looks at no chunks"):
        model(chunk=0).remember(steps, [6])
    with pytest.raises(ValueError, match="a chunk of 6 steps, but this transformer knows 5 places"):
        model().remember(steps, [6])


# ---- keys and chunks ------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4), pool=st.integers(1, 6))
def test_pooled_step_by_step_is_pooled_at_once_bit_for_bit(lengths, pool):
    hidden = torch.randn(sum(lengths), 5, generator=torch.Generator().manual_seed(sum(lengths)))
    found = Pooled.of(hidden, lengths, pool)
    pooled, begins = Pooled(2, 5, pool), np.cumsum([0, *lengths]).tolist()
    for t, state in enumerate(hidden):
        if t in begins:
            pooled.restart(torch.tensor([True, False]))
        pooled.add(torch.stack([state, -state]))
        assert torch.equal(pooled.mean()[0], found[t])
        begin = max(at for at in begins if at <= t)
        close(found[t], hidden[max(begin, t + 1 - pool) : t + 1].mean(0))
    close(pooled.mean()[1], -hidden[-pool:].mean(0))  # the other row began once
    at = torch.arange(0, sum(lengths), 2)
    assert torch.equal(Pooled.of(hidden, lengths, pool, at), found[at])


def test_nothing_lived_is_a_mean_of_zeros():
    assert torch.equal(Pooled(2, 3, 4).mean(), torch.zeros(2, 3))


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    every=st.integers(1, 5),
    past=st.integers(0, 6),
    future=st.integers(1, 6),
)
def test_chunks_and_points_are_those_of_a_plain_loop(lengths, every, past, future):
    made = chunks_of(np.array(lengths), RetrieveConfig(every=every, past=past, future=future))
    expected = [
        (e, min(max(i, 2), n - 1), max(0, i - past), min(n, i + future))
        for e, n in enumerate(lengths)
        for i in range(0, n, every)
    ]
    assert list(zip(made.episode, made.key, made.start, made.stop, strict=True)) == expected
    episode, step = points_of(np.array(lengths), every)
    assert list(zip(episode, step, strict=True)) == [(e, i) for e, n in enumerate(lengths) for i in range(0, n, every)]


def test_returns_to_go_are_those_of_a_plain_loop():
    random = np.random.default_rng(0)
    lengths, reward = [3, 1, 5], random.normal(size=9).astype(np.float32)
    parts = np.split(reward, np.cumsum(lengths)[:-1])
    expected = np.concatenate([[part[i:].sum() for i in range(len(part))] for part in parts])
    np.testing.assert_allclose(to_go(reward, lengths), expected, rtol=1e-5, atol=1e-6)


# ---- the store ------------------------------------------------------------------------------------------------------


def test_episodes_are_read_as_they_were_lived(store, monkeypatch):
    monkeypatch.setattr("learner.context.reader.BLOCK", 20)  # several blocks
    reader = Reader(store)
    every = store.rows(np.arange(store.steps))
    index = np.array([8, 0, 13])
    steps, action, lengths = reader.episodes(index)
    assert lengths == store.length[index].tolist()
    at = 0
    for e, n in zip(index, lengths, strict=True):
        own = slice(store.first[e], store.first[e + 1])
        assert action[at : at + n].tolist() == every.action[own].tolist()
        assert steps.last_action[at : at + n].tolist() == [-1, *every.action[own][:-1]]
        assert steps.last_reward[at : at + n].tolist() == [0.0, *every.reward[own][:-1]]
        assert steps.to_go[at : at + n].tolist() == every.reward[own][::-1].cumsum()[::-1].tolist()
        for name, column in every.obs.items():
            np.testing.assert_array_equal(steps.obs[name][at : at + n], column[own])
        at += n
    chunks, sizes = reader.chunks(np.array([1, 1]), np.array([0, 4]), np.array([3, 9]))
    assert sizes == [3, 5]
    whole, done, _ = reader.episodes(np.array([1]))
    assert chunks.action.tolist() == [*done[:3], *done[4:9]]
    assert chunks.to_go.tolist() == [*whole.to_go[:3], *whole.to_go[4:9]]
    assert chunks.reward[:2].tolist() == whole.last_reward[1:3].tolist()


def test_what_came_before_is_of_the_same_task(store):
    reader = Reader(store)
    for skip in (1, 2, 5):
        found = reader.earlier(np.arange(len(store)), skip)
        for e, other in enumerate(found):
            fits = (store.task == store.task[e]) & (store.episode == store.episode[e] - skip)
            assert other == (np.flatnonzero(fits)[0] if fits.any() else -1)


# ---- lookups --------------------------------------------------------------------------------------------------------


def plain_loop(reader, config, keys):
    """Of each query point of each episode, the chunks that it may find, the best first: (similarity, chunk)."""
    store, chunks = reader.store, []
    for e in reader.order.tolist():
        own = chunks_of(store.length[e : e + 1], config)
        for key, start, stop in zip(own.key, own.start, own.stop, strict=True):
            chunks.append((keys(np.array([e]), [np.array([key])])[0].astype(np.float64), (e, int(start), int(stop))))
    found = []
    for e, length in enumerate(store.length):
        for step in range(0, length, config.every):
            query = keys(np.array([e]), [np.array([step])])[0].astype(np.float64)
            near = [
                (float(query @ key / np.linalg.norm(query) / np.linalg.norm(key)), chunk)
                for key, chunk in chunks
                if store.task[chunk[0]] == store.task[e] and chunk[0] != e
            ]
            found.append((e, step, sorted((each for each in near if each[0] <= config.at_most), reverse=True)))
    return found


@pytest.mark.parametrize("minimum", [0, 4])
def test_what_is_nearest_is_found_as_by_a_plain_loop(store, minimum):
    reader = Reader(store)
    config = RETRIEVE.model_copy(update={"minimum": minimum})
    keys = keys_by(Fitted(model(chunk=0), config.pool), reader)
    table = look_up(reader, config, "nearest", keys, 3, tokens=20)
    expected = plain_loop(reader, config, keys)
    assert len(table.episode) == len(expected)
    for at, (e, step, near) in enumerate(expected):
        assert table.first[e] <= at < table.first[e + 1]
        chunk = (table.episode[at], table.start[at], table.stop[at])
        if step + 1 < minimum and store.task[e] != 2:
            assert table.short[at]
            assert np.isnan(table.similarity[at])
            assert store.task[chunk[0]] == store.task[e]
            assert chunk[0] != e
        elif not near:
            assert chunk == (-1, -1, -1)
            assert store.task[e] == 2  # it has one episode
        else:
            assert chunk == near[0][1]
            np.testing.assert_allclose(table.similarity[at], near[0][0], atol=1e-5)
    again = look_up(reader, config, "nearest", keys, 3, tokens=20)
    assert all(
        np.array_equal(getattr(table, name), getattr(again, name), equal_nan=name == "similarity")
        for name in table.__annotations__
    )


def test_a_copy_of_the_query_is_not_looked_at(tmp_path):
    """All episodes of a task are alike here: nothing but copies are there, or what is not similar."""
    reader = Reader(written(tmp_path / "store", [[6, 6, 6]]))
    vectors = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    table = look_up(
        reader,
        RETRIEVE.model_copy(update={"minimum": 0}),
        "nearest",
        lambda episodes, at: np.concatenate([vectors[own] for own in at]),
        0,
    )
    there = table.episode >= 0
    assert there.any()
    assert (table.similarity[there] <= 0.98).all()
    own = np.repeat(np.arange(3), np.diff(table.first))
    assert (table.episode[there] != own[there]).all()


@pytest.mark.parametrize("looks", ["same_task", "uniform"])
def test_chance_takes_any_chunk_but_one_s_own(store, looks):
    """Each of them about as often as the others, over many seeds."""
    reader, counts = Reader(store), {}
    for seed in range(400):
        table = look_up(reader, RETRIEVE, looks, None, seed)
        for e in (0, 9, 13):
            at = table.first[e]
            chunk = int(table.episode[at]), int(table.start[at]), int(table.stop[at])
            counts.setdefault(e, {}).setdefault(chunk, 0)
            counts[e][chunk] += 1
    for e, drawn in counts.items():
        every = chunks_of(store.length, RETRIEVE)
        same = store.task[every.episode] == store.task[e]
        free = (every.episode != e) & (same | (looks == "uniform"))
        allowed = {(int(every.episode[i]), int(every.start[i]), int(every.stop[i])) for i in np.flatnonzero(free)}
        if not allowed:
            assert set(drawn) == {(-1, -1, -1)}
            continue
        assert set(drawn) <= allowed
        if len(allowed) < 30:
            assert set(drawn) == allowed
        assert max(drawn.values()) < 400 / len(allowed) * 3 + 10


def test_the_best_of_a_task_are_its_last_tenth_and_two_at_least(tmp_path):
    reader = Reader(written(tmp_path / "store", [[2] * 25, [2], [2] * 4]))
    assert np.flatnonzero(reader.best).tolist() == [22, 23, 24, 25, 28, 29]
    drawn = [look_up(reader, RETRIEVE, "best", None, seed).episode for seed in range(60)]  # a point an episode
    drawn = np.stack(drawn, 1)
    assert all(set(drawn[e]) == {22, 23, 24} - {e} for e in range(25))
    assert set(drawn[25]) == {-1}  # there is no other
    assert all(set(drawn[e]) == {28, 29} - {e} for e in range(26, 30))


def test_dpt_learns_the_best_from_any_whole_episode(store):
    made = fitter(store, "dpt", validation=0.3)
    used = np.sort(np.concatenate([made.training, made.validation]))
    assert used.tolist() == np.flatnonzero(made.reader.best).tolist()
    assert (made.model.shape.band, made.model.shape.conditioned, made.model.shape.last) == (1, False, False)
    table, own = made.lookup, np.arange(len(store))
    np.testing.assert_array_equal(table.first, np.arange(len(store) + 1))
    there = table.episode >= 0
    assert (there == (store.task != 2)).all()  # which has one episode
    assert (table.episode != own).all()
    assert (store.task[table.episode[there]] == store.task[own[there]]).all()
    np.testing.assert_array_equal(table.start[there], 0)
    np.testing.assert_array_equal(table.stop[there], store.length[table.episode[there]])


def test_dpt_learns_what_was_done_somewhere_once_an_episode(store, monkeypatch):
    """Who waits at a goal would else teach to wait anywhere."""
    made, read = fitter(store, "dpt", validation=0.3), store.rows

    def cells(index):  # five of them, and nothing else, so that steps are repeated
        steps = read(index)
        return replace(steps, obs=steps.obs | {"sensors": np.zeros_like(steps.obs["sensors"])})

    monkeypatch.setattr(made.reader.store, "rows", cells)
    rows = made.training
    counts = made.steps_of(rows, None)
    steps, action, lengths = made.reader.episodes(rows)
    told = np.column_stack([action, *steps.obs.values()]).tolist()
    begins = np.cumsum(lengths) - lengths
    done = [{tuple(step) for step in told[b : b + n]} for b, n in zip(begins, lengths, strict=True)]
    assert counts.tolist() == [len(one) for one in done]
    assert counts.sum() < sum(lengths)
    seen = []
    made.model.register_forward_pre_hook(lambda _, given: seen.append(given))
    made.losses(rows, None)
    given, each, *_ = seen[0]
    assert each == counts.tolist()
    learned = np.split(np.column_stack(list(given.obs.values())), np.cumsum(counts)[:-1])
    for one, own in zip(done, learned, strict=True):
        assert sorted(step[1:] for step in one) == sorted(map(tuple, own.tolist()))


def test_the_report_of_a_lookup_counts_what_is_in_it(store):
    reader = Reader(store)
    config = RETRIEVE.model_copy(update={"minimum": 4})
    table = look_up(reader, config, "nearest", keys_by(Fitted(model(chunk=0), 3), reader), 3)
    told = table.report(reader)
    assert told["points"] == len(table.episode)
    assert told["answered"] == np.mean(table.episode >= 0) < 1
    assert told["drawn_for_short"] == np.mean(table.short) > 0
    assert told["same_task"] == 1
    assert told["similarity"] == pytest.approx(np.nanmean(table.similarity))
    own = np.repeat(np.arange(len(store)), np.diff(table.first))
    away = [abs(store.episode[a] - store.episode[b]) for a, b in zip(own, table.episode, strict=True) if b >= 0]
    assert told["away"] == pytest.approx(np.mean(away))
    assert look_up(reader, config, "uniform", None, 3).report(reader)["same_task"] < 0.8


# ---- fitting --------------------------------------------------------------------------------------------------------


def test_an_encoder_looks_nowhere():
    assert arm_of("radt", "encoder") == ENCODED
    assert not ENCODED.conditioned
    assert [name for name, arm in ARMS.items() if arm.looks == "nowhere"] == ["dt", "ad"]


@pytest.mark.parametrize("arm", ARMS)
def test_a_batch_is_its_episodes_one_by_one(store, arm):
    """With what each of them looks at read and remembered by itself, stretch by stretch."""
    made = fitter(store, arm)
    loud(made.model)
    batch = np.array([5, 13, 0, 8, 10])  # of those that are learned, and others
    blind = np.array([False, False, False, True, False])
    found = made.losses(batch, np.column_stack([~blind, ~blind]).astype(float))
    expected, right = 0.0, 0
    for e, unseeing in zip(batch, blind, strict=True):
        rows = [e]
        if arm == "ad" and store.episode[e] >= CONFIG.skip:
            rows = [e - CONFIG.skip, e]
        steps, action, lengths = made.reader.episodes(np.array(rows))
        memory, index = None, None
        if made.lookup is not None and not unseeing:
            first, end = made.lookup.first[e], made.lookup.first[e + 1]
            seen = [i for i in range(first, end) if made.lookup.episode[i] >= 0]
            columns = (getattr(made.lookup, name)[seen] for name in ("episode", "start", "stop"))
            index = torch.tensor([first + t // made.retrieve.every for t in range(lengths[0])])
            index = torch.tensor([seen.index(i) if i in seen else -1 for i in index.tolist()])
            memory = made.model.remember(*made.reader.chunks(*columns)) if seen else None
        logits = made.model.logits(made.model(steps, [sum(lengths)], memory, index if memory else None))
        expected -= float(logits.detach().log_softmax(-1)[torch.arange(len(action)), action].sum())
        right += int((logits.argmax(-1) == action).sum())
    np.testing.assert_allclose(found["loss"].item(), expected, rtol=1e-5)
    assert int(found["hits"]) == right


def test_where_nothing_was_found_the_null_chunk_is_seen(store):
    """Task 2 has one episode: it looks at nothing, as one that is blind."""
    made = fitter(store)
    loud(made.model)
    alone, other = np.flatnonzero(store.task == 2), np.array([1])
    blind, seeing = np.zeros((1, 2)), np.ones((1, 2))
    loss = {
        (name, i): made.losses(rows, drawn)["loss"]
        for name, rows in (("alone", alone), ("other", other))
        for i, drawn in enumerate((blind, seeing))
    }
    assert torch.equal(loss["alone", 0], loss["alone", 1])
    assert not torch.allclose(loss["other", 0], loss["other", 1])
    loss["alone", 1].backward()
    assert made.model.decoder.nothing.grad.abs().sum() > 0


@pytest.mark.parametrize("arm", ARMS)
def test_the_same_seed_gives_the_same_weights_stopped_or_not(store, tmp_path, arm):
    told = {"dropout": 0.1}
    whole = fitter(store, arm, **told)
    rows = whole.fit(9)
    first = fitter(store, arm, **told)
    found = first.fit(1) + first.fit(3)
    first.validate()  # looking does not matter
    first.save(tmp_path / "checkpoints", {"counters": {"version": 1004}, "step": 4}, 2)
    torch.manual_seed(99)  # whatever another process drew
    second = fitter(store, arm, **told)
    second.restore(checkpoint.latest(tmp_path / "checkpoints").path)
    assert found + second.fit(5) == rows
    for name, value in get_weights(whole.model).items():
        np.testing.assert_array_equal(get_weights(second.model)[name], value, err_msg=name)
    assert second.validate() == whole.validate()
    assert fitter(store, arm, **told).fit(1) == rows[:1]


def fit_ranks(folder, size, rank, address):
    """One rank of `size` fits and validates; prints what it has."""
    told = setup(EpisodeStore(Path(folder)), "radt", get_weights(model(chunk=0)), validation=0.3)
    made = HistoryFitter(replace(told, learner=LearnerConfig(n=size)), rank, address)
    made.look_up()
    report = made.fit(8)
    weights = np.concatenate([value.ravel() for value in get_weights(made.model).values()])
    print(json.dumps({"report": report, "validation": made.validate(), "weights": weights.tolist()}))


@pytest.mark.slow
def test_two_ranks_do_what_one_does(store, capsys):
    fit_ranks(store.folder, 1, 0, None)
    alone = json.loads(capsys.readouterr().out.splitlines()[-1])
    ranks = both("test_context", "fit_ranks", str(store.folder), 2)
    np.testing.assert_array_equal(ranks[0]["weights"], ranks[1]["weights"])
    np.testing.assert_allclose(ranks[0]["weights"], alone["weights"], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(ranks[0]["report"], alone["report"], rtol=1e-4)
    assert ranks[0]["validation"] == pytest.approx(alone["validation"], rel=1e-4)


def test_validation_is_a_mean_over_held_out_steps(store):
    made = fitter(store, validation=0.3)
    assert (held_out(store.task, store.episode, 0.3)[made.validation]).all()
    assert 0 < len(made.validation) < len(store)
    assert not set(made.validation) & set(made.training)
    sums = made.losses(made.validation, None)
    steps = store.length[made.validation].sum()
    found = made.validate()
    assert found["fit/validation_loss"] == pytest.approx(sums["loss"].item() / steps, rel=1e-5)
    assert found["fit/validation_accuracy"] == pytest.approx(float(sums["hits"]) / steps)
    assert fitter(store, validation=0.0).validate() == {}


def test_two_episodes_of_a_task_are_one_sequence_and_both_are_learned(store):
    made = fitter(store, "ad", tokens=20)
    assert made.model.shape.band == 18
    assert not made.model.shape.conditioned
    assert made._sequences(np.array([2, 1, 9])).tolist() == [0, 2, 1, 7, 9]
    assert made.steps_of(np.array([2, 1, 9]), None).tolist() == [16, 9, 18]
    pieces = list(made._pieces(np.array([2, 1, 9, 0])))
    assert [part.tolist() for part, _ in pieces] == [[1, 0], [2], [9]]


def test_what_others_did_in_the_task_is_learned_from_them_alone(tmp_path):
    """Episodes of one step, whose right action nothing tells but the task: only who looks at others of it knows."""
    task = np.repeat(np.arange(6), 20)
    told = written(tmp_path / "store", [[1] * 20] * 6, action=task % 3)
    loss = {}
    for arm in ("dt", "uniform", "same_task"):
        retrieve = RetrieveConfig(every=1, past=0, future=1, pool=1, minimum=0, nothing=0.0)
        made = fitter(told, arm, retrieve=retrieve, batch=40, learning_rate=1e-2, steps=90, validation=0.2)
        made.fit(90)
        loss[arm] = made.validate()["fit/validation_loss"]
    assert loss["same_task"] < 0.1
    assert min(loss["dt"], loss["uniform"]) > 0.8


def test_what_cannot_be_learned_from_is_told(store, tmp_path):
    with pytest.raises(StoreError, match=r"all for validation: lower method\.sequence\.validation"):
        HistoryFitter(setup(store, validation=1.0))
    with pytest.raises(StoreError, match="holds no episodes"):
        HistoryFitter(setup(written(tmp_path / "empty", [[]])))
