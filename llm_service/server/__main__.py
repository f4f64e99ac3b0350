"""The LLM service as a gRPC server process.

python -m llm_service.server [KEY=VALUE ...] [--config FILE.yaml] [--folder DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from llm_service import settings
from llm_service.errors import ServiceError, UsageError
from llm_service.server import assembly
from llm_service.server.process import Server, serve


async def _run(words: list[str], file: str | None, folder: Path) -> None:
    config = settings.parse(words, file)
    server = Server(await assembly.start(config, folder), config.server, folder, config.name)

    def ready(address: str) -> None:
        where = f", metrics at http://{config.server.metrics_host}:{server.metrics_port}/metrics"
        api = f", OpenAI API at {server.openai_url}" if server.openai_url else ""
        print(f"ready on {address}, backend {config.name}{api}{where if server.metrics_port else ''}", flush=True)

    done = await serve(server, ready)
    print("ended" if done else f"ended; some requests were cut after {config.server.drain_s:g} s", flush=True)


def main() -> int:
    """The command. Returns the exit code: 0, 1 for a failure, 2 for a wrong configuration."""
    parser = argparse.ArgumentParser("python -m llm_service.server", description="Serve language models over gRPC.")
    parser.add_argument("words", nargs="*", metavar="KEY=VALUE", help="configuration, for example name=scripted")
    parser.add_argument("--config", metavar="FILE.yaml", help="YAML file of a configuration to start from")
    parser.add_argument(
        "--folder", type=Path, default=Path("runs/llm_service"), help="folder for address, token and journal"
    )
    given = parser.parse_args()
    try:
        asyncio.run(_run(given.words, given.config, given.folder))
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    except (OSError, ServiceError) as error:
        print(f"the service ended: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
