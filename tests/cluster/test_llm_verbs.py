"""Labelling a file and showing its cost: what is written, what it says, and when it stops."""

import json
import re

import pytest
from typer.main import get_command

from cluster.cli import llm_verbs
from cluster.cli.job_verbs import jobs as job_verbs
from cluster.cli.llm_verbs import label, print_cost
from llm_service.durable.queue import Queue
from llm_service.errors import AwayTooLong, Unreachable, UsageError

PRICED = ["llm.dollars_per_million_prompt_tokens=1000", "llm.dollars_per_million_completion_tokens=1000"]
EXACT = ["llm.wrong=0", "llm.errors=0", "llm.malformed=0"]


@pytest.fixture
def ask(tmp_path):
    """Label some questions; the exit code."""

    def go(questions, *words, dry_run=False, folder="labels", exact=EXACT):
        lines = [json.dumps({"question": text, "context": []}, ensure_ascii=False) for text in questions]
        (tmp_path / "in.jsonl").write_text("\n".join(lines), encoding="utf-8")
        words = ["env=toy/Line", *exact, *words]
        return label("yes_no", tmp_path / "in.jsonl", tmp_path / "out.jsonl", words, tmp_path / folder, dry_run)

    return go


def test_every_line_is_answered_in_order_and_a_second_time_for_nothing(ask, tmp_path, capsys):
    questions = ["is it late", "a line\u2028and another\x85end", "is it late"]
    assert ask(questions) == 0
    first = (tmp_path / "out.jsonl").read_text()
    out = [json.loads(line) for line in first.splitlines()]
    assert [line["status"] for line in out] == ["ok"] * 3
    assert out[0] == out[2]
    assert ask(questions, dry_run=True) == 0
    assert "3 items, 0 calls" in capsys.readouterr().out
    assert ask(questions) == 0
    assert (tmp_path / "out.jsonl").read_text() == first
    journal = (tmp_path / "labels" / "journal.jsonl").read_text().splitlines()
    assert len({json.loads(line)["key"] for line in journal}) == len(journal) > 0
    capsys.readouterr()
    print_cost(tmp_path / "labels")
    printed = capsys.readouterr().out
    assert "yes_no" in printed
    assert "in all" not in printed  # nothing was metered: its sum would be 0, below a table that is not


def test_a_queue_that_is_away_is_waited_for_and_then_the_same_command_goes_on(ask, tmp_path, monkeypatch):
    """As while Redis cannot write to a full disk, and is started again and again."""
    away, real = [3], Queue.fetch

    async def fetch(self, keys):
        if away[0]:
            away[0] -= 1
            raise Unreachable("the job queue 'jobs' cannot be used (ConnectionError): see to Redis")
        return await real(self, keys)

    monkeypatch.setattr(Queue, "fetch", fetch)
    monkeypatch.setattr(llm_verbs, "WAIT_S", 0.01)
    assert ask(["is it late"]) == 0
    assert away == [0]
    away[0] = 1_000_000
    monkeypatch.setattr(llm_verbs, "PATIENCE_S", 0.05)
    with pytest.raises(AwayTooLong, match="see to Redis; then the same command goes on") as ended:
        ask(["is it early"])
    assert ended.value.exit_code == 5
    away[0] = 0
    assert ask(["is it early"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "labels" / "journal.jsonl").read_text().splitlines()]
    assert len({line["key"] for line in lines}) == len(lines)


@pytest.mark.parametrize("length", [1000, 3])
def test_an_exhausted_budget_is_exit_code_4_and_more_money_goes_on(ask, tmp_path, capsys, length):
    questions = [f"is it {i}" for i in range(12)]
    words = [*PRICED, f"llm.durable.length={length}", "llm.durable.batch=4"]
    assert ask(questions, *words, "llm.limits.dollars=1.0") == 4
    assert not (tmp_path / "out.jsonl").exists()
    assert "raise the cap" in capsys.readouterr().out
    assert ask(questions, *words, "llm.limits.dollars=1000") == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 12
    lines = [json.loads(line) for line in (tmp_path / "labels" / "journal.jsonl").read_text().splitlines()]
    assert len({line["key"] for line in lines}) == len(lines)
    capsys.readouterr()
    print_cost(tmp_path / "labels")
    spent = sum(line["dollars"] for line in lines)
    assert f"{spent:.4f} dollars" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"question": "a"}\nnonsense\n', "line 2 is not a JSON object"),
        (b"[1]\n", "line 1 is not a JSON object"),
        (b"[" * 100_000, "line 1 is not a JSON object"),
        (b"\xff\xfe", "is not UTF-8"),
        (b'{"query": "a"}\n', "item 0"),
        (None, "cannot read"),
    ],
)
def test_a_file_that_cannot_be_labelled_is_one_sentence(tmp_path, content, sentence):
    if content is not None:
        (tmp_path / "in.jsonl").write_bytes(content)
    with pytest.raises(UsageError, match=sentence) as told:
        label("yes_no", tmp_path / "in.jsonl", tmp_path / "out.jsonl", ["env=toy/Line"], tmp_path / "labels", False)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "labels").exists()


def test_an_unknown_task_is_told_before_anything_about_files(tmp_path):
    with pytest.raises(UsageError) as told:
        label("nosuchtask", tmp_path / "in", tmp_path / "no" / "out", ["nonsense"], tmp_path / "labels", False)
    assert str(told.value).startswith("unknown task 'nosuchtask': there are caption_trajectory, judge_trajectory, ")


def test_where_the_answers_shall_go_is_looked_at_before_anything_is_paid_for(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"question": "a"}')
    for outputs in (tmp_path / "nowhere" / "out.jsonl", tmp_path):
        with pytest.raises(UsageError, match="cannot write"):
            label("yes_no", tmp_path / "in.jsonl", outputs, ["env=toy/Line"], tmp_path / "labels", False)
    assert not (tmp_path / "labels").exists()


def verb(capsys, *words):
    """(exit code, what is printed) of `llm jobs`."""
    try:
        get_command(job_verbs)([str(word) for word in words], standalone_mode=False)
    except SystemExit as end:
        return end.code, capsys.readouterr().out
    return 0, capsys.readouterr().out


def test_jobs_that_were_given_up_are_listed_asked_again_and_dropped(ask, tmp_path, capsys):
    """A model that refuses, then one that answers: without the verb the same question stays refused for ever."""
    labels = tmp_path / "labels"

    def answered(step):
        return ask(["is it late", "is it dark"], "llm=faulty", f"llm.script=[{step}]", exact=[])

    assert answered("too_long") == 1
    assert answered("'ok:yes'") == 1  # the letters are what is known of them
    capsys.readouterr()
    _, printed = verb(capsys, "list", labels)
    rows = [line for line in printed.splitlines() if "yes_no" in line]
    assert len(rows) == 2
    assert all("do not fit the model's context; ask for less" in row for row in rows)
    letters = [re.search(r"\d+-\d+", row)[0] for row in rows]
    with pytest.raises(UsageError, match="there is no letter 1-1"):
        verb(capsys, "retry", labels, letters[0], "1-1")
    with pytest.raises(UsageError, match="or say --all"):
        verb(capsys, "drop", labels)
    assert verb(capsys, "retry", labels, letters[0])[1].startswith("1 back in the queue")
    assert verb(capsys, "drop", labels, "--all")[1] == "1 forgotten\n"
    assert verb(capsys, "list", labels)[1] == "no job was given up\n"
    assert answered("'ok:yes'") == 0


def test_a_folder_without_jobs_is_one_sentence(tmp_path, capsys):
    (tmp_path / "journal.jsonl").touch()
    with pytest.raises(UsageError, match="has no job queue: no job was ever submitted there"):
        verb(capsys, "list", tmp_path)
