"""What a run requests from Kubernetes: the keys `cluster.kubernetes.*`, checked before anything is rendered.

head      controller and Ray's own services; no role runs there
actors    0..n pods, each with `pod_actors` actors; they are created on demand and may be lost
learner   exactly 1 pod with GPUs, a whole one for each rank: learner, fitter
llm       0..`llm_pods` pods with GPUs: the policy server, if the learner's pod has no GPU left
"""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import Self

from pydantic import Field, model_validator

from cluster.jobs import assert_form
from envs.config import Part

LABEL = r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?"
"""A DNS label that may also name a Service: RFC 1035."""
QUANTITY = r"[1-9]\d*(\.\d+)?([kMGTPE]|[KMGTPE]i)?"
NODE_LABEL = r"([a-z0-9.-]+/)?[\w.-]+=[\w.-]*"
IMAGE = r"[a-z0-9][\w.:/-]*(@sha256:[0-9a-f]{64})?"
CODE = "/opt/cairn"
"""Folder of the code in our images."""
RUNS = "/runs"
"""Mount point of the folders of a pod's run or bench."""
LONGEST = 47
"""Longest name of a RayJob: the operator adds suffixes for its objects, and a label has at most 63 characters."""


class KubernetesConfig(Part):
    """A Kubernetes job, run by the KubeRay operator."""

    namespace: str = "default"
    """Namespace of all objects."""
    shared: bool = False
    """Create a permanent RayCluster, a bench for several runs, instead of a RayJob that ends with its run."""
    image: str = ""
    """Image of every pod, for example registry.example/cairn:1.0; there is no default."""
    gpu_image: str = ""
    """Image of the pods with GPUs; empty: `image`."""
    llm_image: str = ""
    """Image of the LLM service; empty: `image`."""
    redis_image: str = "redis:7.4.7-alpine@sha256:02f2cc4882f8bf87c79a220ac958f58c700bdec0dfb9b9ea61b62fb0e8f1bfcf"
    """Image of the LLM service's Redis."""
    secret: str = "cairn"
    """Prefix of the Secrets that must exist: PREFIX-ray, and for the LLM service PREFIX-llm, -llm-tls, -redis."""
    llm_environment: str = ""
    """Secret whose keys become environment variables of the LLM service, such as OPENAI_API_KEY."""
    runs_claim: str = "cairn-runs"
    """Volume claim of all runs; each pod mounts its own folder of it. It must be writable from several nodes."""
    runs_size: str = "20Gi"
    """Size of that claim, which is created if missing; empty: it exists already."""
    storage_class: str = ""
    """The claim's storage class; empty: the cluster's default."""
    head_cpus: int = Field(default=2, ge=1)
    """CPUs of the head pod."""
    head_memory: str = "8Gi"
    """Memory of the head pod."""
    pod_actors: int = Field(default=4, ge=1)
    """Actors in one pod of the group `actors`, one CPU each."""
    actor_memory: str = "8Gi"
    """Memory of each actor pod."""
    actor_nodes: list[str] = Field(default=[])
    """Labels of the nodes for actor pods, KEY=VALUE, such as the label of spot machines."""
    learner_memory: str = "16Gi"
    """Memory of the learner's pod; its CPUs are computed from the run's roles and threads."""
    learner_gpus: int = Field(default=1, ge=0)
    """GPUs of the learner's pod."""
    llm_pods: int = Field(default=1, ge=0)
    """Maximum number of pods in the group `llm`."""
    llm_memory: str = "16Gi"
    """Memory of each pod in the group `llm`, and of the LLM service."""
    llm_gpus: int = Field(default=1, ge=0)
    """GPUs of each pod in the group `llm`, and of the LLM service if it holds a model itself (`llm=transformers`)."""
    gpu_nodes: list[str] = Field(default=[])
    """Labels of the nodes for pods with GPUs, KEY=VALUE."""
    gpu: str = "nvidia.com/gpu"
    """The cluster's resource name for a GPU."""
    cpu_only: bool = False
    """Request no GPUs: for trying everything on a cluster without GPUs."""
    shared_memory: str = "2Gi"
    """Size of /dev/shm, where Ray stores objects; it counts as memory of the pod."""
    grace_s: int = Field(default=300, ge=60)
    """Seconds that a pod gets to end; must be longer than one update and one save."""
    retries: int = Field(default=3, ge=0)
    """How often a failed job is retried, each time on a new Ray cluster and from the last checkpoint."""
    deadline_s: int = Field(default=0, ge=0)
    """Seconds after which the job is ended in any case; 0: no limit."""
    keep_s: int = Field(default=600, ge=0)
    """Seconds that the Ray cluster of a finished job is kept, so that you can read its logs."""
    api_block: str = "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16"
    """Addresses of the Kubernetes API, separated by commas; the head may connect to them, for the autoscaler."""
    dns_namespace: str = "kube-system"
    """Namespace of the cluster's DNS servers, the only ones that pods may use."""
    dns_pods: list[str] = Field(default=["k8s-app=kube-dns"])
    """Labels of the DNS servers' pods, KEY=VALUE."""
    dns_block: str = ""
    """Addresses of a DNS server outside these pods, such as 169.254.20.10/32 for NodeLocal DNSCache; empty: none."""
    outside_block: str = ""
    """Addresses, separated by commas, that a model provider, an LLM service or a Redis outside the cluster may have if
    it is given by name; empty: all public addresses."""
    monitor: bool = True
    """Create a PodMonitor, which needs the Prometheus operator."""
    monitor_namespace: str = "monitoring"
    """Namespace of the Prometheus that may read metrics."""

    @model_validator(mode="after")
    def _is_sensible(self) -> Self:
        labels = ["namespace", "secret", "runs_claim", "llm_environment", "monitor_namespace", "dns_namespace"]
        sizes = ["head_memory", "actor_memory", "learner_memory", "llm_memory", "shared_memory", "runs_size"]
        images = ["image", "gpu_image", "llm_image", "redis_image"]
        assert_form(self, "kubernetes", labels, LABEL, "a DNS label such as cairn-1", ["llm_environment"])
        assert_form(self, "kubernetes", sizes, QUANTITY, "a quantity such as 16Gi", ["runs_size"])
        assert_form(self, "kubernetes", images, IMAGE, "an image such as registry.example/cairn:1.0", images[:3])
        for name in ("learner_gpus", "llm_gpus"):
            if not getattr(self, name) and not self.cpu_only:
                raise ValueError(
                    f"cluster.kubernetes.{name}: the pods of this group exist for their GPUs: ask for at least 1, "
                    "or set cluster.kubernetes.cpu_only=true"
                )
        pods = ["actor_nodes", "gpu_nodes", "dns_pods"]
        assert_form(self, "kubernetes", pods, NODE_LABEL, "KEY=VALUE such as pool=spot")
        if not self.dns_pods:
            raise ValueError(
                "cluster.kubernetes.dns_pods: without a label, every pod of that namespace would be allowed: name one"
            )
        for name in ("api_block", "dns_block", "outside_block"):
            given = getattr(self, name)
            try:
                for addresses in given.split(",") if given or name == "api_block" else []:
                    ip_network(addresses)
            except ValueError:
                raise ValueError(
                    f"cluster.kubernetes.{name}: expected addresses such as 10.0.0.1/32, got {given!r}"
                ) from None
        return self

    def asked(self, gpus: int) -> int:
        """The number of GPUs, 0 on a cluster without GPUs."""
        return 0 if self.cpu_only else gpus


def amount(quantity: str) -> int:
    """A quantity as a number: 2Gi is 2147483648."""
    number, unit = re.fullmatch(r"([\d.]+)(\D*)", quantity).groups()  # type: ignore[union-attr]
    power = "kMGTPE".find(unit[:1].replace("K", "k")) + 1 if unit else 0
    return int(float(number) * (1024 if unit.endswith("i") else 1000) ** power)
