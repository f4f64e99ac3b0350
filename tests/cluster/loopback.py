"""A site on loopback in this process, and requests to it as its page makes them."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from cluster.judge.loopback import Site, make_server


@contextlib.contextmanager
def served(site: Site) -> Iterator[str]:
    """The address of a server in this process."""
    server, address = make_server(site, 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield address
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ask(address: str, path: str = "", body: Any = None, **headers: str) -> tuple[int, Any, http.client.HTTPResponse]:
    """Status, body (parsed if it is JSON) and response of a request as the page makes it, but for `headers`."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    own = {"Host": parts.netloc}
    if body is not None:
        own |= {"Origin": f"http://{parts.netloc}", "Content-Type": "application/json"}
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        own["Content-Length"] = str(len(body))
    own |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.putrequest("GET" if body is None else "POST", parts.path + path, skip_host=True)
    for name, value in own.items():
        if value:
            connection.putheader(name, value)
    connection.endheaders(body)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    json_type = response.headers.get_content_type() == "application/json"
    return response.status, json.loads(content) if json_type else content.decode(), response
