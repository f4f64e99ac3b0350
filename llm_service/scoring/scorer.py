"""`Scorer`: log-probabilities of candidates after prompts, with nothing computed twice.

    equal prompts         one unit of work, with the union of their candidates
    candidates            a trie (`trie.py`): shared prefixes once, last tokens never fed
    vocabulary            the head runs at the nodes of tries only
    padding               prompts are sorted by length; a batch grows while its share of padding stays small
    calls without grad    cached until the weights change (`version`)

The score of a candidate is the sum over its tokens of log_softmax over the whole vocabulary. Gradients flow if they are
enabled. Dropout is the model's own. After `model.eval()` it is off, as PPO needs: both sides of its ratio must be the
same function. After `model.train()` scores are noisy and nothing is cached.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from llm_service.errors import ContextTooLong, Refused, UsageError
from llm_service.records import Normalisation
from llm_service.scoring.buckets import buckets
from llm_service.scoring.causal import Causal
from llm_service.scoring.computed import Computed
from llm_service.scoring.placed import placed
from llm_service.scoring.seq2seq import FAMILY, Seq2Seq
from llm_service.scoring.tokens import Boundary
from llm_service.scoring.trie import Tokens, Trie, grow

Question = tuple[Tokens, tuple[Tokens, ...]]
"""A prompt and its candidates, as token ids."""

LOGITS = 2**27
"""Maximum number of logits in a micro-batch, including padding: 0.5 GB in float32."""
WITHOUT_GRADIENTS = 4
"""A micro-batch on a GPU without a backward pass may use this many budgets. Fewer micro-batches mean less waiting for
the host: 2,317 states a second of flan-t5-large on an H200 instead of 1,793."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The results for N questions.

    scores: for each question, float32 [K] log-probabilities of its candidates.
    tokens: for each question, float32 [K, L] log-probabilities of their tokens; 0 after a candidate's end.
    entropies: for each question, float32 [K, L] entropies in nats of the distributions that these tokens are from; 0
        after a candidate's end; empty unless asked for.
    states: [N, D], the last layer's state that a value head reads: at decoder position 0 (seq2seq), or at the prompt's
        last token (decoder-only); after the final norm. It does not depend on the candidates.
    """

    scores: list[Tensor]
    tokens: list[Tensor]
    states: Tensor
    entropies: list[Tensor] = field(default_factory=list)


@dataclass(slots=True)
class _Work:
    """A prompt, the union of its candidates, and which questions use which of them."""

    prompt: Tokens
    candidates: dict[Tokens, int] = field(default_factory=dict)
    asked: list[tuple[int, list[int]]] = field(default_factory=list)

    @property
    def trie(self) -> Trie:
        return grow(tuple(self.candidates))


class Scorer:
    """Scores candidates with a Hugging Face model: the T5 family, or any decoder-only one that respects mask and
    positions.

    Attributes:
        computed: how much it has computed.
        learned: how much of that with gradients.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        context: int | None = None,
        budget: int | None = None,
        padding: float = 0.125,
        remember: int = 4096,
        raw: bool = False,
        temperature: float = 1.0,
    ) -> None:
        """
        Args:
            model: as loaded by transformers, on its device and in its dtype; everything after its logits is float32.
            tokenizer: its tokenizer; None if only token ids are scored.
            context: maximum tokens of prompt and candidate together; None: the model's limit.
            budget: maximum tokens in a micro-batch, including padding; it bounds the memory for gradients. None: on CPU
                2048 (decoder-only: 256), elsewhere 8192.
            padding: maximum share of padding among them.
            remember: number of questions whose scores are cached; 0 for none.
            raw: sum raw logits, without log_softmax, as a published system does.
            temperature: divisor of the logits of each token.

        Raises:
            UsageError: this model cannot be used for scoring.
        """
        seq2seq = bool(model.config.is_encoder_decoder)
        if seq2seq and model.config.model_type not in FAMILY:
            raise UsageError(
                f"scoring: {model.config.model_type} is a seq2seq model, but not one of {', '.join(FAMILY)}"
            )
        self.model = model
        self.version = 0
        self.computed = self.learned = Computed()
        self._raw, self._temperature = raw, temperature
        self.boundary = None if tokenizer is None else Boundary(tokenizer, seq2seq)
        budget = budget or (8192 if model.device.type != "cpu" else 2048 if seq2seq else 256)
        self._network = (Seq2Seq if seq2seq else Causal)(model, budget, padding)
        self.context = context or self._network.context
        self._remember = remember
        self._remembered: OrderedDict[tuple[int, str, tuple[str, ...]], Tensor] = OrderedDict()
        self._check()
        self.computed = Computed()

    def score(
        self, prompts: Sequence[str], candidates: Sequence[Sequence[str]], normalise: Normalisation = "none"
    ) -> list[Tensor]:
        """Log-probability of each candidate after its prompt.

        Args:
            prompts: N texts.
            candidates: for each prompt, its candidates.
            normalise: "tokens" divides each score by the candidate's number of tokens.

        Returns:
            N tensors, float32 [K].

        Raises:
            Refused: a prompt or candidate without tokens, or no candidates.
            ContextTooLong: a prompt and a candidate do not fit the model's context.
        """
        keys = [(self.version, p, tuple(c)) for p, c in zip(prompts, candidates, strict=True)]
        if torch.is_grad_enabled() or self.model.training or not self._remember:
            return self.score_tokens([self.tokenise(p, c) for _, p, c in keys], normalise).scores
        missing = [key for key in dict.fromkeys(keys) if key not in self._remembered]
        questions = [self.tokenise(p, c) for _, p, c in missing]
        found = dict(zip(missing, self.score_tokens(questions).scores, strict=True))
        for key in keys:
            if key not in found:
                found[key] = self._remembered.pop(key)
        self._remembered = OrderedDict(kept for kept in self._remembered.items() if kept[0][0] == self.version)
        self._remembered.update(found)
        while len(self._remembered) > self._remember:
            self._remembered.popitem(last=False)
        if normalise == "none":
            return [found[key].clone() for key in keys]
        counts = [[len(c) for c in self.tokenise(prompt, texts)[1]] for _, prompt, texts in keys]
        return [found[key] / torch.tensor(n, device=found[key].device) for key, n in zip(keys, counts, strict=True)]

    def tokenise(self, prompt: str, candidates: Sequence[str], special: bool = True) -> Question:
        """Token ids of a prompt and its candidates; see `tokens.py` for the boundary between them."""
        if self.boundary is None:
            raise UsageError("scoring: texts need a tokenizer")
        return self.boundary.prompt(prompt, special), self.boundary.candidates(candidates, prompt)

    def score_tokens(self, questions: Sequence[Question], normalise: Normalisation = "none") -> Scores:
        """Like `score`, but for token ids, and also returns the states that a value head reads. Nothing is cached.

        Raises:
            Refused, ContextTooLong: as `score`.
        """
        found: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        for indices, piece in self.micro_batches(questions, normalise):
            found |= dict(zip(indices, zip(piece.scores, piece.tokens, piece.states, strict=True), strict=True))
        if not found:
            return Scores([], [], torch.empty(0, device=self.model.device))
        scores, tokens, states = zip(*[found[index] for index in range(len(questions))], strict=True)
        return Scores(list(scores), list(tokens), torch.stack(states))

    def micro_batches(
        self, questions: Sequence[Question], normalise: Normalisation = "none", entropies: bool = False
    ) -> Iterator[tuple[list[int], Scores]]:
        """Like `score_tokens`, one micro-batch at a time, each with the indices of its questions.

        A caller that computes each micro-batch's share of the loss and calls `backward` on it holds the activations of
        only one micro-batch at a time, and gets the gradients of the whole loss.

        Raises:
            Refused, ContextTooLong: as `score`, before anything is computed.
        """
        works: dict[Tokens, _Work] = {}
        for index, (prompt, candidates) in enumerate(questions):
            self.refuse((prompt, candidates), f"prompt {index}")
            work = works.setdefault(prompt, _Work(prompt))
            places = [work.candidates.setdefault(c, len(work.candidates)) for c in candidates]
            work.asked.append((index, places))
        for batch in self._batches(list(works.values())):
            counts, scores, tokens, states, spread = self._compute(batch, normalise, entropies)
            first = np.cumsum([0, *counts[:-1]])
            asked = [(owner, index, places) for owner, work in enumerate(batch) for index, places in work.asked]
            sizes = [len(places) for _, _, places in asked]
            rows = np.concatenate([first[owner] + np.array(places) for owner, _, places in asked])
            picked, spelt = (torch.split(_taken(column, rows), sizes) for column in (scores, tokens))
            spreads = torch.split(_taken(spread, rows), sizes) if entropies else ()
            owners = np.array([owner for owner, _, _ in asked])
            found = Scores(list(picked), list(spelt), _taken(states, owners), list(spreads))
            yield [index for _, index, _ in asked], found

    def refuse(self, question: Question, name: str = "the prompt") -> None:
        """Raise what `score` raises if this question cannot be scored; messages call its prompt `name`."""
        prompt, candidates = question
        if not prompt:
            raise Refused(f"{name} has no tokens: there is nothing that a candidate could follow")
        if not candidates or not all(candidates):
            raise Refused(f"{name} has no candidates, or an empty one: each needs at least one token")
        length = len(prompt) + max(map(len, candidates))
        if self.context is not None and length > self.context:
            raise ContextTooLong(
                f"{name} and its longest candidate have {length} tokens, the model's context has {self.context}"
            )

    def _batches(self, works: list[_Work]) -> Iterator[list[_Work]]:
        """Groups of works of similar length, within the budgets of tokens and logits."""
        nodes = [len(work.trie.tokens) for work in works]
        lengths = [self._network.row(len(work.prompt), n) for work, n in zip(works, nodes, strict=True)]
        most = LOGITS // self.model.config.get_text_config().vocab_size
        many = self.model.device.type != "cpu" and not torch.is_grad_enabled()
        budget = self._network.budget * (WITHOUT_GRADIENTS if many else 1)
        for group in buckets(lengths, budget, self._network.padding, nodes, most):
            yield [works[index] for index in group]

    def _compute(
        self, batch: list[_Work], normalise: Normalisation, entropies: bool
    ) -> tuple[list[int], Tensor, Tensor, Tensor, Tensor]:
        """How many candidates each of B works has, K in all; their scores [K], those of their tokens [K, L], states
        [B, D], and entropies [K, L] if these were asked for."""
        tries = [work.trie for work in batch]
        computed = Computed.of([len(work.prompt) for work in batch], [len(trie.tokens) for trie in tries])
        self.computed += computed
        if torch.is_grad_enabled():
            self.learned += computed
        logits, states = self._network.forward([work.prompt for work in batch], tries)
        rows = np.repeat(np.arange(len(tries)), [len(trie.nodes) for trie in tries])
        where = np.stack([rows, np.concatenate([t.nodes for t in tries]), np.concatenate([t.labels for t in tries])])
        row, node, label = placed(where, logits.device)
        logits = logits.float() / self._temperature
        edges = logits[row, node, label]
        if not self._raw:
            edges = edges - logits.logsumexp(-1)[row, node]

        counts = [len(trie.lengths) for trie in tries]
        paths = np.full((sum(counts), max(trie.paths.shape[1] for trie in tries)), len(rows), np.int64)
        first_path = first_edge = 0
        for trie in tries:
            own = trie.paths
            paths[first_path : first_path + len(own), : own.shape[1]] = np.where(own < 0, len(rows), own + first_edge)
            first_path, first_edge = first_path + len(own), first_edge + len(trie.nodes)
        padded = torch.cat([edges, edges.new_zeros(1)])  # missing tokens of a candidate add 0
        tokens = padded[placed(paths, edges.device)]
        scores = tokens.sum(-1)
        if normalise == "tokens":
            scores = scores / placed(np.concatenate([trie.lengths for trie in tries]), scores.device)
        spread = tokens
        if entropies:
            share = logits.log_softmax(-1)
            by_node = -(share.exp() * share).sum(-1)
            padded = torch.cat([by_node[row, node], edges.new_zeros(1)])
            spread = padded[placed(paths, edges.device)]
        return counts, scores, tokens, states, spread

    def _check(self) -> None:
        """Compare a small trie with the model's own forward: some models treat positions or masks differently.

        Raises:
            UsageError: they differ, or the model does not accept the inputs for a trie.
        """
        vocabulary = self.model.config.get_text_config().vocab_size
        a, b, c, d, e = (3 + i * (vocabulary - 4) // 5 for i in range(5))
        prompt, candidates = (a, b, c, d), ((e, a), (e, b, c), (d,), (c, d))
        training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                found = self.score_tokens([(prompt, candidates)]).scores[0]
                expected = torch.stack([self._alone(prompt, candidate) for candidate in candidates])
        except (AttributeError, TypeError, ValueError, RuntimeError, IndexError) as error:
            raise UsageError(
                f"scoring: {self.model.config.model_type} does not take a tree of candidates: {error}"
            ) from error
        finally:
            self.model.train(training)
        tolerance = 1e-3 if self.model.dtype == torch.float32 else 0.05
        if not torch.allclose(found, expected, tolerance, tolerance):
            raise UsageError(
                f"scoring: {self.model.config.model_type} scores candidates otherwise in a tree than alone: it does "
                "not obey the mask and the positions that it is given, and cannot be scored here"
            )

    def _alone(self, prompt: Tokens, candidate: Tokens) -> Tensor:
        """Score of one candidate from the model's own forward."""
        logits = self._network.plain(prompt, candidate).float() / self._temperature
        return (logits if self._raw else logits.log_softmax(-1))[range(len(candidate)), candidate].sum()


def _taken(x: Tensor, rows: NDArray[np.int64]) -> Tensor:
    """Rows of a tensor, which often are all of them; a GPU takes them without the host waiting."""
    if np.array_equal(rows, np.arange(len(x))):
        return x
    return x.index_select(0, placed(rows, x.device))
