"""Prompts: what a language model is told of a state, as token ids (Carta et al. 2023, arXiv 2302.02662, section 3.1).

    Actions: turn left, turn right, go forward.     the same for all states of a world
    Task: go to the red ball.                       ... of an episode
    Saw: You see a wall 2 steps forward.            earlier observations and what was done then, oldest first
    Did: turn left.
    See: You see a red ball 1 step forward.         the present observation
    Do:                                             what follows is the action

in one line, with blanks between. What changes least comes first, so that states share the longest beginning. Every
piece is tokenised by itself and remembered: a prompt is some dictionary lookups and one joining of tuples. With
byte-level and SentencePiece tokenizers its tokens are those of the whole text.

Policies cling to the words that they were trained in: with other names of the actions the published agent falls by
87 %, in French by 99 %. Therefore prompts may be varied in training, the headings (`paraphrase`) and the names of
actions and things (`synonyms`). Which variant a state has follows from the state's own texts. Actor and learner need
not tell each other, a step that is computed again has the prompt that it had, and equal states have equal prompts.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Literal, NamedTuple

from pydantic import Field

from envs.api import EnvSpec
from envs.config import Part
from learner.models.language.rewording import TRAINING, rewording
from llm_service.scoring.tokens import Boundary
from llm_service.scoring.trie import Tokens

REMEMBERED = 8192
"""Pieces of prompts that are kept as tokens: at most some 40 MB."""


class PromptConfig(Part):
    """What a language model is told of a state."""

    goal: str = "mission"
    """The observation field that says what is to be done; empty: none does."""
    observation: list[str] = Field(default=["caption"])
    """The observation fields that say what is seen."""
    chat: bool = False
    """Put the prompt into a user's turn of the tokenizer's chat template; what follows is the assistant's turn."""
    observations: int = 3
    """How many of an episode's last observations are told, the present one included, with the actions between them."""
    language: Literal["en", "fr"] = "en"
    """Language of the prompt's own words; `env.language` is that of the world's."""
    paraphrase: float = 0.0
    """Training: share of states whose prompts have other headings."""
    synonyms: float = 0.0
    """Training: share of states whose prompts have other names for actions, things and colours."""
    reword: str = "none"
    """Evaluation: a published test of other words; `learner/models/language/rewording.py` has their names."""


class State(NamedTuple):
    """What is told of a state."""

    goal: str  # what is to be done; "" if nothing says so
    seen: Sequence[str]  # F texts, of the fields `PromptConfig.observation`
    earlier: Sequence[str] = ()  # of each earlier observation F texts and the action, oldest first; "" if there is none
    actions: Sequence[str] | None = None  # names of its actions; None: all


class Wording(NamedTuple):
    """The prompt's own words: headings of its parts."""

    actions: str
    goal: str
    earlier: str
    done: str
    present: str
    next: str


WORDINGS: dict[str, tuple[Wording, ...]] = {
    "en": (
        Wording("Actions:", "Task:", "Saw:", "Did:", "See:", "Do:"),
        Wording("You can:", "Your task:", "Before:", "You did:", "Now:", "Next:"),
        Wording("Choices:", "Mission:", "Earlier view:", "Chosen:", "Present view:", "Choice:"),
        Wording("Allowed:", "Aim:", "Past:", "Then:", "Present:", "Action:"),
        Wording("Commands:", "Order:", "What was seen:", "Command:", "What is seen:", "Command:"),
        Wording("Known deeds:", "Job:", "There was:", "Last deed:", "There is:", "Best deed:"),
        Wording("Possible:", "Wanted:", "Observed:", "Answer:", "Observation:", "Answer:"),
        Wording("What one can do:", "What must be done:", "First:", "What was done:", "At present:", "What to do:"),
    ),
    "fr": (
        Wording("Actions:", "Tâche:", "Vu:", "Fait:", "Vue:", "À faire:"),
        Wording("Tu peux:", "Ta tâche:", "Avant:", "Tu as fait:", "Maintenant:", "Ensuite:"),
        Wording("Choix:", "Mission:", "Vue passée:", "Choisi:", "Vue présente:", "Choix:"),
        Wording("Permis:", "Objectif:", "Passé:", "Puis:", "Présent:", "Action:"),
        Wording("Commandes:", "Ordre:", "Ce qui fut vu:", "Commande:", "Ce qui est vu:", "Commande:"),
        Wording("Gestes connus:", "Travail:", "Il y avait:", "Dernier geste:", "Il y a:", "Meilleur geste:"),
        Wording("Possible:", "Voulu:", "Observé:", "Réponse:", "Observation:", "Réponse:"),
        Wording("Ce qu'on peut faire:", "Ce qu'il faut faire:", "D'abord:", "Ce qui fut fait:", "À présent:", "Quoi:"),
    ),
}
"""By language: the plain one, then others, as many in each."""
_KINDS = len(WORDINGS["en"])


class Prompt:
    """Builds prompts.

    A variant is a number: `variant % 8` is the wording, the plain one first, and `variant // 8` the names, the plain
    ones (or those of `config.reword`) first. 0 is what is told outside of training.

    Args:
        config: what is told, and how.
        names: of the actions.
        boundary: of the model's tokenizer.

    Attributes:
        variants: how many there are.
        varied: whether `variant_of` varies; false for evaluation.

    Raises:
        ValueError: `config.reword` is not known, the tokenizer has no chat template for `config.chat`, or it writes a
            text otherwise between its special tokens.
    """

    variants = _KINDS * (1 + len(TRAINING))

    def __init__(self, config: PromptConfig, names: Sequence[str], boundary: Boundary) -> None:
        self.config, self.names, self.varied = config, tuple(names), True
        self._rewordings = (rewording(config.reword), *TRAINING)
        self._begin, self._end, self._blank = _habits(boundary)
        self.ending = ""  # the text that candidates follow, as far as it matters
        if config.chat:
            before, self.ending = _turns(boundary)
            self._begin, self._end = (boundary.prompt(text, special=False) for text in (before, self.ending))
        self._piece = lru_cache(REMEMBERED)(partial(boundary.prompt, special=False))
        self._known = lru_cache(REMEMBERED)(self._told)
        self._listed = lru_cache(1024)(self._names)

    def tokens(self, state: State, variant: int = 0) -> Tokens:
        """Token ids of a state's prompt, with the model's special tokens."""
        first, *others = self._pieces(state, variant)
        inside = [self._piece(self._blank + piece) for piece in others]
        return tuple(chain(self._begin, self._piece(first), *inside, self._end))

    def text(self, state: State, variant: int = 0) -> str:
        """The same for people."""
        return " ".join(self._pieces(state, variant))

    def candidates(self, actions: Sequence[str] | None = None, variant: int = 0) -> tuple[str, ...]:
        """What could follow the prompt: the names of the actions, in their order, as the prompt lists them."""
        return self._listed(self.names if actions is None else tuple(actions), variant // _KINDS)

    def variant_of(self, state: State) -> int:
        """The variant of a state in training. It depends on the texts and on nothing else."""
        config = self.config
        if not self.varied or not (config.paraphrase or config.synonyms):
            return 0
        digest = hashlib.blake2b("\n".join((state.goal, *state.seen, *state.earlier)).encode(), digest_size=16).digest()
        whether, which, whether_names, which_names = struct.unpack("<4I", digest)
        wording = 1 + which % (_KINDS - 1) if whether < config.paraphrase * 2**32 else 0
        names = 1 + which_names % len(TRAINING) if whether_names < config.synonyms * 2**32 else 0
        return wording + _KINDS * names

    def _pieces(self, state: State, variant: int) -> list[str]:
        """The prompt, cut where its parts change from state to state."""
        goal, seen, earlier, actions = state
        names, wording = variant // _KINDS, WORDINGS[self.config.language][variant % _KINDS]
        told, reworded = self._known, self._rewordings[names]
        pieces = [f"{wording.actions} {', '.join(self.candidates(actions, variant))}."]
        if goal:
            pieces += [reworded.goal.get(self.config.language, wording.goal), told(goal, names)]
        width = len(seen) + 1
        for start in range(0, len(earlier), width):
            *before, action = earlier[start : start + width]
            if action:
                pieces += [wording.earlier, *[told(text, names) for text in before if text]]
                pieces += [wording.done, f"{reworded.action(action)}."]
        return [*pieces, wording.present, *[told(text, names) for text in seen if text], wording.next]

    def _told(self, text: str, names: int) -> str:
        """A mission or observation, reworded, as sentences."""
        return f"{self._rewordings[names].text(text).strip().removesuffix('.')}."

    def _names(self, actions: tuple[str, ...], names: int) -> tuple[str, ...]:
        return tuple(map(self._rewordings[names].action, actions))


def check_prompt(config: PromptConfig, spec: EnvSpec) -> None:
    """Can prompts be made of this world?

    Raises:
        ValueError: no; one sentence.
    """
    key = "policy.prompt"
    if not config.observation:
        raise ValueError(f"{key}.observation is empty: name the fields that say what is seen, such as [caption]")
    for name in filter(None, (config.goal, *config.observation)):
        field = spec.fields.get(name)
        if field is None or field.kind != "text" or field.shape:
            texts = [known for known, field in spec.fields.items() if field.kind == "text" and not field.shape]
            raise ValueError(
                f"{key} tells the field {name!r}, which is no single text in {spec.id}"
                + (f": there are {', '.join(texts)}" if texts else ", nor is any other")
                + (" (env.captions=true adds caption)" if name == "caption" and spec.captioned else "")
            )
    if config.observations < 1:
        raise ValueError(f"{key}.observations must be at least 1, the present one: got {config.observations}")
    for share in ("paraphrase", "synonyms"):
        if not 0 <= getattr(config, share) <= 1:
            raise ValueError(f"{key}.{share} is a share of states, between 0 and 1: got {getattr(config, share)}")
    if config.reword != "none" and not rewording(config.reword).changes(spec.words, spec.action_names):
        raise ValueError(f"{key}.reword={config.reword} changes nothing: {spec.id} has none of its words or actions")
    if config.synonyms and not TRAINING[0].changes((), spec.action_names):  # French captions have English words, too
        raise ValueError(f"{key}.synonyms is for BabyAI in English: {spec.id} has none of its actions")


def _habits(boundary: Boundary) -> tuple[Tokens, Tokens, str]:
    """What a tokenizer puts before and after a text, and what a piece inside a text begins with.

    Byte-level words carry the blank before them ("Ġleft"); SentencePiece ("▁left") adds it by itself.
    """
    alone, whole = boundary.prompt("a", special=False), boundary.prompt("a")
    for start in range(len(whole) - len(alone) + 1):
        if alone and whole[start : start + len(alone)] == alone:
            own = boundary.tokenizer.convert_ids_to_tokens(alone[0]).startswith("▁")
            return whole[:start], whole[start + len(alone) :], "" if own else " "
    raise ValueError("the model's tokenizer writes a text otherwise when it adds special tokens: it cannot be prompted")


def _turns(boundary: Boundary) -> tuple[str, str]:
    """The text of a chat template before and after what a user says; the assistant's turn has begun."""
    tokenizer, said = boundary.tokenizer, "Actions: go."
    if not tokenizer.chat_template:
        raise ValueError("policy.prompt.chat=true needs a tokenizer with a chat template, and this model's has none")
    turns = [{"role": "user", "content": said}]
    whole = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    before, found, after = whole.partition(said)
    if not found:
        raise ValueError("policy.prompt.chat: the tokenizer's chat template does not show what the user says")
    return before, after
