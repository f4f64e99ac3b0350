"""The service as a process of its own, for `python -m llm_service.server` and `launch.py llm serve`."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from llm_service.errors import ServiceError, UsageError
from llm_service.server import assembly
from llm_service.server.process import Server, serve
from llm_service.settings import LLMConfig


def run(config: LLMConfig, folder: Path, ready: Callable[[Server], str]) -> int:
    """Serve until a signal. Returns the exit code: 0, or 1 for a failure.

    ready: what to print once the server listens.

    Raises:
        UsageError: it cannot start as configured.
    """

    async def served() -> bool:
        server = Server(await assembly.start(config, folder), config.server, folder, config.name)
        return await serve(server, lambda _: print(ready(server), flush=True))

    try:
        done = asyncio.run(served())
    except UsageError:
        raise
    except (OSError, ServiceError) as error:
        print(f"the service ended: {error}", file=sys.stderr)
        return 1
    print("ended" if done else f"ended; some requests were cut after {config.server.drain_s:g} s", flush=True)
    return 0


def leave(code: int) -> NoReturn:
    """End the process after `run`, which has closed everything: taking a loaded model apart would need seconds more."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
