"""What a run recorded is answered again, whoever recorded it; what it did not is said so."""

import asyncio
import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_service.backends import faulty, replay
from llm_service.errors import NotRecorded, UsageError
from llm_service.pipeline.journal import Journal
from llm_service.records import Call, Parameters, Reply
from llm_service.world import NOWHERE

CALLS = [
    Call("generate", (("system", "be brief"), ("user", "go where?")), task="goals"),
    Call("generate", (("system", "be brief"), ("user", "go where?")), sample=1, task="goals"),
    Call("generate", (("user", "go where?"),), parameters=Parameters(0.5, 10, ("\n",), 7), task="goals"),
    Call("score", (("user", "which?"),), ("left", "right"), Parameters(normalise="tokens"), task="choose"),
    Call("embed", (("user", "a red door"),)),
]


def replies(backend, calls):
    return asyncio.run(backend.answer(calls))


def recorded(path, calls=CALLS, model="some-model"):
    """A journal of what the fake says to the calls."""
    answers = replies(faulty.Faulty(faulty.Config()), calls)
    journal = Journal(path)
    for call, reply in zip(calls, answers, strict=True):
        outcome = {"parsed": None, "error": "", "dollars": 0.1, "latency_s": 0.2, "at": 1.7e9}
        journal.append(call.key(model), model, call, reply, **outcome)
    journal.close()
    return answers


def opened(path):
    return replay.make(replay.Config(replayed=str(path)), NOWHERE)


def test_every_answer_comes_back_as_it_was_free_of_charge(tmp_path):
    path = tmp_path / "journal.jsonl"
    originals = recorded(path)
    backend = opened(path)
    for call, reply, original in zip(CALLS, replies(backend, CALLS), originals, strict=True):
        assert (reply.text, reply.scores) == (original.text, original.scores)
        if call.verb == "embed":
            np.testing.assert_array_equal(reply.vector, original.vector)
        assert (reply.prompt_tokens, reply.completion_tokens) == (0, 0)
        assert backend.estimate(call) == (0, 0)
    assert (backend.paid, backend.price(10**9, 10**9)) == (False, 0.0)


def test_answers_are_found_by_the_question_alone(tmp_path):
    path = tmp_path / "journal.jsonl"
    originals = recorded(path)
    renamed = dataclasses.replace(CALLS[0], task="another", inputs={"x": 1})
    assert replies(opened(path), [renamed])[0].text == originals[0].text


@pytest.mark.parametrize(
    "change",
    [
        {"sample": 5},
        {"turns": (("user", "go where?"),)},
        {"parameters": Parameters(temperature=0.1)},
        {"parameters": Parameters(max_tokens=9)},
        {"parameters": Parameters(stop=("x",))},
        {"parameters": Parameters(seed=1)},
        {"verb": "embed"},
    ],
)
def test_another_question_is_not_recorded(tmp_path, change):
    path = tmp_path / "journal.jsonl"
    recorded(path)
    error = replies(opened(path), [dataclasses.replace(CALLS[0], **change)])[0]
    assert isinstance(error, NotRecorded)
    assert "task goals" in str(error)
    assert "go where?" in str(error)


def test_the_message_shows_eighty_characters_of_the_last_turn_and_no_more(tmp_path):
    path = tmp_path / "journal.jsonl"
    recorded(path)
    call = Call("generate", (("system", "the first turn"), ("user", "x" * 80 + "y" * 80)))
    message = str(replies(opened(path), [call])[0])
    assert "x" * 80 in message
    assert "y" not in message.replace("replay", "").replace("any", "").replace(str(path), "").replace("by", "")
    assert "first turn" not in message
    assert "generate without a task" in message


def test_the_last_answer_to_a_question_counts(tmp_path):
    path = tmp_path / "journal.jsonl"
    recorded(path, CALLS[:1], "first-model")
    journal = Journal(path)
    journal.append("00", "second-model", CALLS[0], Reply(text="newer"))
    journal.close()
    assert replies(opened(path), CALLS[:1])[0].text == "newer"


def test_the_name_follows_from_the_recording(tmp_path):
    first, same, other = (tmp_path / name for name in ("first.jsonl", "same.jsonl", "other.jsonl"))
    recorded(first), recorded(same), recorded(other, CALLS[:2])
    assert opened(first).model == opened(same).model != opened(other).model


def test_a_line_that_was_cut_when_its_run_was_killed_is_left_out(tmp_path):
    path = tmp_path / "journal.jsonl"
    originals = recorded(path)
    path.write_bytes(path.read_bytes()[:-5])
    backend = opened(path)
    assert replies(backend, CALLS[:1])[0].text == originals[0].text
    assert isinstance(replies(backend, CALLS[-1:])[0], NotRecorded)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot read"),
        (b"", "holds no answers"),
        (b'{"key": "cut', "holds no answers"),
        (b"not json\n", "line 1 is damaged"),
        (b"[]\n", "line 1 is damaged"),
        (b'{"key": "k", "reply": {"text": "x"}}\n', "line 1 is damaged"),
        (b'{"key": "k", "reply": 5, "turns": [], "parameters": {}}\n', "line 1 is damaged"),
        (b"\xff\n", "line 1 is damaged"),
    ],
)
def test_a_file_that_is_no_recording_is_one_sentence_before_any_call(tmp_path, content, sentence):
    path = tmp_path / "journal.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=sentence):
        opened(path)
    with pytest.raises(UsageError, match="cannot read"):
        opened(tmp_path)
    with pytest.raises(UsageError, match=r"llm.replayed is missing"):
        replay.make(replay.Config(), NOWHERE)


def test_a_damaged_line_in_the_middle_is_found(tmp_path):
    path = tmp_path / "journal.jsonl"
    recorded(path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = b"{}\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(UsageError, match="line 3 is damaged"):
        opened(path)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), st.text()), min_size=1, max_size=3),
    st.lists(st.text(), max_size=3),
    st.floats(0, 2),
    st.integers(0, 2**31),
)
def test_any_question_finds_its_line_again(tmp_path_factory, turns, candidates, temperature, sample):
    path = tmp_path_factory.mktemp("replay") / "journal.jsonl"
    parameters = Parameters(temperature=temperature, stop=tuple(candidates))
    call = Call("generate", tuple(turns), tuple(candidates), parameters, sample)
    journal = Journal(path)
    journal.append(call.key("m"), "m", call, Reply(text="found"))
    journal.close()
    json.loads(path.read_text())
    assert replies(opened(path), [call])[0].text == "found"
