"""Small networks that drive robots, evaluated sixteen at a time.

    policies [N, 302] ──> pack: lane by lane ──> weights [4, 11, 10, 16] ──┐
    observations [10, 16] ─────────────────────────────────────────────────┴──> act ──> wheels [10, 16]

One network is too small to fill a vector register, but sixteen robots are as many lanes: each lane has its own
weights, and a sum over inputs stays in a register. A network costs 45 ns a step, where one alone takes 130. The limit
is loading weights, of which each is used once a step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.native.navigation.robot import FASTEST, SENSORS

LANES = 16  # float32 in the largest vector register
HIDDEN, LAYERS, WHEELS = 10, 4, 2

# tanh(x) = x P(x^2) / Q(x^2) on [-8, 8]: a rational approximation of least relative error, 6e-9, fitted for this file;
# in float32 it is within 4e-7.
_FLAT = np.float32(8)
_P1, _P2, _P3, _P4 = map(np.float32, (0.134444966, 0.00357159637, 2.18946346e-05, 1.52303794e-08))
_Q1, _Q2, _Q3, _Q4 = map(np.float32, (0.467778239, 0.0261644366, 0.00034112893, 8.52243103e-07))
_ONE, _TEN = np.float32(1), np.float32(10)
_WHOLE = np.float32(1.5 * 2**23)  # added to a small number and taken away again, it rounds half to even


@compiled
def pack(policies: NDArray[np.float32], first: int, count: int, weights: NDArray[np.float32]) -> None:
    """Weights of policies `first` to `first + count - 1` by lane; lanes beyond repeat the last.

    Args:
        policies: [N, 302]; for each layer its weights [out, in] by rows, then its biases.
        weights: [LAYERS, HIDDEN + 1, HIDDEN, LANES], written: [layer, input, output, lane], biases after the inputs.
            What a layer does not have keeps what is there: zeros.
    """
    for lane in range(LANES):
        policy = policies[first + min(lane, count - 1)]
        at, inputs = 0, SENSORS
        for layer in range(LAYERS):
            outputs = HIDDEN if layer < LAYERS - 1 else WHEELS
            for j in range(outputs):
                for i in range(inputs):
                    weights[layer, i, j, lane] = policy[at + j * inputs + i]
                weights[layer, HIDDEN, j, lane] = policy[at + outputs * inputs + j]
            at += outputs * (inputs + 1)
            inputs = HIDDEN


@compiled
def act(weights: NDArray[np.float32], values: NDArray[np.float32], spare: NDArray[np.float32]) -> None:
    """What sixteen networks do: rows 0 and 1 of `values` become the wheels' speeds, in tenths and within +-FASTEST.

    Args:
        weights: as `pack` writes them.
        values: [HIDDEN, LANES], the observations in its first rows.
        spare: [HIDDEN, LANES], overwritten.
    """
    _layer(weights, 0, values, spare)
    _tanh(spare)
    _layer(weights, 1, spare, values)
    _tanh(values)
    _layer(weights, 2, values, spare)
    _tanh(spare)
    _layer(weights, 3, spare, values)
    for wheel in range(WHEELS):
        for lane in range(LANES):
            speed = values[wheel, lane]
            speed = speed if speed > -FASTEST else -FASTEST
            speed = speed if speed < FASTEST else FASTEST
            values[wheel, lane] = ((speed * _TEN + _WHOLE) - _WHOLE) / _TEN


@compiled
def _layer(weights: NDArray[np.float32], layer: int, inputs: NDArray[np.float32], outputs: NDArray[np.float32]) -> None:
    """Inputs and outputs that a layer does not have count with weight 0: loops of a fixed length are vectorised."""
    for j in range(HIDDEN):
        for lane in range(LANES):
            total = weights[layer, HIDDEN, j, lane]
            for i in range(HIDDEN):
                total += weights[layer, i, j, lane] * inputs[i, lane]
            outputs[j, lane] = total


@compiled
def _tanh(values: NDArray[np.float32]) -> None:
    for j in range(HIDDEN):
        for lane in range(LANES):
            x = values[j, lane]
            x = x if x < _FLAT else _FLAT
            x = x if x > -_FLAT else -_FLAT
            u = x * x
            p = (((_P4 * u + _P3) * u + _P2) * u + _P1) * u + _ONE
            q = (((_Q4 * u + _Q3) * u + _Q2) * u + _Q1) * u + _ONE
            values[j, lane] = x * p / q
