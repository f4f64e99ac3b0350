"""A k-d tree that grows: the compiled half of `learner/store/neighbours.py`.

    node 0, x < 3.0 ──┬── node 2, a leaf: bucket 0
                      └── node 3, y < 1.5 ──┬── node 4, a leaf: bucket 1
                                            └── node 5, a leaf: bucket 2

A split takes a number i from `spare`, here 1 and then 2: nodes 2i and 2i + 1 are new, and bucket i is the right one's.
Points lie in the buckets of leaves, coordinate by coordinate, so that the distances to all of them are a few vector
instructions. A leaf that is full is split at the median of its widest side; equal coordinates stay together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SPARE, DEEPEST = range(2)  # in a tree's counters

NODE = np.dtype([("plane", np.float64), ("axis", np.int16), ("count", np.int16), ("link", np.int32)])
"""Of a branch: points below `plane` on this axis go to node `link`, others to `link` + 1. A leaf has axis -1, and
`count` points in bucket `link`."""


class Tree(NamedTuple):
    """The arrays of a tree that has room for R buckets. Without points it is one leaf, node 0 with bucket 0."""

    nodes: NDArray[Any]  # NODE [2R]
    points: Floats  # [R, D, leaf], by bucket
    numbers: Integers  # [R, leaf], who the points are
    spare: Integers  # [R], the first counters[SPARE] of them are the numbers that splits may take
    counters: Integers  # [2]


def sapling(dimensions: int, leaf: int, room: int) -> Tree:
    """A tree without points, whose leaves hold up to `leaf`."""
    nodes, points, numbers = np.zeros(2, NODE), np.empty((1, dimensions, leaf)), np.empty((1, leaf), np.int64)
    nodes["axis"] = -1
    return with_room(Tree(nodes, points, numbers, np.empty(1, np.int64), np.zeros(2, np.int64)), room)


def with_room(tree: Tree, room: int) -> Tree:
    """The same tree with room for more buckets, `room` in all."""
    nodes, points, numbers, spare, counters = tree
    new = np.arange(room - 1, len(spare) - 1, -1)
    spare = _lengthened(spare, room)
    spare[counters[SPARE] : counters[SPARE] + len(new)] = new
    counters[SPARE] += len(new)
    return Tree(_lengthened(nodes, 2 * room), _lengthened(points, room), _lengthened(numbers, room), spare, counters)


def _lengthened(array: NDArray[Any], length: int) -> NDArray[Any]:
    longer = np.empty((length, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


@compiled
def _depth_limit(count: int, dimensions: int) -> int:
    """Twice what so many points need, and what equal coordinates may add."""
    bits = 0
    while count > 0:
        count >>= 1
        bits += 1
    return 2 * bits + 2 * dimensions


@compiled
def insert(
    tree: Tree, root: int, depth: int, limited: bool, k: int, points: Floats, numbers: Integers, first: int
) -> tuple[int, bool]:
    """Insert points below a node, from row `first` on, until one finds no spare numbers or makes a branch too deep.

    root, depth: the node, and how deep it lies.
    limited: look out for branches that are too deep for all points so far.
    k: copies of one point that are kept at least.
    numbers: [M] of the points [M, D]; where `limited`, how many points came before each.

    Returns the row after the last, and whether that one made a branch too deep.
    """
    nodes, counters = tree.nodes, tree.counters
    dimensions, leaf = tree.points.shape[1:]
    for i in range(first, len(points)):
        if counters[SPARE] == 0:
            return i, False
        node, level = root, depth
        while nodes[node].axis >= 0:
            here = nodes[node]
            node = here.link + (points[i, here.axis] >= here.plane)
            level += 1
        bucket, slot = nodes[node].link, nodes[node].count
        for d in range(dimensions):
            tree.points[bucket, d, slot] = points[i, d]
        tree.numbers[bucket, slot] = numbers[i]
        nodes[node].count += 1
        if slot + 1 == leaf and _split(tree, node, k):
            counters[DEEPEST] = max(counters[DEEPEST], level + 1)
            if limited and level + 1 > _depth_limit(numbers[i], dimensions):
                return i + 1, True
    return len(points), False


@compiled
def _split(tree: Tree, node: int, k: int) -> bool:
    """Make two of a full leaf; or, where all of its points are one, forget all but k. Was it split?"""
    nodes, points, numbers = tree.nodes, tree.points, tree.numbers
    dimensions, leaf = points.shape[1:]
    bucket, axis, widest = nodes[node].link, 0, 0.0
    for d in range(dimensions):
        side = points[bucket, d].max() - points[bucket, d].min()
        if side > widest:
            axis, widest = d, side
    if widest == 0.0:
        nodes[node].count = k
        return False
    values = np.sort(points[bucket, axis])
    low = high = leaf // 2  # equal values stay together: from the median down or up, whichever is nearer
    while low > 0 and values[low - 1] == values[low]:
        low -= 1
    while high < leaf and values[high] == values[leaf // 2]:
        high += 1
    plane = values[high] if low == 0 or (high < leaf and high - leaf // 2 < leaf // 2 - low) else values[low]

    tree.counters[SPARE] -= 1
    taken = tree.spare[tree.counters[SPARE]]
    left = right = 0
    for s in range(leaf):
        into, slot = (taken, right) if points[bucket, axis, s] >= plane else (bucket, left)
        for d in range(dimensions):
            points[into, d, slot] = points[bucket, d, s]
        numbers[into, slot] = numbers[bucket, s]
        if into == taken:
            right += 1
        else:
            left += 1
    nodes[node].plane, nodes[node].axis, nodes[node].link = plane, axis, 2 * taken
    _make_leaf(nodes, 2 * taken, bucket, left)
    _make_leaf(nodes, 2 * taken + 1, taken, right)
    return True


@compiled
def _make_leaf(nodes: NDArray[Any], node: int, bucket: int, count: int) -> None:
    nodes[node].axis, nodes[node].link, nodes[node].count = -1, bucket, count


@compiled
def search(tree: Tree, queries: Floats, squares: Floats, numbers: Integers) -> None:
    """Of each query, put the squared distances of nearer points into its row of `squares`, ascending; column 0 is -1.

    numbers: likewise the points' numbers; or empty, which is faster.
    """
    nodes, points = tree.nodes, tree.points
    dimensions, leaf = points.shape[1:]
    k = squares.shape[1] - 1
    waiting = np.empty(tree.counters[DEEPEST] + 1, np.int64)  # nodes to look into,
    gaps = np.empty((tree.counters[DEEPEST] + 1, dimensions))  # the distance to each on each axis, squared,
    reach = np.empty(tree.counters[DEEPEST] + 1)  # and the sum of these
    gap, found, ordered, ranks = np.empty(dimensions), np.empty(leaf), np.empty(leaf), np.empty(leaf, np.int64)
    for i in range(len(queries)):
        query, best = queries[i], squares[i]
        waiting[0], reach[0], gaps[0] = 0, 0.0, 0.0
        top = 1
        while top > 0:
            top -= 1
            distance = reach[top]
            if distance >= best[k]:
                continue
            node = waiting[top]
            for d in range(dimensions):
                gap[d] = gaps[top, d]
            while nodes[node].axis >= 0:
                here = nodes[node]
                beyond = query[here.axis] - here.plane
                side = 1 if beyond >= 0 else 0
                waiting[top] = here.link + 1 - side
                for d in range(dimensions):
                    gaps[top, d] = gap[d]
                gaps[top, here.axis] = beyond * beyond
                reach[top] = distance - gap[here.axis] + beyond * beyond
                top += reach[top] < best[k]
                node = here.link + side
            bucket, count = nodes[node].link, nodes[node].count
            for s in range(count):
                found[s] = 0.0
            for d in range(dimensions):
                for s in range(count):
                    difference = points[bucket, d, s] - query[d]
                    found[s] += difference * difference
            if len(numbers):
                _keep_numbered(best, numbers[i], found, tree.numbers[bucket], count)
            else:
                _keep(best, found, ranks, ordered, count)


@compiled
def _keep(best: Floats, found: Floats, ranks: Integers, ordered: Floats, count: int) -> None:
    """Put the smallest of best[1:] and found[:count], ascending, into best[1:]. Without a branch for each."""
    k = len(best) - 1
    if best[1] == np.inf:  # all at once: how many are smaller than each?
        ranks[:count] = 0
        for r in range(count):
            square = found[r]
            for s in range(count):
                ranks[s] += square < found[s]
        ordered[:count] = -1.0
        for s in range(count):
            ordered[ranks[s]] = found[s]
        for j in range(min(k, count)):  # of equal ones, the first has its rank, and the others' are left out
            best[j + 1] = max(best[j], ordered[j])
        return
    bound, nearer = best[k], 0
    for s in range(count):
        found[nearer] = found[s]
        nearer += found[s] < bound
    for s in range(nearer):
        square = found[s]
        for j in range(k, 0, -1):
            best[j] = max(best[j - 1], min(best[j], square))


@compiled
def _keep_numbered(best: Floats, kept: Integers, found: Floats, numbers: Integers, count: int) -> None:
    """The same, and which they are."""
    k = len(best) - 1
    for s in range(count):
        if found[s] < best[k]:
            j = k
            while best[j - 1] > found[s]:
                best[j], kept[j] = best[j - 1], kept[j - 1]
                j -= 1
            best[j], kept[j] = found[s], numbers[s]


@compiled
def means_of_roots(squares: Floats, first: int, last: int, means: Floats) -> None:
    """The mean root of columns first..last - 1 of each row."""
    for i in range(len(squares)):
        total = 0.0
        for j in range(first, last):
            total += np.sqrt(squares[i, j])
        means[i] = total / (last - first)


@compiled
def overgrown(tree: Tree, point: Floats) -> tuple[int, int, int]:
    """The smallest branch around a point that is too deep there: its node, that one's depth, and how many it holds."""
    nodes = tree.nodes
    path = np.empty(tree.counters[DEEPEST] + 1, np.int64)
    node, depth = 0, 0
    while nodes[node].axis >= 0:
        path[depth] = node
        here = nodes[node]
        node = here.link + (point[here.axis] >= here.plane)
        depth += 1
    count, at = _held(tree, node), depth
    while at > 0 and depth - at <= _depth_limit(count, tree.points.shape[1]):
        at -= 1
        other = nodes[path[at]].link + (nodes[path[at]].link == node)
        count += _held(tree, other)
        node = path[at]
    return node, at, count


@compiled
def _held(tree: Tree, root: int) -> int:
    """How many points there are below a node."""
    waiting = np.empty(tree.counters[DEEPEST] + 1, np.int64)
    waiting[0], top, count = root, 1, 0
    while top > 0:
        top -= 1
        node = waiting[top]
        while tree.nodes[node].axis >= 0:
            node = tree.nodes[node].link
            waiting[top] = node + 1
            top += 1
        count += tree.nodes[node].count
    return count


@compiled
def uproot(tree: Tree, root: int, points: Floats, numbers: Integers) -> None:
    """Make an empty leaf of a node, give back what splits below it took, and put what it held into points, numbers."""
    nodes, counters = tree.nodes, tree.counters
    waiting = np.empty(counters[DEEPEST] + 1, np.int64)
    waiting[0], top, count = root, 1, 0
    while top > 0:
        top -= 1
        node = waiting[top]
        while nodes[node].axis >= 0:
            node = nodes[node].link
            tree.spare[counters[SPARE]] = node // 2
            counters[SPARE] += 1
            waiting[top] = node + 1
            top += 1
        bucket = nodes[node].link
        for s in range(nodes[node].count):
            points[count], numbers[count] = tree.points[bucket, :, s], tree.numbers[bucket, s]
            count += 1
    node = root
    while nodes[node].axis >= 0:
        node = nodes[node].link
    _make_leaf(nodes, root, nodes[node].link, 0)  # the leftmost leaf's bucket is the only one not given back
