"""The journal keeps every finished line, whatever kills its writer."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_service import lines
from llm_service.backends.replay import Replay
from llm_service.errors import UsageError
from llm_service.pipeline.journal import Journal, decode, encode
from llm_service.records import Call, Reply
from llm_service.server import assembly

ROOT = Path(__file__).resolve().parents[2]
OUTCOME = {"parsed": None, "error": "", "dollars": 0.0, "latency_s": 0.0, "at": 0.0}


def call(text):
    return Call("generate", (("user", text),))


def test_replies_are_found_again_after_a_restart(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    for i in range(20):
        journal.append(call(f"q{i}").key("m"), "m", call(f"q{i}"), Reply(f"a{i}\n\ud800"), **OUTCOME)
    journal.close()
    journal = Journal(path)
    assert len(journal) == 20
    assert [journal.find(call(f"q{i}").key("m")).text for i in range(20)] == [f"a{i}\n\ud800" for i in range(20)]
    assert journal.find(call("q").key("m")) is None
    journal.close()


@given(st.lists(st.text(st.characters()), max_size=8), st.binary(max_size=40))
def test_a_torn_last_line_is_dropped_and_the_rest_stays(tmp_path_factory, texts, torn):
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    journal = Journal(path)
    for text in texts:
        journal.append(call(text).key("m"), "m", call(text), Reply(text), **OUTCOME)
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole + torn.replace(b"\n", b""))
    journal = Journal(path)
    assert {journal.find(call(t).key("m")).text for t in texts} == set(texts)
    journal.close()
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "damage", [b"nonsense\n", b"\0\0\xff\n", b"[]\n", b'{"key": "xx", "reply": {}}\n', b'{"key": "aa", "reply": 5}\n']
)
def test_a_damaged_line_is_set_aside_told_once_and_its_question_asked_again(tmp_path, caplog, damage):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    for text in "abc":
        journal.append(call(text).key("m"), "m", call(text), Reply(text * 9), **OUTCOME)
    journal.close()
    first, second, third = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + damage + third + b"torn")
    journal = Journal(path)
    assert [r.getMessage().partition(";")[0] for r in caplog.records] == [
        f"1 damaged line of {path} is set aside in journal.damaged.jsonl"
    ]
    assert (tmp_path / "journal.damaged.jsonl").read_bytes() == damage
    assert path.read_bytes() == first + third
    assert [journal.find(call(text).key("m")) for text in "abc"] == [Reply("a" * 9), None, Reply("c" * 9)]
    with pytest.raises(UsageError, match="another service"):
        Journal(path)
    journal.append(call("b").key("m"), "m", call("b"), Reply("b" * 9), **OUTCOME)
    journal.close()
    assert path.read_bytes() == first + third + second
    Journal(path).close()
    assert len(caplog.records) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["journal.damaged.jsonl", "journal.jsonl"]


def test_who_opened_a_journal_before_it_was_mended_does_not_write_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"nonsense\n")
    lock, other = lines.fcntl.flock, []

    def late(file, how):
        monkeypatch.undo()  # another opens, locks and mends between our opening and our locking
        other.append(Journal(path))
        lock(file, how)

    monkeypatch.setattr(lines.fcntl, "flock", late)
    with pytest.raises(UsageError, match="another service"):
        Journal(path)
    other[0].close()


def test_two_writers_are_refused(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    with pytest.raises(UsageError, match="another service"):
        Journal(tmp_path / "journal.jsonl")
    journal.close()


def test_a_successor_waits_for_a_predecessor_that_is_about_to_end(tmp_path):
    async def go():
        predecessor = Journal(tmp_path / "journal.jsonl")
        successor = asyncio.ensure_future(assembly._journal(tmp_path / "journal.jsonl", False))
        await asyncio.sleep(0)
        assert not successor.done()
        predecessor.close()
        (await asyncio.wait_for(successor, 10)).close()

    asyncio.run(go())


def test_scores_and_vectors_are_kept_exactly():
    scores = Reply(scores=(-1.0 / 3, -2e-17, -700.123456789))
    assert decode(json.loads(json.dumps(encode(scores)))).scores == scores.scores
    vector = np.random.default_rng(0).normal(size=384).astype(np.float32)
    assert np.array_equal(decode(json.loads(json.dumps(encode(Reply(vector=vector))))).vector, vector)


def test_a_full_disk_loses_no_answer_and_no_line(tmp_path, monkeypatch):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    disk, write = {"room": 10_000}, os.write

    def full(file, data):
        if not disk["room"]:
            raise OSError(28, "No space left on device")
        part = bytes(data[: disk["room"]])
        disk["room"] -= len(part)
        return write(file, part)

    def append(text, size):
        journal.append(call(text).key("m"), "m", call(text), Reply(text[0] * size), **OUTCOME)

    monkeypatch.setattr(os, "write", full)
    append("a", 100)
    assert journal.ready()
    append("b", 20_000)  # the disk fills up in the middle of the line
    append("c", 100)
    assert not journal.ready()
    assert path.read_bytes().count(b"\n") == 1
    assert path.read_bytes().endswith(b"\n")
    assert [journal.find(call(t).key("m")).text for t in "abc"] == ["a" * 100, "b" * 20_000, "c" * 100]
    disk["room"] = 10**9
    assert journal.ready()
    append("d", 40_000)
    journal.close()
    journal = Journal(path)
    assert [len(journal.find(call(t).key("m")).text) for t in "abcd"] == [100, 20_000, 100, 40_000]
    journal.close()


def test_a_file_that_others_cut_is_an_error_and_not_an_endless_search(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.append(call("a").key("m"), "m", call("a"), Reply("x" * 50), **OUTCOME)
    os.truncate(path, 20)
    with pytest.raises(OSError, match="shorter than before"):
        journal.find(call("a").key("m"))
    journal.close()


WRITER = """
import sys
from pathlib import Path
from llm_service.pipeline.journal import Journal
from llm_service.records import Call, Reply
journal = Journal(Path(sys.argv[1]))
i = len(journal)
while True:
    call = Call("generate", (("user", f"q{i}"),))
    outcome = dict(parsed=None, error="", dollars=0.0, latency_s=0.0, at=0.0)
    journal.append(call.key("m"), "m", call, Reply("x" * 3000), **outcome)
    print(i, flush=True)
    i += 1
"""


def test_kill_9_loses_no_line_that_was_appended(tmp_path):
    path = tmp_path / "journal.jsonl"
    appended = 0
    for _ in range(3):
        command = [sys.executable, "-c", WRITER, str(path)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
        for _ in range(200):
            appended = int(writer.stdout.readline()) + 1
        writer.send_signal(signal.SIGKILL)
        rest = writer.communicate()[0].split()
        appended = int(rest[-1]) + 1 if rest and rest[-1].isdigit() else appended
    journal = Journal(path)
    assert len(journal) >= appended - 1  # the number's own line may have been cut in the pipe
    assert all(journal.find(call(f"q{i}").key("m")).text == "x" * 3000 for i in range(appended - 1))
    journal.close()


def said(asked):
    return asked.turns[0][1][4:] + asked.turns[1][1]


def test_instructions_are_written_once_and_read_back(tmp_path):
    path = tmp_path / "journal.jsonl"
    calls = [
        Call("generate", (("system", who), ("user", f"q{i}"))) for i in range(6) for who in ("you advise", "you judge")
    ]
    for part in (calls[:7], calls[7:]):  # a successor does not know what stands in the file
        journal = Journal(path)
        for asked in part:
            journal.append(asked.key("m"), "m", asked, Reply(said(asked)), **OUTCOME)
        journal.close()
    assert path.read_text().count("you advise") == path.read_text().count("you judge") == 2
    backend = Replay(path)
    replies = asyncio.run(backend.answer(calls))
    assert [reply.text for reply in replies] == [said(asked) for asked in calls]


def test_a_line_whose_instructions_are_gone_is_named(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    for i in range(2):
        asked = Call("generate", (("system", "you advise"), ("user", f"q{i}")))
        journal.append(asked.key("m"), "m", asked, Reply("a"), **OUTCOME)
    journal.close()
    path.write_text(path.read_text().splitlines(keepends=True)[1])
    with pytest.raises(UsageError, match="line 1 is damaged"):
        Replay(path)
