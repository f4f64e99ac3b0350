"""The LLM service of a run on Kubernetes, in its own pod, and its Redis.

    pods of Ray ── gRPC, token, TLS ──> Service RUN-llm ──> Deployment, 1 pod ── ACL ──> StatefulSet RUN-redis, 1 pod
                                                                │ journal, ledger              │ append-only file
                                                   services/RUN on the claim                claim of its own

It outlives the Ray cluster, so a retried run asks no question twice. Redis accepts only the user `cairn`, whose
password is in a Secret. Its traffic is not encrypted, but network policies keep everyone else out.
"""

from __future__ import annotations

import json
import math

import envs
from cluster.config.overrides import flatten
from cluster.config.tree import Config
from cluster.jobs.kubernetes.config import CODE, RUNS
from cluster.jobs.kubernetes.manifests import (
    MODELS,
    Object,
    claimed,
    config_files,
    empty,
    from_secret,
    labelled,
    pod,
    resources,
    secret_files,
    storage,
    thing,
)
from cluster.topology import asks_a_language_model
from llm_service.settings import LLMConfig

LLM_PORT, LLM_METRICS_PORT, REDIS_PORT = 50051, 9100, 6379
REDIS_USER = 999  # of the official image
OTHERWISE = ("address", "when_away", "world", "replicas", "gpus")
"""Keys of `llm` that only callers use, or that the pod gets in another way."""


def serves(config: Config) -> bool:
    """Whether the run has its own LLM service."""
    return (asks_a_language_model(config) or config.cluster.kubernetes.shared) and not config.llm.address


def secrets(config: Config) -> list[str]:
    """Names of the Secrets that it needs."""
    if not serves(config):
        return []
    kubernetes = config.cluster.kubernetes
    names = [f"{kubernetes.secret}-llm", f"{kubernetes.secret}-llm-tls"]
    names += [] if config.llm.redis.url else [f"{kubernetes.secret}-redis"]
    return names + ([kubernetes.llm_environment] if kubernetes.llm_environment else [])


def world(config: Config) -> str:
    """The environment's description of itself, as the file that the service reads."""
    return json.dumps(envs.knowledge(config.env.id.partition("/")[0], config.env.options))


def caller(config: Config) -> tuple[list[Object], list[tuple[Object, Object]]]:
    """Environment variables and folders of a pod that asks the service."""
    if not serves(config):
        return [], []
    prefix = config.cluster.kubernetes.secret
    environment = [
        from_secret("CAIRN_LLM_TOKEN", f"{prefix}-llm", "token"),
        {"name": "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "value": "/etc/cairn/tls/ca.crt"},
    ]
    return environment, [secret_files("llm-tls", "/etc/cairn/tls", f"{prefix}-llm-tls", ["ca.crt"])]


def words(config: Config) -> list[str]:
    """The service's configuration, as arguments of `python -m llm_service.server`."""
    llm, run, space = config.llm, config.run.name, config.cluster.kubernetes.namespace
    plain, wanted = flatten(LLMConfig(name=llm.name).model_dump()), flatten(llm.model_dump())
    own = {k: v for k, v in wanted.items() if k not in OTHERWISE and (k not in plain or v != plain[k])}
    own |= {
        "world": "/etc/cairn/files/world.json",
        "server.listen": f"0.0.0.0:{LLM_PORT}",
        "server.tls_certificate": "/etc/cairn/tls/tls.crt",
        "server.tls_key": "/etc/cairn/tls/tls.key",
    }
    if config.cluster.kubernetes.monitor:
        own |= {"server.metrics_port": LLM_METRICS_PORT, "server.metrics_host": "0.0.0.0"}
    if not llm.redis.url:
        own |= {
            "redis.url": f"redis://cairn@{run}-redis.{space}.svc:{REDIS_PORT}/0",
            "redis.password_env": "CAIRN_REDIS_PASSWORD",
        }
    return [f"{key}={as_yaml(value)}" for key, value in {"name": llm.name, **own}.items()]


def as_yaml(value: object) -> str:
    """A value on one line that YAML and Hydra read alike."""
    text = json.dumps(value)
    return text.replace("e", ".0e") if isinstance(value, float) and "e" in text and "." not in text else text


def service(config: Config) -> list[Object]:
    """Deployment and Service."""
    kubernetes, run = config.cluster.kubernetes, config.run.name
    name, space, prefix = f"{run}-llm", kubernetes.namespace, kubernetes.secret
    gpus = kubernetes.asked(kubernetes.llm_gpus) if config.llm.name == "transformers" else 0
    environment = [from_secret("CAIRN_LLM_TOKEN", f"{prefix}-llm", "token")]
    if not config.llm.redis.url:
        environment.append(from_secret("CAIRN_REDIS_PASSWORD", f"{prefix}-redis", "password"))
    answers = [f"{CODE}/docker/healthy.sh", f"localhost:{LLM_PORT}", "/etc/cairn/tls/ca.crt"]
    probe = {"exec": {"command": answers}, "timeoutSeconds": 30}
    alive = {"exec": {"command": [*answers, "alive"]}, "timeoutSeconds": 30}  # a new pod does not bring a model back
    container: Object = {
        "name": "llm",
        "image": kubernetes.llm_image or kubernetes.image,
        "command": ["python", "-m", "llm_service.server"],
        "args": [*words(config), "--folder", f"{RUNS}/services/{run}"],
        "workingDir": CODE,
        "env": environment,
        "ports": [{"name": "grpc", "containerPort": LLM_PORT}],
        "resources": resources(2, kubernetes.llm_memory, gpus, kubernetes.gpu),
        "startupProbe": {**probe, "periodSeconds": 10, "failureThreshold": 90},
        "livenessProbe": {**alive, "periodSeconds": 60, "failureThreshold": 3},
        "readinessProbe": {**probe, "periodSeconds": 60},
    }
    if kubernetes.monitor:
        container["ports"].append({"name": "metrics", "containerPort": LLM_METRICS_PORT})
    if kubernetes.llm_environment:
        container["envFrom"] = [{"secretRef": {"name": kubernetes.llm_environment}}]
    folders = [
        claimed("runs", f"{RUNS}/services/{run}", kubernetes.runs_claim, f"services/{run}"),
        MODELS,
        empty("tmp", "/tmp", "10Gi"),
        secret_files("tls", "/etc/cairn/tls", f"{prefix}-llm-tls", ["ca.crt", "tls.crt", "tls.key"]),
        config_files("files", "/etc/cairn/files", f"{run}-files"),
    ]
    labels = labelled(run, "llm-service")
    template = pod(
        container,
        folders,
        labels,
        30 + math.ceil(2 * config.llm.server.drain_s),
        nodes=kubernetes.gpu_nodes if gpus else (),
        gpu=kubernetes.gpu if gpus else "",
    )
    spec = {
        "replicas": 1,  # one writer of journal and ledger
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": template,
    }
    service = {"selector": labels, "ports": [{"name": "grpc", "port": LLM_PORT, "targetPort": "grpc"}]}
    return [
        thing("Deployment", "apps/v1", name, space, run, spec=spec),
        thing("Service", "v1", name, space, run, spec=service),
    ]


def redis(config: Config) -> list[Object]:
    """StatefulSet and Service."""
    kubernetes, run, options = config.cluster.kubernetes, config.run.name, config.llm.redis
    name = f"{run}-redis"
    settings = {
        "aclfile": "/etc/redis/users.acl",
        "dir": "/data",
        "appendonly": "yes",
        "appendfsync": options.appendfsync,
        "save": "",
        "maxmemory": f"{options.memory_mb}mb",
        "maxmemory-policy": "volatile-lru",  # cached answers may be evicted, jobs may not
    }
    probe = {"tcpSocket": {"port": REDIS_PORT}, "periodSeconds": 10}
    container: Object = {
        "name": "redis",
        "image": kubernetes.redis_image,
        "command": ["redis-server"],
        "args": [word for key, value in settings.items() for word in (f"--{key}", value)],
        "ports": [{"name": "redis", "containerPort": REDIS_PORT}],
        "resources": resources(1, f"{256 + 2 * options.memory_mb}Mi"),  # a copy of the process rewrites the file
        "livenessProbe": probe,
        "readinessProbe": probe,
    }
    data: tuple[Object, Object] = {}, {"name": "data", "mountPath": "/data"}
    folders = [secret_files("users", "/etc/redis", f"{kubernetes.secret}-redis", ["users.acl"]), data]
    labels = labelled(run, "redis")
    template = pod(container, folders, labels, 60, user=REDIS_USER)
    disk = storage("ReadWriteOnce", "4Gi", kubernetes.storage_class)
    spec = {
        "serviceName": name,
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": template,
        "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": labelled(run)}, "spec": disk}],
    }
    service = {"clusterIP": "None", "selector": labels, "ports": [{"name": "redis", "port": REDIS_PORT}]}
    return [
        thing("StatefulSet", "apps/v1", name, kubernetes.namespace, run, spec=spec),
        thing("Service", "v1", name, kubernetes.namespace, run, spec=service),
    ]
