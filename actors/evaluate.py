"""Evaluation: whole episodes on named seeds, each counted once, by a policy, a random player or the world's expert."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

import envs
from actors.film import Film
from actors.language import LanguagePlayer
from actors.language_policy import LanguageActing
from actors.mlp_policy import MLPActing
from actors.sampling import sample
from envs.api import DenseEnv, Episodes, Observation
from envs.config import Part
from learner.goals import COLUMN

if TYPE_CHECKING:
    from actors.acting import ActingPolicy

Acting: TypeAlias = "ActingPolicy | LanguageActing | MLPActing"
"""A policy at work, of whatever kind."""


class EvaluateConfig(Part):
    """Evaluation on frozen, held-out seeds."""

    episodes: int = 512
    """Episodes of the final evaluation, seeds `envs.HELD_OUT_FIRST + 0, 1, ...`."""
    greedy: bool = True
    """Take the most probable action; false samples."""
    every: int = 100_000
    """During training, evaluate after this many env steps on validation seeds (not the final ones); 0 never."""
    validation_episodes: int = 128
    """Episodes of each evaluation during training."""
    videos: int = 6
    """Episodes of the final evaluation that are recorded as animations."""
    beside: list[Literal["random", "expert"]] = Field(default=[])
    """Who else plays the episodes of the final evaluation, for comparison: random actions, the world's expert."""


VALIDATION_FIRST = envs.HELD_OUT_FIRST + 100_000_000
"""Seeds of evaluations during training: neither training's nor the final evaluation's."""


@dataclass
class Recording:
    """One animated episode."""

    seed: int
    mission: str
    success: bool
    total: float
    length: int
    gif: bytes


@dataclass
class Played:
    """What `play` yields: one row a seed, in the order of the seeds; recordings of the first few."""

    episodes: Episodes
    recordings: list[Recording] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)  # as `Summary.report`
    # Reward for goals, by episode.
    reached: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    # Of the first few episodes of a language model's policy, step by step: what it was told, and why it acted so.
    trajectories: list[list[dict[str, Any]]] = field(default_factory=list)


class PolicyPlayer:
    """Acts by a policy, greedily or by sampling with numbers that follow from the first seed."""

    def __init__(self, acting: Acting, greedy: bool) -> None:
        self.acting, self.greedy = acting, greedy

    def begin(self, env: DenseEnv, seeds: NDArray[np.int64]) -> None:
        self.acting = self.acting.play_in(env) if self.acting.env is not env else self.acting
        if isinstance(self.acting, LanguageActing):
            self.acting.varied = False
        self.memory = self.acting.initial_state(env.num_envs)
        self.random = np.random.default_rng(int(seeds[0]))

    def act(self, env: DenseEnv, obs: Observation) -> NDArray[Any]:
        self.logits, _, self.memory = self.acting.step(obs, self.memory)
        if self.greedy:
            best: NDArray[Any] = self.logits.argmax(-1)
            return best
        return sample(self.logits, self.random.random(len(self.logits), np.float32))[0]

    @property
    def explains(self) -> bool:
        """Whether people can read why it acts: whether it is told in words."""
        return isinstance(self.acting, LanguageActing)

    def reasons(self, obs: Observation, i: int, action: int) -> dict[str, Any]:
        """Of env i in the last `act`: the prompt, the probability of each action by name, and the one taken."""
        assert isinstance(self.acting, LanguageActing)
        return self.acting.reasons(obs, i, self.logits[i], action)

    def forget(self, index: NDArray[np.int32]) -> None:
        if self.memory is not None:
            self.memory[index] = 0


class RandomPlayer:
    """Acts uniformly."""

    def begin(self, env: DenseEnv, seeds: NDArray[np.int64]) -> None:
        self.random = np.random.default_rng(int(seeds[0]))

    def act(self, env: DenseEnv, obs: Observation) -> NDArray[Any]:
        return self.random.integers(len(env.env_spec.action_names), size=env.num_envs)

    def forget(self, index: NDArray[np.int32]) -> None:
        """Nothing is remembered."""


class ExpertPlayer:
    """Acts by the world's own planner."""

    def __init__(self, expert: Any) -> None:
        self.expert = expert

    def begin(self, env: DenseEnv, seeds: NDArray[np.int64]) -> None:
        """The expert looks at the env itself."""

    def act(self, env: DenseEnv, obs: Observation) -> NDArray[Any]:
        actions: NDArray[Any] = self.expert.act(env)
        return actions

    def forget(self, index: NDArray[np.int32]) -> None:
        """The expert notices new episodes by itself."""


Player = PolicyPlayer | RandomPlayer | ExpertPlayer | LanguagePlayer


def play(
    env: DenseEnv,
    player: Player,
    seeds: NDArray[np.int64],
    record: int = 0,
) -> Played:
    """Play the episodes of `seeds` [N] in the N envs, one each, and record the first `record`, if the world draws."""
    obs = env.begin(seeds)
    player.begin(env, seeds)
    explained: list[list[dict[str, Any]]] = []
    if isinstance(player, PolicyPlayer) and player.explains:
        reasons, explained = player.reasons, [[] for _ in range(record)]
    record = record if _can_be_drawn(env) else 0
    running = np.ones(env.num_envs, np.bool_)
    reached, nothing = np.zeros((2, env.num_envs), np.float32)
    finished: list[Episodes] = []
    films = [Film(_mission(env, obs, i), captioned=env.goals_of(i) is not None) for i in range(record)]
    for i, film in enumerate(films):
        film.add(env.frame(i), env.goals_of(i) or ())
    while running.any():
        action = player.act(env, obs)
        for i in np.flatnonzero(running[: len(explained)]).tolist():
            step = {"seed": int(seeds[i]), "step": len(explained[i])}
            explained[i].append(step | reasons(obs, i, int(action[i])))
        env.counted[:] = running
        t = env.advance(action)
        paid = t.rewards.get(COLUMN, nothing)
        reached += paid * running
        obs = t.obs
        first = running[t.final_index]  # later episodes of an env that is through do not count
        rows = {name: getattr(t.episodes, name)[first] for name in Episodes.__annotations__}
        finished.append(Episodes(**rows))
        running[t.final_index] = False
        player.forget(t.final_index)
        for i in np.flatnonzero(running[:record]).tolist():
            done = env.texts[int(env.events[i])] if paid[i] else ""
            films[i].add(env.frame(i), env.goals_of(i) or (), done)
    episodes = Episodes.concatenate(finished)
    order = np.argsort(episodes.env, kind="stable")
    episodes = Episodes(**{name: getattr(episodes, name)[order] for name in Episodes.__annotations__})
    recordings = [
        Recording(
            seed=int(seeds[i]),
            mission=films[i].mission,
            success=bool(episodes.success[i]),
            total=float(episodes.total[i]),
            length=int(episodes.length[i]),
            gif=films[i].gif(),
        )
        for i in range(record)
    ]
    return Played(episodes, recordings, env.report(), reached, explained)


def _can_be_drawn(env: DenseEnv) -> bool:
    try:
        env.frame(0)
    except LookupError:
        return False
    return True


def _mission(env: DenseEnv, obs: Observation, i: int) -> str:
    return env.texts[int(obs["mission"][i])] if "mission" in obs else env.env_spec.id
