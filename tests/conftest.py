"""What a machine lacks, and what nobody looks at.

Tests that look through a browser are left out where there is none, and that is said. `CAIRN_BROWSER=required` runs
them all the same, and they fail.
"""

import html
import os

import pytest

from cluster.report import plots
from tests.cluster import browser

LEFT_OUT = pytest.StashKey[int]()


@pytest.fixture(autouse=True)
def figures(request, monkeypatch):
    """A run ends with a report, and its figures take a second to draw: where no test looks at them, only their titles.

    Tests in `report` look at them, and so does a run in a process of its own.
    """
    if request.path.parent.name in ("cluster", "learner", "house"):
        for name in ("curves", "bars"):
            monkeypatch.setattr(plots, name, lambda *_, title, **__: f'<svg aria-label="{html.escape(title)}"></svg>')


def pytest_collection_modifyitems(config, items):
    if browser.find() is None and os.environ.get("CAIRN_BROWSER") != "required":
        through = [item for item in items if "browser" in item.fixturenames]
        items[:] = [item for item in items if item not in through]
        config.hook.pytest_deselected(items=through)
        config.stash[LEFT_OUT] = len(through)


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # one of several processes: the first one tells
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter, config):
    if left_out := config.stash.get(LEFT_OUT, 0):
        what = "tests look at pages through a browser and were left out"
        terminalreporter.write_line(f"{left_out} {what}: apt-get install chromium, and run them again")
