"""Progress of a run for people: a panel on a terminal, a line every few seconds in a batch log.

Both name the bottleneck: `env` when the learner waits for actors, `learner` when actors wait for it.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from cluster.runs.folder import RunFolder

WINDOW_S = 60.0  # seconds whose speed predicts the rest
SURE_S = 5.0
"""Seconds before the first estimate: chunks that waited for the first update are all learned from at once."""


class Progress:
    """Context manager; call `update` as often as you like.

    folder: every line also goes to its run.log. total: env steps of the run. every_s: seconds between two lines.
    score: what an episode's return counts, "" if success is the main number; as `EnvSpec.score`.
    """

    def __init__(self, folder: RunFolder, total: int, every_s: float, score: str = "") -> None:
        self._folder, self._total, self._every_s, self._score = folder, total, every_s, score
        self._key = "charts/episodic_return" if score else "charts/success_rate"
        self._console = Console()
        self._live = Live(console=self._console, refresh_per_second=4, transient=True) if sys.stdout.isatty() else None
        self._last_line = 0.0
        self._notes: list[str] = []

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def note(self, text: str) -> None:
        """Print and log an event once."""
        self._folder.log(text)
        self._notes = [*self._notes[-3:], text]
        if self._live is None:
            print(text, flush=True)

    def line(self, text: str) -> None:
        """Show the progress of a stage that has no metrics rows for `update`."""
        if self._live is not None:
            self._live.update(Panel("\n".join([text, *self._notes]), title=self._folder.name, title_align="left"))
        self._print(text)

    def update(self, row: dict[str, Any]) -> None:
        """Show a metrics row (see `cluster/stages/_shared/account.py`)."""
        if self._live is not None:
            self._live.update(self._panel(row))
        self._print(self._line(row))

    def _print(self, line: str) -> None:
        """If a line is due, log it, and print it if there is no panel."""
        now = time.monotonic()
        if now - self._last_line >= self._every_s:
            self._last_line = now
            self._folder.log(line)
            if self._live is None:
                print(line, flush=True)

    def _line(self, row: dict[str, Any]) -> str:
        return "  ".join(
            [
                f"steps {row['env_steps']:,}/{self._total:,}",
                f"{row.get('charts/SPS', 0):,.0f}/s",
                f"{self._score or 'success'} {self._shown(row.get(self._key))}",
                f"lag {row.get('policy/lag_mean', 0):.1f}",
                f"actors {row.get('actors_alive', 0)}/{row.get('actors', 0)}",
                f"bottleneck {row.get('bottleneck', '-')}",
                *computed(row),
                f"left {duration(row.get('seconds_left'))}",
            ]
        )

    def _panel(self, row: dict[str, Any]) -> Panel:
        table = Table.grid(padding=(0, 2))
        table.add_row("env steps", ProgressBar(self._total, row["env_steps"], width=32), f"{row['env_steps']:,}")
        table.add_row(*self._outcome(row))
        table.add_row(
            "speed",
            f"{row.get('charts/SPS', 0):,.0f} steps/s",
            f"env {row.get('time/env', 0):.0%}  learner {row.get('time/learner', 0):.0%} busy, "
            f"bottleneck: {row.get('bottleneck', '-')}",
        )
        table.add_row(
            "policy",
            f"version {row['version']}",
            f"lag {row.get('policy/lag_mean', 0):.1f}, "
            f"entropy {row.get('losses/entropy', 0):.2f}, kl {row.get('losses/approx_kl', 0):.3f}",
        )
        table.add_row(
            "actors",
            f"{row.get('actors_alive', 0)} of {row.get('actors', 0)} alive",
            f"{row.get('restarts', 0)} restarts, {row.get('dropped_chunks', 0)} chunks dropped, "
            f"left {duration(row.get('seconds_left'))}",
        )
        if computing := computed(row):
            table.add_row("model", computing[0], ", ".join(computing[1:]))
        for note in self._notes:
            table.add_row("", "", f"[dim]{note.splitlines()[0][:90]}[/dim]")
        return Panel(table, title=self._folder.name, title_align="left", expand=False)

    def _outcome(self, row: dict[str, Any]) -> tuple[Any, ...]:
        """The score or success, as a row of the panel."""
        training, validation = row.get(self._key), row.get("validation")
        words = f"{self._shown(training)} training"
        if validation is not None:
            words += f", {self._shown(validation)} validation"
        if self._score:
            return "score", self._score, words
        return "success", "-" if training is None else ProgressBar(1.0, training, width=32), words

    def _shown(self, outcome: float | None) -> str:
        if outcome is None:
            return "-"
        return f"{outcome:.2f}" if self._score else f"{outcome:.1%}"


class Pace:
    """Estimates the remaining time from the speed of the last minute, so a slow minute is forgotten a minute later.

    Before the first update, roles start, networks compile and a replay fills, so time counts from that update on.

    total: the final count, of whatever is counted.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._points: deque[tuple[float, int]] = deque()

    def reached(self, count: int, warm: bool = True) -> None:
        """Record how much of `total` is done.

        warm: False while the work done is not typical of the rest: time does not count yet.
        """
        if not warm or (self._points and count < self._points[-1][1]):
            self._points.clear()
        if not warm:
            return
        self._points.append((time.monotonic(), count))
        while len(self._points) > 2 and self._points[-1][0] - self._points[1][0] >= WINDOW_S:
            self._points.popleft()

    @property
    def left(self) -> float | None:
        """Seconds until `total` is reached, estimated at the last point; None if there is no estimate yet."""
        if not self._points:
            return None
        (began, first), (now, last) = self._points[0], self._points[-1]
        if last >= self._total:
            return 0.0
        if now - began < SURE_S or last == first:
            return None
        return (self._total - last) * (now - began) / (last - first)


def computed(row: dict[str, Any]) -> list[str]:
    """What a row says of a language model and of the learner's GPU, in words; empty if there is neither."""
    tokens = row.get("charts/tokens_per_second")
    shares = {"charts/mfu": "MFU", "gpu/use": "GPU use", "gpu/memory": "GPU memory"}
    found = [] if tokens is None else [f"{tokens:,.0f} tokens/s"]
    return found + [f"{name} {row[key]:.0%}" for key, name in shares.items() if key in row]


def duration(seconds: float | None) -> str:
    """Seconds in words, `-` if unknown."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
