"""Kubernetes objects as plain dictionaries, each with as few rights as possible.

    pod(...)      one container: no root, no capabilities, a read-only disk except for named folders
    policy(...)   allowed connections; all others are forbidden
    volumes, environment from Secrets, requests that equal limits

Nothing here knows about Ray or runs. Secrets are referred to by name, never contained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Object = dict[str, Any]

USER = 10001
"""The user of our images."""
LOCKED: Object = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""A container's rights: none beyond computing."""


def labelled(run: str, component: str = "") -> dict[str, str]:
    """The labels by which policies, services and people find the pods of a run."""
    labels = {"app.kubernetes.io/part-of": "cairn"} | ({"cairn/run": run} if run else {})
    return labels | ({"app.kubernetes.io/component": component} if component else {})


def thing(kind: str, api: str, name: str, namespace: str, run: str = "", **body: Any) -> Object:
    """An object with its metadata, of one run or shared by all; `body` is the rest."""
    metadata = {"name": name, "namespace": namespace, "labels": labelled(run)}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **body}


def from_secret(variable: str, secret: str, key: str) -> Object:
    """An environment variable from a Secret."""
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def storage(mode: str, size: str, storage_class: str) -> Object:
    """The request of a volume claim; an empty class is the cluster's default."""
    asked: Object = {"accessModes": [mode], "resources": {"requests": {"storage": size}}}
    return asked | ({"storageClassName": storage_class} if storage_class else {})


def resources(cpus: int, memory: str, gpus: int = 0, gpu: str = "") -> Object:
    """Requests that equal limits: a pod gets what it requests, and is not the first to be evicted."""
    amounts = {"cpu": str(cpus), "memory": memory} | ({gpu: str(gpus)} if gpus else {})
    return {"requests": dict(amounts), "limits": dict(amounts)}


def empty(name: str, path: str, size: str, memory: bool = False) -> tuple[Object, Object]:
    """A folder that exists as long as its pod, as (volume, mount)."""
    kept: Object = {"sizeLimit": size} | ({"medium": "Memory"} if memory else {})
    return {"name": name, "emptyDir": kept}, {"name": name, "mountPath": path}


def claimed(name: str, path: str, claim: str, part: str) -> tuple[Object, Object]:
    """One folder of a volume claim, created if missing; the pod sees nothing else of the claim."""
    mount = {"name": name, "mountPath": path, "subPath": part}
    return {"name": name, "persistentVolumeClaim": {"claimName": claim}}, mount


MODELS: tuple[Object, Object] = (
    {},
    {"name": "runs", "mountPath": "/models", "subPath": "models", "readOnly": True},
)
"""The claim's folder of models, read-only for every run."""


def secret_files(name: str, path: str, secret: str, keys: Sequence[str]) -> tuple[Object, Object]:
    """Keys of a Secret as files that the pod's user can read."""
    items = [{"key": key, "path": key} for key in keys]
    kept = {"secretName": secret, "defaultMode": 0o440, "items": items}
    return {"name": name, "secret": kept}, {"name": name, "mountPath": path, "readOnly": True}


def config_files(name: str, path: str, config_map: str) -> tuple[Object, Object]:
    """A ConfigMap's keys as files."""
    return {"name": name, "configMap": {"name": config_map}}, {"name": name, "mountPath": path, "readOnly": True}


def pod(
    container: Object,
    folders: Sequence[tuple[Object, Object]],
    labels: Mapping[str, str],
    grace_s: int,
    user: int = USER,
    nodes: Sequence[str] = (),
    gpu: str = "",
    **spec: Any,
) -> Object:
    """A pod template with one container.

    Args:
        container: the fields of this container.
        folders: (volume, mount) pairs; nothing else is writable. A volume that a claim template creates, or that exists
            already, is empty here.
        labels: of the pod.
        grace_s: seconds that the pod gets to end.
        user: the user id in the container.
        nodes: labels of allowed nodes, KEY=VALUE; none: any node.
        gpu: the resource whose nodes are tainted for other pods; empty: no such node.
        spec: further fields of the pod. By default it gets no token for the Kubernetes API.
    """
    volumes, mounts = [volume for volume, _ in folders if volume], [mount for _, mount in folders]
    body: Object = {
        "terminationGracePeriodSeconds": grace_s,
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": user,
            "runAsGroup": user,
            "fsGroup": user,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [{**container, "securityContext": LOCKED, "volumeMounts": mounts}],
        "volumes": volumes,
        **spec,
    }
    if nodes:
        body["nodeSelector"] = dict(label.split("=") for label in nodes)
    if gpu:
        body["tolerations"] = [{"key": gpu, "operator": "Exists", "effect": "NoSchedule"}]
    return {"metadata": {"labels": dict(labels)}, "spec": body}


# ---- allowed connections --------------------------------------------------------------------------------------------


def ports(*numbers: int) -> Object:
    """One part of a rule."""
    return {"ports": [{"port": number, "protocol": "TCP"} for number in numbers]}


def chosen(run: str, components: Sequence[str]) -> Object:
    """A selector for the pods of a run that belong to one of these components."""
    among = {"key": "app.kubernetes.io/component", "operator": "In", "values": list(components)}
    return {"matchLabels": labelled(run), "matchExpressions": [among]}


def policy(
    name: str,
    namespace: str,
    run: str,
    components: Sequence[str],
    incoming: Sequence[Object],
    outgoing: Sequence[Object],
) -> Object:
    """The connections that pods of these components may accept and open; all others are forbidden."""
    spec = {
        "podSelector": chosen(run, components),
        "policyTypes": ["Ingress", "Egress"],
        "ingress": list(incoming),
        "egress": list(outgoing),
    }
    return thing("NetworkPolicy", "networking.k8s.io/v1", name, namespace, run, spec=spec)
