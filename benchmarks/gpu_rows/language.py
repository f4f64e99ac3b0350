"""A policy that is a language model: a minibatch of PPO, and acting; ours against a sorted Hugging Face loop."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.gpu_rows import large_t5
from benchmarks.gpu_rows.chip import APART, Chip, Size, fastest, seconds
from benchmarks.measure import DifferentOutputs
from benchmarks.scoring import check
from learner.models.language.memory import budget
from learner.optim.adam import Adam, optimiser_step, side_by_side
from learner.optim.collective import Group
from learner.optim.device import read
from learner.optim.precision import arithmetic
from llm_service.scoring.scorer import Scorer

GRADIENT = 0.15
"""Tolerance of the gradients of all weights, as a share of their norm."""


class Update:
    """A gradient step of PPO on one minibatch. Each side has its own weights, equal at the start."""

    def __init__(self, chip: Chip, size: Size, checkpointing: bool) -> None:
        self.chip, self.size = chip, size
        device, model = chip.device, large_t5.build(size.model, chip.device)
        head = nn.Sequential(nn.Linear(size.model.width, 128), nn.Tanh(), nn.Linear(128, 1)).to(device)
        self.peer, self.peer_head = copy.deepcopy(model).to(torch.bfloat16), copy.deepcopy(head)
        theirs = [*self.peer.parameters(), *self.peer_head.parameters()]
        self.optimiser = torch.optim.AdamW(theirs, lr=1e-7, weight_decay=0.0, fused=True)
        self.model, self.head = model, head
        if checkpointing:
            model.activation_checkpointing_enable()
            model.train()
        self.scorer = Scorer(model, budget=budget(model, True, checkpointing))
        flat, self.gradient = side_by_side([*model.parameters(), *head.parameters()])
        self.adam = Adam(flat)
        self.round, self.note, self.terms = 0, "", torch.zeros(3)
        self._draw()
        chip.memory()
        self._gradient()
        own = [p.grad.detach().bfloat16() for p in (*model.parameters(), *head.parameters())]
        self.together = fastest(size.batches, lambda tokens: seconds(device, lambda: self._peer(tokens)))
        self._peer(self.together)
        self._compare(own, [p.grad for p in theirs])
        self._ours()

    def _compare(self, ours: Sequence[Any], theirs: Sequence[Any]) -> None:
        pairs = list(zip(ours, theirs, strict=True))
        apart = sum(float((a.float() - b.float()).square().sum()) for a, b in pairs)
        length = sum(float(b.float().square().sum()) for _, b in pairs)
        self.apart = float(np.sqrt(apart / length))
        if not self.apart <= GRADIENT:
            raise DifferentOutputs(f"the gradient: ours is {self.apart:.1%} of its norm from the peer's")

    def _draw(self) -> None:
        self.round += 1
        self.questions = large_t5.draw(self.size.learned, self.size.model.vocabulary, self.round)
        self.steps = large_t5.experience(self.size.learned, self.round, self.chip.device)

    def _ours(self) -> None:
        self._gradient()
        optimiser_step(self.adam, [self.gradient], Group(), 0.5, 1e-7)

    def _gradient(self) -> None:
        self.gradient.zero_()
        self.terms = torch.zeros(3, device=self.chip.device)
        batches = self.scorer.micro_batches(self.questions)
        while True:
            with arithmetic(True, self.chip.device.type):
                batch = next(batches, None)
            if batch is None:
                break
            rows, found = batch
            values = self.head(found.states.float()).squeeze(-1)
            self.terms += large_t5.backward(torch.stack(found.scores), values, self.steps, rows, len(self.questions))

    def _peer(self, tokens: int) -> Tensor:
        self.optimiser.zero_grad(set_to_none=True)
        terms = torch.zeros(3, device=self.chip.device)
        for rows in large_t5.batches(self.questions, tokens):
            scores, states = large_t5.answer(self.peer, [self.questions[i] for i in rows])
            values = self.peer_head(states.float()).squeeze(-1)
            terms += large_t5.backward(scores, values, self.steps, rows, len(self.questions))
        self.optimiser.step()
        return terms

    def work(self) -> Callable[[], object]:
        """Our step on another minibatch; not yet taken."""
        self._draw()
        return self._ours

    def play_ours(self) -> float:
        work = self.work()
        needed, told = (
            3 * large_t5.operations(self.model, self.questions),
            sum(len(prompt) for prompt, _ in self.questions),
        )
        took = seconds(self.chip.device, work)
        self.note = (
            f"{told / took:,.0f} prompt tokens a second, {self.chip.memory()} with the peer's weights; gradients "
        )
        self.note += f"{self.apart:.1%} apart; the peer takes {self.together:,} tokens at once"
        self.needed = needed
        return needed / took / self.chip.peak

    def play_peer(self) -> float:
        found: list[Any] = []
        took = seconds(self.chip.device, lambda: found.append(self._peer(self.together)))
        check(read(self.terms), read(found[0]), APART)
        return self.needed / took / self.chip.peak


class Acting:
    """Scores of the actions: ours with the learner's float32 weights, the peer with bfloat16 weights."""

    def __init__(self, chip: Chip, size: Size) -> None:
        self.chip, self.size, self.round, self.note = chip, size, 0, ""
        self.model = large_t5.build(size.model, chip.device)
        self.peer = copy.deepcopy(self.model).to(torch.bfloat16)
        self.scorer = Scorer(self.model, budget=budget(self.model, True, False), remember=0)
        self.play_ours()
        self.together = fastest(size.batches, lambda tokens: seconds(chip.device, lambda: self._peer(tokens)))

    def work(self) -> Callable[[], object]:
        """Our answers to other questions; not yet given."""
        self.round += 1
        self.questions = large_t5.draw(self.size.acted, self.size.model.vocabulary, self.round)

        @torch.no_grad()
        def act() -> None:
            with arithmetic(True, self.chip.device.type):
                self.scores = torch.stack(self.scorer.score_tokens(self.questions).scores).cpu().double().numpy()

        return act

    def play_ours(self) -> float:
        """States a second."""
        took = seconds(self.chip.device, self.work())
        share = large_t5.operations(self.model, self.questions) / took / self.chip.peak
        self.note = f"{share:.1%} of the peak, {self.chip.memory()}"
        return len(self.questions) / took

    @torch.no_grad()
    def _peer(self, tokens: int) -> Any:
        scores = torch.zeros(len(self.questions), len(large_t5.ACTIONS))
        for rows in large_t5.batches(self.questions, tokens):
            scores[rows] = large_t5.answer(self.peer, [self.questions[i] for i in rows])[0].cpu()
        return scores

    def play_peer(self) -> float:
        found: list[Any] = []
        took = seconds(self.chip.device, lambda: found.append(self._peer(self.together)))
        check(self.scores, found[0].double().numpy(), APART)
        return len(self.questions) / took
