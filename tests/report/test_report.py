"""The page says what the files say, stands alone, and survives what killed runs leave behind."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.report import document as report
from cluster.runs import run_data
from llm_service.errors import UsageError

MakeRun = Callable[..., Path]
Read = Callable[[Path], tuple[str, Any]]
Sweep = Callable[[str, list[Any]], Path]
Drawn = tuple[Path, str, Any]


def test_numbers_are_those_of_the_files(drawn: Drawn) -> None:
    folder, _, page = drawn
    results = json.loads((folder / "stages/evaluate/results.json").read_text())["success"]
    assert f"{100 * results['rate']:.1f} %" in page.text
    assert f"95 % Wilson interval {100 * results['low']:.1f} to {100 * results['high']:.1f} %" in page.text
    for shown in ("ppo on babyai/GoToLocal", "512", "819,200", "1.4", "node-7", "0123456789abcdef", "torch 2.13.0"):
        assert shown in page.text
    assert "go to a door 95.3 % [90.2, 97.8] 128" in page.text
    assert "learner 75 %, env 25 %" in page.text
    assert "learning_rate 0.0003" in page.text
    assert "python launch.py resume ppo-a" in page.text
    told = {"Episodes", "Learning curve", "Success by task kind", "Throughput and policy lag", "Losses"}
    assert told <= set(page.words)
    assert "Fitting" not in page.words


def test_page_stands_alone(drawn: Drawn) -> None:
    _, source, page = drawn
    assert "script" not in page.tags
    assert "<script" not in source
    for name, value in page.attributes:
        if name in ("src", "href", "xlink:href", "data", "srcset", "action"):
            assert value.startswith(("data:", "#")), (name, value[:60])
    assert "@import" not in source
    assert not re.search(r"url\(\s*['\"]?(?!#)", source)
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    targets = [value[1:] for name, value in page.attributes if name == "href"]
    targets += re.findall(r"url\(#([^)]*)\)", source)
    assert set(targets) <= set(ids)


def test_text_of_users_is_escaped(make_run: MakeRun, read: Read) -> None:
    folder = make_run(
        "ppo-a", rows=0, mission='pick up <b>&</b> <script>alert(1)</script> "ball"', learning_rate="<i>fast</i>"
    )
    source, page = read(report.write([folder]))
    assert "pick up &lt;b&gt;&amp;&lt;/b&gt; &lt;script&gt;" in source
    assert "<i>" not in source
    assert "script" not in page.tags
    assert "<i>fast</i>" in page.text


@pytest.mark.usefixtures("undrawn")
def test_animations_move_on_screen_and_stand_still_in_print(make_run: MakeRun, read: Read) -> None:
    source, page = read(report.write([make_run("ppo-a", rows=0)]))
    assert source.count("data:image/gif;base64,") == source.count("data:image/png;base64,") == 4
    assert page.text.count("✓ solved") == 3
    assert page.text.count("✗ not solved") == 1


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("file", ["../secret.gif", "/etc/passwd", "videos/absent.gif", "", "status.json"])
def test_only_animations_of_the_run_are_embedded(make_run: MakeRun, file: str, read: Read) -> None:
    folder = make_run("ppo-a", rows=0)
    (folder.parent / "secret.gif").write_bytes((folder / "videos/evaluate-0.gif").read_bytes())
    path = folder / "stages/evaluate/results.json"
    results = json.loads(path.read_text())
    results["videos"] = [{"file": file, "mission": "m", "success": True}]
    path.write_text(json.dumps(results))
    source, page = read(report.write([folder]))
    assert "data:image" not in source
    assert "Episodes" not in page.words


def trace(folder: Path, content: str | None, file: str = "videos/evaluate-0.json") -> None:
    """Gives the first animation of a run what a potential says along it."""
    path = folder / "stages/evaluate/results.json"
    results = json.loads(path.read_text())
    results["videos"][0]["trace"] = file
    path.write_text(json.dumps(results))
    if content is not None:
        (folder / file).write_text(content)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("phi", "reward", "said"),
    [
        (
            [-0.0, 0.25, -0.125, 0.12345], [0, 0, 0.9],
            "phi: 0 at first, 0.123 at last, highest 0.25 (step 1), lowest -0.125 (step 2); reward: step 3",
        ),
        ([0.5, 0.5], [0], "phi: 0.5 at first, 0.5 at last, always the same; no reward"),
        ([0, 1, 1, 1], [1, 0, 2], "highest 1 (step 1), lowest 0 (step 0); reward: steps 1, 3"),
        ([0] * 10, [0, 1, 1, 1, 1, 1, 0, 0, 0], "always the same; reward: 5 steps, the first is 2"),
    ],
)  # fmt: skip
def test_what_a_potential_says_is_told_in_words_too(
    phi: list[float], reward: list[float], said: str, make_run: MakeRun, read: Read
) -> None:
    folder = make_run("ppo-a", rows=0, mission="go to the ball")
    trace(folder, json.dumps({"phi": phi, "paid": reward, "reward": reward}))
    _, page = read(report.write([folder]))
    assert page.text.count(said) == 1
    assert "Under the pictures, in blue: phi" in page.text
    told = [value for name, value in page.attributes if name == "alt"]
    assert sum(said in value for value in told) == 2  # the moving picture and the still one
    assert all(value.startswith("go to the ball") for value in told)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("content", [None, "", "[1]", '{"phi": 3}', '{"phi": []}', '{"phi": [0, NaN], "reward": [0]}'])
def test_without_what_a_potential_says_the_page_is_as_ever(
    content: str | None, make_run: MakeRun, read: Read, tmp_path: Path
) -> None:
    folder, plain = make_run("ppo-a", rows=0), make_run("ppo-b", rows=0)
    trace(folder, content)
    (tmp_path / "runs/secret.json").write_text('{"phi": [0, 1], "reward": [0]}')
    for changed, file in ((folder, None), (plain, "../secret.json")):
        if file:
            trace(changed, None, file)
        source, page = read(report.write([changed]))
        assert source.count("data:image/gif;base64,") == 4
        assert "phi" not in page.text
        assert not [value for name, value in page.attributes if name == "alt" and "phi" in value]


@pytest.mark.usefixtures("undrawn")
def test_damaged_animation_is_still_embedded_once(make_run: MakeRun, read: Read) -> None:
    folder = make_run("ppo-a", rows=0)
    (folder / "videos/evaluate-0.gif").write_bytes(b"GIF89a")
    source, _ = read(report.write([folder]))
    assert source.count("data:image/png;base64,") == 3


def test_truncated_and_strange_metrics(make_run: MakeRun, read: Read) -> None:
    folder = make_run("ppo-a", rows=20)
    path = folder / "metrics.jsonl"
    strange = (
        '{"kind": "train", "env_steps": 450000, "charts/SPS": NaN, "losses/policy": "?"}\n[1]\n\n{"kind": "train"}\n'
    )
    path.write_text(path.read_text() + strange + '{"kind": "train", "env_steps": 46')
    run = run_data.load(folder)
    assert run.train[-1]["env_steps"] == 450_000
    read(report.write([folder]))


def test_rows_may_lack_a_rate(make_run: MakeRun, read: Read) -> None:
    """A row between two chunks has no sampling rate, and a run of such rows has no line of it."""
    folder = make_run("ppo-a", evaluated=False)
    rows = [{"kind": "train", "env_steps": i, "charts/SPS": 1.0, "charts/SPS_sampling": 2.0} for i in range(6)]
    for lacking, lines in ((rows[1::2], 1), (rows, 0)):
        for row in lacking:
            row.pop("charts/SPS_sampling", None)
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        source, page = read(report.write([folder]))
        assert source.count("<svg") == 1
        assert page.words.count("sampling") == lines


def test_rows_repeated_after_a_resume_count_once(make_run: MakeRun) -> None:
    folder = make_run("ppo-a", rows=20)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "env_steps": 307200, "wall_seconds": 60, "charts/SPS": 5}\n')
    steps, values = run_data.series(run_data.load(folder).train, "charts/SPS")
    assert steps[-1] == 307_200
    assert values[-1] == 5
    assert len(steps) == 15


@pytest.mark.usefixtures("undrawn")
def test_run_without_evaluation(make_run: MakeRun, read: Read) -> None:
    _, page = read(report.write([make_run("ppo-a", evaluated=False, state="crashed")]))
    assert "There is no finished evaluate stage, and so no held-out success." in page.text
    assert not {"Success by task kind", "Episodes"} & set(page.words)
    assert "ppo-a is crashed" in page.text
    assert "Success rate against env steps." in page.text


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("kept", ["config.yaml", "status.json", "metrics.jsonl"])
@pytest.mark.parametrize("content", [None, "", "{", "\x00", "- 1"])
def test_any_one_file_is_enough(tmp_path: Path, make_run: MakeRun, kept: str, content: str | None, read: Read) -> None:
    whole = make_run("whole", rows=5, evaluated=False)
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / kept).write_text((whole / kept).read_text() if content is None else content)
    _, page = read(report.write([bare]))
    assert "Episodes" not in page.words
    if kept != "metrics.jsonl" or content is not None:
        assert "<svg" not in (bare / "report.html").read_text()
        assert not {"Learning curve", "Throughput and policy lag", "Losses"} & set(page.words)


def test_not_a_run_folder_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run folder"):
        report.write([tmp_path])


@pytest.mark.usefixtures("undrawn")
def test_seeds_are_averaged(make_run: MakeRun, read: Read, sweep: Sweep) -> None:
    runs = [make_run(f"s{seed}", seed=seed, solved=solved, rows=20) for seed, solved in enumerate((460, 480, 500))]
    base = sweep("base", ["s0", "s1", {"name": "s2", "words": ["seed=2"]}, "s3"])
    path = report.write([base])
    assert path == base / "report.html"
    _, page = read(path)
    assert "93.8 % of held-out episodes solved, lowest to highest of 3 seeds 89.8 to 97.7 %" in page.text
    assert "1,536 held-out episodes" in page.text.replace("held-out episodes 1,536", "1,536 held-out episodes")
    assert "s3 belongs to the sweep and has no run folder yet." in page.text
    assert "bands: lowest to highest of 3 seeds" in page.text
    assert [run.folder for run in run_data.expand([base])[0]] == runs


@pytest.mark.usefixtures("undrawn")
def test_runs_of_one_seed_are_no_seeds(make_run: MakeRun, read: Read) -> None:
    runs = [make_run(f"s{i}", solved=solved, rows=20) for i, solved in enumerate((460, 480, 500))]
    _, page = read(report.write(runs))
    assert "of held-out episodes solved, lowest to highest of 3 runs of one seed 89.8 to 97.7 %" in page.text
    assert "bands: lowest to highest of 3 runs of one seed" in page.text
    assert "runs 3 training seeds 1 " in page.text
    assert " 3 seeds" not in page.text
    runs.append(make_run("s3", seed=1, rows=20))
    assert "lowest to highest of 4 runs of 2 seeds" in read(report.write(runs))[1].text


@pytest.mark.usefixtures("undrawn")
def test_a_report_on_several_runs_leaves_theirs_alone(make_run: MakeRun, read: Read) -> None:
    a, b, c = (make_run(name, rows=2, seed=seed) for seed, name in enumerate("abc"))
    own = report.write([a]).read_bytes()
    path = report.write([a, b, c])
    assert path == a.parent / "report-a+b+c.html"
    assert (a / "report.html").read_bytes() == own
    assert "python launch.py report a b c" in read(path)[1].text


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_is_named_twice_counts_once(make_run: MakeRun, sweep: Sweep, read: Read) -> None:
    a, _ = (make_run(name, rows=2, seed=seed) for seed, name in enumerate("ab"))
    assert report.write([a, a.parent / ".." / "runs" / "a"]) == a / "report.html"
    assert "training seeds 1 " in read(a / "report.html")[1].text
    base = sweep("base", ["a", "b"])
    path = report.write([base, a])
    assert path == a.parent / "report-base+a.html"
    assert "training seeds 2 " in read(path)[1].text


@pytest.mark.usefixtures("undrawn")
def test_long_lists_of_runs_have_a_name_that_fits_and_is_their_own(make_run: MakeRun) -> None:
    runs = [make_run(f"babyai_gotolocal-20260302-{i:06}-learning_rate-0.0003", rows=0) for i in range(12)]
    paths = {report.write(runs), report.write(runs[:11]), report.write([*runs[:10], runs[11]])}
    assert len(paths) == 3
    assert all(len(path.name) <= 160 and path.name.startswith("report-babyai") for path in paths)


@pytest.mark.usefixtures("undrawn")
def test_settings_are_not_averaged(make_run: MakeRun, read: Read) -> None:
    runs = [make_run(f"s{i}", seed=i % 2, rows=20, learning_rate=(1e-4, 1e-3)[i // 2]) for i in range(4)]
    groups = run_data.arms([run_data.load(run) for run in runs])
    assert {arm: [r.name for r in found] for arm, found in groups.items()} == {
        "learning_rate=0.0001": ["s0", "s1"],
        "learning_rate=0.001": ["s2", "s3"],
    }
    _, page = read(report.write(runs))
    assert page.text.count("of held-out episodes solved") == 2
    assert "the runs differ in learning_rate=0.0001; learning_rate=0.001" in page.text


@pytest.mark.usefixtures("undrawn")
def test_many_settings_are_a_table(make_run: MakeRun, read: Read) -> None:
    runs = [make_run(f"s{i}", rows=12, solved=400 + i, learning_rate=i * 1e-4) for i in range(5)]
    _, page = read(report.write(runs))
    assert "of held-out episodes solved" not in page.text
    assert "78.9 % [75.2, 82.2]" in page.text


@pytest.mark.usefixtures("undrawn")
def test_only_a_policy_takes_the_most_likely_action(make_run: MakeRun, read: Read) -> None:
    folder = make_run("ppo-a", rows=0)
    assert "taking the most likely action" in read(report.write([folder]))[1].text
    path = folder / "stages/evaluate/results.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"player": "expert"}))
    text = read(report.write([folder]))[1].text
    assert "played by expert" in text
    assert "most likely" not in text
