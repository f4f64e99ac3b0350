"""The robot: equal to recordings of the published simulator, and to the plain account of its rules below."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from envs.navigation import Map, load, simulate

GOLDEN = Path(__file__).parents[1] / "golden" / "navigation"
F = np.float32
PI = math.pi


class Robot:
    """The rules, one pixel at a time. State is float32, trigonometry float64."""

    def __init__(self, walls, world_size, pose):
        self.walls = walls
        self.height, self.width = walls.shape
        self.scale = F(F(self.width) / F(world_size))
        self.x, self.y, self.heading = F(pose[0]), F(pose[1]), self.wrap(F(pose[2]))
        self.bumpers = [0, 0]

    def wrap(self, angle):
        while float(angle) > PI:
            angle = F(float(angle) - 2 * PI)
        while float(angle) < -PI:
            angle = F(float(angle) + 2 * PI)
        return angle

    def pixel(self, value):
        place = float(F(F(value) * self.scale))
        return math.floor(place + 0.5) if place >= 0 else -math.floor(0.5 - place)

    def wall(self, x, y):
        return not (0 <= x < self.width and 0 <= y < self.height) or bool(self.walls[y, x])

    def step(self, left, right):
        left, right = F(min(max(F(left), -4), 4)), F(min(max(F(right), -4), 4))
        turn = F(F(right - left) / F(20))
        if abs(float(turn)) > 1e-10:
            rho = float(F(F(left / turn) + F(10)))
            dx, dy = (math.cos(turn) - 1) * rho, math.sin(turn) * rho
            angle = float(F(float(self.heading) - PI / 2))
            c, s = math.cos(angle), math.sin(angle)
            x, y = F(self.x + F(c * dx - s * dy)), F(self.y + F(s * dx + c * dy))
            self.heading = self.wrap(F(self.heading + turn))
        else:
            x = F(self.x + F(math.cos(self.heading) * float(left)))
            y = F(self.y + F(math.sin(self.heading) * float(left)))
        if not self.collides(x, y):
            self.x, self.y = x, y
        return self.observe()

    def collides(self, x, y):
        column, row, radius = self.pixel(x), self.pixel(y), self.pixel(10)
        x0, y0 = F(F(x - F(10)) - F(4)), F(F(y - F(10)) - F(4))
        touched = [
            (i - column, j - row)
            for i in range(self.pixel(x0), self.pixel(F(x0 + F(28))))
            for j in range(self.pixel(y0), self.pixel(F(y0 + F(28))))
            if (i - column) ** 2 + (j - row) ** 2 <= radius * radius and self.wall(i, j)
        ]
        self.bumpers = [0, 0]
        for dx, dy in touched:
            bearing = math.atan2(dy, dx) - float(self.heading)
            bearing += 2 * PI if bearing < -PI else -2 * PI if bearing > PI else 0
            if 0 < bearing < PI / 2:
                self.bumpers[1] = 1
            if -PI / 2 < bearing < 0:
                self.bumpers[0] = 1
        return bool(touched)

    def observe(self):
        return [*(self.laser(F(angle * PI / 180)) for angle in (45, 0, -45)), *self.bumpers]

    def laser(self, angle):
        direction = float(F(self.heading + angle))
        x = F(self.x + F(F(math.cos(direction)) * F(100)))
        y = F(self.y + F(F(math.sin(direction)) * F(100)))
        hit = self.ray(self.pixel(self.x), self.pixel(self.y), self.pixel(x), self.pixel(y))
        if hit is None:
            return F(100)
        dx, dy = F(self.x - F(F(hit[0]) / self.scale)), F(self.y - F(F(hit[1]) / self.scale))
        return min(F(math.sqrt(F(F(dx * dx) + F(dy * dy)))), F(100))

    def ray(self, x, y, x_end, y_end):
        """Supercover Bresenham: side pixels of a diagonal step count, and the pixel got to is what is returned."""
        sx, sy = (1 if x_end >= x else -1), (1 if y_end >= y else -1)
        dx, dy = abs(x_end - x), abs(y_end - y)
        level = dx > dy
        long, short = (dx, dy) if level else (dy, dx)
        error = long
        for _ in range(long):
            before = error
            (old_x, old_y) = (x, y)
            x, y = (x + sx, y) if level else (x, y + sy)
            error += 2 * short
            tested = []
            if error > 2 * long:
                error -= 2 * long
                x, y = (x, y + sy) if level else (x + sx, y)
                first, second = ((x, old_y), (old_x, y)) if level else ((old_x, y), (x, old_y))
                if error + before <= 2 * long:
                    tested.append(first)
                if error + before >= 2 * long:
                    tested.append(second)
            if any(self.wall(*pixel) for pixel in [*tested, (x, y)]):
                return x, y
        return None


def by_the_rules(house, start, actions):
    """`simulate` of one robot."""
    robot = Robot(house.walls, house.world_size, start)
    obs = [robot.step(*action) for action in actions]
    return robot, np.array(obs, np.float32)


# ---- recordings ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def traces():
    with np.load(GOLDEN / "house_traces.npz") as arrays:
        return dict(arrays)


def test_it_moves_and_senses_as_the_published_simulator_bit_for_bit(traces):
    found = simulate(GOLDEN / "house_map.json", None, traces["actions"])
    assert found["pose"].dtype == found["obs"].dtype == np.float32
    assert (found["obs"][..., 3:] > 0).sum() > 1000
    np.testing.assert_array_equal(found["pose"], traces["pose"])
    np.testing.assert_array_equal(found["obs"], traces["obs"])


def test_the_plain_rules_are_those_of_the_published_simulator(traces):
    house = load(GOLDEN / "house_map.json")
    for n in range(0, 24, 3):
        robot = Robot(house.walls, house.world_size, house.start)
        assert robot.observe() == traces["reset_obs"][n].tolist()
        for t, action in enumerate(traces["actions"][n]):
            np.testing.assert_array_equal(robot.step(*action), traces["obs"][n, t])
            np.testing.assert_array_equal((robot.x, robot.y, robot.heading), traces["pose"][n, t])


@pytest.mark.parametrize(
    ("action", "pose", "obs"),
    [
        ((4, 4), (167.4803, 557.4803, 0.7854), (12.53, 17.705, 66.522, 0, 1)),
        ((2.0, 2.2), (38.068, 525.6161, -1.4978), (100, 100, 16.783, 0, 0)),
        ((4, 3.8), (184.4602, 485.5372, 3.0686), (17.728, 100, 100, 0, 0)),
        ((-1, 3.5), (57.8233, 459.2005, 2.8208), (34.368, 33.005, 67.276, 0, 0)),
        ((-4, -4), (40.201, 430.201, 0.7854), (100, 100, 100, 0, 0)),
    ],
)
def test_measured_poses_after_400_steps(action, pose, obs):
    """Published beside the traces, to 3 digits."""
    found = simulate(load(), None, np.tile(np.float32(action), (1, 400, 1)))
    np.testing.assert_allclose(found["pose"][0, -1], pose, atol=1e-3)
    np.testing.assert_allclose(found["obs"][0, -1], obs, atol=2e-3)


# ---- any map, any start, any actions ---------------------------------------------------------------------------------


@st.composite
def houses(draw):
    """Small rooms with thick and thin walls and single pixels, of several pixel sizes."""
    width, height = draw(st.integers(24, 70)), draw(st.integers(24, 70))
    unit = draw(st.sampled_from([3.0, 3.0, 2.0, 1.0, 2.7, 4.5, 7.3, 10.0, 13.9]))
    border = draw(st.integers(1, 4))
    walls = np.ones((height, width), np.bool_)
    walls[border:-border, border:-border] = False
    for _ in range(draw(st.integers(0, 6))):
        x, y = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
        walls[y : y + draw(st.integers(1, 12)), x : x + draw(st.integers(1, 12))] = True
    assume(not walls.all())
    return Map(width * unit, walls, (0.0, 0.0, 0.0), (0.0, 0.0))


@st.composite
def journeys(draw):
    """A house, a start in it where rounding is a matter of one bit or anywhere, and actions."""
    house = draw(houses())
    offset = st.sampled_from([0.0, 0.5, -0.5, 0.25]) | st.floats(-0.5, 0.5)
    eighth = st.integers(-12, 12).map(lambda k: k * PI / 4)
    places = np.argwhere(~house.walls)[:, ::-1]
    place = places[draw(st.integers(0, len(places) - 1))]
    start = [(side + draw(offset)) / house.scale for side in place] + [draw(eighth | st.floats(-7, 7))]
    tenth = st.integers(-40, 40).map(lambda k: k / 10)
    speed = tenth | st.floats(-5, 5, width=32) | st.sampled_from([4.0, -4.0, 0.0])
    action = st.tuples(speed, speed) | speed.map(lambda v: (v, v))
    steps = st.lists(st.tuples(action, st.integers(1, 12)), min_size=1, max_size=6)
    return house, start, np.array([a for a, times in draw(steps) for _ in range(times)], np.float32)


def free(house, start):
    robot = Robot(house.walls, house.world_size, start)
    inside = 0 <= robot.pixel(robot.x) < robot.width and 0 <= robot.pixel(robot.y) < robot.height
    return inside and not robot.collides(robot.x, robot.y)


def refused(house, start):
    try:
        simulate(house, start, np.zeros((1, 1, 2)))
    except ValueError:
        return True
    return False


@settings(max_examples=300)
@given(journeys())
def test_it_follows_the_plain_rules_on_any_map(journey):
    house, start, actions = journey
    if refused(house, start):
        # A coarse map's search box may overlook a wall that is within the radius.
        assert not free(house, start) or house.scale < 1 / 4
        return
    found = simulate(house, start, actions[None])
    assert free(house, start)
    robot, obs = by_the_rules(house, start, actions)
    np.testing.assert_array_equal(found["obs"][0], obs)
    np.testing.assert_array_equal(found["pose"][0, -1], (robot.x, robot.y, robot.heading))


def room(width=60, height=60, border=2, *blocks):
    walls = np.ones((height, width), np.bool_)
    walls[border:-border, border:-border] = False
    for x0, y0, x1, y1 in blocks:
        walls[y0 : y1 + 1, x0 : x1 + 1] = True
    return Map(3.0 * width, walls, (90.0, 90.0, 0.0), (90.0, 90.0))


@pytest.mark.parametrize("degrees", range(-180, 225, 45))
@pytest.mark.parametrize("shift", [0.0, 1.5, -1.5])
def test_straight_into_walls_and_corners(degrees, shift):
    """Axis-parallel rays, rays through corners, pixels exactly ahead, coordinates halfway between two pixels."""
    house = room(60, 60, 2, (40, 28, 40, 28), (18, 31, 19, 31), (30, 42, 30, 42), (20, 20, 20, 20), (45, 30, 45, 30))
    start = (90 + shift, 90 + shift, math.radians(degrees))
    actions = np.tile(np.float32((4, 4)), (40, 1))
    found = simulate(house, start, actions[None])
    robot, obs = by_the_rules(house, start, actions)
    np.testing.assert_array_equal(found["obs"][0], obs)
    np.testing.assert_array_equal(found["pose"][0, -1], (robot.x, robot.y, robot.heading))


def compare(house, starts, actions):
    """`simulate` and the plain rules agree for all starts that are free; how many there are."""
    starts = [start for start in starts if free(house, start)]
    found = simulate(house, np.array(starts, np.float32), np.tile(np.float32(actions), (len(starts), 1, 1)))
    for n, start in enumerate(starts):
        robot, obs = by_the_rules(house, start, actions)
        np.testing.assert_array_equal(found["obs"][n], obs)
        np.testing.assert_array_equal(found["pose"][n, -1], (robot.x, robot.y, robot.heading))
    return len(starts)


def test_lasers_that_end_on_the_edge_of_a_pixel():
    """One bit decides there which pixel they end in; scattered walls make that show."""
    generator = np.random.default_rng(0)
    walls = room(120, 120).walls.copy()
    walls[generator.random(walls.shape) < 0.004] = True
    house = Map(360.0, walls, (0.0, 0.0, 0.0), (0.0, 0.0))
    starts = []
    for _ in range(3000):
        heading = generator.uniform(-PI, PI)
        edge = 3.0 * (generator.integers(10, 110) + 0.5)
        x = F(edge - 100 * math.cos(heading + generator.integers(-1, 2) * PI / 4))
        starts.append((x, generator.uniform(10, 350), heading))
    assert compare(house, starts, [(0.0, 0.0)]) > 800


def test_coarse_maps():
    """Where a pixel is nearly as large as the robot, its search box ends before its radius on two sides."""
    generator = np.random.default_rng(0)
    walls = room(30, 30, 1, (10, 10, 12, 20), (20, 5, 20, 5)).walls
    for unit in (8.0, 10.0, 13.9):
        house = Map(30 * unit, walls, (0.0, 0.0, 0.0), (0.0, 0.0))
        starts = [(x * unit, y * unit, 0.3 * x) for x, y in generator.uniform(2.5, 26.5, (60, 2))]
        starts = [start for start in starts if not refused(house, start)]
        assert compare(house, starts, [(4.0, 3.9)] * 60) > 20


def test_lasers_measure_to_what_they_hit_and_no_farther_than_100():
    house = room(100, 100, 2)
    found = simulate(house, (150, 150, 0), np.zeros((1, 1, 2)))["obs"][0, 0]
    assert found.tolist() == [100, 100, 100, 0, 0]
    found = simulate(house, (204, 150, 0), np.zeros((1, 1, 2)))["obs"][0, 0]
    assert found[1] == 294 - 204  # the wall's first pixel is 98
    found = simulate(house, (195, 150, 0), np.zeros((1, 1, 2)))["obs"][0, 0]
    assert found[1] == 99
    found = simulate(house, (194, 150, 0), np.zeros((1, 1, 2)))["obs"][0, 0]
    assert found[1] == 100  # 100 away, as is its last pixel


def test_headings_stay_within_half_a_turn():
    pose = simulate(load(), None, np.tile(np.float32((-1, 1)), (1, 400, 1)))["pose"]
    assert np.abs(pose[..., 2]).max() <= np.float32(PI)
    assert (np.diff(pose[0, :, 2]) < 0).sum() == 6  # 400 tenths of a radian
    once = simulate(load(), (60, 450, 1.0), np.zeros((1, 1, 2)))["pose"][0, 0]
    twice = simulate(load(), (60, 450, 1.0 - 4 * PI), np.zeros((1, 1, 2)))["pose"][0, 0]
    np.testing.assert_allclose(twice, once, atol=1e-6)


def test_robots_do_not_depend_on_each_other():
    generator = np.random.default_rng(0)
    starts = np.array([(60, 450, 0.1), (300, 500, 2), (250, 300, -3)], np.float32)
    actions = generator.uniform(-5, 5, (3, 50, 2)).astype(np.float32)
    whole = simulate(load(), starts, actions)
    for n in range(3):
        alone = simulate(load(), starts[n], actions[n : n + 1])
        np.testing.assert_array_equal(alone["pose"][0], whole["pose"][n])
        np.testing.assert_array_equal(alone["obs"][0], whole["obs"][n])


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "actions", "sentence"),
    [
        (None, np.zeros((3, 2)), r"actions are \[N, T, 2\].*got \[3, 2\]"),
        (None, np.zeros((1, 3, 3)), r"actions are \[N, T, 2\]"),
        (None, [[[0.0, math.nan]]], r"actions must be finite numbers.*\[0, 0, 1\]"),
        (None, [[["left", "right"]]], "actions are no array of numbers"),
        ((60, 450), np.zeros((1, 3, 2)), r"start_pose is \[3\] or \[1, 3\].*got \[2\]"),
        (np.zeros((2, 3)), np.zeros((1, 3, 2)), r"start_pose is \[3\] or \[1, 3\].*got \[2, 3\]"),
        ((60, math.inf, 0), np.zeros((1, 3, 2)), "start_pose must be finite"),
        ((60, 450, 1e6), np.zeros((1, 3, 2)), "give it in radians"),
        ((10, 10, 0), np.zeros((1, 3, 2)), r"pixel \(3, 3\), in a wall"),
        ((36, 450, 0), np.zeros((1, 3, 2)), r"pixel \(12, 150\), .*nearer to one than its radius"),
        ((700, 450, 0), np.zeros((1, 3, 2)), r"pixel \(233, 150\), off the map"),
    ],
)
def test_what_cannot_be_simulated_is_one_sentence(start, actions, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        simulate(load(), start, actions)
    assert "\n" not in str(caught.value)


def test_the_default_house_is_the_recorded_one():
    recorded = json.loads((GOLDEN / "house_map.json").read_text())
    assert (load().walls == load(recorded).walls).all()
    assert (load().start, load().goal) == (load(recorded).start, load(recorded).goal)
