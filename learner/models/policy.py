"""The policy: an encoder found by name, an optional recurrent memory, and heads: actor and critic, or action values.

    obs ──> Network (film | mlp | texts | yours) ──> features ──> [GRU] ──> logits [A], value

A network is a module of `networks` that publishes `Network(config, spec)`: an `nn.Module` with attribute `width` whose
`forward(obs, codes)` returns the features of the actor and of the critic, each [B, width] (they may be one tensor).
`obs` holds tensors [B, ...] by field; a text field holds row indices into `codes` [U, hidden], the encoded texts.

A network may also publish `inputs(obs)`: preprocessing of observations [..., *shape] without any parameter, into a
dictionary of tensors with the same leading axes and with unchanged texts. It runs once; `forward` then gets the result
in many passes.

`language_model` is not such a network but a separate policy with the same interface (`language/llm_policy.py`).

A network with a part that depends only on single texts may publish this part: `of_texts(codes, sizes)`, the part of
each text of each text field, and `combine(obs, texts)`, which is `forward` with rows of these parts in place of codes.
It then gets MiniLM's embeddings as codes (`text_encoder.code_width`), since it projects codes itself.

A network may publish `values()`, its own head of action values (`ActionValues`), in place of the dueling one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from envs.api import EnvSpec
from learner.models import networks
from learner.models.config import PolicyConfig, visible
from learner.models.frames import Frames
from learner.models.q import ActionValues, Dueling
from learner.models.text_encoder import FrozenMiniLM, GRUText, LearnedText, Words

Observations = Mapping[str, Tensor]


class Policy(nn.Module):
    """Actor and critic in a discrete action space of A actions; `q` is its head of action values, if any."""

    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        super().__init__()
        spec = visible(config, spec)
        self.fields = spec.fields
        self.text_fields = [name for name, field in spec.fields.items() if field.kind == "text"]
        self.hidden = config.hidden
        self.stack, self.frames = config.stack, Frames(spec, config.stack) if config.stack > 1 else None
        self.text: Words | FrozenMiniLM | None = None
        network = networks.network(config.network)
        if self.text_fields:
            of_words = {"learned": LearnedText, "gru": GRUText}.get(config.text)
            width = None if hasattr(network, "of_texts") else config.hidden
            self.text = of_words(spec.words, config.hidden) if of_words else FrozenMiniLM(width)
        seen = self.frames.widen(spec) if self.frames else spec
        self.network = network(config, seen)
        self.memory = nn.GRUCell(self.network.width, config.hidden) if config.memory == "gru" else None
        width = config.hidden if self.memory else self.network.width
        self.q: ActionValues | None = None
        if config.head == "dueling" and hasattr(self.network, "values"):
            self.q = self.network.values()
        elif config.head == "dueling":
            self.q = Dueling(width, len(spec.action_names), config.hidden, config.atoms, config.v_min, config.v_max)
        else:
            self.actor = nn.Linear(width, len(spec.action_names))
            self.critic = nn.Linear(width, 1)
            for head, gain in ((self.actor, 0.01), (self.critic, 1.0)):
                nn.init.orthogonal_(head.weight, gain)
                nn.init.zeros_(head.bias)

    @property
    def value_layer(self) -> nn.Linear:
        """The critic's last layer."""
        return self.critic

    @property
    def device(self) -> torch.device:
        """The device of its weights, where its inputs must be."""
        return next(self.parameters()).device

    def payload(self) -> dict[str, Tensor]:
        """Parameters, and the numbers that belong to them, by name: sent to actors, and stored in checkpoints."""
        return self.state_dict()

    @property
    def text_width(self) -> int:
        """Numbers that `of_texts` makes of a text."""
        return self.network.width if hasattr(self.network, "of_texts") else self.hidden

    def prepare(self, texts: Sequence[str]) -> Tensor | None:
        """Strings -> what `codes` takes, one row a text, on the host; None if the policy reads no text."""
        return self.text.prepare(texts) if self.text is not None and texts else None

    def codes(self, prepared: Tensor | None) -> Tensor:
        """Prepared texts [U, ...] -> codes [U, hidden]."""
        if self.text is None or prepared is None:
            return torch.zeros(0, self.hidden, device=self.device)
        result: Tensor = self.text(prepared)
        return result

    def of_texts(self, prepared: Tensor | None, sizes: Sequence[int]) -> Tensor:
        """The features of prepared texts, [U, width]: U texts, the first sizes[0] of the first text field, and so
        on."""
        codes = self.codes(prepared)
        result: Tensor = self.network.of_texts(codes, sizes) if hasattr(self.network, "of_texts") else codes
        return result

    def features(self, obs: Observations, texts: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs [B, ...], with texts as row indices into what `of_texts` made -> features of actor and critic."""
        result: tuple[Tensor, Tensor] = getattr(self.network, "combine", self.network)(obs, texts)
        return result

    def inputs(self, obs: Observations) -> dict[str, Tensor]:
        """Raw observations [..., *shape] -> what `step` and `unroll` take, with equal leading axes.

        With `frames`, pictures are [..., stack, *shape].
        """
        obs = self.frames.join(obs) if self.frames else obs
        arrange = getattr(self.network, "inputs", dict)
        result: dict[str, Tensor] = arrange(obs)
        return result

    def initial_state(self, n: int) -> Tensor | None:
        """State at the start of an episode: recurrent [n, hidden], or that of `frames`, or None."""
        if self.frames:
            return self.frames.initial_state(n)
        return torch.zeros(n, self.hidden) if self.memory is not None else None

    def step(self, obs: Observations, codes: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """One step of B envs: logits [B, A], value [B], next state [B, hidden] or None."""
        return self._step(self.network(obs, codes), state)

    def act(self, obs: Observations, texts: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """`step`, with texts as row indices into what `of_texts` made."""
        return self._step(self.features(obs, texts), state)

    def _step(self, features: tuple[Tensor, Tensor], state: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        actor, critic = features
        if self.memory is not None:
            actor = critic = state = self.memory(actor, state)
        return *self._decide(actor, critic), state

    def _decide(self, actor: Tensor, critic: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, A] and values [B] of features [B, width]."""
        if self.q is not None:
            return self.q.behaviour(self.q.mean(self.q(actor, critic)))
        return self.actor(actor), self.critic(critic).squeeze(-1)

    def unroll(
        self, obs: Observations, codes: Tensor, state: Tensor | None, done: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """T steps of N envs in one go.

        Args:
            obs: [T, N, ...].
            codes: [U, hidden].
            state: [N, hidden] before the first observation, or None.
            done: bool [T, N]: an episode ended right before this observation (row 0 is already in `state`).

        Returns:
            logits [T, N, A], values [T, N], states [T, N, hidden] after each observation (None without memory).
        """
        length, envs = done.shape
        flat = {name: value.flatten(0, 1) for name, value in obs.items()}
        actor, critic = self.network(flat, codes)
        states = None
        if self.memory is not None:
            assert state is not None
            states = self._remember(actor.view(length, envs, -1), state, done)
            actor = critic = states.flatten(0, 1)
        logits, values = self._decide(actor, critic)
        return logits.view(length, envs, -1), values.view(length, envs), states

    def _remember(self, features: Tensor, state: Tensor, done: Tensor) -> Tensor:
        """`memory` over features [T, N, width], as in `unroll`: everything independent of the state is one product."""
        assert self.memory is not None
        linear, sizes = nn.functional.linear, [2 * self.hidden, self.hidden]  # two gates, and what is new
        given = linear(features, self.memory.weight_ih, self.memory.bias_ih)
        given_gates, given_new = (part.unbind() for part in torch.split(given, sizes, -1))
        goes_on = (~done).to(given.dtype).unsqueeze(-1)
        on_host = done.device.type == "cpu"
        some_done = done.any(1).tolist() if on_host else [True] * len(done)  # elsewhere, the host would have to wait
        state = state.to(given.dtype)
        states = []
        for t in range(len(features)):
            if t and some_done[t]:
                state = state * goes_on[t]
            kept = linear(state, self.memory.weight_hh, self.memory.bias_hh)
            kept_gates, kept_new = torch.split(kept, sizes, -1)
            reset, keep = torch.sigmoid(given_gates[t] + kept_gates).chunk(2, -1)
            state = torch.lerp(torch.tanh(torch.addcmul(given_new[t], reset, kept_new)), state, keep)
            states.append(state)
        return torch.stack(states)
