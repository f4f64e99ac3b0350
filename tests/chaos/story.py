"""A schedule, carried out: start, let the fault happen, go on; at last without any, and a look at everything."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.chaos import injected
from tests.chaos.injected import BALLAST, Point
from tests.chaos.schedules import Fault, Schedule
from tests.chaos.whole import torn
from tests.chaos.wire import Outside
from tests.chaos.works import ROLES, Work, lines

SMALL_DISK = "32m"
PATIENCE_S = 240.0
ROOM_AFTER_S = 3.0
"""So long a full disk stays full for a work that waits for room."""
HARMLESS = ("lock", "redis.lock", "redis.sock", "run.log", "redis.log", "error.txt")


@dataclass
class Undisturbed:
    """What a work does when nothing happens to it."""

    truth: dict[str, Any]
    changes: dict[str, int]  # by process
    progress: float


@dataclass
class Story:
    """A work, and what has happened to it. `told` says it in a few words."""

    work: Work
    outside: Outside
    folder: Path
    told: list[str] = field(default_factory=list)
    chances: int = 0  # to have been billed for an answer that nobody wrote down
    damaged: Path | None = None
    lost: set[str] = field(default_factory=set)
    ledger_lost: bool = False
    real_disk: bool = False
    _starts: int = 0
    _service: Any = None
    _ended: list[psutil.Process] = field(default_factory=list)

    def undisturbed(self) -> Undisturbed:
        self._serve(Point(0))
        code = self._wait(self._start(Point(0)))
        assert code == 0, self.printed()
        counted = {"controller": injected.changes(self._log)}
        progress, truth = self.work.progress(), self.work.truth()
        self._end_service()
        if self.work.service():
            counted["service"] = injected.changes(self.folder / "service.txt")
        assert not self.complaints(truth), self.complaints(truth)
        return Undisturbed(truth, counted, progress)

    def tell(self, schedule: Schedule, reference: Undisturbed) -> list[str]:
        """Carry it out. Returns what is wrong at the end, one sentence each."""
        for number, fault in enumerate(schedule.faults):
            if trouble := self._under(fault, reference, number):
                return [trouble]
        if trouble := self._to_the_end():
            return [trouble]
        self._end_service()
        return self.complaints(reference.truth)

    def complaints(self, truth: dict[str, Any]) -> list[str]:
        found, here = [], self.work.truth()
        for name, value in truth.items():
            if name == "rows" and self.damaged and self.damaged.name == "metrics.jsonl":
                if not set(here[name]) <= set(value):
                    found.append(f"rows: {here[name]} are not of {value}")
            elif here.get(name) != value:
                found.append(f"{name}: {str(here.get(name))[:300]}, where it should be {str(value)[:300]}")
        found += torn(self.work.disk, self.damaged)
        if self.work.asks:
            found += self.work.trouble_with_money(self.chances, self.lost, self.ledger_lost)
        return found

    # ---- one start ----------------------------------------------------------------------------------------------

    def _under(self, fault: Fault, reference: Undisturbed, number: int) -> str:
        """One start under a fault. Returns what is wrong at once."""
        kind = "kill" if fault.kind == "truncate" else fault.kind
        at = 1 + int(fault.when * reference.changes.get(fault.who, 0) / (1 + number))  # who goes on has less to do
        point = Point(at, kind, fault.amount[0], self.real_disk)
        inside = fault.who in reference.changes and "Ray" not in self.work.name and self.work.name != "policy server"
        self._serve(point if inside and fault.who == "service" else Point(0))
        process = self._start(point if inside and fault.who == "controller" else Point(0))
        if not inside:
            self._when(lambda: self.work.progress() >= fault.when * reference.progress, process)
            self._befall(fault, process)
        code = self._wait(process)
        self.told.append(f"{fault.kind} of {fault.who}: {code}")
        self._free()
        if code != 0 and self.work.asks and self.work.name != "ask":
            self.chances += 1  # its service ended with it
        allowed = {"kill": (-signal.SIGKILL, 0), "truncate": (-signal.SIGKILL, 0), "full disk": (5, 0)}
        if code not in allowed.get(fault.kind, (0,)) and not (self.damaged and code in (1, 2)):
            return f"{fault.kind}: it ended with {code}: {self.printed()[-1500:]}"
        if fault.kind == "truncate":
            self._truncate(fault)
        return ""

    def _to_the_end(self) -> str:
        """Go on without a fault. What was damaged on purpose may be refused, in one sentence, until it is whole."""
        self._serve(Point(0))
        code = self._wait(self._start(Point(0)))
        if code != 0 and self.damaged is not None:
            said = self.printed(last=True)
            self.told.append(f"refused: {said.strip()[-200:]}")
            if "error:" not in said or "Traceback" in said or "the traceback is in" in said:
                return f"a damaged file is not refused in a sentence: {said[-1500:]}"
            if self.damaged.name.partition("-a0")[0] not in said and "checkpoint" not in said:
                return f"it is not said which file is damaged: {said[-1500:]}"
            self.damaged.write_bytes(self._before)
            code = self._wait(self._start(Point(0)))
        self.told.append(f"at last: {code}")
        return "" if code == 0 else f"it does not go on, but ends with {code}: {self.printed(last=True)[-1500:]}"

    def _start(self, point: Point) -> Any:
        self._starts += 1
        self._log = self.folder / f"printed-{self._starts}.txt"
        environment = {"CAIRN_LLM_TOKEN": self._token} if self._service else {}
        return injected.start(self.work.command(), self.work.disk, self._log, point, **environment)

    def _wait(self, process: Any) -> int:
        """Until it ends; a service beside it that was killed is started again, and a full disk gets room."""
        ends, full_since = time.monotonic() + PATIENCE_S, 0.0
        while process.exitcode is None:
            process.join(0.1)
            if self._service is not None and self._service.exitcode is not None:
                self.told.append(f"service: {self._service.exitcode}")
                self.chances += 1
                self._free()
                self._serve(Point(0))
            if self.work.asks and (self.work.disk / BALLAST).exists():
                full_since = full_since or time.monotonic()
                if time.monotonic() - full_since > ROOM_AFTER_S:
                    self._free()
            if time.monotonic() > ends:
                self.told.append(f"hangs after {PATIENCE_S:.0f} s")
                process.kill()
                process.join()
                return -99
        return int(process.exitcode)

    def _free(self) -> None:
        (self.work.disk / BALLAST).unlink(missing_ok=True)

    def _when(self, condition: Callable[[], bool], process: Any) -> None:
        ends = time.monotonic() + PATIENCE_S
        while process.exitcode is None and time.monotonic() < ends and not condition():
            time.sleep(0.02)

    def _befall(self, fault: Fault, process: Any) -> None:
        """What comes from outside."""
        if process.exitcode is not None:
            return
        if fault.kind == "cut":
            return self.outside.cut(3 * fault.amount[0])
        ours = psutil.Process(process.pid).children(recursive=True)
        self._ended += ours
        if fault.who == "controller":
            return process.kill()
        names = ("redis-server",) if fault.who == "redis" else ROLES[fault.who]
        found = [child for child in ours if any(name in _called(child) for name in names)]
        if found:
            found[int(fault.amount[0] * len(found))].kill()
            self.chances += fault.who == "service"
        else:
            self.told.append(f"no {fault.who} was there yet")

    def _truncate(self, fault: Fault) -> None:
        """Cut a file of the run: any but those that hold nothing."""
        if self.damaged is not None:
            return
        files = [
            path
            for path in sorted(self.work.disk.rglob("*"))
            if path.is_file()
            and not any(part.startswith(".") for part in path.relative_to(self.work.disk).parts)
            and path.name not in HARMLESS
            and "attempts" not in path.parts
            and path.stat().st_size
        ]
        if not files:
            return
        self.damaged = files[int(fault.amount[0] * len(files))]
        self._before = self.damaged.read_bytes()
        left = int(fault.amount[1] * len(self._before))
        os.truncate(self.damaged, left)
        self.told.append(f"{self.damaged.relative_to(self.work.disk)} cut to {left} of {len(self._before)} bytes")
        if self.damaged.name == "journal.jsonl":
            kept = {json.loads(line)["key"] for line in lines(self.damaged)}
            whole = self._before.splitlines(keepends=True)
            self.lost = {json.loads(line)["key"] for line in whole if line.endswith(b"\n")} - kept
        self.ledger_lost = self.damaged.name == "ledger.jsonl"

    # ---- the service beside it, and what is left ------------------------------------------------------------------

    def _serve(self, point: Point) -> None:
        """Have a service that listens; one that a fault ends before is started again."""
        command = self.work.service()
        while command is not None and (self._service is None or self._service.exitcode is not None):
            self._token = getattr(self, "_token", secrets.token_hex(16))
            log = self.folder / "service.txt"
            self._service = injected.start(command, self.work.disk, log, point, CAIRN_LLM_TOKEN=self._token)
            while self._service.exitcode is None and not self.outside.answers():
                time.sleep(0.05)
            if self._service.exitcode is not None:
                self.told.append(f"service: {self._service.exitcode} as it started")
                self._free()
                point = Point(0)

    def _end_service(self) -> None:
        if self._service is not None:
            self._service.terminate()
            self._service.join(60)
            self._service = None

    def printed(self, last: bool = False) -> str:
        """What its processes have printed."""
        logs = [self._log] if last else sorted(self.folder.glob("*.txt"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')}" for log in logs if log.exists())

    def close(self) -> None:
        """End what is left of it."""
        if self._service is not None:
            self._service.kill()
        for process in self._ended:
            with contextlib.suppress(psutil.Error):
                process.kill()


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A disk of its own that is soon full; False where it may not be mounted."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(folder)]
    mounted = os.getuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _called(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()) + " " + process.name()
    except psutil.Error:
        return ""
