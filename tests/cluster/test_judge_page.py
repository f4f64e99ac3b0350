"""Rating in a real browser, by keys and clicks; what the server refuses; that no rating is lost when it is killed."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from cluster.judge.loopback import LARGEST
from cluster.judge.server import Judging
from cluster.report import deployed
from learner.behaviours.ratings import LEVELS, Ratings, read, shuffled
from tests.cluster.browser import Browser
from tests.cluster.loopback import ask, served
from tests.report.behaviour_run import write_behaviours

ROOT = Path(__file__).resolve().parents[2]
PROGRESS = "document.getElementById('progress').textContent"
TEXT = "document.getElementById('text').textContent"
CHOSEN = "document.querySelector('[aria-pressed=true]')?.textContent ?? ''"


@contextlib.contextmanager
def judge(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process of `launch.py judge`, and the address that it prints; killed in the end."""
    command = [sys.executable, str(ROOT / "launch.py"), "judge", str(folder), *words]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/[0-9a-f]{32}/", line)
        assert found, (line, process.stderr and process.stderr.read())
        yield process, found[0]
    finally:
        process.kill()
        process.communicate()


def serving(folder: Path, rater: str = "", count: int = 128) -> contextlib.AbstractContextManager[str]:
    """The address of a server in this process."""
    return served(Judging(deployed.read(folder), count, rater))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_behaviours(tmp_path / "ways")


def begin(page: Browser, address: str, name: str) -> None:
    page.open(address)
    page.until("document.activeElement.id === 'name'")
    page.press(*name, "Enter")
    page.until("!document.getElementById('rating').hidden")


# ---- in the browser -------------------------------------------------------------------------------------------------


def test_a_person_rates(run: Path, page: Browser) -> None:
    """Keys, clicks, later, undo, a reload, a restart of the server and a second rater."""
    found = deployed.read(run)
    order = [found.trials[found.items.index(item)].text for item in shuffled(found.items, "ana")]
    with judge(run) as (_, address):
        begin(page, address, "Ana")
        assert page.look(PROGRESS) == "0 of 16"
        assert page.look(TEXT) == order[0]
        page.press("Enter")  # nothing is chosen
        page.press("7", "ArrowRight", "ArrowUp", "ArrowLeft")
        assert page.look(CHOSEN) == "0.8"
        page.press("Enter")
        page.until(f"{PROGRESS} === '1 of 16'")
        assert page.look(TEXT) == order[1]
        assert page.look(CHOSEN) == ""
        page.click(".scores button:nth-child(4)")
        page.click("#save")
        page.until(f"{PROGRESS} === '2 of 16'")
        page.press("End", "Enter")
        page.until(f"{PROGRESS} === '3 of 16'")
        page.press("u")
        page.until(f"{PROGRESS} === '2 of 16'")
        assert page.look(TEXT) == order[2]
        assert page.look(CHOSEN) == "1.0"  # what was taken back
        page.press("Home", "Enter")
        page.until(f"{PROGRESS} === '3 of 16'")
        page.press("n")
        page.until(f"{PROGRESS} === '3 of 16, 1 for later'")
        page.click("#skip")
        page.until(f"{PROGRESS} === '3 of 16, 2 for later'")
        page.click(".row .undo")
        page.until(f"{PROGRESS} === '3 of 16, 1 for later'")
        page.reload()
        page.until(f"{PROGRESS} === '3 of 16, 1 for later'")  # no name is asked again
        assert page.look(TEXT) == order[4]
    with judge(run) as (_, address):
        begin(page, address, "ana")
        assert page.look(TEXT) == order[4]
        for done in range(4, 17):
            page.press("5", "Enter")
            page.until(f"{PROGRESS}.startsWith('{done} of 16')")
            if done == 15:
                assert page.look(TEXT) == order[3]  # what was for later
        assert "All trials are rated" in page.look("document.getElementById('end').innerText")
        assert page.look("document.getElementById('trial').hidden")
        page.click("#other")
        page.press(*"bo", "Enter")
        page.until(f"{PROGRESS} === '0 of 16'")
        assert page.look("document.getElementById('who').textContent") == "bo"
        page.press("1", "Enter")
        page.until(f"{PROGRESS} === '1 of 16'")
    assert page.errors == []
    given = read(found.ratings)
    items = shuffled(found.items, "ana")
    assert given["ana"] == {items[0]: 0.8, items[1]: 0.3, items[2]: 0.0} | dict.fromkeys(items[3:], 0.5)
    assert given["bo"] == {shuffled(found.items, "bo")[0]: 0.1}
    assert shuffled(found.items, "bo") != items


def test_what_is_asked_is_text(tmp_path: Path, page: Browser) -> None:
    nasty = "go <script>window.hit = 1</script><img src=x onerror='window.hit = 2'> &amp; \"on\" </blockquote>"
    folder = write_behaviours(tmp_path / "<img src=x onerror=hit=3>@RATER@", texts=[nasty])
    with judge(folder, "--rater", "ana", "--trials", "3") as (_, address):
        page.open(address)
        page.until(f"{PROGRESS} === '0 of 3'")
        assert page.look(TEXT) == nasty
        assert page.look("document.querySelectorAll('img, blockquote *').length") == 0
        assert page.look("window.hit ?? 'inert'") == "inert"
        assert page.look("document.querySelector('h1').textContent") == f"Judge {folder.name}"
        assert page.look("document.getElementById('change').hidden")  # the name was given
        assert page.errors == []


def test_the_page_may_do_nothing_else(run: Path, page: Browser) -> None:
    """Its policy stops scripts, styles and requests that are not its own."""
    with serving(run, "ana") as address:
        page.open(address)
        page.until(f"{PROGRESS} === '0 of 16'")
        assert {urlsplit(url).netloc for url in page.requests} == {urlsplit(address).netloc}
        page.look("document.body.append(Object.assign(document.createElement('script'), {text: 'window.hit = 1'}))")
        page.look("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hit = 2\">')")
        assert page.look("fetch('http://127.0.0.1:9/').then(() => 'went', error => error.name)") == "TypeError"
        page.until("performance.now() > 0")
        assert page.look("window.hit ?? 'inert'") == "inert"
        refused = " ".join(page.errors)
        for directive in ("script-src", "img-src", "connect-src"):
            assert directive in refused or "default-src" in refused


def test_what_is_not_saved_is_said_and_stays(run: Path, page: Browser) -> None:
    with judge(run, "--rater", "ana") as (process, address):
        page.open(address)
        page.until(f"{PROGRESS} === '0 of 16'")
        before = page.look(TEXT)
        process.kill()
        process.wait()
        page.press("3", "Enter")
        page.until("document.getElementById('error').textContent.startsWith('Not saved')")
        assert page.look(TEXT) == before
        assert page.look(CHOSEN) == "0.3"
        assert page.look(PROGRESS) == "0 of 16"
    assert read(run / "ratings") == {}


def test_a_phone_and_a_bad_name(run: Path, page: Browser) -> None:
    with serving(run) as address:
        page.resize(360, 740)
        page.open(address)
        page.until("document.activeElement.id === 'name'")
        page.press(*"a b", "Enter")
        page.until("document.getElementById('error').textContent.includes('1 to 32 letters')")
        page.look("document.getElementById('name').value = ''")
        page.press(*"cy", "Enter")
        page.until(f"{PROGRESS} === '0 of 16'")
        assert page.look("document.documentElement.scrollWidth") == 360
        sizes = page.look("[...document.querySelectorAll('.scores button, .row button')].map(b => b.offsetHeight)")
        assert min(size for size in sizes if size) >= 44  # a finger's width
        page.click(".scores button:nth-child(11)")
        page.click("#save")
        page.until(f"{PROGRESS} === '1 of 16'")
        page.resize(1100, 900)
    assert list(read(run / "ratings")["cy"].values()) == [1.0]


# ---- without --------------------------------------------------------------------------------------------------------


def test_raters_are_blind(run: Path) -> None:
    """Nothing that is sent tells what anybody else thinks, nor where the target is."""
    with serving(run) as address:
        status, state, _ = ask(address, "state?rater=ana")
        assert status == 200
        assert state.keys() == {"done", "of", "passed", "undo", "before", "item"}
        assert state["item"].keys() == {"id", "text", "drawing"}
        found = deployed.read(run)
        trial = found.items.index(state["item"]["id"])
        x, y = (value * found.scene.house.scale for value in found.trials[trial].target)
        assert f'cx="{x:g}" cy="{y:g}"' not in state["item"]["drawing"]
        before = state["item"]
        ask(address, "answer", {"rater": "bo", "item": before["id"], "tenths": 3})
        assert ask(address, "state?rater=ana")[1]["item"] == before


def test_everybody_rates_what_the_language_model_judged_first(run: Path) -> None:
    found = deployed.read(run)
    judging = Judging(found, 10)
    assert judging.items == [found.items[k] for k in range(15, 5, -1)]
    assert set(Judging(found, 16).items) == set(found.items)
    assert Judging(found, 12).items[:10] == judging.items


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (403, {"tenths": 5}, {"Origin": ""}),
        (403, {"tenths": 5}, {"Origin": "http://example.org"}),
        (403, {"tenths": 5}, {"Origin": "null"}),
        (403, {"tenths": 5}, {"Host": "example.org:80", "Origin": "http://example.org:80"}),
        (403, {"tenths": 5}, {"Host": ""}),
        (411, {"tenths": 5}, {"Content_Length": ""}),
        (411, {"tenths": 5}, {"Content_Length": "-1"}),
        (413, {"tenths": 5}, {"Content_Length": str(LARGEST + 1)}),
        (413, {"tenths": 5}, {"Content_Length": "9" * 5000}),
        (415, {"tenths": 5}, {"Content_Type": "text/plain"}),
        (400, b"{", {}),
        (400, b"[" * 3000, {}),
        (400, b"[]", {}),
        (400, b"\xff", {}),
        (400, {"tenths": 5, "item": "of another"}, {}),
        (400, {"tenths": 5, "item": ["x"]}, {}),
        (400, {"tenths": 5, "rater": "../ana"}, {}),
        (400, {"tenths": 5, "rater": None}, {}),
        (400, {}, {}),
        *((400, {"tenths": tenths}, {}) for tenths in (-1, 11, 5.0, 0.5, True, "5", [5], {})),
    ],
)
def test_what_is_refused_writes_nothing(run: Path, status: int, body: Any, headers: dict[str, str]) -> None:
    with serving(run) as address:
        if isinstance(body, dict):
            body = {"rater": "ana", "item": deployed.read(run).items[0]} | body
        found, told, _ = ask(address, "answer", body, **headers)
        assert found == status
        assert told["error"]
    assert not (run / "ratings").exists()


def test_only_who_has_the_address_comes_in(run: Path) -> None:
    with serving(run) as address:
        parts = urlsplit(address)
        base, token = f"http://{parts.netloc}", parts.path.strip("/")
        tries = [
            "/",
            "//",
            f"/{'0' * 32}/",
            f"/{token[:-1]}/",
            f"/{token}0/",
            f"/{token.upper()}x/",
            "/%00/",
            "/%C3%A9/",
            "/[/",
        ]
        for path in tries:
            status, told, response = ask(base + path)
            assert status == 403, path
            assert token not in json.dumps(told) + str(response.headers)
        assert ask(f"{base}/state?rater=ana")[0] == 403
        assert ask(f"{base}/answer", body={"rater": "ana"})[0] == 403
        assert ask(f"{base}/{token}/other")[0] == 404
        assert ask(f"{base}/{token}/other", body={"rater": "ana"})[0] == 404
        status, source, response = ask(address)
        assert status == 200
        assert token not in source
        assert "no-referrer" in response.headers["Referrer-Policy"]
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        nonces = [re.search(r"nonce-(\w+)", ask(address)[2].headers["Content-Security-Policy"]) for _ in range(2)]
        assert nonces[0] and nonces[1]  # noqa: PT018
        assert nonces[0][1] != nonces[1][1]
        port = int(parts.port or 0)
        listening = [one.laddr for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
        assert [place.ip for place in listening if place.port == port] == ["127.0.0.1"]


def test_a_rating_that_cannot_be_written_is_told(run: Path) -> None:
    with serving(run) as address:
        item = ask(address, "state?rater=ana")[1]["item"]["id"]
        (run / "ratings").write_text("in the way")
        status, told, _ = ask(address, "answer", {"rater": "ana", "item": item, "tenths": 5})
        assert status == 507
        assert told["error"].startswith("not saved")
        (run / "ratings").unlink()
        assert ask(address, "answer", {"rater": "ana", "item": item, "tenths": 5})[1]["done"] == 1


def test_a_killed_server_has_lost_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    """Three raters answer, take back and pass over as fast as they can, and the process is killed while they do."""
    run = write_behaviours(tmp_path / "ways", count=400, judged=0)
    told: dict[str, list[tuple[str, float | None]]] = {"ana": [], "bo": [], "cy": []}
    enough = threading.Event()

    def rate(address: str, who: str) -> None:
        item = ask(address, f"state?rater={who}")[1]["item"]["id"]
        for k in range(400):
            body = {"rater": who} if k % 7 == 6 else {"rater": who, "item": item, "tenths": (None, 0, 3, 10)[k % 4]}
            try:
                _, state, _ = ask(address, "undo" if k % 7 == 6 else "answer", body)
            except (OSError, http.client.HTTPException, ValueError):
                return  # killed: of this one nobody was told
            told[who] = told[who][:-1] if k % 7 == 6 else [*told[who], (item, (None, 0.0, 0.3, 1.0)[k % 4])]
            item = state["item"]["id"]
            if k == 30:
                enough.set()

    with judge(run, "--trials", "400") as (process, address):
        raters = [threading.Thread(target=rate, args=(address, who)) for who in told]
        for thread in raters:
            thread.start()
        assert enough.wait(60)
        process.kill()
        for thread in raters:
            thread.join()
    for who, expected in told.items():
        stands = [(answer.item, answer.score) for answer in Ratings(run / "ratings", who).answers()]
        # The one that was under way may have been written, or taken back, before its sender could be told.
        assert stands in (expected, expected[:-1]) or stands[:-1] == expected
        assert len(expected) > 5
    with judge(run, "--trials", "400") as (_, address):
        for who in told:
            state = ask(address, f"state?rater={who}")[1]
            given = Ratings(run / "ratings", who).answers()
            assert state["done"] == len({answer.item for answer in given if answer.score is not None})
            assert state["item"]["id"] not in {answer.item for answer in given}


def test_levels_are_those_of_the_buttons(run: Path) -> None:
    with serving(run) as address:
        buttons = re.findall(r'<button type="button" value="(\d+)">([\d.]+)</button>', ask(address)[1])
        assert [(int(value) / 10, float(shown)) for value, shown in buttons] == [(level, level) for level in LEVELS]


@pytest.mark.parametrize(
    ("stages", "words", "sentence"),
    [
        (("search",), (), "has no finished stage deploy"),
        (("split", "deploy"), ("--rater", "Ana B"), "a rater's name is"),
        (("split", "deploy"), ("--port", "99999"), "choose another --port"),
        (("split", "deploy"), ("--trials", "0"), "at least 1"),
    ],
)
def test_what_cannot_be_served_is_one_sentence(tmp_path: Path, stages: Any, words: Any, sentence: str) -> None:
    run = write_behaviours(tmp_path / "ways", stages=stages)
    command = [sys.executable, str(ROOT / "launch.py"), "judge", str(run), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not (run / "ratings").exists()
