"""A Ray of several nodes on this machine, as others would have started it, and runs that join it."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

from cluster.roles import local  # noqa: F401 - makes the token before Ray is imported
from learner import checkpoint
from tests.cluster.test_faults import ROOT, children_of, rows

import ray.cluster_utils  # isort: skip - after the token

os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "120")  # a head on a busy machine; Ray's own is half a minute


class Nodes:
    """Nodes by name; each is a raylet with processes of its own. The head has room for nothing."""

    def __init__(self):
        self.cluster = ray.cluster_utils.Cluster()
        self.nodes = {}
        self.add("head", cpus=0, include_dashboard=False)

    @classmethod
    def started(cls, **made):
        """Nodes with these arguments of `add` by name. Ray gives each half a minute; on a busy machine that may be too
        little, and all begin anew."""
        for left in (2, 1, 0):
            nodes = None
            try:
                nodes = cls()
                for name, options in made.items():
                    nodes.add(name, **options)
                return nodes
            except Exception:  # Ray has no class for it
                if nodes:
                    nodes.shutdown()
                if not left:
                    raise

    def add(self, name, cpus, learner=False, **options):
        resources = {"learner": 1} if learner else {}
        made = {"num_cpus": cpus, "resources": resources, "object_store_memory": 100_000_000, **options}
        self.nodes[name] = self.cluster.add_node(**made)

    def kill(self, name):
        """A node is gone at once, with all of its processes."""
        self.cluster.remove_node(self.nodes.pop(name), allow_graceful=False)

    def roles(self, name):
        """Ray's names of the actors on a node: class -> pids."""
        found = {}
        for pid in children_of(self.nodes[name].all_processes["raylet"][0].process.pid):
            match = re.match(r"ray::(\w+)", command(pid))
            if match and match[1] != "IDLE":
                found.setdefault(match[1], []).append(pid)
        return found

    def of(self, role):
        """Names of the nodes that hold a role of this class."""
        return [name for name in self.nodes if role in self.roles(name)]

    def launch(self, log, *words):
        """`launch.py` on these nodes; what it prints is in the file `log`."""
        environment = {**os.environ, "CAIRN_RAY_ADDRESS": self.cluster.address, "OMP_NUM_THREADS": "1"}
        with open(log, "a") as file:
            command = [sys.executable, str(ROOT / "launch.py"), *words]
            return subprocess.Popen(command, env=environment, stdout=file, stderr=file)

    def shutdown(self):
        self.cluster.shutdown()


def command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    except OSError:
        return ""


def assert_whole(path, chunk_steps):
    """Every version once and in order; every chunk of every actor learned once, none left out. Returns the counters."""
    saved = checkpoint.latest(path / "checkpoints")
    counters = saved.record["counters"]
    history = [row for row in rows(path) if row["kind"] == "train"]
    assert [row["version"] for row in history] == list(range(1, counters["version"] + 1))
    steps = [row["env_steps"] for row in history]
    assert all(before < after for before, after in itertools.pairwise(steps))
    learned = counters["chunks"] - counters["dropped_chunks"]
    assert counters["env_steps"] == steps[-1] == learned * chunk_steps
    # An actor's sequence is the number of its chunks up to the last learned one: the sums are equal only if no chunk
    # was learned twice and none skipped.
    sequences = [int(value) for name, value in saved.arrays["actors"].items() if name.endswith("/sequence")]
    assert sum(sequences) == counters["chunks"]
    return counters
