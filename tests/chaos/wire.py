"""What stands outside a work: a provider that counts what it charges for, and a wire that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from llm_service.backends.faulty.server import FaultyServer
from tests.llm_service.processes import free_port


class Outside:
    """A provider and a wire to the LLM service, in a thread. `url` is the provider's; `port` is the wire's."""

    def __init__(self) -> None:
        self.port, self.target, self.closed = 0, free_port(), False
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._provider = FaultyServer(latency_s=0.02)
        self.url = self._run(self._provider.start())
        self.port = self._run(self._listen())

    def billed(self) -> Counter[str]:
        """How often each question was charged for."""
        return Counter(self._provider.billed)

    def answers(self) -> bool:
        """Whether the service listens."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.target), 1):
            return True
        return False

    def cut(self, seconds: float) -> None:
        """Cut every connection to the service, and let none begin for a while."""
        self._run(self._cut(seconds))

    def close(self) -> None:
        self._run(self._provider.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _listen(self) -> int:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    async def _cut(self, seconds: float) -> None:
        self.closed = True
        for writer in self._open:
            writer.transport.abort()
        await asyncio.sleep(seconds)
        self.closed = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.closed:
                raise ConnectionResetError
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, far_writer}
        await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))
        self._open -= {writer, far_writer}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(65536):
                writer.write(piece)
                await writer.drain()
        except OSError:
            pass
        writer.close()
