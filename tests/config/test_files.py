"""The files of `configs/`, and the configuration at rest."""

import errno
import os
from datetime import datetime

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from cluster.config import overrides, unread
from cluster.config import tree as config
from cluster.config.overrides import CONFIGS, GROUPS, SELECTORS, ConfigError, flatten, nest
from cluster.config.tree import Config, alters_meaning, compose, difference, explain, load, named, render, save
from envs import registry
from envs.config import Part
from learner import methods
from learner.algorithms.ppo import PPOConfig
from llm_service import backends
from tests.learner.fault_points import interrupted

NAMES = ("env.id", "method.name", "llm.name")
FILES = sorted(path.relative_to(CONFIGS) for group in GROUPS for path in (CONFIGS / group).glob("*.yaml"))


def values_of(path):
    tree = OmegaConf.to_container(OmegaConf.load(CONFIGS / path))
    tree.pop("defaults", None)
    return flatten(tree)


def base_of(path):
    """What holds without a file: the defaults, and the files that its defaults list names, dotted."""
    group = path.parts[0]
    words = []
    for entry in OmegaConf.to_container(OmegaConf.load(CONFIGS / path)).get("defaults", []):
        named = {f"override /{group}": entry} if isinstance(entry, str) else entry
        words += [f"{key.removeprefix('override /')}={name}" for key, name in named.items()]
    if words:
        tree = {}
        for layer in overrides.layers(words):
            tree |= layer.values
        return flatten(Config(**nest({k: v for k, v in tree.items() if k in NAMES})).model_dump()) | tree
    chosen = {key: value for key, value in values_of(path).items() if key in NAMES}
    return flatten(Config(**nest(chosen)).model_dump())


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_file_states_differences_only(path):
    """No value may be what holds without the file, but for the name that the file stands for."""
    base = base_of(path)
    own = {key for key, group in SELECTORS.items() if group == path.parts[0]}
    repeated = [key for key, value in values_of(path).items() if key not in own and base.get(key) == value]
    assert repeated == []


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_file_is_global_and_says_what_it_is_in_a_line(path):
    lines = (CONFIGS / path).read_text().splitlines()
    assert lines[0] == "# @package _global_"
    description = overrides.options(path.parts[0])[path.stem]
    assert 0 < len(description) <= 120


def test_the_choices_when_none_is_made_are_those_of_the_parts():
    tree = OmegaConf.to_container(OmegaConf.load(CONFIGS / "config.yaml"))
    choices = {key: value for entry in tree.pop("defaults") for key, value in entry.items()}
    assert tree == {}  # values live in the parts
    plain = Config()
    assert choices == {
        "method": plain.method.name,
        "env": plain.env.id.partition("/")[0],
        "llm": plain.llm.name,
        "cluster": plain.cluster.name,
        "experiment": None,
    }


def test_every_method_backend_and_env_family_has_its_file():
    assert list(overrides.options("method")) == methods.names()
    assert list(overrides.options("llm")) == backends.names()
    assert list(overrides.options("env")) == registry.families()


@pytest.mark.parametrize("name", overrides.options("experiment"))
def test_every_experiment_composes(name):
    assert compose([f"experiment={name}"]).experiment == name


def parts(part=Config):
    yield part
    for field in part.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Part) and field.annotation is not Part:
            yield from parts(field.annotation)


def test_every_field_is_documented_and_has_a_default():
    modules = [methods.method(name) for name in methods.names()] + [registry.family(f) for f in registry.families()]
    for part in [*parts(), *(module.Config for module in modules)]:
        for name, field in part.model_fields.items():
            assert field.description, f"{part.__name__}.{name} has no docstring"
            assert not field.is_required(), f"{part.__name__}.{name} has no default"


BASE = compose([])
DRAWN = {  # strategies that cover what a key of the type may hold
    "run.folder": st.text(),
    "experiment": st.text(),
    "from": st.text(),
    "stages": st.lists(st.text()),
    "seed": st.integers(0, 2**63),
    "learner.env_steps": st.integers(1),
    "learner.learning_rate": st.floats(0, exclude_min=True, allow_infinity=False),
    "learner.ppo.target_kl": st.none() | st.floats(0, exclude_min=True, allow_infinity=False),
    "learner.discount": st.floats(0, 1),
    "policy.reads": st.lists(st.text()),
    "policy.memory": st.sampled_from(["none", "gru"]),
    "sync": st.booleans(),
}


@settings(max_examples=60, deadline=None)
@given(changes=st.fixed_dictionaries({}, optional=DRAWN))
def test_saved_and_loaded_is_the_same(tmp_path_factory, changes):
    there = Config(**nest({**flatten(BASE.model_dump()), **changes}))
    path = tmp_path_factory.mktemp("saved") / "config.yaml"
    save(there, path)
    assert load(path) == there
    assert load(path).model_dump_json() == there.model_dump_json()
    assert [entry.name for entry in path.parent.iterdir()] == ["config.yaml"]


def test_content_and_name_are_on_the_disk_when_a_save_returns(tmp_path):
    path = tmp_path / "run" / "config.yaml"
    path.parent.mkdir()
    with interrupted(tmp_path, 10**6, None) as changes:
        save(BASE, path)
    assert [change.partition(" ")[0] for change in changes] == ["open", "os.fsync", "os.rename", "os.fsync"]
    assert changes[-1] == f"os.fsync {path.parent}"


def test_a_save_that_the_disk_refuses_leaves_what_was_there(tmp_path):
    path = tmp_path / "run" / "config.yaml"
    path.parent.mkdir()
    save(BASE, path)

    def fill(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for n in range(3):
        with interrupted(tmp_path, n, fill), pytest.raises(OSError, match="No space left"):
            save(compose(["seed=3"]), path)
        assert load(path) == BASE
        assert [entry.name for entry in path.parent.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize("words", [["env=babyai", "env.captions=true"], ["env=gym", "env.arguments={x: 1, y: {z: a}}"]])
def test_env_options_survive_a_save(tmp_path, words, monkeypatch):
    monkeypatch.setattr(config, "_check", lambda *_: None)  # the arguments are invented
    there = compose(words)
    save(there, tmp_path / "config.yaml")
    assert load(tmp_path / "config.yaml") == there


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot read .*No such file"),
        ("a: [", "damaged: it is not YAML"),
        ("", "damaged: it holds no keys"),
        ("learner: {learning_rat: 1}", "unknown key learner.learning_rat in .*config.yaml: did you mean"),
        ("actors: {n: many}", r"actors.n: expected an integer, got 'many' \(in .*config.yaml\)"),
    ],
)
def test_a_damaged_file_is_one_sentence(tmp_path, text, sentence):
    if text is not None:
        (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        load(tmp_path / "config.yaml")


def test_a_file_of_other_code_is_refused_in_one_sentence_with_the_commit(tmp_path):
    save(BASE, tmp_path / "config.yaml")
    tree = yaml.safe_load((tmp_path / "config.yaml").read_text()) | {"goals": {"source": "none"}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(tree))
    (tmp_path / "manifest.json").write_text('{"commit": "abc123"}')
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "config.yaml")
    key, hint = "unknown key goals.source in ", "did you mean method.goals.source?"
    assert str(refused.value).startswith(
        f"{key}{tmp_path / 'config.yaml'}: {hint} Another version wrote it: continue it"
    )
    assert "with commit abc123" in str(refused.value)


def test_a_file_from_before_a_key_existed_takes_its_default(tmp_path):
    save(BASE, tmp_path / "config.yaml")
    tree = yaml.safe_load((tmp_path / "config.yaml").read_text())
    del tree["learner"]["ppo"]["max_lag"]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(tree))
    assert load(tmp_path / "config.yaml") == BASE


def test_difference_names_keys_and_both_values():
    other = compose(["seed=3", "env=babyai"])
    found = {key: (old, new) for key, old, new in difference(BASE, other)}
    assert found["seed"] == (0, 3)
    assert found["env.id"] == ("toy/Line", "babyai/GoToLocal")
    assert found["env.captions"] == (None, False)
    assert difference(BASE, BASE) == []


@pytest.mark.parametrize(
    "key",
    [
        "run.log_every_s",
        "cluster.name",
        "actors.timeout_s",
        "evaluate.videos",
        "stages",
        "method.shaping.preference",  # where it lies: what is in it is compared with what the run was trained with
        "method.shaping.goals",
    ],
)
def test_harmless_keys(key):
    assert not alters_meaning(key)


@pytest.mark.parametrize("key", ["seed", "sync", "actors.n", "learner.env_steps", "env.id", "method.name", "from"])
def test_keys_that_alter_the_meaning(key):
    assert alters_meaning(key)


def test_a_run_is_named_after_what_it_is():
    now = datetime(2031, 2, 3, 4, 5, 6)
    assert named(BASE, now).run.name == "ppo-line-20310203-040506"
    assert named(compose(["experiment=toy"]), now).run.name == "toy-20310203-040506"
    assert named(compose(["run.name=mine"]), now).run.name == "mine"


def test_the_printed_tree_is_yaml_with_sources(tmp_path):
    found, provenance = explain(["experiment=toy", "actors.n=4"])
    text = render(found, provenance, unread.foreign)
    (tmp_path / "config.yaml").write_text(text)
    assert load(tmp_path / "config.yaml") == found
    shown = yaml.safe_load(text)
    assert list(shown["learner"]["ppo"]) == list(PPOConfig.model_fields)
    there = {*shown, *shown["method"], *shown["learner"], *shown["cluster"], *shown["policy"]["lm"]}
    assert not {"dqn", "slurm", "llm", "generalise", "folder"} & there
    comments = {line.split("#")[0].strip(): line.split("# ")[1] for line in text.splitlines() if "#" in line}
    assert comments["n: 4"] == "command line"
    assert comments["network: mlp"] == "configs/env/toy.yaml"
    assert comments["hidden: 64"] == "configs/experiment/toy.yaml"
    assert comments["sync: false"] == "default"
