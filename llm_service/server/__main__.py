"""The LLM service as a gRPC server process.

python -m llm_service.server [KEY=VALUE ...] [--config FILE.yaml] [--folder DIR]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from llm_service import settings
from llm_service.errors import UsageError
from llm_service.server.process import Server
from llm_service.server.standalone import leave, run


def _ready(server: Server) -> str:
    """What is printed once it listens."""
    api = f", OpenAI API at {server.openai_url}" if server.openai_url else ""
    metrics = f", metrics at {server.metrics_url}" if server.metrics_url else ""
    return f"ready on {server.address}, backend {server.backend}{api}{metrics}"


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
        return run(settings.parse(given.words, given.config), given.folder, _ready)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    leave(main())
