"""gpu: both sides of each row do the same, at a small size on the processor; without a GPU every row says so."""

import dataclasses

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import gpu
from benchmarks.gpu_rows import large_t5
from benchmarks.gpu_rows.breakdown import Event, breakdown, described
from benchmarks.gpu_rows.chip import Chip, Size
from benchmarks.gpu_rows.language import Acting, Update
from benchmarks.gpu_rows.large_t5 import Shape
from benchmarks.gpu_rows.sequences import Sequences
from benchmarks.gpu_rows.small import Small
from benchmarks.gpu_rows.weights import Weights
from benchmarks.measure import ROOT, DifferentOutputs, Options
from learner.models import flops
from learner.models.sequence.behaviour_config import BehaviourConfig
from llm_service.scoring.scorer import Scorer

TINY = Size(
    sequence=BehaviourConfig(width=32, layers=2, heads=4, dropout=0.0, precision="auto"),
    episodes=12,
    batch=6,
    longest=(5, 20),
    tokens=64,
    steps=2,
    model=Shape(32, 48, 4, 8, 2, 99),
    learned=4,
    acted=4,
    square=64,
    batches=(300, 600),
)


@pytest.fixture(scope="module")
def chip():
    return Chip(torch.device("cpu"), 64)


def test_both_sides_learn_the_same_sequences(chip, tmp_path):
    match = Sequences(chip, TINY, tmp_path)
    assert match.play_ours() > 0
    assert match.play_peer() > 0
    match.play_ours()
    match.losses[1] *= 1.1
    with pytest.raises(DifferentOutputs):
        match.play_peer()


@pytest.mark.parametrize("layout", ["merged", "separate"])
def test_tokens_of_sequences_are_those_that_pass_the_blocks(chip, tmp_path, layout):
    size = dataclasses.replace(TINY, sequence=TINY.sequence.model_copy(update={"layout": layout}))
    match, passed = Sequences(chip, size, tmp_path), []
    match.ours.model.decoder.blocks[0].qkv.register_forward_hook(lambda _, given, out: passed.append(len(out)))
    match.play_ours()
    assert sum(passed) == match.tokens


@pytest.mark.parametrize("checkpointing", [False, True])
def test_both_sides_learn_the_same_language_model(chip, checkpointing):
    match = Update(chip, TINY, checkpointing)
    assert match.apart < 0.05
    assert match.play_ours() > 0
    assert match.play_peer() > 0
    match.play_ours()
    match.terms[1] *= 1.1
    with pytest.raises(DifferentOutputs):
        match.play_peer()


def test_both_sides_act_alike(chip):
    match = Acting(chip, TINY)
    match.play_ours()
    assert match.play_peer() > 0
    match.scores[2, 3] *= 1.1
    with pytest.raises(DifferentOutputs):
        match.play_peer()


def test_weights_arrive_in_another_process(chip):
    match = Weights(chip, TINY)
    try:
        assert 0 < match.play_ours() < 120
        assert 0 < match.play_peer() < 120
        match.model.payload()["lm_head.weight"].add_(1)
        with pytest.raises(DifferentOutputs):
            match._same()
    finally:
        match.close()
    assert match.process.exitcode == 0


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_both_learners_of_a_small_network_learn_the_same(chip, name):
    match = Small(chip, name, 64, due=2)
    match.play_ours()
    assert match.play_peer() > 0
    match.play_ours()
    match.loss *= 1.1
    with pytest.raises(DifferentOutputs):
        match.play_peer()


def test_operations_are_those_that_are_counted():
    model = large_t5.build(TINY.model, torch.device("cpu"))
    questions = large_t5.draw(3, 99, 0, (32, 32))
    scorer = Scorer(model)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        scorer.score_tokens(questions)
    products = counter.get_flop_counts()["Global"][torch.ops.aten.mm]
    nodes, width = 3 * 5, 32  # the start, and the words that something follows
    across = [block.layer[1].EncDecAttention for block in model.decoder.block]
    by_heads = 2 * nodes * sum(layer.weight.numel() for each in across for layer in (each.k, each.v))
    attention = 3 * 4 * 2 * width * (32 * 32 + 5 * (32 + 5))
    assert large_t5.operations(model, questions) == products + by_heads + attention


def test_where_the_time_of_a_gpu_goes():
    events = [
        Event("void flash_fwd_kernel<...>", 1000, 3000, True),
        Event("nvjet_hsh_128x256", 2000, 5000, True),  # beside it
        Event("Memcpy HtoD (Pinned -> Device)", 7000, 8000, True),
        Event("vectorized_elementwise_kernel", 8000, 8500, True),
        Event("cudaStreamSynchronize", 0, 4000, False),
        Event("cudaMalloc", 4000, 4500, False),
        Event("cudaMallocHost", 4500, 5000, False),
        Event("aten::mm", 0, 9000, False),
    ]
    assert described(events, 10_000) == (
        "profiled: of 10 ms the GPU works 6 (attention 2, products 3, copies 1, rest 0) in 4 kernels; "
        "the host waits 4 ms, and allocates memory 2 times in 1 ms"
    )


def test_work_is_profiled_once(chip):
    done = []
    found = breakdown(chip.device, lambda: done.append(chip.square @ chip.square))
    assert len(done) == 1
    assert breakdown(chip.device, lambda: chip.square @ chip.square[:3]).startswith("not profiled: mat1 and mat2")
    assert "the GPU works 0 (nothing) in 0 kernels" in found


def test_the_peak_is_that_of_the_longest_name():
    assert flops.peak("NVIDIA H100 80GB HBM3") == flops.peak("NVIDIA H200") == 989e12
    assert flops.peak("NVIDIA H100 PCIe") == 756e12
    assert flops.peak("NVIDIA L40S") == 362e12
    assert flops.peak("cpu") is None


def test_without_a_gpu_no_row_is_run(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    report = gpu.run(Options())
    assert not report.rows
    assert [skip.case for skip in report.skips] == list(gpu.CASES)
    assert {skip.reason for skip in report.skips} == {"not run: no GPU"}
    documented = (ROOT / "benchmarks" / "README.md").read_text()
    assert all(f"`{skip.id}`" in documented for skip in report.skips if "minibatch" not in skip.case)
