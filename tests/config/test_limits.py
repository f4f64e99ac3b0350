"""What cannot fit, or does nothing, is said before a run begins: in one sentence, with the number that does fit."""

import math

import pytest

from cluster.config import limits, unread
from cluster.config.checks import MOST, out_of_bounds
from cluster.config.members import plan
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose, explain, update

GIB = 2**30
MEMINFO = "MemTotal: 9000 kB\nMemAvailable: 4096 kB\n"


def refused(*words, room=4 * GIB):
    """The sentence, without the key's description in brackets."""
    with pytest.raises(ConfigError) as caught:
        limits.assert_fits(compose(list(words)), room)
    return str(caught.value)


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["actors.n=100000000"], "actors.n"),
        (["actors.envs=20000", "actors.steps=1000000"], "actors.steps"),
        (["cluster=inline", "actors.envs=20000", "actors.steps=20000", "actors.n=1"], "actors.envs"),
        (["learner.chunks=2000000", "actors.envs=1000"], "learner.chunks"),
        (
            ["method=dqn", "learner.dqn.keep=memory", "learner.dqn.capacity=1e12", "learner.env_steps=1e9"],
            "learner.dqn.capacity",
        ),
        (["evaluate.episodes=1e8"], "evaluate.episodes"),
        (["evaluate.validation_episodes=1e8"], "evaluate.validation_episodes"),
        (["method=cloning", "env=babyai", "method.collect.episodes=1e9"], "method.collect.episodes"),
        (["method=random", "evaluate.episodes=1e8", "evaluate.beside=[random]"], "evaluate.episodes"),
    ],
)
def test_what_exceeds_the_memory_is_refused_with_what_fits(words, key):
    sentence, room = refused(*words), 4 * GIB
    value, fits = sentence.partition("=")[2].split()[0], int(sentence.rpartition("=")[2].split()[0])
    assert sentence.startswith(f"{key}={value} (")
    assert "this machine has 4.0 GiB left" in sentence
    assert 0 < fits < int(value)
    config = compose(words)
    assert limits.needed(limits._with(config, key, fits)) <= room < limits.needed(limits._with(config, key, fits + 1))


def test_a_machine_too_small_for_one_says_so():
    assert refused("actors.n=50", room=1000).endswith("not even actors.n=1 fits")


def test_what_fits_passes_and_other_machines_are_not_judged():
    limits.assert_fits(compose(["actors.n=50"]), 4 * GIB)
    limits.assert_fits(compose(["experiment=quickstart"]), 4 * GIB)
    limits.assert_fits(compose(["cluster=slurm", "actors.n=90000"]), GIB)
    limits.assert_fits(compose(["cluster=kubernetes", "actors.n=90000"]), GIB)
    replayed = ["method=dqn", "learner.dqn.capacity=1e12", "learner.env_steps=1e9"]
    limits.assert_fits(compose(replayed), 4 * GIB)  # on disk, which is asked when the files are made


def test_a_replay_takes_memory_as_rows_come():
    words = ["method=dqn", "learner.dqn.keep=memory", "learner.dqn.capacity=1e12", "learner.env_steps=1e5"]
    limits.assert_fits(compose(words), 4 * GIB)


def test_stages_that_will_not_run_are_not_judged():
    trained = compose(["method=dqn", "learner.dqn.keep=memory", "learner.dqn.capacity=1e12", "learner.env_steps=1e9"])
    limits.assert_fits(trained, 4 * GIB, kinds={"evaluate"})
    with pytest.raises(ConfigError, match=r"4\.0 GiB left"):
        limits.assert_fits(trained, 4 * GIB)


def test_a_sweep_is_refused_whole(monkeypatch):
    monkeypatch.setattr(limits, "available", lambda: 4 * GIB)
    with pytest.raises(ConfigError, match=r"^actors\.n=90000 "):
        plan(["actors.n=2,90000"])


@pytest.mark.parametrize(
    ("word", "most"),
    [
        ("learner.threads=1000000", "1024"),
        ("policy.hidden=10000000", "65536"),
        ("evaluate.episodes=999999999999", "100000000"),
        ("evaluate.validation_episodes=999999999999", "100000000"),
        ("method.generalise.episodes=999999999999", "100000000"),
        ("method.collect.episodes=999999999999", "1000000000"),
    ],
)
def test_no_cluster_takes_more_than_a_plain_bound(word, most):
    key, _, value = word.partition("=")
    assert out_of_bounds(key, int(value)).partition(",")[0] == f"at most {most}"
    assert out_of_bounds(key, int(most)) == ""


@pytest.mark.parametrize("key", ["actors.n", "actors.envs", "actors.steps"])
def test_sizes_are_bounded_where_the_memory_is_not_known(key):
    most = MOST[key]
    sentence = f"^{key}: must be at most {most}, got {most + 1}$"
    with pytest.raises(ConfigError, match=sentence):
        compose(["cluster=slurm", f"{key}={most + 1}"])
    here = compose([f"{key}={most + 1}"])  # what fits here says more
    with pytest.raises(ConfigError, match=sentence):
        limits.assert_fits(here, math.inf)
    with pytest.raises(ConfigError, match=f"^{key}={most + 1} .* needs at least"):
        limits.assert_fits(here, 2 * GIB if key == "actors.n" else GIB // 5)


# ---- how much there is ----------------------------------------------------------------------------------------------


def group(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


@pytest.fixture
def machine(tmp_path):
    """A machine with 4 MiB left, and no groups."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text(MEMINFO)
    (tmp_path / "proc" / "self" / "cgroup").write_text("0::/job/step\n")
    return tmp_path


def left(machine):
    return limits.available(machine / "proc", machine / "groups")


def test_memory_is_the_machine_s_or_the_container_s(machine):
    assert left(machine) == 4 * 2**20
    group(
        machine / "groups" / "job",
        memory__max=3000,
        memory__current=2000,
        memory__stat="anon 5\nactive_file 300\ninactive_file 150\nslab_reclaimable 50",
    )
    group(machine / "groups" / "job" / "step", memory__max="max", memory__current=2000)
    assert left(machine) == 1500
    group(machine / "groups" / "job" / "step", memory__max=2100, memory__current=2000, memory__stat="anon 5")
    assert left(machine) == 100


def test_memory_is_that_of_an_older_container_too(machine):
    old = {"memory__limit_in_bytes": 9000, "memory__usage_in_bytes": 8000, "memory__stat": "total_inactive_file 1"}
    group(machine / "groups" / "memory", **old)
    assert left(machine) == 1001


def test_where_nothing_says_how_much_there_is_nothing_is_refused(tmp_path):
    assert left(tmp_path) == math.inf
    limits.assert_fits(compose(["actors.n=90000"]), math.inf)


# ---- numbers and keys without effect --------------------------------------------------------------------------------


def test_a_minibatch_beyond_the_batch_is_refused_with_the_largest_that_counts():
    small = ["actors.n=2", "actors.envs=4", "actors.steps=8"]
    with pytest.raises(ConfigError, match=r"^learner\.minibatch=65 .*: the largest useful value is 64$"):
        compose([*small, "learner.minibatch=65"])
    with pytest.raises(ConfigError, match=r"is 96$"):
        compose([*small, "learner.chunks=3", "learner.minibatch=100"])
    with pytest.raises(ConfigError, match=r"is 64$"):
        update(compose(small), ["learner.minibatch=65"])
    assert compose([*small, "learner.minibatch=64"]).learner.minibatch == 64
    assert compose(small).learner.minibatch > 64  # a default is written for many runs


def test_a_minibatch_beyond_the_replay_is_refused():
    few = [
        "method=dqn",
        "actors.n=1",
        "actors.envs=2",
        "actors.steps=4",
        "learner.dqn.capacity=200",
        "learner.dqn.start_steps=0",
    ]
    most = 2 * (100 - 10 - 3)
    with pytest.raises(ConfigError, match=rf"learner\.minibatch=175 is more than the {most} rows .* nothing would be"):
        compose([*few, "learner.minibatch=175"])
    compose([*few, f"learner.minibatch={most}"])
    with pytest.raises(ConfigError, match="more than the 100 rows"):
        compose([*few, "learner.minibatch=101", "learner.env_steps=100"])


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["cluster.slurm.nodes=3"], "cluster.slurm.nodes=3 has no effect with cluster=local"),
        (["cluster.kubernetes.namespace=x"], "cluster.kubernetes.namespace=x has no effect with cluster=local"),
        (["cluster=inline", "cluster.dashboard=true"], "cluster.dashboard=True has no effect with cluster=inline"),
        (
            ["learner.dqn.n_step=5", "learner.dqn.double=false"],
            "learner.dqn.n_step=5, learner.dqn.double=False have no effect with method=ppo and learner.algorithm=ppo",
        ),
        (
            ["method=dqn", "learner.ppo.clip=0.1"],
            "learner.ppo.clip=0.1 has no effect with method=dqn and learner.algorithm=dqn",
        ),
        (
            ["method=dqn", "learner.dqn.alpha=0.1"],
            "learner.dqn.alpha=0.1 has no effect with learner.dqn.prioritised=false",
        ),
        (
            ["method=random", "learner.ppo.epochs=2"],
            "learner.ppo.epochs=2 has no effect with method=random and no stage that tra",
        ),
        (["method.goals.limit=3"], "method.goals.limit=3 has no effect with method.goals.source=none"),
        (
            ["method=ellm", "env=crafter", "method.goals.source=oracle", "method.goals.order=name"],
            "method.goals.order=name has no effect without method.goals.source=oracle and method.goals.limit",
        ),
        (
            ["method=ellm", "env=crafter", "method.goals.source=likeness", "method.goals.prompt=listed"],
            "method.goals.prompt=listed has no effect with method.goals.source=likeness",
        ),
        (["method.intrinsic.scale=2"], "method.intrinsic.scale=2.0 has no effect with method.intrinsic.name=none"),
        (["method.shaping.window=3"], "method.shaping.window=3 has no effect with method.shaping.potential=none"),
        (
            ["method.shaping.potential=random", "method.shaping.shows=image"],
            "method.shaping.shows=image has no effect without method.shaping.potential=code",
        ),
        (
            ["stages=[evaluate]", "evaluate.videos=0", "method.shaping.potential=random"],
            "method.shaping.potential=random has no effect with method=ppo and no stage that trains or records",
        ),
        (["llm.batch.size=2"], "llm.batch.size=2 has no effect with method=ppo, which uses no language model"),
        (["policy.lm.head=actions"], "policy.lm.head=actions has no effect with policy.network=mlp"),
        (
            ["method=cloning", "env=babyai", "stages=[collect]", "method.fit.steps=3"],
            "method.fit.steps=3 has no effect without a stage that fits",
        ),
        (["stages=[train]", "evaluate.episodes=3"], "evaluate.episodes=3 has no effect without a stage that evaluates"),
        (
            ["evaluate.every=0", "evaluate.validation_episodes=3"],
            "evaluate.validation_episodes=3 has no effect without evaluations during training",
        ),
        (["sync=true", "actors.ahead=1"], "actors.ahead=1 has no effect with sync=true"),
    ],
)
def test_a_word_that_nothing_reads_is_told_in_one_line(words, line, capsys):
    unread.tell(*explain(words))
    printed = capsys.readouterr()
    assert printed.err.startswith(f"note: {line}")
    assert (printed.err.count("\n"), printed.out) == (1, "")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["experiment=quickstart"],  # its file has keys of clusters and goals: nobody typed them
        ["cluster=slurm", "cluster.slurm.nodes=3"],
        ["method=dqn", "learner.dqn.n_step=5", "learner.discount=0.9"],
        [
            "experiment=quickstart",
            "method.goals.limit=3",
            "llm.batch.size=2",
            "learner.ppo.clip=0.1",
            "evaluate.every=5",
        ],
        ["method=cloning", "env=babyai", "method.fit.steps=3", "method.collect.episodes=2", "learner.n=1"],
        ["stages=[evaluate]", "method.shaping.potential=random"],  # recordings show what it says
    ],
)
def test_a_word_that_is_read_is_not_remarked_on(words, capsys):
    unread.tell(*explain(words))
    assert capsys.readouterr().err == ""


def test_words_of_a_resume_are_judged_by_the_run_that_they_are_laid_over(capsys):
    words = ["learner.dqn.n_step=5", "learner.ppo.epochs=2"]
    unread.tell_words(update(compose(["method=dqn"]), words), words)
    assert capsys.readouterr().err.startswith("note: learner.ppo.epochs=2 has no effect with method=dqn")
