"""Both sides of bk's goals and preferences, set up and checked for equal values before any timing."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import DifferentOutputs, Run
from benchmarks.peers import bk_loops, bk_play, bk_preference
from benchmarks.peers.bk_play import Play
from learner import potentials
from learner.knowledge import goal_bank
from learner.knowledge.fitted_preference import FittedPreference, read_about
from learner.models.sequence.segment_transformer import SegmentTransformer
from learner.potentials import PotentialSetup, ShapingConfig
from learner.windows import Windows
from llm_service.embedding import Encoder, embed_one, minilm_folder

SIZES = 256, 512, 1024
"""Windows in one PyTorch batch: the first number is the published one."""
LEAST_S = 0.4
"""Minimum seconds for which a side is measured in a round."""


class Potentials:
    """Potentials built once from the files of a folder; `words` are the arguments of a run that uses one."""

    def __init__(self, play: Play, folder: Path) -> None:
        self.play, self.folder = play, folder
        self.words: dict[str, list[str]] = {}
        self.speeds: dict[str, float] = {}

    def make(self, name: str, **options: Any) -> Any:
        spec = self.play.env.env_spec
        config = ShapingConfig(potential=name, window=bk_play.WINDOW, **options)
        setup = PotentialSetup(config, spec.fields, 0, self.play.env.texts, spec.action_names)
        made = potentials.potential(name)(setup)
        if name == "code":
            self.says(name, **options)
        return made

    def goals(self) -> Path:
        """A label stage's folder with goals and their bank."""
        folder = self.folder / "label"
        if not folder.exists():
            goal_bank.build(bk_play.label_folder(self.play, folder))
        return folder

    def preferences(self) -> tuple[Path, SegmentTransformer]:
        """A stage prefer's folder, and its model."""
        found = bk_preference.model_folder(self.play, self.folder / "prefer")
        self.says("preference", preference=str(found[0]))
        return found

    def says(self, name: str, **options: Any) -> None:
        """Set the arguments of a run that uses it. They state every setting, the window too, and rely on no default."""
        told = {"potential": name, "window": bk_play.WINDOW, **options}
        self.words[name] = [f"method.shaping.{key}={value}" for key, value in told.items()]


def cut(windows: Windows, most: int) -> Windows:
    """The first `most` windows."""
    return Windows(windows.rows, windows.index[:most], windows.actions[:most])


def rate(ask: Callable[[Windows], Any], chunks: list[Windows]) -> float:
    """Windows a second in wall time, since a potential may have its own process."""
    begun, windows = time.perf_counter(), 0
    for turn in range(10**6):
        windows += len(ask(chunks[turn % len(chunks)]))
        if time.perf_counter() - begun > LEAST_S:
            break
    return windows / (time.perf_counter() - begun)


def assert_close(what: str, ours: NDArray[Any], theirs: Any, tolerance: float) -> None:
    """Raise `DifferentOutputs` at the first place where both differ by more than `tolerance`."""
    apart = np.abs(np.asarray(ours, np.float64) - np.asarray(theirs, np.float64))
    if not (apart <= tolerance).all():
        at = int(np.argmax(~(apart <= tolerance)))
        raise DifferentOutputs(f"{what}: at {at} ours is {ours[at]}, the peer's {theirs[at]}")


class Goals:
    """Ours twice. By sentence, its default, it is measured on new play that follows the known play. By caption, as
    published, it is measured on known windows, since whole captions hardly ever repeat.

    Args:
        asked: number of windows for which the peers compute phi and values are compared.

    Attributes:
        known: share of pasts and transitions in new play that were met before.
    """

    def __init__(self, made: Potentials, asked: int = 64) -> None:
        folder = made.goals()
        self.encode, self.play = Encoder(minilm_folder()).encode, made.play
        self.windows = cut(made.play.chunks[0], asked)
        self.whole, self.ours = (made.make("goal", goals=str(folder), goal_by=by) for by in ("caption", "sentence"))
        by_caption, by_sentence = self._cold(self.whole), self._cold(self.ours)
        self.values = self.ours.phi(self.windows)
        met = max(1, len(made.play.chunks) * 2 // 3)
        for windows in made.play.chunks[:met]:
            self.ours.phi(windows)
        self.new = made.play.chunks[met:]
        self.play_ours()
        self.known = 1 - self.counts["texts_new"] / self.counts["texts"]
        self.note = (
            f"play that follows {met} chunks: {self.known:.0%} of its pasts and steps were met before, and "
            f"{self.counts['texts_embedded']} of its sentences were not; cold {by_sentence:,.0f} windows a second"
        )
        self.note_by_caption = (
            f"the same phi as the peer's, held to it in each round, on {asked} windows that were all met before: a "
            f"lookup. Of whole captions in new play only {self.known:.0%} were; cold {by_caption:,.0f} windows a second"
        )

    def _cold(self, potential: Any) -> float:
        """Windows a second when no text was met before."""
        embed_one.cache_clear()
        begun = time.perf_counter()
        potential.phi(self.windows)
        return len(self.windows) / (time.perf_counter() - begun)

    def play_ours(self) -> float:
        """Windows a second, each time on the same new play, starting from the same known texts."""
        seconds, windows = 0.0, 0
        while seconds < LEAST_S:
            ours = copy.deepcopy(self.ours)
            ours.counts()
            embed_one.cache_clear()
            begun = time.perf_counter()
            windows += sum(len(ours.phi(chunk)) for chunk in self.new)
            seconds += time.perf_counter() - begun
            self.counts = ours.counts()
        return windows / seconds

    def look_up(self) -> float:
        return rate(self.whole.phi, [self.windows])

    def two_encodes(self) -> float:
        """Windows a second with the same phi as ours by caption. Raises DifferentOutputs if values differ."""
        begun = time.perf_counter()
        told = bk_play.told(self.play, self.windows)
        found = bk_loops.two_encodes(self.encode, self.whole.bank, *told)
        seconds = time.perf_counter() - begun
        self.check("phi by caption", self.whole.phi(self.windows), found, self.whole)
        return len(found) / seconds

    def sentences_anew(self) -> float:
        """Windows a second with the same phi as ours by sentence. Raises DifferentOutputs if values differ."""
        begun = time.perf_counter()
        told = bk_play.told(self.play, self.windows)
        found = bk_loops.sentences_anew(self.encode, self.ours.bank, *told)
        seconds = time.perf_counter() - begun
        self.check("phi by sentence", self.values, found, self.ours)
        return len(found) / seconds

    def check(self, what: str, ours: NDArray[np.float32], theirs: bk_loops.Values, potential: Any) -> None:
        """Raise DifferentOutputs if our phi differs from the peer's cosine, which counts as 0 up to the threshold."""
        sure = np.abs(theirs - potential.threshold) > 1e-4  # nearer to the threshold, rounding decides
        expected = np.where(theirs > potential.threshold, theirs, 0)
        assert_close(what, ours[sure], expected[sure], 1e-4)


class Preferences:
    """One model with random weights on all sides."""

    def __init__(self, made: Potentials) -> None:
        self.chunks, self.best = made.play.chunks, ""
        folder, model = made.preferences()
        self.ours, about = made.make("preference", preference=str(folder)), read_about(folder)
        scores, in_pytorch = FittedPreference.load(folder).scores, bk_preference.Recomputing(model, about)
        self.forms: dict[str, Callable[[Windows], Any]] = {
            f"{size} windows at once": partial(in_pytorch.phi, size=size) for size in SIZES
        }
        self.unshared = partial(bk_preference.unshared, scores, about)
        for windows in self.chunks[:2]:
            for what, form in (self.forms | {"by our engine": self.unshared}).items():
                assert_close(f"phi, {what}", self.ours.phi(windows), form(windows), 1e-4)

    def play_ours(self) -> float:
        return rate(self.ours.phi, self.chunks)

    def run_of(self, form: Callable[[Windows], Any]) -> Run:
        return lambda: rate(form, self.chunks)

    def note(self, best: str) -> None:
        self.best = best
