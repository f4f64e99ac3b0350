"""The wire format: generated code is what the proto says, numbers are the records', and records survive the way."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_service.errors import Garbled, UsageError
from llm_service.proto import llm_pb2, wire
from llm_service.records import Answer, Ask, Parameters, Source, Status

ROOT = Path(__file__).resolve().parents[2]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def test_generated_code_is_that_of_the_proto(tmp_path):
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", ".", "llm_service/proto/llm.proto"]
    command += [f"--{kind}={tmp_path}" for kind in ("python_out", "pyi_out")]
    subprocess.run(command, cwd=ROOT, check=True)
    made = sorted((tmp_path / "llm_service/proto").iterdir())
    assert [path.name for path in made] == ["llm_pb2.py", "llm_pb2.pyi"]
    for path in made:
        assert (ROOT / "llm_service/proto" / path.name).read_bytes() == path.read_bytes(), path.name


def test_numbers_are_those_of_the_records():
    for enum, message in ((Status, llm_pb2.Status), (Source, llm_pb2.Source)):
        prefix = f"{enum.__name__.upper()}_"
        assert {prefix + member.name: member.value for member in enum} == dict(message.items())
    assert [name.removeprefix("VERB_").lower() for name, _ in llm_pb2.Verb.items()] == ["generate", "score", "embed"]


parameters = st.builds(
    Parameters,
    temperature=st.floats(0, 100),
    max_tokens=st.integers(1, 2**32 - 1),
    stop=st.lists(TEXT, max_size=3).map(tuple),
    seed=st.integers(-(2**63), 2**63 - 1),
    normalise=st.sampled_from(["none", "tokens"]),
)


@st.composite
def asks(draw):
    contents = tuple(draw(st.lists(TEXT, max_size=6)))
    n = draw(st.sampled_from([0, 1, len(contents)]))
    words = st.lists(TEXT, max_size=3).map(tuple)
    return Ask(
        verb=draw(st.sampled_from(["generate", "score", "embed"])),
        contents=contents,
        task=draw(TEXT),
        candidates=tuple(draw(st.lists(words, min_size=n, max_size=n))),
        parameters=draw(st.none() | parameters),
        sample=draw(st.integers(0, 2**32 - 1)),
        lane="durable",
        caller=draw(TEXT),
        deadline=draw(st.floats(0, 1e6)),
    )


@given(asks())
@settings(deadline=None)
def test_an_ask_survives_the_way(ask):
    message = llm_pb2.Job.FromString(wire.job(ask).SerializeToString())
    assert wire.read_request(message.ask, wire.verb_of(message), "durable", ask.caller, ask.deadline) == ask


@given(
    st.lists(
        st.builds(
            Answer,
            status=st.sampled_from(Status),
            payload=st.binary(max_size=20),
            reason=TEXT,
            source=st.sampled_from(Source),
            tokens=st.integers(0, 2**64 - 1),
            dollars=FINITE,
        ),
        max_size=6,
    )
)
@settings(deadline=None)
def test_answers_survive_the_way(answers):
    message = llm_pb2.Answers.FromString(wire.answers(answers).SerializeToString())
    assert wire.read_answers(message, len(answers)) == answers


def test_a_reason_with_half_a_surrogate_pair_is_told_anyway():
    message = wire.answers([Answer(Status.AWAY, reason="the backend said \ud800")])
    assert wire.read_answers(message, 1)[0].reason == "the backend said ?"


@pytest.mark.parametrize(
    "fields",
    [
        {"status": [0], "payload": [b""], "source": [0]},  # one answer for two items
        {"status": [0, 0], "payload": [b""], "source": [0, 0]},
        {"status": [0, 0], "payload": [b"", b""], "source": [0, 0], "tokens": [1]},
        {"status": [0, 77], "payload": [b"", b""], "source": [0, 0]},  # of a later version
        {"status": [0, -1], "payload": [b"", b""], "source": [0, 0]},
        {"status": [0, 0], "payload": [b"", b""], "source": [0, 77]},
        {},
    ],
)
def test_a_reply_that_does_not_fit_is_garbled(fields):
    with pytest.raises(Garbled):
        wire.read_answers(llm_pb2.Answers(**fields), 2)


@pytest.mark.parametrize(
    ("keys", "status"), [(["a"], [0, 0]), (["a", "b"], [0]), (["a", "b"], [0, 77]), (["a", "b"], [0, -1]), ([], [])]
)
def test_a_receipt_that_does_not_fit_is_garbled(keys, status):
    with pytest.raises(Garbled):
        wire.read_accepted(llm_pb2.Accepted(keys=keys, status=status), 2)


@pytest.mark.parametrize(
    "ask",
    [
        Ask("generate", ("a",), sample=-1),
        Ask("generate", ("a",), sample=2**32),
        Ask("generate", ("a",), parameters=Parameters(seed=2**63)),
        Ask("generate", ("a",), parameters=Parameters(max_tokens=-1)),
        Ask("generate", (None,)),
    ],
)
def test_what_does_not_fit_a_field_is_misuse(ask):
    with pytest.raises(UsageError):
        wire.request(ask)


@pytest.mark.parametrize("temperature", [-0.1, float("nan"), float("inf")])
def test_temperatures_that_mean_nothing_are_misuse(temperature):
    message = wire.request(Ask("generate", ("a",), parameters=Parameters(temperature)))
    with pytest.raises(UsageError, match="temperature"):
        wire.read_request(message, "generate", "interactive", "", 1.0)


def test_candidates_for_some_items_only_are_misuse():
    message = wire.request(Ask("score", ("a", "b", "c"), candidates=(("x",), ("y",))))
    with pytest.raises(UsageError, match="2 sets for 3 items"):
        wire.read_request(message, "score", "interactive", "", 1.0)


@pytest.mark.parametrize("field", [{"normalise": 9}, {"normalise": -1}])
def test_enumerations_of_a_later_version_are_misuse(field):
    message = llm_pb2.Ask(contents=["a"], parameters=llm_pb2.Parameters(**field))
    with pytest.raises(UsageError, match="normalise"):
        wire.read_request(message, "score", "interactive", "", 1.0)
    with pytest.raises(UsageError, match="verb"):
        wire.verb_of(llm_pb2.Job(verb=9))


def test_max_tokens_left_out_stands_for_the_default():
    message = llm_pb2.Ask(contents=["a"], parameters=llm_pb2.Parameters(temperature=1.0))
    assert wire.read_request(message, "generate", "interactive", "", 1.0).parameters == Parameters(temperature=1.0)
