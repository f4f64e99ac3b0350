"""Tiny models are real: the library loads them, they encode any text and prefer true sentences to shuffled ones."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

from llm_service import tiny
from llm_service.errors import UsageError

CLASSES = {"llama": AutoModelForCausalLM, "t5": AutoModelForSeq2SeqLM}


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def load(folder, name):
    tokenizer = AutoTokenizer.from_pretrained(folder / name, local_files_only=True)
    return CLASSES[name].from_pretrained(folder / name, local_files_only=True).eval(), tokenizer


@pytest.fixture(scope="module")
def barely_trained(tmp_path_factory):
    """Full size, two steps of training."""
    folder = tmp_path_factory.mktemp("tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "STEPS", 2)
        tiny.build(folder)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    tiny.build(folder)
    return folder


def test_the_library_loads_both_from_plain_files(barely_trained):
    for name in CLASSES:
        files = {p.name for p in (barely_trained / name).iterdir()}
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= files
        assert not [f for f in files if not f.endswith((".json", ".safetensors"))]
        assert sum(len(c) for c in contents(barely_trained / name).values()) < 2_000_000
        model, tokenizer = load(barely_trained, name)
        assert model.config.vocab_size >= len(tokenizer)
        assert all(torch.isfinite(p).all() for p in model.parameters())
    assert not [p for p in barely_trained.iterdir() if p.name.startswith(".")]


def test_the_llama_shares_key_value_heads_and_the_t5_has_two_and_two_layers(barely_trained):
    llama, t5 = (load(barely_trained, name)[0].config for name in CLASSES)
    assert (llama.num_hidden_layers, llama.num_attention_heads, llama.num_key_value_heads) == (2, 4, 2)
    assert (t5.num_layers, t5.num_decoder_layers) == (2, 2)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_has_an_encoding_and_comes_back(barely_trained, text):
    for name in CLASSES:
        tokenizer = AutoTokenizer.from_pretrained(barely_trained / name, local_files_only=True)
        if not any(token in text for token in (tiny.PAD, tiny.START, tiny.END)):
            assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text


def test_special_tokens_stand_where_each_kind_of_model_has_them(barely_trained):
    for name, ids in (("llama", lambda own: [1, *own]), ("t5", lambda own: [*own, 2])):
        _, tokenizer = load(barely_trained, name)
        own = tokenizer("go to the red ball", add_special_tokens=False).input_ids
        assert tokenizer("go to the red ball").input_ids == ids(own)
        assert len(own) == 5  # words of the worlds are one token each
        assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)


def test_building_again_takes_the_place_of_the_old_and_changes_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(tiny, "STEPS", 1)
    (tmp_path / "corpus.txt").write_text("go to the red ball\n\npick up a key\n")
    (tmp_path / "out" / "t5").mkdir(parents=True)
    (tmp_path / "out" / "t5" / "stale").write_text("")
    (tmp_path / "out" / "notes").write_text("mine")
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    tiny.build(tmp_path / "out", tmp_path / "corpus.txt")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["llama", "notes", "t5"]
    assert not (tmp_path / "out" / "t5" / "stale").exists()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    first = contents(tmp_path / "out")
    tiny.build(tmp_path / "out", tmp_path / "corpus.txt")
    assert contents(tmp_path / "out") == first


def test_a_build_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("power cut")

    monkeypatch.setattr(tiny, "STEPS", 1)
    monkeypatch.setitem(tiny._MAKERS, "t5", fail)
    with pytest.raises(RuntimeError, match="power cut"):
        tiny.build(tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the corpus"),
        (b"", "has no sentence"),
        (b"word\n", "has no sentence"),
        (b"\xff a", "UTF-8"),
    ],
)
def test_a_corpus_that_cannot_be_used_is_one_sentence(tmp_path, content, message):
    if content is not None:
        (tmp_path / "corpus.txt").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        tiny.build(tmp_path / "out", tmp_path / "corpus.txt")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "error: the following arguments are required: out"),
        (["a", "b"], "error: unrecognized arguments: b"),
        (["OUT", "--corpus", "none.txt"], "error: cannot read the corpus none.txt: No such file or directory"),
        (["FILE"], "error: cannot write to "),
    ],
)
def test_wrong_arguments_are_one_sentence_and_exit_code_2(tmp_path, capsys, arguments, message):
    (tmp_path / "FILE").write_text("")
    arguments = [str(tmp_path / a) if a in ("OUT", "FILE") else a for a in arguments]
    try:
        code = tiny.main(arguments)
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    error = capsys.readouterr().err
    assert error.startswith(message)
    assert error.count("\n") == 1


@pytest.mark.slow
def test_another_process_writes_the_same_bytes(trained, tmp_path):
    command = [sys.executable, "-m", "llm_service.tiny", str(tmp_path / "again")]
    environment = os.environ | {"PYTHONHASHSEED": "77", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert (done.returncode, done.stdout) == (0, "")
    assert contents(tmp_path / "again") == contents(trained)


@pytest.mark.slow
def test_true_sentences_are_likelier_than_shuffled_ones(trained):
    generator = random.Random(1)
    sentences = [s for s in Path(tiny.CORPUS).read_text().splitlines() if len(set(s.split())) > 4]
    for name in CLASSES:
        model, tokenizer = load(trained, name)
        wins = 0
        for sentence in generator.sample(sentences, 60):
            words = sentence.split()
            given, rest = (words[:2], words[2:]) if name == "t5" else ([], words)
            shuffled = rest
            while shuffled == rest:
                shuffled = generator.sample(rest, len(rest))
            wins += likelihood(model, tokenizer, given, rest) > likelihood(model, tokenizer, given, shuffled)
        assert wins >= 57, name


@torch.no_grad()
def likelihood(model, tokenizer, given, rest):
    """Log-probability of `rest`, after `given` for the T5."""
    answer = tokenizer(" ".join(rest), return_tensors="pt").input_ids
    if not given:
        return -model(input_ids=answer, labels=answer).loss.item() * (answer.shape[1] - 1)
    prompt = tokenizer(" ".join(given), return_tensors="pt")
    output = model(input_ids=prompt.input_ids, attention_mask=prompt.attention_mask, labels=answer)
    return -output.loss.item() * answer.shape[1]


def test_light_code_may_import_the_module_without_torch():
    code = (
        "import json, sys, llm_service.tiny; print(json.dumps([m in sys.modules for m in ('torch', 'transformers')]))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert json.loads(found) == [False, False]


def test_the_reader_has_the_shape_and_the_tokens_of_the_other_t5(barely_trained, tmp_path, monkeypatch):
    monkeypatch.setattr(tiny, "READING_STEPS", 2)
    tiny.build(tmp_path, kinds=("t5-reader",))
    assert [path.name for path in tmp_path.iterdir()] == ["t5-reader"]
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "t5-reader" / name).read_bytes() == (barely_trained / "t5" / name).read_bytes()


@pytest.mark.slow
def test_the_reader_makes_use_of_what_it_is_given():
    """A sentence is likelier to be finished as it goes on where it stands in the text than where it does not."""
    folder, generator, wins = tiny.folder("tiny-t5-reader"), random.Random(3), 0
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True).eval()
    sentences = [f"{s.rstrip('.')}." for s in Path(tiny.CORPUS).read_text().splitlines() if " " in s]
    for _ in range(100):
        text = generator.sample(sentences, 5)
        words = text[0].split()
        cut = generator.randint(1, len(words) - 1)
        generator.shuffle(text)
        there, absent = (
            likelihood(model, tokenizer, [*given, *words[:cut]], ["", *words[cut:]])
            for given in (text, [sentence for sentence in text if sentence.split() != words])
        )
        wins += there > absent
    assert wins >= 90
