"""The LLM service as a role of a run: started when a stage uses a language model, monitored, and restarted if it dies.

    controller ── LanguageService ──> LanguageRole (gRPC server, journal, Redis)  ──> its own backend
         monitors it                     ^                                        └─> Replicas: Replica x n (Ray actors)
                                         └── the actors' clients: they find it by its folder, also after a restart

The processes on the right are in `language_role.py`. Everything that must not be lost is on disk in
`runs/<name>/llm/`; a successor continues from there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import envs
from actors.language import LanguageSetup
from cluster.config.tree import Config
from cluster.roles.backend import AskedToStop, Backend, Handle, Interrupted, RoleDied, Ticket, await_role
from cluster.roles.language_role import LanguageRole
from cluster.runs.folder import RunError
from learner.files import replace_file
from llm_service.errors import AwayTooLong, ServiceError, UsageError
from llm_service.records import Source
from llm_service.server import assembly
from llm_service.settings import LLMConfig

CACHES = {source.name.lower() for source in Source} - {"backend"}
LOOK_S = 1.0  # seconds between two checks of the service
HUNG_S = 60.0  # seconds without a sign of life after which it is killed
RESTARTS = 5  # how often it is restarted in a run
COUNTED = {"calls": "calls", "tokens": "reply_tokens", "dollars": "reply_dollars"}
"""Columns of metrics.jsonl, behind `llm/`, that are a number of the service; others sum up how its answers ended."""
REACH_S = 10.0  # seconds that a service that was started elsewhere may take to answer


def check_language_model(config: Config) -> None:
    """Check that the service can work as configured, or that the one at `llm.address` accepts our token."""
    if not config.llm.address:
        return assembly.check(config.llm)
    from llm_service.client import connect

    with connect(config.llm.address, deadline=REACH_S, when_away="stop") as client:
        try:
            client.stats()  # not its health: a failing model may recover, a wrong address will not
        except ServiceError as error:  # unavailable, or too many calls
            raise RunError(f"llm.address: {error}") from None


def counts(stats: Mapping[str, float]) -> dict[str, float]:
    """What a service did since it began, as columns of metrics.jsonl: questions, how they ended, calls and their cost.

    A cache hit is an answer without a call of its own; a failure is a question without an answer.
    """
    ends = {name.removeprefix("answers_"): n for name, n in stats.items() if name.startswith("answers_")}
    found = {name: stats.get(key, 0.0) for name, key in COUNTED.items()}
    found["questions"] = sum(ends.values())
    found["cache_hits"] = sum(n for name, n in ends.items() if name in CACHES)
    found["failures"] = found["questions"] - found["cache_hits"] - ends.get("backend", 0.0)
    return {f"llm/{name}": n for name, n in found.items()}


class LanguageService:
    """The controller's side. `note` takes a line for the log; `before`: columns that earlier attempts came to."""

    def __init__(
        self,
        backend: Backend,
        config: Config,
        folder: Path,
        note: Callable[[str], None],
        before: Mapping[str, float] | None = None,
    ) -> None:
        self._backend, self._config, self._note = backend, config, note
        self._before, self._now = dict(before or {}), dict[str, float]()
        self._folder = folder / "llm"
        self._handle: Handle | None = None
        self._ready: Ticket | None = None  # of a service that was begun and has not answered yet
        self._beat: Ticket | None = None
        self._looked, self._restarts = 0.0, 0
        llm = config.llm
        self.setup = LanguageSetup(llm.address or str(self._folder), llm.when_away)
        """Where actors find the service."""

    def begin(self) -> None:
        """Begin to start a service, unless one is given or was begun. Other roles may start meanwhile.

        Raises:
            AskedToStop, Interrupted: while it waited for GPUs of replicas.
        """
        llm = self._config.llm
        if llm.address or self._handle is not None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        if not llm.world:
            env, world = self._config.env, self._folder / "world.json"
            known = envs.knowledge(env.id.partition("/")[0], env.options)  # the same in every attempt
            replace_file(world, json.dumps(known, indent=1).encode())
            llm = llm.model_copy(update={"world": str(world)})
        self._launch(llm)

    def start(self) -> None:
        """Make sure that a service answers.

        Raises:
            AskedToStop: the run should stop before the service answers.
            UsageError: it does not start.
        """
        self.begin()
        self._await()

    def _launch(self, llm: LLMConfig) -> None:
        self._llm = llm
        name = "llm" + (f".{self._restarts}" if self._restarts else "")
        places = [self._backend.resources(f"replica-{number}") for number in range(llm.replicas)]
        self._handle = self._backend.start(name, LanguageRole, llm.model_dump(), str(self._folder), places)
        self._ready = self._backend.submit(self._handle, "ready")

    def _await(self) -> None:
        ready, self._ready = self._ready, None
        if ready is None or self._handle is None:
            return
        try:
            address = await_role(self._backend, ready, self._config.cluster.start_timeout_s)
            warnings = self._backend.result(self._backend.submit(self._handle, "warnings"))
        except Interrupted:
            raise
        except AskedToStop:
            self._backend.kill(self._handle)  # there is nothing to drain yet
            self._handle = None
            raise
        except (RoleDied, UsageError) as death:
            self._backend.kill(self._handle)
            self._handle = None
            raise UsageError(f"the LLM service does not start: {_sentence(death)}") from None
        self._beat, self._looked, self._now = None, time.monotonic(), counts({})
        for warning in warnings:
            self._note(warning)
        self._note(f"LLM service {self._llm.name} is ready on {address}")

    def look_after(self) -> None:
        """Notice a service that died or hangs, and start another. Call this often; it rarely does anything.

        Raises:
            UsageError: it has died too often.
            AwayTooLong: it no longer starts.
        """
        now = time.monotonic()
        if self._handle is None or self._ready or now - self._looked < LOOK_S:
            return
        if self._beat is None:
            self._beat = self._backend.submit(self._handle, "heartbeat")
        elif self._backend.wait([self._beat], 0):
            self._looked, beat, self._beat = now, self._beat, None
            try:
                self._now = counts(self._backend.result(beat)["stats"])
            except RoleDied as death:
                self._restart(_sentence(death))
        elif now - self._beat.submitted > HUNG_S:
            self._backend.kill(self._handle)
            self._restart(f"no sign of life for {HUNG_S:.0f} s")

    @property
    def columns(self) -> dict[str, float]:
        """What the run has asked and paid so far, over all services and attempts; as of the last look, a second ago."""
        found = {name: self._before.get(name, 0) + self._now.get(name, 0) for name in self._before | self._now}
        return {name: round(n, 9) if name == "llm/dollars" else int(n) for name, n in found.items()}

    def _restart(self, cause: str) -> None:
        self._restarts += 1
        self._before, self._now = self.columns, {}
        if self._restarts > RESTARTS:
            raise UsageError(f"the LLM service died {self._restarts} times, the last time: {cause}")
        self._note(f"the LLM service died ({cause}); restarting it with its files")
        try:
            self._launch(self._llm)
            self._await()
        except (AskedToStop, Interrupted):
            raise
        except UsageError as trouble:
            raise AwayTooLong(f"it died ({cause}), and now {trouble}") from None

    def numbers(self) -> dict[str, float]:
        """Counters and gauges of the run's own service; empty if it uses another one, or if the service is dead."""
        if self._handle is None:
            return {}
        try:
            beat = self._backend.result(self._backend.submit(self._handle, "heartbeat"))
        except RoleDied:
            return {}
        self._now = counts(beat["stats"])
        return {name: round(value, 6) for name, value in sorted(beat["stats"].items())}

    def stop(self) -> None:
        """End the service after work in progress."""
        if self._handle is None:
            return
        drained = self._backend.submit(self._handle, "drain")
        try:
            # Once for requests, once for the calls that they left behind, plus time for consumers and Redis.
            self._backend.result(drained, timeout=2 * self._llm.server.drain_s + 30)
        except (RoleDied, Interrupted) as death:
            self._note(f"the LLM service did not end cleanly: {_sentence(death)}")
        self._backend.kill(self._handle)
        self._handle = None


def _sentence(death: Exception) -> str:
    """The cause of a role's death, without the traceback and without the class of our own errors."""
    return str(death).strip().splitlines()[-1].removeprefix("llm_service.errors.UsageError: ")
