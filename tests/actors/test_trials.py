"""Rows that play trials: each lives as if it were alone, sees its own past only, and never the same chance twice."""

import numpy as np
import pytest
import torch

import envs
from actors import memories
from actors.evaluate import play
from actors.players.expert import ExpertPlayer
from actors.trial_player import demonstrations
from actors.trials import Trials, around, choose, seeds_of, tasks_of
from envs.registry import family
from learner.context import encoders
from learner.context.config import RetrieveConfig, SequenceConfig, TrialsConfig
from learner.context.encoders.fitted import Fitted
from learner.models.sequence.history_steps import HistoryShape, StepInputs
from learner.models.sequence.history_transformer import HistoryTransformer
from tests.envs.points import points

SEQUENCE = SequenceConfig(width=32, layers=2, heads=2, bins=12, device="cpu")
RETRIEVE = RetrieveConfig(every=4, past=3, future=5, pool=4, nearest=6)
ROOM, MAZE = "dark/Room-4x4", "maze/Runner-7"


def model_of(world, chunk=0, conditioned=True, band=6, seed=0, last=True):
    """Weights by chance, large enough for what is told to matter."""
    torch.manual_seed(seed)
    shape = HistoryShape.of(envs.spec(world), band, conditioned, (10.0,), chunk, last)
    model = HistoryTransformer(shape, SEQUENCE)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1 and "norm" not in name:
                weight.mul_(8)
    return model


def trials_of(world, arm="radt", tasks=(0, 1, 2), seeds=(0, 1), retrieve=RETRIEVE, **settings):
    """Rows of an arm that have not played yet."""
    if arm == "dpt":
        retrieve, settings = retrieve.whole(100), settings | {"newest": 1}
    chunk = 0 if arm in ("dt", "ad") else retrieve.chunk
    band = {"ad": 40, "dpt": 1}.get(arm, 6)
    model = model_of(world, chunk, arm not in ("ad", "dpt"), band, last=arm != "dpt")
    encoder = Fitted(model_of(world, seed=1), retrieve.pool) if arm == "radt" else None
    if arm == "radt" and retrieve.frozen:
        encoder = encoders.make(SEQUENCE, retrieve, envs.spec(world), {}, 10.0)
    env, other = (envs.make(world, len(tasks) * len(seeds)) for _ in range(2))
    rows = np.repeat(seeds, len(tasks)), np.tile(tasks, len(seeds))
    shown = demonstrations(other, rows[1]) if arm == "oracle_chunk" else None
    config = TrialsConfig(target=5.0, deviation=3.0, **settings)
    return Trials(env, model, encoder, config, retrieve, 7, *rows, shown)


def played(trials, count=4):
    """What was lived in each trial."""
    found = []
    for _ in range(count):
        trials.play()
        found.append(trials.last)
    return found


def actions(lived, row):
    return [one.of(row)[1].tolist() for one in lived]


@pytest.mark.parametrize("world", [ROOM, MAZE])
@pytest.mark.parametrize("arm", ["radt", "radt random", "radt hopfield", "uniform", "dt", "ad", "dpt", "oracle_chunk"])
def test_a_row_lives_as_if_it_were_alone(world, arm):
    arm, _, encoder = arm.partition(" ")
    retrieve = RETRIEVE.model_copy(update={"encoder": encoder or "fitted"})
    together = trials_of(world, arm, retrieve=retrieve)
    lived = played(together)
    for row, (seed, task) in enumerate((seed, task) for seed in (0, 1) for task in (0, 1, 2)):
        alone = trials_of(world, arm, (task,), (seed,), retrieve)
        assert actions(lived, row) == actions(played(alone), 0)
        for one, other in zip(together.returns, alone.returns, strict=True):
            assert one[row] == other[0]
        for name, of_trials in together.retrieved.items():
            ours, theirs = np.array(of_trials)[:, row], np.array(alone.retrieved[name])[:, 0]
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, err_msg=name)
    if world == MAZE and arm != "dpt":  # who knows of no step before is not through early with such weights
        assert any(len(set(one.length)) > 1 for one in lived)  # some waited for others


def test_what_is_told_is_what_the_world_showed_and_paid():
    trials = trials_of(MAZE)
    for number, one in enumerate(played(trials)):
        for row, task in enumerate((0, 1, 2) * 2):
            obs, done, paid = one.of(row)
            env = envs.make(MAZE, 1)
            now = env.begin(np.array([task]))
            for step, action in enumerate(done):
                np.testing.assert_array_equal(obs["sensors"][step], now["sensors"][0])
                t = env.advance(action[None])
                assert t.reward[0] == paid[step]
                now = t.obs
            assert len(t.final_index) == 1
            assert t.episodes.total[0] == trials.returns[number][row]


@pytest.mark.parametrize("arm", ["radt", "uniform", "dpt"])
def test_the_first_trial_is_that_of_the_same_weights_without_memory(arm):
    own, none = (played(trials_of(ROOM, arm, memory=memory)) for memory in ("own", "none"))
    np.testing.assert_array_equal(own[0].action, none[0].action)
    assert all((a.action != b.action).any() for a, b in zip(own[1:], none[1:], strict=True))


@pytest.mark.parametrize("arm", ["radt", "uniform"])
def test_a_row_finds_its_own_past_or_where_that_is_the_control_the_next_tasks(arm):
    for memory, share in (("own", 1.0), ("others", 0.0)):
        trials = trials_of(ROOM, arm, memory=memory)
        played(trials)
        told = {name: np.array(of_trials) for name, of_trials in trials.retrieved.items()}  # [trial, row]
        assert not told["queries"][0].any()
        np.testing.assert_array_equal(told["queries"][1:], 4)  # 16 steps, one each 4
        np.testing.assert_array_equal(told["found"], told["queries"])
        np.testing.assert_array_equal(told["task"], share * told["found"])
        mean = told["age"][1:] / told["found"][1:]
        assert (mean >= 1).all()
        assert (mean <= np.arange(1, 4)[:, None]).all()


@pytest.mark.parametrize("world", [ROOM, MAZE])
def test_who_is_shown_what_the_planner_does_looks_at_nothing_else(world):
    trials = trials_of(world, "oracle_chunk")
    before = len(trials.memories)
    played(trials)
    assert len(trials.memories) == before
    told = {name: np.array(of_trials) for name, of_trials in trials.retrieved.items()}  # [trial, row]
    assert told["queries"][0].all()  # from the first trial on
    for name in ("found", "task"):
        np.testing.assert_array_equal(told[name], told["queries"])
    env = envs.make(world, 3)
    best = play(env, ExpertPlayer(family(world.partition("/")[0]).Expert()), np.arange(3)).episodes
    paid = best.total[np.argsort(best.env)]
    np.testing.assert_allclose(told["return"], told["found"] * np.tile(paid, 2))


def test_a_whole_episode_the_newest_one_is_all_that_dpt_looks_at():
    trials = trials_of(ROOM, "dpt")
    played(trials)
    told = {name: np.array(of_trials) for name, of_trials in trials.retrieved.items()}
    np.testing.assert_array_equal(told["queries"], [[0] * 6, *[[1] * 6] * 3])  # one an episode
    np.testing.assert_array_equal(told["age"], told["queries"])
    np.testing.assert_array_equal(told["return"][1:], trials.returns[:3])
    assert trials.memories.memory.lengths.tolist() == [16] * 18


def test_dpt_knows_of_no_step_but_the_present_one_and_of_its_context():
    """The same place, the same context: the same action, whatever was done before."""
    trials = trials_of(ROOM, "dpt", temperature=0.0)
    met = set()
    for number, one in enumerate(played(trials)):
        for row in range(6):
            obs, done, _ = one.of(row)
            places = list(zip(obs["row"].tolist(), obs["column"].tolist(), strict=True))
            assert len({*zip(places, done.tolist(), strict=True)}) == len(set(places))
            met |= {(number, row, place) for place in places}
    assert len(met) > 24  # not all of them stay where they are


def test_others_are_of_the_same_seed():
    """The control of two tasks is their exchange: each finds what the other has lived."""
    trials = trials_of(ROOM, "radt", (0, 1), memory="others")
    played(trials)
    np.testing.assert_array_equal(trials.memories._whose, [1, 0, 3, 2])


def test_chance_differs_between_trials_seeds_and_tasks():
    lived = played(trials_of(ROOM, "dt"))
    every = [tuple(of_trial) for row in range(6) for of_trial in actions(lived, row)]
    assert len(set(every)) == len(every)


def test_without_chance_every_trial_is_the_same():
    trials = trials_of(ROOM, "dt", temperature=0.0)
    trials._config = trials._config.model_copy(update={"deviation": 0.0})
    first, *others = played(trials)
    for other in others:
        np.testing.assert_array_equal(first.action, other.action)


@pytest.mark.parametrize("world", [ROOM, MAZE])
def test_without_returns_the_past_goes_on_from_episode_to_episode(world):
    """Two episodes in a row are one sequence, as in training; rows that were through early waited."""
    trials = trials_of(world, "ad", temperature=0.0)
    lived = played(trials, 3)
    for row in range(6):
        parts = [one.of(row) for one in lived]
        obs = {name: torch.from_numpy(np.concatenate([part[0][name] for part in parts])) for name in parts[0][0]}
        last = [np.concatenate([[-1], part[1][:-1]]) for part in parts]
        paid = [np.concatenate([[0], part[2][:-1]]).astype(np.float32) for part in parts]
        action, reward = torch.from_numpy(np.concatenate(last)), torch.from_numpy(np.concatenate(paid))
        with torch.no_grad():
            hidden = trials._model(StepInputs(obs, torch.zeros(len(action)), action, reward), [len(action)])
            expected = trials._model.logits(hidden).argmax(1).tolist()
        assert expected == [action for part in parts for action in part[1].tolist()]


def test_a_memory_keeps_the_newest_alone():
    trials = trials_of(ROOM, newest=5)
    played(trials)
    np.testing.assert_array_equal(trials.memories._index.sizes, 5)


def test_an_entry_says_what_its_steps_and_its_episode_paid():
    trials = trials_of(MAZE)
    lived = played(trials)
    found = trials.memories._index.search(torch.ones(6, 32), 100, np.arange(6))
    for row, at in zip(*np.nonzero(found.id >= 0), strict=True):
        number, start, stop = (found[name][row, at] for name in ("number", "start", "stop"))
        reward = lived[number].of(row)[2]
        assert found["paid"][row, at] == reward[start:stop].sum()
        assert found["return"][row, at] == reward.sum()
    assert len(np.unique(found["paid"])) > 2  # one is -1, where there is nothing


def test_keys_and_values_are_let_go_of_and_computed_again(monkeypatch):
    kept = played(trials_of(ROOM), 5)
    monkeypatch.setattr(memories, "MOST", 7 * RETRIEVE.chunk)
    trials = trials_of(ROOM)
    again = played(trials, 5)
    assert len(trials.memories.memory) <= 7
    for one, other in zip(kept, again, strict=True):
        np.testing.assert_array_equal(one.action, other.action)


@pytest.mark.parametrize(("world", "arm"), [(ROOM, "radt"), (MAZE, "radt"), (ROOM, "dt")])
def test_one_row_of_seed_0_is_kept_whole_with_what_it_found(world, arm):
    trials = trials_of(world, arm, seeds=(3, 0))
    lived, found = played(trials), trials.paths.typical()
    gain = (trials.returns[-1] - trials.returns[0])[3:]  # rows of seed 0
    place = int(found["place"][0])
    assert gain[place] == np.median(gain)
    of = [one.of(3 + place) for one in lived]
    assert found["length"].tolist() == [len(one[1]) for one in of]
    for name, column in of[0][0].items():
        expected = np.concatenate([one[0][name] for one in of])
        np.testing.assert_array_equal(found[f"obs.{name}"], expected)
        assert found[f"obs.{name}"].dtype == column.dtype
    np.testing.assert_array_equal(found["action"], np.concatenate([one[1] for one in of]))
    np.testing.assert_array_equal(found["reward"], np.concatenate([one[2] for one in of]))
    trial, step, number, start, stop = found["query"].T
    queries, age = (np.array(trials.retrieved[name])[:, 3 + place] for name in ("queries", "age"))
    np.testing.assert_array_equal(np.bincount(trial, minlength=4), queries)
    np.testing.assert_array_equal(np.bincount(trial, trial - number, minlength=4), age)
    assert (step % RETRIEVE.every == 0).all()
    assert ((start < stop) & (stop <= found["length"][number])).all()
    assert bool(len(trial)) == (arm == "radt")


def test_without_seed_0_no_row_is_kept():
    trials = trials_of(ROOM, seeds=(1, 2))
    played(trials, 2)
    assert trials.paths.typical() == {}


def test_actions_below_the_median_are_left_out():
    logits = np.tile(np.array([[0.0, 3.0, 1.0, 2.0, -1.0]], np.float32), (3000, 1))
    uniform = np.random.default_rng(0).random(3000)
    assert (choose(logits, uniform, 0.0, 0.5) == 1).all()
    found = np.bincount(choose(logits, uniform, 1.0, 0.5), minlength=5) / 3000
    expected = np.exp([-np.inf, 3.0, 1.0, 2.0, -np.inf])
    np.testing.assert_allclose(found, expected / expected.sum(), atol=0.03)
    cold = np.bincount(choose(logits, uniform, 0.5, 1.0), minlength=5) / 3000
    expected = np.exp(2 * logits[0])
    np.testing.assert_allclose(cold, expected / expected.sum(), atol=0.03)
    assert set(choose(logits, uniform, 5.0, 0.4)) == {1, 3}
    assert set(choose(logits, uniform, 5.0, 1.0)) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("world", "options"), [("dark/Room-5x5", {}), ("dark/Room-10x10", {"split": "published"}), (MAZE, {"mazes": 8})]
)
def test_seeds_name_the_tasks(world, options):
    spec = envs.spec(world, **options)
    held_out, training = tasks_of(spec, training=False), tasks_of(spec, training=True)
    for tasks in (held_out, training):
        np.testing.assert_array_equal(spec.task(seeds_of(spec, tasks)), tasks)
    if spec.held_out:
        assert (seeds_of(spec, held_out) >= envs.HELD_OUT_FIRST).all()
        assert (seeds_of(spec, training) < envs.HELD_OUT_FIRST).all()
        np.testing.assert_array_equal(np.sort(np.concatenate([held_out, training])), np.arange(spec.tasks))
    else:
        np.testing.assert_array_equal(held_out, np.arange(20))


def test_vectors_are_drawn_around_what_is_expected_and_clipped():
    bounds = ((-1.0, 1.0), (0.0, 10.0))
    mean = np.tile(np.array([[0.9, 4.0]], np.float32), (4000, 1))
    uniform = np.random.default_rng(0).random((4000, 2))
    np.testing.assert_array_equal(around(mean, uniform, 0.0, bounds), mean)
    np.testing.assert_array_equal(around(mean[:1] + 20, uniform[:1], 0.0, bounds), [[1.0, 10.0]])
    found = around(mean, uniform, 0.1, bounds)
    assert found.dtype == np.float32
    assert found[:, 0].max() == 1.0
    np.testing.assert_allclose(found.std(0)[1], 0.5, rtol=0.05)  # a tenth of half of ten
    np.testing.assert_allclose(np.quantile(found[:, 0], 0.16), 0.8, atol=0.01)
    np.testing.assert_allclose(found.mean(0)[1], 4.0, atol=0.05)


def vector_trials(tasks=(0, 1, 2), seeds=(0, 1), **settings):
    """Rows that play points."""
    env = points(len(tasks) * len(seeds))
    models = []
    for seed, chunk in ((0, RETRIEVE.chunk), (1, 0)):
        torch.manual_seed(seed)
        models.append(HistoryTransformer(HistoryShape.of(env.env_spec, 6, True, (10.0,), chunk), SEQUENCE))
    rows, encoder = (np.repeat(seeds, len(tasks)), np.tile(tasks, len(seeds))), Fitted(models[1], RETRIEVE.pool)
    return Trials(env, models[0], encoder, TrialsConfig(target=5.0, **settings), RETRIEVE, 7, *rows)


def test_rows_whose_actions_are_vectors_live_as_if_alone():
    lived = played(vector_trials(noise=0.5))
    for row, (seed, task) in enumerate((seed, task) for seed in (0, 1) for task in (0, 1, 2)):
        alone = played(vector_trials((task,), (seed,), noise=0.5))
        for one, other in zip(lived, alone, strict=True):
            ours, theirs = one.of(row)[1], other.of(0)[1]
            assert ours.shape == (other.length[0], 4)
            assert (np.abs(ours) <= 1).all()
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert len({one.action[0, 0, 0] for one in lived}) == len(lived)  # another chance in each trial


def test_vectors_without_chance_are_what_the_model_expects():
    trials = vector_trials(temperature=0.0, memory="none")
    (lived,) = played(trials, 1)
    for row in range(6):
        obs, action, reward = lived.of(row)
        last = np.concatenate([np.full((1, 4), np.nan, np.float32), action[:-1]])
        paid = np.concatenate([[0], reward[:-1]]).astype(np.float32)
        wanted = 5 - np.cumsum(paid, dtype=np.float32)
        told = {name: torch.from_numpy(column) for name, column in obs.items()}
        with torch.no_grad():
            hidden = trials._model(StepInputs(told, *map(torch.from_numpy, (wanted, last, paid))), [len(action)])
            expected = trials._model.logits(hidden).clamp(-1, 1)
        np.testing.assert_allclose(action, expected, atol=1e-4)


def test_no_more_is_asked_for_than_the_histories_were_paid_from_the_same_step_on():
    trials = trials_of(ROOM, "dt")
    wanted = np.array([9.0, 2.0, 5.0], np.float32)
    trials._reach = np.array([8.0, 4.0, 1.0], np.float32)
    assert trials._told_of(wanted, 0).tolist() == [8, 2, 5]
    assert trials._told_of(wanted, 2).tolist() == [1, 1, 1]
    assert trials._told_of(wanted, 3).tolist() == wanted.tolist()  # no history is so long: nothing is known
    free = trials_of(ROOM, "dt", within_reach=False)
    free._reach = trials._reach
    assert free._told_of(wanted, 2).tolist() == wanted.tolist()


def test_what_nobody_searched_has_no_similarity_and_what_was_shown_no_age():
    for arm, similar, aged in (("radt", True, True), ("uniform", False, True), ("oracle_chunk", False, False)):
        trials = trials_of(ROOM, arm)
        played(trials, 2)
        assert np.isfinite(trials.retrieved["similarity"][1]).all() == similar
        assert np.isfinite(trials.retrieved["age"][1]).all() == aged
        assert (trials.retrieved["found"][1] > 0).all()
