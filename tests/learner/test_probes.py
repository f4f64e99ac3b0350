"""Probes are states that BabyAI can be in, and say what the policy itself says of them."""

import re

import numpy as np
import pytest

import envs
from envs.babyai.grammar import sentence_table
from envs.babyai.levels import HELD_OUT
from envs.babyai.missions import parse
from learner.group import build_policy
from learner.models.config import HISTORY as FIELD
from learner.models.config import PolicyConfig, remembered
from learner.models.language.probes import PROBES, probe
from llm_service import tiny

WORLD = "babyai/MixedTrainLocal"
OPTIONS = {"captions": True, "actions": 6}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model whose weights follow two steps of training."""
    made = tmp_path_factory.mktemp("tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "STEPS", 2)
        tiny.build(made)
    return made / "t5"


def policy_of(folder, options=OPTIONS, world=WORLD, **prompt):
    lm = {"folder": str(folder), "critic": 8, "device": "cpu"}
    config = PolicyConfig(network="language_model", prompt=prompt, lm=lm)
    return build_policy(config, remembered(config, envs.spec(world, **options)), 0)


def test_probes_are_written_in_the_grammar_of_missions_and_captions():
    sentences, names = set(sentence_table("en", False)), envs.spec(WORLD, **OPTIONS).action_names
    captions = [(p.caption, p.action) for p in PROBES.values()] + [step for p in PROBES.values() for step in p.earlier]
    for caption, action in captions:
        assert set(caption.split(". ")) <= sentences
        assert action in names
    for state in PROBES.values():
        assert parse(state.mission).english() == state.mission
        named = {(thing.colour, thing.noun) for thing in parse(state.mission).things()}
        assert not named & HELD_OUT, "training never names these"
    assert {state.action for state in PROBES.values()} == set(names)


def test_what_is_carried_comes_first_then_walls_then_things_from_left_to_right():
    def place(sentence):
        if "You carry" in sentence:
            return (0, 0, 0)
        if "a wall" in sentence:
            return (1, ("forward", "left", "right").index(sentence.split()[-1]), 0)
        steps = {way: int(n) for n, way in re.findall(r"(\d) steps? (left|right|forward)", sentence)}
        return (2, steps.get("right", 0) - steps.get("left", 0), -steps.get("forward", 0))

    for state in PROBES.values():
        for caption in (state.caption, *(caption for caption, _ in state.earlier)):
            places = [place(sentence) for sentence in caption.split(". ")]
            assert places == sorted(places)


@pytest.mark.parametrize("observations", [1, 3])
def test_a_probe_is_what_the_policy_decides_in_its_state(folder, observations):
    policy = policy_of(folder, observations=observations)
    found = probe(policy)
    assert set(found) == {name for name, state in PROBES.items() if len(state.earlier) < observations}
    for name, share in found.items():
        state = PROBES[name]
        past = [text for step in state.earlier for text in step]
        texts = [state.mission, state.caption, *[""] * (2 * (observations - 1) - len(past)), *past]
        obs = {"mission": np.array([0]), "caption": np.array([1])}
        if observations > 1:
            obs[FIELD] = np.arange(2, len(texts))[None]
        logits, _ = policy.decide(obs, texts)
        alone = logits[0].softmax(-1)[policy.prompter.names.index(state.action)]
        assert share == pytest.approx(float(alone), abs=1e-5)


def test_prompts_of_probes_are_plain_and_variation_is_left_as_it_was(folder):
    policy = policy_of(folder, paraphrase=1.0, synonyms=1.0)
    assert probe(policy) == pytest.approx(probe(policy_of(folder)), abs=1e-6)
    assert policy.prompter.prompt.varied
    policy.prompter.prompt.varied = False
    probe(policy)
    assert not policy.prompter.prompt.varied


def test_probes_that_a_world_cannot_answer_are_left_out(folder):
    few = probe(policy_of(folder, OPTIONS | {"actions": 3}))
    assert few.keys() == {n for n, p in PROBES.items() if p.action in ("turn left", "turn right", "go forward")}
    assert probe(policy_of(folder, OPTIONS | {"language": "fr"}, language="fr")) == {}
    assert probe(policy_of(folder, observation=["mission"])) == {}
