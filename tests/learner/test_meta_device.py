"""Every update, on a device whose tensors have no numbers.

No kernel runs on PyTorch's `meta` device, but whoever asks for a number raises, unless it asks by
`learner.optim.device.read`; and here an operation raises if its tensors are on two devices. Code that only the
processor can run, or that would make a GPU wait, is thus found without one.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import envs
from actors.behaviours.deploy import deploy
from actors.policy_server import PolicyServer
from learner import algorithms, rewards
from learner.behaviours.imitation import SequenceFitter
from learner.context.config import ARMS
from learner.context.fit import HistoryFitter
from learner.fit import Fitter
from learner.knowledge.preference_fit import PreferenceFitter
from learner.models import networks
from learner.models.config import remembered
from learner.models.weights import get_weights
from learner.optim.device import device
from tests.actors import test_deploy, test_trials
from tests.learner import (
    chunks,
    histories,
    language_policies,
    test_fit,
    test_imitation,
    test_llm_ppo,
    test_preference,
    transformers,
)

MOVES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


class OneDevice(TorchDispatchMode):
    """Raises where tensors of two devices meet, numbers [] of the host aside. `sent` counts what went to the device."""

    sent = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [x for x in tree_leaves((args, kwargs or {})) if isinstance(x, torch.Tensor) and x.ndim]
        devices = {x.device.type for x in tensors}
        if func not in MOVES:
            assert len(devices) < 2, f"{func} is asked about tensors on {devices}"
        elif "cpu" in devices and torch.device((kwargs or {}).get("device") or args[0].device).type == "meta":
            self.sent += 1
        return func(*args, **kwargs or {})


def learned(*args, lag=0, **options):
    """An update on the device, and how many copies were sent there in the last one."""
    few = {"epochs": 1} if args[0] == "ppo" else {"samples_per_insert": 0.5}
    options["options"] = few | options.get("options", {})
    with OneDevice() as watched:
        learner, report, weights = chunks.learn(chunks.setup(*args, device="meta", **options), lag)
    assert {p.device.type for p in learner.policy.parameters()} == {"meta"}
    assert report["learned"] == chunks.STEPS * chunks.ENVS
    assert weights.keys() == dict(learner.policy.payload()).keys()
    return learner, watched


@pytest.mark.parametrize("network", networks.names())
@pytest.mark.parametrize("algorithm", algorithms.names())
def test_meta_device_learns_by_every_algorithm_and_network(algorithm, network):
    learned(algorithm, network)


@pytest.mark.parametrize("text", ["learned", "gru", "minilm"])
@pytest.mark.parametrize("algorithm", algorithms.names())
def test_meta_device_learns_what_texts_say(algorithm, text):
    learned(algorithm, "mlp", policy={"text": text})


@pytest.mark.parametrize(
    "options",
    [
        {"policy": {"memory": "gru"}},
        {"lag": 1},
        {"lag": 1, "policy": {"memory": "gru"}},
        {"options": {"normalise_value": True}},
        {"options": {"target_kl": 0.5, "reference_kl": 0.1}},
    ],
    ids=str,
)
def test_meta_device_learns_by_ppo(options):
    learned("ppo", "film", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"policy": {"atoms": 11, "v_min": -1.0, "v_max": 1.0}},
        {"policy": {"stack": 3}},
        {"options": {"prioritised": True}},
        {"options": {"double": False, "target_every": 2}},
    ],
    ids=str,
)
def test_meta_device_learns_by_dqn(options):
    learned("dqn", "texts", **options)


@pytest.mark.parametrize("network", ["film", "texts"])
@pytest.mark.parametrize("algorithm", algorithms.names())
@pytest.mark.parametrize("term", rewards.names())
def test_meta_device_pays_by_every_term(term, algorithm, network):
    intrinsic = {"name": term, "hidden": 16} | ({"neighbours": 3} if term == "apt" else {})
    learner, _ = learned(algorithm, network, intrinsic=intrinsic)
    assert {p.device.type for p in learner.algorithm.intrinsic.term.networks.parameters()} == {"meta"}


def test_meta_device_finds_what_would_wait_and_what_is_elsewhere():
    there, here = torch.zeros(3, device="meta"), torch.zeros(3, dtype=torch.int64)
    with OneDevice(), pytest.raises(AssertionError, match="is asked about tensors on"):
        there[here]
    for ask in (torch.unique, torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.cpu, torch.nonzero, bool):
        with pytest.raises((RuntimeError, NotImplementedError)):
            ask(there)


@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter:UserWarning")
def test_meta_device_restores_a_checkpoint(tmp_path):
    made = chunks.setup("dqn", "film", device="meta", intrinsic={"name": "rnd", "hidden": 16})
    learner, _, weights = chunks.learn(made)
    path = learner.save(tmp_path, 2, {}, {"counters": {"version": 2}}, 1)
    assert {name: value.shape for name, value in chunks.Learner(made).restore(Path(path)).items()} == {
        name: value.shape for name, value in weights.items()
    }


def fitted(made):
    """Steps of a fit there, and a validation; a weight is still there then."""
    with OneDevice():
        fitter = made()
        found = fitter.fit(2)
        fitter.validate()
        assert len(found) == 2
        assert fitter.parameters.is_meta
        assert fitter.weights()
    return fitter


@pytest.mark.parametrize(
    "model", [{}, {"layout": "separate"}, {"dimensions": "independent"}, {"ablate": "target"}], ids=str
)
def test_meta_device_fits_a_behaviour_transformer(tmp_path, model):
    made = test_imitation.setup(test_imitation.write_store(tmp_path / "store"), model=model)
    config = made.config.model_copy(update={"model": made.config.model.model_copy(update={"device": "meta"})})
    fitted(lambda: SequenceFitter(replace(made, config=config)))


@pytest.mark.parametrize(("arm", "attention"), [*((arm, "band") for arm in ARMS), ("radt", "window")])
def test_meta_device_fits_a_history_transformer(tmp_path, arm, attention):
    store = histories.written(tmp_path / "store", transformers.LENGTHS)
    near = transformers.fitter(store, arm)

    def made():
        setup = transformers.setup(store, arm, near.setup.encoder, attention=attention)
        fitter = HistoryFitter(replace(setup, sequence=setup.sequence.model_copy(update={"device": "meta"})))
        fitter.lookup = near.lookup  # which compares keys, before anything is learned
        return fitter

    fitted(made)


def test_meta_device_fits_a_policy(tmp_path):
    made = test_fit.setup(test_fit.write_store(tmp_path / "store"))
    fitter = fitted(lambda: Fitter(replace(made, learner=made.learner.model_copy(update={"device": "meta"}))))
    assert fitter.policy.device.type == "meta"


def test_meta_device_fits_preferences():
    found = test_preference.segments(60)
    made = test_preference.fitter(found, test_preference.preferences(found, 40)).setup
    with OneDevice():
        fitter = PreferenceFitter(replace(made, device="meta"))
        assert len(fitter.fit(2)) == 2
    assert fitter._fits[0].parameters.is_meta


def moved(policy):
    """A language model of the processor, as it would be if it had been loaded there."""
    policy.to("meta")
    if hasattr(getattr(policy.scorer, "_network", None), "packed"):  # what GPUs compute with
        policy.scorer._network.packed = True
    return policy


@pytest.mark.parametrize(
    ("name", "lm"),
    [
        ("t5", {}),
        ("t5", {"normalise": "tokens"}),
        ("t5", {"checkpointing": True}),
        ("flan", {"head": "actions"}),
        ("llama", {"tune": "lora"}),
        ("gpt2", {}),
        ("bert", language_policies.ENCODER),
        ("bert", {"head": "actions"}),
    ],
    ids=str,
)
def test_meta_device_learns_by_ppo_of_a_language_model(name, lm):
    policy, played = test_llm_ppo.play(test_llm_ppo.explorer(name, **lm))
    learner = test_llm_ppo.learner_of(moved(policy), minibatch=8)
    with OneDevice():
        test_llm_ppo.update(learner, played)
    assert learner.gradient.is_meta
    assert {p.device.type for p in policy.parameters()} == {"meta"}


def test_meta_device_answers_by_a_policy_server():
    config, policy = language_policies.config_of("llama"), language_policies.policy_of("llama")
    obs, texts = language_policies.states()
    spec = remembered(config, envs.spec(language_policies.WORLD, **language_policies.OPTIONS))
    server = PolicyServer(config, spec, 0, False)
    moved(server._policy)
    asked = policy.prompter.ask(language_policies.at(obs, slice(10)), texts)
    for version in range(3):
        server.load(version, get_weights(server._policy))
    with OneDevice() as watched:
        for version in (0, 1, 0, 2):
            logits, values, _ = server.answer(version, asked)
    assert logits.shape == (10, 6)
    assert values.shape == (10,)
    assert watched.sent >= 3, "the weights of each version"


@pytest.mark.parametrize("world", [test_trials.ROOM, test_trials.MAZE])
@pytest.mark.parametrize("arm", ["dt", "ad"])
def test_meta_device_plays_trials(arm, world, monkeypatch):
    build = test_trials.model_of

    def there(*args, **options):
        model = build(*args, **options).to("meta")
        model.device = torch.device("meta")
        return model

    monkeypatch.setattr(test_trials, "model_of", there)
    with OneDevice():
        assert len(test_trials.played(test_trials.trials_of(world, arm), 2)) == 2


@pytest.mark.parametrize("layout", ["merged", "separate"])
def test_meta_device_deploys_a_behaviour_transformer(layout):
    model = test_deploy.build(layout).to("meta")
    model.device = torch.device("meta")
    with OneDevice():
        found = deploy(model, test_deploy.HOUSE, **test_deploy.prompts(), length=12, stride=2)
    assert found["pose"].shape == (5, 1, 12, 3)


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
