"""What a process gives up before it runs a program that a model wrote: nearly everything, permanently.

    held = lock_down(memory_bytes=512 << 20, cpu_s=60) + filter_system_calls()

Each protection is tried separately, since kernels and containers differ. The functions return the names of those that
hold. Protections overlap on purpose: `seccomp` alone forbids everything but computing and answering. Without it the
others still remove access to files and network, drop privileges, and limit memory and time.

The order matters. An empty root needs the rights of a new user namespace or of root. Changing the user clears the
parent-death signal. The filter comes last, because it forbids all these calls and also making memory executable. So
programs are compiled to machine code after all other protections are in place, but before the filter.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import struct
import sys
import tempfile
from collections.abc import Callable

PROTECTIONS = (
    "no writable code",  # no memory is both writable and executable, even if a library mapped some
    "namespaces",  # a network without interfaces, private mounts and message queues
    "empty root",  # its root is an empty folder that has been deleted
    "not root",  # if started by root, it becomes nobody
    "no capabilities",
    "limits",  # CPU time, file sizes; no new file descriptors, no new processes, no core
    "memory limit",
    "no new privileges",
    "not dumpable",  # other processes of the same user cannot trace it or read its memory
    "dies with its parent",
    "seccomp",  # any system call outside a short list kills it
)

_NOBODY = 65534
_NAMESPACES = 0x00020000 | 0x08000000 | 0x40000000  # CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWNET
_USER_NAMESPACE = 0x10000000  # allows an ordinary user to create the others

_SET_DEATH_SIGNAL, _SET_DUMPABLE, _SET_SECCOMP, _SET_NO_NEW_PRIVILEGES = 1, 4, 22, 38  # prctl(2)

# Its own memory, locks (though it has only one thread), and exiting. System call numbers per machine: mremap, munmap,
# brk, madvise, futex, rt_sigreturn, exit, exit_group.
_FREE = {"x86_64": (25, 11, 12, 28, 202, 15, 60, 231), "aarch64": (216, 215, 214, 233, 98, 139, 93, 94)}
_READ_WRITE = {"x86_64": (0, 1), "aarch64": (63, 64)}  # each on one descriptor only: read from 0, write to 1
_MAPPING = {"x86_64": (9, 10), "aarch64": (222, 226)}  # mmap, mprotect: never executable
# clock_gettime fails but does not kill: Python calls it at each lock, as a system call if the vDSO has no clock.
_CLOCK = {"x86_64": 228, "aarch64": 113}
_AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # <linux/audit.h>
_PROT_READ, _PROT_EXEC = 1, 4

_libc = ctypes.CDLL(None, use_errno=True)


def lock_down(memory_bytes: int, cpu_s: float) -> tuple[str, ...]:
    """Irreversibly give up all but descriptors 0 and 1 and computing. `filter_system_calls` is the remaining step.

    Import everything needed before: afterwards no file can be opened.

    Args:
        memory_bytes: address space beyond the current use.
        cpu_s: CPU time beyond the current use, rounded up to whole seconds. After it the kernel kills this process.

    Returns:
        The names in PROTECTIONS that hold.
    """
    held: list[str] = []

    def attempt(name: str, step: Callable[[], object]) -> None:
        if _holds(step):
            held.append(name)

    root = os.getuid() == 0
    os.closerange(2, 256)
    in_use = _address_space()  # read while /proc is still there
    attempt("no writable code", _protect_code)
    _enter_empty_folder()
    attempt("namespaces", lambda: _call("unshare", _NAMESPACES | (0 if root else _USER_NAMESPACE)))
    attempt("empty root", lambda: os.chroot("."))
    attempt("not root", _become_nobody if root else lambda: None)
    attempt("no capabilities", _drop_capabilities)
    attempt("limits", lambda: _limit(cpu_s))
    attempt("memory limit", lambda: _set_limit(resource.RLIMIT_AS, in_use + memory_bytes))
    attempt("no new privileges", lambda: _prctl(_SET_NO_NEW_PRIVILEGES, 1))
    attempt("not dumpable", lambda: _prctl(_SET_DUMPABLE, 0))
    attempt("dies with its parent", lambda: _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL))
    sys.path.clear()
    sys.meta_path.clear()  # a late import fails, instead of opening a file and being killed
    return tuple(held)


def filter_system_calls() -> tuple[str, ...]:
    """Permanently give up all but reading descriptor 0, writing descriptor 1 and non-executable memory.

    Returns:
        ("seccomp",) if the filter holds, otherwise ().
    """
    return ("seccomp",) if _holds(_filter_system_calls) else ()


def _holds(step: Callable[[], object]) -> bool:
    try:
        step()
    except (OSError, ValueError, AttributeError):  # AttributeError: the C library lacks the call
        return False
    return True


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), name)


def _prctl(option: int, *values: int | ctypes.c_void_p) -> None:
    given = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in values]
    _call("prctl", option, *given, *[ctypes.c_ulong(0)] * (4 - len(given)))


def _address_space() -> int:
    """Bytes of address space in use."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 1 << 30  # without /proc, a guess above what Python and NumPy use


def _protect_code() -> None:
    """Remove the write permission from all executable memory."""
    with open("/proc/self/maps") as file:
        places = [line.split()[:2] for line in file]
    for place, rights in places:
        if "w" in rights and "x" in rights:
            begin, end = (int(address, 16) for address in place.split("-"))
            _call("mprotect", ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _PROT_READ | _PROT_EXEC)


def _enter_empty_folder() -> None:
    """Change to a new folder and delete it: it is empty, and nothing can be created in it."""
    try:
        folder = tempfile.mkdtemp()
        os.chdir(folder)
        os.rmdir(folder)
    except OSError:
        os.chdir("/")


def _become_nobody() -> None:
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)


def _drop_capabilities() -> None:
    header = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    _call("capset", header, bytes(24))


def _set_limit(which: int, most: int) -> None:
    hard = resource.getrlimit(which)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (most, most))


def _limit(cpu_s: float) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _set_limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime + cpu_s) + 1)
    for which in ("FSIZE", "NOFILE", "NPROC", "CORE", "MEMLOCK", "MSGQUEUE"):
        _set_limit(getattr(resource, f"RLIMIT_{which}"), 0)


def _filter_system_calls() -> None:
    """Make the kernel kill this process at the first system call that is not listed above."""
    machine = os.uname().machine
    if machine not in _FREE or sys.byteorder != "little" or sys.maxsize < 2**32:
        raise OSError(f"no list of system calls for {machine}")
    lines = b"".join(struct.pack("=HBBI", *line) for line in _filter(machine))

    class Program(ctypes.Structure):  # struct sock_fprog
        _fields_ = (("length", ctypes.c_ushort), ("lines", ctypes.c_char_p))

    program = Program(len(lines) // 8, lines)
    _prctl(_SET_SECCOMP, 2, ctypes.cast(ctypes.byref(program), ctypes.c_void_p))


def _filter(machine: str) -> list[tuple[int, int, int, int]]:
    """The filter in classic BPF: (operation, lines to skip if true, lines to skip if false, operand)."""
    allow, fail, kill = ((0x06, 0, 0, value) for value in (0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000))

    def load(offset: int) -> tuple[int, int, int, int]:
        return 0x20, 0, 0, offset  # struct seccomp_data: call at 0, architecture at 4, argument i at 16 + 8 i

    lines = [load(4), (0x15, 1, 0, _AUDIT_ARCHITECTURE[machine]), kill, load(0)]
    for call in _FREE[machine]:
        lines += [(0x15, 0, 1, call), allow]
    for descriptor, call in enumerate(_READ_WRITE[machine]):
        lines += [(0x15, 0, 4, call), load(16), (0x15, 0, 1, descriptor), allow, kill]
    for call in _MAPPING[machine]:
        lines += [(0x15, 0, 4, call), load(32), (0x45, 1, 0, _PROT_EXEC), allow, kill]
    return [*lines, (0x15, 0, 1, _CLOCK[machine]), fail, kill]
