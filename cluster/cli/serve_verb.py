"""`launch.py llm serve`: any language model, or a policy that a run exported, as an OpenAI-compatible server.

    words ──> configuration ──> the LLM service of `llm_service/server`, with its OpenAI-compatible API

It is the same process as `python -m llm_service.server`, so both APIs share model, journal, caps and token.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cluster.config.sections import EnvConfig
    from llm_service.server.process import Server

DRAIN_S = 1.5
"""Seconds that requests in progress have at the end, unless the words say otherwise."""


def serve(
    words: Annotated[list[str] | None, typer.Argument(metavar="[GROUP=NAME|KEY=VALUE]", show_default=False)] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0: a free one.")] = 8000,
    folder: Annotated[Path, typer.Option(help="Token, journal and ledger; the same folder continues.")] = Path(
        "runs/served"
    ),
) -> None:
    """Serve a language model over an OpenAI-compatible API, until Ctrl-C."""
    from cluster.config.tree import compose
    from llm_service.server.standalone import leave, run

    given = words or []
    config = compose([f"llm.server.drain_s={DRAIN_S}", *given])
    llm = config.llm
    updates = {} if llm.server.openai else {"openai": f"127.0.0.1:{port}"}
    llm = llm.model_copy(update={"server": llm.server.model_copy(update=updates)})
    # The scripted model speaks of an environment; for others, describing one would only change the names of jobs.
    if not llm.world and any(word.startswith("env=") for word in given):
        llm = llm.model_copy(update={"world": str(write_world(config.env, folder))})

    def ready(server: Server) -> str:
        return f"serving {server.backend} at {server.openai_url}; the token is in {server.token_place}; Ctrl-C ends"

    leave(run(llm, folder, ready))


def write_world(env: EnvConfig, folder: Path) -> Path:
    """Write what an environment says about itself into a folder, for prompts. Returns the file."""
    import envs
    from learner.files import replace_file

    folder.mkdir(parents=True, exist_ok=True)
    world = folder / "world.json"
    replace_file(world, json.dumps(envs.knowledge(env.id.partition("/")[0], env.options), indent=1).encode())
    return world
