"""The HTTP server below the OpenAI-compatible API: what it reads, how much of it, and what strangers cost."""

import json
import re
import socket
import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llm_service.errors import UsageError
from llm_service.server.guard import ServerConfig
from llm_service.web.http import MOST_HEAD_BYTES, Refused
from llm_service.web.requests import Chat, Completion, Embedding, read
from tests.llm_service.echo import Running
from tests.llm_service.processes import Process, service

KINDS = {"/v1/chat/completions": Chat, "/v1/completions": Completion, "/v1/embeddings": Embedding}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Address and token of a real server, which must have written nothing to stderr at the end."""
    folder = tmp_path_factory.mktemp("web")
    with service(folder, "name=scripted", "server.openai=127.0.0.1:0", "server.max_message_mb=1") as process:
        yield process, folder
        code, errors = process.end()
        assert (code, errors) == (0, "")


def connect(process):
    url = process.first.partition("OpenAI API at ")[2]
    line = socket.create_connection(("127.0.0.1", int(re.search(r":(\d+)/v1", url)[1])), timeout=60)
    line.settimeout(60)
    return line


def read_reply(line):
    """Status, headers and JSON of the next reply; None if the server has closed."""
    with line.makefile("rb") as file:
        first = file.readline()
        if not first:
            return None
        headers = {}
        while header := file.readline().strip():
            name, _, value = header.decode().partition(": ")
            headers[name.lower()] = value
        return int(first.split()[1]), headers, json.loads(file.read(int(headers["content-length"])))


def head(folder, method="POST", path="/v1/chat/completions", **headers):
    token = Path(folder, "token").read_text()
    lines = [f"{method} {path} HTTP/1.1", "Host: here", f"Authorization: Bearer {token}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def ask(server, data):
    with connect(server[0]) as line:
        line.sendall(data)
        return read_reply(line)


def test_without_the_token_no_body_is_received_and_the_refusal_arrives(server):
    with connect(server[0]) as line:
        line.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 1000000000\r\nExpect: 100-continue\r\n\r\n")
        status, headers, content = read_reply(line)  # not 100
        assert (status, headers["www-authenticate"], headers["connection"]) == (401, "Bearer", "close")
        assert content["error"]["code"] == "invalid_api_key"
        assert line.recv(1) == b""
    token = (server[1] / "token").read_text()
    for wrong in (token[:-1], token + "x", " " + token, "\xfc\xff", ""):
        data = f"GET /v1/models HTTP/1.1\r\nAuthorization: Bearer {wrong}\r\n\r\n".encode("latin-1")
        assert ask(server, data)[0] == 401


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.0\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\nA: 1\r\na: 2\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\nA: 1\r\n folded\r\n\r\n", 400),
        (b"GET /" + b"x" * MOST_HEAD_BYTES + b" HTTP/1.1\r\n\r\n", 431),
    ],
    ids=["nonsense", "old", "no-colon", "twice", "folded", "long"],
)
def test_what_is_not_http_is_refused(server, data, status):
    assert ask(server, data)[0] == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content_Length": "x"}, 400),
        ({"Content_Length": "-1"}, 400),
        ({"Content_Length": "1048577"}, 413),
        ({"Content_Length": "9" * 400}, 413),
        ({"Transfer_Encoding": "chunked"}, 411),
        ({"Content_Length": "0"}, 400),
    ],
    ids=["word", "negative", "large", "huge", "chunked", "empty"],
)
def test_a_body_has_a_length_and_a_limit(server, headers, status):
    refused = ask(server, head(server[1], **headers))
    assert refused[0] == status
    assert set(refused[2]["error"]) == {"message", "type", "param", "code"}


def test_a_connection_is_used_again_and_a_body_is_invited(server):
    body = json.dumps({"model": "scripted", "prompt": "go"}).encode()
    with connect(server[0]) as line:
        for _ in range(3):
            line.sendall(head(server[1], path="/v1/completions", Content_Length=len(body), Expect="100-continue"))
            assert line.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
            line.sendall(body)
            assert read_reply(line)[0] == 200
        line.sendall(head(server[1], "GET", "/healthz"))
        assert read_reply(line)[2]["status"] == "ok"
        for method, path, status in (("GET", "/v1/completions", 405), ("PUT", "/healthz", 405), ("GET", "/", 404)):
            line.sendall(head(server[1], method, path))
            assert read_reply(line)[0] == status


def test_slow_clients_delay_nobody(server):
    body = json.dumps({"model": "scripted", "prompt": "go", "stream": True}).encode()
    lines = [connect(server[0]) for _ in range(50)]
    for i, line in enumerate(lines):
        line.sendall(head(server[1], path="/v1/completions", Content_Length=len(body)) + body[: i % len(body)])
    assert ask(server, head(server[1], "GET", "/v1/models"))[0] == 200
    for line in lines:
        line.close()
    assert ask(server, head(server[1], "GET", "/v1/models"))[0] == 200


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(string.ascii_letters, max_size=8), inner),
    max_leaves=6,
)
fields = st.sampled_from(sorted({name for kind in KINDS.values() for name in kind.model_fields} | {"top_p", "odd"}))
valid = {"model": "scripted", "messages": [{"role": "user", "content": "a"}], "prompt": "a", "input": "a"}
bodies = st.dictionaries(fields, values, max_size=6).map(lambda body: json.dumps({**valid, **body}).encode())
bodies |= st.dictionaries(fields, values, max_size=6).map(lambda body: json.dumps(body).encode())
bodies |= st.binary(max_size=200) | values.map(lambda value: json.dumps(value).encode())


@given(kind=st.sampled_from(list(KINDS.values())), body=bodies)
@settings(max_examples=300, deadline=None)
def test_any_body_is_read_or_refused_in_a_sentence(kind, body):
    refused = None
    try:
        read(kind, body)
    except Refused as refusal:
        refused = refusal
    if refused:
        assert refused.status == 400
        assert refused.content["error"]["message"]
        json.dumps(refused.content, allow_nan=False)


@given(path=st.sampled_from(list(KINDS)), body=bodies)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_body_makes_the_server_fail(server, path, body):
    with connect(server[0]) as line:
        line.sendall(head(server[1], path=path, Content_Length=len(body)) + body)
        first = line.recv(12)
        assert re.fullmatch(rb"HTTP/1\.1 (200|400|404|429)", first), first


@given(data=st.binary(max_size=400))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_make_the_server_fail(server, data):
    with connect(server[0]) as line:
        line.sendall(data + b"\r\n\r\n")
        assert re.fullmatch(rb"HTTP/1\.1 4\d\d", line.recv(12))


def test_beyond_loopback_it_wants_a_given_token_and_tls(tmp_path, monkeypatch):
    monkeypatch.delenv("CAIRN_LLM_TOKEN", raising=False)
    with pytest.raises(UsageError, match=r"server\.openai: 0\.0\.0\.0:0 can be reached by others"):
        Running(tmp_path, openai="0.0.0.0:0")
    monkeypatch.setenv("CAIRN_LLM_TOKEN", "chosen")
    with pytest.raises(UsageError, match=r"server\.openai: 0\.0\.0\.0:0 can be reached by others"):
        Running(tmp_path, openai="0.0.0.0:0")
    for nowhere in ("nonsense", "127.0.0.1:", "127.0.0.1:99999999"):
        with pytest.raises(UsageError, match=r"server\.openai"):
            Running(tmp_path, openai=nowhere)
    assert ServerConfig().openai == "", "nothing listens unless asked"


def test_launch_serves_on_loopback_and_says_where_the_token_is(tmp_path):
    with Process("launch", "llm", "serve", "llm=scripted", "--port", "0", "--folder", tmp_path / "s") as process:
        assert f"the token is in {tmp_path / 's' / 'token'}" in process.first
        assert re.search(r"serving scripted at http://127\.0\.0\.1:\d+/v1;", process.first)
        assert (tmp_path / "s" / "token").stat().st_mode & 0o777 == 0o600
        assert process.end() == (0, "")
