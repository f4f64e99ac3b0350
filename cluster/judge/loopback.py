"""Pages for people at this machine: a small HTTP server on loopback, behind an address that is a secret.

    browser ── GET /TOKEN/ ──> the site's page;  GET /TOKEN/PATH?query ──> JSON
            ── POST /TOKEN/PATH {...} ──> JSON, or {"error": one sentence}

Anyone with the address may use the site: it contains a random token of 128 bits, new at each start. Requests from other
pages are refused because of their `Origin`, and host names that resolve to this machine because of their `Host`. To
look from another machine, forward the port (`ssh -L PORT:127.0.0.1:PORT`). Limit: a few people at once.
"""

from __future__ import annotations

import hmac
import json
import secrets
from abc import ABC, abstractmethod
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from llm_service.errors import UsageError

LARGEST = 4096  # bytes of a request's body
HOSTS = ("127.0.0.1", "localhost")


class Refused(Exception):
    """A request that is refused."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Site(ABC):
    """What is served. Requests come in threads of their own. A UsageError is told to who asked."""

    @abstractmethod
    def page(self, nonce: str) -> str:
        """The HTML; its policy allows only inline styles and scripts with this nonce, and requests to the site."""

    def get(self, path: str, query: str) -> dict[str, Any]:
        """What a path other than the page's holds."""
        raise Refused(HTTPStatus.NOT_FOUND, "there is nothing here")

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to what the page sends."""
        raise Refused(HTTPStatus.NOT_FOUND, "there is nothing here")


class Handler(BaseHTTPRequestHandler):
    """One request."""

    timeout = 20  # seconds that a connection may be silent
    server_version, sys_version = "cairn", ""

    def __init__(self, site: Site, token: str, *connection: Any) -> None:
        self.site, self.token = site, token
        super().__init__(*connection)

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, how: Any) -> None:
        try:
            how(*self._admitted())
        except Refused as refusal:
            self._send(refusal.status, {"error": str(refusal)})
        except UsageError as error:
            self._send(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        except (ConnectionError, TimeoutError):
            self.close_connection = True  # the browser has gone; it will ask again for what it missed
        except OSError as error:
            self._send(HTTPStatus.INSUFFICIENT_STORAGE, {"error": f"not saved: {error}"})

    def _admitted(self) -> tuple[str, str]:
        """The path behind the token, and the query.

        Raises:
            Refused: wrong token or host.
        """
        path, _, query = self.path.partition("?")
        _, given, *rest = [*path.split("/"), ""]
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            raise Refused(HTTPStatus.FORBIDDEN, "the address lacks its token: use the one that was printed")
        if self.headers.get("Host", "").rpartition(":")[0] not in HOSTS:
            raise Refused(HTTPStatus.FORBIDDEN, f"use the name {HOSTS[0]}")
        return "/".join(rest).strip("/"), query

    def _get(self, path: str, query: str) -> None:
        if path:
            return self._send(HTTPStatus.OK, self.site.get(path, query))
        nonce = secrets.token_hex(16)
        self._send(HTTPStatus.OK, self.site.page(nonce), nonce)

    def _post(self, path: str, _query: str) -> None:
        if self.headers.get("Origin") != f"http://{self.headers['Host']}":
            raise Refused(HTTPStatus.FORBIDDEN, "only the page itself may send answers")
        self._send(HTTPStatus.OK, self.site.post(path, self._body()))

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit():
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "a request must state its length")
        if len(length) > 9 or int(length) > LARGEST:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {LARGEST} bytes")
        if self.headers.get_content_type() != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a request must be JSON")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise Refused(HTTPStatus.BAD_REQUEST, "a request must be a JSON object")
        return body

    def _send(self, status: HTTPStatus, content: str | dict[str, Any], nonce: str = "") -> None:
        body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        inline = f"style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; " if nonce else ""
        headers = {
            "Content-Type": "text/html; charset=utf-8" if nonce else "application/json",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": f"default-src 'none'; {inline}base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",  # the address is a secret
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cache-Control": "no-store",
        }
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Do not log requests: their address contains the token."""


def make_server(site: Site, port: int) -> tuple[ThreadingHTTPServer, str]:
    """The server, bound and not yet serving, and the address that opens it. Port 0 takes a free one.

    Raises:
        UsageError: the port is taken.
    """
    token = secrets.token_hex(16)
    try:
        server = ThreadingHTTPServer((HOSTS[0], port), partial(Handler, site, token))
    except (OSError, OverflowError) as error:
        raise UsageError(f"port {port} of {HOSTS[0]} is not available ({error}): choose another --port") from None
    server.daemon_threads = True
    return server, f"http://{HOSTS[0]}:{server.server_port}/{token}/"
