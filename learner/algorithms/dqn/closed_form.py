"""DQN's loss and its gradient in closed form, for texts and numbers, one layer for all of them, and a dueling head.

    codes of texts ──> their parts ──> summed by observation ──> features ──> advantage stream ──> Q [A] ──> loss
    numbers ─────────> their part  ──>                                   ──> value stream

Minibatches are small: recording a hundred operations of 35 rows and differentiating them takes as long as the products
themselves. Here the gradient is written where the optimiser reads it, and what is not a product is two compiled loops.
`DQN.loss` is the same for every network and device.

The limit is the products: weights of a megabyte each, for some dozens of rows.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from envs.compiler import compiled
from learner.algorithms.dqn.drawn import Drawn
from learner.models.networks import texts
from learner.models.policy import Policy
from learner.models.q import Dueling
from learner.models.rows import scatter
from learner.models.text_encoder import FrozenMiniLM

Array = NDArray[np.float32]
Places = NDArray[np.int64]


class ClosedForm:
    """Passes on the CPU of a policy all of whose parameters learn and have a gradient.

    Args:
        policy: in float32, or a copy with bfloat16 weights up to the streams' last layers. Sums over texts and the loss
            are in float32 always.
    """

    def __init__(self, policy: Policy, *, double: bool) -> None:
        assert suits(policy)
        network, head = policy.network, policy.q
        assert isinstance(network, texts.Network)
        assert isinstance(head, Dueling)
        self.network, self.head, self.double = network, head, double
        self.type = network.out_bias.dtype  # of what is multiplied

    @torch.no_grad()
    def __call__(self, drawn: Drawn, theirs: Tensor) -> tuple[Tensor, Tensor]:
        """Write the gradient of the weighted mean of B losses to all parameters.

        Args:
            theirs: the target's values [n, A, 1] of the n distinct observations that follow.

        Returns:
            The value's error [B]; the means of weighted losses, of the errors' sizes and of values, [3].
        """
        network, head, seen, own = self.network, self.head, drawn.seen, drawn.own
        assert drawn.texts is not None
        numbers = {name: value.numpy() for name, value in drawn.numbers.items()}
        sizes, codes = [len(ids) for ids in drawn.ids], drawn.texts.to(self.type)
        seen = seen | {name: seen[name].to(self.type) for name in network.numbers}
        total, _ = network.combine(seen, network.of_texts(codes, sizes).float())
        features = total.to(self.type)  # [U, hidden]
        inner, advantage = _forward(head.advantage, features)
        value_inner, value = _forward(head.value, features[:own])

        d_value, d_advantage = torch.zeros(own, 1), torch.zeros(own, head.actions)
        error = torch.empty(len(numbers["now"]))
        means = _loss(
            value.numpy(),
            advantage.numpy(),
            theirs[:, :, 0].numpy(),
            numbers["now"],
            numbers["action"],
            numbers["after"],
            numbers["place"],
            numbers["reward"],
            numbers["discount"],
            numbers["weight"],
            self.double,
            d_value.numpy(),
            d_advantage.numpy(),
            error.numpy(),
        )
        features = features[:own]
        d_features = _backward(head.advantage, features, inner[:own], d_advantage).float()
        d_features += _backward(head.value, features, value_inner, d_value)
        d_total = _before_relu(d_features, total[:own])
        d_parts = torch.zeros(sum(sizes), network.width)
        for name in network.texts:
            scatter(seen[name][:own].reshape(own, -1).numpy(), d_total.numpy(), d_parts.numpy())
        d_total, d_parts = d_total.to(self.type), d_parts.to(self.type)
        torch.sum(d_total, 0, out=network.out_bias.grad)
        if network.numbers:
            rest = torch.cat([seen[name][:own] for name in network.numbers], -1)
            torch.mm(d_total.t(), rest, out=network.out[-1].grad)
        by_field = zip(torch.split(d_parts, sizes), torch.split(codes, sizes), network.out, strict=False)
        for d_part, code, weight in by_field:
            torch.mm(d_part.t(), code, out=weight.grad)
        return error, torch.tensor(means)


def suits(policy: Policy) -> bool:
    """Whether this policy is one of those that `ClosedForm` computes."""
    network, text = policy.network, policy.text
    of_texts = isinstance(network, texts.Network) and network.texts and not network.pictures
    frozen = isinstance(text, FrozenMiniLM) and text.projection is None
    plain = isinstance(policy.q, Dueling) and policy.q.atoms == 1 and policy.memory is None
    on_host = all(parameter.device.type == "cpu" for parameter in policy.parameters())
    return bool(of_texts and frozen and plain and on_host)


def _layers(stream: nn.Sequential) -> tuple[nn.Linear, nn.Linear]:
    first, _, last = stream
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    return first, last


def _forward(stream: nn.Sequential, x: Tensor) -> tuple[Tensor, Tensor]:
    """What is between a stream's layers, and its output, as the last layer computes: in float32."""
    first, last = _layers(stream)
    inner = nn.functional.linear(x, first.weight, first.bias).relu_().to(last.weight.dtype)
    return inner, nn.functional.linear(inner, last.weight, last.bias)


def _backward(stream: nn.Sequential, x: Tensor, inner: Tensor, d_output: Tensor) -> Tensor:
    """The gradient of a stream's input; that of its parameters is written."""
    first, last = _layers(stream)
    d_inner = _before_relu(d_output @ last.weight, inner)
    d_inner = d_inner.to(x.dtype)
    for layer, given, d_given in ((last, inner, d_output), (first, x, d_inner)):
        torch.mm(d_given.t(), given, out=layer.weight.grad)
        torch.sum(d_given, 0, out=layer.bias.grad)
    return d_inner @ first.weight


def _before_relu(d_output: Tensor, output: Tensor) -> Tensor:
    result: Tensor = torch.ops.aten.threshold_backward(d_output, output, 0)
    return result


@compiled
def _loss(
    value: Array,
    advantage: Array,
    theirs: Array,
    now: Places,
    action: Places,
    after: Places,
    place: Places,
    reward: Array,
    discount: Array,
    weight: Array,
    double: bool,
    d_value: Array,
    d_advantage: Array,
    error: Array,
) -> tuple[float, float, float]:
    rows, actions = len(now), advantage.shape[1]
    total, away, values = 0.0, 0.0, 0.0
    for b in range(rows):
        of, mean = advantage[now[b]], np.float32(0)
        for a in range(actions):
            mean += of[a]
        judged = theirs[place[b]]
        by = advantage[after[b]] if double else judged
        best = 0
        for a in range(1, actions):
            if by[a] > by[best]:
                best = a
        chosen = value[now[b], 0] + of[action[b]] - mean / actions
        error[b] = chosen - (reward[b] + discount[b] * judged[best])
        size = abs(error[b])
        # The loss of Huber (1964): its slope is the error, at most 1. What is not a number stays so.
        loss = size - 0.5 if size >= 1 else 0.5 * size * size
        slope = (error[b] / size if size >= 1 else error[b]) * weight[b] / rows
        d_value[now[b], 0] += slope
        d_advantage[now[b], action[b]] += slope
        for a in range(actions):
            d_advantage[now[b], a] -= slope / actions
        total += weight[b] * loss
        away += size
        values += chosen
    return total / rows, away / rows, values / rows
