"""Words to a configuration: precedence, groups, and one sentence for every way to be wrong."""

import shutil

import pytest

from cluster.config import artifacts, overrides
from cluster.config import tree as config
from cluster.config.overrides import COMMAND_LINE, ConfigError
from cluster.config.tree import compose, explain, update


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A copy of `configs/` to write into."""
    copy = tmp_path / "configs"
    shutil.copytree(overrides.CONFIGS, copy)
    monkeypatch.setattr(overrides, "CONFIGS", copy)
    return copy


def write(path, text):
    path.write_text(f"# @package _global_\n{text}")


def test_nothing_said_is_the_defaults_of_the_parts():
    found = compose([])
    assert found.method.name == "ppo"
    assert found.env.id == "toy/Line"
    assert found.learner == config.LearnerSection()
    assert found.actors == config.ActorsConfig()


def test_a_later_layer_wins(folder):
    """Defaults < method < env < cluster < experiment < command line, key by key."""
    keys = ["threads", "minibatch", "chunks", "learning_rate", "env_steps"]
    files = ["method/m", "env/e", "cluster/c", "experiment/x"]
    extra = {"env/e": "env: {id: toy/Line}\npolicy: {network: mlp}\n"}
    for depth, name in enumerate(files):  # each file sets one key fewer than the one below it
        values = "".join(f"  {key}: {depth + 11}\n" for key in keys[depth:])
        head = "defaults: [override /method: m, override /env: e, override /cluster: c]\n" if depth == 3 else ""
        write(folder / f"{name}.yaml", f"{head}{extra.get(name, '')}learner:\n{values}")
    found, provenance = explain(["experiment=x", "learner.env_steps=15"])
    assert [getattr(found.learner, key) for key in keys] == [11, 12, 13, 14, 15]
    assert [provenance[f"learner.{key}"] for key in keys] == [*(f"configs/{name}.yaml" for name in files), COMMAND_LINE]
    assert "learner.n" not in provenance


def test_the_command_line_chooses_a_group_against_the_experiment():
    assert compose(["experiment=babyai_gotolocal"]).env.id == "babyai/GoToLocal"
    assert compose(["experiment=babyai_gotolocal", "env=babyai/GoToDoor"]).env.id == "babyai/GoToDoor"
    found = compose(["experiment=babyai_gotolocal", "env=toy"])
    assert found.env.id == "toy/Line"
    assert found.policy.network == "mlp"
    assert found.learner.env_steps == compose(["experiment=babyai_gotolocal"]).learner.env_steps


def test_options_that_an_experiment_gives_its_env_do_not_fall_on_another(folder):
    write(folder / "experiment" / "x.yaml", "defaults: [override /env: babyai]\nenv: {captions: true}\nseed: 7\n")
    assert compose(["experiment=x"]).env.options["captions"] is True
    other = compose(["experiment=x", "env=toy"])
    assert (other.env.model_dump(), other.seed) == ({"id": "toy/Line", "step_seconds": 0.0}, 7)


def test_an_experiment_may_build_on_another(folder):
    write(folder / "experiment" / "base.yaml", "seed: 1\nactors: {n: 3}\n")
    write(folder / "experiment" / "x.yaml", "defaults: [base, _self_]\nseed: 2\n")
    found, provenance = explain(["experiment=x"])
    assert (found.seed, found.actors.n, found.experiment) == (2, 3, "x")
    assert provenance["actors.n"] == "configs/experiment/base.yaml"


def test_an_env_is_chosen_by_family_or_by_id():
    assert compose(["env=babyai/GoToDoor"]).env.id == "babyai/GoToDoor"
    assert compose(["env.id=babyai/GoToDoor"]) == compose(["env=babyai/GoToDoor"])
    assert compose(["env=babyai"]).env.id == "babyai/GoToLocal"
    assert compose(["env=babyai/GoToDoor", "env=toy"]).env.id == "toy/Line"
    assert compose(["env=gym/CartPole-v1"]).env.id == "gym/CartPole-v1"


def test_the_options_of_an_env_are_its_family_s():
    found = compose(["env=babyai", "env.captions=true"])
    assert found.env.options["captions"] is True
    assert found.model_dump()["env"] == {"id": "babyai/GoToLocal", **found.env.options}


def test_a_mapping_takes_any_key():
    found = compose(["env=gym", "env.arguments.sutton_barto_reward=true"])
    assert found.env.options["arguments"] == {"sutton_barto_reward": True}
    assert compose(["env=gym", "env.arguments={sutton_barto_reward: true}"]) == found
    assert update(found, []) == found


@pytest.mark.parametrize(
    ("word", "key", "value"),
    [
        ("learner.env_steps=1e6", "learner.env_steps", 1_000_000),
        ("learner.ppo.value_clip=none", "learner.ppo.value_clip", None),
        ("learner.ppo.value_clip=null", "learner.ppo.value_clip", None),
        ("policy.memory=none", "policy.memory", "none"),
        ("run.name=007", "run.name", "007"),
        ("learner.ppo.clip=1", "learner.ppo.clip", 1.0),
        ("stages=[evaluate]", "stages", ["evaluate"]),
        ("actors={n: 3}", "actors.n", 3),
    ],
)
def test_what_people_write(word, key, value):
    found = overrides.flatten(compose([word]).model_dump())[key]
    assert found == value
    assert type(found) is type(value)


WRONG = {
    "actors.nn=1": "unknown key actors.nn on the command line: did you mean actors.n?",
    "learner.learning_rat=1": "unknown key learner.learning_rat on the command line: did you mean learner.learning_r",
    "learning_rate=1": "unknown key learning_rate on the command line: did you mean learner.learning_rate?",
    "learner.lr=1": "unknown key learner.lr on the command line: did you mean learner.learning_rate?",
    "actors.n.x=1": "unknown key actors.n.x on the command line: did you mean actors.n?",
    "env.captions=true": "unknown key env.captions on the command line: env has id",
    "goals.limit=3": "unknown key goals.limit on the command line: did you mean method.goals.limit?",
    "intrinsic.name=rnd": "unknown key intrinsic.name on the command line: did you mean method.intrinsic.name?",
    "dqn.capacity=9": "unknown key dqn.capacity on the command line: did you mean learner.dqn.capacity?",
    "learner.clip=0.1": "unknown key learner.clip on the command line: did you mean learner.ppo.clip?",
    "learner.max_lag=1": "unknown key learner.max_lag on the command line: did you mean learner.ppo.max_lag?",
    "collect.greedy=true": "unknown key collect.greedy on the command line: method=cloning has method.collect.greedy",
    "method.fit.steps=3": "unknown key method.fit.steps on the command line: method=cloning has method.fit.steps",
    "generalise.episodes=3": "unknown key generalise.episodes on the command line: did you mean method.generalise.epis",
    "zzz=1": "unknown key zzz on the command line: python launch.py run --cfg prints every key",
    "actors=5": "actors on the command line is a section: set one of its keys, for example actors.n",
    "actors.n=many": "actors.n: expected an integer, got 'many'",
    "actors.n=2.5": "actors.n: expected an integer, got 2.5",
    "learner.ppo.clip=big": "learner.ppo.clip: expected a number, got 'big'",
    "sync=1": "sync: expected true or false, got 1",
    "stages=train": "stages: expected a list such as [a,b], got 'train'",
    "policy.memory=grru": "policy.memory: expected 'none' or 'gru', got 'grru'; did you mean gru?",
    "actors.n=0": "actors.n: must be at least 1, got 0",
    "seed=-1": "seed: must be at least 0, got -1",
    "learner.learning_rate=0": "learner.learning_rate: must be greater than 0, got 0.0",
    "learner.learning_rate=nan": "learner.learning_rate: must be a finite number, got nan",
    "learner.discount=1.5": "learner.discount: must be between 0 and 1, got 1.5",
    "run.max_wall_seconds=-1": "run.max_wall_seconds: must be greater than 0, got -1.0",
    "run.name=a/b": "run.name: must be made of letters, digits and . _ - + =, got 'a/b'",
    "env=tyo": "unknown env 'tyo' on the command line: did you mean env=toy?",
    "cluster=locl": "unknown cluster 'locl' on the command line: did you mean cluster=local?",
    "experiment=toyy": "unknown experiment 'toyy' on the command line: did you mean experiment=toy?",
    "method=pop": "unknown method 'pop' on the command line: did you mean method=ppo?",
    "method.name=zzz": "unknown method 'zzz' on the command line: choose one of ",
    "env=toy/Lin": "env.id: unknown env 'toy/Lin': did you mean toy/Line?",
    "env=babyai/GoToLocl": "env.id: unknown env 'babyai/GoToLocl': did you mean babyai/GoToLocal?",
    "env=gym/CartPol-v1": "env.id: Gymnasium has no env 'CartPol-v1'",
    "policy.network=fllm": "policy.network: there is no 'fllm': did you mean film?",
    "stages=[trian]": "stages of method ppo: there is no 'trian': did you mean train?",
    "env=gym/Pendulum-v1": "impossible combination: method ppo needs a discrete action space",
    "policy.reads=[x]": "impossible combination: policy.reads names 'x'",
    "evaluate.env.step_second=1": "evaluate.env.step_second: there is no such key",
    "evaluate.env.step_seconds=fast": "evaluate.env.step_seconds: expected a number, got 'fast'",
    "from=run:other": "from: expected run:NAME/stage or a path, got 'run:other'",
    "from=/not/there": "from: /not/there is not there: /not/there does not exist",
    "toy": "cannot read 'toy' on the command line: did you mean env=toy?",
    "four": "cannot read 'four' on the command line: write key=value, for example actors.n=4",
    "=5": "cannot read '=5' on the command line: write key=value, for example actors.n=4",
    "run.folder=a(b": "cannot read 'run.folder=a(b' on the command line: quote special characters",
    "+a=1": "cannot read '+a=1' on the command line: write key=value, without + ~ or @",
    "~seed": "cannot read '~seed' on the command line: write key=value, without + ~ or @",
    "run.name=${env:HOME}": "cannot read 'run.name=${env:HOME}' on the command line: interpolation is not supported",
    "seed=1,2": "'seed=1,2' lists several values: add -m to run each combination",
    "seed=0..4": "'seed=0..4' lists several values: add -m to run each combination",
}


@pytest.mark.parametrize("word", WRONG)
def test_what_is_wrong_is_one_sentence(word):
    with pytest.raises(ConfigError) as raised:
        compose([word])
    sentence = str(raised.value)
    assert sentence.startswith(WRONG[word])
    assert "\n" not in sentence


def test_evaluations_show_what_training_shows():
    words = ["env=housekeep", "env.starts=exploring"]
    assert compose([*words, "evaluate.env.starts=seed"]).evaluate.env == {"starts": "seed"}
    with pytest.raises(ConfigError, match=r"evaluate\.env=\{'size': 32.* changes the fields of the environment"):
        compose([*words, "evaluate.env={size: 32, observe: [rgb]}"])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("learner: {learning_rat: 1}", "unknown key learner.learning_rat in configs/experiment/x.yaml: did you mean "),
        ("actors: {n: many}", "actors.n: expected an integer, got 'many' (in configs/experiment/x.yaml)"),
        ("actors: {n: 0}", "actors.n: must be at least 1, got 0 (in configs/experiment/x.yaml)"),
        ("env: {id: toy/Lin}", "env.id: unknown env 'toy/Lin': did you mean toy/Line? (in configs/experiment/x.yaml)"),
        ("method: {name: nope}", "method.name: unknown method 'nope': choose one of "),
        ("defaults: [override /env: nope]", "configs/experiment/x.yaml: its defaults list does not resolve: "),
        ("actors: {n: 2", "configs/experiment/x.yaml, line 2, is not YAML: "),
        ("- a\n- b", "configs/experiment/x.yaml contains a list: write keys and values"),
    ],
)
def test_a_wrong_file_is_named(folder, text, sentence):
    write(folder / "experiment" / "x.yaml", text)
    with pytest.raises(ConfigError) as raised:
        compose(["experiment=x"])
    assert str(raised.value).startswith(sentence)
    assert "\n" not in str(raised.value)


def test_update_keeps_what_was_chosen_and_merges_only_what_is_said():
    first = compose(["experiment=toy", "actors.n=3", "learner.ppo.epochs=2"])
    second = update(first, ["cluster=inline", "learner.ppo.epochs=5"])
    assert config.difference(first, second) == [("learner.ppo.epochs", 2, 5), ("cluster.name", "local", "inline")]


def test_update_to_another_env_drops_the_options_of_the_first():
    first = compose(["env=babyai", "env.captions=true"])
    assert update(first, ["env=toy"]).env.model_dump() == {"id": "toy/Line", "step_seconds": 0.0}


def test_update_refuses_an_experiment():
    """Half of it would be merged over what the run has become since."""
    with pytest.raises(ConfigError, match="experiment: "):
        update(compose([]), ["experiment=toy"])


NEAR = "def potential(observations, actions):\n    return 1.0 * len(actions)\n"
CODE = ["env=babyai/GoToLocal", "method.shaping.potential=code"]


def program(folder, name, finished=True):
    """A stage of a run that has a program."""
    stage = folder / "runs" / name / "stages" / "label"
    stage.mkdir(parents=True)
    (stage / "program.py").write_text(NEAR)
    if finished:
        (stage / "manifest.json").write_text("{}")
    return stage


def test_what_a_run_has_written_is_taken_by_its_name_and_kept(tmp_path):
    stage = program(tmp_path, "a")
    found = compose([*CODE, f"run.folder={tmp_path / 'runs'}", "method.shaping.program=run:a/label"])
    assert found.method.shaping.program == NEAR.strip()
    assert compose([*CODE, f"method.shaping.program={stage}"]) == found.model_copy(update={"run": config.RunConfig()})
    (stage / "program.py").unlink()
    assert update(found, ["seed=1"]).method.shaping.program == NEAR.strip()  # a run keeps the text


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("run:b/label", r"method\.shaping\.program: run:b/label is not there: \S+/runs/b/stages/label does not exist"),
        ("run:a", "method.shaping.program: expected run:NAME/stage or a path, got 'run:a'"),
        ("run:begun/label", "method.shaping.program: run:begun/label is not finished: resume that run first"),
        ("run:a/other", r"method\.shaping\.program: \S+/runs/a/stages/other holds no program\.py: name a file"),
        ("nowhere.py", r"method\.shaping\.program: nowhere\.py cannot be read: .*"),
    ],
)
def test_what_no_run_has_written_is_one_sentence(tmp_path, name, sentence):
    program(tmp_path, "begun", finished=False)
    other = tmp_path / "runs/a/stages/other"
    other.mkdir(parents=True)
    (other / "manifest.json").write_text("{}")
    with pytest.raises(ConfigError, match=sentence) as raised:
        compose([*CODE, f"run.folder={tmp_path / 'runs'}", f"method.shaping.program={name}"])
    assert "\n" not in str(raised.value)


def test_what_comes_with_the_project_is_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(artifacts, "ROOT", tmp_path / "project")
    (tmp_path / "project" / "kept").mkdir(parents=True)
    (tmp_path / "project" / "kept" / "program.py").write_text(NEAR)
    for name in ("kept", "kept/program.py"):
        assert compose([*CODE, f"method.shaping.program={name}"]).method.shaping.program == NEAR.strip()


def test_whoever_goes_on_with_a_run_may_stand_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "here" / "label").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    for name in ("label", "./label", "../here/label"):
        found = compose(["method.shaping.potential=none", f"method.shaping.goals={name}"])
        assert found.method.shaping.goals == str(tmp_path / "here" / "label")
