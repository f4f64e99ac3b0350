"""bk: potentials of background knowledge, against what is published, done for each (env, step).

Windows are those of recorded BabyAI play (`peers/bk_play.py`): chunks of 64 players x 16 steps = 1,024 windows of five
views 7 x 7 x 3. Peers are written from the published design (`peers/bk_loops.py`, `peers/bk_labels.py`).

    code          a written program, by our sandbox and its process, against one Python call for each window, on arrays
                  as published or on lists, whichever is faster here. Five programs (`peers/bk_programs.py`) have a row
                  each, `code/NAME`, and `code` is the row of the one whose ratio is the median. Values of all windows
                  are compared before anything is timed, both interpreted and by the machine code that ours makes of a
                  program once it has been asked for 32,768 windows; that is what is timed
    goal          the largest cosine of the last step to goals, of play that is new while its sentences were met before,
                  against two MiniLM encodes of captions a window; and against each sentence encoded anew
    preference    a model of preferences that encodes each different view once, against windows that are recomputed in
                  PyTorch, 256, 512 or 1,024 at once, whichever is faster here. `preference/unshared`: against our own
                  engine where it recomputes windows, which is no peer
    labels        preferences by a model that takes 1 s a call, through the durable lane, against the published rounds:
                  all calls at once, wait for all, sleep 2 s. 30 calls in flight on either side; `labels/64`: 64
    training      env steps a second of PPO with a potential, against PPO alone: `training/NAME` of each potential, and
                  `training` the row of the slowest

Limit: of `code` the way to the other process, 0.3 ms, most of it the kernel's change from one to the other; of `labels`
30 calls a second, so that no ratio is above 3; of `training` the learner's own time.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Case, DifferentOutputs, Options, Report, Run, compare
from benchmarks.peers import bk_labels, bk_loops, bk_play, bk_preference, bk_programs
from benchmarks.peers.bk_play import Play
from benchmarks.train import better_of, speed_of_ours
from learner import potentials
from learner.knowledge import goal_bank
from learner.knowledge.fitted_preference import FittedPreference, read_about
from learner.models.sequence.segment_transformer import SegmentTransformer
from learner.potentials import PotentialSetup, ShapingConfig
from learner.windows import Windows
from llm_service.embedding import Encoder, embed_one, minilm_folder
from llm_service.sandbox.process import COMPILED_AFTER

CASES = ("code", "labels", "preference", "goal", "training")
POTENTIALS = ("code", "goal", "preference")
SIZES = 256, 512, 1024
"""Windows that PyTorch is given at once: the first is the published one."""
QUICK_ROUNDS, QUICK_SECONDS = 3, 300.0
CHUNKS = 10
"""Of which all values are compared, and one after the other timed."""
LEAST_S = 0.4
"""A side is measured at least so long in a round."""
WORLD = f"env={bk_play.LEVEL}", "env.captions=true"
TRAINED = "actors.envs=64", "actors.steps=32", "learner.minibatch=512", "learner.learning_rate=1e-3"


class Potentials:
    """Made once, of what the folder holds; `words` are those of a run that uses one."""

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
            self._says(name, **options)
        return made

    def goals(self) -> Path:
        """The folder of a label stage with goals, and with their bank."""
        folder = self.folder / "label"
        if not folder.exists():
            goal_bank.build(bk_play.label_folder(self.play, folder))
        self._says("goal", goals=str(folder))
        return folder

    def preferences(self) -> tuple[Path, SegmentTransformer]:
        """The folder of a stage prefer, and its model."""
        found = bk_preference.model_folder(self.play, self.folder / "prefer")
        self._says("preference", preference=str(found[0]))
        return found

    def _says(self, name: str, **options: Any) -> None:
        self.words[name] = [f"method.shaping.{key}={value}" for key, value in {"potential": name, **options}.items()]


def cut(windows: Windows, most: int) -> Windows:
    """The first of them."""
    return Windows(windows.rows, windows.index[:most], windows.actions[:most])


def rate(ask: Callable[[Windows], Any], chunks: list[Windows]) -> float:
    """Windows a second, by the clock: a potential may have a process of its own."""
    begun, windows = time.perf_counter(), 0
    for turn in range(10**6):
        windows += len(ask(chunks[turn % len(chunks)]))
        if time.perf_counter() - begun > LEAST_S:
            break
    return windows / (time.perf_counter() - begun)


def assert_close(what: str, ours: NDArray[Any], theirs: Any, tolerance: float) -> None:
    """Raise `DifferentOutputs` at the first place where both are further apart."""
    apart = np.abs(np.asarray(ours, np.float64) - np.asarray(theirs, np.float64))
    if not (apart <= tolerance).all():
        at = int(np.argmax(~(apart <= tolerance)))
        raise DifferentOutputs(f"{what}: at {at} ours is {ours[at]}, the peer's {theirs[at]}")


# ---- programs ------------------------------------------------------------------------------------------------------


class Programs:
    """One program on both sides."""

    def __init__(self, made: Potentials, function: bk_programs.Written) -> None:
        path = made.folder / f"{function.__name__}.py"
        path.write_text(bk_programs.text_of(function))
        self.function, self.chunks = function, made.play.chunks
        self.ours = made.make("code", program=str(path), shows="image")
        self.best = ""
        expected = [bk_loops.by_lists(function, windows, "image") for windows in self.chunks]
        for _ in range(COMPILED_AFTER // sum(map(len, self.chunks)) + 1):  # as early in any training, and then no more
            for windows, values in zip(self.chunks, expected, strict=True):
                self.check(self.ours.phi(windows), values)
        self.note = "machine code" if self.ours.sandbox.await_code() else "interpreted"
        for windows, values in zip(self.chunks, expected, strict=True):
            self.check(self.ours.phi(windows), values)

    def check(self, ours: NDArray[np.float32], theirs: list[float]) -> None:
        assert_close(f"values of {self.function.__name__}", ours, theirs, 1e-6)

    def play_ours(self) -> float:
        return rate(self.ours.phi, self.chunks)

    def per_step_call(self) -> Run:
        """By the form that is faster here."""
        found = bk_loops.forms(self.function, self.chunks[0], "image")

        def run_of(form: bk_loops.Form) -> Run:
            def ask(windows: Windows) -> list[float]:
                values = form(self.function, windows, "image")
                return values

            return lambda: rate(ask, self.chunks)

        def note(best: str) -> None:
            self.best = best

        return better_of({name: run_of(form) for name, form in found.items()}, note)


def code(options: Options, made: Potentials) -> Report:
    report = Report()
    for function in bk_programs.PROGRAMS:
        match = Programs(made, function)
        case = Case("bk", f"code/{function.__name__}", "windows")
        part = compare(case, match.play_ours, {"per_step_call": match.per_step_call()}, options)
        note = f"the function sees {match.best}; ours is {match.note}"
        report.add(Report([replace(row, note=note) for row in part.rows], part.skips))
        if part.rows:
            made.speeds[function.__name__] = part.rows[0].ours
    rows = sorted(report.rows, key=lambda row: row.ratio)
    if rows:
        middle, lowest = rows[len(rows) // 2], rows[0]
        note = f"{middle.case}, the median of {len(rows)} programs, {middle.note}; the lowest is {lowest.ratio:.1f}"
        report.rows.insert(0, replace(middle, case="code", headline=True, note=f"{note}, of {lowest.case}"))
        slowest = min(made.speeds, key=lambda name: made.speeds[name])
        made.make("code", program=str(made.folder / f"{slowest}.py"), shows="image")
        made.speeds = {"code": made.speeds[slowest]}
    return report


# ---- goals, preferences ----------------------------------------------------------------------------------------------


class Goals:
    """Ours, sentence by sentence as it is by default, on play that comes after what it has met; whole captions are
    embedded by the peer, as published.

    Args:
        asked: windows of which the peers compute phi, and values are compared.
    """

    def __init__(self, made: Potentials, asked: int = 64) -> None:
        folder = made.goals()
        self.encode, self.play = Encoder(minilm_folder()).encode, made.play
        self.windows = cut(made.play.chunks[0], asked)
        whole = made.make("goal", goals=str(folder), goal_by="caption")
        self.captions = whole.bank
        by_caption = self._cold(whole)
        self.check("phi by caption", whole.phi(self.windows), self._two_encodes(), whole)
        self.ours = made.make("goal", goals=str(folder))
        cold = self._cold(self.ours)
        self.values = self.ours.phi(self.windows)
        met = max(1, len(made.play.chunks) * 2 // 3)
        for windows in made.play.chunks[:met]:
            self.ours.phi(windows)
        self.new = made.play.chunks[met:]
        self.play_ours()
        known = 1 - self.counts["texts_new"] / self.counts["texts"]
        self.note = (
            f"play that follows {met} chunks: {known:.0%} of its pasts and steps were met before, and "
            f"{self.counts['texts_embedded']} of its sentences were not; cold {cold:,.0f} windows a second, "
            f"with goal_by=caption {by_caption:,.0f}"
        )

    def _cold(self, potential: Any) -> float:
        """Windows a second, where no text was met before."""
        embed_one.cache_clear()
        begun = time.perf_counter()
        potential.phi(self.windows)
        return len(self.windows) / (time.perf_counter() - begun)

    def play_ours(self) -> float:
        """Each time on the same play, with what was known before it."""
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

    def two_encodes(self) -> float:
        begun = time.perf_counter()
        return len(self._two_encodes()) / (time.perf_counter() - begun)

    def sentences_anew(self) -> float:
        """The same phi as ours. Raises DifferentOutputs where it is not."""
        begun = time.perf_counter()
        told = bk_play.told(self.play, self.windows)
        found = bk_loops.sentences_anew(self.encode, self.ours.bank, *told)
        seconds = time.perf_counter() - begun
        self.check("phi by sentence", self.values, found, self.ours)
        return len(found) / seconds

    def _two_encodes(self) -> bk_loops.Values:
        return bk_loops.two_encodes(self.encode, self.captions, *bk_play.told(self.play, self.windows))

    def check(self, what: str, ours: NDArray[np.float32], theirs: bk_loops.Values, potential: Any) -> None:
        """Raise DifferentOutputs where the peer's cosine, above the threshold, is not our phi."""
        sure = np.abs(theirs - potential.threshold) > 1e-4  # nearer, rounding decides
        expected = np.where(theirs > potential.threshold, theirs, 0)
        assert_close(what, ours[sure], expected[sure], 1e-4)


class Preferences:
    """One model on all sides, its weights drawn."""

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


def preference(options: Options, made: Potentials) -> Report:
    """Ours against PyTorch, and against our own engine with one idea taken away."""
    match = Preferences(made)
    recomputed = better_of({what: match.run_of(form) for what, form in match.forms.items()}, match.note)
    case = Case("bk", "preference", "windows", frozenset({"recomputed_windows"}))
    report = compare(case, match.play_ours, {"recomputed_windows": recomputed}, options)
    report.rows = [replace(row, note=f"in PyTorch, {match.best}") for row in report.rows]
    case = Case("bk", "preference/unshared", "windows")
    case.notes["our_engine"] = "no peer: our engine, but it encodes each window for itself"
    report.add(compare(case, match.play_ours, {"our_engine": match.run_of(match.unshared)}, options))
    return report


def goal(options: Options, made: Potentials) -> Report:
    match = Goals(made)
    case = Case("bk", "goal", "windows", frozenset({"two_encodes"}))
    case.notes["two_encodes"] = match.note
    case.notes["sentences_anew"] = "the same phi as ours: each sentence of each window is embedded, none is kept"
    peers: dict[str, Run] = {"two_encodes": match.two_encodes, "sentences_anew": match.sentences_anew}
    return compare(case, match.play_ours, peers, options)


# ---- labels, training ------------------------------------------------------------------------------------------------


def labels(options: Options, play: Play) -> Report:
    report = Report()
    for most in (30,) if options.quick else (30, 64):
        match = bk_labels.Match(play, 60 if options.quick else 240, most)
        case = Case("bk", "labels" if most == 30 else f"labels/{most}", "answers")
        case = replace(case, headline=frozenset({"barrier"} if most == 30 else ()))
        case.notes["barrier"] = f"{most} calls in flight at most, 1 s each; a pair is asked in both orders"
        report.add(compare(case, match.ours, {"barrier": match.barrier}, options))
    return report


def training(options: Options, made: Potentials) -> Report:
    """A row of each potential, and of the slowest as the headline."""
    made.goals()
    made.preferences()
    if "code" not in made.words:
        code(Options(options.quick, 1, options.deadline), made)
    seconds, report = 6.0 if options.quick else 15.0, Report()
    once = replace(options, rounds=1) if options.quick else options
    ppo = speed_of_ours(seconds, options, *WORLD, *TRAINED)
    for name in POTENTIALS:
        case = Case("bk", f"training/{name}", "env_steps")
        ours = speed_of_ours(seconds, options, *WORLD, *TRAINED, *made.words[name])
        report.add(compare(case, ours, {"ppo": ppo}, once))
    if report.rows:
        lowest = min(report.rows, key=lambda row: row.ratio)
        note = f"{lowest.case}, the slowest of {len(report.rows)} potentials"
        report.rows.insert(0, replace(lowest, case="training", headline=True, note=note))
    return report


def run(options: Options) -> Report:
    report, play = Report(), bk_play.record(3 if options.quick else CHUNKS)
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder:
        made = Potentials(play, Path(folder))
        cases: dict[str, Callable[[], Report]] = {
            "code": lambda: code(options, made),
            "labels": lambda: labels(options, play),
            "preference": lambda: preference(options, made),
            "goal": lambda: goal(options, made),
            "training": lambda: training(options, made),
        }
        for name in CASES:
            if options.wants(name):
                report.add(cases[name]())
    return report
