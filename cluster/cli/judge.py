"""`launch.py judge RUN`: people rate a run's behaviours in the browser (docs/judging.md)."""

from __future__ import annotations

from typing import Annotated

import typer

from cluster.cli.terminal import run_folder


def judge(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Name of a run, or the path of its folder.")],
    rater: Annotated[str, typer.Option(help="Who rates; the page asks if it is not given.")] = "",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 0,
    trials: Annotated[int, typer.Option(help="How many to rate, at most.")] = 128,
) -> None:
    """Rate in a browser how well a run's behaviours did what was asked."""
    from cluster.judge.server import serve

    serve(run_folder(run), rater, port, trials)
