"""Real processes for tests: a service, and a provider that speaks the OpenAI protocol."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
for name in ("OPENAI_API_KEY", "CAIRN_LLM_TOKEN"):
    ENVIRONMENT.pop(name, None)


class Process:
    """A command that says it is ready by its first line."""

    def __init__(self, *command):
        self.command = [sys.executable, "-m", *map(str, command)]
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            self.command, env=ENVIRONMENT, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.first = self.process.stdout.readline().strip()
        assert self.first, self.process.communicate(timeout=20)[1]

    def kill(self):
        """As the kernel does when memory is short."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=30)

    def end(self):
        """Ask it to end; its exit code and what it wrote to stderr."""
        if self.process.poll() is None:
            self.process.terminate()
        errors = self.process.communicate(timeout=60)[1]
        return self.process.returncode, errors

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate(timeout=30)


def service(folder, *words):
    return Process("llm_service.server", "--folder", folder, *words)


def provider(port, *words):
    return Process("llm_service.backends.faulty", "--port", port, *words)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def billed(url):
    """What a provider would have charged for: times by Idempotency-Key."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/billed", timeout=10) as answer:
        return json.load(answer)["calls"]


def journal(folder):
    """The whole lines of a journal."""
    with open(Path(folder) / "journal.jsonl", "rb") as file:
        return [json.loads(line) for line in file if line.endswith(b"\n")]


def until(condition, seconds=60.0):
    """Wait for something that is about to happen; False if it does not."""
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            return False
        time.sleep(0.02)
    return True


def redis_pid(folder):
    """The process of a service's own Redis."""
    import redis

    with contextlib.closing(redis.Redis(unix_socket_path=str(Path(folder, "redis", "redis.sock").resolve()))) as client:
        return client.info("server")["process_id"]
