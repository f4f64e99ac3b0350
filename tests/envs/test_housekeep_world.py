"""Houses as worlds: what is told, what is paid and what is a goal, beside a bookkeeping with sets of strings."""

import re

import numpy as np
import pytest

import envs
from envs.housekeep import Expert, home
from envs.housekeep.people import table
from envs.native.housekeep.layout import NOWHERE
from tests.envs.housekeep_play import busy, names_of, objects_of

EVERY = ["view", "seen", "held", "published"]


def world(name="Task1", n=8, **options):
    return envs.make(f"housekeep/{name}", n, seed=3, **{"observe": EVERY, "size": 32, "starts": "seed"} | options)


def listed(text):
    """ "a, b and c" as a list."""
    return [name.removeprefix("the ") for name in re.split(r", | and ", text)] if text != "nothing" else []


def bits(words, count):
    return {k for k in range(count) if int(words[k >> 6]) >> (k & 63) & 1}


@pytest.mark.parametrize("name", ["Task2", "House"])
def test_texts_say_what_is_seen_known_and_held(name):
    env = world(name, spawn="all")
    obs = env.begin()
    for action in busy(env, 150):
        text = {field: env.texts.texts(column) for field, column in obs.items()}
        for i in range(env.num_envs):
            state, called, objects = env.players, names_of(env, i), objects_of(env, i)
            seen = {k for k in range(len(objects)) if int(state.seen[i]) >> k & 1}
            met = {objects[k] for k in range(len(objects)) if int(state.met[i]) >> k & 1}
            visible, known = (
                {called[p] for p in bits(column[i], len(called))} for column in (state.visible, state.known)
            )
            lying = [f"{objects[k]} on the {called[state.place[i, k]]}" for k in sorted(seen, key=objects.__getitem__)]
            assert listed(text["view"][i].removeprefix("You see ")) == [*lying, *sorted(visible)]
            told = re.fullmatch("You have seen (.*)\\. You know of (.*)", text["seen"][i])
            assert [listed(part) for part in told.groups()] == [sorted(met), sorted(known)]
            held = "" if state.holding[i] == NOWHERE else objects[state.holding[i]]
            assert text["held"][i] == f"You hold {f'the {held}' if held else 'nothing'}"
            told = text["published"][i].removesuffix(".").replace("nothing", "").split(".")
            parts = dict(part.split(": ") for part in told if part)
            expected = {"objects": sorted(met), "receptacles": sorted(known), "you are holding": [held] if held else []}
            assert parts == {part: ", ".join(words) for part, words in expected.items() if words}
        obs = env.advance(action).obs


def test_equal_situations_are_equal_texts_whoever_comes_to_them():
    one, other = world(n=4), world(n=8)
    said = {}
    for env in (one, other):
        obs = env.begin()
        for action in busy(env, 80):
            for i in range(env.num_envs):
                key = tuple(array[i].tobytes() for array in (env.players.visible, env.players.seen, env.players.place))
                text = env.texts[int(obs["view"][i])]
                assert said.setdefault(key, text) == text
            obs = env.advance(action).obs
    assert len(said) > 50


@pytest.mark.parametrize("name", ["Task1", "Task4", "House"])
def test_what_the_benchmark_pays(name):
    env = world(name, reward="benchmark", spawn="all")
    env.begin()
    gripped, placed, kinds = [set() for _ in range(8)], [set() for _ in range(8)], set()
    for action in busy(env, 600):
        right = [right_now(env, i) for i in range(8)]
        transition = env.advance(action)
        if len(transition.final_index):
            break  # its bookkeeping is over, too
        reward = transition.reward
        for i in range(8):
            told = env.texts[int(env.events[i])] if env.events[i] >= 0 else ""
            pick, put = re.fullmatch("pick (.*)", told), re.fullmatch("(.*) in (.*)", told)
            kind, expected = "", 0.0
            if pick:
                thing = pick[1]
                first = thing not in gripped[i]
                kind = "wrong pick" if thing in right[i] else "first pick" if first else "pick again"
                gripped[i].add(thing)
            elif put:
                thing = put[1]
                kind = (
                    "wrong put"
                    if thing not in right_now(env, i)
                    else "put again"
                    if thing in placed[i]
                    else "first put"
                )
                placed[i] |= {thing} if kind == "first put" else set()
            elif env.failed[i]:
                kind = "failed"
            expected = {"wrong pick": -0.25, "wrong put": -0.25, "first pick": 2.5, "first put": 2.5, "failed": -0.2}
            assert reward[i] == np.float32(expected.get(kind, 0)), (kind, told)
            kinds.add(kind)
    assert kinds >= {"first pick", "failed", "first put"}


def right_now(env, i):
    """Objects that lie right."""
    called, objects, place = names_of(env, i), objects_of(env, i), env.players.place[i]
    return {
        thing
        for k, thing in enumerate(objects)
        if place[k] and env.suits[envs.housekeep.OBJECTS.index(thing), envs.housekeep.NAMES.index(called[place[k]])]
    }


@pytest.mark.parametrize("name", [*home.TASKS, "House"])
def test_a_return_is_the_share_that_lies_right_in_the_end(name):
    """The expert puts all in order; who stops it earlier has a part."""
    env = world(name, n=3, length=400)
    env.begin()
    expert, total = Expert(), np.zeros(3)
    for _ in range(400):
        objects = [len(objects_of(env, i)) for i in range(3)]
        transition = env.advance(expert.act(env))
        total += transition.reward
        ended = transition.final_index
        for row, i in enumerate(ended.tolist()):
            assert transition.terminated[i] == transition.episodes.success[row] == (abs(total[i] - 1) < 1e-5)
            total[i] = 0
        for i in set(range(3)) - set(ended.tolist()):
            assert total[i] == pytest.approx(len(right_now(env, i)) / objects[i], abs=1e-5)
            assert not transition.terminated[i]


def test_goals_are_what_people_would_want_of_what_one_knows():
    env = world("Task3", n=16)
    env.begin()
    spec, people, done = env.env_spec, table(), [set() for _ in range(16)]
    suits = people.suits(home.places())
    offered = set()

    def right(thing, place):
        return suits[envs.housekeep.OBJECTS.index(thing), envs.housekeep.NAMES.index(place)]

    for action in busy(env, 300):
        found = env.possible_goals()
        for i in range(16):
            called, objects, state = names_of(env, i), objects_of(env, i), env.players
            if state.holding[i] == NOWHERE:
                seen = {k for k in range(len(objects)) if int(state.seen[i]) >> k & 1}
                wrong = {objects[k] for k in seen if not right(objects[k], called[state.place[i, k]])}
                goals = {f"pick {thing}" for thing in wrong - done[i]}
            else:
                thing = objects[state.holding[i]]
                known = {called[p] for p in bits(state.known[i], len(called))}
                goals = (
                    {f"{thing} in {place}" for place in known if right(thing, place)} if thing not in done[i] else set()
                )
            assert {spec.goals[g] for g in np.flatnonzero(found[i])} == goals
            offered |= goals
        ended = env.advance(action).final_index
        for i in range(16):
            put = re.fullmatch("(.*) in (.*)", env.texts[int(env.events[i])] if env.events[i] >= 0 else "")
            done[i] |= {put[1]} if put and right(*put.groups()) else set()
        for i in ended:
            done[i] = set()
    assert len(offered) > 15


def test_a_house_by_seed_says_that_its_goals_cannot_be_listed():
    env = world("House", n=1)
    env.begin()
    with pytest.raises(LookupError, match="other objects in each episode"):
        env.possible_goals()


def test_a_world_without_texts_says_what_to_add():
    env = world(n=1, observe=["rgb"])
    with pytest.raises(LookupError, match=re.escape("add view, seen or held to env.observe")):
        env.captions(env.begin())


def test_starts_are_of_the_seed_or_always_the_same():
    for starts, different in (("fixed", 1), ("seed", 8)):
        env = world(starts=starts)
        env.begin()
        assert len({(float(x), float(y)) for x, y in zip(env.players.x, env.players.y, strict=True)}) == different


def test_people_may_be_a_file(tmp_path):
    people = table()
    people.save(tmp_path / "people.npz")
    mine, theirs = world(n=1), world(n=1, preferences=str(tmp_path / "people.npz"))
    np.testing.assert_array_equal(mine.suits, theirs.suits)
    (tmp_path / "people.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(ValueError, match=re.escape("people.npy")):
        world(n=1, preferences=str(tmp_path / "people.npy"))


def test_a_frame_shows_the_house_and_what_its_player_sees():
    env = world(n=2)
    env.begin()
    before = [array.copy() for array in (*env.players, *env.pictures)]
    frame = env.frame(1)
    assert frame.shape[2] == 3
    assert frame.shape[1] > frame.shape[0]
    assert len(np.unique(frame.reshape(-1, 3), axis=0)) > 20
    for now, then in zip((*env.players, *env.pictures), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_exploring_starts():
    """Any number but all are away; by a coin one of the others is in hand; a third of the rest lies anywhere."""
    plain, env = world(n=1), world(n=1200, starts="exploring")
    plain.begin()
    obs = env.begin()
    held, place, first = env.players.holding, env.players.place[:, :5], plain.players.place[0, :5]
    holds, held_now = held != NOWHERE, held[:, None] == np.arange(5)
    away = (place == 0) & ~held_now
    assert np.bincount(away.sum(1)).min() > 200
    assert np.ptp(away.mean(0)) < 0.1
    assert 0.46 < holds.mean() < 0.54
    assert 0.3 < (place != first)[place > 0].mean() < 0.36
    assert len(np.unique(place)) == 1 + 43  # and 9 pieces are too high, or hold what could not be gripped again
    np.testing.assert_array_equal(env.gripped, (away | held_now) @ (1 << np.arange(5)))
    for i in range(100):
        loads = np.bincount(place[i], minlength=int(env.houses.pieces[0]) + 1)[1:]
        assert (loads <= env.houses.capacity[0, 1 : len(loads) + 1]).all()
        said = "nothing" if held[i] == NOWHERE else "the " + objects_of(env, i)[held[i]]
        assert env.texts[int(obs["held"][i])] == f"You hold {said}"
    again = world(n=1200, starts="exploring")
    again.begin()
    np.testing.assert_array_equal(again.players.place, env.players.place)


def test_half_of_the_exploring_starts_are_near_an_object():
    """Within reach of the piece that it lies on, in its room, and turned to its middle, as a heading allows."""
    env = world(n=800, starts="exploring")
    env.begin()
    ahead = np.zeros(800, bool)
    lying = np.zeros(800, bool)
    for i in range(800):
        state, turn = env.players, np.radians(20.0 * env.players.heading[i])
        for n in (n for n in state.place[i, :5].tolist() if n):
            lying[i] = True
            row, column, end_row, end_column = (env.houses.box[i, n] * 0.25).tolist()
            way = (column + end_column) / 2 - state.x[i], (row + end_row) / 2 - state.y[i]
            off = (np.arctan2(way[1], way[0]) - turn + np.pi) % (2 * np.pi) - np.pi
            ahead[i] |= np.hypot(*way) < 3.3 and abs(off) < np.radians(10.01)
    assert 0.45 < ahead[lying].mean() < 0.62  # by the coin, or by chance


def test_what_is_away_is_not_seen_and_need_not_be_put_right():
    env = world(n=64, starts="exploring")
    env.begin()
    over = np.zeros(64, bool)
    away = {i: {k for k in range(5) if not env.players.place[i, k] and env.players.holding[i] != k} for i in range(64)}
    wrong = [5 - len(right_now(env, i)) - len(away[i]) for i in range(64)]
    expert, total = Expert(), np.zeros(64)
    for _ in range(400):
        step = env.advance(expert.act(env))
        total += step.reward * ~over
        over |= step.terminated
        for i in np.flatnonzero(~over).tolist():
            assert not any(int(env.players.met[i]) >> k & 1 for k in away[i])
    assert over.all()
    np.testing.assert_allclose(total, np.array(wrong) / 5, atol=1e-5)
