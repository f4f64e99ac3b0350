"""The NetworkPolicies of a run. Connections that none of them allows are forbidden.

    operator, Prometheus ──> pods of Ray <──> each other
                                │ all but the submitter ──> LLM service ──> Redis
                                └ head ──> Kubernetes API        └────────> provider of models, if there is one
    all of these but Redis ──> the cluster's DNS

A policy selects pods or addresses, not host names. So a place in the configuration becomes the pods behind a Service of
the cluster, or the address if it is one; for any other name it becomes `cluster.kubernetes.outside_block`.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from cluster.config.tree import Config
from cluster.jobs.kubernetes.config import KubernetesConfig
from cluster.jobs.kubernetes.language_model import LLM_METRICS_PORT, LLM_PORT, REDIS_PORT, serves
from cluster.jobs.kubernetes.manifests import Object, chosen, labelled, policy, ports
from cluster.jobs.kubernetes.ray_cluster import DASHBOARD_PORT, METRICS_PORT
from cluster.topology import asks_a_language_model

ASKS = ["head", "actors", "learner", "llm"]
"""Components that may ask the LLM service."""
RAY = [*ASKS, "submitter"]
"""Components that form one Ray cluster."""
HOSTED = {"https": 443, "http": 80}
NOT_PUBLIC = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16")
"""Private networks of clusters and machines, including the cloud's metadata server."""


def policies(config: Config) -> list[Object]:
    """Pods of one Ray cluster may connect to each other; beyond that, each may connect only to what it needs."""
    kubernetes, run = config.cluster.kubernetes, config.run.name
    space = kubernetes.namespace
    ray, asks, service, redis = ({"podSelector": chosen(run, c)} for c in (RAY, ASKS, ["llm-service"], ["redis"]))
    operator = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "kuberay-operator"}}}
    watched: Object = {"from": [in_namespace(kubernetes.monitor_namespace)]}
    hears = [{"from": [ray]}, {"from": [operator], **ports(DASHBOARD_PORT)}]
    hears += [watched | ports(METRICS_PORT)] if kubernetes.monitor else []
    api = {"to": [block(text) for text in kubernetes.api_block.split(",")], **ports(443, 6443)}
    made = [
        policy(f"{run}-ray", space, run, RAY, hears, [{"to": [ray]}, *dns(kubernetes)]),
        policy(f"{run}-autoscaler", space, run, ["head"], [], [api]),
    ]
    if serves(config):
        made.append(policy(f"{run}-asks", space, run, ASKS, [], [{"to": [service], **ports(LLM_PORT)}]))
        heard = [{"from": [asks], **ports(LLM_PORT)}]
        heard += [watched | ports(LLM_METRICS_PORT)] if kubernetes.monitor else []
        says = way(config, provider(config), HOSTED["https"])
        if config.llm.redis.url:
            says += way(config, config.llm.redis.url, REDIS_PORT)
        else:
            says.append({"to": [redis], **ports(REDIS_PORT)})
            made.append(policy(f"{run}-redis", space, run, ["redis"], [{"from": [service], **ports(REDIS_PORT)}], []))
        made.append(policy(f"{run}-llm", space, run, ["llm-service"], heard, [*says, *dns(kubernetes)]))
    elif config.llm.address and (asks_a_language_model(config) or kubernetes.shared):  # of others
        labels = labelled("", "llm-service")
        name = _service(config.llm.address, space)[0]
        labels |= {"cairn/run": name.removesuffix("-llm")} if name.endswith("-llm") else {}
        made.append(policy(f"{run}-asks", space, run, ASKS, [], way(config, config.llm.address, LLM_PORT, labels)))
    return made


def provider(config: Config) -> str:
    """The URL of the model server; "" if the LLM service holds the model itself."""
    options = config.llm.options
    if not hasattr(options, "base_url"):
        return ""
    from llm_service.backends.openai import OPENAI  # imports its client

    return str(options.base_url or OPENAI)


def way(config: Config, place: str, default: int, labels: dict[str, str] | None = None) -> list[Object]:
    """The rule that allows connections to one place; none if it is a file.

    Args:
        config: of the run.
        place: HOST:PORT, a URL, or something else.
        default: the port, if the place has none.
        labels: of the pods behind a Service of the cluster; None: any pod of its namespace.
    """
    kubernetes, url = config.cluster.kubernetes, _parts(place)
    if not url.hostname or url.scheme == "unix":
        return []
    port = ports(url.port or HOSTED.get(url.scheme, default))
    name, space = _service(place, kubernetes.namespace)
    if name:
        pods = {"podSelector": {"matchLabels": labels}} if labels else {}
        return [{"to": [in_namespace(space) | pods], **port}]
    try:
        return [{"to": [block(str(ip_address(url.hostname)))], **port}]
    except ValueError:  # a name
        outside = kubernetes.outside_block
        peers = [block(text) for text in outside.split(",")] if outside else [block("0.0.0.0/0", NOT_PUBLIC)]
        return [{"to": peers, **port}]


def dns(kubernetes: KubernetesConfig) -> list[Object]:
    """The rule that allows DNS queries to the cluster's own servers."""
    labels = dict(label.split("=") for label in kubernetes.dns_pods)
    servers = [in_namespace(kubernetes.dns_namespace) | {"podSelector": {"matchLabels": labels}}]
    servers += [block(kubernetes.dns_block)] if kubernetes.dns_block else []
    return [{"to": servers, "ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}]


def in_namespace(name: str) -> Object:
    """All pods of a namespace, as a peer of a rule."""
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def block(addresses: str, but: tuple[str, ...] = ()) -> Object:
    """Addresses as a peer of a rule: 10.0.0.1 is 10.0.0.1/32."""
    return {"ipBlock": {"cidr": str(ip_network(addresses))} | ({"except": list(but)} if but else {})}


def _service(place: str, own: str) -> tuple[str, str]:
    """Name and namespace of the cluster's Service at a place; "" and "" if it is not a Service."""
    words = (_parts(place).hostname or "").split(".")
    if "svc" in words[2:]:
        after = words.index("svc", 2)
        return words[after - 2], words[after - 1]
    return (words[0], own) if len(words) == 1 and ":" not in words[0] else ("", "")


def _parts(place: str) -> SplitResult:
    return urlsplit(place if "//" in place else f"//{place}")
