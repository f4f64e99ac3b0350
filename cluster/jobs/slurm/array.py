"""A sweep as one array of SLURM jobs: what is left of it, each member a task, so many at once.

    runs/<name>/sweep.json, array.sh, job-<array>_<task>.txt        runs/<member>/{config.yaml, slurm.json, status.json}

Using the sweep's name again reads from the members' folders how they ended, and queues those that are not done and not
in the queue: the same as on one machine, but that nothing waits for them.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from cluster.config.members import CRASHED, DONE, STOPPED, Member
from cluster.config.overrides import ConfigError
from cluster.config.tree import Config, compose, difference
from cluster.jobs.slurm import batch_script
from cluster.jobs.slurm.batch_script import Job
from cluster.jobs.slurm.commands import SlurmError, look_up, record, sbatch
from cluster.jobs.slurm.preparation import check, prepare
from cluster.runs.folder import RunFolder
from learner.files import replace_file

ENDED = {"done": DONE, "stopped": STOPPED, "crashed": CRASHED}


@dataclass
class ArrayOfRuns:
    """The members of a sweep, and what SLURM has of them.

    Args:
        config: of the first member, with the sweep's name.
        fixed: words of all members.
        at_once: members that may run at once; 0: all.
    """

    config: Config
    fixed: list[str]
    members: list[Member]
    at_once: int

    def __post_init__(self) -> None:
        self._runs = Path(self.config.run.folder).resolve()
        self._folder = self._runs / self.config.run.name

    def script(self, members: Sequence[Member]) -> str:
        """The script of the array with these members as tasks 0, 1, ..."""
        runs = [self._runs / member.name for member in members]
        output = self._folder / "job-%A_%a.txt"
        job = Job(f"cairn-{self._folder.name}", runs, output, (), self.at_once, array=True)
        return batch_script.render(self.config, job)

    def submit(self, console: Console) -> int:
        """Queue what is left; how many members that are.

        Raises:
            UsageError: nothing was queued and nothing written.
        """
        queued = look_up([self._runs / member.name for member in self.members])
        for member in self.members:
            status = RunFolder(self._runs / member.name).read_status()
            member.exit_code = None if self._runs / member.name in queued else ENDED.get(status.get("state", ""))
            member.seconds = float(status.get("wall_seconds", 0.0))
        left = [m for m in self.members if m.exit_code != DONE and self._runs / m.name not in queued]
        if queued:
            console.print(f"{len(queued)} of {len(self.members)} members are in the queue", highlight=False)
        if not left:
            return 0
        configs = [compose([*self.fixed, *member.words, f"run.name={member.name}"]) for member in left]
        for config in configs:
            self._assert_fits(config)
            check(config)
        script = self.script(left)
        sbatch(script, "--test-only")
        new = [config for config in configs if not (self._runs / config.run.name).exists()]
        self._folder.mkdir(parents=True, exist_ok=True)
        for config in new:
            prepare(config)
        replace_file(self._folder / "array.sh", script.encode())
        try:
            array = sbatch(script, "--parsable").partition(";")[0]
        except SlurmError:
            for config in new:
                shutil.rmtree(self._runs / config.run.name)
            raise
        for task, member in enumerate(left):
            job = f"{array}_{task}"
            record(self._runs / member.name, job, str(self._folder / f"job-{job}.txt"))
        cap = f", {self.at_once} at once" if self.at_once else ""
        console.print(f"submitted {len(left)} members as array {array}{cap}", highlight=False, soft_wrap=True)
        return len(left)

    def _assert_fits(self, config: Config) -> None:
        """One array asks the same of SLURM for each of its tasks."""
        for key, _, _ in difference(self.config, config):
            if key.startswith("cluster."):
                raise ConfigError(f"{key} cannot vary in a sweep on SLURM, which is one array: make it two sweeps")
        if batch_script.cores(config) != batch_script.cores(self.config) and not config.cluster.slurm.cpus:
            raise ConfigError(
                "members of this sweep need different numbers of CPUs, and one array has the same for all: set "
                "cluster.slurm.cpus"
            )
