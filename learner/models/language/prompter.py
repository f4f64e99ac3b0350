"""From the texts of a state to a question for a language model: its prompt, and the names of its actions, as token ids.

    obs (rows of texts) ──> goal, what is seen, what was seen and done ──> Prompt ──> token ids
                        └─> names of the actions, the same always or those of the state ──> token ids

It needs a tokenizer and no model, so that an actor whose model is elsewhere asks the same as one that has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from envs.api import EnvSpec
from learner.models.config import CANDIDATES, HISTORY, PolicyConfig, read_fields
from learner.models.language import written
from learner.models.language.prompt import Prompt, State
from llm_service.scoring.tokens import Boundary
from llm_service.scoring.trie import Tokens

Rows = Mapping[str, NDArray[np.integer]]


class Texts(Protocol):
    """Strings by number: a list, or an env's table."""

    def __getitem__(self, row: int, /) -> str: ...


class Asked(NamedTuple):
    """A question about a state."""

    prompt: Tokens
    candidates: tuple[Tokens, ...]
    places: tuple[int, ...]  # which of the A actions the candidates are


class Prompter:
    """Asks about states.

    Args:
        spec: what the policy sees of the world, as `remembered` says.
        boundary: of the model's tokenizer.

    Attributes:
        fields: observation fields that a prompt is made of.
        size: A, the actions that there may be in a state.

    Raises:
        ValueError: an action has no name or another's name, or the tokenizer cannot be used.
    """

    hidden = 0

    def __init__(self, config: PolicyConfig, spec: EnvSpec, boundary: Boundary) -> None:
        check_names(spec.action_names)
        self.fields = read_fields(config, spec)
        self.text_fields = list(self.fields)
        self.names = spec.action_names
        self.size = self.fields[CANDIDATES].shape[0] if CANDIDATES in self.fields else len(self.names)
        self.prompt = Prompt(config.prompt, self.names, boundary)
        self._goal, self._observation = config.prompt.goal, list(config.prompt.observation)
        self._boundary, self._longest = boundary, config.lm.action_tokens
        self.end: Tokens = ()  # what a written answer ends with
        if config.lm.head == "generated":
            if boundary.tokenizer.eos_token_id is None:
                raise ValueError(
                    "policy.lm.head=generated needs a tokenizer with an end token, and this model's has none"
                )
            self.end, self._longest = (boundary.tokenizer.eos_token_id,), config.lm.answer_tokens
        self._known: dict[tuple[str, ...], tuple[Tokens, ...]] = {}

    def initial_state(self, n: int) -> None:
        """It remembers nothing: earlier observations are part of an observation."""

    def ask(self, obs: Rows, texts: Texts) -> list[Asked]:
        """The questions about B states.

        obs: integers [B] or [B, K] by field, rows of `texts`.

        Raises:
            ValueError: the name of an action is too long, or one of a state's own actions has another's name.
        """
        return [self._one(obs, row, texts) for row in range(len(next(iter(obs.values()))))]

    def read(self, answers: Sequence[Tokens], asked: Sequence[Asked]) -> list[int | None]:
        """The actions that B written answers name; None where there is none."""
        found = []
        for answer, (_, candidates, places) in zip(answers, asked, strict=True):
            names = [self.text(name) for name in candidates]
            place = written.action(self.text(answer), names)
            found.append(None if place is None else places[place])
        return found

    def text(self, tokens: Tokens) -> str:
        """What was written, for people."""
        return str(self._boundary.tokenizer.decode(tokens, skip_special_tokens=True)).strip()

    def within(self, config: PolicyConfig, spec: EnvSpec) -> Prompter:
        """One that asks the same model about another world, or in other words."""
        return Prompter(config, spec, self._boundary)

    def told(self, obs: Rows, row: int, texts: Texts) -> tuple[str, dict[str, int]]:
        """For people: the prompt of one of B states, and which of the A actions is meant by each name in it."""
        state, places = self._state(obs, row, texts)
        variant = self.prompt.variant_of(state)
        names = self.prompt.candidates(state.actions, variant)
        return self.prompt.text(state, variant), dict(zip(names, places, strict=True))

    def _one(self, obs: Rows, row: int, texts: Texts) -> Asked:
        state, places = self._state(obs, row, texts)
        variant = self.prompt.variant_of(state)
        names = self.tokens_of(self.prompt.candidates(state.actions, variant))
        return Asked(self.prompt.tokens(state, variant), names, places)

    def _state(self, obs: Rows, row: int, texts: Texts) -> tuple[State, tuple[int, ...]]:
        """What is told of one of B states, and the places of its actions."""
        goal = texts[int(obs[self._goal][row])] if self._goal in obs else ""
        seen = [texts[int(obs[name][row])] for name in self._observation]
        earlier = [texts[i] for i in obs[HISTORY][row].tolist()] if HISTORY in obs else []
        names, places = self.names, tuple(range(len(self.names)))
        if CANDIDATES in obs:
            told = [texts[i] for i in obs[CANDIDATES][row].tolist()]
            places = tuple(place for place, name in enumerate(told) if name)
            names = tuple(told[place] for place in places)
        return State(goal, seen, earlier, names), places

    def tokens_of(self, names: tuple[str, ...]) -> tuple[Tokens, ...]:
        """Token ids of the names of a state's actions; ValueError as `ask`."""
        if names not in self._known:
            check_names(names)
            found = tuple(name + self.end for name in self._boundary.candidates(names, self.prompt.ending))
            for name, tokens in zip(names, found, strict=True):
                if len(tokens) > self._longest:
                    key = "answer_tokens" if self.end else "action_tokens"
                    raise ValueError(
                        f"action {name!r} has {len(tokens)} tokens, more than policy.lm.{key}={self._longest}: "
                        "give it a shorter name or raise the limit"
                    )
            if len(set(found)) < len(found):
                raise ValueError(f"two of the actions {', '.join(names)} are the same tokens to the model: rename one")
            self._known[names] = found
        return self._known[names]


def check_names(names: tuple[str, ...]) -> None:
    """ValueError if an action's name is empty, or there twice."""
    if not names or not all(name.strip() for name in names):
        raise ValueError(f"an action without a name cannot be scored: the actions are {', '.join(map(repr, names))}")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two actions of one name cannot be told apart: {twice[0]!r} is there twice")
