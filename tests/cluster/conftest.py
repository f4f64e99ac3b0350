"""Commands of SLURM as stand-ins, and a browser."""

import os

import pytest

from tests.cluster.browser import browse


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """A folder that is first on PATH: `commands("squeue", "echo ...")` makes a command there, which notes its words."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.delenv("CAIRN_JOB", raising=False)
    monkeypatch.chdir(tmp_path)

    def make(name, body):
        path = folder / name
        path.write_text(f'#!/bin/bash\necho "{name} $*" >> {tmp_path}/called\n{body}\n')
        path.chmod(0o755)
        return path

    make.called = lambda: (tmp_path / "called").read_text().splitlines() if (tmp_path / "called").exists() else []
    return make


@pytest.fixture
def accepts(commands):
    """sbatch takes jobs, and nothing is in the queue."""
    commands("sbatch", 'cat > /dev/null; [ "$1" = --test-only ] || echo 41')
    commands("squeue", "true")
    return commands


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with browse(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def page(browser):
    """An empty page of the browser."""
    browser.open("about:blank")
    browser.errors.clear()
    browser.requests.clear()
    return browser
