"""PPO of many tasks at once is that of each alone: by the formulas, to the bit beside others, and it learns."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import envs
from actors.histories import Histories
from learner.histories import HistoriesConfig
from learner.histories.ppo import PPO, PPOHistoriesConfig
from learner.histories.ppo.update import Networks, Rollout

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"steps": 24, "minibatch": 10, "epochs": 2, "hidden": 8, "learning_rate": 1e-2}


def lived(random, tasks, steps):
    """Steps of a room of 4 x 3 cells whose key counts, all by chance."""
    found = Rollout.empty(tasks, steps, 3)
    for column in (found.seen, found.after):
        column[..., 0], column[..., 1] = (
            random.integers(3, size=(tasks, steps)),
            random.integers(4, size=(tasks, steps)),
        )
        column[..., 2] = random.random((tasks, steps))
    found.action[:], found.reward[:] = random.integers(5, size=(tasks, steps)), random.random((tasks, steps)) < 0.3
    found.done[:] = random.random((tasks, steps)) < 0.2
    found.terminated[:] = found.done & (random.random((tasks, steps)) < 0.5)
    return found


class Alone:
    """One task's PPO as textbooks have it: modules, autograd and Adam of PyTorch, a step after the other."""

    def __init__(self, config, parameters):
        self.config, self.nets, at = config, [], 0
        for out in (5, 1):
            layers = [torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, out)]
            for layer in layers:
                layer.weight.data = parameters[at : at + 8 * layer.out_features].view(8, -1).T.clone()
                at += 8 * layer.out_features
                layer.bias.data = parameters[at : at + layer.out_features].clone()
                at += layer.out_features
            first, second, last = layers
            self.nets.append(torch.nn.Sequential(first, torch.nn.Tanh(), second, torch.nn.Tanh(), last))
        assert at == len(parameters)
        self.adam = torch.optim.Adam([p for net in self.nets for p in net.parameters()], config.learning_rate, eps=1e-5)

    def flat(self):
        layers = [layer for net in self.nets for layer in net[::2]]
        return torch.cat([part.flatten() for each in layers for part in (each.weight.T, each.bias)]).detach().numpy()

    @staticmethod
    def inputs(seen):
        one_hot = torch.nn.functional.one_hot
        row, column, paid = torch.from_numpy(seen).unbind(-1)
        return torch.cat([one_hot(row.long(), 3), one_hot(column.long(), 4), paid[:, None]], -1).float()

    def update(self, of, orders):
        config, (policy, value) = self.config, self.nets
        seen, after = self.inputs(of.seen), self.inputs(of.after)
        action, count = torch.from_numpy(of.action)[:, None], len(of.action)
        with torch.no_grad():
            old = policy(seen).log_softmax(-1).gather(1, action)[:, 0]
            now, following = value(seen)[:, 0], value(after)[:, 0]
        advantage, trace = torch.zeros(count), 0.0
        for t in reversed(range(count)):
            ahead = 0.0 if of.terminated[t] else config.discount * float(following[t])
            trace = 0.0 if of.done[t] else trace
            trace = float(of.reward[t]) + ahead - float(now[t]) + config.discount * config.gae_lambda * trace
            advantage[t] = trace
        target = advantage + now
        for order in orders:
            for index in torch.from_numpy(order).split(config.minibatch):
                log = policy(seen[index]).log_softmax(-1)
                ratio = (log.gather(1, action[index])[:, 0] - old[index]).exp()
                gain = advantage[index]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
                loss = -torch.minimum(ratio * gain, clipped * gain).mean()
                loss += 0.5 * (value(seen[index])[:, 0] - target[index]).square().mean()
                loss += config.entropy * (log.exp() * log).sum(-1).mean()
                self.adam.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_([p for n in self.nets for p in n.parameters()], config.gradient_clip)
                self.adam.step()


def test_an_update_is_the_textbooks_for_each_task():
    config, random = PPOHistoriesConfig(**SMALL, entropy=0.1, gradient_clip=0.2), np.random.default_rng(0)
    networks = Networks(config, envs.spec("dark/KeyDoor-4x3"), 0, np.array([4, 0, 3]))
    alone = [Alone(config, row) for row in networks.parameters]
    began = networks.parameters.numpy().copy()
    for rows in ([0, 1, 2], [1], [0, 2], [0, 1, 2]):  # tasks come to their updates at different times
        of, orders = lived(random, len(rows), 24), random.permuted(np.tile(np.arange(24), (2, len(rows), 1)), axis=2)
        networks.update(np.array(rows), of, orders)
        for i, row in enumerate(rows):
            own = Rollout(**{name: column[i] for name, column in vars(of).items()})
            alone[row].update(own, orders[:, i])
        found = [each.flat() for each in alone]
        np.testing.assert_allclose(networks.parameters, found, atol=2e-5)
    assert abs(networks.parameters.numpy() - began).max() > 0.05


def test_a_policy_says_of_a_task_what_its_own_network_does():
    config = PPOHistoriesConfig(**SMALL)
    networks = Networks(config, envs.spec("dark/KeyDoor-4x3"), 3, np.arange(5))
    networks.parameters += torch.randn(networks.parameters.shape, generator=torch.Generator().manual_seed(0))
    seen = lived(np.random.default_rng(0), 5, 1).seen[:, 0]
    for i, row in enumerate(networks.parameters):
        policy = Alone(config, row).nets[0]
        expected = policy(Alone.inputs(seen[i : i + 1])).detach()
        np.testing.assert_allclose(networks.logits(seen)[i], expected[0], atol=1e-5)


def test_weights_begin_orthogonal_and_follow_from_seed_and_task():
    config, spec = PPOHistoriesConfig(hidden=16), envs.spec("dark/KeyDoor-4x3")
    first, other = (Networks(config, spec, 0, np.array(tasks)).parameters for tasks in ([0, 1, 2], [2, 5]))
    assert torch.equal(first[2], other[0])
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], Networks(config, spec, 1, np.array([0])).parameters[0])
    into = first[0, : 8 * 16].view(8, 16)  # rows and columns one-hot, and what was paid
    torch.testing.assert_close(into @ into.T, 2 * torch.eye(8), atol=1e-5, rtol=0)


def played(world, tasks, episodes, **options):
    histories = Histories(
        envs.make(world, len(tasks), **options),
        HistoriesConfig(learner="ppo", episodes=episodes, ppo=SMALL | {"steps": 30}),
        5,
        tasks,
    )
    for _ in range(episodes):
        histories.play()
    return histories


@pytest.mark.parametrize(("world", "options"), [("dark/KeyDoor-5x4", {}), ("maze/Runner-7", {"mazes": 40})])
def test_tasks_beside_a_shard_do_not_show_to_the_bit(world, options):
    beside = played(world, np.arange(16 + 9), 5, **options)
    alone = played(world, np.arange(16, 16 + 9), 5, **options)
    (pieces, steps), (expected, lived) = beside.take(1), alone.take(0)
    assert expected.source.max() > 3 * 30  # several updates, none of which ends with an episode
    np.testing.assert_array_equal(pieces.length, expected.length)
    np.testing.assert_array_equal(steps.action, lived.action)
    np.testing.assert_array_equal(steps.reward, lived.reward)
    ours, theirs = (h.learner._shards[-1][1].parameters for h in (beside, alone))
    assert torch.equal(ours, theirs)


def test_returns_rise():
    """Twelve hidden goals in a room of 4 x 4 cells, 16 steps an episode; chance reaches them for a step or so."""
    config = HistoriesConfig(
        learner="ppo",
        episodes=160,
        ppo={"steps": 128, "minibatch": 32, "epochs": 6, "hidden": 32, "learning_rate": 4e-3},
    )
    histories = Histories(envs.make("dark/Room-4x4", 12), config, 0, np.arange(12))
    for _ in range(config.episodes):
        histories.play()
    returns = histories.take()[0].total.reshape(12, 160)
    assert returns[:, :20].mean() < 3
    assert returns[:, -20:].mean() > 8


def test_what_cannot_be_read_is_refused():
    with pytest.raises(ValueError, match="image of babyai/GoToLocal is neither: choose another world"):
        PPO.check(envs.spec("babyai/GoToLocal"))
    PPO.check(envs.spec("maze/Runner-7"))


def test_other_learners_do_without_pytorch():
    """A process of an actor is small without it."""
    code = "import sys, envs, numpy as np; from actors.histories import Histories, HistoriesConfig\n"
    code += "Histories(envs.make('dark/Room-4x3', 2), HistoriesConfig(), 0, np.arange(2)).play()\n"
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
