"""The single controller's work on one run folder: the cluster, its services, the stages in order, and a report.

stages left ──> engine(run, stage).run() ──> stages/<stage>/..., with a manifest: done
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import safetensors.numpy

from cluster.config import tree as configuration
from cluster.config.overrides import flatten
from cluster.config.tree import Config
from cluster.metrics import sinks
from cluster.metrics.exporting import Shown
from cluster.metrics.rows import Metrics
from cluster.roles.backend import AskedToStop, Backend, Inline, Interrupted, full_disk_in_a_sentence, is_full_disk
from cluster.roles.language import LanguageService
from cluster.runs.folder import RunFolder, provenance
from cluster.runs.progress import Progress
from cluster.runs.run_data import stand_in
from cluster.runs.stage import Outcome, Run
from cluster.runs.stop import STOPPED, Stop
from cluster.runs.supply import make_model
from cluster.runs.weights import read_checkpoint
from cluster.stages import engine
from learner.checkpoint import Checkpoint
from learner.files import Superseded
from learner.group import Weights
from learner.methods import Stage, selected
from llm_service.errors import AwayTooLong, BudgetExhausted, UsageError

DONE = 0
MANIFEST = "manifest.json"


def stages_left(stages: list[Stage], config: Config, folder: RunFolder, found: Checkpoint | None) -> list[Stage]:
    """Stages that are not done. If a finished training is to be continued, it and the stages after it are not done."""
    further = (i for i, stage in enumerate(stages) if found and engine(stage.kind).goes_on(config, found))
    redone = next(further, len(stages))
    return [stage for i, stage in enumerate(stages) if i >= redone or not folder.stage_done(stage.name)]


@dataclass
class Controller:
    """One process's work on one run folder."""

    config: Config
    folder: RunFolder
    checkpoint: Checkpoint | None
    initial: Weights | None
    only: list[Stage] | None = None
    _stopped_by: str = ""
    _language: LanguageService | None = None

    def run(self) -> int:
        make_model(self.config)
        with self.folder.lock():
            if self.only:
                self.folder.stand_beside()
            else:  # from here on, no controller elsewhere can save to the run
                self.folder.begin()
                self.checkpoint = read_checkpoint(self.folder)
            began, before = time.monotonic(), self.folder.read_status()
            if not self.folder.is_anothers:
                self.folder.forget(self.folder.path / "error.txt")
            if not self.only:
                configuration.save(self.config, self.folder.path / "config.yaml", self.folder.attempt)
            self.folder.write_status(state="running", phase="start", reason="", host=platform.node())
            try:
                with full_disk_in_a_sentence(f"run {self.folder.name!r}"):
                    code = self._run_stages()
            except Superseded:
                raise  # by now the folder belongs to another attempt
            except BaseException as error:
                reason = (str(error) or repr(error)).splitlines()[0]
                if self.only:
                    self.folder.write_last_status(**{"state": "stopped"} | before)
                else:
                    self.folder.write_last_status(state=_state(error, ""), reason=reason)
                if not isinstance(error, UsageError) and not self.folder.is_anothers:
                    self.folder.write(self.folder.path / "error.txt", traceback.format_exc())
                raise
            state, reason = "done" if code == DONE else "stopped", self._stopped_by
            if self.only:  # a further evaluation does not change how the run itself ended
                state, reason = before.get("state", state), before.get("reason", "")
            self.folder.write_last_status(state=state, phase="", reason=reason)
            from cluster.report.document import write  # imports plotting, which a run needs only at the end

            report = Path(os.path.relpath(write([self.folder.path], self.folder.attempt)))
            self.folder.write_status(report=str(report))
            if code == DONE:
                if self._language and (words := stand_in(self.config.model_dump())):
                    print(words)
                print(f"done in {(time.monotonic() - began) / 60:.1f} min; report: {report}")
            else:
                print(f"stopped and saved; continue with: python launch.py resume {self.folder.name}")
            return code

    def _run_stages(self) -> int:
        todo = self._todo()
        if not todo:
            print(f"{self.folder.name} is complete: nothing left to do")
            return DONE
        run, attempt = self.config.run, self.folder.attempt
        version = self.checkpoint.record["counters"]["version"] if self.checkpoint else 0
        metrics = Metrics(self.folder.path / "metrics.jsonl", None if self.only else version, attempt)
        with Stop(self.folder.stop_file, run.max_wall_seconds, attempt) as stop, ExitStack() as ending:
            try:
                backend = self._backend(lambda: stop.reason)
                ending.callback(backend.shutdown)
                ending.push(lambda kind, error, trace: metrics.close(_state(error, self._stopped_by)))
                stop.listen()
                if backend.links:
                    metrics.sinks.append(Shown(self.folder.name, own=not self.only))
                    self.folder.write_status(**backend.links)
                score = self.config.spec.score
                self.folder.write_status(score=score)
                with Progress(self.folder, self.config.learner.env_steps, run.log_every_s, score) as progress:
                    if address := backend.links.get("dashboard"):
                        token = self.folder.path / "token"
                        progress.note(
                            f"dashboard: {address}" + (f"; its token is in {token}" if token.exists() else "")
                        )
                    if any(engine(stage.kind).asks(self.config, stage) for stage in todo):
                        self._language = LanguageService(
                            backend, self.config, self.folder.path, progress.note, self.folder.read_status().get("llm")
                        )
                        ending.callback(self._language.stop)
                        self._language.begin()
                    if not self.only:  # a further evaluation writes no rows
                        metrics.sinks += self._sinks(progress.note)
                    for line in self._about_the_start(metrics.warning):
                        progress.note(line)
                    given = Run(
                        config=self.config,
                        folder=self.folder,
                        backend=backend,
                        metrics=metrics,
                        progress=progress,
                        stop=stop,
                        checkpoint=self.checkpoint,
                        initial=self.initial,
                        beside=bool(self.only),
                        language=self._language,
                    )
                    finished = all(self._run_stage(given, stage) for stage in todo)
                    if not stop.signalled:  # who sends signals starts it again, or should hear that nobody did
                        metrics.end(lambda: stop.signalled)
                    if not finished:
                        self._stopped_by = stop.reason
                        return STOPPED
            except AskedToStop as request:  # it was waiting for roles, which had begun nothing
                self._stopped_by = str(request)
                return STOPPED
        return DONE

    def _run_stage(self, run: Run, stage: Stage) -> bool:
        """Run a stage to its end. False if the run was asked to stop first."""
        self.folder.write_status(phase=stage.name, last_update=None)
        runs = engine(stage.kind)
        if runs.waits:
            run.await_language()
        outcome = runs(run, stage).run()
        run.metrics.show(advancing=0.0)
        if self._language and self._language.numbers():
            self._count(run, stage)
        if outcome is None:
            return False
        self.finish(stage, outcome)
        if (results := self.folder.stage(stage.name) / "results.json").exists():
            found = flatten(json.loads(results.read_bytes()))
            run.metrics.results(stage.name, self.folder.read_status().get("env_steps", 0), found)
        for line in outcome.lines:
            run.progress.note(line)
        return True

    def _sinks(self, note: Callable[[str], None]) -> list[sinks.Sink]:
        """Those that the configuration names."""
        config = self.config.model_dump()
        tags = {"method": config["method"]["name"], "experiment": config["experiment"], "seed": str(config["seed"])}
        followed = sinks.Followed(self.folder.name, self.folder.path, flatten(config), tags, note)
        return [sinks.sink(name).make(followed) for name in config["run"]["sinks"]]

    def _count(self, run: Run, stage: Stage) -> None:
        """A row of what was asked of language models by the end of a stage, and where a resumed run counts on from."""
        status, asked = self.folder.read_status(), run.asked()
        at = {key: status.get(key, 0) for key in ("version", "env_steps")}
        run.metrics.write({"kind": "language", "stage": stage.name} | at | asked)
        self.folder.write_status(llm=asked)

    def finish(self, stage: Stage, outcome: Outcome) -> None:
        """Write the manifest of a stage's outputs and inputs. With it, the stage is done.

        Raises:
            Superseded: a newer attempt has begun, and will finish the stage.
        """
        folder = self.folder.stage(stage.name)
        files = sorted(p for p in folder.iterdir() if p.is_file() and p.name != MANIFEST)
        inputs = outcome.inputs | {"config.yaml": _sha256((self.folder.path / "config.yaml").read_bytes())}
        if outcome.weights is not None:
            inputs["weights"] = _sha256(safetensors.numpy.save(outcome.weights))
        self.folder.write_json(
            folder / MANIFEST,
            provenance()
            | {"stage": stage.name, "kind": stage.kind, "counts": outcome.counts, "from": self.config.from_}
            | {"inputs": inputs, "files": {p.name: _sha256(p.read_bytes()) for p in files}},
        )

    def _about_the_start(self, warning: str) -> Iterator[str]:
        """Log messages about how the run continues; `warning` is about its rows."""
        if warning:
            yield warning
        if (attempt := self.folder.attempt) and attempt.number > 1 and not self.folder.kept:
            yield f"{self.folder.name} starts over: it ended before anything was saved that a resume could use"
        for skipped in self.checkpoint.skipped if self.checkpoint else ():
            yield f"skipped a damaged checkpoint: {skipped}"

    def _todo(self) -> list[Stage]:
        """Stages to run; those that were done before are marked as not done."""
        todo = stages_left(self.only or selected(self.config), self.config, self.folder, self.checkpoint)
        for stage in todo:
            self.folder.forget(self.folder.path / "stages" / stage.name / MANIFEST)
        return todo

    def _backend(self, stop_reason: Callable[[], str]) -> Backend:
        if self.config.cluster.name == "inline":
            return Inline(stop_reason)
        from cluster.roles.joined import backend

        return backend(self.config, self.folder.path / "token", stop_reason)


def _state(error: BaseException | None, stopped_by: str) -> str:
    """How a run ended: `done`, `stopped` if it can be resumed, or `crashed`."""
    if error is None:
        return "stopped" if stopped_by else "done"
    resumable = isinstance(error, AwayTooLong | BudgetExhausted | Interrupted | Superseded) or is_full_disk(error)
    return "stopped" if resumable else "crashed"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
