"""A language model as the policy: it scores the names of the actions (Carta et al. 2023, arXiv 2302.02662, section 3).

    texts of a state ──> prompt ──> language model ──> log-probability of each action's name ──> softmax: the policy
                                                 └──> state before the first word of an answer ──> value

With `head=generated` it writes instead: tokens, in which an action is found (`written.py`).

    paper      head      pretrained                  paper      head      pretrained
    GFlan-T5   scores    all                         NPAE       actions   embeddings
    AFlan-T5   actions   all                         NPA        actions   none
    NPE        scores    embeddings

Any local Hugging Face folder: the T5 family, or decoder-only; or an encoder of BERT's family, whose policy is a softmax
over how alike the prompt and each action's name are (`head=similarity`), or has action heads. Dropout is off wherever
the policy acts or learns, so that PPO's ratio is 1 where nothing has changed. A prompt is computed once, however many
candidates follow it, forward and backward (`llm_service/scoring`); what is computed at a time is a micro-batch, and
gradients add up over them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from envs.api import EnvSpec
from learner.models.config import CANDIDATES, LanguageModelConfig, PolicyConfig
from learner.models.language import written
from learner.models.language.language_model import in_half, inspect, load, skeleton
from learner.models.language.memory import budget
from learner.models.language.prompt import State, check_prompt
from learner.models.language.prompter import Asked, Prompter, Rows, Texts, check_names
from learner.models.language.spelling import token_log_probs
from learner.models.policy import Policy
from learner.optim.device import read, send
from learner.optim.precision import arithmetic, whole
from llm_service.backends.transformers.folder import encodes
from llm_service.errors import ContextTooLong, UsageError
from llm_service.scoring.likeness import Likeness
from llm_service.scoring.scorer import Question, Scorer, Scores
from llm_service.scoring.trie import Tokens
from llm_service.scoring.writer import Writer

FORBIDDEN = np.float32(-1e30)
"""Logit of an action that a state does not have: its probability is exactly 0, and so is its gradient."""
COLDEST = 0.01
"""Least temperature that is learned: a logit is at most 100 (Radford et al. 2021, section 2.5)."""


class Parts(nn.Module):
    """A language model, as loaded or without numbers, and its heads: what a policy of A actions has weights of."""

    def __init__(self, model: Any, lm: LanguageModelConfig, actions: int) -> None:
        super().__init__()
        self.lm, self.model = lm, model
        width = model.config.get_text_config().hidden_size  # T5 calls it d_model, and has this name, too
        self.value_head = _layers(width, lm.critic, 1, 1.0)
        self.action_head = _layers(width, lm.critic, actions, 0.01) if lm.head == "actions" else None
        self.log_temperature = (
            nn.Parameter(torch.tensor([math.log(lm.temperature)])) if lm.head == "similarity" else None
        )

    @property
    def value_layer(self) -> nn.Linear:
        """The critic's last."""
        layer = self.value_head[-1]
        assert isinstance(layer, nn.Linear)
        return layer

    def payload(self) -> dict[str, Tensor]:
        """What is trained, by name: all that travels from learner to actors and is saved."""
        return {name: p.detach() for name, p in self.named_parameters() if p.requires_grad}


def parts_without_numbers(config: PolicyConfig, spec: EnvSpec) -> Parts:
    """What a policy's weights are of, to see whether some fit, in no time and no memory."""
    model = skeleton(config.lm)  # a tiny model that is not there yet is made first, with numbers
    with torch.device("meta"):
        return Parts(model, config.lm, len(spec.action_names))


class LanguagePolicy(Parts):
    """Acts and judges in a space of A actions that have names. A state is the texts of its observation."""

    memory = frames = q = text = None

    def __init__(self, config: PolicyConfig, spec: EnvSpec, seed: int) -> None:
        """`spec` is what the policy sees, as `remembered` says; `seed` is that of the weights that are not loaded.

        Raises:
            ValueError, UsageError: the model, its adapters or the actions do not fit; one sentence.
        """
        lm = config.lm
        model, tokenizer = load(lm, seed)
        super().__init__(model, lm, len(spec.action_names))
        self.in_half, self.generated = in_half(lm), lm.head == "generated"
        self._temperature = 1.0 if self.generated else lm.temperature  # of names; that of tokens is the scorer's
        context, tokens = lm.context or None, lm.budget or budget(model, self.in_half, lm.checkpointing)
        self.scorer: Scorer | Likeness
        if encodes(model.config):
            self.scorer = Likeness(model, tokenizer, context=context, budget=tokens)
        else:
            self.scorer = Scorer(
                model,
                tokenizer,
                context=context,
                budget=tokens,
                remember=0,
                raw=lm.normalise == "compat",
                temperature=lm.temperature if self.generated else 1.0,
            )
        assert self.scorer.boundary is not None
        self.prompter = Prompter(config, spec, self.scorer.boundary)
        end = self.prompter.end
        self.writer = Writer(self.model, end[0], lm.temperature, lm.answer_tokens) if end else None
        self.fields, self.text_fields = self.prompter.fields, self.prompter.text_fields
        self.hidden = self.prompter.hidden
        self.to(self.device)
        self.train(lm.checkpointing)  # there is no dropout to tell the two apart

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        device: torch.device = self.model.device
        return device

    def rounded(self) -> frozenset[str]:
        """Weights that may travel in bfloat16, because whoever acts rounds them before it multiplies: matrices of the
        model's linear layers that no other kind of layer shares. Empty if acting is in float32."""
        if not self.in_half or (self.lm.placement != "server" and self.lm.precision != "bfloat16"):
            return frozenset()  # actors have no GPU, on which alone `auto` is bfloat16
        linear, others = set[int](), set[int]()
        for module in self.model.modules():
            own = linear if type(module) is nn.Linear else others
            own.update(id(parameter) for parameter in module.parameters(recurse=False) if parameter.ndim == 2)
        named = self.model.named_parameters()
        return frozenset(f"model.{name}" for name, parameter in named if id(parameter) in linear - others)

    def prepare(self, texts: Sequence[str]) -> list[str]:
        """Texts as `pieces` takes them."""
        return list(texts)

    def inputs(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Observations as they are: rows of texts."""
        return dict(obs)

    def initial_state(self, n: int) -> None:
        """It remembers nothing: earlier observations are part of an observation."""

    def pieces(self, obs: Rows, texts: Texts) -> Iterator[tuple[NDArray[np.int64], Tensor, Tensor]]:
        """Micro-batches of B states: which they are [b], logits [b, A] and values [b], float32, where the model is.
        `head=generated`: a logit is the log-probability of writing an action's name, its end, and nothing else.

        Gradients flow where they are on.

        obs: integers [B] or [B, K] by field, rows of `texts`.

        Raises:
            UsageError: a prompt does not fit the model, before anything is computed.
        """
        for rows, logits, value, _ in self._answers(self.prompter.ask(obs, texts)):
            yield rows, logits, value

    def spelt(
        self, obs: Rows, texts: Texts, action: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], Tensor, Tensor, Tensor]]:
        """`pieces`, and the log-probability of each token of the name of `action` [B]: [b, L], 0 where it is over.

        They are probabilities among the names of a state's actions (`spelling.py`), and add up to the action's.
        """
        asked = self.prompter.ask(obs, texts)
        for rows, logits, value, _ in self._answers(asked):
            own = [asked[row] for row in rows.tolist()]
            yield rows, logits, value, token_log_probs(logits, own, action[rows].tolist())

    def written(
        self, obs: Rows, texts: Texts, tokens: NDArray[np.integer]
    ) -> Iterator[tuple[NDArray[np.int64], Tensor, Tensor, Tensor]]:
        """Micro-batches of B states in which `tokens` [B, L] were written, -1 after their ends.

        Yields:
            Which they are [b], values [b], and, each [b, L'] and 0 after an answer's end, log-probabilities of the
            tokens and entropies in nats of the distributions that they were drawn from. Gradients flow where they are
            on.
        """
        asked, answers = self.prompter.ask(obs, texts), written.answers(tokens)
        questions: list[Question] = [(asked[row].prompt, (answer,)) for row, answer in enumerate(answers)]
        for rows, found in self._computed(questions, entropies=True):
            with whole(self.device.type):
                value = self.value_head(found.states.float()).squeeze(-1)
            columns = [[each[0] for each in column] for column in (found.tokens, found.entropies)]
            spelt, spread = (nn.utils.rnn.pad_sequence(column, batch_first=True) for column in columns)
            yield np.array(rows, np.int64), value, spelt, spread

    @torch.no_grad()
    def write(
        self, asked: Sequence[Asked], random: NDArray[np.float32] | None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
        """Answers to questions about B states.

        Returns:
            Tokens [B, L], -1 after an answer's end, their log-probabilities [B, L], 0 there, and values [B].

        random: [B] in [0, 1), from each of which an answer is drawn; None: the most probable tokens.
        """
        assert self.writer is not None
        most, prompts = self.writer.most, [question.prompt for question in asked]
        with arithmetic(self.in_half, self.device.type):
            answers = self.writer.write(prompts, None if random is None else written.uniforms(random, most))
        questions: list[Question] = [(prompt, (answer,)) for prompt, answer in zip(prompts, answers, strict=True)]
        log_prob, values = np.zeros((len(asked), most), np.float32), np.zeros(len(asked), np.float32)
        for rows, found in self._computed(questions):
            for row, each in zip(rows, found.tokens, strict=True):
                log_prob[row, : each.shape[1]] = read(each[0])
            with whole(self.device.type):
                values[rows] = read(self.value_head(found.states.float()).squeeze(-1))
        return written.padded(answers, most), log_prob, values

    def _answers(self, asked: Sequence[Asked]) -> Iterator[tuple[NDArray[np.int64], Tensor, Tensor, Sequence[Tensor]]]:
        """Of questions about B states: which [b], logits [b, A], values [b], and for each, its names' tokens [K, L]."""
        if self.action_head is not None:  # nothing is asked about a candidate; a model that writes needs a short one
            least = () if isinstance(self.scorer, Likeness) else ((0,),)
            questions: list[Question] = [(question.prompt, least) for question in asked]
        else:
            questions = [(question.prompt, question.candidates) for question in asked]
        width = self.width(asked)
        for rows, found in self._computed(questions):
            with whole(self.device.type):  # heads are float32
                states = found.states.float()
                if self.action_head is not None:
                    logits = self.action_head(states)
                else:
                    logits = self._side_by_side(found.scores, [asked[row] for row in rows], width)
                value = self.value_head(states).squeeze(-1)
            yield np.array(rows, np.int64), logits, value, found.tokens

    def decide(self, obs: Rows, texts: Texts) -> tuple[Tensor, Tensor]:
        """Logits [B, A] and values [B] of B states, on the CPU, without gradients."""
        return self.answer(self.prompter.ask(obs, texts))

    @torch.no_grad()
    def answer(self, asked: Sequence[Asked]) -> tuple[Tensor, Tensor]:
        """The same for questions about B states."""
        found = []
        with arithmetic(self.in_half, self.device.type):  # around all batches, so that weights are converted once
            for rows, some, value, _ in self._answers(asked):
                found.append((torch.from_numpy(rows), some, value))
        logits, values = torch.empty(len(asked), self.width(asked)), torch.empty(len(asked))
        for at, some, value in found:  # only now, lest the host wait for each batch
            logits[at], values[at] = torch.from_numpy(read(some)), torch.from_numpy(read(value))
        return logits, values

    def width(self, asked: Sequence[Asked]) -> int:
        """A: the actions of its world, or more where it is asked about one that has more."""
        return max([self.prompter.size, *(question.places[-1] + 1 for question in asked)])

    def _computed(self, questions: Sequence[Question], entropies: bool = False) -> Iterator[tuple[list[int], Scores]]:
        if isinstance(self.scorer, Likeness):
            batches = self.scorer.micro_batches(questions)
        else:
            normalise: Literal["tokens", "none"] = "tokens" if self.lm.normalise == "tokens" else "none"
            batches = self.scorer.micro_batches(questions, normalise, entropies)
        while True:
            try:
                # Around each batch alone: what its receiver does is not ours.
                with arithmetic(self.in_half, self.device.type):
                    batch = next(batches, None)
            except ContextTooLong as error:
                raise UsageError(
                    f"policy.prompt: {error}: tell fewer observations (policy.prompt.observations) or choose a model "
                    "with a longer context"
                ) from None
            if batch is None:
                return
            yield batch

    def _side_by_side(self, scores: Sequence[Tensor], asked: Sequence[Asked], size: int) -> Tensor:
        """Scores [K] of each state's actions -> logits [b, size]."""
        if self.lm.normalise == "compat":
            missing = np.concatenate([_missing(names) for _, names, _ in asked])
            summed = torch.cat(list(scores)) + send({"missing": missing}, self.device)["missing"]
            scores = torch.split(summed, [len(own) for own in scores])
        temperature: float | Tensor = self._temperature
        if self.log_temperature is not None:
            temperature = self.log_temperature.exp().clamp(min=COLDEST)
        if all(len(places) == size for _, _, places in asked):
            return torch.stack(list(scores)) / temperature
        scaled = torch.cat(list(scores)) / temperature  # in the temperature's precision, if it is learned
        logits = scaled.new_full((len(scores), size), float(FORBIDDEN))
        rows = [row for row, (_, _, places) in enumerate(asked) for _ in places]
        at = [place for _, _, places in asked for place in places]
        there = send({"rows": np.array(rows), "at": np.array(at)}, self.device)
        return logits.index_put((there["rows"], there["at"]), scaled)


AnyPolicy = Policy | LanguagePolicy


def check_language_policy(config: PolicyConfig, spec: EnvSpec) -> None:
    """Can a language model act in this world, whichever it is?

    Raises:
        ValueError: no; one sentence.
    """
    check_prompt(config.prompt, spec)
    lm = config.lm
    if lm.head == "actions" and CANDIDATES in spec.fields:
        raise ValueError(
            f"policy.lm.head=actions has a logit for each action, and those of {spec.id} differ: use head=scores"
        )
    if lm.head == "similarity" and lm.normalise != "none":
        raise ValueError(
            f"policy.lm.normalise={lm.normalise} is for sums of log-probabilities: head=similarity has none"
        )
    check_names(spec.action_names)
    if lm.head == "generated" and lm.normalise != "none":
        raise ValueError(
            f"policy.lm.normalise={lm.normalise} is for head=scores: head=generated draws tokens as they are"
        )
    if lm.head == "generated" and lm.placement == "server":
        raise ValueError(
            "policy.lm.head=generated needs policy.lm.placement=local: the policy server writes no answers"
        )


def check_model(config: PolicyConfig, spec: EnvSpec) -> None:
    """Is there such a model, and could it act in this world? Reads its folder, but no weights.

    Raises:
        ValueError, UsageError: no; one sentence.
    """
    prompter = Prompter(config, spec, inspect(config.lm))
    names = prompter.tokens_of(spec.action_names)
    least, context = len(prompter.prompt.tokens(State("", ()))) + max(map(len, names)), config.lm.context
    if context and least > context:
        raise UsageError(
            f"policy.prompt: the names of the actions alone need {least} tokens, policy.lm.context={context}"
        )
    if config.lm.tune == "lora":
        skeleton(config.lm)


def _missing(names: Sequence[Tokens]) -> NDArray[np.int64]:
    """How many tokens each name is shorter than the longest of its state, [K]."""
    lengths = np.array([len(name) for name in names])
    found: NDArray[np.int64] = lengths.max() - lengths
    return found


def _layers(width: int, hidden: int, out: int, gain: float) -> nn.Sequential:
    """The published head, with tanh for its sigmoids: a critic that begins on their flat part hardly learns.

    gain: of the last layer. What is small learns slowly, too: on the first two layers nothing depends.
    """
    first, second, last = nn.Linear(width, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, out)
    for layer, scale in ((first, 1.0), (second, 1.0), (last, gain)):
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), last)
