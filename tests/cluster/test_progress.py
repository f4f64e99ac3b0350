"""What a person sees while a run is on."""

from __future__ import annotations

from unittest import mock

import pytest
from rich.console import Console

from cluster import run as controller
from cluster.config.tree import compose
from cluster.roles.backend import Inline
from cluster.runs import controller as work
from cluster.runs.folder import RunFolder
from cluster.runs.progress import Pace, Progress

ROW = {"env_steps": 2000, "version": 3, "charts/success_rate": 0.5, "charts/episodic_return": 2.218}


def panel(progress, row):
    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(progress._panel(row))
    return console.export_text()


@pytest.mark.parametrize(
    ("score", "line", "row"),
    [("", "success 50.0%", "50.0% training"), ("achievements unlocked", "achievements unlocked 2.22", "2.22 training")],
)
def test_speaks_of_success_or_of_the_score(tmp_path, capsys, score, line, row):
    progress = Progress(RunFolder(tmp_path), 10_000, 0.0, score)
    progress.update(ROW)
    printed = capsys.readouterr().out
    assert f"steps 2,000/10,000  0/s  {line}  lag" in printed
    assert printed.strip() in (tmp_path / "run.log").read_text()
    assert row in panel(progress, ROW)
    assert (score or "success") in panel(progress, ROW)
    validated = ROW | {"validation": 0.25}
    assert f"{row}, {'0.25' if score else '25.0%'} validation" in panel(progress, validated)


def test_says_how_fast_a_language_model_computes_and_what_of_its_gpu_is_used(tmp_path, capsys):
    progress = Progress(RunFolder(tmp_path), 10_000, 0.0)
    row = ROW | {"charts/tokens_per_second": 41_234.5, "charts/mfu": 0.18, "gpu/use": 0.71, "gpu/memory": 0.43}
    progress.update(row)
    assert "41,234 tokens/s  MFU 18%  GPU use 71%  GPU memory 43%  left" in capsys.readouterr().out
    assert "MFU 18%, GPU use 71%, GPU memory 43%" in panel(progress, row)
    assert "GPU" not in panel(progress, ROW)


@pytest.mark.parametrize("score", ["", "points"])
def test_before_the_first_episode_there_is_a_dash(tmp_path, capsys, score):
    progress = Progress(RunFolder(tmp_path), 10_000, 0.0, score)
    progress.update({"env_steps": 10, "version": 0})
    assert f"{score or 'success'} -  lag" in capsys.readouterr().out
    assert "- training" in panel(progress, {"env_steps": 10, "version": 0})


@pytest.mark.parametrize("token", [True, False])
def test_a_run_says_where_its_dashboard_is_and_the_token_that_it_asks_for(tmp_path, monkeypatch, capsys, token):
    """Where the token lies, and never the token. On Kubernetes the run has no file with it."""

    def linked(self, stop_reason):
        backend = Inline(stop_reason)
        backend.links = {"dashboard": "http://127.0.0.1:8265", "metrics": "http://127.0.0.1:1/metrics"}
        if token:
            (self.folder.path / "token").write_text("5ec2e7")
        return backend

    monkeypatch.setattr(work.Controller, "_backend", linked)
    monkeypatch.setattr(work, "Shown", Unseen)
    words = ["env=toy/Line", "cluster=inline", "policy.hidden=16", "actors.envs=4", "actors.steps=8"]
    words += ["learner.env_steps=64", "evaluate.episodes=4", f"run.folder={tmp_path}", "run.name=a"]
    assert controller.run(compose(words)) == 0
    printed = capsys.readouterr().out
    where = f"; its token is in {tmp_path / 'a' / 'token'}" if token else ""
    assert printed.splitlines()[0] == f"dashboard: http://127.0.0.1:8265{where}"
    assert "5ec2e7" not in printed + (tmp_path / "a" / "run.log").read_text()


class Unseen:
    """A sink of metrics that shows them to nobody."""

    def __init__(self, run, own):
        pass

    def __call__(self, row):
        pass

    def close(self):
        pass


# ---- the time left --------------------------------------------------------------------------------------------------


class Clock:
    """Seconds, moved by hand."""

    now = 1000.0

    def __call__(self):
        return self.now


def lefts(total, points):
    """What is said after each of (seconds since the one before, count, ...)."""
    clock = Clock()
    pace, said = Pace(total), []
    with mock.patch("time.monotonic", clock):
        for seconds, *point in points:
            clock.now += seconds
            pace.reached(*point)
            said.append(pace.left)
    return said


def test_the_time_before_the_first_update_does_not_count():
    """40 s of compiling and then 100 steps a second: what is left is not 40 s a hundred steps."""
    assert lefts(1000, [(40, 100), (1, 200), (4, 600)]) == [None, None, 4.0]


def test_nothing_is_said_before_there_is_something_to_tell_from():
    assert lefts(1000, [(0, 10), (1, 20), (3, 50), (0.9, 60)]) == [None] * 4
    assert lefts(1000, [(0, 10), (9, 10)]) == [None, None]
    assert Pace(1000).left is None


def test_one_slow_update_is_enough_to_tell_from():
    assert lefts(400, [(30, 100), (300, 200)]) == [None, 600.0]


def test_what_is_done_is_done_at_once():
    assert lefts(100, [(40, 100)]) == [0.0]


def test_only_the_last_minute_counts():
    slow, fast = [(10, 10 * i) for i in range(1, 11)], [(10, 100 + 100 * i) for i in range(1, 8)]
    assert lefts(10_000, [*slow, *fast])[-1] == (10_000 - 800) / 10


def test_while_a_replay_fills_nothing_is_said_and_its_speed_does_not_count():
    filling = [(5, 1000 * i, False) for i in range(1, 5)]
    assert lefts(10_000, [*filling, (10, 4100, True), (10, 4200, True)]) == [None] * 5 + [580.0]


def test_a_learner_that_went_back_to_a_checkpoint_is_timed_anew():
    assert lefts(1000, [(0, 100), (10, 300), (60, 200), (10, 300)]) == [None, 35.0, None, 70.0]


def test_the_line_and_the_panel_have_a_dash_until_the_time_left_is_known(tmp_path, capsys):
    progress = Progress(RunFolder(tmp_path), 10_000, 0.0)
    for seconds, words in ((None, "left -"), (0.0, "left 0 s"), (125.0, "left 2 min 05 s")):
        progress.update(ROW | {"seconds_left": seconds})
        assert capsys.readouterr().out.strip().endswith(words)
        assert words in panel(progress, ROW | {"seconds_left": seconds})
