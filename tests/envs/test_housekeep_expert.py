"""The planner of houses: it puts them in order by the engine's own steps, whoever made the steps before."""

from types import SimpleNamespace

import numpy as np
import pytest

from envs.housekeep import home
from envs.housekeep.expert import Expert
from envs.housekeep.names import NAMES, OBJECTS, PLACES, number
from envs.native.housekeep.hands import DROPPED, PICKED
from envs.native.housekeep.houses import generate
from envs.native.housekeep.layout import NOWHERE, houses, players
from envs.native.housekeep.lens import lens
from envs.native.housekeep.loops import advance, begin
from envs.native.housekeep.motion import GRAB_RELEASE, TURN_LEFT
from envs.native.housekeep.pictures import pictures

STORAGE = {"shelf", "bottom cabinet", "top cabinet", "chest"}
SIZE = 32


def opinions():
    """Tables: everything belongs on storage furniture; or each on some of it, and on few other pieces."""
    tidy, scattered = (np.zeros((len(OBJECTS), len(NAMES)), bool) for _ in range(2))
    for room, kind in PLACES:
        name = number(room, kind)
        tidy[:, name] = kind in STORAGE
        scattered[:, name] = (np.arange(len(OBJECTS)) * 7 + name * 13) % (2 if kind in STORAGE else 9) == 0
    return tidy, scattered


TIDY, SCATTERED = opinions()


def world(rows, suits):
    """A player in each house."""
    count = len(rows.pieces)
    env = SimpleNamespace(houses=rows, which=np.arange(count), players=players(count), suits=suits)
    env.lens, env.pictures = lens(SIZE), pictures(count, SIZE)
    begin(rows, env.which, env.players, np.arange(count), env.lens, env.pictures)
    return env


def step(env, actions):
    index = np.arange(len(actions))
    advance(env.houses, env.which, env.players, index, actions, False, env.lens, env.pictures)


def in_order(env, i):
    """Is the hand of player i empty, and everything where it belongs?"""
    count, p = int(env.houses.objects[i]), env.which[i]
    lies = env.players.place[i, :count]
    return env.players.holding[i] == NOWHERE and env.suits[env.houses.object[p, :count], env.houses.name[p, lies]].all()


def play(env, expert, steps=1000):
    """Steps until each house was in order, 0: it never was; and how many grips and releases succeeded."""
    count = len(env.which)
    needed, hands = np.zeros(count, int), np.zeros(count, int)
    for taken in range(1, steps + 1):
        actions = expert.act(env)
        step(env, actions)
        moved = (env.players.outcome == PICKED) | (env.players.outcome == DROPPED)
        hands += moved & (needed == 0)
        for i in np.flatnonzero(moved & (needed == 0)):
            if in_order(env, i):
                needed[i] = taken
        if needed.all():
            break
    return needed, hands


def drawn(seeds, misplaced_only):
    rows = houses(len(seeds))
    for p, seed in enumerate(seeds):
        assert generate(rows, p, seed, SCATTERED, misplaced_only)
    return rows


def tasks():
    rows = houses(len(home.TASKS))
    for p, name in enumerate(home.TASKS):
        home.build(rows, p, name)
    return rows


def test_the_tasks_need_two_events_an_object():
    needed, hands = play(world(tasks(), TIDY), Expert())
    assert needed.all()
    assert needed.max() <= 200
    assert (hands == 10).all()


@pytest.mark.parametrize("misplaced_only", [False, True])
def test_seeded_houses_are_put_in_order(misplaced_only):
    needed, hands = play(world(drawn(range(2000, 2030), misplaced_only), SCATTERED), Expert())
    assert needed.all()
    assert (hands % 2 == 0).all()
    assert (hands >= 6).all()


def test_the_expert_goes_on_from_anyone_elses_steps():
    """Half of the actions are drawn, grips too: what it finds in its way, it plans anew from."""
    env, expert, random = world(tasks(), TIDY), Expert(), np.random.default_rng(0)
    for _ in range(150):
        step(env, np.where(random.random(4) < 0.5, expert.act(env), random.integers(0, GRAB_RELEASE + 1, 4)))
    needed, _ = play(env, expert)
    assert all(in_order(env, i) for i in range(4))
    assert needed.max() <= 400


def test_equal_worlds_are_played_alike():
    once, again = world(tasks(), TIDY), world(tasks(), TIDY)
    first, second = Expert(), Expert()
    for _ in range(60):
        actions = first.act(once)
        assert actions.tolist() == second.act(again).tolist()
        step(once, actions)
        step(again, actions)


def test_one_expert_may_move_on_to_another_world():
    expert = Expert()
    play(world(tasks(), TIDY), expert, 20)
    needed, _ = play(world(drawn([7], False), SCATTERED), expert)
    assert needed.all()


def test_who_has_nothing_to_do_turns_left():
    rows = tasks()
    idle = world(rows, np.ones_like(TIDY))
    expert = Expert()
    for _ in range(40):
        actions = expert.act(idle)
        assert (actions == TURN_LEFT).all()
        step(idle, actions)


def test_where_right_places_are_full_something_else_is_put_down_first():
    """Two objects in each other's only right place, with one slot each: one waits elsewhere."""
    rows = houses(1)
    home.build(rows, 0, "Task1")
    suits = np.zeros_like(TIDY)
    names = [NAMES[name] for name in rows.name[0].tolist()]
    first, second = rows.object[0, :2].tolist()
    sink, toilet = (names.index(name, 1) for name in ("bathroom sink", "bathroom toilet"))
    rows.objects[0], rows.lies[0, :2] = 2, (sink, toilet)
    rows.capacity[0, [sink, toilet]] = 1
    suits[first, rows.name[0, toilet]] = suits[second, rows.name[0, sink]] = True
    needed, hands = play(world(rows, suits), Expert(), 300)
    assert needed.all()
    assert hands[0] == 6


def test_a_place_that_another_object_needs_is_left_to_it():
    """One object may go to the bed or to a far shelf; another one, to the bed alone."""
    rows = houses(1)
    home.build(rows, 0, "Task1")
    names = [NAMES[name] for name in rows.name[0].tolist()]
    bed, shelf, sink, stool = (
        names.index(name, 1) for name in ("bedroom bed", "living room shelf", "bathroom sink", "living room stool")
    )
    rows.objects[0], rows.lies[0, :2], rows.capacity[0, bed] = 2, (sink, stool), 1
    near, other = rows.object[0, :2].tolist()
    suits = np.zeros_like(TIDY)
    suits[near, rows.name[0, [bed, shelf]]] = suits[other, rows.name[0, bed]] = True
    env = world(rows, suits)
    needed, hands = play(env, Expert(), 300)
    assert needed.all()
    assert hands[0] == 4
    assert names[env.players.place[0, 0]] == "living room shelf"
