"""`launch.py llm jobs list|retry|drop`: jobs of the durable lane that were given up, called dead letters.

The queue is in the Redis of a run, or of a folder of labels; it may be in use meanwhile. If none is running there, one
is started for the moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from llm_service.errors import UsageError

if TYPE_CHECKING:
    from llm_service.durable.letters import DeadLetters, Letter
    from llm_service.durable.redis_server import RedisConfig

jobs = typer.Typer(help="Jobs for language models that were given up.", no_args_is_help=True)

T = TypeVar("T")
Where = Annotated[str, typer.Argument(metavar="RUN", help="A run, or a folder that holds a journal.")]
Chosen = Annotated[list[str] | None, typer.Argument(metavar="[LETTER]...", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="All of them.")]
Url = Annotated[str, typer.Option("--redis", help="The Redis of a folder that is no run, if it is not its own.")]
PasswordEnv = Annotated[str, typer.Option("--password-env", help="The variable that holds its password.")]


@jobs.command(name="list")
def list_letters(run: Where, redis: Url = "", password_env: PasswordEnv = "") -> None:
    """Show which jobs were given up, and why."""
    found = asyncio.run(_with(_redis(run, redis, password_env), lambda letters: letters.read()))
    if not found:
        return print("no job was given up")
    table = Table(title="jobs that were given up", title_justify="left")
    for heading in ("letter", "queue", "task", "since", "deliveries", "reason"):
        table.add_column(heading, overflow="fold")
    for letter in found:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(letter.at))
        table.add_row(letter.entry, letter.queue, letter.task, since, str(letter.deliveries), letter.reason)
    from cluster.cli.terminal import print_whole

    print_whole(Console(highlight=False, markup=False), table)


@jobs.command()
def retry(
    run: Where, letters: Chosen = None, every: All = False, redis: Url = "", password_env: PasswordEnv = ""
) -> None:
    """Have given-up jobs asked again."""
    from llm_service.durable.letters import DeadLetters

    done = _each(_redis(run, redis, password_env), letters or [], every, DeadLetters.retry)
    print(f"{done:,} back in the queue: a service of the same model and world answers them")


@jobs.command()
def drop(
    run: Where, letters: Chosen = None, every: All = False, redis: Url = "", password_env: PasswordEnv = ""
) -> None:
    """Forget given-up jobs; whoever asks again makes new ones."""
    from llm_service.durable.letters import DeadLetters

    print(f"{_each(_redis(run, redis, password_env), letters or [], every, DeadLetters.drop):,} forgotten")


def _redis(run: str, url: str, password_env: str) -> RedisConfig:
    """Where the queue of a run or a folder is.

    Raises:
        UsageError: there is none.
    """
    from cluster.cli.terminal import run_folder
    from llm_service.durable.redis_server import RedisConfig

    if Path(run, "journal.jsonl").exists():  # of labels, or of a service by itself: it keeps no configuration
        config, inside = RedisConfig(url=url, password_env=password_env), Path(run)
    else:
        from cluster.config import tree

        folder = run_folder(run)
        config, inside = tree.load(folder / "config.yaml").llm.redis, folder / "llm"
    config = config.model_copy(update={"folder": config.folder or str(inside / "redis")})
    if not config.url and not Path(config.folder).is_dir():
        raise UsageError(f"{run} has no job queue: no job was ever submitted there")
    return config


async def _with(config: RedisConfig, what: Callable[[DeadLetters], Awaitable[T]]) -> T:
    from llm_service.durable.letters import DeadLetters
    from llm_service.durable.redis_server import RedisServer

    server = RedisServer(config)
    await server.start()
    try:
        async with server.connect() as client:
            return await what(DeadLetters(client))
    finally:
        await server.stop()


def _each(
    config: RedisConfig, named: list[str], every: bool, act: Callable[[DeadLetters, Letter], Awaitable[bool]]
) -> int:
    """Do it to each letter that is named. Returns to how many it was done.

    Raises:
        UsageError: none is named, or one that is not there; then nothing is done.
    """
    if bool(named) == every:
        raise UsageError("name letters, as `llm jobs list` shows them, or say --all")

    async def work(letters: DeadLetters) -> int:
        found = await letters.read()
        if unknown := set(named) - {letter.entry for letter in found}:
            raise UsageError(f"there is no letter {min(unknown)}: `llm jobs list` shows them")
        return sum([await act(letters, letter) for letter in found if every or letter.entry in named])

    return asyncio.run(_with(config, work))
