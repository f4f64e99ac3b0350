"""What a machine lacks: tests that look through a browser are left out where there is none, and that is said.

`CAIRN_BROWSER=required` runs them all the same, and they fail.
"""

import os

from tests.cluster import browser


def _left_out():
    return browser.find() is None and os.environ.get("CAIRN_BROWSER") != "required"


def pytest_collection_modifyitems(config, items):
    if _left_out():
        through = [item for item in items if "browser" in getattr(item, "fixturenames", ())]
        items[:] = [item for item in items if item not in through]
        config.hook.pytest_deselected(items=through)


def pytest_terminal_summary(terminalreporter):
    if _left_out():
        words = "left out: the tests that look at pages through a browser: apt-get install chromium, and run them again"
        terminalreporter.write_line(words)
