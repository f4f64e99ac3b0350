"""`launch.py llm cost` and `launch.py llm label`: what a run's language model cost, and labelling jobs from a file.

    inputs.jsonl ──> estimate (--dry-run stops here) ──> durable lane ──> outputs.jsonl, one line for each input

A labelling job may be stopped or killed at any moment: the same command continues it, and pays for nothing twice.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from cluster.cli.job_verbs import jobs
from cluster.cli.serve_verb import serve, write_world
from llm_service.errors import AwayTooLong, Unreachable, UsageError

llm = typer.Typer(help="Language models: what calls cost, labelling jobs, a server.", no_args_is_help=True)
llm.add_typer(jobs, name="jobs")
llm.command()(serve)

WAIT_S = 2.0
"""Seconds between two checks of pending jobs."""
CHUNK = 1000
"""Items in one request."""
PATIENCE_S = 240.0
"""How long the jobs' Redis may be unavailable: on a full disk it ends again and again, until there is room."""
T = TypeVar("T")


@llm.command()
def cost(run: Annotated[str, typer.Argument(metavar="RUN", help="A run, or a folder with a journal.")]) -> None:
    """Show what a run's language model calls cost."""
    from cluster.cli.terminal import run_folder

    print_cost(Path(run) if Path(run, "journal.jsonl").exists() else run_folder(run))


@llm.command(name="label")
def label_file(
    task: Annotated[str, typer.Argument(help="A task of the LLM service, such as suggest_goals.")],
    inputs: Annotated[Path, typer.Argument(help="JSON lines, one item's inputs per line.")],
    outputs: Annotated[Path, typer.Argument(help="Gets one JSON line for each item.")],
    words: Annotated[list[str] | None, typer.Argument(metavar="[GROUP=NAME|KEY=VALUE]", show_default=False)] = None,
    folder: Annotated[Path, typer.Option(help="Journal and queue; the same folder continues.")] = Path("runs/labels"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what it would cost, and exit.")] = False,
) -> None:
    """Answer a task for every line of a file; may be killed and continued."""
    raise typer.Exit(label(task, inputs, outputs, words or [], folder, dry_run))


def print_cost(folder: Path) -> None:
    """What was paid for in a folder, by model and task, and what may have been spent in addition.

    Raises:
        UsageError: nothing was, or the files are damaged.
    """
    from llm_service.pipeline import journal, ledger

    inside = folder / "llm" if (folder / "llm").is_dir() else folder
    path = inside / "journal.jsonl"
    if not path.exists():
        raise UsageError(f"{folder} has no {path.name}: no language model was asked there")
    costs: dict[tuple[str, str], Sequence[float]] = {}  # as the columns of the table
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):  # the last one may still be being written
                record = journal.parse(line, path, number)
                key = record["model"], record["task"] or f"({record['verb']})"
                tokens = record["prompt_tokens"], record["completion_tokens"]
                one = (1, *tokens, record["dollars"], bool(record["error"]))
                costs[key] = [a + b for a, b in zip(costs.get(key, (0, 0, 0, 0.0, 0)), one, strict=True)]
    table = Table(title=f"language model calls of {folder.name}", title_justify="left")
    for heading in ("model", "task"):
        table.add_column(heading, overflow="fold")
    for heading in ("calls", "prompt tokens", "reply tokens", "dollars", "bad form"):
        table.add_column(heading, justify="right")
    for (model, task), (calls, prompt, reply, dollars, malformed) in sorted(costs.items()):
        table.add_row(model, task, f"{calls:,}", f"{prompt:,}", f"{reply:,}", f"{dollars:.4f}", f"{malformed:,}")
    console = Console(highlight=False)
    console.print(table)
    spent = ledger.read(inside / "ledger.jsonl")
    if spent.calls:  # otherwise nothing costs money, and no cap counts tokens
        console.print(f"in all, retries and lost calls included: {spent.tokens:,} tokens, {spent.dollars:.4f} dollars")


def label(task: str, inputs: Path, outputs: Path, words: Sequence[str], folder: Path, dry_run: bool) -> int:
    """Answer a task for every line of a file. Returns the exit code: 0 done, 1 some items failed, 4 budget exhausted.

    inputs: JSON lines, each the inputs of one item.
    outputs: JSON lines in the same order: {"status", "value", "reason"}; complete or absent.
    words: configuration, as `llm=openai llm.model=...`.
    folder: of journal, ledger and queue: the same folder continues.

    Raises `UsageError`, before any call, if words or inputs are wrong; `AwayTooLong` if the jobs' Redis stays away.
    """
    from cluster.config.tree import compose
    from llm_service import tasks

    tasks.task(task)  # before the files: with a wrong task name, the inputs are probably wrong too
    config = compose(list(words))
    if outputs.is_dir() or not outputs.parent.is_dir():
        raise UsageError(f"cannot write {outputs}: name a file in a folder that exists")
    contents = tasks.contents(task, _objects(inputs))
    llm = config.llm
    if not llm.world:
        llm = llm.model_copy(update={"world": str(write_world(config.env, folder))})
    return asyncio.run(_label(llm, task, contents, outputs, folder, dry_run))


def _objects(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file, one per line; a `UsageError` if it cannot be read or a line is not an object."""
    objects: list[dict[str, Any]] = []
    number = 0
    try:
        with path.open(encoding="utf-8", newline="\n") as file:  # other line endings may occur inside a text
            for line in file:
                number += 1
                if line.strip():
                    objects.append(json.loads(line))
                    if not isinstance(objects[-1], dict):
                        raise ValueError
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path}, line {number} is not a JSON object with the inputs of an item") from None
    return objects


async def _label(llm: Any, task: str, contents: tuple[str, ...], outputs: Path, folder: Path, dry_run: bool) -> int:
    from learner.files import replace_file
    from llm_service.records import Answer, Ask, Status
    from llm_service.server import assembly

    service = await assembly.start(llm.model_copy(update={"consumers": 0}) if dry_run else llm, folder)
    try:
        asks = [Ask("generate", contents[i : i + CHUNK], task) for i in range(0, len(contents), CHUNK)]
        estimates = [await service.estimate(ask) for ask in asks]
        counted = ("calls", "prompt_tokens", "completion_tokens", "dollars")
        calls, prompt, completion, dollars = (sum(getattr(e, name) for e in estimates) for name in counted)
        print(
            f"{len(contents):,} items, {calls:,} calls to {service.backend.model}: at most {prompt:,} + {completion:,} "
            f"tokens, {dollars:.4f} dollars"
        )
        if dry_run:
            return 0
        keys: list[str] = []
        for ask in asks:
            while True:  # wait while the queue is full: consumers empty it
                found, statuses = await _insist(service.submit, ask)
                if Status.BUSY not in statuses:
                    break
                if stopped := _out_of_budget(service):
                    print(f"stopped before all items were accepted: {stopped}")
                    return 4
                assert service.queue is not None, "it has just accepted some"
                stats = await _insist(service.queue.stats)
                if not stats["waiting"] + stats["taken"]:
                    raise UsageError("the job queue is empty but accepts no more jobs: raise llm.redis.memory_mb")
                await asyncio.sleep(WAIT_S)
            keys += found
        unique = list(dict.fromkeys(keys))
        known: dict[str, Answer] = {}
        for i in range(0, len(unique), CHUNK):  # one after the other, as they are answered
            pending = unique[i : i + CHUNK]
            while pending:
                known |= dict(zip(pending, await _insist(service.fetch, pending, WAIT_S), strict=True))
                pending = [key for key in pending if known[key].status is Status.PENDING]
                left = len(pending) + len(unique[i + CHUNK :])
                if pending and (stopped := _out_of_budget(service)):
                    print(f"stopped with {left:,} items to do: {stopped}")
                    return 4
                print(f"{len(unique) - left:,} of {len(unique):,}, {service.ledger.dollars:.4f} dollars", flush=True)
        answers = [known[key] for key in keys]
        written = [
            {"status": a.status.name.lower(), "value": a.value if a.ok else None, "reason": a.reason} for a in answers
        ]
        replace_file(outputs, "".join(json.dumps(line) + "\n" for line in written).encode())
        failed = sum(not a.ok for a in answers)
        print(
            f"{len(answers) - failed:,} answers, {failed:,} failures in {outputs}; {service.ledger.dollars:.4f} dollars"
        )
        return 1 if failed else 0
    finally:
        await service.close()


async def _insist(call: Callable[..., Awaitable[T]], *given: Any) -> T:
    """What a call to the job queue returns, once its Redis is there.

    Raises:
        AwayTooLong: it is not, for `PATIENCE_S`. Nothing that was accepted or paid for is lost.
    """
    ends = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await call(*given)
        except Unreachable as trouble:
            if time.monotonic() > ends:
                raise AwayTooLong(f"{trouble}; then the same command goes on") from None
        await asyncio.sleep(WAIT_S)


def _out_of_budget(service: Any) -> str:
    """Why no more jobs are accepted; "" while they are."""
    return next((consumer.paused for consumer in service.consumers if consumer.out_of_budget), "")
