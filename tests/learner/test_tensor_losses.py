"""The loss in array operations is the compiled one, gradients and all."""

import numpy as np
import pytest
import torch

from learner.algorithms.ppo.losses import REPORT, Loss, of_tokens, pull, token_gradient
from learner.algorithms.ppo.steps import Steps
from learner.models.language.llm_policy import FORBIDDEN

N, ACTIONS = 512, 5
EXACT = {torch.float32: {"rtol": 1e-5, "atol": 1e-5 / N}, torch.float64: {"rtol": 1e-6, "atol": 1e-6 / N}}


def said(seed=1):
    """Logits [N, ACTIONS], values [N], and steps; some actions are forbidden, some ratios are beyond the clip range."""
    random = np.random.default_rng(seed)
    old, advantage, value, old_value = random.normal(size=(4, N)).astype(np.float32)
    logits, reference = random.normal(size=(2, N, ACTIONS)).astype(np.float32)
    logits[::3, 4] = reference[::3, 4] = FORBIDDEN
    real = np.arange(4) < random.integers(1, 5, N)[:, None]
    before, now = (np.where(real, -np.exp(random.normal(0, 1, (N, 4))), 0).astype(np.float32) for _ in range(2))
    columns = [random.integers(4, size=N), 0.3 * old - 1.6, advantage, random.random(N, np.float32), old_value]
    steps = Steps(*columns, old_value + old, reference, before)
    return logits, (old_value + 0.3 * value).astype(np.float32), np.where(real, 0.8 * before + 0.2 * now, 0), steps


def there(array, dtype):
    tensor = torch.as_tensor(array)
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def same(ours, theirs, dtype):
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, **EXACT[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value_clip", [None, 0.2])
def test_gradients_and_report_are_those_of_the_compiled_loss(dtype, value_clip):
    logits, value, _, steps = said()
    loss = Loss(0.2, value_clip, 0.5, 0.03)
    sent = Steps(**{name: there(column, dtype) for name, column in vars(steps).items()})
    found = loss.gradient(there(logits, dtype), there(value, dtype), sent)
    assert all(isinstance(each, torch.Tensor) for each in found)
    same(found, loss.gradient(logits, value, steps), dtype)
    assert 0.1 < found[2][REPORT.index("clip_fraction")] < 0.9  # both sides of the clip range were met


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_pull_and_the_tokens_ratio_are_those_of_the_host(dtype):
    logits, _, tokens, steps = said()
    sent = Steps(**{name: there(column, dtype) for name, column in vars(steps).items()})
    same(pull(there(logits, dtype), sent.reference, 0.7), pull(logits, steps.reference, 0.7), dtype)
    ours = token_gradient(there(tokens, dtype), sent.tokens, sent, 0.2)
    theirs = token_gradient(tokens.astype(np.float32), steps.tokens, steps, 0.2)
    same(ours, theirs, dtype)
    assert 0.01 < theirs[1][REPORT.index("clip_fraction")] < 0.9
    for each, join in ((theirs[1], np.arange(6.0)), (ours[1], torch.arange(6.0))):
        np.testing.assert_allclose(of_tokens(each, join), [each[0], 1, 2, *each[3:]])


@pytest.mark.parametrize("where", ["logits", "value", "advantage", "target"])
def test_what_is_not_finite_stays_so(where):
    logits, value = torch.zeros(2, 3), torch.zeros(2)
    columns = [torch.full((2,), number) for number in (-1.0, 1.0, 1.0, 0.0, 0.0)]
    steps = Steps(torch.tensor([0, 1]), *columns)
    {"logits": logits, "value": value, "advantage": steps.advantage, "target": steps.target}[where][1] = torch.nan
    d_logits, d_value, _ = Loss(0.2, 0.2, 0.5, 0.01).gradient(logits, value, steps)
    assert not torch.cat([d_logits[1], d_value[1:]]).isfinite().all()
    assert torch.cat([d_logits[0], d_value[:1]]).isfinite().all()
