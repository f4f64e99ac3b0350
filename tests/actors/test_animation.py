"""Animations of episodes: small, readable, and with all that is notable."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from actors.animation import HERE, INK, LINE, LONGEST, MARK, MILLISECONDS, PAPER, REST, WIDTH, Animation
from actors.trace import Trace


def frames(animation, trace=None):
    """Pictures [H, W, 3] and milliseconds of each frame."""
    with Image.open(io.BytesIO(animation.gif(trace))) as gif:
        found = []
        for i in range(gif.n_frames):
            gif.seek(i)
            found.append((np.asarray(gif.convert("RGB")).astype(int), gif.info["duration"]))
    return found


def walk(step, side=63, seed=0):
    """A white dot that walks over a ground of tiles."""
    generator = np.random.default_rng(seed)
    tiles = generator.integers(40, 120, (12, 3)).astype(np.uint8)[generator.integers(0, 12, (9, 9))]
    picture = np.kron(tiles, np.ones((side // 9, side // 9, 1), np.uint8))
    picture[20:30, step % 50 : step % 50 + 10] = 255
    return picture


def near(picture, colour):
    return (abs(picture - np.array(colour)).sum(-1) < 12).sum()


@pytest.mark.parametrize("side", [36, 63, 90, 126])
def test_small_pictures_keep_square_pixels(side):
    animation = Animation("m")
    animation.add(walk(0, side))
    animation.add(walk(1, side))
    (picture, _), _ = frames(animation)
    times = WIDTH // side
    assert picture.shape == (side * times, side * times, 3)
    blocks = picture.reshape(side, times, side, times, 3)
    assert (blocks == blocks[:, :1, :, :1]).all()
    assert abs(blocks[:, 0, :, 0] - walk(0, side)).max() < 6


def test_large_pictures_are_made_smaller():
    animation = Animation("m")
    animation.add(np.zeros((500, 1000, 3), np.uint8))
    animation.add(np.full((500, 1000, 3), 9, np.uint8))
    assert frames(animation)[0][0].shape == (WIDTH // 2, WIDTH, 3)


def test_words_stand_under_the_pictures_in_their_colours():
    animation = Animation("m", captioned=True)
    for step in range(3):
        animation.add(walk(step), ("chop tree", "eat plant") if step else (), "chop tree" if step == 1 else "")
    shown = frames(animation)
    assert [duration for _, duration in shown] == [MILLISECONDS, 4 * MILLISECONDS, REST]
    below = [picture[4 * 63 :] for picture, _ in shown]
    assert all(near(words, PAPER) > 0.8 * words[..., 0].size for words in below)
    assert all(near(words, INK) > 5 for words in below)
    assert near(below[1][-20:], MARK) > 5, "what was reached stands out"
    assert near(below[0][-20:], MARK) == near(below[2][-20:], MARK) == 0
    assert (below[0] != below[1]).any()


def test_long_captions_are_cut():
    animation = Animation("m", captioned=True)
    animation.add(walk(0), [f"some goal that is number {i}" for i in range(40)], "x" * 300)
    animation.add(walk(1))
    (picture, _), (bare, _) = frames(animation)
    assert picture.shape == bare.shape


def test_long_films_skip_frames_but_nothing_notable():
    animation = Animation("m", captioned=True)
    for step in range(1000):
        animation.add(walk(step), (), "a goal" if step in (501, 777) else "")
    shown = frames(animation)
    assert len(shown) <= LONGEST + 3
    assert sum(duration == 4 * MILLISECONDS for _, duration in shown) == 2
    assert shown[-1][1] == REST


def test_animation_of_a_long_game_is_small():
    """Worlds that move under the player, with the noise of their nights: the most that there is to store."""
    noise = np.random.default_rng(0)
    animation = Animation("m", captioned=True)
    for step in range(400):
        picture = np.roll(walk(0, 126), step // 4 * 14, (step // 40) % 2)
        if 200 < step < 300:
            night = (picture * 0.3 + noise.integers(0, 50, (126, 126, 1))).astype(np.uint8)
            night[35:70, 35:91] = picture[35:70, 35:91] // 2  # what is near can be seen
            picture = night
        picture[98:] = 0  # the inventory
        animation.add(picture, ("collect drink", "make wood pickaxe"), "place table" if step % 100 == 3 else "")
    assert len(animation.gif()) < 1_000_000


def test_animation_of_one_picture():
    animation = Animation("m")
    animation.add(walk(0))
    assert animation.gif().startswith(b"GIF8")


def traced(phi, paid=()):
    """A trace with this phi, and reward at the steps that are named, counted from 1."""
    reward = np.zeros(len(phi) - 1, np.float32)
    reward[[step - 1 for step in paid]] = 0.5
    phi = np.array(phi, np.float32)
    return Trace(phi, phi[1:] - phi[:-1], reward)


def middle(picture, colour, but_upright=False):
    """Mean row and column of the pixels of a colour, perhaps of those beside the column that has most of them."""
    rows, columns = np.nonzero(abs(picture - np.array(colour)).sum(-1) < 12)
    beside = abs(columns - np.median(columns)) > 1 if but_upright else np.ones(len(rows), bool)
    return np.array([rows[beside].mean(), columns[beside].mean()])


@pytest.mark.parametrize("captioned", [False, True])
def test_the_mark_is_on_the_curve_where_the_picture_is(captioned):
    animation = Animation("m", captioned=captioned)
    for step in range(9):
        animation.add(walk(step), ("a goal",) if captioned else (), "a goal" if captioned and step == 8 else "")
    shown = frames(animation, traced([0, 1, 2, 3, 4, 3, 2, 1, 0, -1]))
    assert len(shown) == 10
    assert [duration for _, duration in shown[-2:]] == [4 * MILLISECONDS if captioned else MILLISECONDS, REST]
    below = [picture[-80:] for picture, _ in shown]
    assert (shown[-1][0][:-80] == shown[-2][0][:-80]).mean() > (0.9 if captioned else 0.999)  # no picture of the end
    marks = np.array([middle(words[15:60], HERE, but_upright=True) for words in below])
    columns, rows = np.diff(marks[:, 1]), np.diff(marks[:, 0])
    assert columns.min() > 0.9 * columns.max() > 0  # equal steps
    assert (np.sign(rows) == [-1] * 4 + [1] * 5).all()  # higher is better
    assert all(near(words, LINE) > 100 for words in below)
    assert near(below[0][15:], MARK) == 0


def test_steps_with_reward_are_marked_all_the_time_and_named_at_theirs():
    animation = Animation("m")
    for step in range(4):
        animation.add(walk(step))
    shown = frames(animation, traced([0, 0, 1, 1, 2], paid=(2,)))
    marked = [near(picture[-65:], MARK) for picture, _ in shown]
    named = [near(picture[-81:-67], MARK) for picture, _ in shown]
    assert min(marked[:2] + marked[3:]) > 30
    assert named[2] > 10
    assert named[:2] + named[3:] == [0] * 4


def test_what_says_the_same_of_all_states_is_a_line_in_the_middle():
    animation = Animation("m")
    animation.add(walk(0))
    (first, _), (last, _) = frames(animation, traced([-0.0, -0.0], paid=(1,)))
    assert abs(middle(first[-65:-20], HERE, but_upright=True)[0] - 22) < 2
    assert abs(middle(last[-65:-20], HERE, but_upright=True)[0] - 22) < 2
    assert abs(middle(first[-65:-20], LINE)[0] - 22) < 4


def test_long_films_with_a_curve_end_where_the_episode_does():
    animation = Animation("m")
    for step in range(400):
        animation.add(walk(step, 126))
    trace = traced(np.sin(np.arange(401) / 9), paid=(400,))
    shown = frames(animation, trace)
    assert len(shown) <= LONGEST + 3
    assert near(shown[-1][0][-81:-67], MARK) > 10
    assert len(animation.gif(trace)) < 1_000_000
