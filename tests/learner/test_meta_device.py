"""Every update, fit and deployment on a device that is not the processor: it waits nowhere, and computes the same.

The device is PyTorch's `meta`, with numbers beside it (`shadow_device.py`). Whoever asks for a number there raises,
unless it asks by `learner.optim.device.read`; so does an operation whose tensors are on two devices. Code that only the
processor can run, or that would make a GPU wait or compute something else, is thus found without one.
"""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import envs
from actors.behaviours.deploy import deploy
from actors.policy_server import PolicyServer
from learner import algorithms
from learner.algorithms.dqn import update as dqn
from learner.algorithms.ppo import outputs
from learner.algorithms.ppo import update as ppo
from learner.behaviours.imitation import SequenceFitter
from learner.context.config import ARMS
from learner.context.fit import HistoryFitter
from learner.fit import Fitter
from learner.knowledge.preference_fit import PreferenceFitter
from learner.models.config import remembered
from learner.models.weights import get_weights
from learner.optim.device import device, read
from tests.actors import test_deploy, test_trials
from tests.learner import (
    chunks,
    histories,
    language_policies,
    test_fit,
    test_generated,
    test_imitation,
    test_llm_ppo,
    test_preference,
    transformers,
)
from tests.learner.parity import CASES, TERMS, arrays, assert_alike, assert_close, assert_same_report, fitted, learned
from tests.learner.shadow_device import HalfPrecision, ShadowDevice, moved

CLOSE = 1e-4
"""Of any weight, and of a number of a report as a share: sums in another order, through some steps of Adam."""


def assert_learns_the_same(*args, lag=0, **options):
    """Also, one more update copies nothing to the device for which the host waits. Returns the learner there."""
    here, said = learned("cpu", *args, lag, **options)
    with ShadowDevice() as device:
        there, told = learned("meta", *args, lag, **options)
        found = arrays(there)
        device.busy = True
        there.update(2, 0, chunks.made(chunks.setup(*args, **options), 2, lag))
    assert_close(arrays(here), found, CLOSE)
    assert_same_report(said, told, 10 * CLOSE)
    return there


@pytest.mark.parametrize("case", CASES)
def test_meta_device_learns_the_same(case):
    algorithm, network, options = CASES[case]
    assert_learns_the_same(algorithm, network, **options)


@pytest.mark.parametrize("case", CASES)
def test_meta_device_learns_alike_in_bfloat16(case, monkeypatch):
    algorithm, network, options = CASES[case]
    exact, half = learned("cpu", algorithm, network, **options)[0], HalfPrecision()
    for module in (ppo, dqn):
        monkeypatch.setattr(module, "halves", lambda autocast, where: True)
    for module in (outputs, dqn):
        monkeypatch.setattr(module, "arithmetic", lambda *_: half)
    with ShadowDevice():
        rounded = learned("meta", algorithm, network, **options)[0]
        assert half.products > 10
        assert_alike(exact, rounded, chunks.setup(algorithm, network, policy=options.get("policy")))


@pytest.mark.parametrize("network", ["film", "texts"])
@pytest.mark.parametrize("algorithm", algorithms.names())
@pytest.mark.parametrize("term", TERMS)
def test_meta_device_pays_the_same(term, algorithm, network):
    learner = assert_learns_the_same(algorithm, network, intrinsic=TERMS[term])
    assert {p.device.type for p in learner.algorithm.intrinsic.term.networks.parameters()} == {"meta"}


def test_meta_device_finds_what_would_wait_and_what_is_elsewhere():
    there, here = torch.zeros(3, device="meta"), torch.zeros(3, dtype=torch.int64)
    with ShadowDevice(), pytest.raises(AssertionError, match="is asked about tensors on"):
        there[here]
    for ask in (torch.unique, torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.cpu, torch.nonzero, bool):
        with pytest.raises((RuntimeError, NotImplementedError)):
            ask(there)


def test_shadows_are_shared_as_storages_are_and_are_let_go_of():
    with ShadowDevice() as there:
        whole = torch.arange(12.0, device="meta").view(3, 4)
        part = torch.nn.Parameter(torch.zeros(4, device="meta"))
        part.data = whole[1]
        whole[1] += 1
        part.data *= 2
        del part
        for _ in range(1000):
            torch.ones(5, device="meta")
        kept = read(whole)
        known = len(there._shadows)
    expected = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    expected[1] = (expected[1] + 1) * 2
    np.testing.assert_array_equal(kept, expected)
    assert known < 200
    for elsewhere in (lambda x: x + whole[0], lambda x: x[[0, 2]]):  # made before, or by PyTorch's indexing from a list
        with pytest.raises(AssertionError, match="came to this device by no operation"), ShadowDevice():
            elsewhere(torch.ones(4, device="meta"))


@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter:UserWarning")
def test_meta_device_restores_a_checkpoint(tmp_path):
    made = chunks.setup("dqn", "film", device="meta", intrinsic={"name": "rnd", "hidden": 16})
    with ShadowDevice():
        learner, _, _ = chunks.learn(made)
        path = learner.save(tmp_path, 2, {}, {"counters": {"version": 2}}, 1)
        again = chunks.Learner(made)
        again.restore(Path(path))
        before, after = arrays(learner), arrays(again)
    assert_close(before, after, 0)


def assert_fits_the_same(make):
    """`make` builds a fit on a device."""
    here = fitted(make("cpu"))
    with ShadowDevice() as device:
        fitter = make("meta")
        device.busy = True
        there = fitted(fitter)
    assert fitter.parameters.is_meta
    for one, other in zip(here, there, strict=True):
        assert_close(one, other, CLOSE)
    return fitter


@pytest.mark.parametrize(
    "model", [{}, {"layout": "separate"}, {"dimensions": "independent"}, {"ablate": "target"}], ids=str
)
def test_meta_device_fits_a_behaviour_transformer(tmp_path, model):
    made = test_imitation.setup(test_imitation.write_store(tmp_path / "store"), model=model | {"precision": "float32"})

    def make(where):
        model = made.config.model.model_copy(update={"device": where})
        return SequenceFitter(replace(made, config=made.config.model_copy(update={"model": model})))

    assert_fits_the_same(make)


@pytest.mark.parametrize(("arm", "attention"), [*((arm, "band") for arm in ARMS), ("radt", "window")])
def test_meta_device_fits_a_history_transformer(tmp_path, arm, attention):
    store = histories.written(tmp_path / "store", transformers.LENGTHS)
    near = transformers.fitter(store, arm)

    def make(where):
        setup = transformers.setup(store, arm, near.setup.encoder, attention=attention)
        fitter = HistoryFitter(replace(setup, sequence=setup.sequence.model_copy(update={"device": where})))
        fitter.lookup = near.lookup  # which compares keys, before anything is learned
        return fitter

    assert_fits_the_same(make)


def test_meta_device_fits_a_policy(tmp_path):
    made = test_fit.setup(test_fit.write_store(tmp_path / "store"))

    def make(where):
        return Fitter(replace(made, learner=made.learner.model_copy(update={"device": where})))

    assert assert_fits_the_same(make).policy.device.type == "meta"


def test_meta_device_fits_preferences():
    found = test_preference.segments(60)
    made = test_preference.fitter(found, test_preference.preferences(found, 40)).setup
    near = PreferenceFitter(made)
    losses = near.fit(5)
    with ShadowDevice() as device:
        fitter = PreferenceFitter(replace(made, device="meta"))
        device.busy = True
        np.testing.assert_allclose(fitter.fit(5), losses, rtol=CLOSE, atol=CLOSE)
        weights = fitter.result().weights
    assert fitter._fits[0].parameters.is_meta
    assert_close(near.result().weights, weights, CLOSE)


def loaded(policy):
    """A language model of the processor, as it would be if it had been loaded there."""
    moved(policy)
    if hasattr(getattr(policy.scorer, "_network", None), "packed"):  # what GPUs compute with
        policy.scorer._network.packed = True
    return policy


@pytest.mark.parametrize(
    ("name", "lm", "options"),
    [
        ("t5", {}, {}),
        ("t5", {"normalise": "tokens"}, {"value_clip": None}),
        ("t5", {"normalise": "compat"}, {}),
        ("t5", {"checkpointing": True}, {"reference_kl": 0.1}),
        ("t5", {}, {"ratio": "token", "reference_kl": 0.1}),
        ("t5", test_generated.WARM, {}),
        ("flan", {"head": "actions"}, {}),
        ("llama", {"tune": "lora"}, {}),
        ("llama", test_generated.WARM, {"ratio": "token", "reference_kl": 0.1}),
        ("gpt2", {}, {}),
        ("bert", language_policies.ENCODER, {}),
        ("bert", {"head": "actions"}, {}),
    ],
    ids=str,
)
def test_meta_device_learns_by_ppo_of_a_language_model(name, lm, options):
    policy, played = test_llm_ppo.play(test_llm_ppo.explorer(name, **lm))
    same = copy.deepcopy(policy)
    near = test_llm_ppo.learner_of(policy, minibatch=8, **options)
    said = test_llm_ppo.update(near, played)
    with ShadowDevice() as device:
        learner = test_llm_ppo.learner_of(loaded(same), minibatch=8, **options)
        device.busy = True
        told = test_llm_ppo.update(learner, played)
        moments, weights = learner.adam.state(), get_weights(same)
    assert learner.gradient.is_meta
    assert {p.device.type for p in same.parameters()} == {"meta"}
    assert_same_report(said, told, 10 * CLOSE)
    assert_close(near.adam.state(), moments, CLOSE)
    assert_close(get_weights(policy), weights, CLOSE)


def test_meta_device_answers_by_a_policy_server():
    config, policy = language_policies.config_of("llama"), language_policies.policy_of("llama")
    obs, texts = language_policies.states()
    spec = remembered(config, envs.spec(language_policies.WORLD, **language_policies.OPTIONS))
    asked = policy.prompter.ask(language_policies.at(obs, slice(10)), texts)
    near, far = (PolicyServer(config, spec, 0, False) for _ in range(2))
    given = [get_weights(near._policy)]
    for version in (1, 2):
        given.append({name: value * np.float32(1 + 0.1 * version) for name, value in given[0].items()})
    with ShadowDevice() as watched:
        loaded(far._policy)
        watched.busy = True
        for server in (near, far):
            for version, weights in enumerate(given):
                server.load(version, weights)
        answers = [[server.answer(version, asked) for version in (0, 1, 0, 2)] for server in (near, far)]
    assert answers[0][0][0].shape == (10, 6)
    for here, there in zip(*answers, strict=True):
        np.testing.assert_allclose(there[0], here[0], rtol=CLOSE, atol=CLOSE)
        np.testing.assert_allclose(there[1], here[1], rtol=CLOSE, atol=CLOSE)
    assert np.abs(answers[0][0][0] - answers[0][1][0]).max() > 0.01
    assert watched.sent >= 3, "the weights of each version"


@pytest.mark.parametrize("world", [test_trials.ROOM, test_trials.MAZE])
@pytest.mark.parametrize("arm", ["dt", "ad"])
def test_meta_device_plays_trials(arm, world, monkeypatch):
    build, near = test_trials.model_of, test_trials.played(test_trials.trials_of(world, arm), 2)

    def there(*args, **options):
        model = moved(build(*args, **options))
        model.device = torch.device("meta")
        return model

    monkeypatch.setattr(test_trials, "model_of", there)
    with ShadowDevice() as device:
        trials = test_trials.trials_of(world, arm)
        device.busy = True
        far = test_trials.played(trials, 2)
    assert len(near) == 2
    for one, other in zip(near, far, strict=True):
        assert len(one.action)
        np.testing.assert_array_equal(other.action, one.action)


@pytest.mark.parametrize("layout", ["merged", "separate"])
def test_meta_device_deploys_a_behaviour_transformer(layout):
    asked = {**test_deploy.prompts(), "length": 12, "stride": 2}
    model = test_deploy.build(layout, precision="float32")
    near = deploy(model, test_deploy.HOUSE, **asked)
    with ShadowDevice() as device:
        moved(model).device = torch.device("meta")
        device.busy = True
        far = deploy(model, test_deploy.HOUSE, **asked)
    assert near["pose"].shape == (5, 1, 12, 3)
    for name in near:
        np.testing.assert_allclose(far[name], near[name], atol=2e-3)


def test_several_ranks_share_no_gpu_unless_told(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device("auto").type == "cuda"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert device("auto", ranks=2).type == "cpu"
    for shown, where in (("0,1", "cpu"), ("", "cpu"), ("1", "cuda")):  # a run shows each rank the GPU it was given
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
        assert device("auto", ranks=2).type == where
    assert device("cuda", ranks=2).type == "cuda"
    assert device("cpu").type == "cpu"
