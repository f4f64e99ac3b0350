"""`python -m benchmarks [name ...] [--quick] [--json FILE]`: run benchmarks, print one table.

Exit codes: 0 done, 1 a benchmark failed (ours did not run, or outputs differ), 2 usage.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import importlib
import json
import os
import pkgutil
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import ONE_THREAD, ROUNDS, Options, Report, Row, save

FOLDER = Path(__file__).resolve().parent
_HARNESS = {"__main__", "arms", "captioner", "lgqd", "local_client", "measure", "setup", "thresholds"}
QUICK_SECONDS = 45.0
"""Time limit of --quick, unless a benchmark has its own `QUICK_SECONDS`."""


def names() -> list[str]:
    """Every benchmark: the modules of this folder that are not the harness."""
    return sorted(m.name for m in pkgutil.iter_modules([str(FOLDER)]) if not m.ispkg and m.name not in _HARNESS)


def select(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """`name` or `name/case` words -> cases by benchmark, () for all cases.

    Raises:
        LookupError: no such benchmark, with a suggestion.
    """
    if not words:
        return dict.fromkeys(names(), ())
    selected: dict[str, list[str]] = {}
    for word in words:
        name, _, case = word.partition("/")
        if name not in names():
            near = difflib.get_close_matches(name, names(), 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names())}"
            raise LookupError(f"no benchmark {name!r}: {hint}")
        selected.setdefault(name, []).append(case)
    return {name: () if "" in cases else tuple(cases) for name, cases in selected.items()}


def load(name: str, cases: tuple[str, ...]) -> Any:
    """The module of a benchmark.

    Raises:
        LookupError: it lacks one of the cases.
    """
    module = importlib.import_module(f"benchmarks.{name}")
    for case in cases:
        if case not in module.CASES:
            raise LookupError(f"no case {case!r} in {name}: there are {', '.join(module.CASES)}")
    return module


def options_of(module: Any, quick: bool, rounds: int | None, cases: tuple[str, ...]) -> Options:
    """How much of a benchmark to run: the user's choice, otherwise its own numbers."""
    deadline = time.monotonic() + getattr(module, "QUICK_SECONDS", QUICK_SECONDS) if quick else float("inf")
    usual = getattr(module, "QUICK_ROUNDS", 3) if quick else ROUNDS
    return Options(quick, rounds or usual, deadline, cases)


def quantity(value: float) -> str:
    """Three to four digits, thousands with commas."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def print_table(rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("benchmark", "case", "metric", title="ours / peer, medians over rounds", title_justify="left")
    for heading in ("ours", "peer", "ratio", "min..max"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("headline", justify="center")
    for row in rows:
        table.add_row(
            row.benchmark,
            row.case,
            row.metric,
            quantity(row.ours),
            f"{row.peer} {quantity(row.peer_value)}",
            f"{row.ratio:.2f}",
            f"{row.ratio_min:.2f}..{row.ratio_max:.2f}",
            "yes" if row.headline else "",
        )
    # A pipe has no width of its own; a narrow guess would wrap numbers.
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    for row in rows:
        if row.note:
            print(f"{row.id}: {row.note}")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure ours against peers, in turn.")
    parser.add_argument("names", nargs="*", metavar="NAME[/CASE]", help=f"any of {', '.join(names())}; default: all")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, shorter windows; keeps no results")
    parser.add_argument("--rounds", type=int, help=f"rounds of each case (default {ROUNDS}, fewer with --quick)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to this file as a list")
    arguments = parser.parse_args(words)
    if arguments.rounds is not None and arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    try:
        selected = select(arguments.names)
        modules = {name: load(name, cases) for name, cases in selected.items()}
    except LookupError as unknown:
        parser.error(str(unknown))

    total, failed = Report(), False
    for name, module in modules.items():
        print(f"{name}: running, load {os.getloadavg()[0]:.1f}, 1 thread a process", flush=True)
        try:
            report = module.run(options_of(module, arguments.quick, arguments.rounds, selected[name]))
        except Exception:
            traceback.print_exc()
            failed = True
            continue
        total.add(report)
        if not arguments.quick:
            save(FOLDER / "results" / f"{name}.json", name, report)
    print_table(total.rows)
    for skip in total.skips:
        print(f"skipped {skip.id}: {skip.reason}")
    if arguments.json:
        arguments.json.write_text(json.dumps([dataclasses.asdict(row) for row in total.rows], indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        # Libraries read these when they are loaded, and some are loaded already.
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks", *sys.argv[1:]], {**os.environ, **ONE_THREAD})
    sys.exit(main())
