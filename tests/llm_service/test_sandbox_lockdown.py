"""What a locked-down process can still do, tried from within, with the filter of system calls and without it."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from llm_service.sandbox import lockdown

FOLDER = Path(__file__).resolve().parents[2] / "llm_service" / "sandbox"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these are protections of Linux")


class Attempt(NamedTuple):
    body: str
    killed: bool = True  # by the filter; else it fails by itself
    else_by: str = ""  # which protection stops it where there is no filter; empty: none
    free: bool = True  # possible before; tried in a fork first


ATTEMPTS = {
    "read": Attempt("open('/etc/passwd').read()", else_by="limits"),
    "read its environment": Attempt("open('/proc/self/environ').read()", else_by="limits"),
    "open the folder": Attempt("os.open('.', os.O_RDONLY)", else_by="limits"),
    "list": Attempt("os.listdir('/')", else_by="limits"),
    "write": Attempt("open(FILE, 'w')", else_by="limits"),
    "look for": Attempt("os.stat('/etc/passwd')", else_by="empty root"),
    "make a folder": Attempt("os.mkdir(FILE + word); os.rmdir(FILE + word)", else_by="empty root"),
    "rename": Attempt("os.rename(FILE + '.open', FILE + '.open')", else_by="empty root"),
    "fill a file that was left open": Attempt("os.write(LEFT_OPEN, b'x')", else_by="limits"),
    "connect by TCP": Attempt("socket.socket().connect(('127.0.0.1', PORT))", else_by="limits"),
    "connect by a unix socket": Attempt("socket.socket(socket.AF_UNIX).connect(FILE + '.socket')", else_by="limits"),
    "make a file in memory": Attempt("os.memfd_create('x')", else_by="limits"),
    "make a pipe": Attempt("os.pipe()", else_by="limits"),
    "fork": Attempt("os.fork() or os._exit(0)", else_by="limits"),
    "start a thread": Attempt("threading.Thread(target=int).start()", else_by="limits"),
    "become a program": Attempt("os.execv('/bin/echo', ['echo', word])", else_by="empty root"),
    "signal its parent": Attempt("os.kill(os.getppid(), 0)"),
    "signal itself": Attempt("os.kill(os.getpid(), 0)"),
    "trace": Attempt("assert libc.ptrace(0, 0, 0, 0) == 0"),
    "make memory executable": Attempt("mmap.mmap(-1, 4096, prot=mmap.PROT_WRITE | mmap.PROT_EXEC)"),
    "raise a limit": Attempt("resource.setrlimit(resource.RLIMIT_NOFILE, (99, 99))", else_by="limits"),
    "use a call of 32 bits": Attempt("libc.syscall(0x40000000 + 39)", free=False),
    "read the clock by a call": Attempt(
        "assert libc.syscall(lockdown._CLOCK[os.uname().machine], 0, BUFFER) == 0", False
    ),
    "import": Attempt("import decimal", False, "limits"),
    "take memory": Attempt("bytearray(8 << 30)", False, "memory limit", free=False),
    "take memory in small pieces": Attempt("[bytearray(1 << 20) for _ in range(9000)]", False, "memory limit", False),
    "loop": Attempt("while True: pass", False, "limits", free=False),
}

REFUSALS = {kind.__name__ for kind in (OSError, FileNotFoundError, PermissionError, BlockingIOError)}
REFUSALS |= {"ModuleNotFoundError", "MemoryError", "RuntimeError", "ValueError"}

SCRIPT = """
import ctypes, errno, mmap, os, resource, socket, sys, threading
sys.path.insert(0, sys.argv[1])
import lockdown

FILE, PORT, LEFT_OPEN = sys.argv[2], int(sys.argv[3]), 300
libc = ctypes.CDLL(None, use_errno=True)
BUFFER = ctypes.create_string_buffer(64)
os.dup2(os.open(FILE + ".open", os.O_CREAT | os.O_WRONLY), LEFT_OPEN)

class WithoutSeccomp:
    def prctl(self, option, *values):
        if option == 22:
            ctypes.set_errno(errno.EINVAL)
            return -1
        return libc.prctl(option, *values)

    def __getattr__(self, name):
        return getattr(libc, name)

def attempt(word):
    {body}
    os.write(1, word.encode() + b"\\n")

if {free} and os.fork() == 0:
    attempt("free")
    os._exit(0)
if {free}:
    os.wait()
if not {seccomp}:
    lockdown._libc = WithoutSeccomp()
held = lockdown.lock_down(64 << 20, 0.1) + lockdown.filter_system_calls()
os.write(1, (",".join(held) + "\\n").encode())
try:
    attempt("locked")
except BaseException as error:
    os.write(1, type(error).__name__.encode())
os._exit(0)
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A file name, and servers on a TCP port and on a unix socket."""
    path = str(tmp_path_factory.mktemp("sandbox") / "file")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(path + ".socket")
        unix.listen(64)
        yield [path, str(server.getsockname()[1])]


def lines(attempt, target, seccomp):
    script = SCRIPT.format(body=attempt.body, free=attempt.free, seccomp=seccomp)
    command = [sys.executable, "-I", "-S", "-B", "-c", script, str(FOLDER), *target]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    told = done.stdout.splitlines()
    if attempt.free:
        assert told.pop(0) == "free", done.stderr  # without protections it works: what follows means something
    assert told, done.stderr
    return told[0].split(","), told[1:], done.returncode


@pytest.mark.parametrize("name", ATTEMPTS)
def test_nothing_is_possible_behind_the_filter(name, target):
    attempt = ATTEMPTS[name]
    held, told, code = lines(attempt, target, seccomp=True)
    if "seccomp" not in held:
        pytest.skip("this kernel has no seccomp")
    assert "locked" not in told
    if attempt.killed:
        assert (told, code) == ([], -signal.SIGSYS)


@pytest.mark.parametrize("name", [name for name, attempt in ATTEMPTS.items() if attempt.else_by])
def test_most_is_impossible_without_the_filter(name, target):
    attempt = ATTEMPTS[name]
    held, told, code = lines(attempt, target, seccomp=False)
    assert "seccomp" not in held
    if attempt.else_by not in held:
        pytest.skip(f"this machine does not allow: {attempt.else_by}")
    assert code == -signal.SIGKILL if name == "loop" else told[0] in REFUSALS


NUMBERS = {  # read, write, mmap, mprotect, munmap, brk, rt_sigreturn, mremap, madvise, exit, futex, clock, exit_group
    "x86_64": (0, 1, 9, 10, 11, 12, 15, 25, 28, 60, 202, 228, 231),
    "aarch64": (63, 64, 93, 94, 98, 113, 139, 214, 215, 216, 222, 226, 233),
}


def verdict(machine, call, arguments=(0, 0, 0), architecture=None):
    """What the filter says, as the kernel would run it."""
    architecture = lockdown._AUDIT_ARCHITECTURE[machine] if architecture is None else architecture
    words = {0: call, 4: architecture} | {16 + 8 * i: value for i, value in enumerate(arguments)}
    lines, place, register = lockdown._filter(machine), 0, 0
    while True:
        operation, yes, no, operand = lines[place]
        place += 1
        if operation == 0x06:
            return {0x7FFF0000: "allow", 0x00050001: "fail", 0x80000000: "kill"}[operand]
        if operation == 0x20:
            register = words[operand]
        else:
            place += yes if (register == operand if operation == 0x15 else register & operand) else no


@pytest.mark.parametrize("machine", NUMBERS)
def test_the_filter_of_each_machine(machine):
    """Also of those that these tests do not run on."""
    read, write = lockdown._READ_WRITE[machine]
    assert sorted(c for c in range(1200) if verdict(machine, c) != "kill") == sorted(set(NUMBERS[machine]) - {write})
    assert verdict(machine, read, (0,)) == verdict(machine, write, (1,)) == "allow"
    assert verdict(machine, read, (3,)) == verdict(machine, write, (2,)) == "kill"
    for call in lockdown._MAPPING[machine]:
        assert verdict(machine, call, (0, 0, 3)) == "allow"
        assert verdict(machine, call, (0, 0, 7)) == "kill"
    assert verdict(machine, lockdown._CLOCK[machine]) == "fail"
    assert verdict(machine, read, architecture=0x40000003) == "kill"  # 32-bit calls have other numbers


@pytest.mark.skipif(os.getuid() != 0, reason="started by root only")
def test_root_becomes_nobody(target):
    held, told, _ = lines(
        Attempt("assert os.getresuid() == (65534,) * 3 and not os.getgroups()", free=False), target, 0
    )
    assert "not root" in held
    assert told == ["locked"]
