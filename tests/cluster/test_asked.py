"""What a run asked language models and paid: columns of its rows and a table of its report, as the journal has it."""

import json
import re
import signal
import subprocess
import sys

import pytest

from cluster.config.tree import compose
from cluster.roles.language import LanguageService, counts
from cluster.run import run
from cluster.runs.run_data import load
from tests.cluster.test_goals import INLINE, ROOT, rows, until

PRICED = ["llm.dollars_per_million_prompt_tokens=1000", "llm.dollars_per_million_completion_tokens=3000"]
TOY = ["method=zero_shot", "env=toy/Line", "cluster=inline", "actors.n=1", "actors.envs=4", "evaluate.episodes=20"]


def paid(folder):
    """Calls, tokens and dollars, of the journal."""
    lines = [json.loads(line) for line in (folder / "llm" / "journal.jsonl").read_text().splitlines()]
    tokens = sum(line["prompt_tokens"] + line["completion_tokens"] for line in lines)
    return {"calls": len(lines), "tokens": tokens, "dollars": pytest.approx(sum(line["dollars"] for line in lines))}


def table(folder):
    """The report's table: what is below each head, of the one run."""
    (section,) = re.findall(r"<h2>Language model</h2>.*?</section>", (folder / "report.html").read_text(), re.S)
    cells = re.findall(r'<td data-column="([^"]+)">([^<]*)</td>', section)
    return {name: float(value.replace(",", "")) for name, value in cells}


def test_the_last_row_and_the_report_count_what_the_journal_holds(tmp_path):
    assert run(compose([*TOY, *PRICED, f"run.folder={tmp_path}", "run.name=a"])) == 0
    folder = tmp_path / "a"
    *_, last = rows(folder, "language")
    asked = {name.removeprefix("llm/"): n for name, n in last.items() if name.startswith("llm/")}
    assert asked["dollars"] > 0
    assert {name: asked[name] for name in ("calls", "tokens", "dollars")} == paid(folder)
    stats = json.loads((folder / "stages" / "evaluate" / "results.json").read_text())["language_model"]
    ends = {name: n for name, n in stats.items() if name.startswith("answers_")}
    assert asked["questions"] == sum(ends.values()) > asked["calls"]
    assert asked["cache_hits"] == asked["questions"] - ends["answers_backend"]
    assert asked["failures"] == 0
    shown = table(folder)
    assert {name.replace(" ", "_"): n for name, n in shown.items()} == asked | {"dollars": round(asked["dollars"], 4)}
    assert load(folder).asked == asked


def test_a_question_without_an_answer_is_a_failure():
    stats = {"answers_backend": 5.0, "answers_memory": 3.0, "answers_redis": 1.0, "answers_flight": 2.0,
             "answers_away": 4.0, "answers_malformed": 1.0, "calls": 9.0, "reply_tokens": 70.0, "reply_dollars": 0.5,
             "waiting": 8.0}  # fmt: skip
    assert counts(stats) == {
        "llm/questions": 16, "llm/cache_hits": 6, "llm/failures": 5, "llm/calls": 9, "llm/tokens": 70,
        "llm/dollars": 0.5,
    }  # fmt: skip


def test_a_service_that_dies_leaves_its_counts_to_its_successor(tmp_path):
    """Of the run's own attempts before, and of a service that was started again."""
    from cluster.roles.backend import Inline

    config = compose([*TOY, "run.name=a"])
    service = LanguageService(Inline(), config, tmp_path, lambda line: None, {"llm/calls": 7, "llm/dollars": 0.25})
    assert service.columns == {"llm/calls": 7, "llm/dollars": 0.25}
    service._now = {"llm/calls": 2.0, "llm/questions": 3.0, "llm/dollars": 0.125}
    service._launch = lambda llm: None
    service._llm = config.llm
    service._restart("its process was killed")
    service._now = {"llm/calls": 1.0, "llm/questions": 1.0, "llm/dollars": 0.0}
    assert service.columns == {"llm/calls": 10, "llm/questions": 4, "llm/dollars": 0.375}


@pytest.mark.slow
def test_a_resumed_run_counts_on(tmp_path):
    """Rows go back to the checkpoint; what was paid does not."""
    words, folder = [sys.executable, "launch.py"], tmp_path / "parts"
    parts = [*words, "run", *INLINE, "method.goals.source=model", f"run.folder={tmp_path}", "run.name=parts"]
    process = subprocess.Popen([*parts, "run.checkpoint_every_s=0.001"], cwd=ROOT, stdout=subprocess.DEVNULL)
    until(lambda: (folder / "checkpoints" / "LATEST").exists())
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 3
    before = paid(folder)
    *_, last = rows(folder, "language")
    assert (last["llm/calls"], last["llm/tokens"]) == (before["calls"], before["tokens"])
    assert subprocess.run([*words, "resume", str(folder)], cwd=ROOT, stdout=subprocess.DEVNULL).returncode == 0
    *_, last = rows(folder, "language")
    after = paid(folder)
    assert after["calls"] > before["calls"] > 0
    assert {name: last[f"llm/{name}"] for name in after} == after
    train = [row["llm/calls"] for row in rows(folder)]
    assert train == sorted(train)
    assert train[-1] <= after["calls"]
