"""A service with nothing behind it, for tests of the way to it; as a script it serves until SIGTERM.

raw prompts "slow ..." are answered after `Echo.released` is set or at the deadline; all others at once, from memory
the task "raises" fails inside; the task "echo" is a raw prompt; other tasks are unknown

python tests/llm_service/echo.py FOLDER [FIELD=VALUE of the server's configuration ...]
"""

import asyncio
import hashlib
import json
import struct
import sys
import threading
from pathlib import Path

from llm_service.errors import UsageError
from llm_service.records import Answer, Source, Status
from llm_service.server.guard import ServerConfig
from llm_service.server.process import Server, serve


class Echo:
    def __init__(self):
        self.memory, self.jobs, self.seen = {}, {}, []
        self.released, self.entered = asyncio.Event(), 0
        self.closed = self.cancelled = False

    def keys(self, ask):
        return [hashlib.blake2b(text.encode(), digest_size=16).hexdigest() for text in ask.contents]

    def peek(self, ask):
        if ask.task not in ("", "echo", "raises"):
            raise UsageError(f"unknown task {ask.task!r}")
        try:
            return [self.memory[key] for key in self.keys(ask)] if ask.verb == "generate" and not ask.task else None
        except KeyError:
            return None

    async def ask(self, ask):
        self.seen.append(ask)
        self.entered += 1
        if ask.task == "raises":
            raise ZeroDivisionError(f"secret prompt: {ask.contents}")
        if any(text.startswith("slow") for text in ask.contents):
            try:
                await asyncio.wait_for(self.released.wait(), ask.deadline)
            except TimeoutError:
                return [Answer(Status.EXPIRED, reason="too slow")] * len(ask.contents)
            except asyncio.CancelledError:
                self.cancelled = True
                raise
        answers = [self._answer(ask, i) for i in range(len(ask.contents))]
        if ask.verb == "generate" and not ask.task:
            self.memory.update(zip(self.keys(ask), answers, strict=True))
        return answers

    def _answer(self, ask, i):
        text = ask.contents[i]
        if text.startswith("refuse"):
            return Answer(Status.REFUSED, reason="asked to refuse", tokens=3, dollars=0.5)
        if ask.verb == "embed":
            return Answer(Status.OK, struct.pack("<2f", len(text), 1.0))
        if ask.verb == "score":
            words = ask.candidates[0 if len(ask.candidates) == 1 else i]
            return Answer(Status.OK, struct.pack(f"<{len(words)}d", *[-float(len(text) + len(w)) for w in words]))
        return Answer(Status.OK, json.dumps(text).encode(), source=Source.MEMORY)

    async def submit(self, ask):
        keys = self.keys(ask)
        self.jobs.update({key: self._answer(ask, i) for i, key in enumerate(keys)})
        return keys, [Status.PENDING] * len(keys)

    async def fetch(self, keys, wait_s):
        return [self.jobs.get(key, Answer(Status.MISSING, reason="no such job")) for key in keys]

    async def health(self):
        return True, ""

    def stats(self):
        return {"echo/entered": float(self.entered)}

    async def close(self):
        self.closed = True


class Running:
    """A server in this process, its loop in a thread. `call` runs a coroutine there."""

    def __init__(self, folder, **fields):
        self.folder, self.echo = Path(folder), Echo()
        self.server = Server(self.echo, ServerConfig(**fields), self.folder, "echo")
        self.loop, self.drained = asyncio.new_event_loop(), None
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        try:
            self.address = self.call(self.server.start())
        except BaseException:
            self._end()
            raise

    def call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def release(self):
        """Let the slow answers go."""
        self.loop.call_soon_threadsafe(self.echo.released.set)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.release()
        if self.drained is None:
            self.drained = self.call(self.server.drain())
        self._end()

    def _end(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


def main():
    folder, *words = sys.argv[1:]
    types = {name: field.annotation for name, field in ServerConfig.model_fields.items()}
    fields = {k: v if types[k] is str else json.loads(v) for k, v in (word.split("=", 1) for word in words)}

    async def run():
        await serve(Server(Echo(), ServerConfig(**fields), Path(folder), "echo"), lambda at: print(at, flush=True))

    asyncio.run(run())


if __name__ == "__main__":
    main()
