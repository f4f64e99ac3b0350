"""Dark rooms: the published tasks and ceilings, rules held to plain rooms played one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envs
from actors.evaluate import play
from actors.players.expert import ExpertPlayer
from envs import HELD_OUT_FIRST, dark
from envs.dark.world import EAST, NORTH, SOUTH, STAY, WEST

CEILINGS = {  # mean return of the 20 published test tasks
    "Room-10x10": 91.05,
    "Room-20x20": 378.25,
    "Room-40x20": 774.2,
    "KeyDoor-10x10": 87.05,
    "KeyDoor-20x20": 368.25,
    "KeyDoor-40x20": 745.9,
}


class PlainRoom:
    """One room, step by step: where its player is, what it holds, what a step pays."""

    def __init__(self, width, height, goal, key, start, length):
        self.width, self.height, self.goal, self.key, self.length = width, height, goal, key, length
        self.row, self.column = start
        self.has_key, self.steps, self.total, self.success = key is None, 0, 0, False

    def step(self, name):
        """The reward, and whether this was the last step."""
        if name == "north" and self.row > 0:
            self.row -= 1
        if name == "south" and self.row < self.height - 1:
            self.row += 1
        if name == "west" and self.column > 0:
            self.column -= 1
        if name == "east" and self.column < self.width - 1:
            self.column += 1
        reward = 0
        if not self.has_key and (self.row, self.column) == self.key:
            self.has_key = True
            reward += 1
        if self.has_key and (self.row, self.column) == self.goal:
            self.success = True
            reward += 1
        self.steps += 1
        self.total += reward
        return reward, self.steps == self.length


def places(env):
    """Goal and key of each env, (row, column)."""
    shown = []
    for cells in (env.goal, env.key):
        shown.append(list(zip(env.row_of[cells].tolist(), env.column_of[cells].tolist(), strict=True)))
    return shown


@settings(max_examples=25)
@given(
    kind=st.sampled_from(["Room", "KeyDoor"]),
    size=st.tuples(st.integers(3, 7), st.integers(3, 7)),
    legacy=st.booleans(),
    length=st.integers(1, 30),
    draw=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_many_rooms_are_plain_rooms_side_by_side(kind, size, legacy, length, draw, data):
    """Rewards, observations and ends of 60 steps, over many episodes; half of the steps are the expert's."""
    (width, height), legacy = size, legacy and kind == "KeyDoor"
    start = data.draw(st.tuples(st.integers(0, height - 1), st.integers(0, width - 1)))
    options = {"start": list(start), "length": length, "rules": "legacy" if legacy else "strict"}
    n, random, expert = 5, np.random.default_rng(draw), dark.Expert()
    env = envs.make(f"dark/{kind}-{width}x{height}", n, seed=draw, **options)
    obs = env.begin()
    opened, plain = set(), [None] * n  # (env, task) whose key was held

    def begin(i):
        goal, key = (place[i] for place in places(env))
        plain[i] = PlainRoom(width, height, goal, key if kind == "KeyDoor" else None, start, length)
        plain[i].has_key |= legacy and (i, int(env.task[i])) in opened

    for i in range(n):
        begin(i)
    for _ in range(60):
        assert obs["row"].tolist() == [room.row for room in plain]
        assert obs["column"].tolist() == [room.column for room in plain]
        action = np.where(random.random(n) < 0.5, expert.act(env), random.integers(0, 5, n))
        task = env.task.tolist()
        t = env.advance(action)
        obs = t.obs
        found = [room.step(env.env_spec.action_names[a]) for room, a in zip(plain, action, strict=True)]
        assert t.reward.tolist() == [reward for reward, _ in found]
        assert t.truncated.tolist() == [last for _, last in found]
        assert not t.terminated.any()
        assert t.final_index.tolist() == [i for i in range(n) if found[i][1]]
        for d, i in enumerate(t.final_index.tolist()):
            room = plain[i]
            assert (t.final_obs["row"][d], t.final_obs["column"][d]) == (room.row, room.column)
            assert (t.episodes.total[d], t.episodes.success[d]) == (room.total, room.success)
            if room.has_key:
                opened.add((i, task[i]))
            begin(i)


@pytest.mark.parametrize("name", CEILINGS)
def test_the_expert_reaches_the_published_ceilings(name):
    """Each test task once, by held-out seeds in order."""
    env = envs.make(f"dark/{name}", 20, split="published")
    played = play(env, ExpertPlayer(dark.Expert()), HELD_OUT_FIRST + np.arange(20)).episodes
    assert played.total.astype(float).mean() == pytest.approx(CEILINGS[name], abs=1e-9)
    assert played.success.all()
    assert set(played.length.tolist()) == {np.prod([int(side) for side in name.partition("-")[2].split("x")])}
    assert sorted(env.env_spec.task(played.seed).tolist()) == list(range(20))


def coordinates(name, split):
    """(x, y) of goals and keys, in the order of the tasks."""
    env = envs.make(f"dark/{name}", envs.spec(f"dark/{name}", split=split).tasks, split=split)
    env.begin(np.arange(env.num_envs))
    return [[(column, row) for row, column in cells] for cells in places(env)]


def test_the_published_tasks_are_those_that_were_published():
    training, test = (coordinates("Room-10x10", split)[0] for split in ("published_train", "published"))
    assert training[:4] == [(2, 0), (0, 2), (1, 5), (2, 2)]
    assert test[:4] == [(9, 0), (8, 4), (3, 4), (6, 5)]
    for name in CEILINGS:
        training, test = (coordinates(name, split) for split in ("published_train", "published"))
        assert (len(set(training[0])), len(set(test[0]))) == (80, 20)
        assert not set(training[0]) & set(test[0])
        assert ((0, 0) in training[0]) == (not name.endswith("40x20"))  # the start itself, in the two smaller rooms
        assert ((0, 0) in training[1]) == (not name.endswith("40x20"))
    goals, keys = coordinates("KeyDoor-40x20", "published_train")
    assert [goal for goal, key in zip(goals, keys, strict=True) if goal == key] == [(19, 18)]


def test_coordinates_are_the_cells_as_they_are():
    """In a wide room, where rows and columns can be told apart; all else is the same."""
    random = np.random.default_rng(0)
    both = [envs.make("dark/KeyDoor-5x3", 4, observe=observe) for observe in ("cells", "coordinates")]
    cells, coordinates = (env.begin() for env in both)
    for _ in range(40):
        assert coordinates.keys() == {"position"}
        assert (coordinates["position"].shape, coordinates["position"].dtype) == ((4, 2), np.float32)
        np.testing.assert_array_equal(coordinates["position"].T, [cells["row"], cells["column"]])
        action = np.where(random.random(4) < 0.5, dark.Expert().act(both[1]), random.integers(0, 5, 4))
        first, second = (env.advance(action) for env in both)
        np.testing.assert_array_equal(first.reward, second.reward)
        cells, coordinates = first.obs, second.obs
    assert envs.spec("dark/KeyDoor-5x3", observe="coordinates").fields["position"].size == 5


def walk(env, cells):
    """Let env 0 go to each cell in turn, along its row first, and say what each step paid."""
    paid = []
    for cell in cells:
        right = env.column_of[cell] - env.column_of[env.cell[0]]
        down = env.row_of[cell] - env.row_of[env.cell[0]]
        steps = [EAST if right > 0 else WEST] * abs(right) + [SOUTH if down > 0 else NORTH] * abs(down)
        paid += [float(env.advance(np.array([step])).reward[0]) for step in steps]
    return paid


def at_door(env, key_first):
    """What an episode pays that ends at the door, with or without fetching the key."""
    goal, key = int(env.goal[0]), int(env.key[0])
    return sum(walk(env, [key, goal] if key_first else [goal]))


def key_aside(spec):
    """Seeds of two tasks in whose rooms the walk to the door passes no key."""
    found = []
    for task in range(spec.tasks - spec.held_out):
        env = envs.make("dark/KeyDoor-6x6", 1)
        env.begin(np.array([task]))
        goal, key = int(env.goal[0]), int(env.key[0])
        along = set(range(6)) | set(range(goal % 6, 36, 6))
        if goal and key and key not in along:
            found.append(task)
    return found[:2]


def test_a_key_is_kept_by_legacy_rules_only_for_its_env_and_task():
    one, other = key_aside(envs.spec("dark/KeyDoor-6x6"))
    for rules, later in (("strict", 0.0), ("legacy", 1.0)):
        env = envs.make("dark/KeyDoor-6x6", 1, rules=rules)

        def episode(task, key_first, env=env):
            env.begin(np.array([task]))
            return at_door(env, key_first)

        assert episode(one, False) == 0
        assert episode(one, True) == 2
        assert episode(one, False) == later
        assert episode(one, True) == 2 - later  # the key pays nothing more; the door is passed once
        assert episode(other, False) == 0
        assert episode(one, False) == later
        env.begin(np.array([one]))
        fresh = envs.make("dark/KeyDoor-6x6", 1, rules=rules)
        fresh.restore(env.state())
        assert at_door(fresh, False) == later


def test_a_state_of_legacy_rules_is_of_the_moment_when_its_episode_began():
    (one, _), random = key_aside(envs.spec("dark/KeyDoor-6x6")), np.random.default_rng(0)
    env = envs.make("dark/KeyDoor-6x6", 1, rules="legacy")
    env.begin(np.array([one]))
    walk(env, [int(env.key[0])])  # held now, but not when the episode began
    again = envs.make("dark/KeyDoor-6x6", 1, rules="legacy", seed=4)
    again.begin()
    again.restore(env.state())
    assert again.holding.all()
    for action in random.integers(0, 5, (200, 1)):
        now, then = again.advance(action), env.advance(action)
        assert now.reward == then.reward
        assert now.obs["row"] == then.obs["row"]
        assert (again.state()["kept"] == env.state()["kept"]).all()


def test_a_state_of_other_rules_or_tasks_is_refused_and_changes_nothing():
    strict, legacy = (envs.make("dark/KeyDoor-10x10", 2, rules=rules) for rules in ("strict", "legacy"))
    strict.begin()
    legacy.begin()
    before = legacy.state()
    with pytest.raises(ValueError, match=r"is of env\.rules=strict"):
        legacy.restore(strict.state())
    held = strict.state()
    with pytest.raises(ValueError, match=r"is of env\.rules=legacy, this env has rules=strict"):
        strict.restore(before)
    assert all((strict.state()[name] == value).all() for name, value in held.items())
    other = envs.make("dark/KeyDoor-10x10", 2, rules="legacy", split="published")
    other.begin()
    with pytest.raises(ValueError, match=r"of another env\.split"):
        legacy.restore(other.state())
    assert all((legacy.state()[name] == value).all() for name, value in before.items())
    long = envs.make("dark/KeyDoor-10x10", 2)
    long.begin()
    for _ in range(9):
        long.advance(np.full(2, STAY))
    with pytest.raises(ValueError, match="episode of 9 steps, but those of this env have 9"):
        envs.make("dark/KeyDoor-10x10", 2, length=9).restore(long.state())


def test_the_key_s_own_door_pays_with_it_in_one_step():
    """As one of the published test tasks of 10x10 has it, which its ceiling counts."""
    goals, keys = coordinates("KeyDoor-10x10", "published")
    (task,) = [i for i in range(20) if goals[i] == keys[i]]
    env = envs.make("dark/KeyDoor-10x10", 1, split="published")
    env.begin(np.array([task]))
    assert walk(env, [int(env.goal[0])])[-1] == 2
    assert env.advance(np.array([STAY])).reward == 1


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Room-7x7", {"split": "published"}, r"10x10, 20x20, 40x20, not of dark/Room-7x7: use split=own"),
        ("Room-20x40", {"split": "published_train"}, "not of dark/Room-20x40"),
        ("Room-10x10", {"rules": "legacy"}, "dark/Room-10x10 has none: use KeyDoor"),
        ("KeyDoor-4x5", {"start": [4, 4]}, "rows 0 to 4, columns 0 to 3"),
        ("Room-10x10", {"start": [0]}, "at least 2"),
        ("Room-10x10", {"length": 0}, "greater than or equal to 1"),
    ],
)
def test_what_a_room_does_not_have_is_said(name, options, message):
    with pytest.raises(ValueError, match=message):
        envs.make(f"dark/{name}", 1, **options)


@pytest.mark.parametrize("name", ["Room-2x9", "Room-9x101", "Room-09x9", "Room-9", "Hall-9x9", "KeyDoor-9x9x9"])
def test_there_is_no_room_of_other_names(name):
    with pytest.raises(envs.UnknownEnv):
        envs.make(f"dark/{name}")


def test_a_picture_shows_the_player_and_what_is_left_to_find():
    env = envs.make("dark/KeyDoor-6x6", 1, start=[2, 3])
    env.begin(np.array([key_aside(env.env_spec)[0]]))
    k = len(env.frame(0)) // 6

    def colour(cell):
        row, column = divmod(int(cell), 6)
        return tuple(env.frame(0)[k * row + k // 2, k * column + k // 2].tolist())

    key = int(env.key[0])
    assert len({colour(2 * 6 + 3), colour(env.goal[0]), colour(key)}) == 3
    player, plain = colour(2 * 6 + 3), {colour(cell) for cell in range(36)}
    assert len(plain) == 4  # and the floor
    walk(env, [key])
    assert colour(key) == player
    walk(env, [2 * 6 + 3])
    assert len({colour(cell) for cell in range(36)}) == 3
