"""Tokens a second, operations and what a GPU says: counted where models compute, told where there is something."""

import ctypes
import types

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import envs
from actors.policy_server import PolicyServer
from cluster.metrics.table import TABLE
from learner.models import flops
from learner.models.config import remembered
from learner.models.language.meter import Meter
from learner.models.weights import get_weights
from learner.optim import gpu
from llm_service.scoring.computed import Computed
from llm_service.scoring.trie import grow
from tests.learner.language_policies import ENCODER, OPTIONS, WORLD, at, config_of, policy_of, states

GPU = torch.device("cuda", 0)


def computed(asked):
    """What a scorer must compute for questions, each prompt once."""
    once = {question.prompt: question.candidates for question in asked}
    return Computed.of([len(prompt) for prompt in once], [len(grow(names).tokens) for names in once.values()])


@pytest.mark.parametrize("name", ["flan", "llama", "gpt2", "bert"])
def test_operations_are_those_that_pytorch_counts(name):
    """Of one prompt and one name of a token, which nothing is padded for."""
    policy = policy_of(name, **ENCODER) if name == "bert" else policy_of(name)
    prompt = tuple(range(5, 69))
    question = (prompt, () if name == "bert" else ((7,),))
    counted = FlopCounterMode(display=False)
    before = policy.scorer.computed
    with counted, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):  # products that are counted
        list(policy.scorer.micro_batches([question]))
    told = flops.language(policy.model, policy.scorer.computed - before)
    assert told == pytest.approx(counted.get_total_flops(), rel=0.15)


@pytest.mark.parametrize("name", ["t5", "llama"])
def test_a_lap_tells_tokens_without_padding_and_no_utilisation_without_a_known_peak(name):
    policy, (obs, texts) = policy_of(name), states()
    meter = Meter(policy)
    asked = policy.prompter.ask(at(obs, slice(10)), texts)
    policy.answer(asked)
    assert meter.lap(0.5) == {"tokens_per_second": computed(asked).tokens / 0.5}
    assert meter.lap(0.5) == {"tokens_per_second": 0.0}
    assert meter.tokens == computed(asked).tokens


@pytest.mark.parametrize(("tune", "passes"), [("all", 3), ("lora", 2), ("none", 1)])
def test_a_backward_pass_counts_by_what_is_trained(tune, passes):
    policy, (obs, texts) = policy_of("llama", tune=tune), states()
    meter, asked = Meter(policy), policy.prompter.ask(at(obs, slice(10)), texts)
    meter._peak = 1e12
    list(policy.pieces(at(obs, slice(10)), texts))  # with gradients
    forward = flops.language(policy.model, computed(asked))
    assert meter.lap(2.0)["mfu"] == pytest.approx(passes * forward / 2.0 / 1e12)
    policy.answer(asked)
    assert meter.lap(2.0)["mfu"] == pytest.approx(forward / 2.0 / 1e12)


def test_the_policy_server_tells_its_tokens_and_nothing_of_a_gpu():
    config, policy, (obs, texts) = config_of("t5"), policy_of("t5"), states()
    server = PolicyServer(config, remembered(config, envs.spec(WORLD, **OPTIONS)), 0, False)
    server.load(0, get_weights(policy))
    assert "policy/tokens_per_second" not in server.numbers()
    asked = policy.prompter.ask(at(obs, slice(10)), texts)
    server.answer(0, asked)
    numbers = server.numbers()
    assert numbers["policy/tokens"] == computed(asked).tokens
    assert numbers["policy/tokens_per_second"] > 0
    assert not [key for key in numbers if "gpu" in key or "mfu" in key]
    assert set(numbers) <= {metric.key for metric in TABLE}


# ---- a GPU, which answers as its driver would -----------------------------------------------------------------------


class Driver:
    """NVML's functions, which write their answers where they are told to, and say 0 if all is well."""

    def __init__(self, percent=None):
        self.percent = percent

    def nvmlDeviceGetHandleByUUID(self, name, handle):  # noqa: N802
        assert name == b"GPU-12ab"
        ctypes.cast(handle, ctypes.POINTER(ctypes.c_void_p))[0] = 77
        return 0

    def nvmlDeviceGetUtilizationRates(self, handle, found):  # noqa: N802
        assert handle.value == 77
        if self.percent is None:
            return 3  # NVML_ERROR_NOT_SUPPORTED
        ctypes.cast(found, ctypes.POINTER(ctypes.c_uint))[0] = self.percent
        return 0

    def nvmlSystemGetDriverVersion(self, version, size):  # noqa: N802
        version.value = b"580.65.06"
        return 0


@pytest.fixture
def card(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda where: (25, 100))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda where: types.SimpleNamespace(uuid="12ab"))
    return lambda driver: monkeypatch.setattr(gpu, "_library", lambda: driver)


def test_a_gpu_tells_how_busy_and_how_full_it_is(card):
    card(Driver(40))
    assert gpu.readings(GPU) == {"gpu/memory": 0.75, "gpu/use": 0.4}
    assert gpu.driver() == "580.65.06"


def test_what_a_driver_does_not_say_is_missing(card):
    card(Driver())
    assert gpu.readings(GPU) == {"gpu/memory": 0.75}
    card(None)
    assert gpu.readings(GPU) == {"gpu/memory": 0.75}
    assert gpu.driver() is None


def test_no_other_device_is_asked_anything():
    assert gpu.readings(torch.device("cpu")) == gpu.readings(torch.device("meta")) == {}
