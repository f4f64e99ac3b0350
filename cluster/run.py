"""The single controller: makes the run folder, starts the cluster, runs the stages in order, leaves a report.

configuration ──> stages ──> collect ──> stages/collect/*.arrow
                         ├─> fit, train ──> stages/train/weights.safetensors
                         ├─> evaluate ──> stages/evaluate/results.json, videos/
                         └─> generalise ──> stages/generalise/results.json
                 each with a manifest; a stage that has one is skipped, a half-done one resumes
"""

from __future__ import annotations

import os
import platform
import sys
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

import envs
from actors import ActorSetup, wrappers
from actors.language import LanguageSetup
from actors.setup import Guidance
from cluster import artifacts, generalise, limits
from cluster import config as configuration
from cluster.backend import Backend, Inline, Interrupted
from cluster.collect import Collecting
from cluster.config import Config
from cluster.evaluation import Evaluation, judged, lines, play_all, sample_efficiency, write_recordings
from cluster.exporting import Shown
from cluster.fit import Fitting
from cluster.folder import RunError, RunFolder
from cluster.goal_page import stand_in
from cluster.language import LanguageService, check_language_model
from cluster.metrics import Metrics, tensorboard
from cluster.overrides import UsageError
from cluster.progress import Progress
from cluster.stop import STOPPED, Stop
from cluster.topology import asks_a_language_model, learns, selected
from cluster.train import Training
from cluster.weights import (
    assert_fits,
    assert_model,
    assert_resumable,
    assert_supplied,
    guide_weights,
    initial_weights,
    make_model,
    read_checkpoint,
    store_of,
    trained,
)
from learner import checkpoint as checkpoints
from learner.checkpoint import Checkpoint
from learner.fit import FitSetup, Fitter
from learner.group import Weights
from learner.methods import Kind, Player, Stage
from learner.store.episodes import digest
from llm_service.errors import AwayTooLong, BudgetExhausted

DONE = 0
LOOK_S = 2.0
"""Seconds after which a controller looks again whether a newer attempt has begun."""


def run(config: Config) -> int:
    """Run a new experiment. Returns the exit code: 0 done, 3 stopped as asked and resumable.

    Raises:
        UsageError: nothing was started and nothing written; or the run ended resumable, with an exit code of its own.
    """
    limits.assert_fits(config)
    assert_model(config)
    initial = initial_weights(config)
    guide_weights(config)  # a wrong name is told before anything is written
    assert_supplied(config, initial)
    if asks_a_language_model(config):
        check_language_model(config)
    folder = RunFolder.create(Path(config.run.folder) / config.run.name)
    configuration.save(config, folder.path / "config.yaml")
    folder.write_manifest(["python", "launch.py", *sys.argv[1:]])
    return _Controller(config, folder, None, initial).run()


def resume(path: Path, words: list[str], allow_change: bool) -> int:
    """Continue a run with every counter. Returns the exit code.

    Raises:
        UsageError: the run is done, no checkpoint is good, or a changed key alters what the run means.
    """
    before = configuration.load(path / "config.yaml")
    config = configuration.update(before, words)
    changed = [key for key, _, _ in configuration.difference(before, config) if configuration.alters_meaning(key)]
    if changed and not allow_change:
        raise RunError(
            f"{', '.join(changed)} would make {path.name!r} another experiment; add --allow-change if that is meant"
        )
    folder = RunFolder(path)
    assert_model(config)
    found = read_checkpoint(folder)
    limits.assert_fits(config, kinds={stage.kind for stage in _left(selected(config), config, folder, found)})
    if found is not None and (learns(config) or _plays_a_policy(config)):
        assert_resumable(config, folder, found)
    elif _plays_a_policy(config) and not (learns(config) or config.from_) and trained(folder) is None:
        raise RunError(f"run {path.name!r} has no checkpoint and would not train: leave stages as they were")
    return _Controller(config, folder, found, initial_weights(config) if found is None else None).run()


def evaluate(path: Path, words: list[str]) -> int:
    """Evaluate a run's policy again, with other words if given, into `stages/evaluate-<n>`. Returns the exit code.

    With `stages=[generalise]` it is tried in other words and worlds, into `stages/generalise-<n>`.
    """
    config = configuration.update(configuration.load(path / "config.yaml"), words)
    folder = RunFolder(path)
    player: Player = next((s.player for s in selected(config) if s.kind == "evaluate"), "policy")
    kinds = {s.kind for s in selected(config)}
    kind: Kind = "generalise" if kinds == {"generalise"} else "deploy" if "deploy" in kinds else "evaluate"
    limits.assert_fits(config, kinds={kind})
    if kind == "deploy":
        player = "random"
    weights: Weights | None = None
    if player == "policy":
        found = read_checkpoint(folder)
        weights = trained(folder) or (found.arrays["model"] if found else initial_weights(config))
        if weights is None:
            raise RunError(f"run {path.name!r} has no weights yet: no checkpoint was written")
        assert_fits(config, weights, str(path))
    # Never the bare name: that is the run's own last stage, which it may not have come to yet.
    stage = Stage(folder.claim(kind), kind, player)
    try:
        return _Controller(config, folder, None, weights, [stage]).run()
    finally:
        if not any(folder.stage(stage.name).iterdir()):  # it came to nothing
            folder.stage(stage.name).rmdir()


def _left(stages: list[Stage], config: Config, folder: RunFolder, found: Checkpoint | None) -> list[Stage]:
    """Stages that are not done. If a finished training shall go on, it is not, nor is what follows it."""
    kinds, redone = [stage.kind for stage in stages], len(stages)
    if found and found.record["counters"]["env_steps"] < config.learner.env_steps and "train" in kinds:
        redone = kinds.index("train")
    return [stage for i, stage in enumerate(stages) if i >= redone or not folder.stage_done(stage.name)]


def _plays_a_policy(config: Config) -> bool:
    """Whether any selected stage needs weights."""
    return any(stage.player == "policy" for stage in selected(config))


@dataclass
class _Controller:
    """One process's work on one run folder."""

    config: Config
    folder: RunFolder
    checkpoint: Checkpoint | None
    initial: Weights | None
    only: list[Stage] | None = None
    _stopped_by: str = ""
    _language: LanguageService | None = None
    _language_setup: LanguageSetup | None = None
    _looked: float = 0.0

    def run(self) -> int:
        make_model(self.config)
        with self.folder.lock():
            if not self.only:  # from here on, a controller elsewhere that believes the run to be its own cannot save
                self.folder.begin()
                self.checkpoint = read_checkpoint(self.folder)
            began = time.time()
            before = self.folder.read_status()
            if self.only:
                self.folder.stand_beside()
            if not self.folder.is_anothers:
                self.folder.forget(self.folder.path / "error.txt")
            if not self.only:
                configuration.save(self.config, self.folder.path / "config.yaml", self.folder.attempt)
            self.folder.write_status(state="running", phase="start", reason="", host=platform.node())
            try:
                code = self._run_stages()
            except checkpoints.Superseded:
                raise  # the folder is another's by now
            except BaseException as error:
                if not isinstance(error, UsageError) and not self.folder.is_anothers:
                    self.folder.write(self.folder.path / "error.txt", traceback.format_exc())
                reason = (str(error) or repr(error)).splitlines()[0]
                if self.only:
                    self.folder.write_status(**{"state": "stopped"} | before)
                else:
                    state = "stopped" if isinstance(error, AwayTooLong | BudgetExhausted | Interrupted) else "crashed"
                    self.folder.write_status(state=state, reason=reason)
                raise
            state, reason = "done" if code == DONE else "stopped", self._stopped_by
            if self.only:  # a further evaluation does not change how the run itself ended
                state, reason = before.get("state", state), before.get("reason", "")
            self.folder.write_status(state=state, phase="", reason=reason)
            report = self._report()
            self.folder.write_status(report=str(report))
            minutes = (time.time() - began) / 60
            if code == DONE:
                if self._language_setup and (words := stand_in(self.config.model_dump())):
                    print(words)
                print(f"done in {minutes:.1f} min; report: {report}")
            else:
                print(f"stopped and saved; continue with: python launch.py resume {self.folder.name}")
            return code

    def _run_stages(self) -> int:
        todo = self._todo()
        if not todo:
            print(f"{self.folder.name} is complete: nothing left to do")
            return DONE
        run = self.config.run
        version = self.checkpoint.record["counters"]["version"] if self.checkpoint else 0
        attempt = self.folder.attempt
        metrics = Metrics(self.folder.path / "metrics.jsonl", None if self.only else version, attempt)
        with Stop(self.folder.stop_file, run.max_wall_seconds, attempt) as stop:
            backend = self._backend()
            stop.listen()
            try:
                if run.tensorboard:
                    metrics.sinks.append(tensorboard(self.folder.path / "tensorboard"))
                if backend.links:
                    metrics.sinks.append(Shown(self.folder.name))
                    self.folder.write_status(**backend.links)
                score = configuration.seen(self.config).score
                self.folder.write_status(score=score)
                with Progress(self.folder, self.config.learner.env_steps, run.log_every_s, score) as progress:
                    progress.announce(backend.links)
                    if any(stage.asks(self.config) for stage in todo):
                        self._language = LanguageService(backend, self.config, self.folder.path, progress.note)
                        self._language_setup = self._language.start()
                    if (attempt := self.folder.attempt) and attempt.number > 1 and not self.folder.kept:
                        progress.note(
                            f"{self.folder.name} starts over: it ended before anything was saved to go on from"
                        )
                    for skipped in self.checkpoint.skipped if self.checkpoint else ():
                        progress.note(f"skipped a damaged checkpoint: {skipped}")
                    engines = {
                        "collect": self._collect,
                        "fit": self._fit,
                        "train": self._train,
                        "evaluate": self._evaluate,
                        "generalise": self._generalise,
                    }
                    for stage in todo:
                        engine = engines.get(stage.kind, self._behaviours)
                        if not engine(stage, backend, metrics, progress, stop):
                            self._stopped_by = stop.reason
                            return STOPPED
            finally:
                if self._language:
                    self._language.stop()
                metrics.close()
                backend.shutdown()
        return DONE

    def _todo(self) -> list[Stage]:
        """Stages to run; what they left when they were done before no longer says so."""
        todo = _left(self.only or selected(self.config), self.config, self.folder, self.checkpoint)
        for stage in todo:
            self.folder.forget(self.folder.path / "stages" / stage.name / "manifest.json")
        return todo

    def _backend(self) -> Backend:
        if self.config.cluster.name == "inline":
            return Inline()
        from cluster.joined import backend

        return backend(self.config, self.folder.path / "token")

    def _actor_setup(self) -> ActorSetup:
        config = self.config
        guide = guide_weights(config)
        return ActorSetup(
            config.env.id,
            config.env.options,
            configuration.seen(config),
            config.actors,
            config.policy,
            config.seed,
            config.sync,
            self._language_setup,
            wrappers.chosen(config),
            Guidance(guide, config.dqn.guide_share) if guide is not None else None,
        )

    # ---- engines ------------------------------------------------------------------------------------------------

    def _collect(self, stage: Stage, backend: Backend, metrics: Metrics, progress: Progress, stop: Stop) -> bool:
        self.folder.write_status(phase=stage.name)
        weights = self._weights(stage) if stage.player == "policy" else None
        folder = self.folder.stage(stage.name)
        setup, attempt = self._actor_setup(), self.folder.attempt
        collecting = Collecting(self.config, setup, folder, weights, backend, progress, attempt)
        if not collecting.run(stop, self._look_after):
            return False
        self._finish(stage, collecting.counts, weights)
        counts = collecting.counts
        progress.note(
            f"{stage.name}: {counts['episodes']:,} episodes of {counts['played']:,} played by {stage.player} kept, "
            f"{counts['steps']:,} steps"
        )
        return True

    def _fit(self, stage: Stage, backend: Backend, metrics: Metrics, progress: Progress, stop: Stop) -> bool:
        self.folder.write_status(phase=stage.name)
        store = store_of(self.config, self.folder)
        spec = configuration.seen(self.config)
        config = self.config
        setup = FitSetup(config.fit, config.learner, config.policy, spec, config.seed, store)
        fitting = Fitting(config, config.fit, setup, Fitter, self.folder, backend, metrics, progress, stop)
        finished = fitting.run(self.checkpoint, self.initial)
        if finished:
            self._publish(stage, self.initial, store=digest(store))
        return finished

    def _train(self, stage: Stage, backend: Backend, metrics: Metrics, progress: Progress, stop: Stop) -> bool:
        setup = self._actor_setup()
        work = (self.config, setup.spec, self.folder, backend, metrics, progress, stop, setup, self._look_after)
        training = Training(*work)
        if self.checkpoint is not None:
            training.resume_from(self.checkpoint)
            progress.note(f"resumed at {training.counters.env_steps:,} env steps, version {training.counters.version}")
        finished = training.run(self.checkpoint, self.initial)
        if finished:
            self._publish(stage, self.initial)
            training.kill()
            self.folder.forget(self.folder.replay)  # gigabytes that nothing will be drawn from
        return finished

    def _evaluate(self, stage: Stage, backend: Backend, metrics: Metrics, progress: Progress, stop: Stop) -> bool:
        config, setup = self.config, self._actor_setup()
        self.folder.write_status(phase=stage.name)
        weights = self._weights(stage) if stage.player == "policy" else None
        seeds = envs.HELD_OUT_FIRST + np.arange(config.evaluate.episodes)
        greedy, videos = config.evaluate.greedy, min(config.evaluate.videos, config.evaluate.episodes)
        evaluation = Evaluation(None, 0, 0, seeds, greedy, stage.player, videos)
        plain = replace(setup, wrappers={})  # no goals, so that nobody is asked for any
        beside = [Evaluation(None, 0, 0, seeds, greedy, who, elsewhere=plain) for who in config.evaluate.beside]
        if not play_all(config, setup, weights, [evaluation, *beside], backend, progress, stop, self._look_after):
            return False
        table = judged(config, setup.spec, stage.player, evaluation, beside)
        if self._language:
            table["language_model"] = self._language.numbers()
        efficiency = sample_efficiency(self.folder.path, config.learner.env_steps) if stage.player == "policy" else None
        if efficiency is not None:
            table["sample_efficiency"] = efficiency
        table["videos"] = write_recordings(self.folder, stage.name, evaluation)
        self.folder.write_json(self.folder.stage(stage.name) / "results.json", table)
        self._finish(stage, {"episodes": len(evaluation.episodes)}, weights)
        for line in lines(stage.name, table):
            progress.note(line)
        return True

    def _generalise(self, stage: Stage, backend: Backend, metrics: Metrics, progress: Progress, stop: Stop) -> bool:
        self.folder.write_status(phase=stage.name)
        weights = self._weights(stage)
        generalising = generalise.Generalising(self.config, self._actor_setup(), weights, backend, progress)
        table = generalising.run(stop, self._look_after)
        if table is None:
            return False
        self.folder.write_json(self.folder.stage(stage.name) / "results.json", table)
        self._finish(stage, {"episodes": self.config.generalise.episodes}, weights)
        progress.note(generalise.line(stage.name, table))
        return True

    def _behaviours(self, stage: Stage, backend: Backend, metrics: Metrics, progress: Progress, stop: Stop) -> bool:
        """A stage on behaviours: what archives, their texts and their transformers are made of."""
        from cluster.imitation import Imitation

        self.folder.write_status(phase=stage.name)
        folder = self.folder.stage(stage.name)
        work = Imitation(self.config, self.folder, progress, stop, self._look_after, self._language_setup)
        counts = work.run(stage, folder, backend, metrics, self.checkpoint)
        if counts is not None:
            self._finish(stage, counts, None)
        return counts is not None

    def _weights(self, stage: Stage) -> Weights:
        """What a stage in which the policy is judged begins from."""
        weights = self.initial if self.only else trained(self.folder) or self.initial
        if weights is None:
            raise RunError(f"stage {stage.name} needs weights: run the train stage, or set from=run:NAME/train")
        return weights

    def _look_after(self) -> None:
        """What is due from time to time: the services beside the actors, and whether a newer attempt has begun."""
        if time.monotonic() - self._looked > LOOK_S:
            self._looked = time.monotonic()
            self.folder.assert_newest()
        if self._language:
            self._language.look_after()

    def _publish(self, stage: Stage, initial: Weights | None, **inputs: str) -> None:
        """Make the newest checkpoint's weights the artifact of a stage that learned."""
        found = checkpoints.latest(self.folder.checkpoints)
        assert found is not None, "what learns saves before it returns"
        path = self.folder.stage(stage.name) / "weights.safetensors"
        self.folder.write(path, safetensors.numpy.save(found.arrays["model"]))
        self._finish(stage, found.record["counters"], initial, **inputs)

    def _finish(self, stage: Stage, counts: dict[str, Any], weights: Weights | None, **inputs: str) -> None:
        """Write a stage's manifest: with it, the stage is done."""
        artifacts.finish(self.folder, self.config, stage, counts, weights, inputs)

    def _report(self) -> Path:
        from cluster.report import write

        return Path(os.path.relpath(write([self.folder.path], self.folder.attempt)))
