"""The OpenAI-compatible API, asked by OpenAI's own client: real processes, and a model whose numbers are known."""

import concurrent.futures
import json
from pathlib import Path

import httpx2
import numpy as np
import openai
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from llm_service.embedding import embed_one
from tests.llm_service import processes
from tests.llm_service.processes import journal, provider, service
from tests.llm_service.test_transformers import folders, lively, llama_config, tokenizer  # noqa: F401

PROMPT = "You see a key."


def base_url(process):
    return process.first.partition("OpenAI API at ")[2]


def client(process, folder, **options):
    return openai.OpenAI(
        base_url=base_url(process), api_key=Path(folder, "token").read_text(), max_retries=0, timeout=120, **options
    )


def served(folder, *words):
    return service(folder, "server.openai=127.0.0.1:0", "server.drain_s=1", *words)


def user(text):
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def model(folders):  # noqa: F811
    """A Llama of random weights with a context of 64 tokens, its folder and tokenizer, read by transformers alone."""
    folder = folders / "llama"
    return folder, AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def running(model, tmp_path_factory):
    """A served Llama: its process, and a client."""
    folder = tmp_path_factory.mktemp("served")
    with served(folder, "name=transformers", f"folder={model[0]}", "device=cpu", "threads=1") as process:
        yield process, client(process, folder), folder


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scripted")
    with served(folder, "name=faulty", "server.max_characters=3000", "server.max_message_mb=1") as process:
        yield process, client(process, folder), folder


@torch.no_grad()
def greedy(model, prompt, count):
    """Ids of the most probable reply, and the log-probabilities [count, vocabulary] at each of its places."""
    _, network, tokens = model
    ids, rows = tokens(prompt).input_ids, []
    for _ in range(count):
        rows.append(network(torch.tensor([ids])).logits[0, -1].log_softmax(-1))
        ids.append(int(rows[-1].argmax()))
        if ids[-1] == tokens.eos_token_id:
            break
    return ids[-len(rows) :], torch.stack(rows)


def test_a_chat_is_answered_with_the_log_probabilities_of_the_model(running, model):
    ids, logprobs = greedy(model, PROMPT, 8)
    reply = running[1].chat.completions.create(
        model="transformers", messages=user(PROMPT), max_tokens=8, temperature=0, logprobs=True, top_logprobs=3
    )
    choice, told = reply.choices[0], reply.choices[0].logprobs.content
    assert choice.message.content == model[2].decode(ids, skip_special_tokens=True)
    ended = ids[-1] == model[2].eos_token_id
    assert choice.finish_reason == ("stop" if ended else "length")
    written = ids[:-1] if ended else ids
    assert len(told) == len(written)
    for i, (token, number) in enumerate(zip(told, written, strict=True)):
        assert token.logprob == pytest.approx(float(logprobs[i, number]), abs=1e-4)
        best = logprobs[i].topk(3).values.tolist()
        assert [t.logprob for t in token.top_logprobs] == pytest.approx(best, abs=1e-4)
    assert reply.usage.prompt_tokens == len(model[2](PROMPT).input_ids)
    assert reply.usage.completion_tokens == len(ids)


def test_an_echoed_text_is_scored_as_the_model_scores_it(running, model):
    _, network, tokens = model
    reply = running[1].completions.create(
        model="transformers", prompt=[PROMPT, "go left"], max_tokens=0, temperature=0, echo=True, logprobs=2
    )
    for choice, text in zip(reply.choices, (PROMPT, "go left"), strict=True):
        ids = tokens(text).input_ids  # the first one is <s>
        with torch.no_grad():
            right = network(torch.tensor([ids])).logits[0].log_softmax(-1)
        expected = [float(right[i - 1, ids[i]]) for i in range(1, len(ids))]
        assert choice.text == text == "".join(choice.logprobs.tokens)
        assert choice.logprobs.token_logprobs == pytest.approx(expected, abs=1e-4)
        assert choice.logprobs.text_offset[1] == len(choice.logprobs.tokens[0])


def test_a_stream_is_the_same_reply_in_pieces(running):
    asked = {"model": "transformers", "messages": user("open the red door"), "max_tokens": 20, "temperature": 0}
    chunks = list(
        running[1].chat.completions.create(**asked, stream=True, logprobs=True, stream_options={"include_usage": True})
    )
    whole = running[1].chat.completions.create(**asked, logprobs=True)
    *pieces, last, counted = chunks
    texts = [chunk.choices[0].delta.content for chunk in (*pieces, last)]
    assert len([text for text in texts if text]) > 3
    assert "".join(texts) == whole.choices[0].message.content
    assert last.choices[0].finish_reason == whole.choices[0].finish_reason
    tokens = [token for chunk in (*pieces, last) for token in chunk.choices[0].logprobs.content]
    assert [token.logprob for token in tokens] == [token.logprob for token in whole.choices[0].logprobs.content]
    assert counted.usage == whole.usage
    assert pieces[0].choices[0].delta.role == "assistant"


def test_a_stop_text_ends_a_stream_and_no_piece_shows_its_beginning(running):
    asked = {"model": "transformers", "prompt": "go", "max_tokens": 20, "temperature": 0}
    whole = running[1].completions.create(**asked).choices[0].text
    stop = whole[4:7]
    pieces = [c.choices[0] for c in running[1].completions.create(**asked, stop=stop, stream=True)]
    assert "".join(piece.text for piece in pieces) == whole.partition(stop)[0]
    assert pieces[-1].finish_reason == "stop"


def test_choices_differ_and_a_seed_repeats_them(running):
    asked = {"model": "transformers", "prompt": "go", "max_tokens": 12, "n": 3}
    first, again = (running[1].completions.create(**asked, seed=5) for _ in range(2))
    assert [c.text for c in first.choices] == [c.text for c in again.choices]
    assert len({c.text for c in first.choices}) > 1
    other = running[1].completions.create(**asked)
    assert [c.text for c in other.choices] != [c.text for c in first.choices]
    assert [c.index for c in first.choices] == [0, 1, 2]


def test_vectors_come_as_numbers_and_as_the_client_likes_them(running):
    texts = ["go left", "open the door"]
    packed = running[1].embeddings.create(model="embedding", input=texts)  # base64, the client's default
    plain = running[1].embeddings.create(model="embedding", input=texts, encoding_format="float")
    for row, other, text in zip(packed.data, plain.data, texts, strict=True):
        np.testing.assert_allclose(row.embedding, embed_one(text), atol=1e-6)
        np.testing.assert_allclose(other.embedding, embed_one(text), atol=1e-6)


def test_many_streams_at_once_are_each_their_own(running):
    def ask(i):
        chunks = running[1].completions.create(
            model="transformers", prompt=f"go {i}", max_tokens=10, temperature=0, stream=True
        )
        return "".join(chunk.choices[0].text for chunk in chunks)

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        texts = list(pool.map(ask, range(12)))
    alone = [
        running[1].completions.create(model="transformers", prompt=f"go {i}", max_tokens=10, temperature=0)
        for i in range(12)
    ]
    assert texts == [reply.choices[0].text for reply in alone]


def test_a_client_that_hangs_up_disturbs_nobody_and_its_reply_is_kept(running):
    _, asking, folder = running
    asked = {"model": "transformers", "prompt": "pick up", "max_tokens": 40, "temperature": 0}
    with asking.completions.create(**asked, stream=True) as stream:
        first = next(iter(stream))
    assert first.choices[0].text
    assert asking.completions.create(**asked).choices[0].text.startswith(first.choices[0].text)
    assert sum(line["turns"] == [["user", "pick up"]] for line in journal(folder)) == 1


def test_a_text_that_does_not_fit_the_context_is_refused(running):
    with pytest.raises(openai.BadRequestError) as refused:
        running[1].chat.completions.create(model="transformers", messages=user("go left " * 60), max_tokens=8)
    assert refused.value.code == "context_length_exceeded"
    assert "64" in str(refused.value)
    with pytest.raises(openai.BadRequestError):  # also before a stream begins
        running[1].chat.completions.create(model="transformers", messages=user("go " * 99), stream=True)


def test_only_known_models_are_there(running):
    names = [model.id for model in running[1].models.list()]
    assert {"transformers", "embedding"} < set(names)
    assert running[1].models.retrieve(names[0]).id == names[0]
    for ask in (
        lambda: running[1].completions.create(model="gpt-4o", prompt="a"),
        lambda: running[1].completions.create(model="embedding", prompt="a"),
        lambda: running[1].models.retrieve("nobody/nothing"),
    ):
        with pytest.raises(openai.NotFoundError) as refused:
            ask()
        assert refused.value.code == "model_not_found"


def test_what_a_backend_cannot_do_is_refused_and_not_made_up(scripted):
    reply = scripted[1].chat.completions.create(model="faulty", messages=user("say this"), max_tokens=5)
    assert reply.choices[0].message.content == "say this"
    streamed = scripted[1].chat.completions.create(model="faulty", messages=user("say this"), stream=True)
    assert [c.choices[0].delta.content for c in streamed] == ["say this"]
    for more in ({"logprobs": True}, {"top_p": 0.5}, {"frequency_penalty": 1}, {"tools": [{"type": "function"}]}):
        with pytest.raises(openai.BadRequestError) as refused:
            scripted[1].chat.completions.create(model="faulty", messages=user("a"), **more)
        assert refused.value.code == "unsupported_parameter"
        assert next(iter(more)) in str(refused.value).replace("log-probabilities", "logprobs")
    with pytest.raises(openai.BadRequestError) as refused:
        scripted[1].chat.completions.create(model="faulty", messages=user("a" * 3001))
    assert refused.value.code == "context_length_exceeded"
    with pytest.raises(openai.APIStatusError) as refused:
        scripted[1].chat.completions.create(model="faulty", messages=user("a" * (1 << 20)))
    assert refused.value.status_code == 413


@pytest.mark.parametrize("key", ["wrong", "x" * 5000])
def test_without_the_right_token_nothing_is_told(scripted, key):
    stranger = openai.OpenAI(base_url=base_url(scripted[0]), api_key="x", max_retries=0, timeout=60)
    headers = {"Authorization": f"Bearer {key}"}
    before = len(journal(scripted[2]))
    for ask in (stranger.models.list, lambda **h: stranger.completions.create(model="faulty", prompt="a", **h)):
        with pytest.raises(openai.AuthenticationError) as refused:
            ask(extra_headers=headers)
        assert refused.value.code == "invalid_api_key"
    assert len(journal(scripted[2])) == before


def test_a_failing_provider_is_a_server_error_without_its_words(tmp_path, monkeypatch):
    with provider(0, "--script", "unauthorized") as upstream:
        words = ("name=openai", "model=m", f"base_url={upstream.first}", "retry.attempts=1")
        with served(tmp_path, *words) as process, pytest.raises(openai.APIStatusError) as refused:
            client(process, tmp_path).completions.create(model="openai", prompt="my secret text")
    assert refused.value.status_code in (400, 503)
    assert "my secret text" not in str(refused.value)


def test_a_cap_on_tokens_holds_and_clients_do_not_try_again(tmp_path):
    with served(tmp_path, "name=faulty", "limits.tokens=60") as process:
        asking = client(process, tmp_path).with_options(max_retries=5)
        asking.chat.completions.create(model="faulty", messages=user("hi"), max_tokens=4, temperature=0)
        with pytest.raises(openai.RateLimitError) as refused:
            asking.chat.completions.create(model="faulty", messages=user("more"), max_tokens=60, temperature=0)
        assert refused.value.code == "insufficient_quota"
        assert refused.value.response.headers["x-should-retry"] == "false"


def test_too_many_at_once_are_asked_to_come_again(tmp_path):
    with served(tmp_path, "name=faulty", "script=[slow:2, ok]", "server.in_all=1") as process:
        asking = client(process, tmp_path)

        def ask(i):
            try:
                return asking.chat.completions.create(model="faulty", messages=user(f"q{i}"))
            except openai.RateLimitError as refused:
                return refused

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            found = list(pool.map(ask, range(4)))
        refused = [one for one in found if isinstance(one, openai.RateLimitError)]
        assert 1 <= len(refused) <= 3
        assert all(one.response.headers["retry-after"] == "1" for one in refused)


def test_a_killed_server_comes_back_with_its_token_and_what_was_paid_for(tmp_path):
    with served(tmp_path, "name=faulty", "dollars_per_million_tokens=1") as process:
        asked = {"model": "faulty", "messages": user("once"), "temperature": 0}
        first = client(process, tmp_path).chat.completions.create(**asked)
        process.kill()
        process.start()
        again = client(process, tmp_path).chat.completions.create(**asked)
        assert again.choices == first.choices
        assert again.usage == first.usage
        assert len(journal(tmp_path)) == 1


def test_sigterm_ends_it_in_the_middle_of_a_stream(tmp_path):
    long = llama_config()
    long.max_position_embeddings = 20_000
    torch.manual_seed(1)
    endless = lively(LlamaForCausalLM(long))
    endless.generation_config.eos_token_id = 319  # of no token: it never ends by itself
    endless.save_pretrained(tmp_path / "endless")
    tokenizer("<s>").save_pretrained(tmp_path / "endless")
    words = ("name=transformers", f"folder={tmp_path / 'endless'}", "device=cpu", "threads=1")
    with served(tmp_path / "s", *words) as process:
        stream = client(process, tmp_path / "s").completions.create(
            model="transformers", prompt="go", max_tokens=19_000, temperature=1, seed=3, stream=True
        )
        next(iter(stream))
        code, errors = process.end()
        assert code == 0, errors
        assert journal(tmp_path / "s") == [], "half a reply is kept as if it were whole"
        with pytest.raises((openai.APIError, httpx2.HTTPError)):
            list(stream)


def test_the_token_and_the_texts_are_in_no_output(tmp_path):
    with served(tmp_path, "name=faulty") as process:
        token = (tmp_path / "token").read_text()
        client(process, tmp_path).chat.completions.create(model="faulty", messages=user("a private text"))
        with pytest.raises(openai.BadRequestError):
            client(process, tmp_path).chat.completions.create(model="faulty", messages=[{"role": "private role"}])
        command = Path(f"/proc/{process.process.pid}/cmdline").read_text()
        code, errors = process.end()
    assert code == 0
    for text in (process.first, errors, command):
        assert token not in text
        assert "private" not in text
    assert json.dumps("a private text") in (tmp_path / "journal.jsonl").read_text()  # texts are kept there, as told


def test_one_service_asks_another_and_passes_its_numbers_on(running, tmp_path, monkeypatch):
    monkeypatch.setitem(processes.ENVIRONMENT, "OPENAI_API_KEY", (running[2] / "token").read_text())
    words = ("name=openai", "model=transformers", f"base_url={base_url(running[0])}")
    text = {"prompt": PROMPT, "max_tokens": 6, "temperature": 0, "logprobs": 2, "echo": True}
    chat = {"messages": user(PROMPT), "max_tokens": 6, "temperature": 0, "logprobs": True, "top_logprobs": 2}
    with served(tmp_path / "text", *words, "api=completions") as process:
        found = client(process, tmp_path / "text").completions.create(model="openai", **text)
        assert found.choices == running[1].completions.create(model="transformers", **text).choices
    with served(tmp_path / "chat", *words) as process:
        asking = client(process, tmp_path / "chat")
        found = asking.chat.completions.create(model="openai", **chat)
        assert found.choices == running[1].chat.completions.create(model="transformers", **chat).choices
        with pytest.raises(openai.BadRequestError, match="answers chats only"):
            asking.completions.create(model="openai", prompt="go")
