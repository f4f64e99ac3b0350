"""Two ranks over Gloo step along the gradient that one process finds in the batch of both."""

import dataclasses
from pathlib import Path

import numpy as np
import torch

from learner.batch import collate
from learner.group import build_policy
from learner.models import PolicyConfig
from learner.optim.collective import Group
from tests.learner.ranks import both
from tests.learner.setups import ppo_of
from tests.learner.test_dqn import apart, learner_of, live
from tests.learner.test_ppo import SEED, VERSION, play, trained

SHARE = 1e-5
"""Of the largest number of a gradient: float32 sums in another order."""
NUMBERS = ("action", "reward", "discount", "weight")


def stepped(adam):
    """What an optimiser is told to step along; it then does not."""
    taken = []
    adam.step = lambda gradients, rate, factor: taken.append(np.concatenate([np.ravel(part) for part in gradients]))
    return taken


def assert_one_gradient(folder, expected):
    zero, one = (np.load(Path(folder) / f"{rank}.npy") for rank in range(2))
    assert np.array_equal(zero, one)
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(zero, expected, rtol=0, atol=SHARE * np.abs(expected).max())


def ppo(ranks, chunks_of, group=None):
    """The gradient of the one step of an update that takes a whole batch at once, the chunks `chunks_of` in it."""
    torch.set_num_threads(1)
    chosen = PolicyConfig(network="mlp", hidden=16)
    spec, chunks = play("toy/Line", chosen)
    policy = trained(build_policy(chosen, spec, 0))
    rows = chunks[0].action.size * ranks
    learner = ppo_of(policy, SEED, group, minibatch=rows, epochs=1, gradient_clip=1e9)
    taken = stepped(learner.adam)
    learner.update(collate(chunks[chunks_of], policy, VERSION, 1.0), VERSION, 0)
    assert len(taken) == 1
    return taken[0]


def rank_of_ppo(folder, rank, address):
    np.save(Path(folder) / f"{rank}.npy", ppo(2, slice(rank, rank + 1), Group(rank, 2, address)))
    print(rank)


def test_two_ranks_of_ppo_are_one_with_the_double_batch(tmp_path):
    assert both("test_two_ranks", "rank_of_ppo", str(tmp_path)) == [0, 1]
    assert_one_gradient(tmp_path, ppo(2, slice(0, 2)))
    half = ppo(1, slice(0, 1))
    assert np.abs(half - np.load(tmp_path / "0.npy")).max() > 1e-3, "one chunk alone teaches something else"


def rank_of_dqn(folder, rank, address):
    """Keeps what this rank has drawn from the replay of its own life, and what both then step along."""
    torch.set_num_threads(1)
    dqn, actor = learner_of(group=Group(rank, 2, address), learner={"gradient_clip": 1e9}, start_steps=10**9)
    live(dqn, actor, 3)
    apart(dqn)
    random = np.random.default_rng([dqn.seed, dqn.counts.updates, rank])  # as the step draws
    sample = dqn.replay.sample(dqn.size, random, dqn.config.discount, dqn.rewards, 1.0)
    kept = {name: getattr(sample, name) for name in NUMBERS}
    for part in ("obs", "following"):
        kept |= {f"{part}.{name}": value for name, value in getattr(sample, part).items()}
    np.savez(Path(folder) / f"{rank}.npz", **kept)
    taken = stepped(dqn.adam)
    dqn._steps(1, 1e-3, 0)
    np.save(Path(folder) / f"{rank}.npy", taken[0])
    print(rank)


def test_two_ranks_of_dqn_are_one_with_the_double_batch(tmp_path):
    assert both("test_two_ranks", "rank_of_dqn", str(tmp_path)) == [0, 1]
    drawn = [dict(np.load(tmp_path / f"{rank}.npz")) for rank in range(2)]
    assert any((drawn[0][name] != drawn[1][name]).any() for name in drawn[0]), "they lived different lives"
    whole = {name: np.concatenate([one[name] for one in drawn]) for name in drawn[0]}
    dqn, actor = learner_of(start_steps=10**9)
    live(dqn, actor)
    apart(dqn)
    parts = {
        part: {name.partition(".")[2]: value for name, value in whole.items() if name.startswith(f"{part}.")}
        for part in ("obs", "following")
    }
    sample = dqn.replay.sample(32, np.random.default_rng(0), dqn.config.discount, dqn.rewards)
    made = next(dqn.drawn(dataclasses.replace(sample, **parts, **{name: whole[name] for name in NUMBERS})))
    loss = (made.numbers["weight"] * dqn.loss(made)[0]).mean()
    gradients = torch.autograd.grad(loss, dqn.moved, materialize_grads=True)
    assert_one_gradient(tmp_path, np.concatenate([part.numpy().ravel() for part in gradients]))
