"""A Hugging Face model in this process: any local folder, seq2seq or decoder-only according to its config.json.

generate   greedy, or sampled with noise that depends only on the call, not on its batch; told token by token
score      by `llm_service/scoring` if it supports the architecture; otherwise the verb is missing and the log says why
embed      mean over the text's tokens of the encoder's (seq2seq) or the last layer's states, unit length

The tokenizer's chat template renders the turns if there is one (without added special tokens); otherwise their texts
are joined by blank lines, without the roles. `embed` always joins them. Nothing is downloaded, weights are read
only from safetensors, and a model's own code is never run.

All work is done in a separate thread: calls wait for each other, and the event loop waits for none of them.
"""

# mypy: allow-untyped-calls
# Transformers claims to be typed; some of its functions are not.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from llm_service.backends import Backend
from llm_service.backends.transformers.folder import base, content, encodes, fingerprint, merged, padding_token, read
from llm_service.backends.transformers.folder import check as check_folder
from llm_service.config import Part
from llm_service.errors import BackendError, ContextTooLong, Overloaded, Refused, UsageError
from llm_service.records import Call, Option, Reply, Token, Verb
from llm_service.world import World

if TYPE_CHECKING:
    from llm_service.scoring.scorer import Question
    from llm_service.scoring.trie import Tokens

T = TypeVar("T")
log = logging.getLogger(__name__)


class Config(Part):
    """A model on disk."""

    folder: str = ""
    """Folder with config.json, the tokenizer and weights as safetensors, or with adapters (PEFT) of such a model."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of the weights; auto: as stored."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of the model; auto: the GPU if there is one."""
    max_batch: int = Field(default=16, ge=1)
    """Most calls in one batch."""
    threads: int = Field(default=0, ge=0)
    """CPU threads of the model; 0: PyTorch's default."""
    context: int | None = Field(default=None, ge=2)
    """Maximum tokens of prompt and reply together; null: the model's own limit (T5 has none)."""


def check(config: Config) -> None:
    """See `llm_service.backends`. Raises UsageError if the folder is missing or contains no model."""
    if not config.folder:
        raise UsageError("llm.folder is missing: name the folder of a model")
    check_folder(base(Path(config.folder).expanduser()), config.device)


def make(config: Config, world: World) -> LocalModel:
    """The backend, its model loaded.

    Raises:
        UsageError: the folder is missing, or its model cannot run here.
    """
    if not config.folder:
        raise UsageError("llm.folder is empty: name the folder of a model (config.json, tokenizer, *.safetensors)")
    return LocalModel(config)


class LocalModel(Backend):
    """A backend around one model."""

    verbs: frozenset[Verb] = frozenset({"generate", "score", "embed"})
    concurrency = 1
    bucket_ratio = 2.0

    def __init__(self, config: Config) -> None:
        import torch

        from llm_service.scoring.scorer import Scorer

        folder = Path(config.folder).expanduser()
        body = base(folder)
        self._network, self._tokenizer = read(body, config.dtype, config.device)
        if encodes(self._network.config):
            raise UsageError(
                f"llm.folder: {folder} is an encoder, which reads texts and writes none: use it as llm.embedding.folder"
            )
        prints = [fingerprint(folder)]
        if body != folder:
            self._network = merged(self._network, folder)
            prints.append(fingerprint(body))
        self.max_batch = config.max_batch
        self._seq2seq = bool(self._network.config.is_encoder_decoder)
        self._name = f"{folder.resolve().name}-{'-'.join(prints)}-{str(self._network.dtype).removeprefix('torch.')}"
        self.model = self._name
        echo = self._tokenizer.is_fast and not self._seq2seq  # needs the place of each token in the text
        self.options: frozenset[Option] = frozenset({"top", "raw", "echo"} if echo else {"top", "raw"})
        self._ending = False
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
        work: dict[Verb, tuple[Any, Any]] = {
            "generate": (self._prompt, self._generate),
            "score": (self._question, self._score),
            "embed": (self._text, self._embed),
        }
        replies: list[Reply | BackendError] = await self._do(_each, calls, *work[calls[0].verb])
        return replies

    def estimate(self, call: Call) -> tuple[int, int]:
        characters = call.characters + sum(map(len, call.candidates))
        most = call.parameters.max_tokens if call.verb == "generate" else 0
        return characters // 3 + 8 * (len(call.turns) + len(call.candidates)), most

    async def probe(self) -> None:
        await self.answer([Call("embed", (("user", "ready"),))])

    async def close(self) -> None:
        self._ending = True  # a reply in progress ends at its next token
        await asyncio.to_thread(self._worker.shutdown, cancel_futures=True)

    async def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Replace the model's weights between two batches; `model` then names the version.

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
                f"the batch does not fit the GPU's memory: set llm.max_batch below {self.max_batch}"
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
        self.model = f"{self._name}-v{version}-{content(weights)}"

    # ---- the verbs, in the worker thread: checks per call, then one computation for all -----------------------------

    def _prompt(self, call: Call) -> Tokens:
        text, special = self._rendered(call)
        tokens = tuple(self._tokenizer(text, add_special_tokens=special).input_ids)
        return self._fitting(tokens, call.parameters.max_tokens)

    def _generate(self, calls: Sequence[Call], prompts: Sequence[Tokens]) -> list[Reply]:
        import torch
        from transformers import LogitsProcessorList, StoppingCriteriaList

        from llm_service.backends.transformers.generation import End, Heard, Noise, cut, within

        parameters = calls[0].parameters
        told = [self._echo(call, prompt) if call.echo else () for call, prompt in zip(calls, prompts, strict=True)]
        if not parameters.max_tokens:
            return [Reply(prompt_tokens=len(p), tokens=t, cut=True) for p, t in zip(prompts, told, strict=True)]
        ids, mask = self._padded(prompts, left=True)
        begin = 1 if self._seq2seq else ids.shape[1]
        end = End(self._tokenizer, self._network, begin, len(ids), parameters.stop, lambda: self._ending)
        heard = Heard(calls, self._tokenizer, end)
        noise = [Noise(calls)] if parameters.temperature > 0 else []
        found = self._network.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=parameters.max_tokens,
            do_sample=False,
            logits_processor=LogitsProcessorList([heard.before, *noise]),
            stopping_criteria=StoppingCriteriaList([end, heard]),
        )
        if self._ending:
            raise Overloaded("the service is ending: ask its successor")
        assert isinstance(found, torch.Tensor)
        replies = []
        for row, prompt in enumerate(prompts):
            count = end.count(row, found.shape[1])
            whole = end.text(found[row], count)
            text, tokens = cut(whole, parameters.stop), tuple(heard.tokens[row])
            if len(text) < len(whole):
                tokens = within(tokens, len(text))
            reply = Reply(text, prompt_tokens=len(prompt), completion_tokens=count, cut=not end.ended(row))
            replies.append(replace(reply, tokens=told[row] + tokens))
        return replies

    def _echo(self, call: Call, prompt: Tokens) -> tuple[Token, ...]:
        """The tokens of a prompt with their log-probabilities; not those that the tokenizer puts before it."""
        import torch

        from llm_service.backends.transformers.generation import token

        text, special = self._rendered(call)
        about = {"return_offsets_mapping": True, "return_special_tokens_mask": True}
        read = self._tokenizer(text, add_special_tokens=special, **about)
        logits = self._network(input_ids=torch.tensor([prompt], device=self._network.device)).logits[0]
        tokens, at = [], 0
        for i, ((_, ends), added) in enumerate(zip(read.offset_mapping, read.special_tokens_mask, strict=True)):
            if added:
                continue
            spelled, at = text[at:ends], max(at, ends)
            if i == 0:
                tokens.append(Token(spelled, None))
            else:
                logprobs = logits[i - 1].float().log_softmax(-1)
                found = token(self._tokenizer, prompt[:i], prompt[i], logprobs, call.top or 0)
                tokens.append(replace(found, text=spelled))
        return tuple(tokens)

    def _question(self, call: Call) -> Question:
        assert self._scorer is not None  # otherwise the verb is not supported
        text, special = self._rendered(call)
        question = self._scorer.tokenise(text, call.candidates, special)
        self._scorer.refuse(question)
        return question

    def _score(self, calls: Sequence[Call], questions: Sequence[Question]) -> list[Reply]:
        assert self._scorer is not None
        scores = self._scorer.score_tokens(questions, calls[0].parameters.normalise).scores
        return [
            Reply(scores=tuple(values.tolist()), prompt_tokens=len(prompt) + sum(map(len, candidates)))
            for (prompt, candidates), values in zip(questions, scores, strict=True)
        ]

    def _text(self, call: Call) -> Tokens:
        return self._fitting(tuple(self._tokenizer(_joined(call)).input_ids), 0)

    def _embed(self, calls: Sequence[Call], texts: Sequence[Tokens]) -> list[Reply]:
        ids, mask = self._padded(texts)
        network = self._network.get_encoder() if self._seq2seq else self._network.base_model
        states = network(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        means = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        vectors: NDArray[np.float32] = (means / means.norm(dim=1, keepdim=True)).cpu().numpy()
        return [Reply(vector=vector, prompt_tokens=len(text)) for vector, text in zip(vectors, texts, strict=True)]

    # ---- texts and tokens --------------------------------------------------------------------------------------------

    def _rendered(self, call: Call) -> tuple[str, bool]:
        """The prompt's text, and whether special tokens must still be added."""
        if call.raw or not self._tokenizer.chat_template:
            return _joined(call), True
        from jinja2 import TemplateError

        messages = [{"role": role, "content": text} for role, text in call.turns]
        try:
            text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except TemplateError:  # the original message may quote the prompt
            roles = ", ".join(role for role, _ in call.turns)
            raise Refused(f"the model's chat template does not accept the turns {roles}") from None
        return str(text), False

    def _fitting(self, tokens: Tokens, reply: int) -> Tokens:
        if not tokens:
            raise Refused("the prompt has no tokens: the model has nothing to begin with")
        length = len(tokens) + (0 if self._seq2seq else reply)
        if self._context is not None and length > self._context:
            raise ContextTooLong(
                f"the prompt of {len(tokens)} tokens and a reply of up to {reply} need {length}, "
                f"the model's context has {self._context}"
            )
        return tokens

    def _padded(self, rows: Sequence[Tokens], left: bool = False) -> tuple[Any, Any]:
        """Token ids and mask, int64 [N, longest]."""
        import torch

        longest = max(map(len, rows))
        ids = torch.full((len(rows), longest), padding_token(self._tokenizer))
        mask = torch.zeros_like(ids)
        for i, row in enumerate(rows):
            place = slice(longest - len(row), longest) if left else slice(0, len(row))
            ids[i, place], mask[i, place] = torch.tensor(row), 1
        return ids.to(self._network.device), mask.to(self._network.device)


def _each(
    calls: Sequence[Call], prepare: Callable[[Call], T], compute: Callable[[list[Call], list[T]], list[Reply]]
) -> list[Reply | BackendError]:
    """A reply or error for each call; valid calls are computed together."""
    replies: dict[int, Reply | BackendError] = {}
    ready: dict[int, T] = {}
    for index, call in enumerate(calls):
        try:
            ready[index] = prepare(call)
        except BackendError as error:
            replies[index] = error
    if ready:
        replies |= zip(ready, compute([calls[i] for i in ready], list(ready.values())), strict=True)
    return [replies[index] for index in range(len(calls))]


def _joined(call: Call) -> str:
    return "\n\n".join(text for _, text in call.turns)
