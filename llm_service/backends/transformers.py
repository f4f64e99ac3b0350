"""A Hugging Face model in this process: any local folder, seq2seq or decoder-only as its config.json says.

generate   greedy, or sampled with noise that follows from the call alone, so that it does not depend on its batch
score      by `llm_service/scoring`, where the architecture can be; else the verb is missing and the log says why
embed      mean of the last hidden states over the text's tokens, unit length: the encoder's (seq2seq), or the last layer's

Turns are rendered by the tokenizer's chat template if it has one (and no special tokens are added to that), else their
texts are joined by blank lines, without the roles. `embed` joins them always. Nothing is downloaded, weights are read from
safetensors only, and a model's own code is never run.

All work is done in one thread of its own: calls wait for each other, the event loop for none of them.
"""

# mypy: allow-untyped-calls
# Transformers says that it is typed; some of its functions are not.

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from llm_service.config import Part
from llm_service.errors import BackendError, ContextTooLong, Overloaded, Refused, UsageError
from llm_service.records import Call, Reply, Verb
from llm_service.world import World

log = logging.getLogger(__name__)

SAMPLES = 256
"""Blocks of each weights file that its fingerprint reads."""
BLOCK = 4096


class Config(Part):
    """A model on disk."""

    folder: str = ""
    """Folder with config.json, the tokenizer and weights as safetensors."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the weights; auto: as they are stored."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model runs; auto: on the GPU if there is one."""
    max_batch: int = Field(default=16, ge=1)
    """Most calls in one batch."""
    threads: int = Field(default=0, ge=0)
    """CPU threads of the model; 0: as PyTorch decides."""
    context: int | None = Field(default=None, ge=2)
    """Most tokens of prompt and reply together; null: what the model was built for (T5 has no bound)."""


def make(config: Config, world: World) -> LocalModel:
    """The backend, its model loaded.

    Raises:
        UsageError: the folder is missing or is not a model that can be run here.
    """
    return LocalModel(config)


class LocalModel:
    """A `Backend` around one model."""

    verbs: frozenset[Verb] = frozenset({"generate", "score", "embed"})
    concurrency = 1
    bucket_ratio: float | None = 2.0
    paid = False

    def __init__(self, config: Config) -> None:
        import torch

        from llm_service.scoring.scorer import Scorer

        folder = Path(config.folder).expanduser()
        self._network, self._tokenizer = _read(folder, config)
        self.max_batch = config.max_batch
        self._seq2seq = bool(self._network.config.is_encoder_decoder)
        self._name = f"{folder.resolve().name}-{fingerprint(folder)}-{str(self._network.dtype).removeprefix('torch.')}"
        self.model = self._name
        self._scorer: Scorer | None = None
        try:
            self._scorer = Scorer(self._network, self._tokenizer, context=config.context, remember=0)
        except UsageError as error:
            log.warning("llm.folder: %s cannot score candidates, the other verbs work: %s", folder, error)
            self.verbs = frozenset({"generate", "embed"})
        own = getattr(self._network.config.get_text_config(), "max_position_embeddings", None)
        self._context = config.context or (None if self._seq2seq else own)
        threads = config.threads or torch.get_num_threads()
        self._worker = ThreadPoolExecutor(1, "model", initializer=torch.set_num_threads, initargs=(threads,))

    async def answer(self, calls: Sequence[Call]) -> list[Reply | BackendError]:
        work: dict[Verb, Callable[[Sequence[Call]], list[Reply | BackendError]]]
        work = {"generate": self._generate, "score": self._score, "embed": self._embed}
        return await self._do(work[calls[0].verb], calls)

    def estimate(self, call: Call) -> tuple[int, int]:
        characters = call.characters + sum(map(len, call.candidates))
        most = call.parameters.max_tokens if call.verb == "generate" else 0
        return characters // 3 + 8 * (len(call.turns) + len(call.candidates)), most

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0

    async def probe(self) -> None:
        await self._do(self._embed, [Call("embed", (("user", "ready"),))])

    async def close(self) -> None:
        await asyncio.to_thread(self._worker.shutdown, cancel_futures=True)

    async def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Put new weights in place of the model's, between two batches; `model` then names the version.

        Args:
            weights: some or all of the model's parameters by their names, tensors or arrays of the same shapes.

        Raises:
            UsageError: a name is unknown or a shape differs; nothing was changed.
        """
        await self._do(self._load, weights, version)

    async def _do(self, work: Callable[..., Any], *arguments: Any) -> Any:
        import torch

        def run() -> Any:
            with torch.no_grad():
                return work(*arguments)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, run)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            raise Overloaded(
                f"the GPU's memory does not hold the batch: set llm.max_batch below {self.max_batch}"
            ) from None

    def _load(self, weights: Mapping[str, Any], version: int) -> None:
        import torch

        own = self._network.state_dict()
        for name, value in weights.items():
            if name not in own:
                raise UsageError(f"weights of version {version}: the model has no parameter {name}")
            if tuple(own[name].shape) != tuple(value.shape):
                have, got = tuple(own[name].shape), tuple(value.shape)
                raise UsageError(f"weights of version {version}: {name} has shape {have} in the model, but {got} here")
        for name, value in weights.items():
            own[name].copy_(torch.as_tensor(value))
        self.model = f"{self._name}-v{version}"

    # ---- the verbs, in the worker ------------------------------------------------------------------------------------

    def _generate(self, calls: Sequence[Call]) -> list[Reply | BackendError]:
        import torch
        from transformers import LogitsProcessorList, StoppingCriteriaList

        parameters = calls[0].parameters
        replies: list[Reply | BackendError | None] = [None] * len(calls)
        prompts: dict[int, tuple[int, ...]] = {}
        for index, call in enumerate(calls):
            try:
                prompts[index] = self._fitting(self._prompt(call), parameters.max_tokens)
            except BackendError as error:
                replies[index] = error
        if prompts:
            ids, mask = self._padded(list(prompts.values()), left=True)
            end = _End(self._tokenizer, self._network, 1 if self._seq2seq else ids.shape[1], len(ids), parameters.stop)
            noise = [_Noise([calls[i] for i in prompts])] if parameters.temperature > 0 else []
            found = self._network.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=parameters.max_tokens,
                do_sample=False,
                logits_processor=LogitsProcessorList(noise),
                stopping_criteria=StoppingCriteriaList([end]),
            )
            assert isinstance(found, torch.Tensor)
            for row, (index, prompt) in enumerate(prompts.items()):
                count = end.count(row, found.shape[1])
                text = _cut(end.text(found[row], count), parameters.stop)
                replies[index] = Reply(text=text, prompt_tokens=len(prompt), completion_tokens=count)
        return [reply for reply in replies if reply is not None]

    def _score(self, calls: Sequence[Call]) -> list[Reply | BackendError]:
        assert self._scorer is not None  # else the verb is not among ours
        replies: list[Reply | BackendError | None] = [None] * len(calls)
        questions = {}
        for index, call in enumerate(calls):
            text, special = self._rendered(call)
            try:
                question = self._scorer.tokenise(text, call.candidates, special)
                self._scorer.refuse(question)
                questions[index] = question
            except BackendError as error:
                replies[index] = error
        scores = self._scorer.score_tokens(list(questions.values()), calls[0].parameters.normalise).scores
        for (index, (prompt, candidates)), values in zip(questions.items(), scores, strict=True):
            replies[index] = Reply(scores=tuple(values.tolist()), prompt_tokens=len(prompt) + sum(map(len, candidates)))
        return [reply for reply in replies if reply is not None]

    def _embed(self, calls: Sequence[Call]) -> list[Reply | BackendError]:
        replies: list[Reply | BackendError | None] = [None] * len(calls)
        texts: dict[int, tuple[int, ...]] = {}
        for index, call in enumerate(calls):
            try:
                texts[index] = self._fitting(tuple(self._tokenizer(_joined(call)).input_ids), 0)
            except BackendError as error:
                replies[index] = error
        if texts:
            ids, mask = self._padded(list(texts.values()))
            network = self._network.get_encoder() if self._seq2seq else self._network.base_model
            states = network(input_ids=ids, attention_mask=mask).last_hidden_state.float()
            means = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            vectors: NDArray[np.float32] = (means / means.norm(dim=1, keepdim=True)).cpu().numpy()
            for vector, (index, tokens) in zip(vectors, texts.items(), strict=True):
                replies[index] = Reply(vector=vector, prompt_tokens=len(tokens))
        return [reply for reply in replies if reply is not None]

    # ---- texts and tokens --------------------------------------------------------------------------------------------

    def _rendered(self, call: Call) -> tuple[str, bool]:
        """The prompt's text, and whether its special tokens are still to be added."""
        if not self._tokenizer.chat_template:
            return _joined(call), True
        messages = [{"role": role, "content": text} for role, text in call.turns]
        return str(self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)), False

    def _prompt(self, call: Call) -> tuple[int, ...]:
        from jinja2 import TemplateError

        try:
            text, special = self._rendered(call)
        except TemplateError as error:
            raise Refused(f"the model's chat template does not take these turns: {error}") from None
        return tuple(self._tokenizer(text, add_special_tokens=special).input_ids)

    def _fitting(self, tokens: tuple[int, ...], reply: int) -> tuple[int, ...]:
        if not tokens:
            raise Refused("the prompt has no tokens: the model has nothing to begin with")
        length = len(tokens) + (0 if self._seq2seq else reply)
        if self._context is not None and length > self._context:
            raise ContextTooLong(
                f"the prompt of {len(tokens)} tokens and a reply of up to {reply} need {length}, "
                f"the model's context has {self._context}"
            )
        return tokens

    def _padded(self, rows: list[tuple[int, ...]], left: bool = False) -> tuple[Any, Any]:
        """Token ids and mask, int64 [N, longest]."""
        import torch

        longest = max(map(len, rows))
        ids = torch.full((len(rows), longest), _pad(self._tokenizer))
        mask = torch.zeros_like(ids)
        for i, row in enumerate(rows):
            place = slice(longest - len(row), longest) if left else slice(0, len(row))
            ids[i, place], mask[i, place] = torch.tensor(row), 1
        return ids.to(self._network.device), mask.to(self._network.device)


class _Noise:
    """Adds to each row the noise that makes its most probable token a sample (Gumbel's trick), from the call's key.

    argmax(logits / T + g) with g standard Gumbel is distributed as softmax(logits / T).
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        import torch

        self._temperature = calls[0].parameters.temperature
        self._generators = [torch.Generator().manual_seed(int(call.key("")[:15], 16)) for call in calls]

    def __call__(self, ids: Any, logits: Any) -> Any:
        import torch

        uniform = torch.stack([torch.rand(logits.shape[1], generator=g) for g in self._generators])
        gumbel = -torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))
        return logits.float() / self._temperature + gumbel.to(logits.device)


class _End:
    """Ends a row at an end token or when its text holds a stop text, and remembers where."""

    def __init__(self, tokenizer: Any, network: Any, begin: int, rows: int, stop: tuple[str, ...]) -> None:
        ends = network.generation_config.eos_token_id
        self._ends = set(ends) if isinstance(ends, list) else {ends}
        self._tokenizer, self._begin, self._stop = tokenizer, begin, stop
        self._lengths: list[int | None] = [None] * rows

    def __call__(self, ids: Any, logits: Any, **_: Any) -> Any:
        import torch

        for row, length in enumerate(self._lengths):
            if length is None:
                count = ids.shape[1] - self._begin
                stopped = self._stop and any(stop in self.text(ids[row], count) for stop in self._stop)
                if stopped or int(ids[row, -1]) in self._ends:
                    self._lengths[row] = count
        return torch.tensor([length is not None for length in self._lengths], device=ids.device)

    def count(self, row: int, length: int) -> int:
        """Tokens that were generated in a row of this length, the end token included."""
        known = self._lengths[row]
        return length - self._begin if known is None else known

    def text(self, ids: Any, count: int) -> str:
        generated = ids[self._begin : self._begin + count].tolist()
        return str(self._tokenizer.decode(generated, skip_special_tokens=True))


def _cut(text: str, stop: tuple[str, ...]) -> str:
    return text[: min((at for at in map(text.find, stop) if at >= 0), default=len(text))]


def _joined(call: Call) -> str:
    return "\n\n".join(text for _, text in call.turns)


def _pad(tokenizer: Any) -> int:
    """What stands where the mask says that nothing is: any token will do."""
    return int(tokenizer.pad_token_id or tokenizer.eos_token_id or 0)


# ---- the folder ------------------------------------------------------------------------------------------------------


def fingerprint(folder: Path) -> str:
    """12 hexadecimal digits of what a model's answers depend on: its configuration, tokenizer and weights.

    JSON and template files are read whole. Of each weights file the size, the head (names, types, shapes) and blocks
    spread evenly over it are read, 1 MB at most: training changes nearly all numbers, so it is seen, in little time.
    """
    hasher = hashlib.blake2b(digest_size=6)
    for path in sorted(
        p for p in folder.iterdir() if p.suffix in (".json", ".jinja", ".model", ".txt", ".safetensors")
    ):
        size = path.stat().st_size
        hasher.update(f"{path.name}:{size};".encode())
        with open(path, "rb") as file:
            if path.suffix != ".safetensors":
                hasher.update(file.read())
                continue
            head = int.from_bytes(file.read(8), "little")
            hasher.update(file.read(min(head, size)))
            for at in np.linspace(0, max(0, size - BLOCK), SAMPLES).astype(int).tolist():
                file.seek(at)
                hasher.update(file.read(BLOCK))
    return hasher.hexdigest()


def _read(folder: Path, config: Config) -> tuple[Any, Any]:
    """Model in evaluation mode on its device, and tokenizer.

    Raises:
        UsageError: with what is missing or cannot be run.
    """
    if not config.folder:
        raise UsageError("llm.folder is empty: name the folder of a model (config.json, tokenizer, *.safetensors)")
    if not folder.is_dir():
        raise UsageError(f"llm.folder: there is no folder {folder}")
    if not (folder / "config.json").is_file():
        raise UsageError(f"llm.folder: {folder} is not a model: it has no config.json")
    if not any(folder.glob("*.safetensors")):
        raise UsageError(f"llm.folder: {folder} has no weights: *.safetensors is the only format that is read")
    try:
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"]
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"llm.folder: {folder}/config.json does not say its model_type") from None

    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig
    from transformers.utils import logging as library_logging

    if config.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("llm.device: there is no GPU that PyTorch can use: set llm.device=cpu")
    library_logging.disable_progress_bar()
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        shape = AutoConfig.from_pretrained(folder, **local)
        auto = AutoModelForSeq2SeqLM if shape.is_encoder_decoder else AutoModelForCausalLM
        network = auto.from_pretrained(folder, dtype=config.dtype, use_safetensors=True, **local).eval()
    except (ValueError, KeyError, OSError, ImportError, RuntimeError) as error:
        raise UsageError(
            f"llm.folder: {folder} is a {kind} model that cannot be run here: {_first_line(error)}"
        ) from None
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **local)
    except (ValueError, KeyError, OSError, ImportError, RuntimeError) as error:
        raise UsageError(f"llm.folder: {folder} has no tokenizer that can be read: {_first_line(error)}") from None
    old = network.generation_config  # what a publisher recommends (penalties, sampling) is not what a call asks for
    network.generation_config = GenerationConfig(
        eos_token_id=old.eos_token_id if old.eos_token_id is not None else tokenizer.eos_token_id,
        bos_token_id=old.bos_token_id,
        pad_token_id=_pad(tokenizer),
        decoder_start_token_id=old.decoder_start_token_id,
    )
    on_gpu = config.device == "cuda" or (config.device == "auto" and torch.cuda.is_available())
    return network.to("cuda" if on_gpu else "cpu"), tokenizer


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
