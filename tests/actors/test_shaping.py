"""The wrapper that pays potentials: what it pays adds up, whatever the chunks, the envs and the restarts."""

import hashlib
import json
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import envs
from actors import ActorsConfig, ActorSetup, RolloutActor, rollout, wrappers
from actors.wrappers import shaping
from cluster import run as controller
from cluster.config.tree import compose, update
from cluster.runs.folder import RunError, RunFolder
from cluster.runs.supply import assert_resumable
from envs.config import Part
from envs.text import TextTable
from learner import checkpoint, potentials
from learner.algorithms import LearnerSetup
from learner.algorithms.ppo.config import PPOConfig
from learner.config import LearnerConfig
from learner.files import sha256
from learner.forms import FORMS
from learner.group import Learner, build_policy, get_weights
from learner.hashing import uniform
from learner.models import PolicyConfig
from learner.options import Artifact
from learner.potentials import Potential, PotentialSetup, ShapingConfig
from learner.windows import Trail, Windows

GAMMA = 0.9
ENV = "toy/Line"


class Woven(Potential):
    """Tells every window from every other: all observations and actions of it count."""

    fields = ("position",)

    def __init__(self, setup):
        pass

    def phi(self, windows):
        entries = np.concatenate([windows.obs("position"), windows.actions], 1)
        return uniform((entries + 2) @ 7 ** np.arange(entries.shape[1])).astype(np.float32)


class Told(Potential):
    """The same of texts: a number of what is written, not of its id."""

    fields = ("caption", "mission")

    def __init__(self, setup):
        self.texts = setup.texts

    def phi(self, windows):
        hashes = [self.texts.hashes(windows.obs(name)) for name in self.fields]
        entries = np.concatenate([*hashes, windows.actions], 1)
        return uniform(entries @ 7 ** np.arange(entries.shape[1])).astype(np.float32)


CAPTIONED = ("babyai/GoToLocal", {"captions": True, "max_steps": 11, "levels": "native"})


@pytest.fixture
def woven(monkeypatch):
    monkeypatch.setattr(potentials, "potential", lambda name: Woven)


@pytest.fixture
def told(monkeypatch):
    monkeypatch.setattr(potentials, "potential", lambda name: Told)


def setup(steps, envs_of_actor=4, n=1, window=3, world=(ENV, {}), **options):
    chosen = ShapingConfig(**{"potential": "random", "window": window} | options)
    part = shaping.Config(shaping=chosen, discount=GAMMA, seed=7)
    config, actors = PolicyConfig(network="mlp", hidden=8), ActorsConfig(n=n, envs=envs_of_actor, steps=steps)
    spec = envs.spec(world[0], **world[1])
    return ActorSetup(*world, spec, actors, config, 5, True, wrappers={"shaping": part})


class Lived:
    """Chunks of these lengths, by the wrapper alone; actions are given, mostly to stay: some episodes are cut off."""

    def __init__(self, lengths, n=4, first=0, window=4, **options):
        part = setup(1, window=window, **options).wrappers["shaping"]
        env = shaping.make(part, envs.make(ENV, n, 3, first), wrappers.Setting("test"))
        drawn = np.random.default_rng(0).choice(3, size=(sum(lengths), 4), p=(0.1, 0.8, 0.1))
        actions = iter(drawn[:, first : first + n])
        self.position, self.last = [env.begin()["position"].copy()], {}
        paid, terminated, truncated = [], [], []
        for length in lengths:
            start = len(terminated)
            for _ in range(length):
                transition = env.advance(next(actions))
                for row, env_index in enumerate(transition.final_index):
                    self.last[len(terminated), env_index] = transition.final_obs["position"][row]
                self.position.append(transition.obs["position"].copy())
                terminated.append(transition.terminated.copy())
                truncated.append(transition.truncated.copy())
            chunk = SimpleNamespace(terminated=np.stack(terminated[start:]), rewards={})
            env.finish(chunk)
            paid.append(chunk.rewards["shaping"])
        self.paid, self.terminated, self.truncated = np.concatenate(paid), np.stack(terminated), np.stack(truncated)


def phi_of(position):
    """What the potential says of a place in toy, asked apart."""
    made = potentials.potential("random")(PotentialSetup(ShapingConfig(), envs.spec(ENV).fields, 7))
    return float(made.phi(Windows.of({"position": np.array([[position]])}, np.zeros((1, 0), np.int64)))[0])


def left_over(lived):
    """Of each episode, how far what was paid, discounted, is from -phi(s_0) + gamma^T phi(s_T) where it was cut off."""
    found = {"terminated": [], "truncated": []}
    for n in range(4):
        start = 0
        for t in np.flatnonzero(lived.terminated[:, n] | lived.truncated[:, n]).tolist():
            paid = lived.paid[start : t + 1, n].astype(np.float64)
            expected = -phi_of(lived.position[start][n])
            if lived.truncated[t, n]:
                expected += GAMMA ** len(paid) * phi_of(lived.last[t, n])
            off = (GAMMA ** np.arange(len(paid)) * paid).sum() - expected
            found["truncated" if lived.truncated[t, n] else "terminated"].append(abs(off))
            start = t + 1
    assert min(map(len, found.values())) > 3
    return np.array([*found["terminated"], *found["truncated"]])


@pytest.mark.parametrize("steps", [1, 5, 16])
def test_what_is_paid_in_an_episode_is_the_potential_of_its_ends(steps):
    """Over borders of chunks."""
    assert left_over(Lived([steps] * (160 // steps))).max() < 1e-6


@pytest.mark.parametrize("form", ["additive", "published"])
def test_the_other_forms_leave_something_over_so_they_may_change_what_is_best(form):
    assert (left_over(Lived([16] * 10, form=form)) > 0.01).mean() > 0.8


def test_how_envs_are_cut_into_chunks_and_actors_changes_nothing(woven):
    one = Lived([24]).paid
    assert (one != 0).mean() > 0.9
    for lengths in ([1] * 24, [5, 1, 18], [23, 1]):
        np.testing.assert_array_equal(one, Lived(lengths).paid)
    np.testing.assert_array_equal(one[:, :1], Lived([24], n=1).paid)
    np.testing.assert_array_equal(one[:, 2:], Lived([7, 17], n=2, first=2).paid)


@pytest.mark.parametrize("form", FORMS)
def test_a_successor_is_paid_what_the_lost_actor_was(woven, form):
    made = setup(8, form=form)
    weights = get_weights(build_policy(made.policy, made.spec, 0))
    actor = RolloutActor(made, 0)
    summary, _ = [actor.rollout(weights, 1) for _ in range(3)][-1]
    successor = RolloutActor(made, 0, 1, summary.state)
    for _ in range(3):
        lost, again = actor.rollout(weights, 1)[1], successor.rollout(weights, 1)[1]
        np.testing.assert_array_equal(lost.rewards["shaping"], again.rewards["shaping"])


def test_another_potential_does_not_go_on_with_a_run():
    made = setup(4)
    weights = get_weights(build_policy(made.policy, made.spec, 0))
    summary, _ = RolloutActor(made, 0).rollout(weights, 1)
    for other in (setup(4, scale=2.0), setup(4, window=5), setup(4, form="additive")):
        with pytest.raises(ValueError, match="this run started with another potential"):
            RolloutActor(other, 0, 1, summary.state).rollout(weights, 1)


def read(lengths, n=4, first=0, restarts=False):
    """What a potential of texts pays in chunks of these lengths; with restarts, each is played by a successor."""
    part = setup(1, window=4).wrappers["shaping"]

    def make():
        return shaping.make(part, envs.make(CAPTIONED[0], n, 3, first, **CAPTIONED[1]), wrappers.Setting("test"))

    actions = iter(np.random.default_rng(0).integers(3, size=(sum(lengths), 4))[:, first : first + n])
    env, paid = make(), []
    env.begin()
    for length in lengths:
        terminated = np.stack([env.advance(next(actions)).terminated.copy() for _ in range(length)])
        chunk = SimpleNamespace(terminated=terminated, rewards={})
        env.finish(chunk)
        paid.append(chunk.rewards["shaping"])
        if restarts:
            state, env = env.state(), make()
            env.restore(state)
            for name, value in env.state().items():
                np.testing.assert_array_equal(value, state[name])
    return np.concatenate(paid)


def test_texts_are_what_is_written_whatever_the_chunks_the_envs_and_the_restarts(told):
    one = read([24])
    assert (one != 0).mean() > 0.9
    for lengths in ([1] * 24, [5, 1, 18]):
        np.testing.assert_array_equal(one, read(lengths))
    np.testing.assert_array_equal(one, read([5, 1, 18], restarts=True))
    np.testing.assert_array_equal(one[:, 1:3], read([7, 17], n=2, first=1))


def test_a_trail_that_remembers_no_texts_is_refused():
    trail = Trail(["mission"], 3, ["mission"], TextTable())
    with pytest.raises(ValueError, match="does not remember 3 observations of mission"):
        trail.restore({"obs.mission": np.zeros((3, 2), np.int32), "actions": np.zeros((3, 2), np.int64)})


@pytest.mark.parametrize(("potential", "world"), [(Woven, (ENV, {})), (Told, CAPTIONED)])
def test_a_table_of_texts_that_is_begun_anew_changes_nothing(potential, world, monkeypatch):
    monkeypatch.setattr(potentials, "potential", lambda name: potential)
    made = setup(8, world=world)
    weights = get_weights(build_policy(made.policy, made.spec, 0))
    plain, forgetful = RolloutActor(made, 0), RolloutActor(made, 0)
    for _ in range(3):
        expected = plain.rollout(weights, 1)[1]
        with monkeypatch.context() as patched:
            patched.setattr(rollout, "MOST_TEXTS", 0)
            found = forgetful.rollout(weights, 1)[1]
        np.testing.assert_array_equal(expected.rewards["shaping"], found.rewards["shaping"])


def test_options_of_other_potentials_make_it_no_other():
    def identity(**options):
        return shaping.identity(setup(4, **options).wrappers["shaping"]).tobytes()

    assert identity() == identity(shows="image")
    others = ({"scale": 2.0}, {"window": 4}, {"potential": "code"}, {"form": "additive"})
    assert len({identity(), *(identity(**options) for options in others)}) == 5


class Filed(Woven):
    """Made of a file that an option names."""

    class Config(Part):
        path: Artifact = ""
        strength: float = 1.0

    @classmethod
    def content(cls, config):
        return sha256(Path(config.own(Filed.Config).path))


def test_a_file_that_moved_is_the_same_and_one_with_another_content_is_not(monkeypatch, tmp_path):
    monkeypatch.setattr(potentials, "potential", lambda name: Filed)

    def part(content, folder="a", strength=1.0):
        (tmp_path / folder).write_text(content)
        chosen = ShapingConfig(potential="random", path=str(tmp_path / folder), strength=strength)
        return shaping.Config(shaping=chosen, discount=GAMMA, seed=7)

    def identity(*args):
        return shaping.identity(part(*args)).tobytes()

    assert identity("x") == identity("x", "b")
    assert len({identity("x"), identity("y"), identity("x", "a", 2.0)}) == 3
    told = shaping.inputs(part("x"))
    assert told["shaping.content"] == hashlib.sha256(b"x").hexdigest()
    assert told["shaping.identity"] == identity("x").hex()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_is_an_error_that_names_the_potential(woven, monkeypatch, bad):
    monkeypatch.setattr(Woven, "phi", lambda self, windows: np.full(len(windows), bad, np.float32))
    with pytest.raises(FloatingPointError, match="potential random gave no finite number"):
        Lived([4])


def test_its_time_is_its_own(woven, monkeypatch):
    slow = Woven.phi
    monkeypatch.setattr(Woven, "phi", lambda self, windows: time.sleep(0.1) or slow(self, windows))
    made = setup(4)
    weights = get_weights(build_policy(made.policy, made.spec, 0))
    actor, before = RolloutActor(made, 0), {}
    for _ in range(3):
        actor.rollout(weights, 1)
        now = actor.numbers()
        assert all(now[name] >= seconds for name, seconds in before.items())  # counters never fall
        before = now
    assert before["actor/seconds/shaping"] >= 0.3


def test_what_it_counts_are_sums_over_a_chunk():
    made = setup(8)
    weights = get_weights(build_policy(made.policy, made.spec, 0))
    actor = RolloutActor(made, 0)
    actor.rollout(weights, 1)
    summary, chunk = actor.rollout(weights, 1)
    told = summary.report["shaping"]
    assert told["windows"] == 8 * 4 + len(chunk.final_index)
    assert told["paid_sum"] == pytest.approx(np.abs(chunk.rewards["shaping"]).sum(), rel=1e-6)
    assert told["phi_sum"] == pytest.approx(sum(map(phi_of, chunk.obs["position"][1:].ravel())), rel=1e-5)


def test_a_run_does_not_go_on_with_another_potential(tmp_path):
    words = [
        "env=toy/Line",
        "cluster=inline",
        "actors.envs=4",
        "actors.steps=8",
        "learner.minibatch=16",
        "evaluate.every=0",
    ]
    words += ["evaluate.episodes=4", "evaluate.videos=0", "learner.env_steps=128", f"run.folder={tmp_path}"]
    for name, first, then in (("a", "random", "none"), ("b", "none", "random"), ("c", "random", "random")):
        config = compose([*words, f"run.name={name}", f"method.shaping.potential={first}", "learner.env_steps=128"])
        assert controller.run(config) == 0
        changed = update(
            config, [f"method.shaping.potential={then}", "method.shaping.window=3", "learner.env_steps=256"]
        )
        with pytest.raises(RunError, match="was trained with another shaping"):
            assert_resumable(changed, RunFolder(tmp_path / name), checkpoint.latest(tmp_path / name / "checkpoints"))
        rows = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for row in (row for row in rows if row["kind"] == "train"):
            assert ("shaping/share" in row, "time/shaping" in row) == (first != "none",) * 2
            assert 0 < row.get("shaping/share", 0.5) <= 1
            assert 0 < row.get("time/shaping", 0.5) < 1
        made_of = json.loads((tmp_path / name / "stages" / "train" / "manifest.json").read_text())["inputs"]
        assert made_of.get("shaping", "none").partition(",")[0] == first
        longer = update(config, ["learner.env_steps=256"])
        assert_resumable(longer, RunFolder(tmp_path / name), checkpoint.latest(tmp_path / name / "checkpoints"))


def test_its_share_of_the_reward_is_by_size_and_weight():
    made = setup(8)
    config = LearnerConfig(minibatch=16, reward_weights={"shaping": 0.5})
    learner = Learner(LearnerSetup(config, made.policy, made.spec, 0, (1, 4), PPOConfig()))
    chunk = RolloutActor(made, 0).rollout(learner.ready(), 0)[1]
    chunk.rewards = {"env": np.full_like(chunk.log_prob, 0.25), "shaping": np.full_like(chunk.log_prob, -1.0)}
    assert learner.update(0, 0, chunk)[0]["shaping/share"] == pytest.approx(2 / 3)


def test_evaluation_is_not_paid_and_the_policy_sees_what_it_saw():
    made = setup(4)
    assert wrappers.seen(made.wrappers, made.spec) == made.spec
    weights = get_weights(build_policy(made.policy, made.spec, 0))
    actor = RolloutActor(made, 0)
    assert set(actor.rollout(weights, 1)[1].rewards) == {"env", "shaping"}
    assert actor.evaluate(weights, 1, envs.HELD_OUT_FIRST + np.arange(4), "policy", True, 0).report == {}


def test_who_is_paid_by_distance_plays_by_what_a_player_sees():
    level, drawn = "babyai/Text-PickUp-RedBall-S20", {"levels": "native"}
    made = setup(8, world=(level, drawn | {"distance": True}), potential="oracle")
    weights = get_weights(build_policy(made.policy, made.spec, 0))
    plain = setup(8, world=(level, drawn))
    assert list(weights) == list(get_weights(build_policy(plain.policy, plain.spec, 0)))
    chunk = RolloutActor(made, 0).rollout(weights, 1)[1]
    assert "distance" not in chunk.obs
    assert set(np.unique(np.sign(chunk.rewards["shaping"]))) == {-1.0, 1.0}


def test_a_configuration_says_whether_there_is_shaping_and_what_is_wrong_with_it():
    assert "shaping" not in wrappers.chosen(compose(["env=toy/Line"]))
    config = compose(["env=toy/Line", "method.shaping.potential=random", "learner.discount=0.8", "seed=4"])
    part = wrappers.chosen(config)["shaping"]
    assert (part.discount, part.seed, part.shaping.window) == (0.8, 4, 5)
    for word, said in (
        ("method.shaping.potential=rando", "did you mean random"),
        ("method.shaping.windows=3", "window"),
        ("method.shaping.window=0", "method.shaping.window"),
    ):
        with pytest.raises(Exception, match=said):
            compose(["env=toy/Line", "method.shaping.potential=random", word])
