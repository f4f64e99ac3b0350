"""What several tests of the service need."""

import asyncio

import pytest

from llm_service.durable.redis_server import RedisConfig, RedisServer


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A real Redis, of a folder of its own."""
    made = RedisServer(RedisConfig(folder=str(tmp_path_factory.mktemp("redis"))))
    asyncio.run(made.start())
    yield made
    asyncio.run(made.stop())
