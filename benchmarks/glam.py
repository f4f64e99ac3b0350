"""glam: an agent that acts through a language model and learns by PPO, against encoding once and repeating.

A random model of flan-t5-small's shape scores the six actions of BabyAI after a prompt, and a value head reads the
decoder's first state. One thread, CPU time, float32. The peer is plain transformers, as published (Carta et al. 2023,
arXiv 2302.02662): each prompt is encoded once, padded to the longest, its states are repeated for each action, and
logits are computed at every token. `length_sorted` is the same with prompts sorted by length, each batch padded to its
own longest one.

    acting/unique      different prompts of 100 to 300 tokens
    acting/recorded    the prompts of real play, step by step: MixedTrainLocal, 32 envs x 40 steps, one observation in
                       each prompt. The agent has learned nothing yet, and so meets most states again. A round has eight
                       of the envs, as has each of the four published processes. Ours remembers its results within one
                       version of the weights; the peer computes every row, of every fourth step
    .../planner        the other extreme: three observations and two actions in each prompt, played by the planner with
                       one action in five at random; prompts hardly ever repeat
    update/equal       a minibatch of PPO with gradients of all weights and of the value head, prompts of 200 tokens;
                       ours adds up the gradients of micro-batches, the peer those of chunks of its fastest size
    update/mixed       the same with prompts of 100 to 300 tokens

In each round, scores and states (1e-5), or loss and gradients (1e-4), of both sides are compared.

Limit: the encoder cannot be avoided. The notes give the share of our time that the model's own encoder takes for the
same prompts, one by one. Beyond that, time can only be saved on padding, repeated prompts and repeated states.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from actors.players.language_policy import PromptedPlayer
from benchmarks.measure import Case, DifferentOutputs, Options, Report, compare
from benchmarks.peers.glam_world import ACTIONS, Agent, draw, mixed, stream
from benchmarks.scoring import Question, build, check, chunks, padded, shifted, sorted_by_length
from learner.algorithms.ppo.losses import Loss, Steps
from llm_service.scoring.scorer import Scorer

CASES = ("acting/unique", "acting/recorded", "acting/recorded/planner", "update/equal", "update/mixed")
QUICK_ROUNDS, QUICK_SECONDS = 1, 47.0
SCORES, GRADIENTS = 1e-5, 1e-4
"""Relative tolerances: of scores and states, and of loss and gradients."""
SIZE = {"acting": 4, "update": 8}
"""Prompts that the peer computes at once: the fastest here of 1, 2, 4 and 8."""
STEPS, TOGETHER, STRIDE = 40, 8, 4
"""Recorded steps, envs of a round, and the stride of the steps that the peer computes."""


# ---- the peer: everything padded to the longest ----------------------------------------------------------------------


def encode_once(model: Any, questions: list[Question], longest: int) -> tuple[Any, Any]:
    """Scores [B, K] of the candidates, and states [B, D] at the decoder's first position."""
    ids, mask = padded([prompt for prompt, _ in questions], longest)
    asked = [c for _, found in questions for c in found]
    each = len(asked) // len(questions)
    targets, real = padded(asked, max(map(len, asked)))
    states = model.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
    output = model(
        encoder_outputs=(states.repeat_interleave(each, 0),),
        attention_mask=mask.repeat_interleave(each, 0),
        decoder_input_ids=shifted(targets),
        use_cache=False,
        output_hidden_states=True,
    )
    found = output.logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    return (found * real).sum(-1).view(-1, each), output.decoder_hidden_states[-1][::each, 0]


def longest_of(questions: Iterable[Question]) -> int:
    return max(len(prompt) for prompt, _ in questions)


# ---- acting ----------------------------------------------------------------------------------------------------------


class Numbered:
    """A model for `PromptedPlayer`. Its observations are numbers of questions, its values are decoder states."""

    fields = text_fields = ("question",)
    size, version = len(ACTIONS), -1

    def __init__(self, scorer: Scorer) -> None:
        self.scorer, self.prompter, self.prompt = scorer, self, SimpleNamespace()

    def ask(self, told: dict[str, NDArray[np.int64]], texts: Sequence[Question]) -> list[Question]:
        return [texts[row] for row in told["question"].tolist()]

    def answer(self, asked: list[Question]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Scores [B, K] and states [B, D]."""
        with torch.no_grad():
            found = self.scorer.score_tokens(asked)
        return torch.stack(found.scores).numpy(), found.states.numpy()


class Acting:
    """Both sides on the same calls: ours takes the next ones, the peer repeats every `stride`-th of them."""

    def __init__(self, model: Any, calls: Callable[[int], list[list[Question]]], stride: int = 1) -> None:
        self.peer, self.scorer = copy.deepcopy(model), Scorer(copy.deepcopy(model))  # each side may change its copy
        self.draw, self.stride = calls, stride
        self.round = -1
        self.calls: list[list[Question]] = []
        self.answers: list[tuple[Any, Any]] = []
        self.note = ""

    def play_ours(self) -> float:
        self.round += 1
        self.calls = self.draw(self.round)
        number: dict[Question, int] = {}
        rows = [np.array([number.setdefault(q, len(number)) for q in call]) for call in self.calls]
        world: Any = SimpleNamespace(texts=list(number))
        model: Any = Numbered(self.scorer)
        acting = PromptedPlayer(model, alone=False)
        acting.begin(world)
        begun = time.process_time()
        self.answers = [acting.step({"question": row})[:2] for row in rows]
        seconds = time.process_time() - begun
        prompts = sum(map(len, self.calls))
        if not self.note:
            alone, share = encoder_seconds(self.peer, list(number), gradients=False), len(number) / prompts
            self.note = f"the encoder alone takes {alone / seconds:.0%} of our time"
            self.note += f"; {share:.0%} of the prompts are different"
        return prompts / seconds

    def play_encode_once(self, by_length: bool = False) -> float:
        """Raises DifferentOutputs if a score or a state differs from ours."""
        chosen = range(self.round % self.stride, len(self.calls), self.stride)
        seconds = 0.0
        for at in chosen:
            questions = self.calls[at]
            with torch.no_grad():
                begun = time.process_time()
                order = sorted_by_length(questions) if by_length else list(range(len(questions)))
                batches = chunks([questions[i] for i in order], SIZE["acting"])
                longest = [longest_of(batch if by_length else questions) for batch in batches]
                found = [encode_once(self.peer, *each) for each in zip(batches, longest, strict=True)]
                scores, states = (torch.cat(parts)[np.argsort(order)] for parts in zip(*found, strict=True))
                seconds += time.process_time() - begun
            for ours, theirs in zip(self.answers[at], (scores, states), strict=True):
                check(ours.astype(np.float64), theirs.double().numpy(), SCORES)
        return sum(len(self.calls[at]) for at in chosen) / seconds

    def play_length_sorted(self) -> float:
        return self.play_encode_once(by_length=True)


def encoder_seconds(model: Any, questions: Sequence[Question], gradients: bool) -> float:
    """CPU time of the model's own encoder on each prompt alone: forward, and backward if `gradients`."""
    begun = time.process_time()
    with torch.set_grad_enabled(gradients):
        for prompt, _ in questions:
            states = model.encoder(input_ids=torch.tensor([prompt])).last_hidden_state
            if gradients:
                states.backward(states.detach())
    return time.process_time() - begun


# ---- learning --------------------------------------------------------------------------------------------------------


def value_head(width: int) -> Any:
    """The published value head."""
    return nn.Sequential(nn.Linear(width, 1024), nn.Sigmoid(), nn.Linear(1024, 1024), nn.Sigmoid(), nn.Linear(1024, 1))


def experience(n: int, seed: int) -> Any:
    """Random inputs of PPO's loss for n steps."""
    generator = np.random.default_rng(seed)

    def normal(scale: float) -> NDArray[np.float32]:
        return generator.normal(0, scale, n).astype(np.float32)

    return Steps(
        action=generator.integers(0, len(ACTIONS), n),
        log_prob=np.full(n, -np.log(len(ACTIONS)), np.float32),
        advantage=normal(1.0),
        weight=np.ones(n, np.float32),
        value=normal(0.1),
        target=normal(1.0),
    )


def backward(pieces: Iterable[tuple[Any, Any, Any]], head: Any, steps: Any) -> NDArray[np.float64]:
    """Add up the gradients of PPO's loss over pieces (rows, logits, states). Returns its three terms."""
    loss = Loss(clip=0.2, value_clip=0.2, value_coefficient=0.5, entropy_coefficient=0.01)
    terms = np.zeros(3)
    for rows, logits, states in pieces:
        values = head(states).squeeze(-1)
        share = len(rows) / len(steps.action)
        d_logits, d_values, report = loss.gradient(
            logits.detach().numpy(), values.detach().numpy(), steps.at(np.asarray(rows))
        )
        torch.autograd.backward(
            [logits, values], [torch.from_numpy(d_logits * share), torch.from_numpy(d_values * share)]
        )
        terms += report[:3] * share
    return terms


class Update:
    """Both sides on one minibatch, each with its own copy of the same weights."""

    def __init__(self, model: Any, lengths: list[int]) -> None:
        torch.manual_seed(0)
        self.ours, self.head = copy.deepcopy(model), value_head(model.config.d_model)
        self.peer, self.peer_head = copy.deepcopy(model), copy.deepcopy(self.head)
        self.scorer, self.lengths = Scorer(self.ours), lengths
        self.round = 0
        self.questions: list[Question] = []
        self.terms: Any = None
        self.note = ""
        first = draw(lengths[:2], model.config.vocab_size, 0)  # one-time work, mostly memory allocation, is not timed
        backward(self._pieces(first), self.head, experience(2, 0))
        encoder_seconds(self.peer, first, gradients=True)

    def play_ours(self) -> float:
        self.round += 1
        self.questions = draw(self.lengths, self.ours.config.vocab_size, self.round)
        steps = experience(len(self.lengths), self.round)
        forget(self.ours, self.head)
        begun = time.process_time()
        self.terms = backward(self._pieces(self.questions), self.head, steps)
        seconds = time.process_time() - begun
        if not self.note:
            alone = encoder_seconds(self.peer, self.questions, gradients=True)
            self.note = f"the encoder alone, forward and backward, takes {alone / seconds:.0%} of our time"
        return len(self.lengths) / seconds

    def _pieces(self, questions: list[Question]) -> Iterator[tuple[Any, Any, Any]]:
        for rows, found in self.scorer.micro_batches(questions):
            yield rows, torch.stack(found.scores), found.states

    def play_encode_once(self, by_length: bool = False) -> float:
        """Raises DifferentOutputs if the loss or a gradient differs from ours."""
        steps, questions, size = experience(len(self.lengths), self.round), self.questions, SIZE["update"]
        forget(self.peer, self.peer_head)
        begun = time.process_time()
        order = sorted_by_length(questions) if by_length else list(range(len(questions)))

        def pieces() -> Iterator[tuple[Any, Any, Any]]:
            for i in range(0, len(order), size):
                rows = order[i : i + size]
                batch = [questions[row] for row in rows]
                yield rows, *encode_once(self.peer, batch, longest_of(batch if by_length else questions))

        terms = backward(pieces(), self.peer_head, steps)
        seconds = time.process_time() - begun
        check(self.terms, terms, GRADIENTS)
        same_gradients((self.ours, self.head), (self.peer, self.peer_head), GRADIENTS)
        return len(self.lengths) / seconds

    def play_length_sorted(self) -> float:
        return self.play_encode_once(by_length=True)


def forget(*modules: Any) -> None:
    for module in modules:
        module.zero_grad(set_to_none=True)


def same_gradients(ours: Sequence[Any], theirs: Sequence[Any], tolerance: float) -> None:
    """Every parameter's gradient must be the same within a share of its norm.

    Raises:
        DifferentOutputs: at the first gradient that differs.
    """
    for one, other in zip(ours, theirs, strict=True):
        for (name, a), (_, b) in zip(one.named_parameters(), other.named_parameters(), strict=True):
            apart = float((a.grad - b.grad).norm() / b.grad.norm().clamp(min=1e-12))
            if not apart <= tolerance:
                raise DifferentOutputs(f"gradient of {name}: ours is {apart:.1e} of its norm from the peer's")


# ---- the cases -------------------------------------------------------------------------------------------------------


def run(options: Options) -> Report:
    torch.set_num_threads(1)
    report, model = Report(), build("t5")
    vocabulary = model.config.vocab_size
    prompts, width = (6, 2) if options.quick else (16, TOGETHER)

    def match(case: str) -> Acting | Update:
        if case == "acting/unique":
            return Acting(model, lambda number: [draw(mixed(prompts), vocabulary, number)])
        if case.startswith("acting/recorded"):
            agent: Agent = "planner" if case.endswith("planner") else "beginner"
            return Acting(model, lambda number: stream(number, vocabulary, STEPS, width, agent), STRIDE)
        return Update(model, [200] * prompts if case == "update/equal" else mixed(prompts))

    for case in CASES:
        metric = "prompts" if case.startswith("acting") else "samples"
        if not options.wants(case):
            continue
        played = match(case)
        found = compare(
            Case("glam", case, metric, frozenset({"encode_once"} if "planner" not in case else ())),
            played.play_ours,
            {"encode_once": played.play_encode_once, "length_sorted": played.play_length_sorted},
            options,
        )
        report.add(Report([dataclasses.replace(row, note=played.note) for row in found.rows], found.skips))
    return report
