"""A robot is asked in a real browser, by keys and clicks; what its server refuses."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from cluster.cli.ask.robot import MOST, Question, Robot
from cluster.cli.ask.server import Asking
from cluster.judge.loopback import LARGEST
from learner.behaviours import words
from tests.cluster.asked_run import LONGEST, write_asked
from tests.cluster.browser import Browser
from tests.cluster.loopback import ask, served

ROOT = Path(__file__).resolve().parents[2]
ASKED = "go to the fridge, then to the yellow tile"
TOLD = "document.getElementById('told').textContent"
ERROR = "document.getElementById('error').textContent"


@pytest.fixture(scope="module")
def robot(tmp_path_factory: pytest.TempPathFactory) -> Robot:
    found = Robot(write_asked(tmp_path_factory.mktemp("runs") / "<b>told@RUN@"))
    found.warm_up()
    return found


def body(**change: Any) -> dict[str, Any]:
    return {"sentence": ASKED, "samples": 3, "target": [300, 450], "seed": 0} | change


def write(page: Browser, name: str, text: str) -> None:
    page.look(f"document.getElementById('{name}').focus()")
    page.look(f"document.getElementById('{name}').value = ''")
    page.press(*text)


# ---- in the browser -------------------------------------------------------------------------------------------------


def test_a_person_asks(robot: Robot, page: Browser) -> None:
    """Keys alone: a sentence, a target, other samples; then a click on the map, and a route alone."""
    with served(Asking(robot)) as address:
        page.open(address)
        assert page.look("document.activeElement.id") == "sentence"
        assert page.look("document.querySelector('h1').textContent") == "Ask <b>told@RUN@"
        assert page.look("document.getElementById('answer').hidden")
        page.press(*"go to the kitchen, then to the fridge", "Enter")
        page.until(f"{TOLD}.startsWith('16 samples, ')")
        assert page.look("document.querySelector('mark').textContent") == "kitchen"
        assert "predicted" in page.look("document.getElementById('target').textContent")
        answer = robot.answer(Question("go to the kitchen, then to the fridge"))
        assert page.look("document.querySelectorAll('#routes button').length") == len(answer.routes)
        assert page.look("document.querySelectorAll('#map .route > circle').length") == 16
        for name, near in (("text", answer.by_text), ("end", answer.by_end)):
            captions = page.look(
                f"[...document.querySelectorAll('#{name} figcaption')].map(c => c.firstChild.textContent)"
            )
            assert captions == [one.text or "(it has no text)" for one in near]
            assert page.look(f"document.querySelectorAll('#{name} figure svg').length") == 3
        before = page.look("document.getElementById('map').innerHTML")
        page.click("#again")
        page.until(f"document.getElementById('map').innerHTML !== {before!r}")
        page.until("!document.getElementById('ask').disabled")
        page.click("#map svg")  # its middle
        x, y = (float(page.look(f"document.getElementById('{name}').value")) for name in "xy")
        assert (x, y) == pytest.approx((300, 321), abs=4)  # the key is below the map
        assert page.look("document.querySelectorAll('#map .chosen').length") == 1
        write(page, "x", "300")
        write(page, "y", "450")
        write(page, "samples", "4")
        page.press("Enter")
        page.until(f"{TOLD}.startsWith('4 samples, ')")
        assert "(300, 450), as given" in page.look("document.getElementById('target').textContent")
        assert page.look("document.getElementById('places').textContent") == "Places: fridge."
        page.click("#routes button")
        dim = page.look("[...document.querySelectorAll('#map .dim')].map(g => g.dataset.route)")
        routes = len(robot.answer(Question("go to the kitchen, then to the fridge", (300.0, 450.0), 4)).routes)
        assert sorted(map(int, dim)) == list(range(1, routes))
        page.click("#routes button")
        assert page.look("document.querySelectorAll('#map .dim').length") == 0
        page.click("#clear")
        assert page.look("document.getElementById('x').value") == ""
        assert {urlsplit(url).netloc for url in page.requests} == {urlsplit(address).netloc}
    assert page.errors == []


def test_what_is_asked_is_text(robot: Robot, page: Browser) -> None:
    nasty = "go <script>window.hit = 1</script><img src=x onerror='window.hit = 2'> to the fridge"
    with served(Asking(robot)) as address:
        page.open(address)
        page.call("Input.insertText", text=nasty)
        page.press("Enter")
        page.until(f"{TOLD}.startsWith('16 samples, ')")
        assert page.look("document.getElementById('said').textContent") == nasty
        assert page.look("document.querySelectorAll('main script, img, b b').length") == 0
        assert nasty in page.look("document.querySelector('#map svg').getAttribute('aria-label')")
        assert page.look("window.hit ?? 'inert'") == "inert"
    assert page.errors == []


def test_the_order_of_places_is_chosen(robot: Robot, page: Browser) -> None:
    with served(Asking(robot)) as address:
        page.open(address)
        assert page.look("[...document.getElementById('order').options].map(o => o.value)") == list(words.ORDERS)
        page.press(*"to the fridge after the yellow tile", "Tab", "ArrowDown", "ArrowDown", "Enter")
        page.click("#ask")
        page.until(f"{TOLD}.startsWith('16 samples, ')")
        assert page.look("document.getElementById('places').textContent") == "Places: yellow tile → fridge."
    assert page.errors == []


def test_errors_are_told_and_what_was_typed_stays(robot: Robot, page: Browser) -> None:
    with served(Asking(robot)) as address:
        page.open(address)
        page.press("Enter")
        page.until(f"{ERROR}.startsWith('the sentence is empty')")
        page.press(*ASKED)
        write(page, "x", "1")
        page.press("Enter")
        page.until(f"{ERROR} === 'a target is two numbers, x and y'")
        write(page, "y", "1")
        page.press("Enter")
        page.until(f"{ERROR}.includes('is in a wall')")
        assert page.look("document.getElementById('sentence').value") == ASKED
        assert page.look("document.getElementById('answer').hidden")
    page.press("Enter")
    page.until(f"{ERROR} === 'The server does not answer. Start it again.'")


def test_a_narrow_window_shows_all(robot: Robot, page: Browser) -> None:
    with served(Asking(robot)) as address:
        page.resize(360, 740)
        page.open(address)
        page.press(*ASKED, "Enter")
        page.until(f"{TOLD}.startsWith('16 samples, ')")
        assert page.look("document.documentElement.scrollWidth") == 360
        heights = page.look("[...document.querySelectorAll('button, input, select')].map(b => b.offsetHeight)")
        assert min(heights) >= 44  # a finger's width
        page.resize(1100, 900)


# ---- without --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "sent", "headers"),
    [
        (403, body(), {"Origin": "http://example.org"}),
        (403, body(), {"Host": "example.org:80", "Origin": "http://example.org:80"}),
        (413, body(sentence="go " * LARGEST), {}),
        (415, body(), {"Content_Type": "text/plain"}),
        (400, b"{", {}),
        (400, b"[]", {}),
        (400, body(sentence="go " * LONGEST), {}),
        *((400, body(sentence=value), {}) for value in ("", None, 5, ["go"], "\x00")),
        *((400, body(samples=value), {}) for value in (0, -1, MOST + 1, 10**30, 2.0, True, "3", None)),
        *((400, body(seed=value), {}) for value in (-1, 2**32, 0.5, None)),
        *((400, body(order=value), {}) for value in ("sideways", None, 1)),
        *((400, body(target=value), {}) for value in ("x", [1], [1, 2, 3], [1, "2"], [True, 1], {}, [1, 1], [-5, 9])),
        *((400, body(target=value), {}) for value in ([10**400, 1], [float("nan"), 1], [float("inf"), 1])),
    ],
)
def test_what_is_refused_is_one_sentence(robot: Robot, status: int, sent: Any, headers: dict[str, str]) -> None:
    with served(Asking(robot)) as address:
        found, told, _ = ask(address, "ask", sent, **headers)
    assert found == status
    assert told.keys() == {"error"}
    assert told["error"]
    assert "\n" not in told["error"]


def test_only_who_has_the_address_may_ask(robot: Robot) -> None:
    with served(Asking(robot)) as address:
        parts = urlsplit(address)
        for path in ("/", f"/{'0' * 32}/", f"{parts.path[:-2]}/"):
            assert ask(f"http://{parts.netloc}{path}")[0] == 403
            assert ask(f"http://{parts.netloc}{path}", "ask", body())[0] == 403
        assert ask(address, "other", body())[0] == 404
        assert ask(address, "state?rater=ana")[0] == 404
        status, source, response = ask(address)
        assert status == 200
        assert "<b>" not in re.sub(r"<style.*?</style>|<script.*?</script>", "", source, flags=re.DOTALL)
        assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        assert "unsafe" not in response.headers["Content-Security-Policy"]


def test_several_may_ask_at_once(robot: Robot) -> None:
    with served(Asking(robot)) as address, ThreadPoolExecutor(4) as people:
        asked = [body(seed=seed % 2) for seed in range(8)]
        found = list(people.map(lambda sent: ask(address, "ask", sent)[:2], asked))
    assert {status for status, _ in found} == {200}
    assert all(found[k][1] == found[k % 2][1] for k in range(8))
    assert found[0][1]["samples"] != found[1][1]["samples"]


def test_the_verb_serves_until_it_is_interrupted(robot: Robot, tmp_path: Path) -> None:
    run = write_asked(tmp_path / "run")
    before = sorted(path for path in run.rglob("*"))
    command = [sys.executable, str(ROOT / "launch.py"), "ask", str(run), "--serve"]
    heeding = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # what runs in a shell's background ignores it
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, preexec_fn=heeding)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/[0-9a-f]{32}/", line)
        assert address, (line, process.stderr and process.stderr.read())
        status, answer, _ = ask(address[0], "ask", body())
        assert (status, answer["sentence"], len(answer["samples"])) == (200, ASKED, 3)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
    assert sorted(path for path in run.rglob("*")) == before  # nothing is stored
