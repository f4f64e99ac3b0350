"""GLAM as whole runs in one process: stopped and resumed, evaluated, given to another; and what could never run."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

from cluster import run as controller
from cluster.config.tree import compose
from cluster.report import document
from cluster.stages.train import Engine as Training
from learner import checkpoint
from llm_service.errors import UsageError
from tests.learner.language_policies import models

SMALL = ["experiment=glam_small", "cluster=inline", "sync=true", "policy.lm.critic=16", "policy.lm.device=cpu"]
SMALL += ["actors.n=2", "actors.envs=3", "actors.steps=4", "env.max_steps=7", "evaluate.videos=0"]
SMALL += ["learner.env_steps=144", "learner.minibatch=12", "learner.ppo.epochs=2", "learner.ppo.critic_warmup=48"]
SMALL += ["evaluate.every=48", "evaluate.validation_episodes=2", "evaluate.episodes=3"]
WORDY = ["policy.prompt.observations=3", "policy.prompt.paraphrase=0.5", "policy.prompt.synonyms=0.5"]

LORA = [*WORDY, "policy.lm.tune=lora", "policy.lm.lora_rank=4", "policy.lm.pretrained=embeddings"]
WRITES = ["policy.lm.head=generated", "policy.lm.answer_tokens=5"]
GROUPS = ["learner.ppo.advantage=gigpo", "actors.envs=4", "actors.group=2", "actors.steps=8", "learner.env_steps=384"]
GROUPS += ["learner.ppo.critic_warmup=0", "learner.ppo.normalise_value=false", "evaluate.every=128"]
HEADS = ["policy.lm.head=actions", "policy.lm.checkpointing=true"]


def config(folder, name, *words, model="t5"):
    return compose([*SMALL, f"policy.lm.folder={models()[model]}", f"run.folder={folder}", f"run.name={name}", *words])


def rows(path, kind):
    return [r for r in map(json.loads, (path / "metrics.jsonl").read_text().splitlines()) if r["kind"] == kind]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        pytest.param("t5", WORDY, marks=pytest.mark.slow, id="t5"),
        pytest.param("llama", LORA, marks=pytest.mark.slow, id="llama-lora"),
        pytest.param("gpt2", HEADS, id="gpt2-actions"),
        pytest.param("t5", WRITES, id="t5-generated"),
        pytest.param("t5", GROUPS, id="t5-groups"),
    ],
)
def test_stop_and_resume_is_bitwise_the_run_without_a_stop(tmp_path, model, words, monkeypatch):
    words = [*words, "stages=[train]"]
    assert controller.run(config(tmp_path, "whole", *words, model=model)) == 0
    real = Training._learned

    def stopping(self, *args):
        real(self, *args)
        if self.account.counters.version == 3 and not self.account.counters.resumes:
            self.folder.stop_file.touch()

    monkeypatch.setattr(Training, "_learned", stopping)
    assert controller.run(config(tmp_path, "parts", *words, model=model)) == 3
    stopped = checkpoint.latest(tmp_path / "parts" / "checkpoints")
    assert stopped.record["counters"]["version"] == 3
    assert controller.resume(tmp_path / "parts", [], False) == 0
    whole, parts = (checkpoint.latest(tmp_path / n / "checkpoints") for n in ("whole", "parts"))
    assert whole.record["counters"]["version"] == parts.record["counters"]["version"] == 6
    assert whole.arrays.keys() == parts.arrays.keys() >= {"model", "optimiser", "actors"}
    for stem, group in whole.arrays.items():
        assert group.keys() == parts.arrays[stem].keys()
        for name, value in group.items():
            np.testing.assert_array_equal(value, parts.arrays[stem][name], err_msg=f"{stem} {name}")
    assert any((value != stopped.arrays["model"][name]).any() for name, value in whole.arrays["model"].items())
    told = {name.partition("/")[2] for name in whole.arrays["actors"] if "history." in name}
    assert told == ({"env.history.texts", "env.history.told"} if WORDY[0] in words else set())
    keys = ("version", "env_steps", "episodes", "losses/policy", "losses/approx_kl", "charts/episodic_return")
    for kind in ("train", "evaluate"):
        one, two = (rows(tmp_path / n, kind) for n in ("whole", "parts"))
        assert [[r.get(k) for k in keys] for r in one] == [[r.get(k) for k in keys] for r in two]
        assert one


def test_adapters_alone_are_saved_evaluated_and_given_to_another_run(tmp_path):
    words = ["policy.lm.tune=lora", "policy.lm.lora_rank=4"]
    stages = "stages=[train,evaluate]"
    assert controller.run(config(tmp_path, "teacher", *words, stages, model="llama")) == 0
    saved = safetensors.numpy.load_file(tmp_path / "teacher/stages/train/weights.safetensors")
    assert all("lora_" in name or name.startswith("value_head.") for name in saved)
    body = sum(np.prod(p.shape) for p in safetensors.numpy.load_file(models()["llama"] / "model.safetensors").values())
    assert sum(value.size for value in saved.values()) < 0.2 * body
    result = json.loads((tmp_path / "teacher/stages/evaluate/results.json").read_text())
    assert result["episodes"] == 3

    source = "from=run:teacher/train"
    assert controller.run(config(tmp_path, "pupil", *words, source, "stages=[evaluate]", model="llama")) == 0
    again = json.loads((tmp_path / "pupil/stages/evaluate/results.json").read_text())
    assert again["success"] == result["success"]
    with pytest.raises(UsageError, match="do not fit"):
        controller.run(config(tmp_path, "other", *words[:1], source, "stages=[evaluate]", model="llama"))
    assert not (tmp_path / "other").exists()


def test_the_actors_play_by_the_words_that_the_learner_learns_from(tmp_path):
    """Ratios are 1 in a whole run: prompts, variants and weights are the same on both sides."""
    words = [*WORDY, "sync=false", "learner.ppo.epochs=1", "stages=[train]"]
    assert controller.run(config(tmp_path, "a", *words, "actors.n=1")) == 0
    fresh = [row for row in rows(tmp_path / "a", "train") if row["policy/lag_max"] == 0]
    assert fresh
    for row in fresh:
        assert abs(row["losses/approx_kl"]) < 1e-7
        assert row["losses/clip_fraction"] == 0


def test_a_run_tells_how_fast_its_language_model_computes(tmp_path):
    """In its rows, its log and its report; of a GPU, which it does not use, nothing."""
    assert controller.run(config(tmp_path, "a", "stages=[train]", "run.log_every_s=0.01", model="t5")) == 0
    found = rows(tmp_path / "a", "train")
    assert found
    assert all(row["charts/tokens_per_second"] > 0 for row in found)
    assert not [key for row in found for key in row if "gpu" in key or "mfu" in key]
    assert " tokens/s" in (tmp_path / "a/run.log").read_text()
    page = document.write([tmp_path / "a"]).read_text()
    assert "Tokens per second." in page
    assert "GPU" not in page.partition("Learner's device")[2].partition("<h2")[0]


# ---- what could never run -------------------------------------------------------------------------------------------


def without(folder, tmp_path):
    """A copy of a model without its tokenizer."""
    copy = tmp_path / "bare"
    shutil.copytree(folder, copy)
    for path in copy.glob("tokenizer*"):
        path.unlink()
    return copy


LONG = "an action whose name would never ever end if it did not end here at last"
BAD = {
    "folder": (["policy.lm.folder=HERE/nowhere"], r"policy\.lm\.folder: there is no folder .*nowhere"),
    "model": (["policy.lm.folder=HERE"], r"policy\.lm\.folder: .* is not a model: it has no config\.json"),
    "tokenizer": (["policy.lm.folder=HERE/bare"], r"policy\.lm\.folder: .*bare has no tokenizer that can be read"),
    "twice": (["env.idle_actions=[drop]"], "two actions of one name cannot be told apart: 'drop' is there twice"),
    "empty": (["env.idle_actions=['']"], "an action without a name cannot be scored"),
    "long": ([f"env.idle_actions=['{LONG}']"], r"action 'an action.*' has \d+ tokens, more than .*action_tokens=16"),
    "targets": (
        ["policy.lm.tune=lora", "policy.lm.lora_targets=[q,nope]"],
        r"policy\.lm\.lora_targets: t5 has no layers nope: choose from .*\bq\b.*",
    ),
    "caption": (
        ["env.captions=false"],
        r"policy\.prompt tells the field 'caption'.* \(env\.captions=true adds caption",
    ),
    "network": (["policy.network=film"], r"method glam needs policy\.network=language_model, got film"),
    "tune": (["policy.lm.tune=none"], r"policy\.lm\.tune=none leaves nothing to train"),
    "goal": (["policy.prompt.goal=image"], r"policy\.prompt tells the field 'image', which is no single text"),
    "reword": (["policy.prompt.reword=nope"], r"nope"),
    "temperature": (["policy.lm.temperature=0"], r"policy\.lm\.temperature: input should be greater than 0, got 0"),
    "rank": (
        ["policy.lm.tune=lora", "policy.lm.lora_rank=0"],
        r"policy\.lm\.lora_rank: input should be greater than or equal to 1, got 0",
    ),
    "critic": (["policy.lm.critic=0"], r"policy\.lm\.critic: input should be greater than or equal to 1, got 0"),
    "budget": (["policy.lm.budget=-1"], r"policy\.lm\.budget: input should be greater than or equal to 0, got -1"),
    "context": (["policy.lm.context=-1"], r"policy\.lm\.context: input should be greater than or equal to 0, got -1"),
    "no-context": (["policy.lm.context=12"], r"policy\.prompt: the names of the actions .* policy\.lm\.context=12"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_could_never_run_is_one_sentence_and_writes_nothing(tmp_path, case, monkeypatch):
    monkeypatch.delattr(Training, "run")  # a run that begins all the same ends at once
    without(models()["t5"], tmp_path)
    words, message = BAD[case]
    words = [word.replace("HERE", str(tmp_path)) for word in words]
    with pytest.raises(UsageError, match=message) as raised:
        controller.run(config(tmp_path, "a", *words))
    assert raised.value.exit_code == 2
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("model", ["t5", "gpt2"])
def test_the_layers_that_may_have_adapters_are_told(tmp_path, model):
    words = ["policy.lm.tune=lora", "policy.lm.lora_targets=[nope]"]
    there = {"t5": ["k", "q", "v", "wi_0"], "gpt2": ["c_attn", "c_fc", "c_proj"]}[model]
    with pytest.raises(UsageError) as raised:
        controller.run(config(tmp_path, "a", *words, model=model))
    named = str(raised.value).rpartition("choose from ")[2].split(", ")
    assert set(there) <= set(named)
    assert {"nope", "shared", "wte", "SelfAttention"}.isdisjoint(named)
