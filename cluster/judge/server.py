"""Rating behaviour in the browser: a small HTTP server on loopback, one page, and append-only files of ratings.

    browser ── GET /TOKEN/ ──> page;  GET /TOKEN/state?rater=ana ──> the next trial, in an order of ana's own
            ── POST /TOKEN/answer {rater, item, tenths} ──> appended, synced ──> the next trial
            ── POST /TOKEN/undo {rater} ──> the last answer taken back, and shown again

Anyone with the address may rate: it contains a random token of 128 bits, new at each start. Requests from other pages
are refused because of their `Origin`, and host names that resolve to this machine because of their `Host`. The server
keeps no ratings in memory, so it can be killed at any time and continues at the next start. To rate from another
machine, forward the port (`ssh -L PORT:127.0.0.1:PORT`). Limit: a few people at once, on one file system.
"""

from __future__ import annotations

import hmac
import json
import secrets
import sys
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from cluster.judge.page import page
from cluster.report import deployed, house_plan
from cluster.report.deployed import Deployed
from cluster.runs.run_data import part
from learner.behaviours.ratings import RatingError, Ratings, scores, shuffled, waiting
from llm_service.errors import UsageError

LARGEST = 4096  # bytes of a request's body
HOSTS = ("127.0.0.1", "localhost")


class Refused(Exception):
    """A request that is refused."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Judging:
    """The trials to rate, and what each rater has done.

    count: number of trials, the same ones for everybody; trials that the language model judged come first.
    """

    def __init__(self, found: Deployed, count: int) -> None:
        self.found = found
        rest = shuffled([item for number, item in enumerate(found.items) if number not in found.judged], "")
        self.items = [*(found.items[number] for number in found.judged), *rest][:count]
        self.trial = {item: number for number, item in enumerate(found.items)}

    def state(self, rater: str, before: float | None = None) -> dict[str, Any]:
        """What the page shows to a rater; `before`: the score that was taken back.

        Raises:
            RatingError: this is not a valid name, or the rater's file is damaged.
        """
        answers = Ratings(self.found.ratings, rater).answers()
        left = waiting(shuffled(self.items, rater), answers)
        passed = {answer.item for answer in answers} & set(left)
        return {
            "done": len(self.items) - len(left),
            "of": len(self.items),
            "passed": len(passed),
            "undo": bool(answers),
            "before": None if before is None else round(10 * before),
            "item": self._shown(left[0]) if left else None,
        }

    def answer(self, rater: str, item: object, tenths: object) -> dict[str, Any]:
        """Save an answer.

        Raises:
            RatingError: the rater, the item or the score is not valid.
        """
        if item not in self.items:
            raise RatingError("this trial is not rated here: load the page again")
        if tenths is not None and not (type(tenths) is int and 0 <= tenths <= 10):
            raise RatingError("a score is 0 to 10 tenths, or null for later")
        Ratings(self.found.ratings, rater).give(str(item), None if tenths is None else tenths / 10)
        return self.state(rater)

    def undo(self, rater: str) -> dict[str, Any]:
        """Take the last answer back, and show its trial."""
        taken = Ratings(self.found.ratings, rater).take_back()
        return self.state(rater, taken.score if taken else None)

    def _shown(self, item: str) -> dict[str, str]:
        number, scene = self.trial[item], self.found.scene
        pose = self.found.pose[number]
        layers = [house_plan.way(scene, pose), house_plan.robot(scene, pose)]
        title = "where the robot drove in the furnished house"
        drawing = house_plan.drawing(scene, layers, title, house_plan.time_key(scene))
        return {"id": item, "text": self.found.trials[number].text, "drawing": drawing}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    timeout = 20  # seconds that a connection may be silent
    server_version, sys_version = "judge", ""

    def __init__(self, judging: Judging, rater: str, token: str, *connection: Any) -> None:
        self.judging, self.rater, self.token = judging, rater, token
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
        except RatingError as error:
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
        return "/".join(rest), query

    def _get(self, path: str, query: str) -> None:
        if path.rstrip("/") == "state":
            rater = parse_qs(query).get("rater", [""])[0]
            return self._send(HTTPStatus.OK, self.judging.state(rater))
        if path.strip("/"):
            raise Refused(HTTPStatus.NOT_FOUND, "there is nothing here")
        nonce, run = secrets.token_hex(16), self.judging.found.run
        told = part(run.config, "method", "judge").get("rubric")  # the criteria that the language model was given
        rubric = [str(word) for word in told] if isinstance(told, list) else []
        self._send(HTTPStatus.OK, page(run.name, self.rater, rubric, nonce), nonce)

    def _post(self, path: str, _query: str) -> None:
        if self.headers.get("Origin") != f"http://{self.headers['Host']}":
            raise Refused(HTTPStatus.FORBIDDEN, "only the page itself may send answers")
        body = self._body()
        rater = str(body.get("rater", ""))
        verb = path.rstrip("/")
        if verb == "answer":
            self._send(HTTPStatus.OK, self.judging.answer(rater, body.get("item"), body.get("tenths", "none")))
        elif verb == "undo":
            self._send(HTTPStatus.OK, self.judging.undo(rater))
        else:
            raise Refused(HTTPStatus.NOT_FOUND, "there is nothing here")

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


def make_server(judging: Judging, rater: str, port: int) -> tuple[ThreadingHTTPServer, str]:
    """The server, bound and not yet serving, and the address that opens it.

    Raises:
        UsageError: the port is taken.
    """
    token = secrets.token_hex(16)
    try:
        server = ThreadingHTTPServer((HOSTS[0], port), partial(Handler, judging, rater, token))
    except (OSError, OverflowError) as error:
        raise UsageError(f"port {port} of {HOSTS[0]} is not available ({error}): choose another --port") from None
    server.daemon_threads = True
    return server, f"http://{HOSTS[0]}:{server.server_port}/{token}/"


def serve(folder: Path, rater: str, port: int, count: int) -> None:
    """Serve at most `count` of a run's trials until Ctrl-C.

    rater: the rater's name; "" lets the page ask. port: 0 takes a free one.

    Raises:
        UsageError: nothing was deployed, the name is not valid, the port is taken, or there is nothing to rate.
    """
    if count < 1:
        raise UsageError(f"--trials is how many to rate, at least 1: got {count}")
    judging = Judging(deployed.read(folder), count)
    if rater:
        judging.state(rater)
    server, address = make_server(judging, rater, port)
    ratings = judging.found.ratings
    print(f"{len(judging.items)} trials to rate; open {address}\nratings go to {ratings}; Ctrl-C ends", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()
        people = {path.stem: len(scores(Ratings(ratings, path.stem).answers())) for path in ratings.glob("*.jsonl")}
        told = ", ".join(f"{who} {number}" for who, number in sorted(people.items())) or "none"
        print(f"\ntrials rated: {told}; to see them in the report: python launch.py report {folder}", file=sys.stderr)
