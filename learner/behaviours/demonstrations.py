"""Recorded episodes as training data of a sequence model, read from a store on demand.

    EpisodeStore ── rows of the requested episodes ──┐
    texts of each episode, as token ids ── one ──────┼──> Demonstrations: every `stride`-th step is one
    targets ─────────────────────────────────────────┘

With a stride of k, a step stands for a window of k steps: its sensors are read at the window's start, its action is the
mean of the executed actions. A player that uses such a model holds each action for k steps. The last window may be
shorter.

Episodes of a driver (`DRIVEN`) have a step for each window already, the pose that the robot believed in, and what the
driver wished to do: this is learned, and what was executed in spite of it is history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.api import Field
from envs.navigation.odometry import felt, reckon
from learner.models.sequence.behaviour_transformer import Demonstrations
from learner.store.episodes import EpisodeStore, Layout, Steps
from llm_service.errors import UsageError

SENSED = "observation"
"""The field of a store with the sensor readings before each action."""

BELIEVED, WISHED, AHEAD = "believed", "wished", "ahead"
DRIVEN = Layout(
    {name: Field("vector", (size,)) for name, size in ((SENSED, 5), (BELIEVED, 3), (WISHED, 2), (AHEAD, 6))}, (), (2,)
)
"""A driver's store: pose by odometry or a `Localiser`, the action that the driver wished, and where it will be after
5, 10 and 20 actions, world units."""

UNKNOWN = 0
"""The token of words outside the vocabulary."""

Texts = Sequence[Sequence[NDArray[np.integer[Any]]]]


class Sequences:
    """Episodes of a store, each with texts that describe it and its end position.

    Args:
        store: steps have a vector `observation` and continuous actions.
        episodes: their indices in the store, int64 [E].
        texts: alternative texts of each, as token ids.
        target: float32 [E, 2], world units.
        stride: steps of the store that one step of a sequence stands for.
        odometry: the start pose that robots assume, [3]; their estimated position is then sensed too. None: it is not.
        guided: with odometry, the estimated position of the target is sensed too.

    Attributes:
        steps: of each sequence, int64 [E].
        longest: tokens of the longest text, steps of the longest sequence.

    Raises:
        UsageError: the store has other steps, or the arguments do not fit together.
    """

    def __init__(
        self,
        store: EpisodeStore,
        episodes: NDArray[np.int64],
        texts: Texts,
        target: NDArray[np.float32],
        stride: int = 1,
        odometry: tuple[float, float, float] | None = None,
        guided: bool = True,
    ) -> None:
        self.store, self.episodes, self.texts, self.target, self.stride = store, episodes, texts, target, stride
        self.odometry, self.guided = odometry, guided
        field = store.layout.fields.get(SENSED)
        if field is None or field.kind != "vector" or store.layout.actions:
            held = ", ".join(store.layout.fields)
            raise UsageError(
                f"{store.folder} must hold vectors {SENSED!r} and continuous actions, and holds {held}: record it anew"
            )
        if stride < 1:
            raise UsageError(f"a stride is at least one step: got {stride}")
        if not len(texts) == len(target) == len(episodes):
            raise UsageError(
                f"each episode needs texts and a target: there are {len(episodes)} episodes, {len(texts)} lists of "
                f"texts and {len(target)} targets"
            )
        if len(episodes) and (episodes.min() < 0 or episodes.max() >= len(store)):
            raise UsageError(f"{store.folder} holds episodes 0 to {len(store) - 1}, not {episodes.max()}")
        for row, own in enumerate(texts):
            if not len(own) or not all(len(text) for text in own):
                raise UsageError(f"episode {episodes[row]} has no text, or an empty one: describe it or leave it out")
        if not np.isfinite(target).all():
            raise UsageError(f"the target of episode {episodes[~np.isfinite(target).all(1)][0]} is no place")
        self.driven = BELIEVED in store.layout.fields
        if self.driven and store.about["stride"] != stride:
            raise UsageError(
                f"{store.folder} was driven with a stride of {store.about['stride']}, not {stride}: drive again"
            )
        length = store.length[episodes].astype(np.int64)
        if len(length) and length.min() < 1:
            raise UsageError(f"episode {episodes[length.argmin()]} of {store.folder} has no steps: leave it out")
        self.steps = length if self.driven else -(-length // stride)
        self.longest = max((len(text) for own in texts for text in own), default=0), int(self.steps.max(initial=0))

    def __len__(self) -> int:
        return len(self.episodes)

    def read(
        self,
        rows: NDArray[np.int64],
        uniform: NDArray[np.float64] | None = None,
        blur: float = 0.0,
        forget: float = 0.0,
        hush: float = 0.0,
    ) -> Demonstrations:
        """Sequences `rows` [B] of 0 to E - 1.

        uniform: a number in [0, 1) for each, [B], selects its text and the blurred tokens; None: the first text. blur:
        mean share of a text's tokens, except its first and last, that are dropped or made unknown, both equally likely;
        the share varies per text from 0 to twice this.
        forget: share of sequences whose target is hidden (nan).
        hush: share of sequences whose text is but its first and last token.
        """
        which = np.zeros(len(rows)) if uniform is None else uniform
        chosen = [self.texts[row][int(u * len(self.texts[row]))] for row, u in zip(rows.tolist(), which, strict=True)]
        if blur and uniform is not None:
            chosen = [_blurred(text, u, blur) for text, u in zip(chosen, uniform.tolist(), strict=True)]
        if hush and uniform is not None:
            silent = (uniform * 2**30) % 1.0 < hush  # further digits
            chosen = [text[[0, -1]] if quiet else text for text, quiet in zip(chosen, silent.tolist(), strict=True)]
        target = self.target[rows]
        if forget and uniform is not None:
            shifted = (uniform * 2**20) % 1.0  # digits that are independent of the chosen text
            target = np.where((shifted < forget)[:, None], np.float32(np.nan), target)
        episodes = self.episodes[rows]
        first, length, steps = self.store.first[episodes], self.store.length[episodes], self.steps[rows]
        found = self.store.rows(np.concatenate([np.arange(a, a + n) for a, n in zip(first, length, strict=True)]))
        if self.driven:
            sensed = found.obs[SENSED]
            if self.odometry is not None:
                place = np.repeat(target, steps, 0) if self.guided else None
                sensed = np.concatenate([sensed, felt(found.obs[BELIEVED].astype(np.float64), place)], 1)
            told, texts = np.concatenate(chosen).astype(np.int64), [len(text) for text in chosen]
            return Demonstrations(
                told, texts, target, sensed, found.action, steps.tolist(), found.obs[WISHED], found.obs[AHEAD]
            )
        begins = zip(np.cumsum([0, *length[:-1]]), length.tolist(), strict=True)
        windows = np.concatenate([at + np.arange(0, n, self.stride) for at, n in begins])  # the start of each window
        sizes = np.diff([*windows, len(found.action)])[:, None]
        return Demonstrations(
            tokens=np.concatenate(chosen).astype(np.int64),
            texts=[len(text) for text in chosen],
            target=target,
            sensors=self._sensed(found, length, target)[windows],
            actions=(np.add.reduceat(found.action.astype(np.float64), windows) / sizes).astype(np.float32),
            steps=steps.tolist(),
        )

    def _sensed(
        self, found: Steps, length: NDArray[np.integer[Any]], target: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Sensor readings before each step of whole episodes, [N, 5], with odometry [N, 9] or [N, 13]."""
        obs = found.obs[SENSED]
        if self.odometry is None:
            return obs
        start, parts = np.array(self.odometry), []
        firsts = np.cumsum([0, *length[:-1]]).tolist()
        for first, count, place in zip(firsts, length.tolist(), target, strict=True):
            own = slice(first, first + count - 1)  # the result of the last action was not recorded, and is not needed
            after = reckon(start, found.action[own], obs[first + 1 : first + count])
            parts.append(felt(np.concatenate([start[None], after]), place if self.guided else None))
        return np.concatenate([obs, np.concatenate(parts)], 1)


def _blurred(text: NDArray[np.integer[Any]], uniform: float, blur: float) -> NDArray[np.integer[Any]]:
    """A text with some tokens dropped and others made unknown: a function of the three arguments alone."""
    generator = np.random.default_rng(int(uniform * 2**53))
    share = 2 * blur * generator.random()
    drawn = generator.random(len(text))
    drawn[[0, -1]] = 1.0
    return np.where(drawn < share, UNKNOWN, text)[drawn >= share / 2]
