"""Weights of a language model's policy: what is loaded, what follows from the seed, what is trained, what travels."""

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from peft.tuners.tuners_utils import BaseTunerLayer

import envs
from learner.group import build_policy, get_weights, set_weights
from tests.learner.language_policies import (
    BOTH,
    ENCODER,
    FAMILIES,
    OPTIONS,
    WORLD,
    config_of,
    models,
    policy_of,
    same,
    states,
)


def folder_of(name):
    return safetensors.torch.load_file(models()[name] / "model.safetensors")


def weights_of(policy):
    """By the names of the folder's file, which holds tied weights once."""
    own = dict(policy.model.named_parameters())
    return {name: own[name].detach() for name in folder_of(Path(policy.lm.folder).name) if name in own}


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_loaded_is_the_folders_and_the_rest_follows_from_the_seed(name):
    stored = folder_of(name)
    loaded = {p: weights_of(policy_of(name, pretrained=p)) for p in ("all", "embeddings", "none")}
    assert loaded["all"].keys() == stored.keys()
    assert all(torch.equal(value, stored[key]) for key, value in loaded["all"].items())
    model = policy_of(name).model
    embedding = next(key for key, p in model.named_parameters() if p is model.get_input_embeddings().weight)
    matrices = {key for key, value in stored.items() if value.dim() > 1}
    for pretrained, equal in (("embeddings", {embedding}), ("none", set())):
        assert {key for key in matrices if torch.equal(loaded[pretrained][key], stored[key])} == equal
        torch.manual_seed(99)  # only the seed counts
        again, other = (policy_of(name, seed=seed, pretrained=pretrained) for seed in (0, 1))
        assert all(torch.equal(value, loaded[pretrained][key]) for key, value in weights_of(again).items())
        differing = {key for key in matrices if not torch.equal(weights_of(other)[key], stored[key])}
        assert differing == matrices - equal
        assert all(not torch.equal(weights_of(other)[key], weights_of(again)[key]) for key in matrices - equal)


def test_heads_follow_from_the_seed():
    spec = envs.spec(WORLD, **OPTIONS)
    one, again, other = (build_policy(config_of("t5", head="actions"), spec, seed) for seed in (0, 0, 1))
    for head in ("value_head.0.weight", "action_head.2.weight"):
        assert np.array_equal(get_weights(one)[head], get_weights(again)[head])
        assert not np.array_equal(get_weights(one)[head], get_weights(other)[head])


def adapted(name, **lm):
    """A policy whose adapters do something."""
    policy = policy_of(name, tune="lora", lora_rank=4, **lm)
    with torch.no_grad():
        for key, parameter in policy.named_parameters():
            if "lora_B" in key:
                parameter.normal_(std=0.1)
    return policy


@pytest.mark.parametrize("name", FAMILIES)
def test_adapters_begin_as_nothing_and_are_all_that_travels(name):
    plain, policy, (obs, texts) = policy_of(name), policy_of(name, tune="lora", lora_rank=4), states()
    set_heads(policy, plain)
    same(policy.decide(obs, texts), plain.decide(obs, texts))
    names = set(policy.payload())
    assert {key.partition(".")[0] for key in names} == {"model", "value_head"}
    assert all("lora_" in key for key in names if key.startswith("model."))
    assert {p.dtype for p in policy.payload().values()} == {torch.float32}
    assert sum(p.numel() for p in policy.payload().values()) < 0.2 * sum(p.numel() for p in policy.parameters())


def set_heads(policy, other):
    policy.value_head.load_state_dict(other.value_head.state_dict())


@pytest.mark.parametrize("name", FAMILIES)
def test_adapters_merged_into_the_weights_say_the_same(name):
    policy, (obs, texts) = adapted(name), states()
    before = policy.decide(obs, texts)
    layers = [module for module in policy.model.modules() if isinstance(module, BaseTunerLayer)]
    assert layers
    for layer in layers:
        layer.enable_adapters(False)
    without = policy.decide(obs, texts)[0]
    for layer in layers:
        layer.enable_adapters(True)
        layer.merge()
    same(policy.decide(obs, texts), before)
    assert (before[0] - without).abs().max() > 0.01


@pytest.mark.parametrize(
    ("name", "lm"),
    [
        ("t5", {"tune": "lora", "lora_rank": 4}),
        ("llama", {"tune": "lora", "lora_rank": 4, "lora_targets": ["q_proj", "up_proj"]}),
        ("llama", {"tune": "lora", "lora_rank": 4, "precision": "bfloat16"}),
        ("flan", {"tune": "none", "head": "actions"}),
        ("gpt2", {}),
        ("bert", ENCODER),
        ("bert", ENCODER | {"tune": "lora", "lora_rank": 4}),
    ],
    ids=["t5-lora", "llama-lora", "llama-lora-bfloat16", "flan-heads", "gpt2-all", "bert-all", "bert-lora"],
)
def test_what_travels_makes_another_policy_the_same(name, lm, tmp_path):
    policy, (obs, texts) = policy_of(name, **lm), states()
    with torch.no_grad():
        for value in policy.payload().values():
            value.add_(torch.randn_like(value), alpha=0.05)
    safetensors.numpy.save_file(get_weights(policy), tmp_path / "weights.safetensors")
    other = policy_of(name, **lm)
    before = policy.decide(obs, texts)
    assert not torch.equal(other.decide(obs, texts)[0], before[0])
    set_weights(other, safetensors.numpy.load_file(tmp_path / "weights.safetensors"))
    assert all(torch.equal(a, b) for a, b in zip(other.decide(obs, texts), before, strict=True))
    get_weights(policy)["value_head.0.weight"][:] = 0  # copies
    assert policy.value_head[0].weight.abs().sum() > 0
    with pytest.raises(ValueError, match="do not fit this policy"):
        set_weights(other, get_weights(policy_of(name, **lm | {"critic": 8})))


@pytest.mark.parametrize("name", BOTH)
def test_a_bfloat16_body_with_float32_adapters_is_near_and_learns(name):
    exact, (obs, texts) = adapted(name), states()
    policy = policy_of(name, tune="lora", lora_rank=4, precision="bfloat16")
    set_weights(policy, get_weights(exact))
    body = {p.dtype for key, p in policy.model.named_parameters() if "lora_" not in key}
    assert body == {torch.bfloat16}
    assert {p.dtype for p in policy.payload().values()} == {torch.float32}
    (logits, values), (rounded, some) = exact.decide(obs, texts), policy.decide(obs, texts)
    assert rounded.dtype == some.dtype == torch.float32
    assert 0 < (logits - rounded).abs().max() < 0.15
    assert 0 < (values - some).abs().max() < 0.15

    optimiser, losses = torch.optim.Adam([p for p in policy.parameters() if p.requires_grad], 1e-2), []
    for _ in range(6):
        loss = 0.0
        for _, logits, _ in policy.pieces(obs, texts):
            assert not torch.is_autocast_enabled("cpu")  # what a receiver does is its own
            loss = loss - logits.log_softmax(-1)[:, 2].sum() / len(obs["mission"])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_a_model_trained_in_bfloat16_keeps_its_weights_in_float32():
    policy, (obs, texts) = policy_of("t5", precision="bfloat16"), states()
    assert {p.dtype for p in policy.parameters()} == {torch.float32}
    (logits, _), (rounded, _) = policy_of("t5").decide(obs, texts), policy.decide(obs, texts)
    assert 0 < (logits - rounded).abs().max() < 0.15
