"""The Ray cluster of a run on Kubernetes, as fields of KubeRay (1.6.2 or newer).

    head      controller, Ray's own services, autoscaler; 0 CPUs for roles
    actors    0..n pods, while actors wait for one                   {"actors": CPUs}: the resource that actors ask for
    learner   1 pod with GPUs, all ranks of learner or fitter        {"learner": ...}
    llm       0..n pods with GPUs, a language-model policy's server  {"llm": ...}

Every pod mounts at /runs only this run's or bench's folder of the claim. It has its own /tmp and /dev/shm, and can
write nothing else. Before head or learner end, their run is asked to save (`docker/drain.sh`).
"""

from __future__ import annotations

import math
from importlib.metadata import version

from cluster.config.tree import Config
from cluster.jobs.kubernetes.config import CODE, RUNS, amount
from cluster.jobs.kubernetes.language_model import caller
from cluster.jobs.kubernetes.manifests import (
    LOCKED,
    MODELS,
    Object,
    chosen,
    claimed,
    config_files,
    empty,
    labelled,
    pod,
    resources,
    thing,
)
from cluster.topology import topology

DASHBOARD_PORT, METRICS_PORT = 8265, 8080
LEARNS = ("learner", "fitter")
"""Roles of the group `learner`."""


def job(config: Config) -> Object:
    """A RayJob: a cluster that ends with its run."""
    kubernetes, name = config.cluster.kubernetes, config.run.name
    submitter = {"name": "ray-job-submitter", "image": kubernetes.image, "resources": resources(1, "1Gi")}
    labels = labelled(name, "submitter")
    template = pod(submitter, [empty("tmp", "/tmp", "1Gi")], labels, 30, restartPolicy="Never")
    spec: Object = {
        "entrypoint": f"{CODE}/docker/run.sh {RUNS}/{name} /etc/cairn/files/words",
        "submissionMode": "K8sJobMode",
        "backoffLimit": kubernetes.retries,
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": kubernetes.keep_s,
    }
    if kubernetes.deadline_s:
        spec["activeDeadlineSeconds"] = kubernetes.deadline_s
    spec |= {"submitterPodTemplate": template, "rayClusterSpec": _ray(config)}
    return thing("RayJob", "ray.io/v1", name, kubernetes.namespace, name, spec=spec)


def bench(config: Config) -> Object:
    """A permanent RayCluster."""
    kubernetes, name = config.cluster.kubernetes, config.run.name
    return thing("RayCluster", "ray.io/v1", name, kubernetes.namespace, name, spec=_ray(config))


def budget(config: Config) -> Object:
    """A node drain may end head or learner, but not both at once: a run that must end saves, which needs the other one.

    There is only one of each, so protecting both would block every drain until the run is done."""
    name = config.run.name
    spec = {
        "minAvailable": 1,
        "selector": chosen(name, ["head", "learner"]),
        "unhealthyPodEvictionPolicy": "AlwaysAllow",  # a pod that does not work has nothing to save
    }
    return thing("PodDisruptionBudget", "policy/v1", name, config.cluster.kubernetes.namespace, name, spec=spec)


def _ray(config: Config) -> Object:
    """Head and groups."""
    kubernetes, roles = config.cluster.kubernetes, topology(config).roles
    computing = sum(role.count * role.threads for role in roles if role.name in LEARNS)
    learner = 1 + max(computing, config.learner.threads)  # plus one for Ray's own processes
    actors = math.ceil(config.actors.n / kubernetes.pod_actors)
    head = _worker(config, "head", kubernetes.head_cpus, kubernetes.head_memory)
    groups = [
        _group(config, "actors", (0, actors), kubernetes.pod_actors, kubernetes.actor_memory),
        _group(config, "learner", (1, 1), learner, kubernetes.learner_memory, kubernetes.learner_gpus),
        _group(config, "llm", (0, kubernetes.llm_pods), 2, kubernetes.llm_memory, kubernetes.llm_gpus),
    ]
    return {
        "rayVersion": version("ray"),
        "authOptions": {"mode": "token", "secretName": f"{kubernetes.secret}-ray"},
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {
            "version": "v2",
            "idleTimeoutSeconds": 60,
            "resources": resources(1, "1Gi"),
            "securityContext": LOCKED,
        },
        "headGroupSpec": {
            "rayStartParams": {"num-cpus": "0", "dashboard-host": "0.0.0.0", **_store(config)},
            "template": head,
        },
        "workerGroupSpecs": groups,
    }


def _group(config: Config, name: str, pods: tuple[int, int], cpus: int, memory: str, gpus: int = 0) -> Object:
    gpus = config.cluster.kubernetes.asked(gpus)
    start = {"num-cpus": str(cpus), **({"num-gpus": str(gpus)} if gpus else {}), **_store(config)}
    return {
        "groupName": name,
        "replicas": pods[0],
        "minReplicas": pods[0],
        "maxReplicas": pods[1],
        "resources": {name: str(cpus)},
        "rayStartParams": start,
        "template": _worker(config, name, cpus, memory, gpus),
    }


def _store(config: Config) -> dict[str, str]:
    """Ray's object store fills most of /dev/shm, and nothing else."""
    return {"object-store-memory": str(int(0.9 * amount(config.cluster.kubernetes.shared_memory)))}


def _worker(config: Config, group: str, cpus: int, memory: str, gpus: int = 0) -> Object:
    """The pod of a group, or the head."""
    kubernetes, name = config.cluster.kubernetes, config.run.name
    folders = [
        claimed("runs", RUNS, kubernetes.runs_claim, f"runs/{name}"),
        MODELS,
        empty("tmp", "/tmp", "20Gi"),
        empty("shm", "/dev/shm", kubernetes.shared_memory, memory=True),
    ]
    environment, authority = caller(config)
    folders += authority
    if group == "head" and not kubernetes.shared:
        folders.append(config_files("files", "/etc/cairn/files", f"{name}-files"))
    container: Object = {
        "name": "ray-head" if group == "head" else "ray-worker",
        "image": (kubernetes.gpu_image if gpus else "") or kubernetes.image,
        "env": environment,
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT}],
        "resources": resources(cpus, memory, gpus, kubernetes.gpu),
    }
    if group == "head":
        named_ports = {"gcs-server": 6379, "dashboard": DASHBOARD_PORT, "client": 10001}
        container["ports"] += [{"name": n, "containerPort": port} for n, port in named_ports.items()]
    grace_s = 30
    if group in ("head", "learner"):  # the run must stop if either is lost: it saves first
        grace_s = kubernetes.grace_s
        what = f"{RUNS}/*" if kubernetes.shared else f"{RUNS}/{name}"
        drain = ["/bin/sh", "-c", f"exec {CODE}/docker/drain.sh {grace_s - 15} {what}"]
        container["lifecycle"] = {"preStop": {"exec": {"command": drain}}}
    return pod(
        container,
        folders,
        labelled(name, group),
        grace_s,
        nodes=kubernetes.gpu_nodes if gpus else kubernetes.actor_nodes if group == "actors" else (),
        gpu=kubernetes.gpu if gpus else "",
        restartPolicy="Never",  # a pod that was another Ray node before confuses Ray
        **({"automountServiceAccountToken": True} if group == "head" else {}),  # the autoscaler asks the API
    )
