"""bk: potentials of background knowledge, against what is published, done for each (env, step).

Windows are those of recorded BabyAI play (`peers/bk_play.py`): chunks of 64 players x 16 steps = 1,024 windows of five
views 7 x 7 x 3. Peers are written from the published design (`peers/bk_loops.py`, `peers/bk_labels.py`).

    code          a written program, by our sandbox and its process, against one Python call for each window, on arrays
                  as published or on lists, whichever is faster here. Five programs (`peers/bk_programs.py`) have a row
                  each, `code/NAME`, and `code` is the row of the one whose ratio is the median. Values of all windows
                  are compared before anything is timed, both interpreted and by the machine code that ours makes of a
                  program once it has been asked for 32,768 windows; that is what is timed
    goal          the largest cosine of the last step to goals, texts met before, against two MiniLM encodes a window
    preference    a model of preferences that encodes each view once, against each window's views encoded anew
    labels        preferences by a model that takes 1 s a call, through the durable lane, against the published rounds:
                  all calls at once, wait for all, sleep 2 s. 30 calls in flight on either side; `labels/64`: 64
    training      env steps a second of PPO with the slowest potential that there is, against PPO alone

Limit: of `code` the way to the other process, 0.3 ms, most of it the kernel's change from one to the other; of `labels`
30 calls a second, so that no ratio is above 3; of `training` the learner's own time.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Case, DifferentOutputs, Options, Report, Run, compare
from benchmarks.peers import bk_labels, bk_loops, bk_play, bk_preference, bk_programs
from benchmarks.peers.bk_play import Play
from benchmarks.train import better_of, speed_of_ours
from learner import potentials
from learner.knowledge.fitted_preference import read_about
from learner.potentials import PotentialSetup, ShapingConfig
from learner.windows import Windows
from llm_service.embedding import Encoder, minilm_folder
from llm_service.sandbox.process import COMPILED_AFTER

CASES = ("code", "labels", "preference", "goal", "training")
QUICK_ROUNDS, QUICK_SECONDS = 3, 120.0
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
        self.words[name] = [f"method.shaping.{key}={value}" for key, value in {"potential": name, **options}.items()]
        return made


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
    """Whole captions are embedded on both sides, as published; ours has met the texts before.

    Args:
        most: windows of a chunk.
        asked: of which the peer computes so many, from the first on.
    """

    def __init__(self, made: Potentials, most: int, asked: int = 256) -> None:
        folder = bk_play.label_folder(made.play, made.folder / "label")
        self.encode, self.play, self.asked = Encoder(minilm_folder()).encode, made.play, asked
        self.ours = made.make("goal", goals=str(folder), goal_by="caption")
        self.windows, following = (Windows(w.rows, w.index[:most], w.actions[:most]) for w in made.play.chunks[:2])
        begun = time.perf_counter()
        self.values = self.ours.phi(self.windows)
        cold = len(self.windows) / (time.perf_counter() - begun)
        self.ours.counts()
        self.ours.phi(following)
        counts = self.ours.counts()
        known = 1 - counts["texts_new"] / counts["texts"]
        self.note = f"cold {cold:,.0f} windows a second; of the texts of the chunk after it {known:.0%} were known"

    def play_ours(self) -> float:
        return rate(self.ours.phi, [self.windows])

    def two_encodes(self) -> float:
        """Raises DifferentOutputs where phi is not ours."""
        bank, (pasts, transitions) = self.ours.bank, self.texts(self.windows)
        begun = time.perf_counter()
        closest = bk_loops.two_encodes(self.encode, bank, pasts, transitions)
        seconds = time.perf_counter() - begun
        sure = np.abs(closest - self.ours.threshold) > 1e-4  # nearer, rounding decides
        expected = np.where(closest > self.ours.threshold, closest, 0)
        assert_close("phi", self.values[: self.asked][sure], expected[sure], 1e-4)
        return len(pasts) / seconds

    def texts(self, windows: Windows) -> tuple[list[str], list[str]]:
        """Of each window what led to the last step, and the last step, as the published captions run on."""
        env, pasts, transitions = self.play.env, [], []
        names = env.env_spec.action_names
        for ids, actions in zip(windows.obs("caption")[: self.asked], windows.actions.tolist(), strict=False):
            *seen, now = env.texts.texts(ids)
            told = [text for s, a in zip(seen, actions, strict=True) if a >= 0 for text in (s, names[a])] + [now]
            pasts.append(". ".join(told[:-2] or told))
            transitions.append(". ".join(told[-3:]))
        return pasts, transitions


class Preferences:
    """One model on both sides, its weights drawn."""

    def __init__(self, made: Potentials) -> None:
        self.chunks, self.note = made.play.chunks, ""
        folder, self.model = bk_preference.model_folder(made.play, made.folder / "prefer")
        self.ours, self.about = made.make("preference", preference=str(folder)), read_about(folder)
        forms = {"by our engine": self.by_our_engine, "in PyTorch": self.in_pytorch}
        for windows in self.chunks[:2]:
            for what, form in forms.items():
                assert_close(f"phi {what}", self.ours.phi(windows), form(windows), 1e-4)
        self.recomputed_windows = better_of({what: self._run(form) for what, form in forms.items()}, self._best)

    def play_ours(self) -> float:
        return rate(self.ours.phi, self.chunks)

    def by_our_engine(self, windows: Windows) -> NDArray[Any]:
        return bk_loops.recomputed_windows(self.ours, windows)

    def in_pytorch(self, windows: Windows) -> NDArray[Any]:
        return bk_preference.in_pytorch(self.model, self.about, windows)

    def _run(self, form: Callable[[Windows], Any]) -> Run:
        return lambda: rate(form, self.chunks)

    def _best(self, best: str) -> None:
        self.note = f"every window encoded anew, {best}"


def judged(options: Options, made: Potentials, name: str, peer: str, match: Callable[[Potentials], Any]) -> Report:
    """Goals or preferences: ours against its one peer."""
    both = match(made)
    case = Case("bk", name, "windows", frozenset({peer}))
    report = compare(case, both.play_ours, {peer: getattr(both, peer)}, options)
    for row in report.rows:
        made.speeds[name] = row.ours
    return Report([replace(row, note=both.note) for row in report.rows], report.skips)


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
    if not made.speeds:
        code(Options(options.quick, 1, options.deadline), made)
    slowest = min(made.speeds, key=lambda name: made.speeds[name])
    seconds = 6.0 if options.quick else 15.0
    ours = speed_of_ours(seconds, options, *WORLD, *TRAINED, *made.words[slowest])
    case = Case("bk", "training", "env_steps", frozenset({"ppo"}))
    case.notes["ppo"] = f"potential {slowest}, the slowest of {', '.join(sorted(made.speeds))}"
    return compare(case, ours, {"ppo": speed_of_ours(seconds, options, *WORLD, *TRAINED)}, options)


def run(options: Options) -> Report:
    report, play = Report(), bk_play.record(3 if options.quick else CHUNKS)
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder:
        made = Potentials(play, Path(folder))
        cases: dict[str, Callable[[], Report]] = {
            "code": lambda: code(options, made),
            "labels": lambda: labels(options, play),
            "preference": lambda: judged(options, made, "preference", "recomputed_windows", Preferences),
            "goal": lambda: judged(
                options, made, "goal", "two_encodes", lambda made: Goals(made, 256 if options.quick else 1024)
            ),
            "training": lambda: training(options, made),
        }
        for name in CASES:
            if options.wants(name):
                report.add(cases[name]())
    return report
