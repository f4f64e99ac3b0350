"""Nothing in the path from prompt to gradient assumes a small model: layers of flan-t5-large's shape, on Ray."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from transformers import AutoTokenizer, T5Config, T5ForConditionalGeneration

from llm_service import tiny

ROOT = Path(__file__).parents[2]
SHAPE = {"d_model": 1024, "d_kv": 64, "d_ff": 2816, "num_heads": 16, "vocab_size": 32128}  # of 780 M parameters ...
LAYERS = 2  # ... with its 24 and 24 layers; as many as tests have memory and time for


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A folder with random weights."""
    folder = tmp_path_factory.mktemp("large")
    torch.manual_seed(0)
    config = T5Config(
        **SHAPE,
        num_layers=LAYERS,
        num_decoder_layers=LAYERS,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        pad_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=0,
    )
    T5ForConditionalGeneration(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny.folder("tiny-t5")).save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("tune", ["all", "lora"])
def test_one_update_with_a_policy_server_and_two_actors(tmp_path, large, tune):
    words = f"""experiment=glam_babyai policy.lm.folder={large} policy.lm.tune={tune} policy.lm.temperature=300
        policy.prompt.observations=2 actors.n=2 actors.envs=2 actors.steps=4 learner.env_steps=16 learner.minibatch=8
        learner.ppo.epochs=1 learner.learning_rate=1e-4 stages=[train] evaluate.every=0
        run.folder={tmp_path} run.name=large"""
    done = subprocess.run(
        [sys.executable, "launch.py", "run", *words.split()], cwd=ROOT, capture_output=True, text=True, timeout=540
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    rows = [json.loads(line) for line in (tmp_path / "large" / "metrics.jsonl").read_text().splitlines()]
    trained = [row for row in rows if row["kind"] == "train"]
    assert [row["env_steps"] for row in trained] == [16]
    assert trained[0]["losses/skipped"] == 0
    assert 0 < trained[0]["losses/gradient_norm"] < 1e6
    assert trained[0]["losses/entropy"] > 0
    weights = safetensors.numpy.load_file(tmp_path / "large" / "stages" / "train" / "weights.safetensors")
    numbers = sum(value.size for value in weights.values())
    whole = 2 * SHAPE["vocab_size"] * SHAPE["d_model"]
    assert numbers > whole if tune == "all" else numbers < whole / 20
    assert all(np.isfinite(value).all() for value in weights.values())
