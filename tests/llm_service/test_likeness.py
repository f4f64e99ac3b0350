"""Cosines are those of each text encoded alone, and texts that are equal are encoded once."""

from pathlib import Path

import pytest
import torch
from torch.nn.functional import cosine_similarity

from llm_service.backends.transformers.folder import read
from llm_service.embedding import embed_one, minilm_folder
from llm_service.errors import ContextTooLong, Refused
from llm_service.scoring.likeness import Likeness

PROMPTS = ("Task: go to the red ball. Do:", "You see a wall. Do:", "Task: go to the red ball. Do:", "Do:")
NAMES = (("turn left", "go forward"), ("go forward", "turn left", "drop"), ("drop",), ("turn left", "go forward"))


@pytest.fixture(scope="module")
def encoder():
    torch.set_num_threads(1)
    model, tokenizer = read(Path(minilm_folder()), "float32", "cpu", noise=False)
    return Likeness(model, tokenizer)


def asked(encoder, prompts=PROMPTS, names=NAMES):
    boundary = encoder.boundary
    return [(boundary.prompt(p), boundary.candidates(own, p)) for p, own in zip(prompts, names, strict=True)]


def together(encoder, questions):
    found = {}
    for indices, scores in encoder.micro_batches(questions):
        own = scores.scores or [torch.empty(0)] * len(indices)
        found |= dict(zip(indices, zip(own, scores.states, strict=True), strict=True))
    return [found[index] for index in range(len(questions))]


@torch.no_grad()
@pytest.mark.parametrize("budget", [2048, 16])
def test_cosines_and_states_are_those_of_each_text_alone(encoder, budget, monkeypatch):
    monkeypatch.setattr(encoder, "budget", budget)
    for (scores, state), prompt, names in zip(together(encoder, asked(encoder)), PROMPTS, NAMES, strict=True):
        own = torch.from_numpy(embed_one(prompt).copy())
        expected = [float(own @ torch.from_numpy(embed_one(name).copy())) for name in names]
        torch.testing.assert_close(scores, torch.tensor(expected), atol=1e-5, rtol=0)
        assert float(cosine_similarity(state, own, dim=0)) == pytest.approx(1, abs=1e-5)


def test_an_equal_prompt_is_encoded_once_and_a_name_once(encoder):
    questions = asked(encoder, names=[("turn left", "go forward")] * 4)
    before = encoder.computed
    with torch.no_grad():
        together(encoder, questions)
    once = {prompt for prompt, _ in questions}
    added = encoder.computed - before
    assert added.told == sum(map(len, once)) + sum(map(len, questions[0][1])) * len(
        list(encoder.micro_batches([(prompt, ()) for prompt in once]))
    )


def test_gradients_over_micro_batches_add_up_to_the_whole(encoder, monkeypatch):
    questions, gradients = asked(encoder), []
    for budget in (2048, 16):
        monkeypatch.setattr(encoder, "budget", budget)
        encoder.model.zero_grad()
        for _, scores in encoder.micro_batches(questions):
            torch.cat(scores.scores).square().sum().backward()
        gradients.append(encoder.model.embeddings.word_embeddings.weight.grad.clone())
    assert gradients[0].abs().max() > 1e-3
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)


def test_what_cannot_be_compared_is_one_sentence_before_anything_is_computed(encoder):
    before = encoder.computed
    for question, error in (((), ((5,),)), Refused), (((5,), ((),)), Refused), (((5,) * 513, ()), ContextTooLong):
        with pytest.raises(error, match="prompt 1"):
            list(encoder.micro_batches([((5,), ()), question]))
    assert encoder.computed == before
