"""Random numbers for compiled code, and the seeds of episodes in bulk.

A generator is an array of one 64-bit word, stepped by splitmix64 (Steele, Lea and Flood 2014): a word is a whole state,
so a generator costs nothing to make and any seed is a good one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.api.records import HELD_OUT_FIRST
from envs.compiler import compiled

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_LOW = np.uint64(0xFFFFFFFF)
_30, _27, _31, _32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)


@compiled
def draw(state: NDArray[np.uint64], n: int) -> int:
    """A number of [0, n), n below 2**31; all as likely, but for 1 in 2**32 / n."""
    state[0] += _GAMMA
    z = state[0]
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    z = z ^ (z >> _31)
    number: int = np.int64(((z >> _32) * np.uint64(n)) >> _32)  # type: ignore[assignment]
    return number


@compiled
def uniform(state: NDArray[np.uint64]) -> float:
    """A number of [0, 1)."""
    return draw(state, 1 << 30) / (1 << 30)


# numpy.random.SeedSequence, for one 32-bit word of output. Its constants are numpy's promise of a stable stream.
_INIT_A, _MULT_A = np.uint32(0x43B0D7E5), np.uint32(0x931E8875)
_INIT_B, _MULT_B = np.uint32(0x8B51F9DD), np.uint32(0x58F38DED)
_MIX_L, _MIX_R = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_16 = np.uint32(16)


@compiled
def _mixed(words: NDArray[np.uint32], count: int, pool: NDArray[np.uint32]) -> int:
    """First output word of a SeedSequence whose entropy is `words[:count]`."""
    a = _INIT_A
    for i in range(4):
        value = words[i] if i < count else np.uint32(0)
        value = np.uint32(value ^ a)
        a = np.uint32(a * _MULT_A)
        value = np.uint32(value * a)
        pool[i] = np.uint32(value ^ (value >> _16))
    for source in range(4):
        for target in range(4):
            if source != target:
                value = np.uint32(pool[source] ^ a)
                a = np.uint32(a * _MULT_A)
                value = np.uint32(value * a)
                value = np.uint32(value ^ (value >> _16))
                mixed = np.uint32(np.uint32(_MIX_L * pool[target]) - np.uint32(_MIX_R * value))
                pool[target] = np.uint32(mixed ^ (mixed >> _16))
    for source in range(4, count):
        for target in range(4):
            value = np.uint32(words[source] ^ a)
            a = np.uint32(a * _MULT_A)
            value = np.uint32(value * a)
            value = np.uint32(value ^ (value >> _16))
            mixed = np.uint32(np.uint32(_MIX_L * pool[target]) - np.uint32(_MIX_R * value))
            pool[target] = np.uint32(mixed ^ (mixed >> _16))
    value = np.uint32(pool[0] ^ _INIT_B)
    value = np.uint32(value * np.uint32(_INIT_B * _MULT_B))
    word: int = np.int64(np.uint32(value ^ (value >> _16)))  # type: ignore[assignment]
    return word


@compiled
def _episode_seeds(
    root: NDArray[np.int64], env: NDArray[np.int32], episode: NDArray[np.int64], out: NDArray[np.int64]
) -> None:
    words = np.empty(6, np.uint32)
    pool = np.empty(4, np.uint32)
    for i in range(len(root)):
        count = 0
        for value in (np.uint64(root[i]), np.uint64(env[i]), np.uint64(episode[i])):
            words[count] = np.uint32(value & _LOW)
            count += 1
            if value >> _32:
                words[count] = np.uint32(value >> _32)
                count += 1
        out[i] = _mixed(words, count, pool) % HELD_OUT_FIRST


def episode_seeds(root: NDArray[np.int64], env: NDArray[np.int32], episode: NDArray[np.int64]) -> NDArray[np.int64]:
    """`envs.episode_seed` of each row, int64 [n], at about 0.05 us each; none may be negative."""
    out = np.empty(len(root), np.int64)
    _episode_seeds(root, env, episode, out)
    return out
