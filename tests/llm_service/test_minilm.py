"""The sentence encoder in plain PyTorch is the library's model, without the library."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_service.embedding import Encoder, _minilm, minilm_folder

ODD = ["", "Ünïcode ﬁ 漢字", "[MASK] [SEP] <b>", "a\x00b\n\tc", "x" * 3000, "You see a cow, " * 200]


@pytest.fixture(scope="module")
def library():
    return Encoder(minilm_folder())


@pytest.mark.parametrize("text", ["chop tree", "Your goal is: place crafting table. drink water", *ODD])
def test_a_text_has_the_librarys_vector(library, text):
    np.testing.assert_allclose(_minilm("cpu").encode([text]), library.encode([text]), atol=1e-6)


@settings(max_examples=25)
@given(st.lists(st.text(max_size=60), min_size=1, max_size=6))
def test_texts_of_any_lengths_have_the_librarys_vectors(library, texts):
    together = _minilm("cpu").encode(texts)
    np.testing.assert_allclose(together, library.encode(texts), atol=2e-6)
    np.testing.assert_allclose(together, np.concatenate([_minilm("cpu").encode([text]) for text in texts]), atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)


def test_a_text_is_embedded_in_float32_whatever_its_asker_multiplies():
    plain = _minilm("cpu").encode(["place table"])
    with torch.autocast("cpu", torch.bfloat16):
        assert np.array_equal(_minilm("cpu").encode(["place table"]), plain)


def test_mixes_of_words_are_read_as_by_the_library(library):
    words = torch.randn(3, 7, 384, generator=torch.Generator().manual_seed(0)) / 20
    with torch.no_grad():
        expected = library.model(inputs_embeds=words).last_hidden_state
    np.testing.assert_allclose(_minilm("cpu").read(words), expected, atol=1e-5)


def test_the_library_which_takes_seconds_to_import_is_not():
    code = "import sys; from llm_service import embed_one; embed_one('a cow'); sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
