"""Runs as Kubernetes jobs: one manifest, printed or applied.

    config ──> check ──> words, objects ──> YAML ──> kubectl apply        (--dry-run: printed)
                                                        │
    RayJob ── run.sh: `launch.py run` the first time, `resume` after ──> head: controller (no roles)
       └── groups  actors 0..n   learner 1   llm 0..n    `demand` places roles on them
    Deployment: LLM service ──> StatefulSet: Redis                       for methods that ask a language model
    volume claim  runs/NAME <── /runs of this run or bench alone, which outlives every pod
                  models    <── /models, read-only

A failed job is retried on a new cluster from the last checkpoint. The old cluster may still be ending then; the number
of the attempt decides which of the two may save (`learner.files`).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from cluster.config import tree as configuration
from cluster.config.overrides import flatten
from cluster.config.tree import Config
from cluster.jobs.kubernetes import language_model, networks, ray_cluster
from cluster.jobs.kubernetes.config import LABEL, LONGEST, RUNS
from cluster.jobs.kubernetes.language_model import LLM_PORT, as_yaml, serves
from cluster.jobs.kubernetes.manifests import Object, labelled, storage, thing
from cluster.jobs.kubernetes.ray_cluster import LEARNS
from cluster.roles.placement import assert_placed
from llm_service.errors import UsageError

OWN = (
    "rayjob,raycluster,deployment,statefulset,service,configmap,networkpolicy,poddisruptionbudget,persistentvolumeclaim"
)
"""Kinds of a run's objects. The claim for run folders, which all runs share, does not have a run's label."""


class KubernetesError(UsageError):
    """The job cannot be created as requested. One sentence; nothing was applied."""


# ---- the request ----------------------------------------------------------------------------------------------------


def named(config: Config) -> Config:
    """`config` with a name that Kubernetes accepts, unless the user gave one."""
    name = configuration.named(config).run.name
    if made := re.fullmatch(r"(.+)(-\d{8}-\d{6})", name):
        stem = re.sub(r"[^a-z0-9]+", "-", made[1].lower())[: LONGEST - len(made[2])].strip("-")
        name = stem + made[2]
    return config.model_copy(update={"run": config.run.model_copy(update={"name": name})})


def check(config: Config) -> None:
    """Raise `KubernetesError` for errors that can be found before anything is created."""
    kubernetes, llm = config.cluster.kubernetes, config.llm
    if not kubernetes.image:
        raise KubernetesError(
            "cluster.kubernetes.image is missing: build docker/cpu.Dockerfile, push it where the cluster can pull it, "
            "and name it, as in cluster.kubernetes.image=registry.example/cairn:1.0"
        )
    if len(config.run.name) > LONGEST or not re.fullmatch(LABEL, config.run.name):
        raise KubernetesError(
            f"run.name: Kubernetes names objects after it: expected at most {LONGEST} of a-z, 0-9 and -, and a letter "
            f"first, got {config.run.name!r}"
        )
    if config.run.folder != type(config.run)().folder:
        raise KubernetesError(
            f"run.folder: runs are on the claim {kubernetes.runs_claim!r}, at {RUNS} in every pod: leave it out"
        )
    if llm.replicas:
        raise KubernetesError(
            "llm.replicas: on Kubernetes the LLM service runs outside Ray: leave it out, and give the service "
            "cluster.kubernetes.llm_gpus, or let it use a model server with llm=openai llm.base_url=..."
        )
    assert_placed(config)


def words(config: Config) -> list[str]:
    """The arguments of `launch.py run` that give this configuration; `KubernetesError` if there are none."""
    tree = config.model_dump()
    chosen = [f"experiment={config.experiment}"] if config.experiment else []
    chosen += [f"method={tree['method']['name']}", f"env={config.env.id}", f"llm={config.llm.name}"]
    chosen.append("cluster=kubernetes")
    base, wanted = configuration.compose(chosen), flatten(tree)
    changed = [key for key, _, _ in configuration.difference(base, config) if key in wanted]
    return chosen + [f"{key}={spelled(key, wanted[key])}" for key in changed]


def spelled(key: str, value: Any) -> str:
    """A value in Hydra's grammar, on one line."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{spelled(key, v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(spelled(key, item) for item in value) + "]"
    if not isinstance(value, str):
        return as_yaml(value)
    if "\n" in value or "\r" in value:
        raise KubernetesError(f"{key}: a value of several lines cannot be passed to a job")
    return "'" + re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), value) + "'"


def demand(config: Config, name: str) -> dict[str, Any]:
    """The Ray resources of the role `name` if it has no GPU, as arguments of `ray.remote`: they name its pods."""
    role = re.split(r"\W", name)[0]
    if role in LEARNS:
        return {"num_cpus": config.learner.threads, "resources": {"learner": 1}}
    if role == "policy":
        return {"num_cpus": 1, "resources": {"llm": 1}}
    return {"num_cpus": 1, "resources": {"actors": 1}}


# ---- the manifest ---------------------------------------------------------------------------------------------------


def render(config: Config) -> str:
    """The manifest as YAML, or a `KubernetesError` if the configuration does not fit Kubernetes."""
    config = named(config)
    check(config)
    line = f"# Made by docker/secrets.sh beforehand: Secrets {', '.join(secrets(config))}\n"
    return line + str(yaml.dump_all(objects(config), Dumper=_Dumper, sort_keys=False, width=120))


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """For readers: no anchors for repeated values, and texts of several lines as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> Any:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Dumper.add_representer(str, _Dumper.represent_str)


def secrets(config: Config) -> list[str]:
    """Names of the Secrets that the manifest needs."""
    return [f"{config.cluster.kubernetes.secret}-ray", *language_model.secrets(config)]


def objects(config: Config) -> list[Object]:
    """All objects, in the order in which they are needed; `config` has a name and is checked."""
    kubernetes, name = config.cluster.kubernetes, config.run.name
    made = []
    if kubernetes.runs_size:
        spec = storage("ReadWriteMany", kubernetes.runs_size, kubernetes.storage_class)
        made.append(thing("PersistentVolumeClaim", "v1", kubernetes.runs_claim, kubernetes.namespace, spec=spec))
    files = {} if kubernetes.shared else {"words": "\n".join(words(_inside(config))) + "\n"}
    if serves(config):
        files["world.json"] = language_model.world(config)
    if files:
        made.append(thing("ConfigMap", "v1", f"{name}-files", kubernetes.namespace, name, data=files))
    made += networks.policies(config)
    if serves(config):
        made += [] if config.llm.redis.url else language_model.redis(config)
        made += language_model.service(config)
    made.append(ray_cluster.budget(config))
    made.append(ray_cluster.bench(config) if kubernetes.shared else ray_cluster.job(config))
    if kubernetes.monitor:
        scraped = [{"port": "metrics", "interval": "15s"}]
        spec = {"selector": {"matchLabels": labelled(name)}, "podMetricsEndpoints": scraped}
        made.append(thing("PodMonitor", "monitoring.coreos.com/v1", name, kubernetes.namespace, name, spec=spec))
    return made


def _inside(config: Config) -> Config:
    """The configuration of the run inside the cluster."""
    run = config.run.model_copy(update={"folder": RUNS})
    service = f"{config.run.name}-llm.{config.cluster.kubernetes.namespace}.svc:{LLM_PORT}"
    llm = config.llm.model_copy(update={"address": service}) if serves(config) else config.llm
    return config.model_copy(update={"run": run, "llm": llm})


# ---- submitting -----------------------------------------------------------------------------------------------------


def submit(config: Config) -> int:
    """Apply the manifest; returns 0. A `UsageError` (no kubectl, a missing Secret, a refusal): nothing was started."""
    config = named(config)
    manifest, space, run = render(config), config.cluster.kubernetes.namespace, config.run.name
    if shutil.which("kubectl") is None:
        raise KubernetesError(
            "there is no kubectl on PATH: install it, or print the manifest with --dry-run and apply it elsewhere"
        )
    for secret in secrets(config):
        _kubectl(f"Secret {secret} does not exist; docker/secrets.sh creates it", "get", "secret", secret, "-n", space)
    print(_kubectl("Kubernetes refuses the manifest", "apply", "-f", "-", given=manifest))
    kind = "raycluster" if config.cluster.kubernetes.shared else "rayjob"
    own = f"{OWN},podmonitor" if config.cluster.kubernetes.monitor else OWN
    print(
        f"state: kubectl -n {space} get {kind} {run}\n"
        f"logs:  kubectl -n {space} logs -f -l cairn/run={run},app.kubernetes.io/component=submitter\n"
        f"stop:  kubectl -n {space} delete {kind} {run}    (it saves first; run the same command to continue)\n"
        f"clear: kubectl -n {space} delete {own} -l cairn/run={run}    (everything of this run except its folder)"
    )
    return 0


def resume(path: Path, words: list[str], allow_change: bool) -> int:
    """Raise `UsageError`: Kubernetes retries the job itself, from the last checkpoint."""
    raise UsageError(f"on Kubernetes, {path.name} is continued by the same 'launch.py run' command that started it")


def _kubectl(trouble: str, *arguments: str, given: str | None = None) -> str:
    done = subprocess.run(["kubectl", *arguments], input=given, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["kubectl says nothing"]
        raise KubernetesError(f"{trouble}: {said[-1].strip()}")
    return done.stdout.strip()
