"""The tokens of an action's name: their probabilities multiply to the action's, and name who shares a beginning."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from learner.models.language.prompter import Asked
from learner.models.language.spelling import token_log_probs

NAMES = ((5, 6), (5, 7), (8, 9, 2))  # turn left, turn right, go forward


def test_tokens_are_told_among_the_names_that_begin_alike():
    logits = torch.log(torch.tensor([[0.5, 0.2, 0.3]])).repeat(3, 1)
    asked = [Asked((1,), NAMES, (0, 1, 2))] * 3
    found = token_log_probs(logits, asked, [0, 1, 2]).exp().numpy()
    np.testing.assert_allclose(found, [[0.7, 5 / 7, 1], [0.7, 2 / 7, 1], [0.3, 1, 1]], rtol=1e-5)


def test_a_name_that_begins_another_ends_by_itself():
    logits = torch.log(torch.tensor([[0.25, 0.75]]))
    for chosen, expected in ((0, [1, 0.25]), (1, [1, 1, 0.75])):
        found = token_log_probs(logits, [Asked((1,), ((4, 4), (4, 4, 5)), (0, 1))], [chosen]).exp()
        np.testing.assert_allclose(found[0].numpy(), expected, rtol=1e-5)


names = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple), min_size=1, max_size=6, unique=True)


@given(names, st.data())
def test_they_multiply_to_the_probability_of_the_action(names, data):
    size = data.draw(st.integers(len(names), 8))
    places = tuple(sorted(data.draw(st.permutations(range(size)))[: len(names)]))
    values = data.draw(st.lists(st.floats(-20, 20, width=32), min_size=len(names), max_size=len(names)))
    logits = torch.full((1, size), -1e30)
    logits[0, list(places)] = torch.tensor(values)
    logits.requires_grad_()
    for place in places:
        found = token_log_probs(logits, [Asked((1,), tuple(names), places)], [place])
        assert (found <= 1e-6).all()
        expected = logits.log_softmax(-1)[0, place]
        assert found.sum().item() == pytest.approx(expected.item(), abs=1e-4)
        slopes = [torch.autograd.grad(x, logits, retain_graph=True)[0] for x in (found.sum(), expected)]
        np.testing.assert_allclose(slopes[0].numpy(), slopes[1].numpy(), atol=1e-4)
