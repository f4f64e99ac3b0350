"""Random numbers as `numpy.random.RandomState` draws them: a Mersenne Twister (Matsumoto and Nishimura 1998).

A generator is a row uint32[RANDOM]: 624 words, and how many of them are used up. It equals `RandomState.get_state()`
word by word.
"""

from __future__ import annotations

import numpy as np

from envs.compiler import compiled
from envs.native.crafter.layout import RANDOM, Random

_WORDS = RANDOM - 1
_USED = _WORDS
_APART = 397
_HIGH, _LOW, _ALL, _MATRIX = 0x80000000, 0x7FFFFFFF, 0xFFFFFFFF, 0x9908B0DF


@compiled
def sow(random: Random, seed: int) -> None:
    """Make `random` the state of `RandomState(seed)`; seed of [0, 2**32)."""
    for i in range(_WORDS):
        random[i] = seed
        seed = (1812433253 * (seed ^ seed >> 30) + i + 1) & _ALL
    random[_USED] = _WORDS


@compiled
def uniform(random: Random) -> float:
    """`RandomState.uniform()`: a number of [0, 1), 53 bits of it."""
    high = _word(random) >> 5
    low = _word(random) >> 6
    return (high * 67108864.0 + low) / 9007199254740992.0


@compiled
def below(random: Random, n: int) -> int:
    """`RandomState.randint(0, n)`: a number of [0, n), n of [1, 2**32). For n = 1 nothing is drawn."""
    most = n - 1
    if most == 0:
        return 0
    mask = most
    for shift in (1, 2, 4, 8, 16):
        mask |= mask >> shift
    number = _word(random) & mask
    while number > most:
        number = _word(random) & mask
    return number


@compiled
def _word(random: Random) -> int:
    if random[_USED] >= _WORDS:
        _twist(random)
    word: int = np.int64(random[random[_USED]])  # type: ignore[assignment]
    random[_USED] += 1
    word ^= word >> 11
    word ^= word << 7 & 0x9D2C5680
    word ^= word << 15 & 0xEFC60000
    return word ^ word >> 18


@compiled
def _twist(random: Random) -> None:
    for i in range(_WORDS):
        both = (random[i] & _HIGH) | (random[(i + 1) % _WORDS] & _LOW)
        random[i] = random[(i + _APART) % _WORDS] ^ both >> 1 ^ (both & 1) * _MATRIX
    random[_USED] = 0
