"""scoring: candidate continuations scored per second by our scorer, against the two published ways of batching them.

Random models of published shapes (flan-t5-small, GPT-2 small), prompts of 100 to 300 tokens, eight candidates of two to
four tokens, one thread, CPU time. Peers are plain transformers. In each round they answer the same questions, and their
scores are compared with ours:

    repeat          each prompt is repeated for each of its candidates, all padded to the longest; logits everywhere
    encode_once     each prompt is computed once, padded to the longest; encoder states (seq2seq) or keys and values
                    (decoder-only) are repeated for each candidate; logits at every candidate token
    length_sorted   the same, but prompts are sorted by length and padded to the longest of their batch, as a careful
                    loop over Hugging Face's models does

`quarter_unique`: each prompt with its candidates occurs four times, like states that agents meet again.

Limit: at equal lengths the encoder alone bounds t5 near 10 times `repeat` (eight encodings against one, and the decoder
on top). Not padding short prompts to the longest adds about 1.4 times. The row's note gives the share of our time that
the prompts alone take in the model's own forward, one by one: at 100 % nothing is left to gain.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measure import Case, DifferentOutputs, Options, Report, compare

CASES = (
    "t5/unique",
    "t5/quarter_unique",
    "gpt2/quarter_unique",
    "gpt2/unique",
    "t5/unique/bf16",
    "gpt2/unique/bf16",
)
QUICK_ROUNDS = 1
CANDIDATES = 8
SHORTEST, LONGEST = 100, 300
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}
"""Relative tolerance of scores (about -30). bfloat16 has eight bits of precision."""

Prompt = tuple[int, ...]
Question = tuple[Prompt, tuple[Prompt, ...]]


def build(kind: str, dtype: str = "float32") -> Any:
    """A seeded random model of a published shape. Its logits have the size of a trained model's."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    if kind == "gpt2":
        return GPT2LMHeadModel(GPT2Config()).to(getattr(torch, dtype)).eval()
    config = T5Config(  # type: ignore[call-arg] # arguments for its base class
        vocab_size=32128,
        d_model=512,
        d_kv=64,
        d_ff=1024,
        num_heads=6,
        num_layers=8,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        decoder_start_token_id=0,
    )
    model = T5ForConditionalGeneration(config)
    model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) * config.d_model**-0.5)
    return model.to(getattr(torch, dtype)).eval()


def draw(prompts: int, repeats: int, vocabulary: int, seed: int) -> list[Question]:
    """Questions with prompts of evenly spread lengths, each `repeats` times, shuffled."""
    generator = np.random.default_rng(seed)

    def tokens(length: int) -> Prompt:
        return tuple(generator.integers(5, vocabulary, length).tolist())

    questions = []
    for length in np.linspace(SHORTEST, LONGEST, prompts // repeats).astype(int).tolist():
        prompt = tokens(length)
        candidates = tuple(tokens(n) for n in generator.integers(2, 5, CANDIDATES).tolist())
        questions += [(prompt, candidates)] * repeats
    return [questions[i] for i in generator.permutation(len(questions))]


class Match:
    """Both sides on the same questions: ours takes the next ones, the peers repeat them."""

    def __init__(self, kind: str, prompts: int, repeats: int = 1, dtype: str = "float32", model: Any = None) -> None:
        from llm_service.scoring.scorer import Scorer

        self.model = model or build(kind, dtype)
        self.seq2seq, self.sizes = kind == "t5", SIZES[kind]
        self.prompts, self.repeats, self.tolerance = prompts, repeats, TOLERANCE[dtype]
        self.scorer = Scorer(self.model)
        self.seed = 0
        self.questions: list[Question] = []
        self.expected: Any = None
        self.floor = ""  # the remark about the limit

    def play_ours(self) -> float:
        import torch

        self.seed += 1
        self.questions = draw(self.prompts, self.repeats, self.model.config.vocab_size, self.seed)
        with torch.no_grad():
            begun = time.process_time()
            scores = self.scorer.score_tokens(self.questions).scores
            seconds: float = time.process_time() - begun
            if not self.floor:
                self.floor = f"prompts alone take {self._prompts_alone() / seconds:.0%} of our time"
        self.expected = torch.stack(scores).double().numpy()
        return float(self.expected.size / seconds)

    def play(self, peer: Callable[..., Any], size: int, by_length: bool = False) -> float:
        """A peer on the same questions, `size` prompts at a time.

        by_length: sort prompts by length first, and pad each batch to its own longest prompt.

        Raises:
            DifferentOutputs: its scores differ from ours.
        """
        import torch

        with torch.no_grad():
            begun = time.process_time()
            order = sorted_by_length(self.questions) if by_length else list(range(len(self.questions)))
            batches, (longest, tokens) = chunks([self.questions[i] for i in order], size), self.longest
            found = [
                peer(self.model, batch, max(len(p) for p, _ in batch) if by_length else longest, tokens)
                for batch in batches
            ]
            scores = torch.cat(found)[np.argsort(order)]
            seconds = time.process_time() - begun
        check(self.expected, scores.double().numpy(), self.tolerance)
        return float(self.expected.size / seconds)

    def play_repeat(self) -> float:
        return self.play(repeat_seq2seq if self.seq2seq else repeat_causal, self.sizes[0])

    def play_encode_once(self) -> float:
        return self.play(encode_once_seq2seq if self.seq2seq else encode_once_causal, self.sizes[1])

    def play_length_sorted(self) -> float:
        return self.play(encode_once_seq2seq if self.seq2seq else encode_once_causal, self.sizes[1], by_length=True)

    @property
    def longest(self) -> tuple[int, int]:
        """Tokens of the longest prompt and of the longest candidate."""
        return max(len(p) for p, _ in self.questions), max(len(c) for _, found in self.questions for c in found)

    def _prompts_alone(self) -> float:
        """Seconds of one forward pass over each different prompt, without decoder and head."""
        import torch

        network = self.model.encoder if self.seq2seq else self.model.transformer
        begun = time.process_time()
        for prompt in dict.fromkeys(prompt for prompt, _ in self.questions):
            network(input_ids=torch.tensor([prompt]))
        return time.process_time() - begun


def check(ours: Any, theirs: Any, tolerance: float) -> None:
    """Scores [N, K] must be equal within a share of each.

    Raises:
        DifferentOutputs: with the largest difference.
    """
    if ours.shape != theirs.shape:
        raise DifferentOutputs(f"scores: our shape is {ours.shape}, the peer's {theirs.shape}")
    apart = np.abs(ours - theirs) / np.maximum(1.0, np.abs(ours))
    if not (apart <= tolerance).all():
        where = tuple(int(i) for i in np.unravel_index(np.argmax(apart), apart.shape))
        raise DifferentOutputs(f"scores: at {where} ours is {ours[where]}, the peer's {theirs[where]}")


# ---- the peers: B prompts at a time, everything padded to the longest of all -----------------------------------------

SIZES = {"t5": (1, 4), "gpt2": (1, 2)}
"""Prompts in one batch of `repeat` and of `encode_once`: the fastest here of 1, 2 and 4."""


def chunks(questions: list[Question], size: int) -> list[list[Question]]:
    return [questions[i : i + size] for i in range(0, len(questions), size)]


def sorted_by_length(questions: list[Question]) -> list[int]:
    """Indices of questions, those with the shortest prompts first."""
    return sorted(range(len(questions)), key=lambda i: len(questions[i][0]))


def padded(rows: list[Prompt], length: int, left: bool = False) -> tuple[Any, Any]:
    """Token ids and mask, int64 [len(rows), length]."""
    import torch

    ids, mask = torch.zeros(len(rows), length, dtype=torch.long), torch.zeros(len(rows), length, dtype=torch.long)
    for i, row in enumerate(rows):
        place = slice(length - len(row), length) if left else slice(0, len(row))
        ids[i, place], mask[i, place] = torch.tensor(row), 1
    return ids, mask


def sums(logits: Any, targets: Any, mask: Any) -> Any:
    """Sum over tokens of the log-probability of each target, [B, K]; logits [B K, T, V]."""
    found = logits.float().log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    return (found * mask).sum(-1).view(-1, CANDIDATES)


def shifted(targets: Any) -> Any:
    """Inputs of a T5 decoder: the start token, then all targets but the last."""
    import torch

    return torch.cat([torch.zeros_like(targets[:, :1]), targets[:, :-1]], 1)


def repeat_seq2seq(model: Any, questions: list[Question], longest: int, tokens: int) -> Any:
    ids, mask = padded([prompt for prompt, _ in questions for _ in range(CANDIDATES)], longest)
    targets, real = padded([c for _, candidates in questions for c in candidates], tokens)
    given = shifted(targets)
    return sums(
        model(input_ids=ids, attention_mask=mask, decoder_input_ids=given, use_cache=False).logits, targets, real
    )


def encode_once_seq2seq(model: Any, questions: list[Question], longest: int, tokens: int) -> Any:
    ids, mask = padded([prompt for prompt, _ in questions], longest)
    targets, real = padded([c for _, candidates in questions for c in candidates], tokens)
    states = model.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
    output = model(
        encoder_outputs=(states.repeat_interleave(CANDIDATES, 0),),
        attention_mask=mask.repeat_interleave(CANDIDATES, 0),
        decoder_input_ids=shifted(targets),
        use_cache=False,
    )
    return sums(output.logits, targets, real)


def repeat_causal(model: Any, questions: list[Question], longest: int, tokens: int) -> Any:
    import torch

    ids, mask = padded([prompt + c for prompt, candidates in questions for c in candidates], longest + tokens)
    targets, real = padded([c for _, candidates in questions for c in candidates], tokens)
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    begins = torch.tensor([len(prompt) - 1 for prompt, _ in questions]).repeat_interleave(CANDIDATES)
    where = begins[:, None] + torch.arange(tokens)
    return sums(logits[torch.arange(len(ids))[:, None], where], targets, real)


def encode_once_causal(model: Any, questions: list[Question], longest: int, tokens: int) -> Any:
    import torch

    ids, mask = padded([prompt for prompt, _ in questions], longest, left=True)
    targets, real = padded([c for _, candidates in questions for c in candidates], tokens)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    begun = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1)
    cache = begun.past_key_values
    cache.batch_repeat_interleave(CANDIDATES)
    rest = model(
        input_ids=targets[:, :-1],
        attention_mask=torch.cat([mask.repeat_interleave(CANDIDATES, 0), real[:, :-1]], 1),
        position_ids=(positions[:, -1:] + 1 + torch.arange(tokens - 1)).repeat_interleave(CANDIDATES, 0),
        past_key_values=cache,
    ).logits
    return sums(torch.cat([begun.logits.repeat_interleave(CANDIDATES, 0), rest], 1), targets, real)


def run(options: Options) -> Report:
    import torch

    torch.set_num_threads(1)
    models: dict[tuple[str, str], Any] = {}
    report = Report()
    for case in CASES:
        kind, share, *rest = case.split("/")
        dtype = "bfloat16" if rest else "float32"
        if not options.wants(case) or (rest and options.quick and not options.cases):
            continue
        if (kind, dtype) not in models:
            models[kind, dtype] = build(kind, dtype)
        repeats = 4 if share == "quarter_unique" else 1
        unique = (1 if (kind, repeats) == ("gpt2", 4) else 2) if options.quick else 4
        match = Match(kind, unique * repeats, repeats, dtype, models[kind, dtype])
        peers: dict[str, Callable[[], float]] = {"encode_once": match.play_encode_once}
        if not rest:
            peers["length_sorted"] = match.play_length_sorted
        if repeats == 1 and not rest:
            peers["repeat"] = match.play_repeat
        notes: dict[str, str] = {}
        if options.seconds_left > 0:
            match.play_ours()
            notes = dict.fromkeys(peers, match.floor)
        headline = frozenset() if rest else frozenset(peers) - {"length_sorted"}
        report.add(compare(Case("scoring", case, "sequences", headline, notes=notes), match.play_ours, peers, options))
    return report
