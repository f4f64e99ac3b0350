"""The model in this process: folders, generation, scores, embeddings, new weights. Tiny models are made here."""

import asyncio
import json
import threading
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from llm_service import backends
from llm_service.backends.transformers import Config, check, make
from llm_service.backends.transformers.folder import fingerprint
from llm_service.errors import ContextTooLong, Refused, UsageError
from llm_service.records import Call, Parameters, Reply
from llm_service.world import NOWHERE

CORPUS = ["go left", "go right", "go forward", "pick up the grey key", "open the red door", "You see a key."]
PROMPTS = ["You see a key.", "go", "open the red door, then pick up the grey key and go forward", "a"]


def tokenizer(begin=""):
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<pad>", "<s>", "</s>"]
    inner.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, special_tokens=special)
    )
    single = "<s> $A" if begin else "$A </s>"
    inner.post_processor = processors.TemplateProcessing(single=single, special_tokens=[("<s>", 1), ("</s>", 2)])
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


def lively(model):
    """Weights so large that replies differ from prompt to prompt."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and "relative" not in name:
                weight.normal_(std=0.7 if "embed" in name or "shared" in name else 0.25)
    return model


def llama_config():
    return LlamaConfig(
        vocab_size=len(tokenizer()),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Folders of a Llama and a T5."""
    root = tmp_path_factory.mktemp("models")
    torch.manual_seed(1)
    llama, t5_tokenizer = lively(LlamaForCausalLM(llama_config())), tokenizer()
    llama.generation_config.repetition_penalty = 5.0  # a recommendation, which calls did not ask for
    llama.save_pretrained(root / "llama")
    tokenizer("<s>").save_pretrained(root / "llama")
    t5 = T5Config(
        vocab_size=len(t5_tokenizer), d_model=32, d_kv=8, d_ff=48, num_heads=4, num_layers=2, decoder_start_token_id=0
    )
    lively(T5ForConditionalGeneration(t5)).save_pretrained(root / "t5")
    t5_tokenizer.save_pretrained(root / "t5")
    return root


@pytest.fixture(scope="session")
def made(folders):
    return {
        name: make(Config(folder=str(folders / name), device="cpu", threads=1), NOWHERE) for name in ("llama", "t5")
    }


def call(prompt, verb="generate", candidates=(), sample=0, turns=None, **parameters):
    parameters = Parameters(**{"max_tokens": 12, **parameters})
    return Call(verb, turns or (("user", prompt),), tuple(candidates), parameters, sample)


def ask(backend, *calls):
    return asyncio.run(backend.answer(calls))


def test_it_is_found_by_name_and_its_options_need_no_library():
    assert "transformers" in backends.names()
    assert backends.module("transformers").Config().max_batch == 16
    with pytest.raises(ValidationError):
        Config(dtype="float16")


# ---- generate --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_a_batch_answers_as_each_call_alone(made, name):
    calls = [call(prompt) for prompt in PROMPTS]
    together = ask(made[name], *calls)
    assert [reply.text for reply in together] == [ask(made[name], one)[0].text for one in calls]
    assert len({reply.text for reply in together}) > 1  # else it would not be seen


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_greedy_takes_the_most_probable_token_each_time(made, name):
    backend = made[name]
    network, words = backend._network, backend._tokenizer
    for prompt in PROMPTS:
        ids, found = words(prompt).input_ids, []
        for _ in range(12):
            with torch.no_grad():
                if name == "t5":
                    logits = network(torch.tensor([ids]), decoder_input_ids=torch.tensor([[0, *found]])).logits
                else:
                    logits = network(torch.tensor([ids + found])).logits
            found.append(int(logits[0, -1].argmax()))
            if found[-1] == 2:
                break
        (reply,) = ask(backend, call(prompt))
        assert reply.text == words.decode(found, skip_special_tokens=True)
        assert (reply.prompt_tokens, reply.completion_tokens) == (len(ids), len(found))


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_samples_follow_from_the_call_and_not_from_its_batch(made, name):
    calls = [call(prompt, temperature=1.0, seed=7) for prompt in PROMPTS]
    together = [reply.text for reply in ask(made[name], *calls)]
    assert together == [ask(made[name], one)[0].text for one in calls]
    assert together != [reply.text for reply in ask(made[name], *(call(p, temperature=1.0, seed=8) for p in PROMPTS))]
    several = ask(made[name], *(call("go", temperature=1.0, sample=i) for i in range(8)))
    assert len({reply.text for reply in several}) > 4


def test_samples_have_the_models_distribution(made):
    backend = made["llama"]
    ids = backend._tokenizer("go").input_ids
    with torch.no_grad():
        expected = (backend._network(torch.tensor([ids])).logits[0, -1] / 0.8).softmax(-1)
    calls = [call("go", temperature=0.8, max_tokens=1, sample=i) for i in range(3000)]
    texts = [reply.text for reply in ask(backend, *calls)]
    by_text = Counter()  # several bytes that are no text alone are one text
    for token, probability in enumerate(expected.tolist()):
        by_text[backend._tokenizer.decode([token], skip_special_tokens=True)] += probability
    for text, probability in by_text.most_common(4):
        assert texts.count(text) / len(texts) == pytest.approx(probability, abs=0.04)


def test_a_stop_text_ends_a_reply_and_is_not_part_of_it(made):
    (whole,) = ask(made["llama"], call(PROMPTS[0]))
    stop = whole.text[4:6]
    short, other = ask(made["llama"], call(PROMPTS[0], stop=(stop, "§§")), call(PROMPTS[2], stop=(stop, "§§")))
    assert short.text == whole.text[: whole.text.index(stop)]
    assert short.completion_tokens < whole.completion_tokens
    assert stop not in other.text


def test_max_tokens_bound_a_reply(made):
    for name in ("llama", "t5"):
        assert ask(made[name], call("go", max_tokens=3))[0].completion_tokens <= 3


def test_turns_are_joined_plainly_or_by_the_chat_template(made, folders, tmp_path):
    turns = (("system", "You act."), ("user", "go left"))
    plain, joined = ask(made["llama"], call("", turns=turns), call("You act.\n\ngo left"))
    assert plain == joined
    words = tokenizer("<s>")
    words.chat_template = (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]\n{% endif %}"
    )
    chat = tmp_path / "chat"
    LlamaForCausalLM.from_pretrained(folders / "llama").save_pretrained(chat)
    words.save_pretrained(chat)
    backend = make(Config(folder=str(chat), device="cpu"), NOWHERE)
    rendered = "[user] go left\n[assistant]\n"  # <s> is added by the plain tokenizer
    assert ask(backend, call("go left"))[0] == ask(made["llama"], call(rendered))[0]
    candidates = ("go", "open the red door")
    ours = ask(backend, call("go left", "score", candidates))[0]
    assert ours == ask(made["llama"], call(rendered, "score", candidates))[0]
    for verb in ("generate", "score"):
        (refused,) = ask(backend, call("", verb, candidates, turns=turns))
        assert isinstance(refused, Refused)
        assert "chat template does not accept the turns system, user" in str(refused)


# ---- score and embed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "t5"])
@pytest.mark.parametrize("normalise", ["none", "tokens"])
def test_scores_are_log_probabilities(made, name, normalise):
    backend = made[name]
    candidates = ("go left", "go right", "pick up the grey key")
    calls = [call(prompt, "score", candidates, normalise=normalise, temperature=0.0) for prompt in PROMPTS]
    for prompt, reply in zip(PROMPTS, ask(backend, *calls), strict=True):
        ids = backend._tokenizer(prompt).input_ids
        used = len(ids)
        for candidate, score in zip(candidates, reply.scores, strict=True):
            text = candidate if name == "t5" else f" {candidate}"
            wanted = backend._tokenizer(text, add_special_tokens=False).input_ids
            with torch.no_grad():
                if name == "t5":
                    given = torch.tensor([[0, *wanted[:-1]]])
                    logits = backend._network(torch.tensor([ids]), decoder_input_ids=given).logits[0]
                else:
                    logits = backend._network(torch.tensor([ids + wanted])).logits[0, len(ids) - 1 : -1]
            chosen = logits.log_softmax(-1)[range(len(wanted)), wanted].double()
            expected = float(chosen.sum() if normalise == "none" else chosen.mean())
            assert score == pytest.approx(expected, rel=1e-5, abs=1e-5)
            used += len(wanted)
        assert reply.prompt_tokens == used


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_embeddings_are_mean_states_of_unit_length(made, name):
    backend = made[name]
    replies = ask(backend, *(call(prompt, "embed") for prompt in PROMPTS))
    for prompt, reply in zip(PROMPTS, replies, strict=True):
        ids = torch.tensor([backend._tokenizer(prompt).input_ids])
        network = backend._network.encoder if name == "t5" else backend._network.model
        with torch.no_grad():
            mean = network(input_ids=ids).last_hidden_state[0].mean(0)
        np.testing.assert_allclose(reply.vector, mean / mean.norm(), atol=1e-5)
        assert reply.vector.dtype == np.float32
        assert reply.prompt_tokens == ids.shape[1]


def test_bfloat16_is_near(made, folders):
    rough = make(Config(folder=str(folders / "llama"), device="cpu", dtype="bfloat16"), NOWHERE)
    asked = call("go", "score", ("left", "right"))
    np.testing.assert_allclose(ask(rough, asked)[0].scores, ask(made["llama"], asked)[0].scores, rtol=0.1)
    assert rough.model != made["llama"].model


# ---- one bad call does not spoil a batch -----------------------------------------------------------------------------


def test_what_does_not_fit_is_said_with_both_numbers_and_the_rest_is_answered(made):
    long = "go " * 80
    length = len(made["llama"]._tokenizer(long).input_ids)
    for verb, said in (
        ("generate", f"of {length} tokens.* need {length + 12}"),
        ("embed", f"of {length} tokens"),
        ("score", f"have {length + 2} tokens"),
    ):
        good, bad = ask(made["llama"], call("go", verb, ("left",)), call(long, verb, ("left",)))
        assert isinstance(good, Reply)
        assert isinstance(bad, ContextTooLong)
        with pytest.raises(ContextTooLong, match=rf"{said}.*context has 64"):
            raise bad
    assert isinstance(ask(made["t5"], call(long))[0], Reply)


def test_a_context_can_be_set(folders):
    backend = make(Config(folder=str(folders / "t5"), device="cpu", context=8), NOWHERE)
    for verb in ("generate", "score", "embed"):
        assert isinstance(ask(backend, call("go " * 20, verb, ("left",)))[0], ContextTooLong)


def test_calls_without_content_are_refused(made):
    good, empty, none = ask(
        made["llama"],
        call("go", "score", ("left",)),
        call("go", "score", ("left", "")),
        call("go", "score"),
    )
    assert isinstance(good, Reply)
    assert isinstance(empty, Refused)
    assert "candidate 1 is empty" in str(empty)
    assert isinstance(none, Refused)


# ---- the loop, new weights, names ------------------------------------------------------------------------------------


def test_the_event_loop_is_free_while_the_model_works(made):
    """The model is held inside a forward until the loop has run."""
    entered, go_on = threading.Event(), threading.Event()
    network = made["llama"]._network
    workers = []

    def hold(*_):
        workers.append(threading.current_thread().name)
        entered.set()
        assert go_on.wait(20)

    async def story():
        answers = asyncio.gather(
            made["llama"].answer([call("go", max_tokens=1)]), made["llama"].answer([call("a", max_tokens=1)])
        )
        while not entered.is_set():
            await asyncio.sleep(0)
        go_on.set()
        return await answers

    handle = network.register_forward_pre_hook(hold)
    try:
        assert len(asyncio.run(asyncio.wait_for(story(), 30))) == 2
    finally:
        handle.remove()
    assert len(set(workers)) == 1
    assert workers[0] != threading.current_thread().name


def test_new_weights_change_answers_and_name(folders):
    backend = make(Config(folder=str(folders / "llama"), device="cpu"), NOWHERE)
    asked = call("go", "score", ("left", "right"))
    old, name = ask(backend, asked)[0].scores, backend.model
    weights = load_file(folders / "llama" / "model.safetensors")
    changed = {key: (value * 1.5).numpy() for key, value in weights.items() if "q_proj" in key}
    asyncio.run(backend.load(changed, version=3))
    assert ask(backend, asked)[0].scores != old
    assert backend.model.startswith(f"{name}-v3-")
    asyncio.run(backend.load(weights, version=4))
    assert ask(backend, asked)[0].scores == old
    with pytest.raises(UsageError, match="version 5: the model has no parameter head"):
        asyncio.run(backend.load({**changed, "head": np.zeros(3)}, version=5))
    with pytest.raises(UsageError, match=r"has shape \(32,\) in the model, but \(3,\) here"):
        asyncio.run(backend.load({**changed, "model.norm.weight": np.zeros(3)}, version=5))
    assert ask(backend, asked)[0].scores == old
    assert backend.model.startswith(f"{name}-v4-")


def test_the_name_follows_from_configuration_tokenizer_and_weights(folders, tmp_path):
    def copied(name):
        folder = tmp_path / name
        LlamaForCausalLM.from_pretrained(folders / "llama").save_pretrained(folder)
        tokenizer("<s>").save_pretrained(folder)
        return folder

    assert fingerprint(copied("a")) == fingerprint(copied("b"))
    weights = tmp_path / "a" / "model.safetensors"
    save_file({key: value * 1.001 for key, value in load_file(weights).items()}, weights, {"format": "pt"})
    assert fingerprint(tmp_path / "a") != fingerprint(tmp_path / "b")
    before = fingerprint(tmp_path / "b")
    (tmp_path / "b" / "chat_template.jinja").write_text("{{ messages }}")
    assert fingerprint(tmp_path / "b") != before


def test_probe_estimate_price_close(folders):
    backend = make(Config(folder=str(folders / "t5"), device="cpu"), NOWHERE)
    asyncio.run(backend.probe())
    prompt, completion = backend.estimate(call("open the red door"))
    assert prompt >= ask(backend, call("open the red door"))[0].prompt_tokens
    assert completion == 12
    assert backend.price(10, 10) == 0.0
    asyncio.run(backend.close())
    with pytest.raises(RuntimeError):
        asyncio.run(backend.probe())


# ---- folders that are not models -------------------------------------------------------------------------------------


def test_a_folder_that_is_no_model_is_one_sentence(tmp_path, folders):
    def said(folder, **options):
        with pytest.raises(UsageError) as caught:
            make(Config(folder=str(folder), **options), NOWHERE)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "llm.folder is empty" in said("")
    assert "there is no folder" in said("org/a-name-on-the-hub")
    assert "it has no config.json" in said(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert "has no weights" in said(tmp_path)
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    assert "does not say its model_type" in said(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "perpetuum"}))
    assert "is a perpetuum model that cannot be run here" in said(tmp_path)
    bare = tmp_path / "bare"
    LlamaForCausalLM.from_pretrained(folders / "llama").save_pretrained(bare)
    assert "has no tokenizer" in said(bare)
    if not torch.cuda.is_available():
        assert "there is no GPU" in said(folders / "llama", device="cuda")


def test_a_model_that_cannot_be_scored_keeps_its_other_verbs(tmp_path, caplog):
    words = tokenizer("<s>")
    BloomForCausalLM(BloomConfig(vocab_size=len(words), hidden_size=32, n_layer=1, n_head=4)).save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    backend = make(Config(folder=str(tmp_path), device="cpu"), NOWHERE)
    assert backend.verbs == {"generate", "embed"}
    assert "cannot score candidates" in caplog.text
    assert isinstance(ask(backend, call("go"))[0], Reply)


# ---- what clients of the OpenAI-compatible API ask for ---------------------------------------------------------------


def test_tokens_of_a_batch_have_the_log_probabilities_of_each_call_alone(made):
    calls = [replace(call(prompt, temperature=0.0), top=2, echo=True, raw=True) for prompt in PROMPTS]
    together = ask(made["llama"], *calls)
    for one, reply in zip(calls, together, strict=True):
        alone = ask(made["llama"], one)[0]
        assert [token.text for token in reply.tokens] == [token.text for token in alone.tokens]
        for token, other in zip(reply.tokens, alone.tokens, strict=True):
            assert token.logprob == pytest.approx(other.logprob, abs=1e-4)
        assert "".join(token.text for token in reply.tokens).startswith(one.turns[0][1])


def test_what_is_heard_grows_to_the_reply_and_shows_no_part_of_a_stop_text(made):
    whole = ask(made["llama"], call("go", max_tokens=24))[0].text
    stop = whole[6:9]
    for name, words in (("llama", ()), ("llama", (stop,)), ("t5", ())):
        heard = []
        one = replace(call("go", max_tokens=24, stop=words), heard=lambda text, tokens, heard=heard: heard.append(text))
        reply = ask(made[name], one)[0]
        assert heard
        assert all(reply.text.startswith(text) for text in heard), (heard, reply.text)
        assert heard == sorted(heard, key=len)


def test_a_question_without_options_has_the_key_that_journals_have():
    asked = call("go")
    assert asked.key("m") == "9095381a9cec230ffbb3b75e3decf266"
    others = [replace(asked, top=0), replace(asked, raw=True), replace(asked, top=1), replace(asked, top=0, echo=True)]
    assert len({one.key("m") for one in (asked, *others)}) == 5
    assert replace(asked, heard=print).key("m") == asked.key("m")


def test_adapters_answer_as_peft_has_them(folders, tmp_path):
    from peft import LoraConfig, PeftModel, get_peft_model

    torch.manual_seed(2)
    network = LlamaForCausalLM.from_pretrained(folders / "llama")
    trained = get_peft_model(network, LoraConfig(r=4, target_modules=["q_proj", "up_proj"], task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, weight in trained.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.5)
    trained.save_pretrained(tmp_path / "adapters")
    served = make(Config(folder=str(tmp_path / "adapters"), device="cpu", threads=1), NOWHERE)
    plain = PeftModel.from_pretrained(LlamaForCausalLM.from_pretrained(folders / "llama"), tmp_path / "adapters").eval()
    reply = ask(served, replace(call("go left", max_tokens=0), top=0, echo=True, raw=True))[0]
    ids = torch.tensor([tokenizer("<s>")("go left").input_ids])
    with torch.no_grad():
        right = plain(ids).logits[0].log_softmax(-1)
    expected = [float(right[i - 1, ids[0, i]]) for i in range(1, ids.shape[1])]
    assert [token.logprob for token in reply.tokens] == pytest.approx(expected, abs=1e-4)
    assert served.model != make(Config(folder=str(folders / "llama"), device="cpu", threads=1), NOWHERE).model
    (tmp_path / "adapters" / "adapter_model.safetensors").rename(tmp_path / "adapters" / "adapter_model.bin")
    with pytest.raises(UsageError, match=r"no adapter_model\.safetensors"):
        check(Config(folder=str(tmp_path / "adapters")))
