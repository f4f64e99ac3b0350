"""A gRPC server for a service, until a signal ends it.

    FOLDER/address   its address, while it is ready
    FOLDER/token     the token that it generated, unless one was given

With `server.openai` it also serves the OpenAI-compatible API of `llm_service/web`.

SIGTERM or SIGINT: it accepts no more work, finishes its work within `server.drain_s`, and closes. A second: at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_service import metrics
from llm_service.errors import UsageError
from llm_service.files import replacing
from llm_service.server import guard

if TYPE_CHECKING:
    from llm_service.pipeline.pipeline import Service
    from llm_service.server.servicer import Servicer
    from llm_service.web.endpoints import Endpoints


class Server:
    """A gRPC server. All methods belong to the event loop that `service` runs on.

    Args:
        service: the service; closed at the end, and if the start fails.
        folder: folder for `address`, and for `token` if one is generated.
        backend: name to show.
    """

    def __init__(self, service: Service, config: guard.ServerConfig, folder: Path, backend: str = "") -> None:
        self._service, self._config, self._folder, self.backend = service, config, folder, backend
        self._grpc: Any = None
        self._servicer: Servicer | None = None
        self._end_metrics: Callable[[], None] = lambda: None
        self._web: Endpoints | None = None
        self.address = ""
        self.metrics_port: int | None = None
        self.openai_url = ""

    async def start(self) -> str:
        """Listen. Returns the address.

        Raises:
            UsageError: it may not or cannot listen there, or a file that the configuration names is missing.
        """
        try:
            return await self._start()
        except BaseException:
            if self._grpc is not None:
                await self._grpc.stop(0)
            if self._web is not None:
                await self._web.close(0.0)
            await self._service.close()
            raise

    async def _start(self) -> str:
        import grpc

        from llm_service.proto import wire
        from llm_service.server.servicer import Guard, Servicer

        config = self._config
        token = self._token()
        credentials = self._credentials() if config.tls_certificate else None
        self._servicer = Servicer(self._service, config, self.backend)
        admission = Guard(token, config.max_calls, self._servicer.counts)
        self._grpc = grpc.aio.server(interceptors=[admission], options=self._options())
        wire.serve(self._servicer, self._grpc)
        try:
            if credentials is not None:
                port = self._grpc.add_secure_port(config.listen, credentials)
            else:
                port = self._grpc.add_insecure_port(config.listen)
        except RuntimeError:
            cause = "is another server there" + (", or are the TLS files not a PEM pair" if credentials else "")
            raise UsageError(f"server.listen: cannot listen at {config.listen}; {cause}?") from None
        if config.metrics_port is not None:
            place = config.metrics_host, config.metrics_port
            self.metrics_port, self._end_metrics = metrics.serve(self.stats, self._folder.name, *place)
        if config.openai:
            from llm_service.web.endpoints import Endpoints

            self._web = Endpoints(self._service, self._servicer, config, token, self.backend)
            self.openai_url = await self._web.start()
        await self._grpc.start()
        unix = config.listen.startswith("unix:")
        self.address = config.listen if unix else f"{config.listen.rpartition(':')[0]}:{port}"
        with replacing(self._folder / "address") as temporary:
            temporary.write_text(self.address, encoding="utf-8")
        return self.address

    async def drain(self) -> bool:
        """Accept no more work, let work in progress end within `drain_s`, close. Returns whether all of it ended."""
        assert self._servicer is not None, "started first"
        done = await self._servicer.finish(self._config.drain_s)
        moment = 1.0 if done else 0.0  # for finished replies to be sent
        if self._web is not None:
            await self._web.close(moment)
        await self._grpc.stop(moment)
        self._end_metrics()
        await self._service.close()
        self.forget_address()
        return done

    def stats(self) -> dict[str, float]:
        assert self._servicer is not None, "started first"
        return self._servicer.stats()

    @property
    def metrics_url(self) -> str:
        """Where Prometheus reads; "" if it does not."""
        return f"http://{self._config.metrics_host}:{self.metrics_port}/metrics" if self.metrics_port else ""

    @property
    def token_place(self) -> str:
        """Where callers find the token."""
        config = self._config
        if not guard.chosen_token(config.token_env, config.token_file):
            return str(self._folder / "token")
        return f"the environment's {config.token_env}" if os.environ.get(config.token_env) else config.token_file

    def forget_address(self) -> None:
        """Delete `address` from the folder, unless a successor has written its own."""
        path = self._folder / "address"
        if path.exists() and path.read_text(encoding="utf-8") == self.address:
            path.unlink()

    def _token(self) -> str:
        config = self._config
        token = guard.chosen_token(config.token_env, config.token_file)
        if bool(config.tls_certificate) != bool(config.tls_key) or (config.tls_client_ca and not config.tls_key):
            raise UsageError("server: TLS needs both tls_certificate and tls_key")
        for key, address in (("listen", config.listen), ("openai", config.openai)):
            if address and not guard.loopback(address) and not (token and config.tls_certificate):
                raise UsageError(
                    f"server.{key}: {address} can be reached by others: set a token in {config.token_env} "
                    "and server.tls_certificate and server.tls_key, or listen on 127.0.0.1"
                )
        self._folder.mkdir(parents=True, exist_ok=True)
        return token or guard.folder_token(self._folder)

    def _credentials(self) -> Any:
        import grpc

        config = self._config
        try:
            pair = (Path(config.tls_key).read_bytes(), Path(config.tls_certificate).read_bytes())
            callers = Path(config.tls_client_ca).read_bytes() if config.tls_client_ca else None
        except OSError as error:
            raise UsageError(f"server: cannot read {error.filename}: {error.strerror}") from None
        return grpc.ssl_server_credentials([pair], callers, require_client_auth=callers is not None)

    def _options(self) -> list[tuple[str, int]]:
        limit = self._config.max_message_mb << 20
        return [
            ("grpc.max_receive_message_length", limit),
            ("grpc.max_send_message_length", limit),
            ("grpc.so_reuseport", 0),  # a second server at the same port is an error, not half of the requests
            ("grpc.server_handshake_timeout_ms", 10_000),
            ("grpc.keepalive_time_ms", 30_000),  # notices a caller that is silently cut off
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.http2.ping_timeout_ms", 10_000),
            ("grpc.http2.min_ping_interval_without_data_ms", 5_000),  # callers may send keep-alive pings as often
        ]


async def serve(server: Server, ready: Callable[[str], None]) -> bool:
    """Start, call `ready` with the address, and serve until a signal. Returns whether all work ended in time."""
    told = asyncio.Event()

    def signalled() -> None:
        if told.is_set():
            server.forget_address()
            os._exit(1)
        told.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    ready(await server.start())
    await told.wait()
    return await server.drain()
