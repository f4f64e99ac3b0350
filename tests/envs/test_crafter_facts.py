"""The facts that captions are made of, and episodes that begin anywhere."""

import numpy as np
import pytest

import envs
from envs.api import CELLS, FACTS
from envs.crafter.captions import NAMES, UNNAMED
from envs.crafter.rules import ITEMS, MOST, NONE, OBJECTS, PLAYER, VITALS
from envs.native.crafter.layout import AT_X, AT_Y, OBJECT, STEP, X, Y

TOLD = ["view", "items", "feelings", FACTS, CELLS]
CASES = [("native", "middle"), ("native", "anywhere"), ("crafter", "middle")]


@pytest.mark.parametrize(("engine", "start"), CASES)
def test_sentences_made_of_true_facts_are_the_engines_own(engine, start):
    env = envs.make("crafter/Named", 6, 3, engine=engine, start=start, observe=TOLD, length=25)
    obs, random, told = env.begin(), np.random.default_rng(0), set()
    for _ in range(60):
        made = env.tell(obs[FACTS].astype(np.int64))
        for name in ("view", "items", "feelings"):
            assert np.array_equal(made[name], obs[name])
        assert np.array_equal(made["situation"], env.situations())
        told |= set(made["situation"].tolist())
        obs = env.advance(random.integers(0, 27, 6)).obs
    assert len(told) > 10


@pytest.mark.parametrize(("engine", "start"), CASES)
def test_facts_are_what_cells_player_and_clock_say(engine, start):
    env = envs.make("crafter/Named", 6, 3, engine=engine, start=start, observe=TOLD)
    obs, kinds = env.begin(), [fact.name for fact in env.env_spec.facts]
    for _ in range(40):
        facts, cells = obs[FACTS].astype(int), obs[CELLS].astype(int)
        for i in range(6):
            assert set(np.flatnonzero(facts[i, :UNNAMED])) == set(cells[i].tolist()) - {UNNAMED}
            assert facts[i, kinds.index("asleep")] == env.sleeping[i]
        column, row = 2, 5  # a cell of the view, and its place in the picture
        thing = env.symbols[:, column, row, 1]
        creatures = [i for i in range(6) if thing[i] not in (NONE, PLAYER) and OBJECTS[thing[i]] in NAMES]
        assert all(NAMES[cells[i, row * 9 + column]] == OBJECTS[thing[i]] for i in creatures)
        obs = env.advance(np.full(6, 5)).obs  # sleeps
    if engine == "native":
        dark = facts[:, kinds.index("night")]
        pictures = env._pictures(np.arange(6), 64)[:, :49].mean((1, 2, 3))
        awake = facts[:, kinds.index("asleep")] == 0
        assert not dark.all() or pictures[awake].max(initial=0) < 80


def test_no_policy_reads_them():
    spec = envs.spec("crafter/Text", observe=TOLD)
    assert spec.fields[FACTS].privileged
    assert spec.fields[CELLS].privileged
    assert spec.fields[FACTS].shape == (len(spec.facts),)


def test_episodes_that_begin_anywhere_have_what_is_rare_in_many_places_and_hours():
    n = 200
    env = envs.make("crafter/Named", n, 0, start="anywhere", observe=TOLD)
    facts, rows = env.begin()[FACTS], env.rows
    assert len({(x, y) for x, y in rows[:, [X, Y]].tolist()}) > 150
    assert len(set(rows[:, STEP].tolist())) > 100
    assert (facts[:, : UNNAMED + 1 + len(ITEMS) - VITALS].sum(0) > 5).all()  # every name and item
    assert ((env.inventory >= 0) & (env.inventory <= MOST)).all()
    assert (env.inventory[:, :VITALS] > 0).all()
    for row in rows:  # the player is where the map has it
        assert (row[AT_X], row[AT_Y]) == (row[X], row[Y])
        assert row[OBJECT + row[X] * 64 + row[Y]] == 1
        assert (row[OBJECT : OBJECT + 64 * 64] == 1).sum() == 1


def test_they_follow_from_their_seeds_and_are_restored():
    options = {"start": "anywhere", "observe": [*TOLD, "pixels"], "length": 20}
    one, other = (envs.make("crafter/Named", 4, 9, **options) for _ in range(2))
    one.begin()
    for _ in range(30):
        obs = one.advance(np.array([1, 2, 3, 9])).obs
    again = other.restore(one.state())
    assert all(np.array_equal(again[name], obs[name]) for name in (FACTS, CELLS, "pixels"))


def test_the_reference_engine_begins_in_the_middle_only():
    with pytest.raises(ValueError, match=r"env\.start=anywhere is of the compiled engine"):
        envs.spec("crafter/Named", engine="crafter", start="anywhere")


def test_worlds_without_facts_say_so():
    with pytest.raises(LookupError, match="makes no sentences of facts"):
        envs.make("toy/Line", 2).tell(np.zeros((2, 1), np.int64))
