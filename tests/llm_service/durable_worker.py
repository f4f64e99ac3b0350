"""A process that consumes durable jobs with a model of its own: `durable_worker.py URL CONFIG NAME CALLS`.

CALLS is a file: for every item that the model is asked, a line `NAME CONTENT` is in it before the model answers. The
answer is the content in capitals, unless the content begins with

    poison   the process ends at once
    hold     if NAME begins with "holder": no answer ever
"""

import asyncio
import json
import os
import signal
import sys

from llm_service.durable.consumer import Consumer
from llm_service.durable.queue import DurableConfig, Queue
from llm_service.durable.redis_server import connect
from llm_service.pipeline.clock import Clock
from llm_service.records import Answer, Status
from tests.llm_service.fake_backend import keys


async def main(url, config, name, path):
    calls = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def model(ask):
        for content in ask.contents:
            os.write(calls, f"{name} {content}\n".encode())
        if any(content.startswith("poison") for content in ask.contents):
            os._exit(1)
        if name.startswith("holder") and any(content.startswith("hold") for content in ask.contents):
            await asyncio.Event().wait()
        await asyncio.sleep(0.001)
        return [Answer(Status.OK, json.dumps(content.upper()).encode()) for content in ask.contents]

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with connect(url) as redis:
        await Consumer(Queue(redis, config, Clock(), "service"), model, keys, name, config, Clock()).run(stop)


asyncio.run(main(sys.argv[1], DurableConfig(**json.loads(sys.argv[2])), sys.argv[3], sys.argv[4]))
