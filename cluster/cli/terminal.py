"""What the command line prints: the overview, a configuration with its sources, and errors in one sentence.

Nothing here imports torch or Ray, so `python launch.py` answers at once.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cluster.config.overrides import options
from cluster.roles.backend import full_disk_in_a_sentence
from cluster.roles.checkout import refuse_foreign_packages
from llm_service.errors import UsageError

T = TypeVar("T")


def print_overview(app: Any) -> None:
    """The help of `python launch.py`: verbs (of a typer app, alone or in groups), methods, envs, experiments."""
    console = Console(highlight=False)
    console.print("[bold]Cairn[/]: language-guided reinforcement learning on Ray and PyTorch\n")
    console.print("Try   [bold green]python launch.py run experiment=toy[/]\n")  # works without a network or a key
    sections: tuple[tuple[str, str, Iterable[tuple[str, str]]], ...] = (
        ("Verbs", "python launch.py VERB --help explains one", _verbs(app)),
        ("Methods", "method=NAME", options("method").items()),
        ("Envs", "env=FAMILY/NAME; all of them: python launch.py run --list-envs", _families()),
        ("Experiments", "experiment=NAME", options("experiment").items()),
        ("Language models", "llm=NAME, for methods that use one", options("llm").items()),
        ("Clusters", "cluster=NAME", options("cluster").items()),
    )
    for title, hint, rows in sections:
        console.print(f"[bold]{title}[/]  [dim]{hint}[/]")
        table = Table.grid(padding=(0, 2))
        table.add_column(style="cyan", no_wrap=True, min_width=16)
        table.add_column()
        for name, text in rows:
            table.add_row(name, text.strip().rstrip("."))
        console.print(Padding(table, (0, 0, 1, 2), expand=False))
    console.print("Any value is KEY=VALUE, as in [bold]actors.n=8[/]; [bold]run --cfg[/] prints every key.")


def _verbs(app: Any, before: str = "") -> Iterable[tuple[str, str]]:
    for command in app.registered_commands:
        yield before + (command.name or command.callback.__name__), command.callback.__doc__
    for group in app.registered_groups:
        yield from _verbs(group.typer_instance, f"{before}{group.name} ")


def _families() -> Iterable[tuple[str, str]]:
    from envs import registry  # after `refuse_foreign_packages` has looked

    described = options("env")
    for family in registry.families():
        names = registry.family(family).names()
        some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        yield family, f"{described.get(family, '')}\n[dim]{len(names)}: {some}[/]"


def print_tree(text: str) -> None:
    """A rendered configuration; values that are not defaults are highlighted."""
    tree = Text(text)
    tree.highlight_regex(r"(?m)# default$", "dim")
    tree.highlight_regex(r"(?m)# (?!default$).*$", "cyan")
    Console(soft_wrap=True, highlight=False).print(tree)


def print_whole(console: Console, table: Table) -> None:
    """Print a table without cutting cells: a pipe gets lines of any length, and a narrow terminal wraps them."""
    needed = console.measure(table, options=console.options.update(max_width=10_000)).maximum
    console.width = max(console.width, needed)
    console.print(table, soft_wrap=True)


def run_folder(name_or_path: str, sweeps: bool = False) -> Path:
    """The folder of a run; with `sweeps`, that of a sweep too."""
    from cluster.runs.folder import find  # imports NumPy

    return find(name_or_path, sweeps=sweeps)


def finish(engine: Callable[[Path], int], folder: Path) -> NoReturn:
    """Exit with the engine's code; if it crashes, the traceback goes into the run's folder."""
    sys.exit(guard(lambda: engine(folder), folder))


def guard(action: Callable[[], T], folder: Path | None = None, checkout: Path | None = None) -> T:
    """Run `action`. An error ends the process with one sentence on stderr and an exit code.

    Args:
        action: what to do.
        folder: the run folder, where the traceback of a crash is written if it exists by then.
        checkout: refuse to begin if a package of ours would be imported from elsewhere.
    """
    try:
        if checkout:
            refuse_foreign_packages(checkout)
        with full_disk_in_a_sentence(f"run {folder.name!r}" if folder else "it"):
            return action()
    except UsageError as error:
        sentence, code = str(error), error.exit_code
    except Exception as error:
        inside = folder if folder and folder.is_dir() else Path(tempfile.mkdtemp(prefix="cairn-"))
        note = inside / "error.txt"
        note.write_text(traceback.format_exc())
        what = str(error).strip().partition("\n")[0]
        sentence, code = f"{type(error).__name__}: {what}; the traceback is in {note}", 1
    Console(stderr=True, soft_wrap=True, highlight=False).print(f"[bold red]error:[/] {escape(sentence)}")
    sys.exit(code)
