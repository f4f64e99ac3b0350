"""DRRN beside its plain form; each text read once; it learns what names mean; the rivals' experiments run."""

import dataclasses
import json

import numpy as np
import pytest
import torch

import envs
from actors import ActorsConfig, ActorSetup, RolloutActor
from cluster import run as controller
from cluster.config.tree import compose
from envs.api import EnvSpec, Field
from learner.algorithms.dqn import DQN, DQNConfig
from learner.algorithms.dqn.deduplicate import deduplicate, texts_of
from learner.algorithms.ppo import PPOConfig
from learner.config import LearnerConfig
from learner.group import build_policy, get_weights, set_weights
from learner.models import PolicyConfig
from learner.models.config import HISTORY as FIELD
from learner.models.config import remembered
from learner.models.language.prompt import PromptConfig
from learner.models.text_encoder import GRUText
from llm_service.errors import UsageError
from tests.learner.setups import rank_of
from tests.learner.test_deduplicate import plain_loss, sample_of

WORLD, OPTIONS = "babyai/GoToRedBall", {"captions": True, "actions": 6}
READS = ["mission", "caption", FIELD]
CONFIG = PolicyConfig(network="drrn", reads=READS, text="gru", hidden=16, head="dueling")
SPEC = remembered(CONFIG, envs.spec(WORLD, **OPTIONS))
SAID = ["go to the red ball", "You see a red ball 1 step left.", "You see a wall 2 steps forward.", "turn left", ""]


@pytest.fixture(autouse=True)
def one_thread():
    """Networks this small only wait for a second."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def states(n, seed=0):
    """Random states: rows of `SAID`."""
    random = np.random.default_rng(seed)
    return {name: torch.from_numpy(random.integers(len(SAID), size=(n, *SPEC.fields[name].shape))) for name in READS}


def values(policy, obs):
    """Q [B, A]."""
    return policy.q(*policy.features(policy.inputs(obs), policy.of_texts(policy.prepare(SAID), [len(SAID)])))[..., 0]


def read(gru, rows):
    """The last state of a GRU that reads [L, width], step by step."""
    state = torch.zeros(gru.hidden_size)
    linear = torch.nn.functional.linear
    for row in rows:
        new, old = (
            linear(x, w, b).chunk(3)
            for x, w, b in ((row, gru.weight_ih_l0, gru.bias_ih_l0), (state, gru.weight_hh_l0, gru.bias_hh_l0))
        )
        reset, keep = torch.sigmoid(new[0] + old[0]), torch.sigmoid(new[1] + old[1])
        state = (1 - keep) * torch.tanh(new[2] + reset * old[2]) + keep * state
    return state


def of_text(encoder, text):
    words = text.lower().replace(",", " ").replace(".", " ").split()
    rows = [encoder.row_of_word.get(word, 1) for word in words] or [0]
    return read(encoder.gru, [encoder.embedding.weight[row] for row in rows])


def test_q_is_that_of_plain_passes_over_every_word_and_every_pair():
    policy, obs = build_policy(CONFIG, SPEC, 0), states(7)
    with torch.no_grad():
        found = values(policy, obs)
        assert found.shape == (7, 6)
        for b in range(7):
            past = [SAID[row] for row in obs[FIELD][b]]  # oldest first: a caption, the action taken, and so on
            prompt = [SAID[obs["mission"][b]], *past, SAID[obs["caption"][b]]]
            state = read(policy.network.state, [of_text(policy.text, text) for text in prompt])
            for a, name in enumerate(SPEC.action_names):
                pair = torch.cat([state, of_text(policy.q.encoder, name)])
                wanted = policy.q.out(torch.relu(policy.q.mix(pair)))
                assert found[b, a].item() == pytest.approx(wanted.item(), abs=1e-5)


@pytest.mark.parametrize("name", ["mission", "caption", *range(4)])
def test_every_text_of_the_state_matters_and_so_does_its_place(name):
    policy, obs = build_policy(CONFIG, SPEC, 0), states(20)
    field, place = (FIELD, (slice(None), name)) if isinstance(name, int) else (name, slice(None))
    with torch.no_grad():
        before = values(policy, obs)
        other = {key: value.clone() for key, value in obs.items()}
        other[field][place] = (other[field][place] + 1) % len(SAID)
        assert ((values(policy, other) - before).abs() > 1e-6).any(-1).all()
        if isinstance(name, int):
            swapped = obs | {FIELD: obs[FIELD].roll(1, -1)}
            differs = (swapped[FIELD] != obs[FIELD]).any(-1)
            assert ((values(policy, swapped) - before).abs() > 1e-6).any(-1)[differs].all()


def test_actions_are_their_names_wherever_they_stand():
    order = [3, 0, 5, 1, 2, 4]
    moved = dataclasses.replace(SPEC, action_names=tuple(SPEC.action_names[a] for a in order))
    one, two = build_policy(CONFIG, SPEC, 0), build_policy(CONFIG, moved, 1)
    set_weights(two, get_weights(one))
    twice = dataclasses.replace(SPEC, action_names=(*SPEC.action_names[:5], SPEC.action_names[0]))
    with torch.no_grad():
        found = values(one, states(9))
        torch.testing.assert_close(values(two, states(9)), found[:, order])
        assert (found.std(-1) > 1e-4).all()
        same = values(build_policy(CONFIG, twice, 0), states(9))
        torch.testing.assert_close(same[:, 5], same[:, 0])


def test_gradients_reach_every_parameter_of_both_encoders():
    policy = build_policy(CONFIG, SPEC, 0)
    chosen = values(policy, states(30))[:, 2]
    chosen.square().sum().backward()
    encoders = {"text.embedding", "text.gru", "network.state", "q.encoder.embedding", "q.encoder.gru"}
    met = set()
    for name, parameter in policy.named_parameters():
        assert parameter.grad is not None, name
        if parameter.grad.abs().max() > 0:
            met |= {encoder for encoder in encoders if name.startswith(encoder)}
    assert met == encoders
    touched = policy.q.encoder.embedding.weight.grad.abs().amax(-1) > 0
    assert touched.sum() == 2  # "go forward": a Q is told by its own action's name alone


def test_a_code_is_of_the_text_alone():
    encoder = GRUText(SPEC.words, 8)
    with torch.no_grad():
        together = encoder(encoder.prepare(SAID))
        for text, code in zip(SAID, together, strict=True):
            torch.testing.assert_close(encoder(encoder.prepare([text]))[0], code)
            torch.testing.assert_close(of_text(encoder, text), code)
    assert encoder.prepare(["Turn left, then drop."]).min() > 1  # names of actions are words that it knows


def test_behaviour_is_a_softmax_over_values_and_a_share_of_any_action():
    head = build_policy(CONFIG, SPEC, 0).q
    q = torch.tensor([[0.0, 1.0, -2.0, 3.0, 0.5, 0.5], [-1e4, 0.0, 1e4, 0.0, 0.0, 0.0]])
    for epsilon in (0.0, 0.3, 1.0):
        head.epsilon.fill_(epsilon)
        log_probs, largest = head.behaviour(q)
        share = min(epsilon, 0.999)
        weights = np.exp(q.numpy().astype(float) - q.numpy().max(-1, keepdims=True))
        wanted = share / 6 + (1 - share) * weights / weights.sum(-1, keepdims=True)
        np.testing.assert_allclose(log_probs.exp(), wanted, atol=1e-6)
        assert torch.isfinite(log_probs).all()
        assert log_probs.argmax(-1).tolist() == [3, 2]
        assert largest.tolist() == [3.0, 1e4]


def test_who_acts_samples_from_the_softmax_without_any_epsilon():
    actors, wrappers = ActorsConfig(n=1, envs=8, steps=32), {"history": CONFIG}
    actor = RolloutActor(ActorSetup(WORLD, OPTIONS, SPEC, actors, CONFIG, 1, True, None, wrappers), 0)
    actor.player.policy.q.epsilon.fill_(0.0)
    _, chunk = actor.rollout(get_weights(actor.player.policy), 0)
    assert np.bincount(chunk.action.ravel(), minlength=6).min() > 10, "values that hardly differ make no choice"
    np.testing.assert_allclose(chunk.log_prob, np.log(1 / 6), atol=0.5)


# ---- learning -------------------------------------------------------------------------------------------------------


def learner_of(**options):
    """A DQN that has heard of 8 envs x 32 steps, and whose target differs from its policy."""
    actors, wrappers = ActorsConfig(n=1, envs=8, steps=32), {"history": CONFIG}
    actor = RolloutActor(ActorSetup(WORLD, OPTIONS, SPEC, actors, CONFIG, 1, True, None, wrappers), 0)
    dqn = DQN(
        rank_of(
            LearnerConfig(algorithm="dqn", minibatch=64, learning_rate=1e-3),
            build_policy(CONFIG, SPEC, 1),
            1,
            options=DQNConfig(capacity=4000, start_steps=10**9, keep="memory", **options),
            env_index=np.arange(8),
        )
    )
    dqn.learn(0, 0, [actor.rollout(get_weights(dqn.policy), 0)[1]])
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in dqn.target.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return dqn


@pytest.mark.parametrize("double", [True, False])
def test_losses_and_gradients_are_those_of_passes_over_every_row(double):
    dqn = learner_of(double=double)
    sample = sample_of(dqn)
    assert {len(np.unique(sample.obs[FIELD][:, place])) > 2 for place in range(4)} == {True}  # something was told
    ours, theirs = dqn.loss(next(dqn.drawn(sample)))[0], plain_loss(dqn, sample)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    found, wanted = (torch.autograd.grad(x.mean(), dqn.moved, materialize_grads=True) for x in (ours, theirs))
    for own, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(own, other, atol=1e-6, rtol=1e-3)


def test_a_step_reads_every_text_once(monkeypatch):
    dqn = learner_of()
    sample, rows = sample_of(dqn), []
    real = GRUText.forward
    monkeypatch.setattr(GRUText, "forward", lambda self, tokens: rows.append((self, len(tokens))) or real(self, tokens))
    dqn.loss(next(dqn.drawn(sample)))
    _, ids = texts_of(dqn.policy.text_fields, deduplicate(dqn.policy.fields, [sample.obs, sample.following])[0])
    assert [n for module, n in rows if module is dqn.policy.text] == [sum(map(len, ids))]
    assert sum(map(len, ids)) < 64 * 2 * 6 / 2  # what it would be for every row by itself
    names = [n for module, n in rows if module in (dqn.policy.q.encoder, dqn.target.q.encoder)]
    assert names == [6, 6, 6]  # for what was seen and what followed, and by the target: not for each row
    rows.clear()
    dqn.loss(next(dqn.drawn(sample)))
    assert not [n for module, n in rows if module is dqn.target.text]  # it stands still


BANDIT = EnvSpec("test/Bandit", {"said": Field("text")}, ("eat", "cut wood", "make fire"), words=("a", "b", "c", "d"))


def test_learns_which_action_each_text_wants():
    """16 texts of two words, told apart by their order too; of each pair of text and action, what it pays."""
    texts = [f"{one} {two}" for one in "abcd" for two in "abcd"]
    best = torch.tensor([(2 * i + j) % 3 for i in range(4) for j in range(4)])
    config = PolicyConfig(network="drrn", text="gru", hidden=32, head="dueling")
    policy = build_policy(config, BANDIT, 0)
    adam = torch.optim.Adam(policy.parameters(), 1e-2)
    obs, random = {"said": torch.arange(16)}, torch.Generator().manual_seed(0)
    for _ in range(300):
        q = policy.q(*policy.features(policy.inputs(obs), policy.of_texts(policy.prepare(texts), [16])))[..., 0]
        tried = torch.randint(3, (16,), generator=random)
        loss = torch.nn.functional.smooth_l1_loss(q[torch.arange(16), tried], (tried == best).float())
        adam.zero_grad()
        loss.backward()
        adam.step()
    policy.q.epsilon.fill_(0.0)
    assert q.argmax(-1).tolist() == best.tolist()
    assert policy.q.behaviour(q)[0].argmax(-1).tolist() == best.tolist()


# ---- whole runs -----------------------------------------------------------------------------------------------------

INLINE = ["cluster=inline", "actors.n=1", "evaluate.episodes=4", "evaluate.every=0", "evaluate.videos=0"]


def run(folder, name, *words):
    assert controller.run(compose([*INLINE, f"run.folder={folder}", f"run.name={name}", *words])) == 0
    return json.loads((folder / name / "stages/evaluate/results.json").read_text())


def test_it_learns_the_sentence_as_an_agent(tmp_path):
    words = ["env=toy/Line", "method=dqn", "policy.network=drrn", "policy.text=gru", "policy.hidden=32"]
    words += [
        "policy.prompt.observations=1",
        "learner.env_steps=2500",
        "learner.minibatch=32",
        "learner.dqn.keep=memory",
    ]
    words += [
        "learner.dqn.start_steps=128",
        "learner.dqn.samples_per_insert=8",
        "learner.dqn.target_every=120",
        "learner.dqn.decay_steps=1500",
    ]
    words += ["learner.learning_rate=1e-3", "actors.envs=8", "actors.steps=16"]
    assert run(tmp_path, "toy", *words, "evaluate.episodes=64")["success"]["rate"] == 1.0


@pytest.mark.parametrize(
    ("words", "steps"),
    [
        (["experiment=glam_drrn", "actors.envs=4", "learner.dqn.keep=memory", "learner.dqn.capacity=2000"], 640),
        (["experiment=glam_symbolic_ppo", "actors.envs=4", "learner.minibatch=40"], 320),
        (["experiment=glam_small", "method=random"], 0),
        (["experiment=glam_small", "method=expert"], 0),
    ],
    ids=["drrn", "symbolic_ppo", "random", "bot"],
)
def test_the_rivals_run(tmp_path, words, steps):
    words = [*words, *([f"learner.env_steps={steps}"] if steps else []), "policy.hidden=16"]
    result = run(tmp_path, "rival", *words)
    assert result["episodes"] == 4
    if steps:
        row = json.loads((tmp_path / "rival/metrics.jsonl").read_text().splitlines()[-1])
        assert row["env_steps"] >= steps
    if "experiment=glam_drrn" in words:
        assert row["replay/updates"] == (steps - 64) // 128  # the first chunk fills the first minibatch
        assert row["policy/epsilon"] == 0


def test_the_published_hyperparameters():
    drrn, ppo, ours = (compose([f"experiment=glam_{name}"]) for name in ("drrn", "symbolic_ppo", "small"))
    assert drrn.learner.minibatch / drrn.learner.part(DQNConfig).samples_per_insert == 128  # env steps a gradient step
    assert (drrn.learner.discount, drrn.learner.learning_rate, drrn.learner.anneal) == (0.9, 1e-4, False)
    assert drrn.policy.prompt.observations == 3
    rows = ppo.actors.n * ppo.actors.envs * ppo.actors.steps
    assert (rows / ppo.learner.minibatch, ppo.learner.part(PPOConfig).epochs, ppo.learner.discount) == (2, 4, 0.99)
    for rival in (drrn, ppo):
        assert (rival.env.id, rival.env.options["actions"]) == (ours.env.id, ours.env.options["actions"])
        assert (rival.learner.env_steps, rival.evaluate) == (ours.learner.env_steps, ours.evaluate)


def test_history_is_told_where_it_is_read():
    spec = envs.spec(WORLD, **OPTIONS)
    assert SPEC.fields[FIELD].shape == (4,)
    assert {"toggle", "turn"} <= set(SPEC.words)
    for changes in ({"network": "film"}, {"reads": ["mission", "caption"]}, {"prompt": PromptConfig(observations=1)}):
        assert remembered(CONFIG.model_copy(update=changes), spec) is spec
    assert FIELD in remembered(CONFIG.model_copy(update={"reads": []}), spec).fields


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["env.captions=false"], r"env\.captions=true adds caption"),
        (["env.captions=false", "policy.reads=[]"], r"policy\.prompt tells the field 'caption'"),
        (["policy.prompt.observations=1"], r"policy\.prompt\.observations above 1"),
    ],
)
def test_what_it_cannot_be_told_is_refused_with_the_reason(words, reason):
    with pytest.raises(UsageError, match=reason):
        compose(["experiment=glam_drrn", *words])


def test_pictures_are_refused():
    spec = EnvSpec("test/P", {"frame": Field("pixels", (40, 40, 3))}, ("a", "b"))
    with pytest.raises(ValueError, match="reads no pictures"):
        build_policy(PolicyConfig(network="drrn"), spec, 0)
