"""What a language model takes: the formula against tensors that are there, and what fits where."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration

from learner.models.language.memory import KNOWN, LEAST, MOST, at_once, kept, largest, need, shape_of
from learner.optim.adam import Adam, side_by_side
from llm_service.scoring.scorer import Scorer

LENGTH, ROWS = 32, 4
T5 = {
    "vocab_size": 61,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 160,
    "num_heads": 4,
    "num_layers": 8,
    "num_decoder_layers": 1,
}


def t5():
    torch.manual_seed(0)
    return T5ForConditionalGeneration(
        T5Config(**T5, feed_forward_proj="gated-gelu", dropout_rate=0.0, decoder_start_token_id=0)
    ).eval()


@pytest.mark.parametrize("checkpointing", [False, True])
def test_activations_are_as_many_as_are_kept(checkpointing):
    model = t5()
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    scorer = Scorer(model, budget=10_000)
    scorer._network.packed = True
    if checkpointing:
        model.activation_checkpointing_enable()
        model.train()
    sizes = {}

    def note(x):
        if x.untyped_storage().data_ptr() not in own and x.numel() >= LENGTH * ROWS * 16:
            sizes[x.untyped_storage().data_ptr(), x.shape] = x.untyped_storage().nbytes()
        return x

    asked = [(tuple(range(2 + row, 2 + row + LENGTH)), ((7,),)) for row in range(ROWS)]
    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        found = scorer.score_tokens(asked)
    measured = sum({key[0]: size for key, size in sizes.items()}.values())
    expected = LENGTH * ROWS * kept(shape_of(model), half=False, checkpointing=checkpointing)
    if checkpointing:  # of the block that is computed again nothing is kept yet
        expected -= LENGTH * ROWS * kept(shape_of(model), half=False, checkpointing=False) // 8
    assert len(found.scores) == ROWS
    assert 0.5 < measured / expected < 1.6


def test_weights_gradients_and_moments_are_what_adam_has():
    model = t5()
    flat, gradient = side_by_side(list(model.parameters()))
    adam = Adam(flat)
    found = need(shape_of(model), half=False, tokens=0)
    assert found.weights == flat.nbytes
    assert found.gradients == gradient.nbytes
    assert found.moments == adam.mean.nbytes + adam.square.nbytes
    assert found.total == 16 * flat.numel()


def test_the_shape_is_read_off_a_model():
    config = LlamaConfig(
        vocab_size=61, hidden_size=32, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4
    )
    found = shape_of(LlamaForCausalLM(config))
    assert found[1:] == (3, 32, 32, 80, True)
    assert shape_of(t5())[1:] == (8, 64, 64, 160, True)


def test_adapters_and_checkpointing_take_less():
    shape = KNOWN["flan-t5-xl"]
    whole = need(shape)
    assert need(shape, checkpointing=True).activations < whole.activations / 5
    few = need(shape, "lora", adapters=10**7)
    assert few.weights < whole.weights / 2
    assert few.gradients + few.moments == 12 * 10**7
    assert need(shape, half=False).activations == 2 * whole.activations


def test_micro_batches_are_as_large_as_memory_allows():
    shape = KNOWN["flan-t5-large"]
    each = kept(shape, True, False)
    assert at_once(shape, 2 * 5000 * each, True, False) == 5000
    assert at_once(shape, -1, True, False) == LEAST
    assert at_once(shape, 10**15, True, False) == MOST


def test_larger_gpus_train_larger_models():
    assert [largest(gib * 2**30, "all") for gib in (1, 16, 80)] == [None, "flan-t5-large", "flan-t5-xl"]
    assert largest(24 * 2**30, "lora") == "Llama-3.1-8B"
