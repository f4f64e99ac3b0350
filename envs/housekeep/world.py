"""Houses in which things lie where nobody would want them, and are to be put right. N of them behind the contract of
`envs.api`. What ELLM (Du et al. 2023, arXiv 2302.06692) plays beside Crafter, after Housekeep (Kant et al. 2022, arXiv
2205.10712), in an engine of our own.

Actions: 0 move forward, 0.25 m, 1 turn left, 2 turn right, 20 degrees, 3 look up, 4 look down, 10 degrees, 5 grab or
release what is in the picture's centre: an object, if the hand is empty, else a piece of furniture, onto which the held
object goes.
Observation: the fields of `Config.observe`: `rgb` uint8 [S, S, 3], what the player sees; texts `view`, `seen`, `held`
and `published`, see `texts`; numbers `boxes`, `hand` and `pose`, see `detector`.
Reward: see `Config.reward`.
Termination: each object lies right, and none is held. Truncation: after `Config.length` steps.
Success: the first of these. Right is where the people of `Config.preferences` want it.
Events: "pick lamp", "lamp in kitchen sink", when it succeeded.
Goals: the same events. A goal makes sense if the object is misplaced and seen, or if it is held and the place is known
and right; and if it was not put right before in this episode: the oracle of Du et al.
Ids: housekeep/Task1 to Task4, one home and five objects each; housekeep/House, by seed.

Nothing in a step is drawn by chance. What moves and draws is `envs.native.housekeep`, or habitat-sim: see `engines`.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from envs.api import EnvSpec, Observation, VectorEnv
from envs.housekeep.detector import SENSES, sensed
from envs.housekeep.engines import Embedded, Engine
from envs.housekeep.names import NAMES
from envs.housekeep.names import OBJECTS as THINGS
from envs.housekeep.sources import Furnish
from envs.housekeep.texts import MOST_NAMES, TEXTS, Captions, Told
from envs.native.housekeep import telling
from envs.native.housekeep.hands import DROPPED, PICKED
from envs.native.housekeep.layout import NOWHERE, OBJECTS, PIECES, Houses, players
from envs.native.housekeep.pictures import pictures

Reward = Literal["none", "benchmark", "placed"]
Index = NDArray[np.intp]

FIRST, WRONG, FAILED = 2.5, -0.25, -0.2
"""What the published benchmark pays and takes: for a first grip of what lies wrong and for the first time that it is
put right; for taking what lies right, and for putting it wrong; for grips that fail."""


class Housekeep(VectorEnv):
    """N players, each in a house.

    Args:
        args: as `VectorEnv`.
        houses: rows of houses; one, which all share, or one for each player.
        furnish: writes a row for an episode; None: they stay as they are.
        suits: bool [objects, names], of `envs.housekeep.names`: what is wanted where.
        size: pixels of a side of the pictures.
        length, reward, see_through: as `Config`.
        engine: what moves and draws; None: our own.

    Attributes:
        houses, players: as in `envs.native.housekeep.layout`.
        which: int64 [N], the house of each player.
        suits: bool [objects, names].
        right: bool [P, M, pieces], whether a piece is right for an object.
        pictures: what they see.
        gripped, done: uint16 [N], objects that were held in the episode or are away, and those put right, a bit each.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        num_envs: int,
        seed: int = 0,
        first_index: int = 0,
        *,
        houses: Houses,
        furnish: Furnish | None,
        suits: NDArray[np.bool_],
        size: int,
        length: int,
        reward: Reward,
        see_through: bool,
        engine: Engine | None = None,
    ) -> None:
        super().__init__(env_spec, num_envs, seed, first_index)
        self.houses, self.suits = houses, suits
        self._furnish, self._limit, self._pays = furnish, length, reward
        self._see_through, count = see_through, len(houses.pieces)
        self.which = np.zeros(num_envs, np.int64) if count == 1 else np.arange(num_envs)
        self._engine = engine or Embedded(houses, self.which, size, see_through)
        self.players = players(num_envs)
        self.right = np.zeros((count, OBJECTS, PIECES + 1), np.bool_)
        self.pictures = pictures(num_envs, size, rgb="rgb" in env_spec.fields)
        self.gripped, self.done = np.zeros((2, num_envs), np.uint16)
        self._rank = np.zeros((count, PIECES + 1), np.uint8)  # of a piece's name among those of its house
        self._names: list[list[str]] = [[]] * count  # in alphabetical order
        self._objects: list[list[str]] = [[]] * count
        self._captions = Captions(self.texts, num_envs, count)
        if furnish is None:
            self._move_in(0, self._rows)

    # ---- episodes ---------------------------------------------------------------------------------------------------

    def _move_in(self, p: int, index: Index) -> None:
        """House p is furnished: what is called how there, and what is right where."""
        names = self.houses.name[p, 1 : self.houses.pieces[p] + 1]
        objects = self.houses.object[p, : self.houses.objects[p]]
        different = sorted({NAMES[name] for name in names.tolist()})
        if len(different) > MOST_NAMES:
            raise ValueError(f"a house has {len(different)} names of pieces: {MOST_NAMES} are the most")
        self._names[p], self._objects[p] = different, [THINGS[k] for k in objects.tolist()]
        self._rank[p, 1 : len(names) + 1] = [different.index(NAMES[name]) for name in names.tolist()]
        self.right[p] = False
        self.right[p, : len(objects), 1 : len(names) + 1] = self.suits[objects[:, None], names]
        self._captions.begin(p, different, self._objects[p], index)

    def _start(self, index: Index, seeds: NDArray[np.int64]) -> None:
        if self._furnish is not None:
            for i, seed in zip(index.tolist(), seeds.tolist(), strict=True):
                self._furnish(self.houses, i, seed)
                self._move_in(i, np.array([i]))
        self._engine.begin(self.players, self.pictures, index)
        lies = self.houses.lies[self.which[index]]
        there = np.arange(OBJECTS) < self.houses.objects[self.which[index], None]
        held_before = there & ((lies == 0) | (lies == NOWHERE))
        self.gripped[index] = held_before @ (1 << np.arange(OBJECTS, dtype=np.uint16))
        self.done[index] = 0

    # ---- steps ------------------------------------------------------------------------------------------------------

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]]:
        reward = self._move(self._rows, actions)
        over = self._in_order(self._rows)
        return reward, over, (self._length + 1 >= self._limit) & ~over

    def _replay(self, lengths: NDArray[np.int32], log: NDArray[Any]) -> None:
        for step in range(int(lengths.max())):
            index = np.flatnonzero(lengths > step)
            self._total[index] += self._move(index, log[index, step])

    def _check_state(self, state: dict[str, NDArray[Any]]) -> None:
        super()._check_state(state)
        if (longest := state["length"].max()) >= self._limit:
            raise ValueError(f"the state has an episode of {longest} steps, but env.length is {self._limit}")

    def _move(self, index: Index, actions: NDArray[Any]) -> NDArray[np.float32]:
        """Players `index` [n] take `actions` [n]: what that pays, [n]."""
        state = self.players
        self._engine.advance(state, self.pictures, index, actions.astype(np.int64))
        self.events[index] = -1
        outcome, reward = state.outcome[index], np.zeros(len(index), np.float32)
        self.failed[index] = outcome > DROPPED
        if self._pays == "benchmark":
            reward[self.failed[index]] = FAILED
        for row in np.flatnonzero((outcome == PICKED) | (outcome == DROPPED)).tolist():
            reward[row] = self._handled(int(index[row]), outcome[row] == PICKED)
        return reward

    def _handled(self, i: int, picked: bool) -> float:
        """Player i has gripped or released an object: what that pays."""
        k, piece = self.players.target[i].tolist()
        p, bit = int(self.which[i]), np.uint16(1 << k)
        right = bool(self.right[p, k, piece])
        name = self._objects[p][k]
        told = f"pick {name}" if picked else f"{name} in {self._names[p][self._rank[p, piece]]}"
        self.events[i] = self.texts.intern(told)
        before = self.gripped if picked else self.done
        first = not before[i] & bit
        if picked or right:
            before[i] |= bit
        if self._pays == "benchmark":
            return WRONG if picked == right else FIRST if first else 0.0
        if self._pays == "placed":
            return (-1.0 if picked else 1.0) / len(self._objects[p]) if right else 0.0
        return 0.0

    def _in_order(self, index: Index) -> NDArray[np.bool_]:
        """Whether each object of players `index` lies right or is away, [n]; one that is held is neither."""
        house, place = self.which[index], self.players.place[index]
        right = self.right[house[:, None], np.arange(OBJECTS), place]
        there = np.arange(OBJECTS) < self.houses.objects[house, None]
        away = (place == 0) & (self.players.holding[index, None] != np.arange(OBJECTS))
        in_order: NDArray[np.bool_] = np.all(right | away | ~there, axis=1)
        return in_order

    def _success(self, reward: NDArray[np.float32], terminated: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return terminated

    # ---- what is observed and told ----------------------------------------------------------------------------------

    def _observe(self, index: Index | slice) -> Observation:
        rows = self._rows[index]
        fields = self.env_spec.fields
        told = self._told(rows) if fields.keys() & set(TEXTS) else None
        return {name: self._field(name, rows, told) for name in fields}

    def _field(self, name: str, rows: Index, told: Told | None) -> NDArray[Any]:
        if told is not None and name in TEXTS:
            return self._captions.of(name, rows, told)
        if name not in SENSES:
            return self.pictures.rgb[rows]
        return sensed(
            *(name, self.houses, self.which, self.players, rows),
            rank=self._rank,
            ids=self.pictures.ids,
            objects=len(self._objects[0]),
            gripped=self.gripped,
            see_through=self._see_through,
            width=self.env_spec.fields[name].shape[0],
        )

    def _told(self, index: Index) -> Told:
        state, (visible, known) = self.players, np.empty((2, len(index)), np.uint64)
        place = np.empty((len(index), OBJECTS), np.uint8)
        telling.named(state.visible, self.which, self._rank, index, visible)
        telling.named(state.known, self.which, self._rank, index, known)
        telling.lying(state.place, self.which, self._rank, index, place)
        return Told(self.which[index], visible, known, state.seen[index], state.met[index], place, state.holding[index])

    def captions(self, obs: Observation) -> list[list[str]]:
        """Sentences of the texts of N observations, dense or as strings.

        Raises:
            LookupError: none is observed; says what to do.
        """
        return self._sentences(obs, TEXTS, "add view, seen or held to env.observe")

    def situations(self) -> NDArray[np.int32]:
        """See `VectorEnv`: what is held, and then what is seen and on what it lies, or the places that are known."""
        self._require_begun()
        return self._captions.of("situation", self._rows, self._told(self._rows))

    def possible_goals(self) -> NDArray[np.bool_]:
        """See `VectorEnv`: what lies wrong and is seen is to be picked; what is held belongs in known right places; and
        nothing that was put right before is named.

        Raises:
            LookupError: the world is a house by seed, whose objects differ from episode to episode.
        """
        self._require_begun()
        if not self.env_spec.goals:
            raise LookupError(f"{self.env_spec.id} has other objects in each episode: its goals cannot be listed")
        told, each = self._told(self._rows), np.arange(self.num_envs)
        names, count = self._names[0], len(self._objects[0])
        ranked = np.zeros((count, len(names) + 1), np.bool_)  # whether a name is right; the last one is no place
        ranked[:, self._rank[0, 1 : self.houses.pieces[0] + 1]] = self.right[0, :count, 1 : self.houses.pieces[0] + 1]
        bits = np.arange(count, dtype=np.uint16)
        left = (self.done[:, None] >> bits & 1) == 0
        place, empty = told.place[:, :count], told.holding == NOWHERE
        lies_right = ranked[np.arange(count), np.minimum(place, len(names))]
        pick = (told.seen[:, None] >> bits & 1).astype(np.bool_) & left & ~lies_right & empty[:, None]
        known = (told.known[:, None] >> np.arange(len(names), dtype=np.uint64) & np.uint64(1)).astype(np.bool_)
        put = np.zeros((self.num_envs, count, len(names)), np.bool_)
        held = np.where(empty, 0, told.holding)
        put[each, held] = known & ranked[held, :-1] & (left[each, held] & ~empty)[:, None]
        return np.concatenate([pick, put.reshape(self.num_envs, -1)], 1)

    def frame(self, i: int) -> NDArray[np.uint8]:
        """RGB picture of env i, uint8 [H, W, 3]: the house from above, beside it what the player sees; in habitat-sim
        the latter alone."""
        self._require_begun()
        return self._engine.frame(self.players, self.pictures, i, self.right)

    def close_extras(self, **kwargs: Any) -> None:
        """End what runs beside this process."""
        self._engine.close()
