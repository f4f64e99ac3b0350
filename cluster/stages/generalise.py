"""The engine of a generalise stage: one trained policy, the same held-out seeds, many cases.

    run's configuration ── overrides of a case ──> other env, other prompts ┐
                                                                            ├──> idle actors ──> success, difference
    weights, loaded once ───────────────────────────────────────────────────┘

The actors stay the same: a case is an argument of `RolloutActor.evaluate`, and all cases are in one queue. A case that
a run cannot play (no French in its environment, no further action in its head) is listed with the reason.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

import envs
from actors import ActorSetup, wrappers
from cluster.config import limits
from cluster.config import tree as configuration
from cluster.config.cases import CASES, UNCHANGED, Case
from cluster.config.tree import Config
from cluster.metrics.statistics import Estimate, bootstrap_mean, newcombe
from cluster.metrics.statistics import difference as between
from cluster.runs.stage import Outcome
from cluster.stages._shared.evaluation import ActingStage, Evaluation, play_all, results
from envs.api import EnvSpec, Episodes
from learner.group import Weights
from learner.models.language.prompt import PromptConfig
from learner.parts import GeneraliseConfig
from llm_service.errors import UsageError

Table = dict[str, Any]
NO_LEVELS = ("captions", "fix_captions", "language", "actions", "idle_actions")
"""Options of environments that do not change their levels."""


class Engine(ActingStage):
    """Evaluates a trained policy under changed conditions."""

    again: ClassVar[bool] = True

    def run(self) -> Outcome | None:
        weights = self.given.weights(self.stage)
        table = self.play(weights)
        if table is None:
            return None
        self.folder.write_json(self.place / "results.json", table)
        counts = {"episodes": self.config.method.part(GeneraliseConfig).episodes}
        return Outcome(counts, weights, lines=(line(self.stage.name, table),))

    @classmethod
    def memory(cls, config: Config) -> int:
        return super().memory(config) + limits.EPISODE * config.method.part(GeneraliseConfig).episodes

    def play(self, weights: Weights | None) -> Table | None:
        """Play all cases. Returns the content of `results.json`; None if the run was asked to stop."""
        config, setup, asked = (
            self.config,
            self.given.actor_setup(self.stage),
            self.config.method.part(GeneraliseConfig),
        )
        played, chance = dict[str, Evaluation](), dict[str, Evaluation]()
        places, reasons = dict[str, Config](), dict[str, str]()
        for case in (cases := chosen(config)):
            try:
                there = places[case.name] = resolve(config, case)
            except UsageError as reason:
                reasons[case.name] = str(reason)
                continue
            played[case.name] = self._evaluation(setup, there, "policy")
            if asked.baselines and world(there) not in chance:
                chance[world(there)] = self._evaluation(setup, there, "random")
        self.progress.note(
            f"{len(played)} cases of {asked.episodes} episodes, and {len(chance)} environments at random"
        )
        if not play_all(self.given, setup, weights, [*played.values(), *chance.values()]):
            return None
        rows, score = [], self.config.spec.score
        for case in cases:
            row: Table = {"name": case.name, "about": case.about, "words": list(case.words)}
            if case.name in reasons:
                rows.append(row | {"reason": reasons[case.name]})
                continue
            there, episodes = places[case.name], played[case.name].episodes
            row |= {"env": there.env.id} | results(episodes, there.spec)
            if case.name != UNCHANGED:
                same = levels(there) == levels(config)
                row["difference"] = difference(played[UNCHANGED].episodes, episodes, same, score)
            if world(there) in chance:
                row["random"] = results(chance[world(there)].episodes, there.spec)["return" if score else "success"]
            rows.append(row)
        return {"env": config.env.id, "greedy": config.evaluate.greedy, "score": score, "cases": rows}

    def _evaluation(self, setup: ActorSetup, there: Config, player: str) -> Evaluation:
        config = self.config
        seeds = envs.HELD_OUT_FIRST + np.arange(config.method.part(GeneraliseConfig).episodes)
        elsewhere = replace(
            setup,
            env_id=there.env.id,
            env_options=there.env.options,
            spec=there.spec,
            policy=there.policy,
            wrappers=wrappers.chosen(there),
        )
        return Evaluation(None, 0, 0, seeds, config.evaluate.greedy, player, elsewhere=elsewhere)


def line(stage: str, table: Table) -> str:
    """What a finished stage prints."""
    score, played = table["score"], [row for row in table["cases"] if "success" in row]
    found = [f"{row['return']['mean']:.2f}" if score else f"{row['success']['rate']:.1%}" for row in played]
    words = ", ".join(f"{row['name']} {value}" for row, value in zip(played, found, strict=True))
    return f"{stage}: {words}{f' {score} an episode' if score else ''}"


def chosen(config: Config) -> list[Case]:
    """The cases that a run plays, in the order of the report; `unchanged` is always one."""
    names = config.method.part(GeneraliseConfig).cases
    return [case for case in CASES.values() if not names or case.name in names or case.name == UNCHANGED]


def resolve(config: Config, case: Case) -> Config:
    """The run's configuration in a case.

    Raises:
        UsageError: the case does not apply to this run; one sentence.
    """
    if not case.words:
        return config
    there = configuration.update(config, list(case.words))
    if there.env.id.partition("/")[0] != config.env.id.partition("/")[0]:
        raise UsageError(f"{there.env.id} is of another family of environments than {config.env.id}")
    if _told(there) == _told(config):
        raise UsageError("the run was trained this way: this is no change")
    here, names = config.spec.action_names, there.spec.action_names
    if config.policy.lm.head == "actions" and len(here) != len(names):
        raise UsageError(f"policy.lm.head=actions has logits for {len(here)} actions, but this case has {len(names)}")
    return there


def levels(config: Config) -> str:
    """Key of environments in which a seed gives the same levels; wordings and action names do not matter."""
    options = {name: value for name, value in config.env.options.items() if name not in NO_LEVELS}
    return json.dumps([config.env.id, options], sort_keys=True)


def world(config: Config) -> str:
    """Key of environments that are the same for a random player."""
    return f"{levels(config)}, {len(config.spec.action_names)} actions"


def difference(before: Episodes, after: Episodes, same: bool, score: str = "") -> Table:
    """Success after a change less that before it (the return, where a `score` says more), with its 95 % interval.

    same: the seeds give the same levels, so differences are taken level by level and bootstrapped. Otherwise the two
    are independent, and the interval is Newcombe's for rates; for returns it combines both intervals. These are also
    used if all differences are equal, because resamples of equal numbers have no spread.
    """
    first, second = ((e.total if score else e.success).astype(np.float64) for e in (before, after))
    if same and np.ptp(second - first) > 0:
        low, high = bootstrap_mean(second - first)
    elif score:
        apart = between(*(Estimate(float(of.mean()), *bootstrap_mean(of)) for of in (first, second)))
        low, high = apart.low, apart.high
    else:
        low, high = newcombe(float(first.sum()), len(first), float(second.sum()), len(second))
    return {"value": float(second.mean() - first.mean()), "low": low, "high": high, "paired": same}


def _told(config: Config) -> tuple[EnvSpec, PromptConfig]:
    """The prompts of an evaluation, without the variations of training."""
    return config.spec, config.policy.prompt.model_copy(update={"synonyms": 0.0, "paraphrase": 0.0})
