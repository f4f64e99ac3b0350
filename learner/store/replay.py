"""Replay: actors' experience, stored as rows on disk and sampled as n-step returns.

    chunk [T, N] ──> insert ──> one ring of rows (a lane) for every env ──> sample ──> Sample [B]

A row is one observation and the action taken in it. The last observation of an episode has its own row without an
action (`acted` is False), so the next row is always the successor. The observation after the last step of a chunk is
the first one of the actor's next chunk and is not stored twice, so the newest rows of a lane cannot be sampled before
the next chunk arrives.

Columns are raw arrays mapped from files in a folder, or plain memory without a folder. A checkpoint holds only the
positions of the lanes; the rows stay in place. Rows inserted after a checkpoint overwrite the oldest ones, so the
oldest tenth of a lane, `slack`, is never sampled. As long as no more than that was overwritten, a learner that returns
to its checkpoint samples the same rows as before. Rows beyond that are dropped and counted as `lost`. If the folder is
gone or does not belong to the checkpoint, all rows are lost and the replay fills again.

A chunk is written column by column, without a loop over its steps. Sampling is limited by reading observations at
random positions, two for each row; if the files exceed the memory, these are disk reads.
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
    """Trajectories from B rows on, at most n steps each, ending with the episode."""

    row: Rows  # [B, n + 1] the rows of the trajectory; after an episode's end, its last row
    live: NDArray[np.bool_]  # [B, n] whether a step was taken there
    rewards: dict[str, Floats]  # columns by name, [B, n], 0 where no step was taken
    terminated: NDArray[np.bool_]  # [B] the walk reached a terminal state, after which the value is 0
    observe: Callable[[Rows], Observation]  # observations at rows of any shape, single frames; `Replay.observe`


Rewards = Callable[[Walk], Floats]
"""The rewards of steps for the learner, float32 [B, n], computed anew for each sample. Values of steps that are not
`live` are ignored."""


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
    """The rows of the envs whose chunks go to one learner rank.

    Args:
        fields: fields of an observation.
        actions: size of the discrete action space.
        env_index: int [L] global indices of the envs, ascending, one lane each.
        capacity: total rows; each lane has capacity // L.
        steps: n of the n-step returns.
        stack: number of recent frames in a `pixels` field, [B, stack, ...], oldest first.
        alpha: rows are sampled in proportion to their priority to this power; 0 samples uniformly.
        folder: folder of the rows; None keeps them in memory, so that they do not outlive the process.
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
        self.saved = np.zeros(lanes, np.int64)  # `count` when the state was last saved or restored
        self.ignored = self.lost = 0
        self.tree = SumTree(lanes * self.length) if alpha else None
        self.largest = 1.0

    # ---- in -----------------------------------------------------------------------------------------------------

    def insert(self, chunk: Chunk) -> int:
        """Add a chunk. Returns its env steps, or 0 if this or a later chunk of its actor was already inserted.

        Raises:
            ValueError: its envs have no lane here, or it is longer than a quarter of a lane. FloatingPointError: a
            reward is not finite; nothing was inserted.
            ReplayError: there is no room, or its reward columns differ from earlier chunks'.
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
        if chunk.sequence != self.sequence[lane[0]] + 1:  # the successors of the newest rows are missing
            newest = lane[head > 0]
            self.columns["acted"][self._place(newest, self.count[newest] - 1)] = False
        done = chunk.terminated | chunk.truncated
        ended = np.cumsum(done, 0)
        rows = head + np.arange(length)[:, None] + ended - done  # [T, N], plus one row for each earlier end
        t, n = chunk.final_index.T
        # Recorded before the rows are written, so that after a crash new rows are not mistaken for old ones. Within the
        # slack that cannot happen; beyond it, the record must also survive a crash of the machine.
        until = head + length + ended[-1]
        self.columns.reach(lane, until, durable=bool((until > self.saved[lane] + self.slack).any()))
        self._write(chunk, self._place(lane, rows), self._place(lane[n], rows[t, n] + 1))
        self.count[lane] = until
        self.sequence[lane] = chunk.sequence
        if self.tree is not None:
            self._slide(lane, low[lane], high[lane])
        return chunk.steps

    def _layout(self, rewards: Iterable[str]) -> Layout:
        """Names, types and shapes of the columns; each type is as small as its values allow."""
        layout: Layout = {"action": (_smallest(self.actions), ()), "acted": ("bool", ()), "terminated": ("bool", ())}
        layout |= {f"reward.{name}": ("float32", ()) for name in sorted(rewards)}
        for name, field in self.fields.items():
            kind = _smallest(field.size) if field.kind == "category" else str(field.dtype)
            layout[f"obs.{name}"] = kind, field.shape
        return layout

    def _write(self, chunk: Chunk, taken: Rows, final: Rows) -> None:
        """Write steps [T, N] to the rows `taken` [T, N], and last observations [D, ...] to the rows `final` [D]."""
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
        """Give newly available rows the largest priority so far, and set that of dropped rows to 0."""
        assert self.tree is not None
        low_now, high_now = (bound[lane] for bound in self._window())
        left = self._between(lane, low, np.minimum(low_now, high))
        self.tree.set(left, np.zeros(len(left)))
        came = self._between(lane, np.maximum(high, low_now), high_now)
        self.tree.set(came, np.where(self.columns["acted"][came], self.largest, 0.0))

    # ---- where --------------------------------------------------------------------------------------------------

    def _place(self, lane: NDArray[np.integer], count: Rows) -> Rows:
        """Rows of the columns that hold row number `count` of each lane."""
        result: Rows = lane * self.length + count % self.length
        return result

    def _between(self, lane: NDArray[np.integer], low: Rows, high: Rows) -> Rows:
        """All rows from number `low` to `high` - 1 of each lane, one lane after the other."""
        sizes = np.maximum(high - low, 0)
        within = np.arange(sizes.sum(), dtype=np.int64) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return self._place(np.repeat(lane, sizes), np.repeat(low, sizes) + within)

    def _window(self) -> tuple[Rows, Rows]:
        """For each lane [L]: the first row number that may be sampled, and the one after the last."""
        oldest = np.maximum(self.count - self.length + self.slack, self.columns.reached - self.length)
        low = np.where(oldest > 0, oldest + self.stack - 1, 0)
        return low, np.maximum(self.count - self.steps, low)

    @property
    def rows(self) -> int:
        """Number of rows that may be sampled, including final observations, which sampling skips."""
        low, high = self._window()
        return int((high - low).sum())

    # ---- out ----------------------------------------------------------------------------------------------------

    def sample(
        self, n: int, random: np.random.Generator, discount: float, rewards: Rewards, beta: float = 1.0
    ) -> Sample:
        """Sample n rows with replacement. `beta` corrects for priorities: 1 fully, 0 not at all.

        Raises:
            ValueError: there is nothing to sample yet.
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
            part = (np.arange(n) + random.random(n)) / n  # one from each of n equal parts (stratified)
            row = self.tree.find(part * self.tree.total)
            priority = self.tree.leaves[row]
            return row, ((priority / priority.min()) ** -beta).astype(np.float32)
        low, high = self._window()
        ends: Rows = np.cumsum(high - low)
        found = np.zeros(0, np.int64)
        for _ in range(100 if ends[-1] and self.tree is None else 0):  # at least about one row in two has an action
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
        """The rows after (`by` 1) or before (-1) these, in their rings."""
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
        """Set the priorities of sampled rows [B] from their errors [B] (Schaul et al. 2016, eq. 1)."""
        if self.tree is not None:
            priority = (np.abs(error).astype(np.float64) + SURE) ** self.alpha
            self.largest = max(self.largest, float(priority.max()))
            self.tree.set(row, priority)

    # ---- at rest ------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """The checkpoint's contents. Everything that they refer to is on disk when this returns."""
        self.columns.flush(self.texts)
        self.saved[:] = self.count
        state = {"count": self.count.copy(), "sequence": self.sequence.copy(), "texts": np.array(len(self.texts))}
        state["generation"] = np.array(self.columns.generation)
        if self.tree is not None:
            state |= {"priority": self.tree.leaves.copy(), "largest": np.array(self.largest)}
        return state

    def find(self, state: Mapping[str, NDArray[Any]]) -> Layout | None:
        """The columns in the folder that belong to `state`; None if they are gone. Changes nothing.

        Raises:
            ReplayError: `restore(state)` is impossible: state or folder have other envs, observations or capacity, or
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
        """Continue from `state`, with the rows of the folder. `lost` counts the rows that are gone.

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
                new = np.where(self.columns["acted"], self.largest, 0.0)  # the run had no priorities until now
                priority[rows] = state.get("priority", new)[rows]
            self.tree.replace(priority)


def _rewards(columns: Iterable[str]) -> list[str]:
    return [name.removeprefix("reward.") for name in columns if name.startswith("reward.")]


def _smallest(size: int) -> str:
    """The smallest unsigned type for [0, size)."""
    return str(np.min_scalar_type(max(size - 1, 0)))
