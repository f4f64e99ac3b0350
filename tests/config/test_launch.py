"""The command line as a user meets it: real processes, their exit codes, and what they leave behind."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BAD = {  # words -> what stderr must say
    ("run", "learner.learning_rat=1"): "error: unknown key learner.learning_rat on the command line: did you mean "
    "learner.learning_rate?",
    ("run", "env=gym/Pendulum-v1"): "error: impossible combination: ",
    ("run", "-m", "seed=0..1", "actors.n=0"): "error: actors.n: must be at least 1, got 0",
    ("resume", "never-made"): "error: no run 'never-made'",
}


def launch(*words, cwd, **environment):
    return subprocess.run(
        [sys.executable, str(ROOT / "launch.py"), *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("words", BAD)
def test_bad_input_is_one_sentence_and_writes_nothing(words, tmp_path, monkeypatch, capfd):
    """In this process, which has loaded all that `launch.py` needs; the first one in a process of its own too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["launch.py", *words])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "launch.py"), run_name="__main__")
    answers = [(ended.value.code, *capfd.readouterr())]
    if words == next(iter(BAD)):
        process = launch(*words, cwd=tmp_path)
        answers.append((process.returncode, process.stdout, process.stderr))
    for code, out, err in answers:
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith(BAD[words])
    assert list(tmp_path.iterdir()) == []


def test_no_arguments_print_an_overview_without_heavy_imports(tmp_path):
    """Torch and Ray take seconds to import; the overview needs neither."""
    process = subprocess.run(
        [sys.executable, "-X", "importtime", str(ROOT / "launch.py")], cwd=tmp_path, capture_output=True, text=True
    )
    assert process.returncode == 0
    for name in ("doctor", "compare", "ppo", "babyai", "GoTo", "toy", "experiment=NAME"):
        assert name in process.stdout
    assert "python launch.py run experiment=toy" in process.stdout
    imported = {line.rpartition("|")[2].strip() for line in process.stderr.splitlines()}
    assert not imported & {"torch", "ray"}
    assert all(len(line.rstrip()) <= 80 for line in process.stdout.splitlines())


def test_cfg_prints_the_tree_with_sources_and_starts_nothing(tmp_path):
    process = launch("run", "experiment=toy", "actors.n=4", "--cfg", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    lines = {line.partition("#")[0].strip(): line.partition("# ")[2] for line in process.stdout.splitlines()}
    assert lines["n: 4"] == "command line"
    assert lines["id: toy/Line"] == "configs/env/toy.yaml"
    assert lines["experiment: toy"] == "command line"
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_verb_is_refused(tmp_path):
    process = launch("rnu", cwd=tmp_path)
    assert process.returncode == 2
    assert "run" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("name", ["envs", "learner"])
def test_a_package_from_elsewhere_is_refused(tmp_path, name):
    foreign = tmp_path / "elsewhere" / name
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").touch()
    process = subprocess.run(
        [sys.executable, "-P", str(ROOT / "launch.py")],
        env={**os.environ, "PYTHONPATH": f"{foreign.parent}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 2
    assert process.stderr.startswith("error: ")
    assert str(foreign) in process.stderr
    assert process.stderr.count("\n") == 1
