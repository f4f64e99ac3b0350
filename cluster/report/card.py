"""The model card of an exported policy: what it does, how well, how it was made, how to use it, and its limits.

The card has YAML in front, as Hugging Face reads it. Its program is complete: it prints the same scores as the policy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import yaml

import envs
from cluster.config.tree import Config
from cluster.runs.progress import duration
from cluster.runs.run_data import stand_in
from learner.models.config import HISTORY
from learner.models.language.language_model import place
from learner.models.language.llm_policy import COLDEST, LanguagePolicy
from llm_service.backends.transformers.folder import class_for


def card(run: Path, config: Config, policy: LanguagePolicy, folder: Path) -> str:
    """The text of the card.

    Args:
        run: the run's folder.
        folder: where the exported policy will be.
    """
    lm, method = config.policy.lm, config.method.model_dump()["name"]
    front = {
        "library_name": "peft" if lm.tune == "lora" else "transformers",
        "base_model": lm.folder,
        "license": "other",
        "license_name": "that-of-the-base-model",
        "tags": ["reinforcement-learning", "cairn", method],
    }
    how = {
        "scores": "by scoring the names of actions",
        "similarity": "by how alike a state and the name of each action are",
        "actions": "by layers of its own on top of the model",
        "generated": "by writing an answer in which the action is found",
    }
    about = f"A language model that acts in `{config.env.id}` {how[lm.head]}. Trained with `{method}`."
    sections = {
        f"# {run.name}": [about],
        "## Results": _results(run),
        "## Training": _training(run, config),
        "## Use": _use(run, config, policy, folder),
        "## Limits and licence": _limits(run, config),
    }
    text = "\n\n".join("\n\n".join([title, *parts]) for title, parts in sections.items())
    return f"---\n{yaml.safe_dump(front, sort_keys=False)}---\n\n{text}\n"


def _results(run: Path) -> Iterator[str]:
    rows = []
    for path in sorted(run.glob("stages/*/results.json")):
        found = json.loads(path.read_bytes())
        for case in found.get("cases", [found]):
            if "success" in case and "episodes" in case:
                rows.append((f"{path.parent.name}, {case['about']}" if "about" in case else path.parent.name, case))
    if not rows:
        yield "The run was not evaluated."
        return
    yield "On held-out seeds of the environment; brackets are 95 % intervals over episodes, for this one training seed."
    lines = ["| | episodes | success | return |", "|---|---|---|---|"]
    for name, case in rows:
        success, paid = case["success"], case["return"]
        rate = f"{success['rate']:.1%} [{success['low']:.1%}, {success['high']:.1%}]"
        mean = f"{paid['mean']:.3g} [{paid['low']:.3g}, {paid['high']:.3g}]"
        lines.append(f"| {name} | {case['episodes']} | {rate} | {mean} |")
    yield "\n".join(lines)


def _training(run: Path, config: Config) -> Iterator[str]:
    manifest = json.loads((run / "manifest.json").read_bytes())
    lines = [
        f"- Command: `{manifest['command']}`",
        f"- Code: commit {manifest['commit']}, {manifest['created'][:10]}, PyTorch {manifest['versions']['torch']}",
        f"- Base model: `{config.policy.lm.folder}`, trained: `{config.policy.lm.tune}`, seed {config.seed}",
    ]
    for path in sorted(run.glob("stages/*/manifest.json")):
        counts = json.loads(path.read_bytes())["counts"]
        if steps := counts.get("env_steps"):
            lines.append(f"- Stage {path.parent.name}: {steps:,} env steps in {duration(counts['wall_seconds'])}")
    if config.from_:
        lines.append(f"- Training began from the weights of `{config.from_}`.")
    lines.append(
        "- Data: episodes of this environment alone, played by the agent or, where the command says so, an expert."
    )
    yield "\n".join(lines)


def _use(run: Path, config: Config, policy: LanguagePolicy, folder: Path) -> Iterator[str]:
    words = json.loads((run / "manifest.json").read_bytes())["command"].partition(" run ")[2].split()
    words = [word for word in words if not word.startswith(("run.", "cluster", "from=", "stages="))]
    yield "Evaluate it again with Cairn:"
    yield f"```\npython launch.py run {' '.join(words)} from={folder} stages=[evaluate]\n```"
    if policy.action_head is not None:
        yield "Its logits come from layers of their own (`action_head` in `heads.safetensors`), not from words."
        return
    if missing := {*policy.fields} - {*envs.spec(config.env.id, **config.env.options).fields, HISTORY}:
        yield f"Its prompts also need {', '.join(sorted(missing))}, which Cairn adds to the observations."
        return
    if policy.generated or config.policy.prompt.chat:
        yield "The model's own `generate` writes what follows a prompt; here is the first of an episode:"
        yield f"```\n{_prompt(config, policy)[0]}\n```"
        return
    yield "Score the actions of a state without Cairn; the prompt is the first of an episode:"
    yield f"```python\n{_program(config, policy, folder)}```"


def _prompt(config: Config, policy: LanguagePolicy) -> tuple[str, dict[str, int]]:
    env = envs.make(config.env.id, 1, config.seed, **config.env.options)
    return policy.prompter.told(env.begin(), 0, env.texts)


def _program(config: Config, policy: LanguagePolicy, folder: Path) -> str:
    prompt, places = _prompt(config, policy)
    assert policy.scorer.boundary is not None
    names = policy.scorer.boundary.candidates(list(places), "")
    auto = class_for(policy.model.config).__name__
    lines = ["import torch", f"from transformers import {auto}, AutoTokenizer", "", f"folder = {str(folder)!r}"]
    if config.policy.lm.tune == "lora":
        lines.insert(1, "from peft import PeftModel")
        base = str(place(config.policy.lm.folder))
        lines += [
            f"model = {auto}.from_pretrained({base!r})",
            "model = PeftModel.from_pretrained(model, folder).eval()",
        ]
    else:
        lines += [f"model = {auto}.from_pretrained(folder)"]
    lines += ["tokenizer = AutoTokenizer.from_pretrained(folder)", f"prompt = {prompt!r}"]
    if policy.log_temperature is not None:
        return "\n".join([*lines, *_alike(list(places), policy.log_temperature.exp().clamp(min=COLDEST).item())]) + "\n"
    seq2seq = policy.model.config.is_encoder_decoder
    lines += [f"actions = {dict(zip(places, map(list, names), strict=True))!r}  # the tokens of each name"]
    lines += ["start = tokenizer(prompt, return_tensors='pt').input_ids", "for name, tokens in actions.items():"]
    lines += ["    ids = torch.tensor([tokens])", "    with torch.no_grad():"]
    if seq2seq:
        lines += ["        logits = model(input_ids=start, labels=ids).logits"]
    else:
        lines += ["        logits = model(input_ids=torch.cat([start, ids], 1)).logits[:, start.shape[1] - 1 : -1]"]
    lines += ["    print(name, logits.log_softmax(-1).gather(-1, ids[..., None]).sum().item())"]
    return "\n".join(lines) + "\n"


def _alike(actions: list[str], temperature: float) -> list[str]:
    """The rest of the program, for an encoder."""
    return [
        f"actions, temperature = {actions!r}, {temperature!r}",
        "",
        "",
        "def state(text):",
        "    with torch.no_grad():",
        "        return model(**tokenizer(text, return_tensors='pt')).last_hidden_state[0].mean(0)",
        "",
        "",
        "for name in actions:",
        "    likeness = torch.cosine_similarity(state(prompt), state(name), dim=0)",
        "    print(name, (likeness / temperature).item())",
    ]


def _limits(run: Path, config: Config) -> Iterator[str]:
    lines = [
        f"- It was trained in `{config.env.id}`, for its words and actions, and tried in nothing but the table above.",
        "- The licence is that of the base model; the environment's own texts are Cairn's (Apache-2.0).",
    ]
    asked = json.loads((run / "status.json").read_bytes()).get("llm")
    if asked and (words := stand_in(config.model_dump())):
        lines.append(f"- {words}")
    yield "\n".join(lines)
