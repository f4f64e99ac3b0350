"""Layers of noise are opensimplex's to within a bound, and what is decided by them is decided as if they were equal."""

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opensimplex.internals import _init, _noise3

from envs.crafter.rules import AREA
from envs.native.crafter.layout import RANDOM, ROW
from envs.native.crafter.noise import ERROR, layer, shuffled
from envs.native.crafter.terrain import DOUBT, WAVES, generate


@numba.njit
def cell_by_cell(z, across, down, grid, gradients):
    noise = np.empty((AREA, AREA))
    for x in range(AREA):
        for y in range(AREA):
            noise[x, y] = _noise3(x / across, y / down, z, grid, gradients)
    return noise


def differences(seeds, z, across, down):
    """By cell [64, 64], the most that a layer differs from opensimplex, over some seeds."""
    most, noise = np.zeros((AREA, AREA)), np.empty((AREA, AREA), np.float32)
    for seed in seeds:
        tables = shuffled(seed)
        layer(z, float(across), float(down), *tables, noise)
        most = np.maximum(most, abs(noise - cell_by_cell(z, across, down, *tables)))
    return most


def worlds(seeds, doubt):
    rows, randoms = np.zeros((len(seeds), ROW), np.int16), np.zeros((len(seeds), RANDOM), np.uint32)
    generate(rows, randoms, np.arange(len(seeds)), np.array(seeds), doubt)
    return rows, randoms


@given(st.integers(0, 2**31 - 1))
def test_the_shuffle_is_opensimplexs(seed):
    for ours, theirs in zip(shuffled(seed), _init(seed), strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("wave", range(len(WAVES)))
def test_layers_are_opensimplexs_but_for_the_points_that_it_leaves_out(wave):
    """150 seeds give each point nearly all of the 24 gradients, so all that opensimplex may leave out is seen."""
    z, size, across, down, _ = WAVES[wave].tolist()
    most = differences(range(0, 2**31, 2**31 // 150), int(z), across * size, down * size)
    assert most.max() < ERROR
    assert (most < 1.5e-6).mean() > 0.94
    assert most.max() > 1e-5 or wave in (0, 11)  # these two leave nothing out that weighs as much


@given(st.integers(0, 2**31 - 1), st.integers(-20, 20), st.floats(1, 40), st.floats(1, 40))
def test_layers_of_any_plane_and_size(seed, z, across, down):
    """Anywhere between the points opensimplex may leave out a little more."""
    most = differences([seed], z, across, down)
    assert most.max() < 2e-4
    assert (most < 5e-6).mean() > 0.8


def equal(some, others):
    """By world, whether it and the state of its random numbers are equal."""
    return np.logical_and(*((a == b).all(1) for a, b in zip(some, others, strict=True))).tolist()


def test_worlds_do_not_depend_on_the_doubt():
    """With a doubt of 10 every cell is computed as the simulator does it. Without doubt some worlds differ."""
    seeds = range(5000, 5300)
    exact = worlds(seeds, 10.0)
    assert all(equal(worlds(seeds, DOUBT), exact))
    assert not all(equal(worlds(seeds, 0.0), exact))


@pytest.mark.slow
def test_worlds_do_not_depend_on_the_doubt_for_long():
    for first in range(10_000, 13_000, 500):
        seeds = range(first, first + 500)
        same = equal(worlds(seeds, DOUBT), worlds(seeds, 10.0))
        assert all(same), first + same.index(False)
