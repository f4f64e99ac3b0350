"""`python benchmarks/setup.py [family ...]`: one virtual environment for each peer family, under `.bench/`.

The peers' pins conflict, so each `peers/<family>.txt` gets an environment of its own. An environment that is up to date
is left alone. A family that cannot be installed is reported; its rows are skipped later.

Limit: the downloads; each environment holds its own copy of torch.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "benchmarks" / "peers"
ENVIRONMENTS = ROOT / ".bench"


def families() -> list[str]:
    return sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))


def is_current(family: str) -> bool:
    """Whether the environment was completed with the current requirements."""
    stamp = ENVIRONMENTS / family / "requirements.txt"
    return stamp.exists() and stamp.read_text() == (REQUIREMENTS / f"{family}.txt").read_text()


def build(family: str) -> str | None:
    """Rebuild the environment; the reason if that failed. The stamp comes last: a partial build is not current."""
    folder, requirements = ENVIRONMENTS / family, REQUIREMENTS / f"{family}.txt"
    shutil.rmtree(folder, ignore_errors=True)
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", str(requirements)],
    ):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            errors = [line for line in done.stdout.splitlines() if "error" in line.lower()]
            return (errors or done.stdout.splitlines() or ["no output"])[-1]
    (folder / "requirements.txt").write_text(requirements.read_text())
    return None


def main(words: Sequence[str]) -> int:
    """Returns 0 if every family can be used now, 1 if one cannot, 2 for an unknown name."""
    unknown = sorted(set(words) - set(families()))
    if unknown:
        print(f"no peer family {unknown[0]!r}: there are {', '.join(families())}")
        return 2
    failures = 0
    for family in words or families():
        if is_current(family):
            print(f"{family}: up to date")
            continue
        print(f"{family}: installing", flush=True)
        reason = build(family)
        failures += reason is not None
        print(f"{family}: not installed, its rows will be skipped: {reason}" if reason else f"{family}: ready")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
