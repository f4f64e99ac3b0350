"""A run of before, whose configuration holds a secret: what is shown of it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from cluster.report import document as report
from cluster.report.compare import compare

SECRET = "sk-planted-8f3a1c"
LLM = {
    "model": "m",
    "base_url": f"https://me:{SECRET}@host/v1",
    "headers": {"User-Agent": "cairn", "X-Auth": SECRET},
    "query": {"api-version": "7", "key": SECRET},
    "body": {"temperature": 0.5, "provider": {"order": [{"token": SECRET}]}},
}
WORDS = ["seed=7", "llm.model=m", f"llm.headers.X-Auth={SECRET}", f"llm.headers={{X-Auth: Bearer {SECRET}x}}"]


def test_a_secret_on_disk_is_shown_by_no_page_and_no_table(
    make_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = make_run("old"), make_run("new")
    config = yaml.safe_load((old / "config.yaml").read_text())
    (old / "config.yaml").write_text(yaml.safe_dump({**config, "llm": LLM}))
    manifest = json.loads((old / "manifest.json").read_text())
    command = " ".join(["python", "launch.py", "run", *WORDS])
    (old / "manifest.json").write_text(json.dumps({**manifest, "command": command}))
    compare(old, new)
    pages = [report.write([old]).read_text(), report.write([old, new]).read_text(), capsys.readouterr().out]
    pages += [path.read_text() for path in old.parent.rglob("*.html")]
    assert not [page for page in pages if SECRET in page]
    assert "X-Auth" in pages[0]
    assert "llm.headers.X-Auth=(hidden)" in pages[0]
    assert "launch.py run seed=7 llm.model=m" in pages[0]
