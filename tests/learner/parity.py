"""What a learner or a fit did on one device, to be compared with what it did on another."""

import math

import numpy as np
import pytest

from learner import algorithms, rewards
from learner.group import Learner
from learner.models import networks
from tests.learner import chunks

ALIKE = 0.9
"""Least cosine of what weights move by in bfloat16 with what they move by in float32."""
CASES = {
    **{f"{rule} {network}": (rule, network, {}) for rule in algorithms.names() for network in networks.names()},
    **{
        f"{rule} {text} words": (rule, "mlp", {"policy": {"text": text}})
        for rule in algorithms.names()
        for text in ("learned", "gru", "minilm")
    },
    "ppo gru": ("ppo", "film", {"policy": {"memory": "gru", "text": "gru"}}),
    "ppo stale": ("ppo", "film", {"lag": 1}),
    "ppo gru, stale": ("ppo", "film", {"lag": 1, "policy": {"memory": "gru"}}),
    "ppo no value clip": ("ppo", "film", {"options": {"value_clip": None}}),
    "ppo value scale": ("ppo", "texts", {"options": {"normalise_value": True, "reference_kl": 0.1}}),
    "ppo target": ("ppo", "film", {"options": {"target_kl": 0.5, "reference_kl": 0.1}}),
    "dqn atoms": ("dqn", "texts", {"policy": {"atoms": 11, "v_min": -1.0, "v_max": 1.0}}),
    "dqn frames": ("dqn", "texts", {"policy": {"stack": 3}}),
    "dqn prioritised": ("dqn", "film", {"options": {"prioritised": True}}),
    "dqn single": ("dqn", "texts", {"options": {"double": False, "target_every": 2}}),
    "dqn gru words, drrn": ("dqn", "drrn", {"policy": {"text": "gru"}}),
}
"""Updates: algorithm, network and options of `learned`."""
TERMS = {name: {"name": name, "hidden": 16} | ({"neighbours": 3} if name == "apt" else {}) for name in rewards.names()}
"""Small intrinsic rewards, by name."""


def learned(where, algorithm, network, lag=0, **options):
    """A learner after two updates on a device, and its report; see `chunks.setup` for the options."""
    learner, report, weights = chunks.learn(chunks.setup(algorithm, network, where, learning_rate=1e-3, **options), lag)
    assert {p.device.type for p in learner.policy.parameters()} == {where}
    assert report["learned"] == chunks.STEPS * chunks.ENVS
    assert weights.keys() == dict(learner.policy.payload()).keys()
    return learner, report


def arrays(learner):
    """All that a checkpoint holds of it."""
    groups = {"model": learner.ready(), **learner.algorithm.state()}
    return {f"{group} {name}": value for group, own in groups.items() for name, value in own.items()}


def moved(learner, setup):
    """What its weights moved by since they were drawn, side by side."""
    before, after = Learner(setup).ready(), learner.ready()
    return np.concatenate([(after[name] - before[name]).ravel() for name in after if name != "q.epsilon"])


def fitted(fitter, steps=3):
    """Weights after some steps of a fit, and what these and a validation said."""
    found = fitter.fit(steps)
    said = {name: np.array(value) for name, value in fitter.validate().items()}
    return fitter.weights(), {"steps": np.array(found)} | said


def assert_close(here, there, close):
    """Arrays by name."""
    assert here.keys() == there.keys()
    for name, value in here.items():
        np.testing.assert_allclose(there[name], value, rtol=close, atol=close, err_msg=name)


def assert_alike(exact, rounded, setup):
    """In bfloat16, with 8 bits of precision, weights move about as in float32; `setup` is that of the processor."""
    one, other = moved(exact, setup), moved(rounded, setup)
    assert not np.array_equal(one, other)
    assert one @ other / math.sqrt((one @ one) * (other @ other)) > ALIKE


def assert_same_report(here, there, share):
    for name, value in here.items():
        if name.startswith(("losses/", "policy/", "intrinsic/")):
            assert there[name] == pytest.approx(value, rel=share, abs=share / 5), name
