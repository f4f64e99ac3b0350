"""The object store is as large as the weights need, and what does not fit the machine is refused in a sentence."""

import pytest
import torch

from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from cluster.roles.object_store import LEAST, assert_room, object_store
from learner.group import build_policy, get_weights, payload_size
from learner.models.language import language_model

LARGE = ["env=toy/Line", "policy.hidden=16384", "evaluate.every=0"]  # 4.3 GB of weights
GB = 10**9


@pytest.mark.parametrize("words", [["experiment=toy"], ["env=babyai", "method=ppo"], ["experiment=ellm_crafter_small"]])
def test_the_size_of_weights_is_known_before_they_are_made(words):
    config = compose(words)
    made = get_weights(build_policy(config.policy, config.spec, 0))
    assert payload_size(config.policy, config.spec) == sum(value.nbytes for value in made.values())


def test_adapters_count_alone():
    words = ["experiment=glam_small", "policy.lm.folder=tiny-t5"]
    whole, adapters = compose(words), compose([*words, "policy.lm.tune=lora", "policy.lm.lora_rank=1"])
    sizes = [payload_size(config.policy, config.spec) for config in (whole, adapters)]
    made = get_weights(build_policy(adapters.policy, adapters.spec, 0))
    assert sizes[1] == sum(value.nbytes for value in made.values()) < sizes[0] / 2


def test_a_tiny_model_that_is_not_there_yet_is_made_with_numbers_before_its_weights_are_sized(monkeypatch):
    """The first command on a machine may be the one that needs it."""
    where, shape_of = [], language_model.shape_of

    def noted(name):
        where.append(torch.get_default_device().type)
        return shape_of(name)

    monkeypatch.setattr(language_model, "shape_of", noted)
    config = compose(["experiment=glam_small", "policy.lm.folder=tiny-t5"])
    where.clear()  # of the checks of the configuration
    payload_size(config.policy, config.spec)
    assert where == ["cpu"]


def test_small_weights_take_the_store_that_there_always_was():
    assert object_store(compose(["experiment=quickstart"])) == LEAST == GB


def test_large_weights_get_room_for_the_versions_that_travel():
    config = compose(LARGE)
    payload = payload_size(config.policy, config.spec)
    assert payload > 3 * GB
    assert 3 * payload < object_store(config) < 4.5 * payload
    assert object_store(compose([*LARGE, "evaluate.every=100000"])) > object_store(config) + payload


def test_a_size_that_was_given_is_taken():
    assert object_store(compose([*LARGE, "cluster.object_store_gb=2.5"])) == 2.5 * GB
    assert_room(compose([*LARGE, "cluster.object_store_gb=2.5"]), shared=1, memory=1)


def test_what_does_not_fit_is_refused_in_a_sentence():
    config = compose(LARGE)
    assert_room(config, shared=100 * GB, memory=100 * GB)
    with pytest.raises(ConfigError, match=r"weights are 4\.3 GB, .* /dev/shm has 1\.0 GB free: enlarge it"):
        assert_room(config, shared=GB, memory=100 * GB)
    with pytest.raises(ConfigError, match=r"takes [\d.]+ GB of memory, and this machine has 12\.0 GB left: train adap"):
        assert_room(config, shared=100 * GB, memory=12 * GB)
    assert_room(compose([*LARGE, "cluster=inline"]), shared=1, memory=1)  # nothing travels
    assert_room(compose(["experiment=toy"]), shared=1, memory=1)  # as before: Ray itself takes the disk


def test_ray_starts_with_that_store(tmp_path):
    from cluster.roles.joined import backend
    from cluster.roles.local import ray

    config = compose(["experiment=toy", "cluster.dashboard=false", "cluster.object_store_gb=0.2"])
    made = backend(config, tmp_path / "token")
    try:
        assert ray.cluster_resources()["object_store_memory"] == 0.2 * GB
    finally:
        made.shutdown()


def test_nodes_of_a_slurm_job_get_it_too(tmp_path):
    from cluster.jobs.slurm.batch_script import Job, render

    words = ["experiment=toy", "cluster=slurm", "cluster.slurm.nodes=2"]
    for more, size in (([], LEAST), (["cluster.object_store_gb=3"], 3 * GB)):
        config = compose([*words, *more])
        assert f"CAIRN_OBJECT_STORE={size}" in render(config, Job("a", [tmp_path], tmp_path / "job.txt"))
