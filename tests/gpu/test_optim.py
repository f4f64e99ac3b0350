"""What learners on a GPU are made of: the way there and back, and Adam."""

import numpy as np
import pytest
import torch

from learner.optim.adam import Adam, DecayingAdam, optimiser_step
from learner.optim.collective import Group
from learner.optim.device import device, read, send, settle
from learner.optim.precision import halves

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU here"),
]


def test_auto_is_the_gpu():
    assert device("auto").type == "cuda"
    assert halves("bfloat16", device("cuda"))


def test_what_is_sent_comes_back():
    columns = {
        "numbers": np.arange(7.0),
        "flags": np.array([True, False, True]),
        "nothing": np.zeros((0, 4), np.float32),
        "pictures": torch.arange(30, dtype=torch.uint8).view(2, 5, 3),
        "one": torch.tensor(5),
    }
    there = send(columns, device("cuda"))
    for name, column in columns.items():
        assert there[name].is_cuda
        np.testing.assert_array_equal(read(there[name]), np.asarray(column))


def test_float32_is_whole():
    settle(device("cuda"), exact=False)
    random = torch.Generator().manual_seed(0)
    one, two = torch.randn(2, 256, 256, generator=random)
    np.testing.assert_allclose(read(one.cuda() @ two.cuda()), one @ two, atol=1e-4)
    picture, kernel = torch.randn(1, 64, 20, 20, generator=random), torch.randn(8, 64, 3, 3, generator=random)
    convolved = torch.nn.functional.conv2d(picture, kernel)
    np.testing.assert_allclose(read(torch.nn.functional.conv2d(picture.cuda(), kernel.cuda())), convolved, atol=1e-3)


@pytest.mark.parametrize("make", [Adam, lambda parameters: DecayingAdam(parameters, (0.9, 0.95))])
def test_steps_are_those_of_the_processor(make):
    gradients = torch.randn(6, 1000, generator=torch.Generator().manual_seed(0))
    gradients[2, 3] = torch.nan  # skipped on both
    here, there = make(torch.ones(1000)), make(torch.ones(1000, device="cuda"))
    for gradient in gradients:
        norm, usable = optimiser_step(here, [gradient[:600], gradient[600:]], Group(), 0.5, 1e-2)
        sent = gradient.cuda()
        length, finite = optimiser_step(there, [sent[:600], sent[600:]], Group(), 0.5, 1e-2)
        assert read(length) == pytest.approx(norm, rel=1e-5, nan_ok=True)
        assert bool(read(finite)) == usable
    for name, value in here.state().items():
        np.testing.assert_allclose(there.state()[name], value, rtol=1e-5, atol=1e-7)
    assert there.state()["steps"] == 5
