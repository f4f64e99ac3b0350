"""What embeds is named by what it holds, reads no pickle, and says what is missing."""

import asyncio
import json

import numpy as np
import pytest
import torch

from llm_service import embedding
from llm_service.embedding import EmbeddingBackend, EmbeddingConfig
from llm_service.errors import Unsupported, UsageError
from llm_service.records import Call

CALL = Call("embed", (("user", "a text"),))


def encoder(folder, weights):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "model.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}" + weights)
    return EmbeddingBackend(EmbeddingConfig(folder=str(folder)))


def test_equal_names_of_folders_are_not_equal_models(tmp_path):
    one, other = encoder(tmp_path / "a" / "encoder", b"one"), encoder(tmp_path / "b" / "encoder", b"two")
    same = encoder(tmp_path / "c" / "encoder", b"one")
    assert one.model == same.model != other.model
    assert one.model.startswith("embedding:encoder-")


def test_a_folder_without_a_model_is_one_sentence(tmp_path):
    with pytest.raises(UsageError, match=r"config\.json"):
        EmbeddingBackend(EmbeddingConfig(folder=str(tmp_path)))


def test_weights_that_are_a_pickle_are_not_read(tmp_path):
    backend = encoder(tmp_path / "encoder", b"")
    (tmp_path / "encoder" / "model.safetensors").unlink()
    torch.save({}, tmp_path / "encoder" / "pytorch_model.bin")
    with pytest.raises(Unsupported, match="no encoder that can be loaded"):
        asyncio.run(backend.answer([CALL]))


def test_code_that_comes_with_weights_is_not_run_whatever_is_answered(tmp_path, monkeypatch):
    """The library would ask on the terminal whether it may run it."""
    encoder(tmp_path / "encoder", b"")
    classes = {"AutoConfig": "own.Config", "AutoModel": "own.Model", "AutoTokenizer": ["own.Tokenizer", None]}
    (tmp_path / "encoder" / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": classes}))
    (tmp_path / "encoder" / "tokenizer_config.json").write_text(json.dumps({"auto_map": classes}))
    (tmp_path / "encoder" / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    with pytest.raises(UsageError, match="no encoder that can be loaded"):
        embedding.Encoder(str(tmp_path / "encoder"))
    assert not (tmp_path / "ran").exists()


def test_a_missing_package_is_said_at_once_and_not_tried_again(monkeypatch):
    def missing(device):
        raise embedding.EmbedderMissing("pip install it")

    monkeypatch.setattr(embedding, "_minilm", missing)
    with pytest.raises(Unsupported, match="pip install it"):
        asyncio.run(EmbeddingBackend(EmbeddingConfig()).answer([CALL]))


def test_any_encoder_multiplies_in_float32_whatever_its_asker_does():
    encode = embedding.Encoder(embedding.minilm_folder()).encode
    plain = encode(["place table"])
    with torch.autocast("cpu", torch.bfloat16):
        assert np.array_equal(encode(["place table"]), plain)
