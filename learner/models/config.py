"""A policy's architecture, as data, and its observations of an environment.

Nothing here imports PyTorch: an actor reads it to learn whether its policy needs that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from envs.api import EnvSpec
from envs.api import Field as Observed
from envs.config import Part
from learner.models.language.prompt import PromptConfig

LANGUAGE_MODEL = "language_model"
HISTORY = "history"
"""The observation field with the observations and actions of an episode's last steps in words, as texts, oldest first:
observation 1, action 1, observation 2, action 2; "" before the episode's first step."""
CANDIDATES = "candidates"
"""The observation field, a set of texts, of envs whose actions differ between states; "" fills empty places."""


class LanguageModelConfig(Part):
    """The language model that acts."""

    folder: str = "tiny-t5"
    """A Hugging Face folder on this machine; or `tiny-t5` or `tiny-llama`, which are made here in seconds; or
    `tiny-t5-reader`, which takes minutes once, and needs a third of the episodes (`llm_service/tiny.py`); or `minilm`,
    the encoder of 22 M parameters that is installed with the package."""
    pretrained: Literal["all", "embeddings", "none"] = "all"
    """Which of its weights are loaded; the others are initialised randomly, from the seed."""
    head: Literal["scores", "actions", "similarity", "generated"] = "scores"
    """`scores`: the logit of an action is the log-probability of its name. `actions`: a separate layer computes
    them. `similarity`, for encoders: the cosine of prompt and name, both encoded, divided by a learned temperature.
    `generated`: the model writes an answer, token by token, and the action is found in it: the answer is a name, or
    any text, then `Act:`, then a name. If there is none, a uniformly random action is taken."""
    answer_tokens: int = Field(default=16, ge=1, le=4096)
    """`generated`: maximum tokens of an answer, its end included; a longer one is cut."""
    normalise: Literal["none", "tokens", "compat"] = "none"
    """`scores`: `tokens` divides a score by its number of tokens. `compat`: sums of raw logits, with 1 for each token
    that a name is shorter than the longest, as published."""
    temperature: float = Field(default=1.0, gt=0)
    """`scores`: divisor of log-probabilities before the softmax over actions; `similarity`: that of cosines to begin
    with. `generated`: divisor of the logits of each token, when it is drawn and in its log-probability."""
    tune: Literal["all", "lora", "none"] = "all"
    """What is trained besides the heads: all weights, low-rank adapters (Hu et al. 2021), or nothing."""
    lora_rank: int = Field(default=16, ge=1)
    """Rank of the adapters."""
    lora_alpha: float = Field(default=32.0, gt=0)
    """Scale of the adapters: their product is multiplied by this divided by the rank."""
    lora_targets: list[str] = Field(default=[])
    """Names of the layers that get adapters; empty: queries and values, or the usual layers of the family."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the model; weights that are trained are kept in float32 either way. `auto`: bfloat16 on a GPU,
    float32 elsewhere."""
    checkpointing: bool = False
    """Keep only activations between layers for the backward pass and recompute the rest: less memory, more time."""
    critic: int = Field(default=128, ge=1)
    """Width of the two layers before the value, and before the logits of `head=actions`."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto`: a GPU if there is one."""
    budget: int = Field(default=0, ge=0)
    """Tokens that are computed at once, padding included; 0: as is best on CPU; on a GPU as many as memory is free for
    when the policy is made, 32,768 at most (`learner/models/language/memory.py`)."""
    context: int = Field(default=0, ge=0)
    """Longest prompt with an action, in tokens; 0: the model's own limit."""
    action_tokens: int = Field(default=16, ge=1)
    """Maximum tokens of an action's name."""
    placement: Literal["local", "server"] = "local"
    """`local`: every actor has a copy of the model. `server`: one role has it, and answers actors in batches."""
    newest: bool = False
    """`server`: answer with the newest weights, so that they may change within a chunk and an episode; each step is
    recorded with its version. False: a chunk is played with the weights that it began with."""


class PolicyConfig(Part):
    """The policy network."""

    network: str = "film"
    """Module of `learner/models/networks` that encodes observations: `film` (grid + mission), `mlp` (everything
    flattened), `texts` (several texts, pictures, numbers), `resnet` (the same, with a deeper encoder of pictures),
    `drrn` (texts in their order, and names of actions), `language_model` (a prompt, see `prompt` and `lm`)."""
    reads: list[str] = Field(default=[])
    """Observation fields that the policy reads; empty: all that are not privileged. `[mission,caption]` makes a
    text-only policy."""
    stack: int = 1
    """DQN: number of an episode's last pictures that the policy sees at once, instead of only the last one."""
    memory: Literal["none", "gru"] = "none"
    """`gru` gives the policy a recurrent state; `none` reacts to the current observation only."""
    hidden: int = 128
    """Width of the features, and of the recurrent state."""
    channels: list[Annotated[int, Field(ge=1)]] = Field(default=[16, 32, 32], min_length=1)
    """`resnet`: width of each stage, which halves the sides of a picture. Time grows with the square of the width, and
    the first stage takes half of it."""
    patch: int = Field(default=0, ge=0)
    """`resnet`: side in pixels of the squares that the first convolution reads, side by side, instead of halving sides
    stage by stage: the cells of a world that is drawn on a grid (Crafter: 7). 0: halving."""
    text: Literal["learned", "gru", "minilm"] = "learned"
    """How texts are encoded: by windows of three words or word by word, both trained with the policy, or by frozen
    MiniLM embeddings and a projection."""
    head: Literal["actor_critic", "dueling"] = "actor_critic"
    """Outputs computed from the features: logits and a value, or the values of all actions (`learner/models/q.py`;
    `drrn` has its own head for these)."""
    atoms: int = 1
    """`dueling`: 1 learns an action's value; more (51, say): the distribution of its return over this many atoms."""
    v_min: float = -10.0
    """Smallest atom."""
    v_max: float = 10.0
    """Largest atom."""
    prompt: PromptConfig = PromptConfig()
    """A language model's prompt for a state. `drrn` uses `observation` and `observations`."""
    lm: LanguageModelConfig = LanguageModelConfig()
    """The language model that acts, for `network=language_model`."""


def visible(config: PolicyConfig, spec: EnvSpec) -> EnvSpec:
    """`spec` with only the fields that the policy reads, without privileged ones.

    Raises:
        ValueError: a field that is missing or privileged; or a stack of pictures without pictures.
    """
    missing = [name for name in config.reads if name not in spec.fields]
    if missing:
        raise ValueError(
            f"policy.reads names {missing[0]!r}, but {spec.id} observes {', '.join(spec.fields)}"
            + {
                "caption": " (env.captions=true adds caption)",
                HISTORY: " (drrn has it for policy.prompt.observations above 1)",
            }.get(missing[0], "")
        )
    if hidden := [name for name in config.reads if spec.fields[name].privileged]:
        raise ValueError(f"policy.reads names {hidden[0]!r}, which is privileged in {spec.id}: leave it out")
    read = config.reads or spec.fields
    fields = {n: f for n, f in spec.fields.items() if n in read and not f.privileged}
    if config.stack > 1 and all(field.kind != "pixels" for field in fields.values()):
        raise ValueError(f"policy.stack={config.stack} is for pictures, but the policy sees {', '.join(fields)}")
    return dataclasses.replace(spec, fields=fields)


def with_head_of(config: PolicyConfig, weights: Iterable[str]) -> PolicyConfig:
    """The policy for weights with these names: `config`, but with their head. So a policy trained by PPO can guide one
    that learns action values."""
    acts = any(name.startswith("actor.") for name in weights)
    return config.model_copy(update={"head": "actor_critic" if acts else "dueling"})


def read_fields(config: PolicyConfig, spec: EnvSpec) -> dict[str, Observed]:
    """The observation fields in prompts."""
    read = {config.prompt.goal, *config.prompt.observation, HISTORY, CANDIDATES}
    return {name: field for name, field in spec.fields.items() if name in read}


def fields_of(config: PolicyConfig, spec: EnvSpec) -> dict[str, Observed]:
    """The observation fields that a policy of this configuration reads."""
    if config.network == LANGUAGE_MODEL:
        return read_fields(config, spec)
    return visible(config, spec).fields


def remembers(config: PolicyConfig) -> bool:
    """Whether a policy gets earlier observations."""
    told = config.network == LANGUAGE_MODEL or (
        config.network == "drrn" and (not config.reads or HISTORY in config.reads)
    )
    return told and config.prompt.observations > 1


def remembered(config: PolicyConfig, spec: EnvSpec) -> EnvSpec:
    """A policy's observations, with `HISTORY` if it gets that. Then the names of the actions are words, too."""
    if not remembers(config):
        return spec
    prompt = config.prompt
    width = len(prompt.observation) + 1  # the texts of one observation, and the action
    history = Observed("text", ((prompt.observations - 1) * width,))
    words = {*spec.words, *" ".join(spec.action_names).lower().split()}
    return dataclasses.replace(spec, fields=spec.fields | {HISTORY: history}, words=tuple(sorted(words)))
