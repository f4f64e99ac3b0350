"""`launch.py llm cost` and `launch.py llm label`: what a run's language model cost, and labelling jobs from a file.

    inputs.jsonl ──> estimate (--dry-run stops here) ──> durable lane ──> outputs.jsonl, one line for each input

A labelling job may be stopped or killed at any moment: the same command goes on, and pays for nothing twice.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from cluster.overrides import UsageError

llm = typer.Typer(help="Language model calls: what they cost, labelling jobs.", no_args_is_help=True)

WAIT_S = 2.0
"""Between two looks at the jobs that are pending."""
CHUNK = 1000
"""Items of one request."""


@llm.command()
def cost(run: Annotated[str, typer.Argument(metavar="RUN", help="Name of a run, or the path of its folder.")]) -> None:
    """Show what a run's language model calls cost."""
    from cluster.terminal import run_folder

    print_cost(run_folder(run))


@llm.command(name="label")
def label_file(
    task: Annotated[str, typer.Argument(help="A task of the LLM service, such as suggest_goals.")],
    inputs: Annotated[Path, typer.Argument(help="JSON lines, the inputs of one item each.")],
    outputs: Annotated[Path, typer.Argument(help="Takes one JSON line for each.")],
    words: Annotated[list[str] | None, typer.Argument(metavar="[GROUP=NAME|KEY=VALUE]", show_default=False)] = None,
    folder: Annotated[Path, typer.Option(help="Journal and queue; the same folder continues.")] = Path("runs/labels"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what it would cost, and stop.")] = False,
) -> None:
    """Answer a task for every line of a file; may be killed and continued."""
    raise typer.Exit(label(task, inputs, outputs, words or [], folder, dry_run))


@dataclass
class _Cost:
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    dollars: float = 0.0
    malformed: int = 0

    def add(self, line: dict[str, Any]) -> None:
        self.calls += 1
        self.prompt_tokens += line["prompt_tokens"]
        self.completion_tokens += line["completion_tokens"]
        self.dollars += line["dollars"]
        self.malformed += bool(line["error"])


def print_cost(folder: Path) -> None:
    """What was paid for in a folder, by model and task, and what may have been spent beside it.

    Raises:
        UsageError: nothing was, or the files are damaged.
    """
    from llm_service import journal, limits

    inside = folder / "llm" if (folder / "llm").is_dir() else folder
    path = inside / "journal.jsonl"
    if not path.exists():
        raise UsageError(f"{folder} has no {path.name}: no language model was asked there")
    costs: dict[tuple[str, str], _Cost] = defaultdict(_Cost)
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):  # the last one may still be being written
                record = journal.parse(line, path, number)
                costs[record["model"], record["task"] or f"({record['verb']})"].add(record)
    table = Table("model", "task", title=f"language model calls of {folder.name}", title_justify="left")
    for heading in ("calls", "prompt tokens", "reply tokens", "dollars", "unreadable"):
        table.add_column(heading, justify="right")
    for (model, task), cost in sorted(costs.items()):
        table.add_row(
            model,
            task,
            f"{cost.calls:,}",
            f"{cost.prompt_tokens:,}",
            f"{cost.completion_tokens:,}",
            f"{cost.dollars:.4f}",
            f"{cost.malformed:,}",
        )
    console = Console(highlight=False)
    console.print(table)
    spent = limits.read(inside / "ledger.jsonl")
    console.print(f"in all, retries and lost calls included: {spent.tokens:,} tokens, {spent.dollars:.4f} dollars")


def label(task: str, inputs: Path, outputs: Path, words: Sequence[str], folder: Path, dry_run: bool) -> int:
    """Answer a task for every line of a file. Returns the exit code: 0 done, 1 some items failed, 4 budget exhausted.

    Args:
        inputs: JSON lines, each the inputs of one item.
        outputs: JSON lines in the same order: {"status", "value", "reason"}; complete or absent.
        words: configuration, as `llm=openai llm.model=...`.
        folder: of journal, ledger and queue: the same folder continues.

    Raises:
        UsageError: before any call.
    """
    from cluster.config import compose
    from llm_service import tasks

    config = compose(list(words))
    try:
        lines = [json.loads(line) for line in inputs.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise UsageError(f"cannot read {inputs}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{inputs} is not JSON lines: {error}") from None
    if not all(isinstance(line, dict) for line in lines):
        raise UsageError(f"{inputs}: every line must be a JSON object with the inputs of task {task}")
    contents = tasks.contents(task, lines)
    llm = config.llm
    if not llm.world:
        import envs

        folder.mkdir(parents=True, exist_ok=True)
        world = folder / "world.json"
        world.write_text(json.dumps(envs.knowledge(config.env.id.partition("/")[0]), indent=1), encoding="utf-8")
        llm = llm.model_copy(update={"world": str(world)})
    return asyncio.run(_label(llm, task, contents, outputs, folder, dry_run))


async def _label(llm: Any, task: str, contents: tuple[str, ...], outputs: Path, folder: Path, dry_run: bool) -> int:
    from learner.checkpoint import replace_file
    from llm_service import assembly
    from llm_service.records import Ask, Status

    service = await assembly.start(llm.model_copy(update={"consumers": 0}) if dry_run else llm, folder)
    try:
        asks = [Ask("generate", contents[i : i + CHUNK], task) for i in range(0, len(contents), CHUNK)]
        estimates = [await service.estimate(ask) for ask in asks]
        calls, prompt, completion = (
            sum(getattr(e, name) for e in estimates) for name in ("calls", "prompt_tokens", "completion_tokens")
        )
        dollars = sum(e.dollars for e in estimates)
        print(
            f"{len(contents):,} items, {calls:,} calls to {service.backend.model}: at most {prompt:,} + {completion:,} "
            f"tokens, {dollars:.4f} dollars"
        )
        if dry_run:
            return 0
        keys: list[str] = []
        for ask in asks:
            while True:  # a full queue is waited for: consumers empty it
                found, statuses = await service.submit(ask)
                if Status.BUSY not in statuses:
                    break
                await asyncio.sleep(WAIT_S)
            keys += found
        while True:
            answers = [a for i in range(0, len(keys), CHUNK) for a in await service.fetch(keys[i : i + CHUNK])]
            pending = sum(answer.status is Status.PENDING for answer in answers)
            if not pending:
                break
            broke = next((consumer.paused for consumer in service.consumers if consumer.out_of_budget), "")
            if broke:
                print(f"stopped with {pending:,} items to do: {broke}")
                return 4
            print(
                f"{len(answers) - pending:,} of {len(answers):,} answered, {service.ledger.dollars:.4f} dollars",
                flush=True,
            )
            await service.fetch(
                [k for k, a in zip(keys, answers, strict=True) if a.status is Status.PENDING][:CHUNK], WAIT_S
            )
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
