"""`launch.py ask RUN SENTENCE`: a fitted robot drives as it is told, in words, as a picture, or on a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.terminal import run_folder
from llm_service.errors import UsageError

PICTURE = "ask.svg"


def ask(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Name of a run with a fitted robot, or its folder.")],
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="What it shall do.", show_default=False)] = "",
    target: Annotated[str, typer.Option(help="x,y where it shall end, world units from the left upper corner.")] = "",
    samples: Annotated[int, typer.Option(help="Episodes to draw, 1 to 256.")] = 16,
    start: Annotated[str, typer.Option(help="x,y,degrees (clockwise from east) instead of the map's start.")] = "",
    seed: Annotated[int, typer.Option(help="Seed of the samples.")] = 0,
    order: Annotated[
        str, typer.Option(help="In which it names places, for scores: forwards, 'end first' or backwards.")
    ] = "forwards",
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    picture: Annotated[Path | None, typer.Option(help=f"Where to draw it; RUN/{PICTURE} if not given.")] = None,
    page: Annotated[bool, typer.Option("--serve", help="Ask in the browser, until Ctrl-C.")] = False,
    port: Annotated[int, typer.Option(help="Of --serve; 0 takes a free one.")] = 0,
) -> None:
    """Ask a run's robot in words, here or in the browser (--serve)."""
    folder = run_folder(run)
    if page:
        from cluster.cli.ask.server import serve

        return serve(folder, port)
    x_y, pose = numbers("target", target, "x,y"), numbers("start", start, "x,y,degrees")
    from cluster.cli.ask import drawing, telling
    from cluster.cli.ask.robot import Question, Robot
    from learner.files import replace_file

    robot = Robot(folder)
    answer = robot.answer(
        Question(
            sentence,
            (x_y[0], x_y[1]) if x_y else None,
            samples,
            (pose[0], pose[1], pose[2]) if pose else None,
            seed,
            order,
        )
    )
    path = picture or folder / PICTURE
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, drawing.standalone(drawing.drawing(robot.scene, answer)).encode())
    if as_json:
        return print(json.dumps(answer.as_json() | {"picture": str(path)}))
    print(telling.told(answer), f"picture: {path}", sep="\n\n")


def numbers(name: str, text: str, form: str) -> list[float]:
    """The finite numbers of an option such as "420,150"; none if it was not given.

    Raises:
        UsageError: it has another form.
    """
    wrong = UsageError(f"--{name} is {form} in world units, as in 420,150{',90' * (form.count(',') - 1)}: got {text!r}")
    try:
        found = [float(part) for part in text.split(",")] if text else []
    except ValueError:
        raise wrong from None
    if found and len(found) != form.count(",") + 1:
        raise wrong
    return found
