"""An exported policy: other programs load it and get its scores, and Cairn loads it and plays the same."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
import yaml

import envs
from cluster import run as controller
from cluster.cli import export as verb
from cluster.config.tree import compose, load
from cluster.runs.folder import RunError
from learner.group import build_policy, set_weights
from learner.models.language import exported
from llm_service.errors import UsageError

WORDS = [
    "experiment=glam_small",
    "cluster=inline",
    "policy.lm.device=cpu",
    "learner.env_steps=640",
    "learner.ppo.critic_warmup=0",
    "learner.learning_rate=3e-3",
    "actors.n=1",
    "evaluate.every=0",
    "evaluate.episodes=6",
    "evaluate.videos=0",
    "stages=[train,evaluate]",
]
KINDS = {
    "t5": ["policy.lm.folder=tiny-t5"],
    "llama": ["policy.lm.folder=tiny-llama"],
    "adapters": ["policy.lm.folder=tiny-llama", "policy.lm.tune=lora", "policy.lm.lora_rank=4"],
    "heads": ["policy.lm.folder=tiny-t5", "policy.lm.head=actions"],
    "encoder": ["policy.lm.folder=minilm", "policy.lm.head=similarity", "learner.learning_rate=1e-5"],
}


@pytest.fixture(scope="module", params=KINDS)
def run(request, tmp_path_factory):
    """A finished run's folder, its configuration's words, and where it is exported to."""
    folder, words = tmp_path_factory.mktemp("runs"), [*WORDS, *KINDS[request.param]]
    assert controller.run(compose([*words, f"run.folder={folder}", "run.name=a"])) == 0
    return folder / "a", words, verb.write(folder / "a", folder / "out" / "model")


def policy_of(run):
    config = load(run / "config.yaml")
    policy = build_policy(config.policy, config.spec, 0)
    set_weights(policy, safetensors.numpy.load_file(run / "stages/train/weights.safetensors"))
    return config, policy


def test_the_cards_program_prints_the_policys_scores(run):
    """In a process of its own that imports nothing of ours."""
    folder, _, out = run
    config, policy = policy_of(folder)
    card = (out / "README.md").read_text()
    found = re.search(r"```python\n(.*?)```", card, re.DOTALL)
    if policy.action_head is not None:
        assert found is None
        assert "action_head" in card
        return
    program = found[1]
    assert not re.search(
        r"import (actors|cluster|envs|learner|llm_service)|from (actors|cluster|envs|learner)", program
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=out, check=True)
    theirs = [float(line.rpartition(" ")[2]) for line in done.stdout.splitlines()]
    env = envs.make(config.env.id, 1, config.seed, **config.env.options)
    ours = policy.decide(env.begin(), env.texts)[0][0].numpy()
    np.testing.assert_allclose(theirs, ours, atol=1e-5, rtol=1e-5)
    assert np.ptp(ours) > 0.1


def test_it_comes_back_bit_by_bit(run):
    folder, _, out = run
    config = load(folder / "config.yaml")
    trained = safetensors.numpy.load_file(folder / "stages/train/weights.safetensors")
    back = exported.read(out, config.policy, config.spec)
    assert back.keys() == trained.keys()
    assert all(np.array_equal(back[name], value) for name, value in trained.items())


def test_it_plays_the_same_held_out_episodes(run):
    folder, words, out = run
    words = [word for word in words if not word.startswith("stages=")]
    where = [f"run.folder={folder.parent}", "run.name=back", f"from={out}", "stages=[evaluate]"]
    assert controller.run(compose([*words, *where])) == 0
    first, second = (
        json.loads((folder.parent / name / "stages/evaluate/results.json").read_bytes()) for name in ("a", "back")
    )
    for key in ("success", "return", "length", "episodes", "seeds"):
        assert first[key] == second[key]


def test_the_card_says_how_well_and_how(run):
    folder, words, out = run
    _, front, body = (out / "README.md").read_text().split("---\n", 2)
    about = yaml.safe_load(front)
    assert about["library_name"] == ("peft" if "policy.lm.tune=lora" in words else "transformers")
    assert about["base_model"] == load(folder / "config.yaml").policy.lm.folder
    found = json.loads((folder / "stages/evaluate/results.json").read_bytes())["success"]
    assert f"| evaluate | 6 | {found['rate']:.1%} [{found['low']:.1%}, {found['high']:.1%}] |" in body
    steps = json.loads((folder / "stages/train/manifest.json").read_bytes())["counts"]["env_steps"]
    assert f"{steps:,} env steps" in body
    assert "- Command: `" in body
    assert "stand-in" not in body, "no language model was asked"


def test_what_cannot_be_exported_is_told_and_leaves_nothing(tmp_path):
    words = ["experiment=toy", "cluster=inline", "actors.n=1", "learner.env_steps=256", "evaluate.episodes=1"]
    assert controller.run(compose([*words, f"run.folder={tmp_path}", "run.name=small"])) == 0
    with pytest.raises(RunError, match="'small' is a network, mlp: only language models can be exported"):
        verb.write(tmp_path / "small", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_exists_or_is_damaged_is_told(run):
    folder, words, out = run
    with pytest.raises(RunError, match="exists: name a new folder"):
        verb.write(folder, out)
    config = load(folder / "config.yaml")
    heads = (out / exported.HEADS).read_bytes()
    try:
        (out / exported.HEADS).write_bytes(heads[: len(heads) // 2])
        with pytest.raises(UsageError, match="is not a complete export of a policy"):
            compose_from(words, folder, out)
    finally:
        (out / exported.HEADS).write_bytes(heads)
    other = config.policy.model_copy(update={"lm": config.policy.lm.model_copy(update={"critic": 7})})
    with pytest.raises(ValueError, match="do not fit"):
        exported.read(out, other, config.spec)


def compose_from(words, folder, out):
    """What a start does with `from`."""
    from cluster.runs.supply import initial_weights

    return initial_weights(compose([*words, f"run.folder={folder.parent}", "run.name=c", f"from={out}"]))
