"""What a run asks of Kubernetes: the keys `cluster.kubernetes.*`, each checked before anything is rendered.

head      controller and Ray's own services; no role runs there
actors    0..n pods, each with `pod_actors` actors; they come with demand and may be lost
learner   exactly 1 pod with GPUs: learner, fitter, policy server
llm       0..`llm_pods` pods with GPUs: processes that hold a language model (`llm.replicas`)
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
"""Where our images have the code."""
RUNS = "/runs"
"""Where every pod has the folders of its run or bench."""
LONGEST = 47
"""Longest name of a RayJob: what the operator makes of it gets a suffix, and a label has 63 characters."""


class KubernetesConfig(Part):
    """A job of Kubernetes, by the KubeRay operator."""

    namespace: str = "default"
    """Namespace of everything that is made."""
    shared: bool = False
    """Make a RayCluster that stays, a bench for several runs, instead of a RayJob that ends with its run."""
    image: str = ""
    """Image of every pod, as in registry.example/cairn:1.0; there is none that could be the default."""
    gpu_image: str = ""
    """Image of the pods with GPUs; empty: `image`."""
    llm_image: str = ""
    """Image of the LLM service; empty: `image`."""
    redis_image: str = "redis:7.4.7-alpine@sha256:02f2cc4882f8bf87c79a220ac958f58c700bdec0dfb9b9ea61b62fb0e8f1bfcf"
    """Image of its Redis."""
    secret: str = "cairn"
    """Prefix of the Secrets that must be there: PREFIX-ray, and for the LLM service PREFIX-llm, -llm-tls, -redis."""
    llm_environment: str = ""
    """Secret whose keys become environment variables of the LLM service, such as OPENAI_API_KEY."""
    runs_claim: str = "cairn-runs"
    """Volume claim that all runs share, and each pod has its own folder of; it must be writable from several nodes."""
    runs_size: str = "20Gi"
    """Size of that claim, which is then made; empty: it is there already."""
    storage_class: str = ""
    """Its storage class; empty: the cluster's default."""
    head_cpus: int = Field(default=2, ge=1)
    """CPUs of the head pod."""
    head_memory: str = "8Gi"
    """Memory of the head pod."""
    pod_actors: int = Field(default=4, ge=1)
    """Actors in one pod of the group `actors`, one CPU each."""
    actor_memory: str = "8Gi"
    """Memory of such a pod."""
    actor_nodes: list[str] = Field(default=[])
    """Labels of the nodes for these pods, KEY=VALUE, such as those of spot machines."""
    learner_memory: str = "16Gi"
    """Memory of the learner's pod; its CPUs follow from the run's roles and threads."""
    learner_gpus: int = Field(default=1, ge=0)
    """GPUs of the learner's pod."""
    llm_pods: int = Field(default=1, ge=0)
    """Most pods of the group `llm`."""
    llm_memory: str = "16Gi"
    """Memory of such a pod, and of the LLM service."""
    llm_gpus: int = Field(default=1, ge=0)
    """GPUs of such a pod, and of the LLM service where it holds a model itself (`llm=transformers`)."""
    gpu_nodes: list[str] = Field(default=[])
    """Labels of the nodes for pods with GPUs, KEY=VALUE."""
    gpu: str = "nvidia.com/gpu"
    """What the cluster calls a GPU."""
    cpu_only: bool = False
    """No pod asks for a GPU: to try everything on a cluster that has none."""
    shared_memory: str = "2Gi"
    """Size of /dev/shm, where Ray keeps its objects; it counts as memory of the pod."""
    grace_s: int = Field(default=300, ge=60)
    """Seconds that a pod has to end, which must be longer than an update and a save."""
    retries: int = Field(default=3, ge=0)
    """So often a failed job is tried again, each time on a new Ray cluster and from the last checkpoint."""
    deadline_s: int = Field(default=0, ge=0)
    """Seconds after which the job is ended whatever it does; 0: none."""
    keep_s: int = Field(default=600, ge=0)
    """Seconds that the Ray cluster of a finished job stays, to look at its logs."""
    api_block: str = "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16"
    """Addresses of the Kubernetes API, which the head may reach, for the autoscaler; several with commas."""
    dns_namespace: str = "kube-system"
    """Namespace of the cluster's DNS servers, the only ones that pods may ask."""
    dns_pods: list[str] = Field(default=["k8s-app=kube-dns"])
    """Labels of their pods, KEY=VALUE."""
    dns_block: str = ""
    """Addresses of one more that is no such pod, as 169.254.20.10/32 for NodeLocal DNSCache; empty: there is none."""
    outside_block: str = ""
    """Addresses that a provider of models, an LLM service or a Redis outside the cluster may have where a name says
    where it is; several with commas; empty: all public ones."""
    monitor: bool = True
    """Make a PodMonitor, which needs the Prometheus operator."""
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
                    f"cluster.kubernetes.{name}: the pods of this group are there for their GPUs: ask for at least 1, "
                    "or set cluster.kubernetes.cpu_only=true"
                )
        pods = ["actor_nodes", "gpu_nodes", "dns_pods"]
        assert_form(self, "kubernetes", pods, NODE_LABEL, "KEY=VALUE such as pool=spot")
        if not self.dns_pods:
            raise ValueError("cluster.kubernetes.dns_pods: without a label every pod of that namespace could be asked")
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
        """So many GPUs, or none on a cluster that has none."""
        return 0 if self.cpu_only else gpus


def amount(quantity: str) -> int:
    """A quantity as a number: 2Gi is 2147483648."""
    number, unit = re.fullmatch(r"([\d.]+)(\D*)", quantity).groups()  # type: ignore[union-attr]
    power = "kMGTPE".find(unit[:1].replace("K", "k")) + 1 if unit else 0
    return int(float(number) * (1024 if unit.endswith("i") else 1000) ** power)
