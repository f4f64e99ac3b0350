"""GLAM: a language model grounded in an environment by online PPO (Carta et al. 2023, arXiv 2302.02662).

    train ──> evaluate ──> generalise

| paper | here |
|---|---|
| section 3.1: prompts of goal, observations, actions | `policy.prompt`; `learner/models/language/prompt.py` |
| 3.2: the policy is a softmax over scores of actions' names | `policy.lm`; `learner/models/language/llm_policy.py` |
| 3.2: value head on the model's state before the first word | the same |
| 3.3: PPO, updates spread over copies of the model | `learner`; `learner/algorithms/ppo` |
| 4: AFlan, NPAE, NPA, NPE | `policy.lm.head`, `policy.lm.pretrained` |
| 5: other words, actions, tasks, French | stage `generalise`; `cluster/config/cases.py` |
| the policy's behaviour in selected states | `learner/models/language/probes.py`, in every row of metrics |
| 4.4: behavioural cloning | `method=cloning`, and `from=run:NAME/fit` to go on from there |
"""

from __future__ import annotations

from typing import Literal

from envs.api import EnvSpec
from learner.config import Configuration
from learner.methods import Stage, TrainingConfig, ppo


class Config(TrainingConfig):
    """Options of training by acting; GLAM also uses `policy.prompt`, `policy.lm` and `learner`."""

    name: Literal["glam"] = "glam"
    """The module of `learner/methods`."""


def stages(config: Configuration) -> list[Stage]:
    return [Stage("train", "train"), Stage("evaluate", "evaluate"), Stage("generalise", "generalise")]


def check(config: Configuration, spec: EnvSpec) -> None:
    """GLAM has PPO's requirements, and needs a language model as the policy with some trainable weights."""
    ppo.check(config, spec)
    policy = config.policy
    if policy.network != "language_model":
        raise ValueError(f"method glam needs policy.network=language_model, got {policy.network}")
    if policy.lm.head != "actions" and policy.lm.tune == "none":
        raise ValueError(
            "policy.lm.tune=none leaves nothing to train of spelt actions: use tune=lora or all, or head=actions"
        )
