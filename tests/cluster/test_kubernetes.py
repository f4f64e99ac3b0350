"""Runs as jobs of Kubernetes: the manifest, what it promises, and what is refused."""

import copy
import os
import re
import stat
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.config.overrides import ConfigError, flatten, nest, options, parse
from cluster.config.tree import Config, compose
from cluster.jobs.kubernetes import language_model, ray_cluster
from cluster.jobs.kubernetes import launcher as kubernetes
from cluster.jobs.kubernetes.config import amount
from cluster.jobs.kubernetes.launcher import KubernetesError, demand, render, submit, words
from cluster.roles.placement import declared, plan
from cluster.topology import topology
from llm_service import settings as llm_settings
from tests.cluster.kuberay import faults, templates

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "cluster.kubernetes.image=registry.example/cairn:1.0"
KEY = "cluster.kubernetes"
HOSTED = ["llm=openai", "llm.model=some", "llm.base_url=http://models.example:8000/v1", "llm.limits.tokens=1000000"]
CASES = {
    "toy": ["experiment=toy", "run.name=toy"],
    "asks": ["experiment=ellm_crafter_small", "run.name=asks"],
    "hosted": ["experiment=ellm_crafter_small", "run.name=hosted", *HOSTED, "cluster.kubernetes.llm_environment=keys"],
    "bench": ["experiment=toy", "run.name=bench", "cluster.kubernetes.shared=true"],
    "plain": [
        *("experiment=toy", "run.name=plain", "cluster.kubernetes.cpu_only=true", "cluster.kubernetes.monitor=false"),
        *("cluster.kubernetes.runs_size=''", "cluster.kubernetes.deadline_s=3600"),
    ],
    "placed": [
        *(
            "experiment=toy",
            "run.name=placed",
            "cluster.kubernetes.actor_nodes=['cloud.example.com/spot=true']",
            "learner.n=2",
        ),
        *("cluster.kubernetes.gpu_nodes=['gpu=a100']", "cluster.kubernetes.learner_gpus=2", "actors.n=64"),
    ],
}


def composed(*words):
    return compose([*words, "cluster=kubernetes", IMAGE])


def manifest(*words):
    return list(yaml.safe_load_all(render(composed(*words))))


def of_kind(things, kind):
    return [thing for thing in things if thing["kind"] == kind]


def groups(things):
    """Ray's groups by name, the head among them."""
    ray = of_kind(things, "RayJob") or of_kind(things, "RayCluster")
    spec = ray[0]["spec"].get("rayClusterSpec", ray[0]["spec"])
    return {"head": spec["headGroupSpec"]} | {group["groupName"]: group for group in spec["workerGroupSpecs"]}


@pytest.mark.parametrize("case", CASES)
def test_the_manifest_is_valid(case):
    assert faults(manifest(*CASES[case]), gpus=case != "plain") == []


# ---- whatever is wrong with one, is seen ----------------------------------------------------------------------------

FREE = {"labels", "matchLabels", "data", "nodeSelector", "rayStartParams", "requests", "limits", "resources"}
"""Maps whose keys are anybody's."""


def places(thing, path=()):
    """Every path to a key or an item in an object."""
    for key, value in thing.items() if isinstance(thing, dict) else enumerate(thing):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def changed(thing, path, change):
    """A copy in which `change(parent, key)` was done to what the path leads to."""
    thing = copy.deepcopy(thing)
    parent = thing
    for key in path[:-1]:
        parent = parent[key]
    change(parent, path[-1])
    return thing


def misspell(parent, key):
    parent[f"{key}s"] = parent.pop(key)


def confuse(parent, key):
    parent[key] = {"a": ["b"]} if not isinstance(parent[key], dict | list) else "text"


@pytest.mark.parametrize("case", ["toy", "asks"])
def test_every_misspelt_field_and_every_wrong_type_is_seen(case):
    missed, tried = [], 0
    things = {thing["kind"]: thing for thing in manifest(*CASES[case]) if case == "toy" or thing["kind"] != "RayJob"}
    for thing in things.values():
        for path in places(thing):
            named = isinstance(path[-1], str) and "/" not in path[-1] and not set(path[:-1]) & FREE
            for change in [confuse, *([misspell] if named else [])]:
                tried += 1
                if not faults([changed(thing, path, change)]):
                    missed.append((change.__name__, thing["kind"], path))
    assert missed == []
    assert tried > 300


@pytest.mark.parametrize("group", ["learner", "llm"])
def test_a_gpu_group_without_its_gpus_is_seen(group):
    things = manifest(*CASES["toy"])
    for without in (["limits"], ["requests"], ["limits", "requests"]):
        lacking = copy.deepcopy(things)
        wanted = groups(lacking)[group]["template"]["spec"]["containers"][0]["resources"]
        for which in without:
            del wanted[which]["nvidia.com/gpu"]
        assert faults(lacking)
    lacking = copy.deepcopy(things)
    for which in ("limits", "requests"):
        del groups(lacking)[group]["template"]["spec"]["containers"][0]["resources"][which]["nvidia.com/gpu"]
    del groups(lacking)[group]["rayStartParams"]["num-gpus"]
    assert faults(lacking)


# ---- what the manifest promises -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_every_pod_is_locked_up(case):
    for template in (t for thing in manifest(*CASES[case]) for t in templates(thing)):
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        writable = {volume["name"] for volume in spec["volumes"] if set(volume) & {"emptyDir", "persistentVolumeClaim"}}
        for container in spec["containers"]:
            allowed = container["securityContext"]
            assert allowed["readOnlyRootFilesystem"]
            assert not allowed["allowPrivilegeEscalation"]
            assert allowed["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["requests"] == container["resources"]["limits"]
            for mount in container["volumeMounts"]:
                assert mount.get("readOnly") or mount["name"] in writable | {"data"}, mount


@pytest.mark.parametrize("case", CASES)
def test_secrets_are_named_and_never_held(case, monkeypatch):
    for name in ("OPENAI_API_KEY", "CAIRN_LLM_TOKEN", "CAIRN_REDIS_PASSWORD", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "planted-secret")
    text = render(composed(*CASES[case]))
    assert "planted-secret" not in text
    things = list(yaml.safe_load_all(text))
    assert not of_kind(things, "Secret")
    counted_on = text.partition("\n")[0].removeprefix("# Made by docker/secrets.sh beforehand: Secrets ").split(", ")
    used = {v for key, v in flat_items(things) if key in ("secretName",)}
    used |= {v["name"] for key, v in flat_items(things) if key in ("secretKeyRef", "secretRef")}
    assert used == set(counted_on)
    for template in (t for thing in things for t in templates(thing)):
        for variable in template["spec"]["containers"][0].get("env", []):
            assert "valueFrom" in variable or not any(w in variable["name"] for w in ("TOKEN", "PASSWORD", "KEY"))


def flat_items(thing):
    for key, value in thing.items() if isinstance(thing, dict) else enumerate(thing):
        yield key, value
        if isinstance(value, dict | list):
            yield from flat_items(value)


FITS = flatten(composed("experiment=toy", "run.name=fits").model_dump())


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 300),
    pod_actors=st.integers(1, 64),
    ranks=st.sampled_from([1, 2, 4]),
    threads=st.integers(1, 16),
    gpus=st.integers(1, 8),
)
def test_every_role_finds_room_in_its_group(n, pod_actors, ranks, threads, gpus):
    tree = {**FITS, "actors.n": n, "cluster.kubernetes.pod_actors": pod_actors, "cluster.kubernetes.learner_gpus": gpus}
    config = Config(**nest({**tree, "learner.n": ranks, "learner.threads": threads}))
    pods = groups([ray_cluster.job(config)])
    actors, learner = pods["actors"], pods["learner"]
    asked = demand(config, "actor-3.1")
    in_a_pod = min(int(actors["rayStartParams"]["num-cpus"]), int(actors["resources"]["actors"]))
    assert asked["num_cpus"] == asked["resources"]["actors"] == 1
    assert in_a_pod * actors["maxReplicas"] >= n > in_a_pod * (actors["maxReplicas"] - 1)
    asked = demand(config, "learner-0")
    assert asked["num_cpus"] * ranks < int(learner["rayStartParams"]["num-cpus"])  # and one for Ray itself
    assert asked["resources"]["learner"] * ranks <= int(learner["resources"]["learner"])
    assert "num_gpus" not in asked, "GPUs are reserved, whole ones"
    seats = plan(config, *declared(config)).seats.get("learner", ())
    assert [seat.gpus for seat in seats] == [1.0] * (ranks if ranks <= gpus else 0)  # all in the learner's pod
    assert {name for role in topology(config).roles for name in demand(config, role.name)["resources"]} <= set(pods)


def test_what_must_save_has_the_time_to():
    things = manifest(*CASES["toy"], "cluster.kubernetes.grace_s=120")
    for name in ("head", "learner"):
        spec = groups(things)[name]["template"]["spec"]
        command = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1]
        seconds = int(command.split()[2])
        assert 60 <= seconds < spec["terminationGracePeriodSeconds"] == 120
        assert command.endswith("/docker/drain.sh 105 /runs/toy")
    for name in ("actors", "llm"):  # these are not waited for
        assert "lifecycle" not in groups(things)[name]["template"]["spec"]["containers"][0]


def policies(*words):
    """What the run's policies say, by name."""
    return {policy["metadata"]["name"]: policy["spec"] for policy in of_kind(manifest(*words), "NetworkPolicy")}


def ways_out(specs, component):
    """All that the pods of a component may say: the rules of every policy that chooses them."""
    chosen = [s for s in specs.values() if component in s["podSelector"]["matchExpressions"][0]["values"]]
    return [rule for spec in chosen for rule in spec["egress"]]


def peers(rule):
    chosen = [p["podSelector"]["matchExpressions"][0]["values"] for p in rule if "matchExpressions" in str(p)]
    return {name for names in chosen for name in names}


DNS = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
    "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
}
COMPONENTS = ["head", "actors", "learner", "llm", "submitter", "llm-service", "redis"]


def test_who_may_speak_to_whom():
    specs = policies(*CASES["asks"])
    assert all(policy["policyTypes"] == ["Ingress", "Egress"] for policy in specs.values())
    redis, llm = specs["asks-redis"], specs["asks-llm"]
    assert [peers(rule["from"]) for rule in redis["ingress"]] == [{"llm-service"}]
    assert redis["egress"] == []
    asked, _ = llm["ingress"]  # the other is Prometheus's
    assert peers(asked["from"]) == {"head", "actors", "learner", "llm"}


@pytest.mark.parametrize("case", CASES)
def test_nobody_may_speak_to_just_anywhere(case):
    """Names are looked up at the cluster's DNS; addresses are the API's for the head, and for one pod a provider's."""
    specs = policies(*CASES[case])
    for component in COMPONENTS:
        for rule in ways_out(specs, component):
            assert rule["to"], (component, rule)
            numbers = {port["port"] for port in rule.get("ports", [])}
            blocks = {peer["ipBlock"]["cidr"] for peer in rule["to"] if "ipBlock" in peer}
            if 53 in numbers:
                assert rule["to"] == [DNS]
            elif blocks and component == "head":
                assert (numbers, "0.0.0.0/0" in blocks) == ({443, 6443}, False)
            elif blocks:
                assert (case, component, numbers) == ("hosted", "llm-service", {8000})
    assert not any(53 in {port["port"] for port in rule["ports"]} for rule in ways_out(specs, "redis"))


def outside(*words, component="llm-service"):
    """Where the pods of a component may go but to pods of the run and to DNS."""
    rules = ways_out(policies("experiment=ellm_crafter_small", "run.name=hosted", *words), component)
    return [rule for rule in rules if rule["to"] != [DNS] and "cairn/run': 'hosted'" not in str(rule["to"])]


def test_only_the_service_speaks_to_a_provider_and_only_if_it_is_outside():
    limit = "llm.limits.tokens=1000"
    (openai,) = outside("llm=openai", "llm.model=some", limit)  # whose address is nowhere in the configuration
    assert openai["ports"] == [{"port": 443, "protocol": "TCP"}]
    assert openai["to"][0]["ipBlock"]["cidr"] == "0.0.0.0/0"
    assert {"10.0.0.0/8", "169.254.0.0/16"} <= set(openai["to"][0]["ipBlock"]["except"])
    named = ["llm=openai", "llm.model=some", limit, "llm.base_url=https://models.example/v1"]
    (narrow,) = outside(*named, f"{KEY}.outside_block='203.0.113.0/24,198.51.100.7'")
    assert [peer["ipBlock"]["cidr"] for peer in narrow["to"]] == ["203.0.113.0/24", "198.51.100.7/32"]
    (inside,) = outside(*named[:3], "llm.base_url=http://vllm.models.svc.cluster.local:8000/v1")
    assert inside["to"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "models"}}}]
    assert inside["ports"] == [{"port": 8000, "protocol": "TCP"}]
    (one,) = outside(*named[:3], "llm.base_url=http://10.1.2.3:8000/v1")
    assert one["to"] == [{"ipBlock": {"cidr": "10.1.2.3/32"}}]
    assert outside() == []  # a scripted model
    for component in ("actors", "learner", "llm", "submitter"):
        assert outside(*named, component=component) == []


@pytest.mark.parametrize(
    ("address", "space", "run"),
    [
        ("bench-llm:50051", "default", "bench"),
        ("bench-llm.team.svc:50051", "team", "bench"),
        ("bench-llm.team.svc.cluster.local:50051", "team", "bench"),
        ("mine.team.svc:50051", "team", None),
    ],
)
def test_a_service_of_the_cluster_is_the_only_one_that_is_reached(address, space, run):
    (way,) = outside(f"llm.address={address}", component="actors")
    (peer,) = way["to"]
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": space}
    labels = peer["podSelector"]["matchLabels"]
    assert labels["app.kubernetes.io/component"] == "llm-service"
    assert labels.get("cairn/run") == run
    assert way["ports"] == [{"port": 50051, "protocol": "TCP"}]
    assert outside(f"llm.address={address}", component="submitter") == []


def test_a_file_is_no_way_out():
    assert outside("llm.address=/models/service", component="actors") == []


def test_the_clusters_own_dns_may_be_named():
    own = [f"{KEY}.dns_namespace=dns", f"{KEY}.dns_pods=['app=coredns']", f"{KEY}.dns_block=169.254.20.10/32"]
    (rule,) = [r for r in ways_out(policies(*CASES["toy"], *own), "actors") if "ports" in r]
    pods, cache = rule["to"]
    assert pods["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "dns"}
    assert pods["podSelector"]["matchLabels"] == {"app": "coredns"}
    assert cache == {"ipBlock": {"cidr": "169.254.20.10/32"}}


# ---- one run beside others ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_a_pod_can_write_nothing_of_another_run(case):
    name = next(word for word in CASES[case] if word.startswith("run.name=")).partition("=")[2]
    for template in (t for thing in manifest(*CASES[case]) for t in templates(thing)):
        claims = {v["name"] for v in template["spec"]["volumes"] if "persistentVolumeClaim" in v}
        for mount in template["spec"]["containers"][0]["volumeMounts"]:
            if mount["name"] in claims and not mount.get("readOnly"):
                assert mount["subPath"] in (f"runs/{name}", f"services/{name}")
            elif mount["name"] in claims:
                assert (mount["subPath"], mount["mountPath"]) == ("models", "/models")


def test_the_end_of_a_bench_stops_its_own_runs_only(tmp_path):
    """The claim as two benches see it, and what the head of one does before it ends."""
    things = {name: manifest(*CASES["bench"], f"run.name={name}") for name in ("one", "two")}
    runs = {}
    for name, made in things.items():
        (mount,) = [
            m
            for m in groups(made)["head"]["template"]["spec"]["containers"][0]["volumeMounts"]
            if m["mountPath"] == "/runs"
        ]
        runs[name] = tmp_path / mount.get("subPath", "") / name
        runs[name].mkdir(parents=True)
        (runs[name] / "status.json").write_text('{"state": "running"}')
    head = groups(things["one"])["head"]["template"]["spec"]["containers"][0]
    command = head["lifecycle"]["preStop"]["exec"]["command"][-1].replace("/opt/cairn", str(ROOT))
    seen = next(m for m in head["volumeMounts"] if m["mountPath"] == "/runs").get("subPath", "")
    command = re.sub(r"drain.sh \d+ /runs", f"drain.sh 0 {tmp_path / seen}", command)
    subprocess.run(["sh", "-c", command], check=True)
    assert (runs["one"] / "STOP").exists()
    assert not (runs["two"] / "STOP").exists()


@pytest.mark.parametrize("case", CASES)
def test_what_is_a_runs_own_bears_its_label_and_nothing_else_does(case):
    for thing in manifest(*CASES[case]):
        own = thing["kind"] != "PersistentVolumeClaim"
        assert ("cairn/run" in thing["metadata"]["labels"]) == own, thing["metadata"]
        if own:
            assert thing["kind"].lower() in [*kubernetes.OWN.split(","), "podmonitor"]


@pytest.mark.parametrize("case", CASES)
def test_only_the_autoscaler_may_speak_to_the_api(case):
    told = {
        t["metadata"]["labels"]["app.kubernetes.io/component"]: t["spec"].get("automountServiceAccountToken", True)
        for thing in manifest(*CASES[case])
        for t in templates(thing)
    }
    assert [name for name, token in told.items() if token] == ["head"]


def test_a_drain_does_not_end_head_and_learner_at_once():
    things = manifest(*CASES["toy"])
    (budget,) = of_kind(things, "PodDisruptionBudget")
    labels = [t["metadata"]["labels"] for thing in things for t in templates(thing)]
    (wanted,) = budget["spec"]["selector"]["matchExpressions"]
    chosen = {own[wanted["key"]] for own in labels if own[wanted["key"]] in wanted["values"]}
    assert chosen == {"head", "learner"}
    assert budget["spec"]["minAvailable"] == 1
    assert "maxUnavailable" not in budget["spec"]  # only for pods of Kubernetes' own kinds


def test_the_llm_service_is_asked_whether_it_lives():
    (deployment,) = of_kind(manifest(*CASES["asks"]), "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    asked = {name: container[f"{name}Probe"]["exec"]["command"] for name in ("startup", "readiness", "liveness")}
    assert asked["startup"] == asked["readiness"]
    assert asked["liveness"] == [*asked["readiness"], "alive"]  # whose model is away is not started again for it


def test_a_selector_finds_the_pods_it_is_for():
    things = manifest(*CASES["asks"])
    labels = {
        t["metadata"]["labels"]["app.kubernetes.io/component"]: t["metadata"]["labels"] for t in templates(things)
    }
    for service in of_kind(things, "Service"):
        component = "redis" if service["metadata"]["name"].endswith("redis") else "llm-service"
        assert service["spec"]["selector"].items() <= labels[component].items()
    for policy in of_kind(things, "NetworkPolicy"):
        assert set(policy["spec"]["podSelector"]["matchExpressions"][0]["values"]) <= set(labels)
    for kind in ("Deployment", "StatefulSet"):
        spec = of_kind(things, kind)[0]["spec"]
        assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


# ---- the run inside is the run outside ------------------------------------------------------------------------------


@pytest.mark.parametrize("experiment", options("experiment"))
def test_words_give_the_same_configuration(experiment):
    config = composed(f"experiment={experiment}", "run.name=one", "seed=7", "learner.learning_rate=1e-5")
    assert compose(words(config)) == config


TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]))
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(st.from_regex(r"[a-z_.]{1,9}", fullmatch=True), inner),
    max_leaves=6,
)


@given(value=VALUE)
def test_any_value_is_read_as_it_was_written(value):
    word = f"key={kubernetes.spelled('key', value)}"
    assert "\n" not in word
    read = parse(word).value()
    assert read == value
    assert str(type(read)) == str(type(value)) or isinstance(value, dict | list)


def test_odd_values_survive_their_way():
    odd = r"""a 'b' "c" \ {d}: [e], f=g # $HOME \'"""
    config = composed("experiment=toy", "run.name=one", "llm=openai", f"{KEY}.gpu_nodes=['a.b/c=d']", "stages=[train]")
    config = config.model_copy(update={"llm": config.llm.model_copy(update={"world": odd})})
    config = config.model_copy(update={"learner": config.learner.model_copy(update={"learning_rate": 1e-7})})
    assert compose(words(config)) == config


def test_a_value_of_several_lines_is_refused():
    config = composed("experiment=toy", "run.name=one")
    config = config.model_copy(update={"llm": config.llm.model_copy(update={"world": "a\nb"})})
    with pytest.raises(KubernetesError, match=r"^llm.world: a value of several lines cannot be passed to a job$"):
        words(config)


def test_the_llm_service_is_configured_as_the_run_asks():
    config = composed(*CASES["hosted"], "llm.retry.cap_s=1e-7", "llm.fsync=true")
    given = llm_settings.parse(language_model.words(config))
    own = {"server": given.server, "redis": given.redis, "world": given.world, "when_away": given.when_away}
    assert given == config.llm.model_copy(update={**own, "address": ""})
    assert given.redis.url == "redis://cairn@hosted-redis.default.svc:6379/0"
    deployment = of_kind(manifest(*CASES["hosted"]), "Deployment")[0]["spec"]["template"]["spec"]["containers"][0]
    assert deployment["envFrom"] == [{"secretRef": {"name": "keys"}}]
    files = of_kind(manifest(*CASES["hosted"]), "ConfigMap")[0]["data"]
    assert "llm.address='hosted-llm.default.svc:50051'" in files["words"].splitlines()


# ---- what is refused ------------------------------------------------------------------------------------------------

BAD = {
    f"{KEY}.namespace=My_Space": r"namespace: expected a DNS label such as cairn-1, got 'My_Space'",
    f"{KEY}.namespace=''": r"namespace: expected a DNS label",
    f"{KEY}.runs_claim=-runs": r"runs_claim: expected a DNS label",
    f"{KEY}.secret={'a' * 64}": r"secret: expected a DNS label",
    f"{KEY}.learner_memory=16Gb": r"learner_memory: expected a quantity such as 16Gi, got '16Gb'",
    f"{KEY}.actor_memory=''": r"actor_memory: expected a quantity",
    f"{KEY}.shared_memory=0Gi": r"shared_memory: expected a quantity",
    f"{KEY}.head_memory=-1Gi": r"head_memory: expected a quantity",
    f"{KEY}.learner_gpus=0": r"learner_gpus: .* ask for at least 1, or set cluster.kubernetes.cpu_only=true",
    f"{KEY}.llm_gpus=0": r"llm_gpus: .* ask for at least 1",
    f"{KEY}.gpu_image='a b'": r"gpu_image: expected an image such as registry.example/cairn:1.0, got 'a b'",
    f"{KEY}.redis_image=''": r"redis_image: expected an image",
    f"{KEY}.api_block=10.0.0.300/8": r"api_block: expected addresses such as 10.0.0.1/32",
    f"{KEY}.api_block=''": r"api_block: expected addresses",
    f"{KEY}.dns_block='10.0.0.10,x'": r"dns_block: expected addresses",
    f"{KEY}.outside_block=models.example": r"outside_block: expected addresses",
    f"{KEY}.dns_pods=[]": r"dns_pods: without a label, every pod of that namespace would be allowed",
    f"{KEY}.actor_nodes=[spot]": r"actor_nodes: expected KEY=VALUE such as pool=spot, got 'spot'",
    f"{KEY}.grace_s=5": r"grace_s: .*greater than or equal to 60",
    f"{KEY}.imag=x": r"unknown key cluster.kubernetes.imag .*did you mean cluster.kubernetes.image\?",
}


@pytest.mark.parametrize("word", BAD)
def test_a_senseless_value_is_one_sentence(word):
    with pytest.raises(ConfigError, match=BAD[word]) as raised:
        composed("experiment=toy", word)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([f"{KEY}.image=''"], r"^cluster.kubernetes.image is missing: build docker/cpu.Dockerfile, push it"),
        (["run.name=My.Run"], r"^run.name: Kubernetes names objects after it: .* got 'My.Run'$"),
        ([f"run.name={'a' * 48}"], r"^run.name: .* at most 47"),
        (["run.name=7up"], r"^run.name: .* a letter first"),
        (
            ["run.folder=/mine"],
            r"^run.folder: runs are on the claim 'cairn-runs', at /runs in every pod: leave it out$",
        ),
        (["llm.replicas=2"], r"^llm.replicas: on Kubernetes the LLM service runs outside Ray: leave it out"),
    ],
)
def test_what_kubernetes_cannot_do_is_one_sentence(given, sentence):
    with pytest.raises(KubernetesError, match=sentence):
        render(compose(["experiment=toy", "cluster=kubernetes", IMAGE, *given]))


def test_a_name_that_was_made_up_is_made_to_fit():
    name = of_kind(manifest("experiment=ellm_crafter_small_environment"), "RayJob")[0]["metadata"]["name"]
    assert len(name) <= 47
    assert name.startswith("ellm-crafter-small-")


@pytest.mark.parametrize(("text", "bytes_"), [("2Gi", 2**31), ("1.5G", 1_500_000_000), ("64Mi", 2**26), ("7k", 7000)])
def test_quantities(text, bytes_):
    assert amount(text) == bytes_


# ---- handing over ---------------------------------------------------------------------------------------------------

KUBECTL = """#!/bin/sh
echo "$@" >> "$LOG"
case "$1 $2 $3" in
    "get secret $MISSING") echo 'Error from server (NotFound): secrets "'"$3"'" not found' >&2; exit 1;;
    "apply -f -") cat > "$LOG.yaml"; [ -z "$REFUSED" ] || { echo "warning: x" >&2; echo "$REFUSED" >&2; exit 1; }
                  echo "rayjob.ray.io/toy created";;
esac
"""


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
    """A kubectl that notes what it is asked; variables say what it refuses."""
    path = tmp_path / "bin" / "kubectl"
    path.parent.mkdir()
    path.write_text(KUBECTL)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
    for name, value in {"LOG": str(tmp_path / "log"), "MISSING": "", "REFUSED": ""}.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "log"


def test_what_is_applied_is_what_a_dry_run_prints(kubectl, capsys):
    config = composed(*CASES["asks"])
    assert submit(config) == 0
    assert kubectl.with_suffix(".yaml").read_text() == render(config)
    asked = [line for line in kubectl.read_text().splitlines() if line.startswith("get secret")]
    assert asked == [f"get secret cairn-{name} -n default" for name in ("ray", "llm", "llm-tls", "redis")]
    said = capsys.readouterr().out
    assert "rayjob.ray.io/toy created" in said
    assert "kubectl -n default delete rayjob asks" in said
    assert f"kubectl -n default delete {kubernetes.OWN},podmonitor -l cairn/run=asks " in said


def test_a_missing_secret_is_told_before_anything_is_applied(kubectl, monkeypatch):
    monkeypatch.setenv("MISSING", "cairn-llm-tls")
    with pytest.raises(
        KubernetesError, match=r"^Secret cairn-llm-tls does not exist; docker/secrets.sh creates it: .*NotFound"
    ):
        submit(composed(*CASES["asks"]))
    assert "apply" not in kubectl.read_text()


def test_what_the_cluster_refuses_is_its_own_sentence(kubectl, monkeypatch):
    monkeypatch.setenv("REFUSED", 'error: no matches for kind "RayJob" in version "ray.io/v1"')
    with pytest.raises(KubernetesError, match=r'^Kubernetes refuses the manifest: error: no matches for kind "RayJob"'):
        submit(composed(*CASES["toy"]))


def test_without_kubectl(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KubernetesError, match=r"^there is no kubectl on PATH: install it, or print the manifest"):
        submit(composed(*CASES["toy"]))
