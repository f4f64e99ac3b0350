"""Mazes: the published ones and their ceiling, rules held to a plain maze, our own that never mix."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envs
from actors.evaluate import play
from actors.players.expert import ExpertPlayer
from envs import HELD_OUT_FIRST, maze
from envs.maze import mazes

WAYS = {"west": (0, -1), "north": (-1, 0), "east": (0, 1), "south": (1, 0), "stay": (0, 0)}


def plain_published(seed):
    """Walls as a set of (row, column), and goals, by the published recipe word by word."""
    rng = np.random.RandomState(seed)
    wall = {(i, j) for i in range(15) for j in range(15) if i in (0, 14) or j in (0, 14)}
    for _ in range(int(0.75 * 49)):
        x = rng.randint(0, 8) * 2
        y = rng.randint(0, 8) * 2
        wall.add((y, x))
        for _ in range(int(0.75 * 5 * 30)):
            near = [(x - 2, y)] if x > 1 else []
            near += [(x + 2, y)] if x < 13 else []
            near += [(x, y - 2)] if y > 1 else []
            near += [(x, y + 2)] if y < 13 else []
            to_x, to_y = near[rng.randint(0, len(near))]
            if (to_y, to_x) not in wall:
                wall |= {(to_y, to_x), ((y + to_y) // 2, (x + to_x) // 2)}
                x, y = to_x, to_y
    wall -= {(row, column) for row in (10, 11, 12, 13) for column in range(1, 14)}
    wall |= {(row, column) for row in (11, 12, 13) for column in (6, 8)}
    free = [(i, j) for i in range(15) for j in range(15) if (i, j) not in wall and (i, j) != (13, 7)]
    again = np.random.RandomState(seed)
    chosen = again.choice(len(free), again.randint(1, 4), replace=False)
    return wall, [free[k] for k in chosen]


def walls_of(found):
    return set(zip(*(axis.tolist() for axis in np.nonzero(found.walls)), strict=True))


def place(found, cell):
    return divmod(int(cell), len(found.walls))


@pytest.mark.parametrize("seed", [0, 41, 121, *range(300, 320)])
def test_published_mazes_are_those_of_the_recipe(seed):
    found = mazes.published(seed)
    walls, goals = plain_published(seed)
    assert walls_of(found) == walls
    assert [place(found, goal) for goal in found.goals] == goals
    assert place(found, found.start) == (13, 7)


def test_published_figures():
    test = [mazes.published(seed) for seed in mazes.TEST]
    assert [sum(len(found.goals) == k for found in test) for k in (1, 2, 3)] == [6, 8, 6]
    assert np.mean([(~found.walls).sum() for found in test]) == pytest.approx(114.45)
    assert len(mazes.TRAINING) == 100
    assert len(set(mazes.TRAINING) | set(mazes.TEST)) == 120
    assert {41, 0, 121} < set(mazes.TRAINING) < set(range(122))


def test_the_expert_reaches_the_published_ceiling():
    """Each test maze once, by held-out seeds in order, on shortest tours."""
    env = envs.make("maze/Runner-15", 20, split="published")
    played = play(env, ExpertPlayer(maze.Expert()), HELD_OUT_FIRST + np.arange(20)).episodes
    assert played.total.mean() == 2.0
    assert played.length.mean() == pytest.approx(23.7)
    assert played.length.max() == 51
    assert played.success.all()


def steps_between(found, start, goal):
    """Breadth first, from cell to cell."""
    walls, far, queue = walls_of(found), {start: 0}, deque([start])
    while queue:
        row, column = queue.popleft()
        if (row, column) == goal:
            return far[goal]
        for down, right in WAYS.values():
            beside = (row + down, column + right)
            if beside not in walls and beside not in far:
                far[beside] = far[row, column] + 1
                queue.append(beside)
    return None


@settings(max_examples=40)
@given(size=st.sampled_from([7, 9, 15, 21]), number=st.integers(0, 10**6), held_out=st.booleans())
def test_own_mazes_are_closed_and_all_of_them_can_be_reached(size, number, held_out):
    found = mazes.own(size, number, held_out)
    assert found.walls[[0, -1]].all()
    assert found.walls[:, [0, -1]].all()
    assert not found.walls[1::2, 1::2].any()
    free = np.flatnonzero(~found.walls)
    assert (found.distance[:, free] < size**2).all()
    assert found.start in free
    assert 1 <= len(found.goals) == len(set(found.goals) - {found.start}) <= 3
    assert set(found.goals) <= set(free.tolist())
    start = place(found, found.start)
    assert start[0] == size - 2
    for goal, distance in zip(found.goals, found.distance, strict=True):
        assert steps_between(found, start, place(found, goal)) == distance[found.start]


@pytest.mark.parametrize("size", [7, 15])
def test_no_own_maze_is_both_trained_on_and_held_out(size):
    trained, held = ({mazes.own(size, k, side).walls.tobytes() for k in range(100)} for side in (False, True))
    assert min(len(trained), len(held)) > 30  # 3 x 3 cells: there are not many
    assert not trained & held


def test_a_process_keeps_few_mazes_and_draws_the_same_again():
    large = mazes.own(51, 0, False)
    each = sum(table.nbytes for table in (large.walls, large.moves, large.sensors, large.distance, large.ways))
    first = mazes.own(7, 0, False)
    assert mazes.own(7, 0, False) is first
    for number in range(1, 32 * 2**20 // each):
        mazes.own(7, number, False)
    again = mazes.own(7, 0, False)
    assert again is not first  # all that are kept fit 32 MiB, also if they are large
    assert (again.walls == first.walls).all()
    assert (again.start, again.goals) == (first.start, first.goals)


def sensed(found, row, column):
    walls, size = walls_of(found), len(found.walls)
    free = []
    for name in ("west", "north", "east", "south"):
        down, right = WAYS[name]
        steps = 1
        while (row + steps * down, column + steps * right) not in walls:
            steps += 1
        free.append(steps - 1)
    return [np.float32(number / size) for number in (row, column, *free)]


@settings(max_examples=20)
@given(
    size=st.sampled_from([7, 9, 15]),
    published=st.booleans(),
    length=st.integers(1, 60),
    draw=st.integers(0, 2**32 - 1),
)
def test_many_mazes_are_plain_mazes_side_by_side(size, published, length, draw):
    """Rewards, observations and ends of 60 steps, over many episodes; half of the steps are the expert's."""
    split = "published" if published and size == 15 else "own"
    n, random, expert = 4, np.random.default_rng(draw), maze.Expert()
    options = {"mazes": 20} if split == "own" else {"split": split}
    env = envs.make(f"maze/Runner-{size}", n, seed=draw, length=length, **options)
    obs = env.begin()
    where, left, steps = [None] * n, [None] * n, [0] * n

    def begin(i):
        found = env.mazes[i]
        where[i], left[i], steps[i] = place(found, found.start), [place(found, goal) for goal in found.goals], 0

    for i in range(n):
        begin(i)
    for _ in range(60):
        assert obs["sensors"].tolist() == [sensed(env.mazes[i], *where[i]) for i in range(n)]
        action = np.where(random.random(n) < 0.5, expert.act(env), random.integers(0, 5, n))
        before = list(env.mazes)
        t = env.advance(action)
        obs, ended = t.obs, []
        for i in range(n):
            down, right = WAYS[env.env_spec.action_names[action[i]]]
            to = (where[i][0] + down, where[i][1] + right)
            where[i] = where[i] if to in walls_of(before[i]) else to
            steps[i] += 1
            reached = where[i] == left[i][0]
            left[i] = left[i][1:] if reached else left[i]
            assert t.reward[i] == reached
            assert t.terminated[i] == (not left[i])
            assert t.truncated[i] == (bool(left[i]) and steps[i] == length)
            if not left[i] or steps[i] == length:
                d = len(ended)
                ended.append(i)
                assert t.final_obs["sensors"][d].tolist() == sensed(before[i], *where[i])
                assert t.episodes.success[d] == (not left[i])
                begin(i)
        assert t.final_index.tolist() == ended


def test_the_length_is_the_published_one_and_in_proportion():
    for size, length in ((15, 400), (9, 144), (21, 784)):
        env = envs.make(f"maze/Runner-{size}", 1)
        env.begin()
        lengths = [env.advance(np.array([4])).episodes.length.tolist() for _ in range(length)]
        assert lengths[-1] == [length]
        assert lengths[:-1] == [[]] * (length - 1)


def test_a_state_of_longer_episodes_is_refused():
    env = envs.make("maze/Runner-9", 1)
    env.begin()
    for _ in range(10):
        env.advance(np.array([4]))
    with pytest.raises(ValueError, match="episode of 10 steps, but those of this env have 10"):
        envs.make("maze/Runner-9", 1, length=10).restore(env.state())


def test_what_a_maze_does_not_have_is_said():
    with pytest.raises(ValueError, match="maze/Runner-9 has split=own only"):
        envs.make("maze/Runner-9", 1, split="published")
    for split in ("published", "published_train"):
        with pytest.raises(ValueError, match=f"mazes=20 is of split=own, not of split={split}: leave env.mazes out"):
            envs.make("maze/Runner-15", 1, split=split, mazes=20)
    with pytest.raises(ValueError, match="greater than or equal to 5"):
        envs.make("maze/Runner-9", 1, mazes=4)


@pytest.mark.parametrize("name", ["Runner-14", "Runner-5", "Runner-53", "Runner-015", "Runner", "Walker-15"])
def test_there_is_no_maze_of_other_names(name):
    with pytest.raises(envs.UnknownEnv):
        envs.make(f"maze/{name}")


def test_a_picture_shows_the_player_and_the_goals_that_are_left():
    seed = next(seed for seed in range(20) if len(mazes.published(mazes.TEST[seed]).goals) == 3)
    env, expert = envs.make("maze/Runner-15", 1, split="published"), maze.Expert()
    env.begin(np.array([seed]))

    def colours():
        k = len(env.frame(0)) // 15
        return len({tuple(colour) for colour in env.frame(0)[k // 2 :: k, k // 2 :: k].reshape(-1, 3).tolist()})

    assert colours() == 6  # floor, walls, the player, three goals
    while env.found[0] < 2:
        env.advance(expert.act(env))
    env.advance(expert.act(env))
    assert colours() == 4
