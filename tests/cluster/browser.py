"""A real browser without a window, moved by keys and clicks as a person would: Chromium's protocol over a pipe.

    Browser ── {"id", "method", "params"} \\0 ──> chromium (descriptor 3)
            <── replies and events ──────────── (descriptor 4)

Nothing listens, and no driver is needed. Whoever waits waits for something that is seen.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_S = 60.0
CODES = {"Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


def find() -> str | None:
    """The path of a browser, None if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextlib.contextmanager
def browse(folder: Path, width: int = 1100, height: int = 900) -> Iterator[Browser]:
    """A browser with a profile in `folder` and one empty page."""
    program = find()
    assert program, f"these tests need a browser, one of {', '.join(NAMES)}: apt-get install chromium"
    flags = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={folder}", "--no-first-run"]
    flags += ["--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-sync"]
    flags += ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses to sandbox itself for root
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for pipe in (os.pipe(), os.pipe()) for end in pipe]
    ours, theirs = (ends[1], ends[2]), (ends[0], ends[3])
    words = ["bash", "-c", f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}', "bash", program, *flags, "about:blank"]
    with open(folder / "chromium.log", "wb") as log:
        process = subprocess.Popen(words, pass_fds=theirs, stdout=log, stderr=log)
    for end in theirs:
        os.close(end)
    try:
        yield Browser(*ours, width, height)
    finally:
        process.kill()
        process.wait()
        for end in ours:
            os.close(end)


class Browser:
    """One page."""

    def __init__(self, to: int, back: int, width: int, height: int) -> None:
        self._to, self._back, self._rest, self._next = to, back, b"", 0
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its result."""
        self._next += 1
        message = {"id": self._next, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._read()
            if reply.get("id") == self._next:
                assert "error" not in reply, (method, reply["error"])
                result: dict[str, Any] = reply["result"]
                return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._back], [], [], PATIENCE_S)[0], "the browser does not answer"
            more = os.read(self._back, 1 << 16)
            assert more, "the browser has gone"
            self._rest += more
        first, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        elif message.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        elif message.get("method") == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        return message

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.until(f"document.readyState === 'complete' && location.href === {json.dumps(url)}")

    def reload(self) -> None:
        """Until the new page is there: the old one is marked."""
        self.look("window.old = true")
        self.call("Page.reload")
        self.until("!window.old && document.readyState === 'complete'")

    def look(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression: str) -> Any:
        """Its value once that is true."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if value := self.look(expression):
                return value
            time.sleep(0.02)
        seen = self.look("document.body.innerText")
        raise AssertionError(f"never: {expression}; the page says {seen!r}; errors: {self.errors}")

    def press(self, *keys: str) -> None:
        """Keys as the keyboard names them: "7", "Enter", "ArrowLeft"."""
        for key in keys:
            text = "\r" if key == "Enter" else key if len(key) == 1 else ""
            code = CODES.get(key, ord(key.upper()) if len(key) == 1 else 0)
            about = {"key": key, "windowsVirtualKeyCode": code}
            self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **about)
            self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def click(self, selector: str) -> None:
        """The middle of an element, which must be seen."""
        place = f"document.querySelector({json.dumps(selector)})"
        self.look(f"{place}.scrollIntoView({{block: 'center'}})")
        box = self.look(
            f"(() => {{ const b = {place}.getBoundingClientRect(); return [b.x, b.y, b.width, b.height] }})()"
        )
        x, y, width, height = box
        assert width * height, f"{selector} is not seen"
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=x + width / 2, y=y + height / 2, button="left", clickCount=1
            )

    def picture(self, path: Path, whole: bool = False) -> None:
        """PNG of what is seen, or of the whole page."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))
