"""DRRN: the value of an action's name in a state described in words (He et al. 2016, arXiv 1511.04636).

    mission ───────────────── GRU ─┐
    earlier caption, action ─ GRU ─┼─> codes ──> GRU ──> state [B, hidden] ──┐
    caption ───────────────── GRU ─┘                                       ├──> Linear -> ReLU -> Linear ──> Q [B, A]
    names of the actions ───────────────────> GRU ──> actions [A, hidden] ──┘

The published agent reads one flat prompt of all these texts by one GRU. Here each text is read by itself (choose
`policy.text=gru`), and a second GRU reads their codes in the prompt's order: goal, earlier observations and actions,
oldest first, current observation. Texts recur often, in an episode as in a minibatch, and are read once each; a whole
prompt hardly ever recurs. Words of actions have their own embeddings, since they rarely occur in observations.

The first layer of Q is a sum of a state part and an action part: each is computed once, not for each pair. The limit is
reading captions word by word.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from envs.api import EnvSpec
from learner.models.config import HISTORY, PolicyConfig
from learner.models.networks.texts import NUMBERS, side_by_side, size
from learner.models.policy import Observations
from learner.models.q import LEAST, MOST_EPSILON, ActionValues
from learner.models.text_encoder import GRUText
from learner.optim.precision import whole


class Network(nn.Module):
    """The state [B, hidden]: texts in the prompt's order, after the fields that are not texts, if any."""

    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        super().__init__()
        if any(field.kind == "pixels" for field in spec.fields.values()):
            raise ValueError("the drrn network reads no pictures: choose policy.reads=[FIELD,...] without them")
        seen = config.prompt.observation
        texts = [name for name, field in spec.fields.items() if field.kind == "text"]
        self.texts = sorted(texts, key=lambda name: 2 if name in seen else int(name == HISTORY))
        self.numbers = {name: field for name, field in spec.fields.items() if field.kind != "text"}
        self.width, self.spec, self.config = config.hidden, spec, config
        self.of_numbers = nn.Linear(sum(map(size, self.numbers.values())), self.width) if self.numbers else None
        self.state = nn.GRU(self.width, self.width, batch_first=True)

    def values(self) -> Relevance:
        """Its own head of action values."""
        return Relevance(self.spec.action_names, self.config)

    def inputs(self, obs: Observations) -> dict[str, Tensor]:
        return side_by_side(obs, self.texts, self.numbers)

    def forward(self, obs: Observations, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs [B, ...] (texts as row indices into `codes` [U, hidden]) -> features [B, hidden]."""
        heard = [codes[obs[name].reshape(len(obs[name]), -1)] for name in self.texts]
        if self.of_numbers is not None:
            heard.insert(0, self.of_numbers(obs[NUMBERS])[:, None])
        told = torch.cat(heard, 1)
        if told.device.type == "cpu":
            features = self.state(told)[1][0]
        else:
            with whole(told.device.type):  # autocast would make it float16, whose small gradients are 0
                features = self.state(told.float())[1][0]
        return features, features


class Relevance(ActionValues):
    """Q of A actions by their names. It acts by a softmax over Q, and with probability epsilon at random."""

    names: Tensor
    greedy = False

    def __init__(self, names: tuple[str, ...], config: PolicyConfig) -> None:
        super().__init__(len(names), config.atoms, config.v_min, config.v_max)
        self.width = config.hidden
        self.encoder = GRUText(sorted({word for name in names for word in name.lower().split()}), self.width)
        self.register_buffer("names", self.encoder.prepare(names), persistent=False)
        self.mix = nn.Linear(2 * self.width, self.width)
        self.out = nn.Linear(self.width, config.atoms)

    @property
    def last(self) -> list[nn.Module]:
        return [self.out]

    def forward(self, actor: Tensor, critic: Tensor) -> Tensor:
        of_state, of_action = torch.split(self.mix.weight, self.width, 1)
        state = nn.functional.linear(actor, of_state, self.mix.bias)
        action = self.encoder(self.names) @ of_action.T
        result: Tensor = self.out(torch.relu(state[:, None] + action))
        return result

    def behaviour(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Values [B, A] -> log-probabilities [B, A], all finite, and largest values [B]."""
        epsilon = self.epsilon.clamp(max=MOST_EPSILON)
        probability = epsilon / self.actions + (1 - epsilon) * values.softmax(-1)
        return probability.clamp(min=LEAST).log(), values.amax(-1)
