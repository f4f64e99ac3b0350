"""Action values, as numbers or as distributions, the behaviour that follows from them, and a dueling head.

    features ──> value [atoms] + advantage [A, atoms] - mean advantage ──> Q [A, atoms]      (Wang et al. 2016)
    Q ──> log-probabilities of epsilon-greedy behaviour, largest Q

With one atom an output is the action's value. With more, the softmax over them is the distribution of its return on
`support`, equal steps from v_min to v_max (Bellemare et al. 2017).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from learner.optim.precision import whole

MOST_EPSILON = 0.999
"""Maximum epsilon, so that the best action stays the most probable one: greedy play looks for that."""
LEAST = 1e-30
"""Minimum probability of an action: its logarithm must be finite."""


class ActionValues(nn.Module):
    """A head whose `forward` takes the features of actor and critic, each [B, width], to outputs [B, A, atoms].

    `epsilon`, in [0, 1], is set by the learner and travels with the weights.
    """

    epsilon: Tensor
    support: Tensor
    greedy = True
    """Whether it takes the best action where epsilon does not act. Heads with another `behaviour` set this to false."""

    def __init__(self, actions: int, atoms: int, v_min: float, v_max: float) -> None:
        super().__init__()
        self.actions, self.atoms = actions, atoms
        self.register_buffer("epsilon", torch.ones(()))
        self.register_buffer("support", torch.linspace(v_min, v_max, atoms), persistent=False)

    @property
    def last(self) -> list[nn.Module]:
        """The layers that give the outputs."""
        raise NotImplementedError

    def mean(self, outputs: Tensor) -> Tensor:
        """Outputs [..., atoms] -> expected values [...]."""
        if self.atoms == 1:
            return outputs.squeeze(-1)
        return (outputs.softmax(-1) * self.support).sum(-1)  # no product of matrices: that may be in bfloat16

    def best(self, actor: Tensor, critic: Tensor) -> Tensor:
        """The best actions, int64 [B], by the features."""
        return self.mean(self(actor, critic)).argmax(-1)

    def behaviour(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Values [B, A] -> log-probabilities [B, A] of epsilon-greedy behaviour, all finite, and largest values [B].

        The first of equally good actions is the best one.
        """
        largest, best = values.max(-1)
        epsilon = self.epsilon.clamp(max=MOST_EPSILON)
        probability = (epsilon / self.actions).expand(values.shape).clone()
        probability[torch.arange(len(best), device=best.device), best] += 1 - epsilon
        return probability.clamp(min=LEAST).log(), largest


class Dueling(ActionValues):
    """Q of A actions by two streams with one layer of `hidden` each."""

    def __init__(
        self, width: int, actions: int, hidden: int, atoms: int = 1, v_min: float = -1.0, v_max: float = 1.0
    ) -> None:
        super().__init__(actions, atoms, v_min, v_max)
        self.value = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, atoms))
        self.advantage = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, actions * atoms))

    @property
    def last(self) -> list[nn.Module]:
        return [self.value[-1], self.advantage[-1]]

    def forward(self, actor: Tensor, critic: Tensor) -> Tensor:
        advantage = stream(self.advantage, actor).view(*actor.shape[:-1], self.actions, self.atoms)
        return stream(self.value, critic).unsqueeze(-2) + advantage - advantage.mean(-2, keepdim=True)

    def best(self, actor: Tensor, critic: Tensor) -> Tensor:
        """With one atom, the advantages suffice."""
        return stream(self.advantage, actor).argmax(-1) if self.atoms == 1 else super().best(actor, critic)


def stream(layers: nn.Sequential, features: Tensor) -> Tensor:
    """Outputs of a stream, the last layer in float32 always: actions differ by less than bfloat16 can tell."""
    first, relu, last = layers
    hidden = relu(first(features))
    with whole(hidden.device.type):
        result: Tensor = last(hidden.to(last.weight.dtype))
    return result


def project(probability: Tensor, reward: Tensor, discount: Tensor, support: Tensor) -> Tensor:
    """The distribution of reward + discount * return, projected onto the atoms of `support`.

    Args:
        probability: [B, atoms] of the return.
        reward, discount: [B].
        support: [atoms], ascending in equal steps.

    Returns:
        [B, atoms]: each moved atom's probability is shared by its two neighbours, the nearer one getting more; what
        falls beyond an end counts as that end.
    """
    step = support[1] - support[0]
    moved = (reward[:, None] + discount[:, None] * support).clamp(support[0], support[-1])  # [B, from]
    share = (1 - (moved[:, :, None] - support).abs() / step).clamp(min=0.0)  # [B, from, to]
    return (probability[:, :, None] * share).sum(1)
