"""DQN's loss and its gradient in closed form, for texts and numbers, one layer for all of them, and a dueling head.

    codes of texts ──> their parts ──> summed by observation ──> features ──> advantage stream ──> Q [A] ──> loss
    numbers ─────────> their part  ──>                                   ──> value stream

Minibatches are small: recording a hundred operations of 35 rows and differentiating them takes as long as the products
themselves. Here the gradient is written where the optimiser reads it, and most of what is not a product is four
compiled loops. `DQN.loss` is the same for every network and device.

The limit is the products: weights of a megabyte each, half of it in bfloat16, for some dozens of rows.
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
from learner.models.rows import scatter, sum_of
from learner.models.text_encoder import FrozenMiniLM

Array = NDArray[np.float32]
Places = NDArray[np.int64]
Layers = tuple[nn.Linear, nn.Linear]
before_relu = torch.ops.aten.threshold_backward.default  # of a gradient, the output and 0


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
        self.network, self.double, self.out = network, double, list(network.out)
        self.advantage, self.value = _layers(head.advantage), _layers(head.value)
        self.type = network.out_bias.dtype  # of what is multiplied

    @torch.no_grad()
    def __call__(self, drawn: Drawn, theirs: Tensor) -> tuple[Tensor, Tensor]:
        """Write the gradient of the weighted mean of B losses to all parameters.

        Args:
            theirs: the target's values [n, A, 1] of the n distinct observations that follow.

        Returns:
            The value's error [B]; the means of weighted losses, of the errors' sizes and of values, [3].
        """
        network, own = self.network, drawn.own
        assert drawn.texts is not None
        numbers = {name: value.numpy() for name, value in drawn.numbers.items()}
        sizes, codes = [len(ids) for ids in drawn.ids], drawn.texts.to(self.type)
        rest = {name: drawn.seen[name].to(self.type) for name in network.numbers}
        named = np.concatenate([drawn.seen[name].numpy().reshape(len(drawn), -1) for name in network.texts], 1)

        # From texts and numbers to features, and to what the streams make of them.
        parts = torch.empty(sum(sizes), network.width, dtype=self.type)
        by_field = [*zip(self.out, torch.split(codes, sizes), torch.split(parts, sizes), strict=False)]
        for weight, code, part in by_field:
            torch.mm(code, weight.t(), out=part)
        total = torch.empty(len(drawn), network.width)
        sum_of(parts.float().numpy(), named, total.numpy())
        total.add_(network.of_rest(rest)).relu_()
        features = total.to(self.type)  # [U, hidden]
        inner, advantage = _forward(self.advantage, features)
        features = features[:own]
        value_inner, value = _forward(self.value, features)

        error, slope = torch.empty(len(numbers["now"])), np.empty(len(numbers["now"]), np.float32)
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
            slope,
            error.numpy(),
        )

        # And back.
        d_inner = torch.zeros(2, own, inner.shape[1])
        towards = inner.numpy(), value_inner.numpy(), *d_inner.numpy()
        layers = self.advantage[1], self.value[1]
        gradients = [p.grad.numpy() for layer in layers for p in (layer.weight, layer.bias) if p.grad is not None]
        weights = [layer.weight.numpy() for layer in layers]
        _through_last(numbers["now"], numbers["action"], slope, *towards, *weights, *gradients)
        d_advantage, d_value = d_inner.to(self.type)
        d_features = torch.mm(d_advantage, self.advantage[0].weight).addmm_(d_value, self.value[0].weight)
        for (first, _), d_given in ((self.advantage, d_advantage), (self.value, d_value)):
            torch.mm(d_given.t(), features, out=first.weight.grad)
            torch.sum(d_given, 0, out=first.bias.grad)
        d_total = before_relu(d_features.float(), total[:own], 0)
        d_parts = torch.zeros(sum(sizes), network.width)
        scatter(named[:own], d_total.numpy(), d_parts.numpy())
        d_total, d_parts = d_total.to(self.type), d_parts.to(self.type)
        torch.sum(d_total, 0, out=network.out_bias.grad)
        if rest:
            torch.mm(d_total.t(), torch.cat([value[:own] for value in rest.values()], -1), out=network.out[-1].grad)
        for (weight, code, _), d_part in zip(by_field, torch.split(d_parts, sizes), strict=True):
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


def _layers(stream: nn.Sequential) -> Layers:
    first, _, last = stream
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    return first, last


def _forward(layers: Layers, x: Tensor) -> tuple[Tensor, Tensor]:
    """What is between a stream's layers, and its output, as the last layer computes: in float32."""
    first, last = layers
    inner = nn.functional.linear(x, first.weight, first.bias).relu_().to(last.weight.dtype)
    return inner, nn.functional.linear(inner, last.weight, last.bias)


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
    slope: Array,
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
        slope[b] = (error[b] / size if size >= 1 else error[b]) * weight[b] / rows
        total += weight[b] * loss
        away += size
        values += chosen
    return total / rows, away / rows, values / rows


@compiled
def _through_last(
    now: Places,
    action: Places,
    slope: Array,
    inner: Array,
    value_inner: Array,
    d_inner: Array,
    d_value_inner: Array,
    weight: Array,
    value_weight: Array,
    d_weight: Array,
    d_bias: Array,
    d_value_weight: Array,
    d_value_bias: Array,
) -> None:
    """Through both last layers and the ReLU before them. A row's slope is that of its value and of its action's
    advantage; all advantages share minus as much. So no product of matrices is needed.

    d_inner, d_value_inner: [own, hidden], 0. The parameters' gradients are written over.
    """
    actions, width = weight.shape
    share, zero, total = np.float32(1 / actions), np.float32(0), np.float32(0)
    mean, common = np.zeros(width, np.float32), np.zeros(width, np.float32)
    d_weight[:], d_bias[:], d_value_weight[:] = 0, 0, 0
    for a in range(actions):
        for k in range(width):
            mean[k] += share * weight[a, k]
    for b in range(len(now)):
        i, a, of = now[b], action[b], slope[b]
        for k in range(width):
            d_inner[i, k] += of * (weight[a, k] - mean[k])
        for k in range(width):
            d_value_inner[i, k] += of * value_weight[0, k]
        for k in range(width):
            d_weight[a, k] += of * inner[i, k]
        for k in range(width):
            common[k] += of * inner[i, k]
        for k in range(width):
            d_value_weight[0, k] += of * value_inner[i, k]
        d_bias[a] += of
        total += of
    for a in range(actions):
        for k in range(width):
            d_weight[a, k] -= share * common[k]
        d_bias[a] -= share * total
    d_value_bias[0] = total
    for i in range(len(d_inner)):
        for k in range(width):
            d_inner[i, k] = d_inner[i, k] if inner[i, k] > 0 else zero
        for k in range(width):
            d_value_inner[i, k] = d_value_inner[i, k] if value_inner[i, k] > 0 else zero
