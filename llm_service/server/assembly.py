"""Assembles a service from its configuration, and checks everything that can be checked before the first call."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import platform
from pathlib import Path

from llm_service import backends
from llm_service.backends import Backend
from llm_service.durable.consumer import Consumer
from llm_service.durable.queue import Queue
from llm_service.durable.redis_server import RedisServer
from llm_service.embedding import EmbeddingBackend
from llm_service.errors import Unreachable, UsageError, place
from llm_service.pipeline.cache import Shared
from llm_service.pipeline.clock import Clock
from llm_service.pipeline.journal import InUse, Journal
from llm_service.pipeline.ledger import Ledger
from llm_service.pipeline.pipeline import Service
from llm_service.records import digest
from llm_service.settings import LLMConfig
from llm_service.world import NOWHERE, load

log = logging.getLogger(__name__)

CONSUMER_PAUSE_S = 1.0
"""Seconds before a failed consumer restarts."""
PREDECESSOR_TRIES, PREDECESSOR_PAUSE_S = 20, 0.1
"""Seconds that a start waits for a predecessor to release its files."""
REDIS_WATCH_S = 0.5
"""Seconds between two checks of our own Redis."""


def check(config: LLMConfig) -> None:
    """Check that the service can work as configured. Quick: no model is loaded, and nothing is called.

    Raises:
        UsageError: with one sentence.
    """
    limits = config.limits
    if any(cap is not None and cap <= 0 for cap in (limits.tokens, limits.dollars)):
        raise UsageError("llm.limits: the budget is 0, so no call would be possible: raise it, or leave it out")
    module = backends.module(config.name)
    if hasattr(module, "check"):
        module.check(config.options)
        return
    backend: Backend = module.make(config.options, NOWHERE)
    if backend.paid and config.replicas:
        raise UsageError("llm.replicas is for models in our own processes: leave it out, and set llm.concurrency")
    if backend.paid and backend.price(1000, 1000) <= 0 and (limits.dollars or limits.dollars_per_hour):
        raise UsageError(
            "llm.limits.dollars cannot be enforced without prices: set llm.dollars_per_million_prompt_tokens and "
            "llm.dollars_per_million_completion_tokens, or cap tokens instead"
        )


def make_backend(config: LLMConfig) -> Backend:
    """The backend, with the environment's description.

    Raises:
        UsageError: it cannot work as configured, or a cap could not be enforced.
    """
    check(config)
    world = load(config.world) if config.world else NOWHERE
    backend: Backend = backends.module(config.name).make(config.options, world)
    return backend


async def start(config: LLMConfig, folder: Path, backend: Backend | None = None) -> Service:
    """A running service: journal and ledger in `folder`, a real Redis, consumers of the durable lane.

    Args:
        backend: answers instead of the configured one (replicas on Ray).

    Raises:
        UsageError: with one sentence, before any call is made.
    """
    clock = Clock()
    world = load(config.world) if config.world else NOWHERE
    backend = backend or make_backend(config)
    embedder = None if config.embedding.folder == "backend" else EmbeddingBackend(config.embedding)
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as undo:  # closes what was opened if the rest cannot start
        journal = await _journal(folder / "journal.jsonl", config.fsync)
        undo.callback(journal.close)
        ledger = Ledger(config.limits, folder / "ledger.jsonl", clock, config.fsync)
        undo.callback(ledger.close)
        server = RedisServer(config.redis.model_copy(update={"folder": config.redis.folder or str(folder / "redis")}))
        for warning in await server.start():
            log.warning("%s", warning)
        undo.pop_all()
    redis = server.connect()
    # Services that share a queue must answer alike: same model and endpoint, which the name contains, same environment.
    who = digest(backend.model, (embedder or backend).model, world.digest)
    queue = Queue(redis, config.durable, clock, who)
    shared = Shared(redis, config.redis.cache_ttl_s, clock)
    service = Service(config, backend, embedder, world, journal, ledger, queue, shared, clock)
    stop = asyncio.Event()
    me = f"{platform.node()}-{digest(str(folder.resolve()))[:8]}"  # the same after a restart
    service.consumers = [
        Consumer(queue, service.ask, service.keys, f"{me}-{n}", config.durable, clock) for n in range(config.consumers)
    ]
    workers = [asyncio.ensure_future(_consume(consumer, stop, clock)) for consumer in service.consumers]
    ended = asyncio.Event()
    watch = asyncio.ensure_future(_keep(server, service, ended, clock))

    async def stop_consumers() -> None:
        stop.set()
        await asyncio.gather(*workers)

    async def close_redis() -> None:
        ended.set()
        watch.cancel()
        await asyncio.wait({watch})  # otherwise it could restart what ends here
        await redis.aclose()
        await server.stop()

    service.askers.append(stop_consumers)
    service.closers.append(close_redis)
    return service


async def _journal(path: Path, fsync: bool) -> Journal:
    """The journal, once a predecessor that is just ending has released it."""
    for _ in range(PREDECESSOR_TRIES):
        try:
            return Journal(path, fsync)
        except InUse:
            await asyncio.sleep(PREDECESSOR_PAUSE_S)
    return Journal(path, fsync)


async def _consume(consumer: Consumer, stop: asyncio.Event, clock: Clock) -> None:
    """Restart a consumer after a defect; its jobs are delivered again, and are buried if they cause it every time."""
    while not stop.is_set():
        try:
            await consumer.run(stop)
        except Exception as defect:
            log.error("a consumer of the durable lane failed, and restarts: %s", place(defect))
            await clock.sleep(CONSUMER_PAUSE_S)


async def _keep(server: RedisServer, service: Service, ended: asyncio.Event, clock: Clock) -> None:
    """Restart our own Redis if it dies, with the same files, and record the state of the durable lane."""
    while not ended.is_set():
        await clock.sleep(REDIS_WATCH_S)
        try:
            if await server.ensure():
                log.warning("Redis had died, and was restarted with its files; its redis.log says why")
            if service.queue is not None:
                service.queue_stats = await service.queue.stats()
        except (UsageError, Unreachable) as error:
            log.error("%s", error)
        except Exception as defect:  # whatever the error, Redis must be monitored as long as the service lives
            log.error("monitoring Redis failed: %s", place(defect))
