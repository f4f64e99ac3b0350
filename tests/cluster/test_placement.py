"""Who computes on which GPU: the plan for 1 to 8 GPUs and two nodes, and what Ray makes of it with declared GPUs."""

import os

import pytest

from cluster.cli import start
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from cluster.jobs.kubernetes import launcher as kubernetes
from cluster.roles import placement
from cluster.roles.backend import LOOPBACK
from cluster.roles.local import Local
from cluster.roles.placement import RANKS, Plan, plan
from tests.cluster.nodes import Nodes

import ray  # isort: skip - after the token

LEARNS = ["experiment=toy", "actors.n=8"]
ACTS = ["experiment=glam_small", "actors.n=8", "policy.lm.placement=server"]
IMAGE = "cluster.kubernetes.image=registry.example/cairn:1.0"


def planned(*words, nodes):
    return plan(compose(list(words)), nodes)


def refused(*words, nodes):
    """The one sentence."""
    with pytest.raises(ConfigError) as raised:
        planned(*words, nodes=nodes)
    assert "\n" not in str(raised.value)
    return str(raised.value)


# ---- the plan -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [[1], [2], [4], [8], [1, 1], [2, 2], [1, 3], [4, 0]])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("words", [LEARNS, ACTS], ids=["network", "language-model"])
def test_placement_gives_each_rank_a_whole_gpu_or_none(words, ranks, nodes):
    words = [*words, "cluster.share_gpus=no"]
    acts = words[:-1] == ACTS
    fits = ranks + acts <= sum(nodes)
    if acts and not fits:
        message = refused(*words, f"learner.n={ranks}", nodes=nodes)
        assert f"learner x {ranks}" in message
        assert f"{ranks + 1} GPUs are needed" in message
        return
    found = planned(*words, f"learner.n={ranks}", nodes=nodes)
    seats = found.seats.get("learner", ())
    assert len(seats) == (ranks if fits else 0), (
        "all ranks, or none: they average their gradients on one kind of device"
    )
    assert [seat.gpus for seat in seats] == [1.0] * len(seats)
    everyone = [seat.bundle for role in found.seats.values() for seat in role]
    assert len(set(everyone)) == len(everyone) == sum(found.bundles)
    assert found.seat("actor-0") is None, "actors of small networks, and those that ask a server, have none"
    if seats:
        assert (found.home >= set(range(ranks))) == (ranks <= nodes[0]), "one node, if it has enough"


@pytest.mark.parametrize("gpus", [1, 2, 4])
@pytest.mark.parametrize(
    "words",
    [[*ACTS, "cluster.share_gpus=auto"], ["experiment=glam_small", "actors.n=8", "cluster.share_gpus=yes"]],
    ids=["server", "copies"],
)
def test_placement_beside_the_ranks_if_there_are_too_few_or_if_asked(words, gpus):
    found = planned(*words, f"learner.n={gpus}", nodes=[gpus])
    assert found.bundles == (1.0,) * gpus
    assert [seat.bundle for seat in found.seats["learner"]] == list(range(gpus)), "never two ranks on one"
    held = [0.0] * gpus
    for seats in found.seats.values():
        for seat in seats:
            held[seat.bundle] += seat.gpus
    assert all(0.99 < total <= 1 for total in held)
    assert ("policy" in found.seats) != ("actor" in found.seats)


def test_placement_refuses_what_does_not_fit_and_says_what_to_do():
    apart = "cluster.share_gpus=no"
    message = refused(*ACTS, apart, nodes=[1])
    assert message.startswith("policy x 1 (policy.lm.device), learner x 1 (policy.lm.device): 2 GPUs are needed")
    assert "this machine has 1" in message
    assert "cluster.share_gpus=auto" in message
    assert "policy.lm.device=cpu" in message
    assert "learner.device=cpu" in refused(*LEARNS, "learner.device=cuda", nodes=[0])
    assert "smaller learner.n" in refused(*LEARNS, "learner.n=4", "learner.device=cuda", nodes=[1, 2])
    assert "placement=server" in refused(
        "experiment=glam_small", "policy.lm.device=cuda", "actors.n=8", apart, nodes=[8]
    )
    assert "llm.gpus" in refused("experiment=ellm_crafter_small", "llm.replicas=2", "llm.gpus=1", nodes=[1])


def test_placement_of_models_of_the_service():
    """Parts of a GPU are for replicas, which no NCCL joins; two of them share one, apart from the learner's."""
    words = ["experiment=ellm_crafter_small", "llm.replicas=4", "llm.gpus=0.5"]
    found = planned(*words, nodes=[3])
    assert [seat.gpus for seat in found.seats["replica"]] == [0.5] * 4
    assert len(found.seats["learner"]) == 1
    assert "learner" not in planned(*words, nodes=[2]).seats, "a small network leaves its GPU to the model"
    assert refused(*words, nodes=[1])
    assert "replica x 4" in refused(*words[:2], "llm.gpus=0.7", nodes=[3]), "a part is of one GPU"
    assert planned(*words[:1], nodes=[2]).seats.keys() == {"learner"}, "a scripted service has no model"


def test_placement_without_gpus_is_the_processor():
    for words in (LEARNS, ACTS, ["experiment=glam_small"]):
        assert planned(*words, nodes=[0]) == planned(*words, nodes=[]) == Plan()
        assert planned(*words, "learner.device=cpu", "policy.lm.device=cpu", nodes=[8]) == Plan()


def test_placement_of_a_machine_is_a_line_of_the_doctor():
    assert "every role computes on the processor" in placement.offer(0)
    assert placement.offer(1).startswith("1 GPU: learner.n may be up to 1, which a policy server shares")
    assert "learner.n may be up to 4, 3 beside a policy server" in placement.offer(4)


# ---- what is asked of a queue ---------------------------------------------------------------------------------------


def test_placement_is_told_before_anything_starts(monkeypatch):
    """By `--dry-run`, whose scripts stay scripts; and refused there, in the words of the cluster's own keys."""
    monkeypatch.setattr(placement, "here", lambda: 2)
    assert "learner     x 2   1 GPU each" in start.dry_run(compose([*LEARNS, "learner.n=2"]))
    slurm = [*LEARNS, "learner.n=4", "cluster=slurm", "cluster.slurm.nodes=2", "learner.device=cuda"]
    script = start.dry_run(compose([*slurm, "cluster.slurm.gpus=2"]))
    assert script.splitlines()[-2] == "#   learner     x 4   1 GPU each, on several nodes"
    with pytest.raises(ConfigError, match=r"each node of the job \(cluster.slurm.gpus\) has 1 \+ 1"):
        start.dry_run(compose([*slurm, "cluster.slurm.gpus=1"]))
    pods = [*LEARNS, "learner.n=2", "cluster=kubernetes", "run.name=one", IMAGE, "learner.device=cuda"]
    with pytest.raises(ConfigError, match=r"cluster.kubernetes.learner_gpus"):
        kubernetes.render(compose(pods))
    assert kubernetes.render(compose([*pods, "cluster.kubernetes.learner_gpus=2"]))


# ---- on Ray ---------------------------------------------------------------------------------------------------------


class Sees:
    """A role that says which GPUs it was given, which it sees, and where it is."""

    def where(self):
        given = ray.get_runtime_context().get_accelerator_ids()["GPU"]
        return given, os.environ.get("CUDA_VISIBLE_DEVICES"), ray.get_runtime_context().get_node_id()


def seen(backend, names):
    handles = [backend.start(name, Sees) for name in names]
    found = [backend.result(backend.submit(handle, "where")) for handle in handles]
    for handle in handles:
        backend.kill(handle)
    return found


def assert_apart(found):
    """Each rank has one GPU, which it alone sees; no two have the same."""
    assert all(len(given) == 1 and visible == given[0] for given, visible, _ in found), found
    assert len({(node, visible) for _, visible, node in found}) == len(found)


@pytest.mark.parametrize("gpus", [1, 2, *(pytest.param(gpus, marks=pytest.mark.slow) for gpus in (4, 8))])
def test_placement_on_declared_gpus(gpus, tmp_path):
    words = [*LEARNS, f"learner.n={gpus}"]
    local = Local(4, tmp_path / "token", False, plan=planned(*words, nodes=[gpus]), gpus=gpus)
    try:
        ranks = [f"learner-{rank}" for rank in range(gpus)]
        assert_apart(seen(local, ranks))
        assert_apart(seen(local, [f"{name}.1" for name in ranks[:2]]))  # after they died
        assert local.meeting(ranks) == LOOPBACK
        ((given, visible, _),) = seen(local, ["actor-0"])
        assert (given, visible) == ([], ""), "an actor sees no GPU"
    finally:
        local.shutdown()


def test_placement_shares_a_declared_gpu_if_there_are_too_few(tmp_path):
    made = planned(*ACTS, "learner.n=2", nodes=[2])
    local = Local(4, tmp_path / "token", False, plan=made, gpus=2)
    try:
        handles = [local.start(name, Sees) for name in ("learner-0", "learner-1", "policy")]
        zero, one, policy = (local.result(local.submit(handle, "where"))[1] for handle in handles)
        assert {zero, one} == {"0", "1"}
        assert policy == zero
    finally:
        local.shutdown()


@pytest.mark.parametrize(("gpus", "ranks"), [((1, 1), 2), ((2, 2), 2), ((1, 3), 4)])
def test_placement_on_two_nodes(gpus, ranks, monkeypatch):
    from cluster.roles.joined import backend

    first = {"cpus": 4, "learner": True, "num_gpus": gpus[0]}
    nodes = Nodes.started(first=first, second={"cpus": 4, "num_gpus": gpus[1]})
    monkeypatch.setenv("CAIRN_RAY_ADDRESS", nodes.cluster.address)
    monkeypatch.setenv("CAIRN_RAY_NODES", "3")
    joined = backend(compose([*LEARNS, f"learner.n={ranks}", "cluster.dashboard=false"]), None)
    try:
        names = [f"learner-{rank}" for rank in range(ranks)]
        found = seen(joined, names)
        assert_apart(found)
        assert len({node for _, _, node in found}) == (1 if ranks <= gpus[0] else 2), "one node, if it has enough"
        assert found[0][2] == nodes.nodes["first"].node_id, "rank 0 is on the learner's node"
        assert joined.meeting(names) in (LOOPBACK, nodes.nodes["first"].node_ip_address)
        assert seen(joined, ["actor-0"])[0][:2] == ([], "")
    finally:
        joined.shutdown()
        nodes.shutdown()


def test_placement_that_does_not_fit_a_joined_ray_is_refused(monkeypatch):
    from cluster.roles.joined import backend

    nodes = Nodes.started(first={"cpus": 4, "learner": True, "num_gpus": 1})
    monkeypatch.setenv("CAIRN_RAY_ADDRESS", nodes.cluster.address)
    try:
        with pytest.raises(ConfigError, match="2 GPUs are needed, but each node of this Ray has 1 \\+ 0"):
            backend(compose([*ACTS, "cluster.share_gpus=no", "cluster.dashboard=false"]), None)
        assert not ray.is_initialized()
    finally:
        nodes.shutdown()


def test_ranks_follow_one_another_on_the_same_gpus():
    assert set(RANKS) == {"learner", "fitter", "preference"}
    found = planned("experiment=glam_small", "policy.lm.placement=server", "stages=[]", nodes=[2])
    assert found.seat("learner-0.3") == found.seat("learner-0")
