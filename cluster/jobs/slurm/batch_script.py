"""The batch script of a job, which `cluster=slurm --dry-run` prints and sbatch reads.

    #SBATCH lines ─> names ─> set-up lines ─> BEGIN ─> ONE_NODE | MANUAL | SYMMETRIC ─> END
                                                       `launch.py resume RUN`           queue again, or end

    SLURM ── USR2 to this script, ahead of the time limit ──> RUN/STOP ──> the controller saves and ends with 3
          <── scontrol requeue, once, if `requeue` says that the run got further ── also, and later, if it ends with 5

The shell parts are constants: all that varies is in the names above them, quoted. One node runs what `cluster=local`
runs. On several, Ray is on all of them, behind a token of this run, and the learner is on the first.
"""

from __future__ import annotations

import math
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.config.overrides import ROOT, ConfigError
from cluster.config.tree import Config
from cluster.jobs.slurm.config import SlurmConfig
from cluster.topology import topology

ROAMING = ("actor", "replica")
"""Roles that may be on any node; the others are on the first."""


@dataclass(frozen=True)
class Job:
    """A job that a script runs."""

    name: str
    runs: Sequence[Path]  # run folders, absolute; several are the members of an array
    output: Path  # the job's output; absolute, in sbatch's notation
    words: Sequence[str] = ()  # further words for `resume`
    at_once: int = 0  # members of an array that may run at once; 0: all
    array: bool = False


@dataclass(frozen=True)
class Cores:
    """CPUs to request on a node, and how many roaming roles Ray may place on the first, other, and actor nodes."""

    node: int
    actor_node: int
    slots: tuple[int, int, int]


def cores(config: Config) -> Cores:
    """CPUs computed from the roles. If the user asks for fewer, roles share them."""
    slurm, roles = config.cluster.slurm, topology(config).roles
    first = sum(role.count * role.threads for role in roles if role.name not in ROAMING)
    roaming = sum(role.count for role in roles if role.name in ROAMING)
    actors = sum(role.count for role in roles if role.name == "actor")
    staying = roaming - actors if slurm.actor_nodes else math.ceil((roaming + first) / slurm.nodes) - first
    node = slurm.cpus or first + max(0, staying)
    on_first = max(0, node - first)
    missing = roaming - on_first - (slurm.nodes - 1) * node
    actor_node = slurm.actor_cpus or max(1, math.ceil(missing / max(1, slurm.actor_nodes)))
    missing -= slurm.actor_nodes * actor_node
    shared = max(0, math.ceil(missing / max(1, slurm.all_nodes - 1)))
    return Cores(node, actor_node, (on_first, node + shared, actor_node + shared))


def render(config: Config, job: Job) -> str:
    """The script, or a `ConfigError` if a folder's name cannot be written in an `#SBATCH` line."""
    slurm, needed = config.cluster.slurm, cores(config)
    parts = {1: ONE_NODE}.get(slurm.all_nodes) or {"manual": MANUAL, "symmetric": SYMMETRIC}[slurm.mode]
    setup = "\n".join(["# cluster.slurm.setup", *slurm.setup, ""]) if slurm.setup else ""
    parts += END + (LEAVE if slurm.all_nodes > 1 else "") + AGAIN
    parts = parts.replace("SRUN", " : ".join(_steps(slurm, needed)))
    made = f"# {job.name}: made by launch.py; see the docstring of cluster/jobs/slurm/batch_script.py"
    lines = [*_directives(config, job, needed), "", *_names(config, job, needed), "", setup]
    return "\n".join(["#!/bin/bash", made, *lines]) + BEGIN + parts


def _directives(config: Config, job: Job, needed: Cores) -> list[str]:
    slurm = config.cluster.slurm
    lines = [
        "--job-name=" + re.sub(r"[^\w.+=-]", "-", job.name),
        f"--chdir={_quoted(Path.cwd())}",
        f'--output={_quoted(job.output.parent)[:-1]}/{job.output.name}"',
        "--open-mode=append",
        "--requeue" if slurm.requeue else "--no-requeue",
        f"--signal=B:USR2@{slurm.signal_s}",
    ]
    if job.array:
        lines.append(f"--array=0-{len(job.runs) - 1}" + (f"%{job.at_once}" if job.at_once else ""))
    for option in ("account", "qos", "time"):
        if getattr(slurm, option):
            lines.append(f"--{option}={getattr(slurm, option)}")
    common = list(slurm.options)
    if slurm.mode == "symmetric" and slurm.all_nodes > 1:
        common.append("--exclusive")
    lines += _group(slurm.nodes, needed.node, slurm.memory, slurm.partition)
    if slurm.gpus:
        lines.append(f"--gpus-per-node={slurm.gpu_type + ':' if slurm.gpu_type else ''}{slurm.gpus}")
    lines += common
    if slurm.actor_nodes:
        partition = slurm.actor_partition or slurm.partition
        lines += ["hetjob", *_group(slurm.actor_nodes, needed.actor_node, slurm.actor_memory, partition), *common]
    return [f"#SBATCH {line}" for line in lines]


def _quoted(folder: Path) -> str:
    if re.search(r'["\\%\n]', str(folder)):
        raise ConfigError(f'SLURM cannot use the folder {str(folder)!r}: its path contains one of % " \\ in it')
    return f'"{folder}"'


def _group(nodes: int, cpus: int, memory: str, partition: str) -> list[str]:
    lines = [f"--nodes={nodes}", "--ntasks-per-node=1", f"--cpus-per-task={cpus}"]
    lines += [f"--mem={memory}"] if memory else []
    return [*lines, *([f"--partition={partition}"] if partition else [])]


def _steps(slurm: SlurmConfig, needed: Cores) -> list[str]:
    """Arguments of srun, per group of nodes, that start one task with all CPUs on every node."""
    groups = [needed.node, needed.actor_node] if slurm.actor_nodes else [needed.node]
    steps = [f"--ntasks-per-node=1 --cpus-per-task={cpus} bash -c on_a_node" for cpus in groups]
    return [f"--het-group={i} {step}" for i, step in enumerate(steps)] if slurm.actor_nodes else steps


def _names(config: Config, job: Job, needed: Cores) -> list[str]:
    slurm = config.cluster.slurm
    if job.array:
        runs = ["members=(", *(f"    {shlex.quote(str(run))}" for run in job.runs), ")"]
        runs.append("export run=${members[SLURM_ARRAY_TASK_ID]}")
    else:
        runs = [f"export run={shlex.quote(str(job.runs[0]))}"]
    words = "".join(f" {shlex.quote(word)}" for word in job.words)
    container = f"{slurm.container} " if slurm.container else ""
    lines = [
        *runs,
        f"export cairn={shlex.quote(str(ROOT))}",
        f"export python={shlex.quote(slurm.python or sys.executable)}",
        f'inside() {{ {container}"$@"; }}',
        f'resume() {{ inside "$python" "$cairn/launch.py" resume "$run"{words}; }}',
        f"place={slurm.temporary}",
        f"requeue={str(slurm.requeue).lower()} idle_requeues={slurm.idle_requeues}",
        f"interrupted_requeues={slurm.interrupted_requeues} backoff_s={slurm.backoff_s}",
    ]
    if slurm.all_nodes > 1:
        first, node, actor_node = needed.slots
        lines += [
            f"export nodes={slurm.nodes} all_nodes={slurm.all_nodes} interface={shlex.quote(slurm.interface)}",
            f"export slots_first={first} slots_node={node} slots_actor_node={actor_node}",
            f"dashboard={int(config.cluster.dashboard)}",
            f"export CAIRN_OBJECT_STORE={round((config.cluster.object_store_gb or 1) * 10**9)}",
            f"export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT={math.ceil(config.cluster.start_timeout_s)}",
        ]
    return lines


# ---- shell ----------------------------------------------------------------------------------------------------------

BEGIN = r"""
export CAIRN_JOB=$SLURM_JOB_ID
export PATH="${python%/*}:$PATH" PYTHONPATH="$cairn${PYTHONPATH:+:$PYTHONPATH}"
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 RAY_USAGE_STATS_ENABLED=0 RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=1
# Ray's sockets and logs, on this node. On another the folder has this name and the number of the node.
if ! { mkdir -p "$place" && temporary=$(mktemp -d "$place/cairn-XXXXXX"); }; then
    echo "error: cannot create this job's folder in $place: free some space there, or set cluster.slurm.temporary" >&2
    exit 2
fi
export temporary RAY_TMPDIR=$temporary
printf '%s job %s, start %s\n' "$(date '+%F %T')" "$SLURM_JOB_ID" "${SLURM_RESTART_COUNT:-0}"

# The run saves after its update and exits with 3. It would miss a request while it starts, so the request is repeated.
warned=false
cancelled=false
asking=()
ask_to_save() {
    while :; do
        touch "$run/STOP"
        sleep 2
    done > /dev/null 2>&1 &
    asking+=("$!")
}
trap 'warned=true; echo "SLURM will end this job: saving"; ask_to_save' USR2
trap 'cancelled=true; ask_to_save' TERM
"""

ONE_NODE = r"""
resume &
job=$!
"""

SEVERAL = r"""
# Ray on every node, behind a token that is in a file of this run. The learner's node is the first: this one.
address() {
    if [ -n "$interface" ]; then
        ip -4 -o address show dev "$interface" | awk '{split($4, a, "/"); print a[1]; exit}'
    else
        hostname -I | awk '{print $1}'
    fi
}
first=$(address)
offset=$((SLURM_JOB_ID % 4000)) # above the ports of Ray's workers, below the ephemeral ports
export first port=$((20000 + offset)) client_port=$((24000 + offset)) dashboard_port=$((dashboard * (28000 + offset)))
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$run/token
rm -f "$RAY_AUTH_TOKEN_PATH"
(umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' > "$RAY_AUTH_TOKEN_PATH")
"""

OPTIONS = r"""
    export RAY_TMPDIR=$temporary-$SLURM_PROCID
    if ! { mkdir -p "${temporary%/*}" && mkdir -m 700 "$RAY_TMPDIR"; }; then # an existing one may be another user's
        echo "error: cannot create $RAY_TMPDIR on $(hostname): free space there, or set cluster.slurm.temporary" >&2
        exit 1
    fi
    options=(--disable-usage-stats --dashboard-agent-listen-port=0 "--object-store-memory=$CAIRN_OBJECT_STORE")
    if [ "$SLURM_PROCID" -eq 0 ]; then
        options+=("--num-cpus=$slots_first" '--resources={"learner": 1}' --no-monitor)
        options+=(--include-dashboard=false "--ray-client-server-port=$client_port")
    elif [ "$SLURM_PROCID" -lt "$nodes" ]; then
        options+=("--num-cpus=$slots_node")
    else
        options+=("--num-cpus=$slots_actor_node" --num-gpus=0)
    fi
"""

MANUAL = (
    SEVERAL
    + "\non_a_node() {"
    + OPTIONS
    + r"""
    exec > "$run/ray-$SLURM_PROCID.txt" 2>&1
    if [ "$SLURM_PROCID" -eq 0 ]; then
        RAY_GCS_SERVER_PORT=$port inside "$python" -m cluster.jobs.slurm.head "$first" "$slots_first" "$dashboard_port"
    else
        while :; do # until the head is up, and again if this node's Ray ends
            inside ray start --block "--address=$first:$port" "--node-ip-address=$(address)" "${options[@]}"
            sleep 5
        done
    fi
}
export -f on_a_node inside address
srun SRUN &
ray=$!
CAIRN_RAY_ADDRESS=$first:$port CAIRN_RAY_NODES=$all_nodes resume &
job=$!
"""
)

SYMMETRIC = (
    SEVERAL
    + r"""
resume_and_say() {
    CAIRN_RAY_ADDRESS=$first:$port CAIRN_RAY_NODES=$all_nodes resume
    echo $? > "$temporary/exit"
}
on_a_node() {"""
    + OPTIONS
    + r"""    options+=("--address=$first:$port" "--min-nodes=$all_nodes")
    inside ray symmetric-run "${options[@]}" -- bash -c resume_and_say
}
export -f on_a_node inside resume resume_and_say
rm -f "$temporary/exit"
# symmetric-run exits with 0 even if Ray did not start, so the run's own exit code counts. If there is none, the run
# was ended from outside: Ray did not start, or its head was killed.
{
    srun --wait=20 SRUN
    exit "$(cat "$temporary/exit" 2> /dev/null || echo 5)"
} &
job=$!
"""
)

END = r"""
while kill -0 "$job" 2> /dev/null; do
    wait "$job" # a signal interrupts it
done
trap '' USR2 TERM # nothing is left to save; a TERM that comes with the requeue must not ask the next start to stop
wait "$job"
code=$?
for process in "${asking[@]}" ${ray:+"$ray"}; do
    kill "$process"
done 2> /dev/null
wait 2> /dev/null
rm -rf "$run/STOP" "$temporary"
"""

LEAVE = r"""
rm -f "$RAY_AUTH_TOKEN_PATH"
on_a_node() { rm -rf "$temporary-$SLURM_PROCID"; }
export -f on_a_node
srun SRUN
"""

AGAIN = r"""
again=false
case $code in
    3) again=$warned ;; # SLURM asked it to stop
    5) if ! $cancelled; then again=true; fi ;; # something it needs failed: a node, a model
esac
ask_for_requeue() { inside "$python" -m cluster.jobs.slurm.requeue "$run" "$@"; }
if $again && $requeue && wait_s=$(ask_for_requeue "$code" "$idle_requeues" "$interrupted_requeues" "$backoff_s"); then
    for pause in 0 5 15 45; do # SLURM's controller may be unavailable for a moment
        sleep "$pause"
        if scontrol requeue "$SLURM_JOB_ID"; then
            wait_s=${wait_s##*$'\n'} # a container may have printed something before
            if [ "$wait_s" -gt 0 ]; then
                scontrol update "jobid=$SLURM_JOB_ID" "starttime=now+${wait_s}seconds"
            fi
            exit "$code"
        fi
    done
    ask_for_requeue failed
fi
exit "$code"
"""
