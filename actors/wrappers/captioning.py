"""Captions that a network predicts from pictures, and captions with mistakes, in place of the environment's own.

    pictures ── captioner ──> facts, events ──┐
    facts and events of the environment ──────┴── noise ──> its own sentences ──> text fields, situations, events

All that reads or rewards captions stands outside of this wrapper, so it knows no others: the policy, the language model
that suggests goals, and the rewards for goals. What the environment itself counts and rewards stays true.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from actors.wrappers import Setting
from envs.api import FACTS, DenseEnv, EnvSpec, Observation, Transition, Wrapper
from envs.config import Part
from learner.captions import about
from learner.captions.about import PICTURE
from learner.captions.config import CaptioningConfig
from learner.captions.noise import disturbed
from learner.config import Configuration
from learner.files import sha256
from learner.store.shards import StoreError

if TYPE_CHECKING:
    from torch import Tensor

    from learner.captions.captioner import Captioner

after = ()
training_only = False


class Config(Part):
    """Captions, and the seed of their noise."""

    captioning: CaptioningConfig
    """Who makes them."""
    seed: int
    """The run's."""


def part(config: Configuration) -> Config | None:
    found = config.method.part(CaptioningConfig)
    return Config(captioning=found, seed=config.seed) if found.changed else None


def spec(config: Config, spec: EnvSpec) -> EnvSpec:
    """A policy's observations stay the same fields.

    Raises:
        ValueError: this environment makes no sentences of facts, or does not show what they are predicted from.
    """
    key = "captioner" if config.captioning.captioner else "noise"
    needed = PICTURE if config.captioning.captioner else FACTS
    if not spec.facts:
        raise ValueError(
            f"method.captioning.{key} needs an environment that makes captions of facts: {spec.id} does not"
        )
    if needed not in spec.fields:
        raise ValueError(f"method.captioning.{key} reads the field {needed}: add it to env.observe")
    if "around" in spec.fields:
        raise ValueError(f"method.captioning.{key} knows no distances and amounts: leave around out of env.observe")
    if config.captioning.captioner:
        try:
            about.assert_tells(about.read(Path(config.captioning.captioner)), spec)
        except StoreError as error:
            raise ValueError(f"method.captioning.captioner: {error}") from None
    return spec


def identity(config: Config) -> NDArray[np.uint8]:
    """Hash of everything that captions depend on: a run cannot continue with others."""
    told = inputs(config) | {"noise": config.captioning.noise, "seed": config.seed}
    return np.frombuffer(hashlib.sha256(json.dumps(told, sort_keys=True).encode()).digest(), np.uint8)


def inputs(config: Config) -> dict[str, str]:
    """The hash of the captioner's metadata, which includes that of its weights."""
    path = Path(config.captioning.captioner) / about.ABOUT
    return {"captioner": sha256(path)} if config.captioning.captioner else {}


def make(config: Config, env: DenseEnv, setting: Setting) -> Captioning:
    if not config.captioning.captioner:
        return Captioning(env, None, config)
    from learner.captions.captioner import Captioner  # here, because it brings PyTorch along

    return Captioning(env, Captioner.load(Path(config.captioning.captioner)), config)


class Captioning(Wrapper):
    """Sentences, situations and events from predicted or disturbed facts.

    Attributes:
        events: int32 [N], as `VectorEnv.events`.
    """

    def __init__(self, env: DenseEnv, captioner: Captioner | None, config: Config) -> None:
        super().__init__(env)
        self._captioner, self._noise, self._seed = captioner, config.captioning.noise, config.seed
        names = captioner.shape.events if captioner else []
        self._texts = np.array([env.texts.intern(name) for name in names] + [-1], np.int32)  # of events, and of none
        self._goals = np.array([env.texts.intern(name) for name in env.env_spec.goals], np.int32)
        self._codes: Tensor | None = None  # of the running states, for the captioner
        self._identity = identity(config)
        self._steps = 0  # that noise was drawn for
        self._situations = np.zeros(0, np.int32)
        self.events = np.full(env.num_envs, -1, np.int32)

    def begin(self, seeds: NDArray[np.int64] | None = None) -> Observation:
        self.events = np.full(self.num_envs, -1, np.int32)
        return self._observed(self.env.begin(seeds))

    def advance(self, actions: NDArray[Any]) -> Transition:
        transition, before = self.env.advance(actions), self._codes
        self._steps += 1
        transition.obs = self._observed(transition.obs)
        after, ended = self._codes, transition.final_index
        if len(ended):
            facts, codes = self._facts(transition.final_obs)
            told = self._told(facts, 1)
            transition.final_obs |= {name: ids for name, ids in told.items() if name in transition.final_obs}
            if after is not None and codes is not None:
                after = after.clone()
                after[ended.astype(np.int64)] = codes
        self.events = self._done(before, after)
        return transition

    def situations(self) -> NDArray[np.int32]:
        return self._situations

    def state(self) -> dict[str, NDArray[Any]]:
        return self.env.state() | self._named({"steps": np.array(self._steps), "identity": self._identity})

    def restore(self, state: dict[str, NDArray[Any]]) -> Observation:
        obs = self.env.restore(state)
        self._steps = int(self._own(state)["steps"])
        self.events = np.full(self.num_envs, -1, np.int32)
        return self._observed(obs)

    def _observed(self, obs: Observation) -> Observation:
        """An observation of all envs, in these words."""
        facts, self._codes = self._facts(obs)
        told = self._told(facts, 0)
        self._situations = told["situation"]
        return obs | {name: ids for name, ids in told.items() if name in obs}

    def _facts(self, obs: Observation) -> tuple[NDArray[np.int64], Tensor | None]:
        """Facts [n, F] of observations, and the captioner's codes of them."""
        return self._captioner.states(obs[PICTURE]) if self._captioner else (obs[FACTS].astype(np.int64), None)

    def _told(self, facts: NDArray[np.int64], stream: int) -> dict[str, NDArray[np.int32]]:
        """Text ids [n] of the sentences that facts make, after noise."""
        if self._noise:
            facts = disturbed(facts, self.env_spec.facts, self._noise, self._random(stream))
        told: dict[str, NDArray[np.int32]] = self.tell(facts)
        return told

    def _done(self, before: Tensor | None, after: Tensor | None) -> NDArray[np.int32]:
        """Text ids [N] of what was done in the last step, after noise."""
        done: NDArray[np.int32] = self.env.events
        if self._captioner is not None and before is not None and after is not None:
            done = self._texts[self._captioner.events(before, after)]
        if not self._noise:
            return done
        random = self._random(2)
        wrong, replaced, which = random.random((3, len(done)))
        number = (which * len(self._goals)).astype(np.int64)
        other = np.where(self._goals[number] == done, self._goals[number - 1], self._goals[number])
        changed: NDArray[np.int32] = np.where(replaced < 0.5, other, np.int32(-1))
        return np.where((done >= 0) & (wrong < self._noise), changed, done)

    def _random(self, stream: int) -> np.random.Generator:
        """Random numbers of this step, for one purpose."""
        return np.random.default_rng([self._seed, int(self.env_index[0]), self._steps, stream])
