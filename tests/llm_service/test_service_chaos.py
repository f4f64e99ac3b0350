"""Whatever is killed: every accepted job has exactly one answer or a reason, and no answer is paid for twice."""

import os
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

from llm_service.client import connect
from llm_service.records import Ask, Parameters, Status
from tests.llm_service.processes import billed, free_port, journal, provider, redis_pid, service, until

pytestmark = pytest.mark.slow
JOBS = 240
CONCURRENCY = 4
SHORT = Parameters(max_tokens=50)
WORDS = (
    "name=openai",
    "model=fake",
    f"concurrency={CONCURRENCY}",
    "durable.claim_idle_s=2",
    "durable.batch=16",
    "retry.attempts=50",
    "retry.burst=1000",
    "retry.failures=1000",
    "retry.cap_s=0.5",
    "consumers=2",
)


class System:
    """A provider, a service, a caller that submits jobs, and one that asks now."""

    def __init__(self, folder, tmp_path):
        self.folder = folder
        self.port = free_port()
        self.provider = provider(self.port, "--latency", "0.05")
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.service = service(folder, *WORDS, f"base_url={self.url}")
        self.client = connect(folder, caller="chaos", when_away="wait", deadline=120)
        self.prompts = [f"job {i}" for i in range(JOBS)]
        self.now = {}

    def submit(self):
        keys, statuses = self.client.accept(Ask("generate", tuple(self.prompts), parameters=SHORT, deadline=120))
        assert set(statuses) <= {Status.PENDING, Status.OK}
        return keys

    def ask(self):
        """Questions that someone waits for, half of them equal to jobs."""
        prompts = [f"job {i}" if i % 2 else f"now {i}" for i in range(60)]
        for prompt in prompts:
            (self.now[prompt],) = self.client.generate([prompt], parameters=SHORT)

    def answered(self):
        return len(journal(self.folder))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()
        self.service.end()
        with self.provider:
            pass


@pytest.fixture
def system(tmp_path):
    with System(tmp_path / "llm", tmp_path) as running:
        yield running


def kill_service(system):
    system.service.kill()
    system.service.start()


def kill_redis(system):
    before = redis_pid(system.folder)
    os.kill(before, signal.SIGKILL)
    assert until(lambda: Path(system.folder, "redis", "redis.sock").exists() and _other_redis(system, before))


def _other_redis(system, before):
    import redis

    try:
        return redis_pid(system.folder) != before
    except redis.RedisError:
        return False


def kill_provider(system):
    system.provider.kill()
    system.provider.start()


@pytest.mark.parametrize("kill", [kill_service, kill_redis, kill_provider], ids=lambda kill: kill.__name__)
def test_everything_accepted_is_answered_once_and_paid_once(system, kill):
    keys = system.submit()
    asking = threading.Thread(target=system.ask)
    asking.start()
    charged = Counter()
    for wave in (30, 90, 150):
        assert until(lambda: system.answered() >= wave), "no progress"  # noqa: B023 - used at once
        if kill is kill_provider:
            charged += Counter(billed(system.url))  # it forgets when it dies, also what it charges after this line
        kill(system)
    answers = []
    assert until(lambda: _all_ended(system, keys, answers), 120)
    asking.join(120)
    assert [a.value for a in answers] == system.prompts  # the provider says what it heard
    assert {prompt: a.value for prompt, a in system.now.items()} == {prompt: prompt for prompt in system.now}
    assert len(system.now) == 60

    code, errors = system.service.end()
    assert code == 0, errors
    lines = journal(system.folder)
    times = Counter(line["key"] for line in lines)
    assert set(times.values()) == {1}, "an answer stands twice in the journal"
    asked = {line["turns"][-1][1] for line in lines}
    assert asked == set(system.prompts) | set(system.now)
    charged += Counter(billed(system.url))
    assert set(charged) <= set(times)
    assert kill is kill_provider or set(charged) == set(times)
    twice = sum(n - 1 for n in charged.values())
    if kill is kill_redis:
        assert twice == 0
    else:  # what was on its way when a side was killed, and nothing else
        assert twice <= 3 * CONCURRENCY


def _all_ended(system, keys, answers):
    answers[:] = system.client.fetch(keys, wait_s=5)
    return all(a.status not in (Status.PENDING, Status.AWAY, Status.EXPIRED, Status.BUSY) for a in answers)


def test_a_service_that_is_told_to_end_ends_what_it_began(system):
    keys = system.submit()
    assert until(lambda: system.answered() >= 20)
    code, errors = system.service.end()
    assert code == 0, errors
    times = Counter(line["key"] for line in journal(system.folder))
    assert set(times.values()) == {1}
    charged = billed(system.url)
    assert set(charged.values()) == {1}
    assert set(charged) == set(times), "something was paid for and not written down"
    system.service.start()
    answers = []
    assert until(lambda: _all_ended(system, keys, answers), 120)
    assert set(billed(system.url).values()) == {1}
