"""The service as its users meet it: a real process, a real Redis, real models, every task, and bad input."""

import http.client
import json
import subprocess
import sys
import urllib.request

import numpy as np
import psutil
import pytest

import envs
from llm_service import tiny
from llm_service.client import connect
from llm_service.records import Ask, Parameters, Source, Status
from tests.llm_service.processes import ENVIRONMENT, ROOT, journal, provider, service

RED = ["You see a red ball 2 steps forward"]
BLUE = ["You see a blue key 1 step left"]
ITEMS = {
    "suggest_goals": {"observation": RED},
    "yes_no": {"question": "can a ball be picked up", "context": RED},
    "label_preference": {"first": RED, "second": BLUE},
    "caption_trajectory": {"observations": [RED, BLUE], "actions": ["turn left"], "style": "request"},
    "write_potential": {"evidence": [{"caption": [*RED, "turn left", *BLUE], "value": 0.5}]},
    "judge_trajectory": {
        "instruction": "go to the red ball",
        "observations": [RED, BLUE],
        "actions": ["turn left"],
        "rubric": ["obedience"],
    },
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    path = tmp_path_factory.mktemp("world") / "world.json"
    path.write_text(json.dumps(envs.knowledge("babyai")))
    return path


@pytest.fixture(scope="module")
def running(tmp_path_factory, world):
    folder = tmp_path_factory.mktemp("service") / "llm"
    errors = ("wrong=0", "errors=0", "malformed=0")
    with service(folder, f"world={world}", "server.metrics_port=0", *errors) as process, connect(folder) as client:
        yield folder, process, client


@pytest.mark.parametrize("task", ITEMS)
def test_every_task_is_answered_by_the_embedded_model(running, task):
    _, _, client = running
    (answer,) = client.ask(task, [ITEMS[task]])
    assert answer.ok, answer.reason
    (again,) = client.ask(task, [ITEMS[task]])
    assert (again.value, again.source, again.tokens) == (answer.value, Source.MEMORY, 0)


def test_the_answers_make_sense(running):
    _, _, client = running
    assert "go to the red ball" in client.ask("suggest_goals", [ITEMS["suggest_goals"]])[0].value["goals"]
    assert client.ask("yes_no", [ITEMS["yes_no"]])[0].value["probability"] > 0.5


def test_embeddings_are_those_of_the_frozen_encoder(running):
    from llm_service import embed_one

    _, _, client = running
    texts = ["go to the red ball", "open the door", "go to the red ball"]
    vectors = client.embed(texts)
    assert np.allclose(vectors, np.stack([embed_one(t) for t in texts]), atol=1e-6)  # threads move the last bits
    assert np.array_equal(vectors[0], vectors[2])


def test_durable_jobs_come_back(running):
    _, _, client = running
    keys, statuses = client.submit(
        "judge_trajectory", [ITEMS["judge_trajectory"] | {"instruction": "go to the key"}] * 2
    )
    assert keys[0] == keys[1]
    assert set(statuses) == {Status.PENDING}
    first, second = client.fetch(keys, wait_s=30)
    assert first.ok
    assert first.value == second.value
    (unknown,) = client.fetch(["00" * 16])
    assert unknown.status is Status.MISSING


def test_health_stats_and_metrics(running):
    _, process, client = running
    assert client.generate(["a question of its own"])[0].ok
    ok, reason = client.health()
    assert ok, reason
    stats = client.stats()
    assert stats["calls"] > 0
    assert stats["breaker_open"] == 0
    sockets = psutil.Process(process.process.pid).net_connections("tcp")
    places = [socket.laddr for socket in sockets if socket.status == psutil.CONN_LISTEN]
    assert {place.ip for place in places} <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert any("cairn_llm_calls" in _page(f"127.0.0.1:{place.port}") for place in places)


def _page(address):
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return ""
    except http.client.HTTPException:  # gRPC's port does not speak HTTP/1
        return ""


def test_a_restarted_service_pays_for_nothing_again(tmp_path, world):
    folder = tmp_path / "llm"
    with provider(0) as fake:
        words = ("name=openai", "model=m", f"base_url={fake.first}", f"world={world}")
        with service(folder, *words) as process, connect(folder) as client:
            assert client.generate(["a", "b"])[0].value == "a"
            assert process.end() == (0, "")
        (folder / "redis").rename(tmp_path / "lost")  # even without Redis's files
        with service(folder, *words) as process, connect(folder) as client:
            again = client.generate(["a", "b", "c"])
            assert [a.source for a in again] == [Source.JOURNAL, Source.JOURNAL, Source.BACKEND]
            assert process.end() == (0, "")
    assert sorted(line["turns"][0][1] for line in journal(folder)) == ["a", "b", "c"]


def test_two_services_share_one_redis(tmp_path, running):
    folder, _, client = running
    url = f"unix://{(folder / 'redis' / 'redis.sock').resolve()}"
    (answer,) = client.generate(["shared"])
    words = [w for w in running[1].command[5:] if not w.startswith("server.")]
    with service(tmp_path / "other", f"redis.url={url}", *words) as process, connect(tmp_path / "other") as other:
        (shared,) = other.generate(["shared"])
        assert (shared.value, shared.source) == (answer.value, Source.REDIS)
        assert process.end() == (0, "")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    tiny.build(folder / "tiny")
    return folder / "tiny"


@pytest.mark.parametrize("model", ["t5", "llama"])
def test_a_real_small_model_generates_scores_and_decides(tmp_path, models, world, model):
    folder = tmp_path / "llm"
    words = ("name=transformers", f"folder={models / model}", f"world={world}", "threads=1")
    with service(folder, *words) as process, connect(folder) as client:
        (text,) = client.generate(["You see a"], parameters=Parameters(max_tokens=5))
        assert text.ok, text.reason
        (scores,) = client.score(["You see a"], ["red ball", "blue key", "red ball"])
        assert scores.scores[0] == scores.scores[2] < 0
        (decided,) = client.ask("yes_no", [ITEMS["yes_no"]])
        assert 0 <= decided.value["probability"] <= 1
        if model == "llama":  # T5 knows no bound
            (long,) = client.score(["word " * 5000], ["a", "b"])
            assert long.status is Status.REFUSED
            assert "tokens" in long.reason
        assert process.end()[0] == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["name=openai"], "llm.model is missing"),
        (["name=openai", "model=m"], "OPENAI_API_KEY"),
        (["name=openai", "model=m", "base_url=nonsense"], "base_url"),
        (["name=openai", "model=m", "api_key_env=HOME", "base_url=http://example.com/v1"], "unencrypted"),
        (["name=transformers", "folder=/nowhere"], "/nowhere"),
        (["name=transformers", "folder=/tmp"], "config.json"),
        (["name=nonsense"], "no backend 'nonsense'"),
        (["name=scripted", "nonsense=1"], "nonsense"),
        (["limits.tokens=0"], "budget is 0"),
        (["name=replay", "replayed=/nowhere"], "/nowhere"),
        (["name=openai", "model=m", "api_key_env=HOME", "limits.dollars=1"], "prices"),
        (["world=/nowhere"], "/nowhere"),
        (["name=openai", "model=m", "api_key_env=HOME", "replicas=2"], "llm.replicas"),
        (["batch.size=-1"], "llm.batch.size"),
        (["batch.durable_share=1"], "llm.batch.durable_share"),
        (["embedding.batch=0"], "llm.embedding.batch"),
        (["consumers=-1"], "llm.consumers"),
        (["redis.url=redis://127.0.0.1:1"], "does not answer"),
        (["server.listen=0.0.0.0:0"], "can be reached by others"),
        (["nonsense"], "write key=value"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_bad_input_is_one_sentence_before_any_call(tmp_path, words, sentence):
    command = [sys.executable, "-m", "llm_service.server", "--folder", str(tmp_path / "llm"), *words]
    done = subprocess.run(command, env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert sentence in done.stderr


def test_an_unknown_task_is_refused_with_the_known_ones(running):
    from llm_service.errors import UsageError

    _, _, client = running
    with pytest.raises(UsageError, match="suggest_goals"):
        client.ask("nonsense", [{}])
    with pytest.raises(UsageError, match="suggest_goals"):
        client.answer(Ask("generate", ("{}",), "nonsense"))
