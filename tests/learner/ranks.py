"""Two learner ranks, each a process of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from learner.optim.collective import LOOPBACK, free_address

ROOT = Path(__file__).resolve().parents[2]


def both(module: str, function: str, *arguments: Any, host: str = LOOPBACK) -> list[Any]:
    """What `function(*arguments, rank, address)` of a test module prints last, as JSON, with rank 0 and rank 1."""
    address = free_address(host)
    code = f"from tests.learner.{module} import {function}; {function}(*{arguments!r}, {{}}, {address!r})"
    ranks = [
        subprocess.Popen([sys.executable, "-c", code.format(rank)], stdout=subprocess.PIPE, cwd=ROOT)
        for rank in range(2)
    ]
    try:
        return [json.loads(rank.communicate(timeout=120)[0].splitlines()[-1]) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
