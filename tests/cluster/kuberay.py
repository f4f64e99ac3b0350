"""What a manifest may hold: Kubernetes' own schemas, strict, and for KubeRay's kinds the fields that we use, as its
reference (1.6.2) has them. `faults` says what the cluster, or its operator, would not take or would not understand.
"""

from functools import lru_cache
from typing import Any, Literal

import kubernetes_validate
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

VERSION = "1.33"
# It reads some megabytes of JSON for each object.
kubernetes_validate.utils.schema_contents = lru_cache(kubernetes_validate.utils.schema_contents)
INVALID = (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError)


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class Metadata(Strict):
    name: str
    namespace: str
    labels: dict[str, str]


class Auth(Strict):
    mode: Literal["token"]  # `disabled` is none of ours
    secret_name: str


class Autoscaler(Strict):
    version: Literal["v2"]
    idle_timeout_seconds: int = Field(ge=0)
    resources: dict[Literal["requests", "limits"], dict[str, str]]
    security_context: dict[str, Any]


class Head(Strict):
    ray_start_params: dict[str, str]
    template: dict[str, Any]

    @model_validator(mode="after")
    def no_role_runs_here(self):
        assert self.ray_start_params["num-cpus"] == "0"
        return self


class Group(Strict):
    group_name: Literal["actors", "learner", "llm"]
    replicas: int = Field(ge=0)
    min_replicas: int = Field(ge=0)
    max_replicas: int = Field(ge=0)
    resources: dict[str, str]
    ray_start_params: dict[str, str]
    template: dict[str, Any]

    @model_validator(mode="after")
    def is_what_it_says(self):
        assert self.min_replicas <= self.replicas <= self.max_replicas
        if self.group_name == "learner":
            assert self.min_replicas == self.max_replicas == 1
        wanted = self.template["spec"]["containers"][0]["resources"]
        assert wanted["requests"] == wanted["limits"]
        gpus = {key: value for key, value in wanted["limits"].items() if key not in ("cpu", "memory")}
        assert bool(gpus) == ("num-gpus" in self.ray_start_params)
        assert list(gpus.values()) == [self.ray_start_params["num-gpus"]] if gpus else True
        assert self.ray_start_params["num-cpus"] == wanted["limits"]["cpu"]
        return self


class Cluster(Strict):
    ray_version: str
    auth_options: Auth
    enable_in_tree_autoscaling: Literal[True]
    autoscaler_options: Autoscaler
    head_group_spec: Head
    worker_group_specs: list[Group]


class Job(Strict):
    entrypoint: str
    submission_mode: Literal["K8sJobMode", "HTTPMode", "SidecarMode", "InteractiveMode"]
    backoff_limit: int = Field(ge=0)
    active_deadline_seconds: int | None = Field(default=None, ge=1)
    shutdown_after_job_finishes: bool
    ttl_seconds_after_finished: int = Field(ge=0)
    submitter_pod_template: dict[str, Any]
    ray_cluster_spec: Cluster


class RayJob(Strict):
    api_version: Literal["ray.io/v1"]
    kind: Literal["RayJob"]
    metadata: Metadata
    spec: Job


class RayCluster(Strict):
    api_version: Literal["ray.io/v1"]
    kind: Literal["RayCluster"]
    metadata: Metadata
    spec: Cluster


class Endpoint(Strict):
    port: str
    interval: str


class Monitored(Strict):
    selector: dict[Literal["matchLabels"], dict[str, str]]
    pod_metrics_endpoints: list[Endpoint] = Field(min_length=1)


class PodMonitor(Strict):
    api_version: Literal["monitoring.coreos.com/v1"]
    kind: Literal["PodMonitor"]
    metadata: Metadata
    spec: Monitored


OURS = {model.__name__: model for model in (RayJob, RayCluster, PodMonitor)}


POD = {"apiVersion": "v1", "kind": "Pod"}


def templates(thing):
    """Every template of a pod in an object, with where it is."""
    if isinstance(thing, dict):
        for key, value in thing.items():
            if key in ("template", "submitterPodTemplate"):
                yield value
            else:
                yield from templates(value)
    elif isinstance(thing, list):
        for value in thing:
            yield from templates(value)


def faults(things, gpus=True):
    """Sentences about what is wrong with the objects of a manifest; `gpus`: learner and llm must have some."""
    found = []
    for thing in things:
        try:
            model = OURS.get(thing["kind"])
            if model is None:
                kubernetes_validate.validate(thing, VERSION, strict=True)
            else:
                model.model_validate(thing)
                for template in templates(thing):
                    assert set(template) == {"metadata", "spec"}, f"a template has {sorted(template)}"
                    kubernetes_validate.validate({**POD, **template}, VERSION, strict=True)
                    if gpus and template["metadata"]["labels"]["app.kubernetes.io/component"] in ("learner", "llm"):
                        assert "nvidia.com/gpu" in template["spec"]["containers"][0]["resources"]["limits"]
                spec = thing["spec"].get("rayClusterSpec", thing["spec"])
                if "autoscalerOptions" in spec:  # a container that the operator puts beside the head
                    options = {key: spec["autoscalerOptions"][key] for key in ("resources", "securityContext")}
                    containers = [{"name": "autoscaler", "image": "ray", **options}]
                    kubernetes_validate.validate({**POD, "spec": {"containers": containers}}, VERSION, strict=True)
        except (ValidationError, AssertionError, KeyError, TypeError, *INVALID) as error:
            found.append(f"{thing.get('kind')}: {type(error).__name__} {error}")
    return found
