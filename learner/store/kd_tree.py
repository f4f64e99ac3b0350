"""A growing k-d tree: the compiled half of `learner/store/neighbours.py`.

    node 0, x < 3.0 ──┬── node 2, a leaf: bucket 0
                      └── node 3, y < 1.5 ──┬── node 4, a leaf: bucket 1
                                            └── node 5, a leaf: bucket 2

A split takes a number i from `spare`, here 1 and then 2: nodes 2i and 2i + 1 are new, and bucket i belongs to the right
one. Leaves store points in buckets, coordinate by coordinate, so that a few vector instructions compute all distances.
A full leaf is split at the median of its widest side; equal coordinates stay together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SPARE, DEEPEST = range(2)  # indices of a tree's counters

NODE = np.dtype([("plane", np.float64), ("axis", np.int16), ("count", np.int16), ("link", np.int32)])
"""A branch sends points below `plane` on this axis to node `link`, others to `link` + 1. A leaf has axis -1, and
`count` points in bucket `link`."""


class Tree(NamedTuple):
    """The arrays of a tree with room for R buckets. Without points it is one leaf, node 0 with bucket 0."""

    nodes: NDArray[Any]  # NODE [2R]
    points: Floats  # [R, D, leaf], by bucket
    numbers: Integers  # [R, leaf], numbers of the points
    spare: Integers  # [R], the first counters[SPARE] are free numbers for splits
    counters: Integers  # [2]


def sapling(dimensions: int, leaf: int, room: int) -> Tree:
    """An empty tree whose leaves hold up to `leaf` points."""
    nodes, points, numbers = np.zeros(2, NODE), np.empty((1, dimensions, leaf)), np.empty((1, leaf), np.int64)
    nodes["axis"] = -1
    return with_room(Tree(nodes, points, numbers, np.empty(1, np.int64), np.zeros(2, np.int64)), room)


def with_room(tree: Tree, room: int) -> Tree:
    """The same tree with room for `room` buckets."""
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
    """Room for twice this many points, and for the extra buckets that equal coordinates may need."""
    bits = 0
    while count > 0:
        count >>= 1
        bits += 1
    return 2 * bits + 2 * dimensions


@compiled
def insert(
    tree: Tree, root: int, depth: int, limited: bool, k: int, points: Floats, numbers: Integers, first: int
) -> tuple[int, bool]:
    """Insert points below a node, from row `first` on, until free numbers run out or a branch gets too deep.

    root, depth: the node and its depth.
    limited: stop at branches that are too deep for the number of points so far.
    k: least number of copies of one point that are kept.
    numbers: [M], numbers of the points [M, D]; if `limited`, the number of points before each.

    Returns the row after the last inserted one, and whether that point made a branch too deep.
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
    """Split a full leaf; if all of its points are equal, remove all but k. Returns whether it was split."""
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
    """For each query, insert the squared distances of nearer points into its row of `squares`, ascending; column 0 is
    -1.

    numbers: the points' numbers in the same order; or empty, which is faster.
    """
    nodes, points = tree.nodes, tree.points
    dimensions, leaf = points.shape[1:]
    k = squares.shape[1] - 1
    waiting = np.empty(tree.counters[DEEPEST] + 1, np.int64)  # stack of nodes to visit,
    gaps = np.empty((tree.counters[DEEPEST] + 1, dimensions))  # squared distance to each on each axis,
    reach = np.empty(tree.counters[DEEPEST] + 1)  # and the sum of these over axes
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
    """Put the smallest of best[1:] and found[:count], ascending, into best[1:], without branches."""
    k = len(best) - 1
    if best[1] == np.inf:  # rank all at once: count the smaller ones of each
        ranks[:count] = 0
        for r in range(count):
            square = found[r]
            for s in range(count):
                ranks[s] += square < found[s]
        ordered[:count] = -1.0
        for s in range(count):
            ordered[ranks[s]] = found[s]
        for j in range(min(k, count)):  # among equals, the first has the rank, and the others' ranks stay empty
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
    """The same, with the points' numbers."""
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
    """The mean square root of columns first..last - 1 of each row."""
    for i in range(len(squares)):
        total = 0.0
        for j in range(first, last):
            total += np.sqrt(squares[i, j])
        means[i] = total / (last - first)


@compiled
def overgrown(tree: Tree, point: Floats) -> tuple[int, int, int]:
    """The smallest branch around a point that is too deep there: its node, depth and number of points."""
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
    """Number of points below a node."""
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
    """Turn a node into an empty leaf, free the numbers that splits below it took, and copy its points into points,
    numbers."""
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
    _make_leaf(nodes, root, nodes[node].link, 0)  # only the leftmost leaf's bucket is not freed
