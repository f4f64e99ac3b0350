"""What a machine lacks, and what nobody looks at.

Tests that look through a browser are left out where there is none, and that is said. `CAIRN_BROWSER=required` runs
them all the same, and they fail. Tests marked `mujoco`, `trackers` or `pyribs` are left out where that extra is not
installed, and that is said, too.
"""

import html
import os

import pytest
from hypothesis import settings

from cluster.metrics import sinks
from cluster.report import plots
from envs import registry
from learner.search import emitters
from tests.cluster import browser

settings.register_profile("untimed", deadline=None)  # on a busy machine, an example may take a second
settings.load_profile("untimed")
LEFT_OUT = pytest.StashKey[dict[str, int]]()
SAID = {
    "browser": "tests look at pages through a browser and were left out: apt-get install chromium, and run them again",
    "mujoco": "tests simulate robots and were left out: pip install -r requirements-mujoco.txt, and run them again",
    "pyribs": "tests of pyribs' emitters were left out: pip install -r requirements-pyribs.txt, and run them again",
    "trackers": "tests of W&B and MLflow were left out: pip install -r requirements-trackers.txt, and run them again",
}


@pytest.fixture(autouse=True)
def figures(request, monkeypatch):
    """A run ends with a report, and its figures take a second to draw: where no test looks at them, only their titles.

    Tests in `report` look at them, and so does a run in a process of its own.
    """
    if request.path.parent.name in ("cluster", "learner", "house"):
        for name in ("curves", "bars"):
            monkeypatch.setattr(plots, name, lambda *_, title, **__: f'<svg aria-label="{html.escape(title)}"></svg>')


def pytest_addoption(parser):
    parser.addoption("--schedules", default="12", help="tests/chaos: how many schedules of faults, or FIRST:END")
    parser.addoption("--soak-minutes", type=float, default=5.0, help="tests/llm_service/test_soak.py: how long")


def pytest_collection_modifyitems(config, items):
    without = {
        "browser": browser.find() is None and os.environ.get("CAIRN_BROWSER") != "required",
        "mujoco": any(map(registry.missing, ("metaworld/ML45", "control/Tasks"))),
        "pyribs": bool(emitters.missing("cma_me")),
        "trackers": any(map(sinks.missing, ("wandb", "mlflow"))),
    }
    needs = {name: [i for i in items if name in i.fixturenames or i.get_closest_marker(name)] for name in without}
    left_out = {name: found for name, found in needs.items() if without[name]}
    gone = {item for found in left_out.values() for item in found}
    items[:] = [item for item in items if item not in gone]
    config.hook.pytest_deselected(items=list(gone))
    config.stash[LEFT_OUT] = {name: len(found) for name, found in left_out.items()}


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # one of several processes: the first one tells
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", {})


def pytest_terminal_summary(terminalreporter, config):
    for name, count in config.stash.get(LEFT_OUT, {}).items():
        if count:
            terminalreporter.write_line(f"{count} {SAID[name]}")
