"""The engine of a trials stage: unseen tasks, played repeatedly with fixed weights.

    stages/fit, stages/encoder ──> weights ──┐   (a frozen encoder has none)
    seeds x tasks ──> shares of whole seeds ─┴──> idle actors ──> stages/<stage>/returns.safetensors, results.json
                                                                  and of one row paths.safetensors

A share's memories grow with its trials, so one actor plays it from its first trial to its last, and reports its
progress about once a second. A share that was lost with its actor, or with the controller, is played again from its
first trial, which gives the same result. Finished shares are in `parts/` until all are finished; their names say what
they are from.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, ClassVar

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from actors.trial_player import PATH, TrialPlayer, TrialShare, TrialsSetup, Tried
from actors.trials import tasks_of
from cluster.config import limits
from cluster.config.tree import Config
from cluster.metrics.trials import PATHS, RETURN, RETURNS, retrieved, summary
from cluster.roles.drawing import Role, Topology
from cluster.runs.folder import RunError
from cluster.runs.stage import Outcome, StageEngine
from cluster.stages._shared.shares import play
from cluster.stages._shared.transformers import WEIGHTS, encoder_of, fitted_with, weights_of
from envs import registry
from envs.api import EnvSpec
from learner.context.config import ARMS, ENCODER, SPLITS, RetrieveConfig, SequenceConfig, TrialsConfig, options_of
from learner.files import sha256

FIT = "fit"
"""The stage whose weights are used."""


class Engine(StageEngine):
    """Plays trials with the weights of an earlier stage."""

    by_name: ClassVar[bool] = True
    again: ClassVar[bool] = True

    def run(self) -> Outcome | None:
        """Play the missing shares.

        Raises:
            RunError: weights are missing or have another configuration; the control has no other task.
            Superseded: a newer attempt has begun.
        """
        setup, inputs = self._setup()
        settings, parts = setup.config, self.place / "parts"
        parts.mkdir(parents=True, exist_ok=True)
        of = _digest(self.config, setup, inputs)
        names = {
            share: parts / f"{of}-{share.seeds[0]:05d}.safetensors" for share in shares_of(settings, len(setup.tasks))
        }

        def keep(share: TrialShare, tried: Tried) -> None:
            assert tried.arrays is not None, "they are recorded in the last trial"
            self.folder.write(names[share], safetensors.numpy.save(tried.arrays))

        whole = frozenset(share for share, path in names.items() if path.exists())
        if not play(self, setup, TrialPlayer, dict.fromkeys(names, 1), settings.trials, whole, keep):
            return None
        shares = [safetensors.numpy.load_file(path) for path in names.values()]
        lived = {name.removeprefix(PATH): shares[0].pop(name) for name in list(shares[0]) if name.startswith(PATH)}
        found = _joined(shares)
        memory = settings.memory if setup.looks else "none"
        about = {"env": self.config.env.id, "arm": self._arm, "memory": memory, "split": self._split(setup)}
        tasks = np.array(setup.tasks)
        self._save(RETURNS, found | {"seed": np.arange(settings.seeds), "task": tasks}, about)
        lived["task"] = tasks[lived.pop("place")]
        self._save(PATHS, lived, about | {"sizes": _sizes(setup)})
        counts = {"seeds": settings.seeds, "tasks": len(setup.tasks), "trials": settings.trials}
        told = {**about, **counts, **summary(found[RETURN]), "retrieved": retrieved(found)}
        self.folder.write_json(self.place / "results.json", told)
        self.folder.forget(parts)
        return Outcome(counts, inputs=inputs, lines=(f"{self.stage.name}: {line(told)}",))

    @classmethod
    def roles(cls, config: Config) -> Topology:
        settings = config.method.part(TrialsConfig)
        does = f"{settings.trials} trials of each task for {settings.seeds} seeds, {settings.together} side by side"
        actor = Role("actor", config.actors.n, 1, does, "method.sequence.device")
        return Topology((actor,), (("actor", "controller", "returns over trials"),))

    @classmethod
    def memory(cls, config: Config) -> int:
        """Memory of the actors: per row at least its env and one step of each trial."""
        settings = config.method.part(TrialsConfig)
        row = limits.ENV + settings.trials * limits.observed(config)[0]
        return config.actors.n * (limits.process(config) + row)

    def _save(self, name: str, arrays: dict[str, NDArray[Any]], about: dict[str, Any]) -> None:
        """Write arrays. One metadata entry says what they are from, because their order varies."""
        told = {"about": json.dumps(about, sort_keys=True)}
        self.folder.write(self.place / name, safetensors.numpy.save(arrays, told))

    @property
    def _arm(self) -> str:
        method: Any = self.config.method
        return str(method.arm)

    def _setup(self) -> tuple[TrialsSetup, dict[str, str]]:
        """The arguments of players, and the hashes of their weights."""
        method, env = self.config.method, self.config.env
        settings, retrieve = method.part(TrialsConfig), method.part(RetrieveConfig)
        sequence, arm = method.part(SequenceConfig), ARMS[self._arm]
        options, spec, tasks = tasks_for(env.id, env.options, settings.split)
        if settings.memory == "others" and len(tasks) < 2 and arm.looks != "nowhere":
            raise RunError("method.trials.memory=others needs the memory of another task, but there is only one task")
        fit = self.given.artifact(FIT)
        fitted = json.loads((fit / "manifest.json").read_text())["inputs"]
        for name, value in fitted_with(self.config).items():
            if (made := fitted.get(name)) is None:
                raise RunError(f"{fit} does not say with which {name} it was fitted: fit it again")
            if made != value:
                raise RunError(f"{fit} was fitted with {name}={made}, not {value}: set {name}={made}")
        place = fit / WEIGHTS
        weights = weights_of(place, sequence, spec)
        inputs, keys = {FIT: sha256(place)}, None
        told = weights.get("retrieved.place.weight")
        if arm.whole and told is not None:
            settings, retrieve = settings.model_copy(update={"newest": 1}), retrieve.whole(len(told))
        if arm.looks == "nearest" and settings.memory != "none":
            keys, inputs[ENCODER] = encoder_of(self.given, sequence, retrieve, spec)
            if inputs[ENCODER] != fitted[ENCODER]:
                raise RunError(f"{fit} was fitted with another encoder than the one found here: take both from one run")
        numbers, shown = tuple(tasks.tolist()), arm.looks == "best"
        how = (settings, retrieve, sequence, weights, keys, self.config.seed)
        return TrialsSetup(env.id, options, *how, numbers, shown), inputs

    def _split(self, setup: TrialsSetup) -> str:
        """The tasks that were played; all tasks if the environment holds none out."""
        split = self.config.method.part(TrialsConfig).split
        held_out = registry.spec(setup.env_id, **setup.env_options).held_out
        return "all" if split == "held_out" and not held_out else split


def tasks_for(env_id: str, options: dict[str, Any], split: str) -> tuple[dict[str, Any], EnvSpec, NDArray[np.int64]]:
    """The environment's options, its spec, and the tasks that `TrialsConfig.split` names."""
    options = options_of(options, split)
    spec = registry.spec(env_id, **options)
    return options, spec, tasks_of(spec, split == "training") if split in SPLITS else np.arange(spec.tasks)


def shares_of(settings: TrialsConfig, tasks: int) -> list[TrialShare]:
    """Seeds, in shares of about equal size whose tasks one actor can play at once."""
    count = -(-settings.seeds // max(1, settings.together // tasks))
    return [TrialShare(tuple(part.tolist())) for part in np.array_split(np.arange(settings.seeds), count)]


def line(told: dict[str, Any]) -> str:
    """What a finished stage prints."""
    first, last = (told[name] for name in ("first", "last"))
    return (
        f"return {first['mean']:.2f} in the first trial, {last['mean']:.2f} [{last['low']:.2f}, {last['high']:.2f}] in "
        f"trial {told['trials']}; {told['tasks']} tasks, {told['seeds']} seeds"
    )


def _sizes(setup: TrialsSetup) -> dict[str, int]:
    """The number of values of each observed category."""
    fields = registry.spec(setup.env_id, **setup.env_options).fields
    return {name: field.size for name, field in fields.items() if field.kind == "category"}


def _digest(config: Config, setup: TrialsSetup, inputs: dict[str, str]) -> str:
    """A hash of everything that the trials depend on."""
    parts = {name: part.model_dump() for name, part in (("trials", setup.config), ("retrieve", setup.retrieve))}
    world = {"env": config.env.id, "options": setup.env_options, "seed": setup.seed}
    of = {**world, "shown": setup.shown, "kept": PATH, **parts, **inputs}
    return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:16]


def _joined(parts: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Shares, concatenated along the seed axis."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
