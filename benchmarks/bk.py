"""bk: potentials of background knowledge against the published methods, which compute each (env, step) anew.

Windows come from recorded BabyAI play (`peers/bk_play.py`): chunks of 64 players x 16 steps = 1,024 windows of five
views 7 x 7 x 3. Peers are written from the published design (`peers/bk_loops.py`, `peers/bk_labels.py`).

    code          a written program, run in our sandbox's process, against one Python call for each window, on arrays
                  as published or on lists, whichever is faster here. Five programs (`peers/bk_programs.py`) have a row
                  each, `code/NAME`; the row `code` repeats the one with the median ratio. Before timing, all values
                  are compared twice: interpreted, and in the machine code that ours compiles after a program has been
                  called for 32,768 windows. The machine code is timed
    goal          the largest cosine of the last step to any goal, in new play whose sentences were nearly all met
                  before. Peers: the same with each sentence encoded anew, and two MiniLM encodes of captions a window,
                  as published, which is a different phi. `goal/caption`: that phi on both sides, ours on windows that
                  were met before. New play has few of those, so this row is no headline
    preference    a model of preferences that encodes each different view once, against windows recomputed in PyTorch,
                  256, 512 or 1,024 at once, whichever is fastest here. `preference/unshared`: against our own engine
                  with windows recomputed, which is no peer
    labels        preferences by a model that takes 1 s a call, through the durable lane, against the published rounds:
                  start all calls at once, wait for all, sleep 2 s. Both sides have 30 calls in flight; `labels/64`: 64
    training      env steps a second of PPO with a potential, against PPO alone: `training/NAME` for each potential, and
                  `training` for the slowest, if all were measured. PPO alone makes no captions; `goal` needs them, and
                  their cost is included

Limit of `code`: the 0.3 ms round trip to the other process, mostly the kernel's context switch. Limit of `labels`:
30 calls a second, so that no ratio exceeds 3. Limit of `training`: the learner's own time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import ROOT, Case, Options, Report, Run, Skip, compare
from benchmarks.peers import bk_labels, bk_loops, bk_play, bk_programs
from benchmarks.peers.bk_matches import Goals, Potentials, Preferences, assert_close, rate
from benchmarks.peers.bk_play import Play
from benchmarks.train import better_of, speed_of_ours
from learner.windows import Windows
from llm_service.sandbox.process import COMPILED_AFTER

CASES = ("code", "labels", "preference", "goal", "training")
POTENTIALS = ("code", "goal", "preference")
QUICK_ROUNDS, QUICK_SECONDS = 3, 300.0
CHUNKS = 10
"""Chunks of windows: all values are compared, and the chunks are timed one after the other."""
WORLD = f"env={bk_play.LEVEL}"
CAPTIONS = "env.captions=true"
"""Only for `goal`: nothing else reads captions, and they would only slow PPO down."""
GOALS = ROOT / "configs" / "knowledge" / "babyai" / "goals"
"""It holds a bank, so that a run starts with the vectors of its sentences."""
TRAINED = "actors.envs=64", "actors.steps=32", "learner.minibatch=512", "learner.learning_rate=1e-3"


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
        for _ in range(COMPILED_AFTER // sum(map(len, self.chunks)) + 1):  # interpreted, as early in training
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
        """In the form that is faster here."""
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
    if len(rows) == len(bk_programs.PROGRAMS):
        middle, lowest = rows[len(rows) // 2], rows[0]
        note = f"{middle.case}, the median of {len(rows)} programs, {middle.note}; the lowest is {lowest.ratio:.1f}"
        report.rows.insert(0, replace(middle, case="code", headline=True, note=f"{note}, of {lowest.case}"))
    if made.speeds:
        slowest = min(made.speeds, key=lambda name: made.speeds[name])
        made.make("code", program=str(made.folder / f"{slowest}.py"), shows="image")
        made.speeds = {"code": made.speeds[slowest]}
    return report


# ---- goals, preferences ----------------------------------------------------------------------------------------------


def preference(options: Options, made: Potentials) -> Report:
    """Ours against PyTorch, and against our own engine with windows recomputed."""
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
    """By sentence and by caption; the headline is the row with equal outputs on new play."""
    match = Goals(made)
    case = Case("bk", "goal", "windows", frozenset({"sentences_anew"}))
    case.notes["sentences_anew"] = f"the same phi, held to ours in each round, no sentence kept; {match.note}"
    case.notes["two_encodes"] = "another phi than ours: it embeds whole captions, ours adds up sentences"
    peers: dict[str, Run] = {"sentences_anew": match.sentences_anew, "two_encodes": match.two_encodes}
    report = compare(case, match.play_ours, peers, options)
    case = Case("bk", "goal/caption", "windows", notes={"two_encodes": match.note_by_caption})
    report.add(compare(case, match.look_up, {"two_encodes": match.two_encodes}, options))
    return report


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
    """A row for each potential, and the slowest as the headline, which needs all of them."""
    made.says("goal", goals=GOALS)
    made.preferences()
    if "code" not in made.words:
        code(Options(options.quick, 1, options.deadline), made)
    seconds, report = 6.0 if options.quick else 15.0, Report()
    once = replace(options, rounds=1) if options.quick else options
    ppo = speed_of_ours(seconds, options, WORLD, *TRAINED)
    for name in POTENTIALS:
        case = Case("bk", f"training/{name}", "env_steps")
        words = [*made.words[name]]
        if name == "goal":
            words.append(CAPTIONS)
            case.notes["ppo"] = "what goal costs includes captions, which PPO does without"
        ours = speed_of_ours(seconds, options, WORLD, *TRAINED, *words)
        report.add(compare(case, ours, {"ppo": ppo}, once))
    if missing := {f"training/{name}" for name in POTENTIALS} - {row.case for row in report.rows}:
        reason = f"the slowest of {len(POTENTIALS)} potentials is not known without {', '.join(sorted(missing))}"
        report.skips.append(Skip("bk", "training", "env_steps", "ppo", reason))
        return report
    lowest = min(report.rows, key=lambda row: row.ratio)
    note = f"{lowest.case}, the slowest of {len(report.rows)} potentials" + (lowest.note and f"; {lowest.note}")
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
