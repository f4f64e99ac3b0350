"""Replay: what actors lived, kept as rows on disk and drawn again as n-step returns.

    chunk [T, N] ──> insert ──> one ring of rows (a lane) for every env ──> sample ──> Sample [B]

A row is one observation and what was done in it. The last observation of an episode has a row of its own, in which
nothing was done (`acted` is False): the row after a row is always what followed. The observation behind the last step
of a chunk is the first one of the actor's next chunk and is not stored twice, so the newest rows of a lane cannot be
drawn before the next chunk has come.

Columns are raw arrays mapped from files of a folder, or plain memory without one. A checkpoint holds the heads of the
lanes only; the rows stay where they are. What was inserted after a checkpoint overwrites the oldest rows, so the
oldest tenth of a lane, `slack`, is never drawn from: as long as no more than that was overwritten, a learner that
goes back to its checkpoint draws what it would have drawn. Beyond that, rows are given up and counted as `lost`. So
are all, and the replay fills anew, if the folder is gone or is not of this checkpoint.

A chunk is written column by column, with no loop over its steps. What limits a draw is reading observations at random
places, two for each row; where the files exceed the memory, these are reads of the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.api import Chunk, Field, Observation
from envs.text import TextTable
from learner.store.columns import Columns, Layout, ReplayError
from learner.store.priorities import SumTree

Rows = NDArray[np.int64]
Floats = NDArray[np.float32]

SURE = 1e-6  # added to every error, so that no row's priority is 0


@dataclass
class Walk:
    """What happened from B rows on, at most n steps each, no step beyond the end of an episode."""

    row: Rows  # [B, n + 1] the rows come through; from the end of an episode on, its last one
    live: NDArray[np.bool_]  # [B, n] whether a step was taken there
    rewards: dict[str, Floats]  # columns by name, [B, n], 0 where no step was taken
    terminated: NDArray[np.bool_]  # [B] the walk came to a terminal state: nothing is to be expected after it
    observe: Callable[[Rows], Observation]  # what was seen at rows of any shape, single frames; `Replay.observe`


Rewards = Callable[[Walk], Floats]
"""What steps are worth to the learner, float32 [B, n]; asked anew each time they are drawn. What it says of those that
are not `live` does not count."""


@dataclass
class Sample:
    """B rows with their n-step returns: the target of Q is reward + discount * Q(following)."""

    row: Rows  # [B]
    obs: Observation  # [B, ...]; a text field holds ids of `Replay.texts`
    action: NDArray[np.int64]  # [B]
    reward: Floats  # [B] discounted sum over the steps taken
    discount: Floats  # [B] gamma to the number of steps taken, 0 if the last one terminated
    following: Observation  # [B, ...] after those steps
    weight: Floats  # [B] importance weights, 1 when all rows are equally likely


class Replay:
    """The rows of the envs that one learner rank hears of.

    Args:
        fields: what an observation holds.
        actions: size of the discrete action space.
        env_index: int [L] global indices of the envs, ascending, one lane each.
        capacity: rows in all; each lane has capacity // L.
        steps: n of the n-step returns.
        stack: how many of the last observations a `pixels` field shows, [B, stack, ...], oldest first.
        alpha: rows are drawn in proportion to their priority to this power; 0 makes all equally likely.
        folder: where the rows are kept; None keeps them in memory, and then no row outlives the process.
    """

    def __init__(
        self,
        fields: Mapping[str, Field],
        actions: int,
        env_index: NDArray[np.integer],
        capacity: int,
        steps: int,
        stack: int = 1,
        alpha: float = 0.0,
        folder: Path | None = None,
    ) -> None:
        lanes = len(env_index)
        self.fields, self.actions, self.env_index = dict(fields), actions, np.asarray(env_index)
        self.length, self.steps, self.stack, self.alpha = capacity // lanes, steps, stack, alpha
        self.slack = self.length // 10
        self.columns = Columns(lanes, self.length, folder)
        self.texts = TextTable()
        self.count = np.zeros(lanes, np.int64)  # rows ever inserted
        self.sequence = np.full(lanes, -1, np.int64)  # of the last chunk
        self.saved = np.zeros(lanes, np.int64)  # `count` when the state was last told or taken
        self.ignored = self.lost = 0
        self.tree = SumTree(lanes * self.length) if alpha else None
        self.largest = 1.0

    # ---- in -----------------------------------------------------------------------------------------------------

    def insert(self, chunk: Chunk) -> int:
        """Add a chunk. Returns its env steps, or 0 if it, or a later one of its actor, was inserted before.

        Raises:
            ValueError: it is of envs that have no lane here, or longer than a quarter of a lane.
            FloatingPointError: a reward is not finite; nothing was inserted.
            ReplayError: there is no room for it, or it has other rewards than the chunks before.
        """
        lane = np.searchsorted(self.env_index, chunk.env_index)
        length = len(chunk.terminated)
        if (lane == len(self.env_index)).any() or (self.env_index[lane] != chunk.env_index).any():
            raise ValueError(f"the replay has no lanes for the envs of actor {chunk.actor}: {chunk.env_index[:4]}...")
        if 4 * length > self.length:
            raise ValueError(f"a lane of {self.length} rows is too short for chunks of {length} steps: raise capacity")
        if chunk.sequence <= self.sequence[lane[0]]:
            self.ignored += 1
            return 0
        if not all(np.isfinite(column).all() for column in chunk.rewards.values()):
            raise FloatingPointError(f"chunk {chunk.sequence} of actor {chunk.actor} holds rewards that are not finite")
        self.columns.open(self._layout(chunk.rewards))
        head, (low, high) = self.count[lane], self._window()
        if chunk.sequence != self.sequence[lane[0]] + 1:  # what followed the newest rows never came
            newest = lane[head > 0]
            self.columns["acted"][self._place(newest, self.count[newest] - 1)] = False
        done = chunk.terminated | chunk.truncated
        ended = np.cumsum(done, 0)
        rows = head + np.arange(length)[:, None] + ended - done  # [T, N], a row for each end before
        t, n = chunk.final_index.T
        # Told before it is done: whoever finds the rows after a crash must not take new ones for old ones. Up to the
        # slack that cannot happen, and beyond it must be told even to one who comes after a crash of the machine.
        until = head + length + ended[-1]
        self.columns.reach(lane, until, durable=bool((until > self.saved[lane] + self.slack).any()))
        self._write(chunk, self._place(lane, rows), self._place(lane[n], rows[t, n] + 1))
        self.count[lane] = until
        self.sequence[lane] = chunk.sequence
        if self.tree is not None:
            self._slide(lane, low[lane], high[lane])
        return chunk.steps

    def _layout(self, rewards: Iterable[str]) -> Layout:
        """Names, types and shapes of the columns: each as small as what it may hold."""
        layout: Layout = {"action": (_smallest(self.actions), ()), "acted": ("bool", ()), "terminated": ("bool", ())}
        layout |= {f"reward.{name}": ("float32", ()) for name in sorted(rewards)}
        for name, field in self.fields.items():
            kind = _smallest(field.size) if field.kind == "category" else str(field.dtype)
            layout[f"obs.{name}"] = kind, field.shape
        return layout

    def _write(self, chunk: Chunk, taken: Rows, final: Rows) -> None:
        """Steps [T, N] to the rows `taken` [T, N], last observations [D, ...] to the rows `final` [D]."""
        columns = self.columns
        columns["action"][taken], columns["action"][final] = chunk.action, 0
        columns["acted"][taken], columns["acted"][final] = True, False
        columns["terminated"][taken], columns["terminated"][final] = chunk.terminated, False
        for name, reward in chunk.rewards.items():
            columns[f"reward.{name}"][taken], columns[f"reward.{name}"][final] = reward, 0.0
        for name, field in self.fields.items():
            for rows, value in ((taken, chunk.obs[name][:-1]), (final, chunk.final_obs[name])):
                stored = self._ids(value, chunk.texts) if field.kind == "text" else value
                columns[f"obs.{name}"][rows] = stored

    def _ids(self, hashes: NDArray[np.int64], texts: Mapping[int, str]) -> NDArray[np.int32]:
        found, place = np.unique(hashes, return_inverse=True)
        ids = np.array([self.texts.intern(texts[key]) for key in found.tolist()], np.int32)
        return ids[place].reshape(hashes.shape)

    def _slide(self, lane: NDArray[np.intp], low: Rows, high: Rows) -> None:
        """Give the rows that can be drawn from now on the largest priority so far, and take it from those that left."""
        assert self.tree is not None
        low_now, high_now = (bound[lane] for bound in self._window())
        left = self._between(lane, low, np.minimum(low_now, high))
        self.tree.set(left, np.zeros(len(left)))
        came = self._between(lane, np.maximum(high, low_now), high_now)
        self.tree.set(came, np.where(self.columns["acted"][came], self.largest, 0.0))

    # ---- where --------------------------------------------------------------------------------------------------

    def _place(self, lane: NDArray[np.integer], count: Rows) -> Rows:
        """Rows of the columns at which the lanes' rows number `count` are."""
        result: Rows = lane * self.length + count % self.length
        return result

    def _between(self, lane: NDArray[np.integer], low: Rows, high: Rows) -> Rows:
        """All rows number `low` to `high` - 1 of each lane, one lane after the other."""
        sizes = np.maximum(high - low, 0)
        within = np.arange(sizes.sum(), dtype=np.int64) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return self._place(np.repeat(lane, sizes), np.repeat(low, sizes) + within)

    def _window(self) -> tuple[Rows, Rows]:
        """Of each lane, [L]: the number of the first row that may be drawn, and that after the last."""
        oldest = np.maximum(self.count - self.length + self.slack, self.columns.reached - self.length)
        low = np.where(oldest > 0, oldest + self.stack - 1, 0)
        return low, np.maximum(self.count - self.steps, low)

    @property
    def rows(self) -> int:
        """How many may be drawn; those of episodes' ends are among them but are passed over."""
        low, high = self._window()
        return int((high - low).sum())

    # ---- out ----------------------------------------------------------------------------------------------------

    def sample(
        self, n: int, random: np.random.Generator, discount: float, rewards: Rewards, beta: float = 1.0
    ) -> Sample:
        """Draw n rows, with replacement. `beta` corrects for priorities: 1 fully, 0 not at all.

        Raises:
            ValueError: there is nothing to draw yet.
        """
        row, weight = self._draw(n, random, beta)
        walk = self.walk(row)
        worth = np.where(walk.live, rewards(walk), np.float32(0))
        taken = walk.live.sum(1)
        return Sample(
            row=row,
            obs=self.observe(row, self.stack),
            action=self.columns["action"][row].astype(np.int64),
            reward=(worth * np.float32(discount) ** np.arange(self.steps, dtype=np.float32)).sum(1),
            discount=np.where(walk.terminated, 0.0, discount**taken).astype(np.float32),
            following=self.observe(walk.row[:, -1], self.stack),
            weight=weight,
        )

    def _draw(self, n: int, random: np.random.Generator, beta: float) -> tuple[Rows, Floats]:
        if self.tree is not None and self.tree.total > 0:
            part = (np.arange(n) + random.random(n)) / n  # one from each of n equal parts
            row = self.tree.find(part * self.tree.total)
            priority = self.tree.leaves[row]
            return row, ((priority / priority.min()) ** -beta).astype(np.float32)
        low, high = self._window()
        ends: Rows = np.cumsum(high - low)
        found = np.zeros(0, np.int64)
        for _ in range(100 if ends[-1] and self.tree is None else 0):  # of rows in a row, about one in two was acted in
            number = random.integers(ends[-1], size=n)
            lane = np.searchsorted(ends, number, side="right")
            row = self._place(lane, high[lane] - (ends[lane] - number))
            found = np.concatenate([found, row[self.columns["acted"][row]]])[:n]
            if len(found) == n:
                return found, np.ones(n, np.float32)
        raise ValueError("the replay holds nothing to draw yet")

    def walk(self, row: Rows) -> Walk:
        """Follow rows [B] for `steps` steps, or to the end of their episodes."""
        acted = self.columns["acted"]
        path = np.empty((len(row), self.steps + 1), np.int64)
        path[:, 0] = row
        for k in range(self.steps):
            path[:, k + 1] = np.where(acted[path[:, k]], self._beside(path[:, k], 1), path[:, k])
        at = path[:, :-1]
        live = acted[at]
        rewards = {name: self.columns[f"reward.{name}"][at] for name in _rewards(self.columns.layout)}
        return Walk(path, live, rewards, (self.columns["terminated"][at] & live).any(1), self.observe)

    def _beside(self, row: Rows, by: int) -> Rows:
        """The rows after (`by` 1) or before (-1) these in their rings."""
        within = row % self.length
        return row - within + (within + by) % self.length

    def observe(self, row: Rows, stack: int = 1) -> Observation:
        """Observations [..., *shape] of rows [...], in the types of the fields; texts are ids.

        stack: if it is more than 1, a `pixels` field has its last so many frames, [..., stack, *shape].
        """
        found: Observation = {}
        for name, field in self.fields.items():
            frames = stack > 1 and field.kind == "pixels"
            value = self.columns[f"obs.{name}"][self.history(row) if frames else row]
            found[name] = value.astype(np.int64) if field.kind == "category" else value
        return found

    def history(self, row: Rows) -> Rows:
        """Rows [...] -> the last `stack` rows of their episodes, [..., stack], oldest first; the first may repeat."""
        acted, lane = self.columns["acted"], row // self.length
        oldest = self._window()[0] - (self.stack - 1)
        first = self._place(np.arange(len(self.count)), np.maximum(oldest, 0))
        rows = [row]
        for _ in range(self.stack - 1):
            before = self._beside(rows[-1], -1)
            rows.append(np.where(acted[before] & (rows[-1] != first[lane]), before, rows[-1]))
        return np.stack(rows[::-1], -1)

    def prioritise(self, row: Rows, error: Floats) -> None:
        """Let drawn rows [B] be drawn again in proportion to their error [B] (Schaul et al. 2016, eq. 1)."""
        if self.tree is not None:
            priority = (np.abs(error).astype(np.float64) + SURE) ** self.alpha
            self.largest = max(self.largest, float(priority.max()))
            self.tree.set(row, priority)

    # ---- at rest ------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint holds. Everything it refers to is on disk when this returns."""
        self.columns.flush(self.texts)
        self.saved[:] = self.count
        state = {"count": self.count.copy(), "sequence": self.sequence.copy(), "texts": np.array(len(self.texts))}
        state["generation"] = np.array(self.columns.generation)
        if self.tree is not None:
            state |= {"priority": self.tree.leaves.copy(), "largest": np.array(self.largest)}
        return state

    def find(self, state: Mapping[str, NDArray[Any]]) -> Layout | None:
        """The columns in the folder that `state` is of, None if they are gone. Nothing is changed by looking.

        Raises:
            ReplayError: `restore(state)` cannot be: state or folder are of other envs, observations or capacity, or
                the folder is damaged.
        """
        if state["count"].shape != self.count.shape:
            raise ReplayError(
                f"the checkpoint is of a replay of {len(state['count'])} envs, not {len(self.count)}: resume with the "
                "actors.n, actors.envs and learner.n that the run had"
            )
        found = self.columns.find(int(state.get("generation", 0)), int(state["texts"]))
        if found:
            self.columns.assert_alike(found, self._layout(_rewards(found)))
        return found

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state`, with the rows of the folder. `lost` counts those that are no longer there.

        Raises:
            ReplayError: as `find`.
        """
        found = self.find(state)
        self.count[:], self.sequence[:] = state["count"], state["sequence"]
        before, generation = self.rows, int(state.get("generation", 0))
        self.texts = TextTable()
        if found:
            for text in self.columns.reopen(found, generation, int(state["texts"])):
                self.texts.intern(text)
            np.minimum(self.columns.reached, self.count + self.length, out=self.columns.reached)
        else:
            self.count[:] = 0
            self.columns.generation = generation
        self.lost, self.saved[:] = before - self.rows, self.count
        if self.tree is not None:
            self.largest = float(state.get("largest", self.largest))
            rows = self._between(np.arange(len(self.count)), *self._window())
            priority = np.zeros_like(self.tree.leaves)
            if len(rows):
                new = np.where(self.columns["acted"], self.largest, 0.0)  # of a run that had no priorities until now
                priority[rows] = state.get("priority", new)[rows]
            self.tree.replace(priority)


def _rewards(columns: Iterable[str]) -> list[str]:
    return [name.removeprefix("reward.") for name in columns if name.startswith("reward.")]


def _smallest(size: int) -> str:
    """The smallest unsigned type for [0, size)."""
    return str(np.min_scalar_type(max(size - 1, 0)))
