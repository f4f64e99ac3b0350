"""Small language models as folders, policies of them, states they are asked about, and a reference of what they say."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

import envs
from actors.wrappers.history import History
from learner.group import build_policy
from learner.models import PolicyConfig
from learner.models.config import HISTORY as FIELD
from learner.models.config import remembered
from learner.models.language.prompt import State
from llm_service import tiny
from llm_service.scoring.likeness import Likeness

WORLD, OPTIONS = "babyai/GoToRedBall", {"captions": True, "actions": 6}
FAMILIES = ("t5", "flan", "llama", "gpt2")
ENCODER = {"head": "similarity", "temperature": 0.3}
"""What the model `bert` needs: it writes no words."""
BOTH = ("t5", "llama")

torch.set_num_threads(1)  # of such small products, as in an actor: threads would wait for each other


@functools.cache
def models():
    """Small models as folders, made once: the two tiny ones, barely trained, and two whose configurations have dropout.

    Their weights are large enough that a wrong mask, position or token is seen.
    """
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng():
        patch.setattr(tiny, "STEPS", 2)
        tiny.build(folder)
        torch.manual_seed(7)
        t5 = {"vocab_size": 1024, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4, "num_layers": 2}
        flan = T5Config(**t5, feed_forward_proj="gated-gelu", decoder_start_token_id=0, tie_word_embeddings=False)
        gpt2 = GPT2Config(vocab_size=1024, n_embd=32, n_head=4, n_layer=2, n_positions=512)
        made = {
            "llama": LlamaForCausalLM.from_pretrained(folder / "llama"),
            "flan": T5ForConditionalGeneration(flan),
            "gpt2": GPT2LMHeadModel(gpt2),
        }
        bert = BertConfig(
            vocab_size=1024, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48
        )
        made["bert"] = BertModel(bert)
        assert flan.dropout_rate == gpt2.resid_pdrop == bert.hidden_dropout_prob == 0.1
        for name, model in made.items():
            with torch.no_grad():
                for weight in model.parameters():
                    if weight.dim() > 1 and name != "flan":
                        weight.normal_(std=0.1)
            model.save_pretrained(folder / name)
        for name, other in (("flan", "t5"), ("gpt2", "llama"), ("bert", "t5")):
            AutoTokenizer.from_pretrained(folder / other).save_pretrained(folder / name)
    return {name: folder / name for name in (*FAMILIES, "bert")}


def config_of(name, prompt=None, **lm):
    lm = {"critic": 16, "device": "cpu"} | lm
    lm = lm if "folder" in lm else lm | {"folder": str(models()[name])}
    return PolicyConfig(network="language_model", prompt={"observations": 1} | (prompt or {}), lm=lm)


def policy_of(name, spec=None, seed=0, prompt=None, **lm):
    """A policy whose heads have opinions."""
    config = config_of(name, prompt, **lm)
    policy = build_policy(config, remembered(config, spec or envs.spec(WORLD, **OPTIONS)), seed)
    for head in filter(None, (policy.value_head, policy.action_head)):
        torch.nn.init.normal_(head[4].weight)
    return policy


@functools.cache
def states(observations=1, envs_=5, steps=4):
    """Observations [B] of some play, the strings that they name, and these as people read them."""
    env = envs.make(WORLD, envs_, 3, **OPTIONS)
    env = History(env, ["caption"], observations) if observations > 1 else env
    rows = [env.begin()]
    for action in np.random.default_rng(0).integers(3, size=(steps - 1, envs_)):
        rows.append(env.advance(action).obs)
    names = ("mission", "caption", *([FIELD] if observations > 1 else []))
    return {name: np.concatenate([row[name] for row in rows]) for name in names}, env.texts


def at(obs, index):
    return {name: column[index] for name, column in obs.items()}


def alone(policy, text, names):
    """By the model's own forward: of each name, raw logits of its tokens and their normalisers; and the state. Of an
    encoder, each name's cosine and 0."""
    tokenizer, model = policy.scorer.boundary.tokenizer, policy.model
    if isinstance(policy.scorer, Likeness):
        state, *named = (
            model(torch.tensor([tokenizer(one).input_ids])).last_hidden_state[0].mean(0) for one in (text, *names)
        )
        return [(torch.nn.functional.cosine_similarity(state, name, dim=0)[None], 0.0) for name in named], state
    prompt, found = tokenizer(text).input_ids, []
    for name in names:
        if model.config.is_encoder_decoder:
            tokens = tokenizer(name, add_special_tokens=False).input_ids
            given = {"input_ids": torch.tensor([prompt]), "decoder_input_ids": torch.tensor([[0, *tokens[:-1]]])}
            output = model(**given, output_hidden_states=True)
            logits, state = output.logits[0], output.decoder_hidden_states[-1][0, 0]
        else:
            tokens = tokenizer(f" {name}", add_special_tokens=False).input_ids
            output = model(torch.tensor([[*prompt, *tokens[:-1]]]), output_hidden_states=True, use_cache=False)
            logits, state = output.logits[0, len(prompt) - 1 :], output.hidden_states[-1][0, len(prompt) - 1]
        found.append((logits[range(len(tokens)), tokens], logits.logsumexp(-1)))
    return found, state


def reference(policy, obs, texts):
    """Logits [B, A] and values [B], one state and one action after the other."""
    lm, names, logits, values = policy.lm, policy.prompter.names, [], []
    for row in range(len(obs["mission"])):
        goal, seen = texts[int(obs["mission"][row])], texts[int(obs["caption"][row])]
        earlier = [texts[i] for i in obs[FIELD][row].tolist()] if FIELD in obs else []
        found, state = alone(policy, policy.prompter.prompt.text(State(goal, [seen], earlier)), names)
        longest = max(len(raw) for raw, _ in found)
        if lm.head == "actions":
            logits.append(policy.action_head(state))
        elif lm.normalise == "compat":
            logits.append(torch.stack([raw.sum() + longest - len(raw) for raw, _ in found]) / lm.temperature)
        else:
            scores = [raw - normaliser for raw, normaliser in found]
            means = [s.mean() if lm.normalise == "tokens" else s.sum() for s in scores]
            temperature = lm.temperature if policy.log_temperature is None else policy.log_temperature.exp()
            logits.append(torch.stack(means) / temperature)
        values.append(policy.value_head(state)[0])
    return torch.stack(logits), torch.stack(values)


def same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
