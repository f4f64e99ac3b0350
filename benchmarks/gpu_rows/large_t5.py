"""A language model of flan-t5-large's shape, and the usual loop around it at its best.

Prompts are sorted by length, so that batches need little padding. Each is encoded once, and its states are repeated for
every action. Weights, gradients and arithmetic are bfloat16, attention is PyTorch's fused kernel, and the batch has the
size that is fastest on this GPU. Tokens are random: their content does not change the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.algorithms.ppo.losses import Loss, Steps
from learner.models import flops
from learner.optim.device import send
from llm_service.scoring.computed import Computed
from llm_service.scoring.scorer import Question
from llm_service.scoring.trie import grow

ACTIONS = ((7, 11), (7, 13), (5, 17), (9, 19), (23,), (27, 29))
"""Six names of one or two tokens, two of which begin alike, like the names of BabyAI's actions."""


class Shape(NamedTuple):
    """Shape of a T5 with gated MLPs. The default is flan-t5-large: 783 M parameters."""

    width: int = 1024
    perceptron: int = 2816
    heads: int = 16
    head: int = 64
    layers: int = 24
    vocabulary: int = 32128


def build(shape: Shape, device: torch.device) -> Any:
    """A seeded random model in float32, without dropout. Its logits have the size of a trained model's."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(  # type: ignore[call-arg] # arguments for its base class
        vocab_size=shape.vocabulary,
        d_model=shape.width,
        d_kv=shape.head,
        d_ff=shape.perceptron,
        num_heads=shape.heads,
        num_layers=shape.layers,
        dropout_rate=0.0,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        decoder_start_token_id=0,
    )
    torch.manual_seed(0)
    with device:
        model: Any = T5ForConditionalGeneration(config)
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) * shape.width**-0.5)
    return model.eval()


def draw(states: int, vocabulary: int, seed: int, lengths: tuple[int, int] = (100, 300)) -> list[Question]:
    """Prompts of evenly spread lengths, shuffled; the actions follow each."""
    generator = np.random.default_rng(seed)
    sizes = generator.permutation(np.linspace(*lengths, states).astype(int))
    return [(tuple(generator.integers(5, vocabulary, n).tolist()), ACTIONS) for n in sizes.tolist()]


def batches(questions: Sequence[Question], tokens: int) -> Iterator[list[int]]:
    """Indices of questions, sorted by length, in batches of limited tokens, padding included."""
    batch: list[int] = []
    for index in sorted(range(len(questions)), key=lambda i: len(questions[i][0])):
        if batch and (len(batch) + 1) * len(questions[index][0]) > tokens:
            yield batch
            batch = []
        batch.append(index)
    yield batch


def answer(model: Any, questions: Sequence[Question]) -> tuple[Tensor, Tensor]:
    """Scores [B, K], float32, of the actions, and states [B, D] at the decoder's first position."""
    device = model.device
    prompts, asked = [prompt for prompt, _ in questions], [each for _, found in questions for each in found]
    each = len(asked) // len(questions)
    ids, mask = _padded(prompts, device)
    targets, real = _padded(asked, device)
    given = torch.nn.functional.pad(targets[:, :-1], (1, 0))
    encoded = model.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
    states = model.decoder(
        input_ids=given,
        encoder_hidden_states=encoded.repeat_interleave(each, 0),
        encoder_attention_mask=mask.repeat_interleave(each, 0),
        use_cache=False,
    ).last_hidden_state
    logits = model.lm_head(states).float()
    found = logits.gather(-1, targets[..., None])[..., 0] - logits.logsumexp(-1)
    return (found * real).sum(-1).view(-1, each), states[::each, 0]


def _padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    longest = max(map(len, rows))
    ids = np.array([[*row, *[0] * (longest - len(row))] for row in rows], np.int64)
    mask = np.arange(longest) < np.array([len(row) for row in rows])[:, None]
    there = send({"ids": ids, "mask": mask.astype(np.int64)}, device)
    return there["ids"], there["mask"]


def operations(model: Any, questions: Sequence[Question]) -> int:
    """Operations of a forward pass: the encoder for the prompts' tokens, decoder and head for the actions' nodes."""
    nodes = [len(grow(found).tokens) for _, found in questions]
    return flops.language(model, Computed.of([len(prompt) for prompt, _ in questions], nodes))


def experience(n: int, seed: int, device: torch.device) -> Steps[Tensor]:
    """Random inputs of PPO's loss for n steps, on a device."""
    random = np.random.default_rng(seed)
    target, advantage, value = (random.normal(0, scale, n).astype(np.float32) for scale in (1.0, 1.0, 0.1))
    columns: dict[str, NDArray[Any]] = {
        "action": random.integers(0, len(ACTIONS), n),
        "log_prob": np.full(n, -np.log(len(ACTIONS)), np.float32),
        "advantage": advantage,
        "weight": np.ones_like(target),
        "value": value,
        "target": target,
    }
    return Steps(**send(columns, device))


def backward(logits: Tensor, value: Tensor, steps: Steps[Tensor], rows: Sequence[int], n: int) -> Tensor:
    """Backward pass from PPO's closed-form loss of the steps `rows`, among a minibatch of n. Returns its terms, [3].

    No side waits for its GPU here: a learner reads its losses once an update. (The library's own forward pass does once
    a batch: it asks whether any token is padding.)
    """
    loss, share = Loss(clip=0.2, value_clip=0.2, value_coefficient=0.5, entropy_coefficient=0.01), len(rows) / n
    some = steps.at(send({"rows": torch.tensor(rows)}, value.device)["rows"])
    d_logits, d_value, report = loss.gradient(logits.detach().float(), value.detach().float(), some)
    slopes = [(each * share).to(o.dtype) for each, o in ((d_logits, logits), (d_value, value))]
    torch.autograd.backward([logits, value], slopes)
    terms: Tensor = report[:3] * share
    return terms
