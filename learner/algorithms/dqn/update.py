"""One rank of DQN: inserting, sampling, the gradient step, the target network.

Samples of many gradient steps are drawn at once (`drawn.py`). Duplicates in a step's sample are evaluated once, texts
too, and the target's outputs for an observation are remembered until the target changes (`deduplicate.py`). Where the
policy reads texts, its gradient is in closed form (`closed_form.py`). On a device other than the CPU, a sample is sent
in one copy, and reports are read once per update. The host waits only for priorities and for intrinsic rewards, because
the next sample needs them.

The limit is a forward and backward pass of the policy over the distinct observations, a forward pass over those that
follow, and Adam.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from envs.api import Chunk, EnvSpec
from learner.algorithms import Algorithm, AlgorithmSetup, LearnerSetup
from learner.algorithms.dqn.closed_form import ClosedForm, suits
from learner.algorithms.dqn.config import DQNConfig, check_dqn
from learner.algorithms.dqn.deduplicate import Remembered
from learner.algorithms.dqn.drawn import Drawn, drawn_by_step
from learner.batch import weigh
from learner.checkpoint import Arrays, Checkpoint, part_of
from learner.config import Configuration, own
from learner.curiosity.steps import COLUMN
from learner.models.config import visible
from learner.models.policy import Policy
from learner.models.q import project
from learner.optim.adam import Adam, optimiser_step, side_by_side
from learner.optim.device import read, read_mean
from learner.optim.precision import Halved, arithmetic, halves
from learner.potentials import COLUMN as SHAPING
from learner.store.columns import ReplayError
from learner.store.replay import Replay, Rows, Sample, Walk

MOST_DRAWN = 4096
"""Most rows sampled at once, of several gradient steps: most of the time of sampling 64 rows is calling operations."""
REPORT = ("losses/q", "losses/td_error", "policy/q_mean", "losses/gradient_norm", "losses/skipped")


@dataclass
class Counts:
    """All counters, over all ranks; `inserted` and `reward` are for this rank alone."""

    updates: int = 0  # gradient steps
    seen: int = 0  # env steps inserted
    fed: int = 0  # of these, since training began
    owed: float = 0.0  # gradient steps that are due
    rewarded: bool = False  # the rewards seen add up to 1
    decay_from: int = -1  # `seen` when epsilon began to fall, -1 before
    inserted: int = 0  # env steps of this rank
    reward: float = 0.0  # summed over the steps of this rank, columns by their weights


class DQN(Algorithm):
    """Owns the optimiser, the target and the replay of one rank; `learn` does everything.

    The replay is kept in `setup.folder`, or in memory if that is None or `learner.dqn.keep=memory`.
    """

    Config = DQNConfig
    on_disk = True

    # ---- asked before anything is built ---------------------------------------------------------------------------

    @classmethod
    def check(cls, config: Configuration, spec: EnvSpec) -> None:
        check_dqn(config, spec)

    @classmethod
    def batch(cls, config: Configuration) -> int:
        """The rows of a minibatch."""
        return config.learner.minibatch

    @classmethod
    def memory(cls, config: Configuration, row: int) -> int:
        """A replay in memory; its rows take memory as they are inserted."""
        learner, dqn = config.learner, config.learner.part(DQNConfig)
        return min(learner.n * dqn.capacity, learner.env_steps) * row if dqn.keep == "memory" else 0

    @classmethod
    def describe(cls, config: Configuration) -> str:
        return f"{config.learner.part(DQNConfig).samples_per_insert:g} rows replayed a step"

    @classmethod
    def assert_restorable(cls, setup: LearnerSetup, found: Checkpoint) -> None:
        """
        Raises:
            ReplayError: a rank cannot continue with its replay.
        """
        ranks, kept = setup.learner.n, sum(stem.startswith("rank-") for stem in found.arrays)
        if ranks != kept:
            raise ReplayError(f"{found.path} holds replays of learner.n={kept}: resume with that, not with {ranks}")
        fields, actions = visible(setup.policy, setup.spec).fields, len(setup.spec.action_names)
        dqn = own(setup.options, DQNConfig)
        for rank in range(ranks):
            folder = _folder(setup.rank_folder(rank), dqn)
            replay = Replay(fields, actions, setup.env_index(rank), dqn.capacity, dqn.n_step, folder=folder)
            replay.find(part_of(found.arrays[f"rank-{rank}"], "replay."))

    def __init__(self, setup: AlgorithmSetup) -> None:
        policy, group, config, dqn = setup.policy, setup.group, setup.config, own(setup.options, DQNConfig)
        assert isinstance(policy, Policy), "the configuration was checked: DQN needs action values"
        assert policy.q is not None, "the configuration was checked: policy.head is dueling"
        self.config, self.dqn, self.policy, self.q = config, dqn, policy, policy.q
        self.weights = config.weights_at(0)  # of reward columns; `learn` renews them
        self.group, self.seed, self.intrinsic = group, setup.seed, setup.intrinsic
        self.device = policy.device
        self.half = halves(config.autocast, self.device)
        self.size = max(1, config.minibatch // group.size)
        self.copy_every = max(1, round(dqn.target_every * dqn.samples_per_insert / config.minibatch))
        alpha, folder = dqn.alpha if dqn.prioritised else 0.0, _folder(setup.folder, dqn)
        self.replay = Replay(
            policy.fields, self.q.actions, setup.env_index, dqn.capacity, dqn.n_step, policy.stack, alpha, folder
        )
        self.owned = [p for layer in learning_layers(policy, dqn.fit) for p in layer.parameters()]
        parameters, self.gradient = side_by_side(self.owned)
        self.counts = Counts()
        self._set_epsilon()
        self.target = copy.deepcopy(policy)
        # What computes: `policy` and `target`, or copies of them with bfloat16 weights.
        self.learning, self.judging, self.copies = policy, self.target, list[Halved[Policy]]()
        if self.half and self.device.type == "cpu":
            self.copies = [Halved(each, each.q.last) for each in (policy, self.target) if each.q is not None]
            self.learning, self.judging = (each.network for each in self.copies)
        self.moved = [p for layer in learning_layers(self.learning, dqn.fit) for p in layer.parameters()]
        self.adam = Adam(parameters, self.moved if self.copies else ())
        closed = dqn.fit == "train_all" and suits(policy)
        self.closed_form = ClosedForm(self.learning, double=dqn.double) if closed else None
        # The gradients that the closed form writes: all in one if they are float32.
        of_copies = [gradient for p in self.moved if (gradient := p.grad) is not None]
        self.written = of_copies if self.copies else [self.gradient]
        self.remembered = Remembered(self.judging, lambda text_id: self.replay.texts[text_id])

    # ---- in and out ---------------------------------------------------------------------------------------------

    def learn(self, version: int, env_steps: int, chunks: Sequence[Chunk]) -> dict[str, Any]:
        """Insert the chunks, then take the gradient steps that they make due. No chunk is too old.

        Raises:
            FloatingPointError: a reward, or every gradient, was not finite.
        """
        counts, before = self.counts, self.counts.seen
        self.weights = self.config.weights_at(env_steps)
        ignored, own = self.replay.ignored, counts.inserted
        for chunk in chunks:
            if self.replay.insert(self.intrinsic.mark(chunk)):
                counts.inserted += chunk.steps
                rewards = {name: column for name, column in chunk.rewards.items() if name != SHAPING}
                counts.reward += float(weigh(rewards, self.weights).sum(dtype=np.float64))
        counts.seen, reward = round(self._sum(counts.inserted)), self._sum(counts.reward)
        counts.rewarded |= reward >= 1
        if counts.decay_from < 0 and (counts.rewarded or not self.dqn.decay_after_reward):
            counts.decay_from = counts.seen if self.dqn.decay_after_reward else 0
        ready = self.group.minimum(self.replay.rows) >= self.size  # on every rank, since all must step together
        # Rows may be fewer than the steps that were seen: a replay in memory is lost with its learner.
        ready &= 2 * self._sum(self.replay.rows) >= min(self.dqn.start_steps, self.dqn.capacity)
        if ready and counts.seen >= self.dqn.start_steps and (counts.rewarded or not self.dqn.train_after_reward):
            counts.fed += counts.seen - before
            counts.owed += (counts.seen - before) * self.dqn.samples_per_insert / self.config.minibatch
        # Not from `fed`: the ratio may have changed since the earlier steps. The small margin allows for rounding.
        due = math.floor(counts.owed + 1e-6)
        counts.owed -= due
        rate = self.config.step_size(env_steps)
        report = self._steps(due, rate, env_steps) if due > 0 else {}
        self._set_epsilon()
        report |= self.intrinsic.report()
        return report | {
            "dropped": self.replay.ignored - ignored,
            "learned": counts.inserted - own,
            "losses/learning_rate": rate,
            "policy/epsilon": self.epsilon,
            "replay/rows": self.replay.rows,
            "replay/lost": self.replay.lost,
            "replay/updates": counts.updates,
            "replay/ratio": counts.updates * self.config.minibatch / max(counts.fed, 1),
        }

    def begin(self) -> None:
        """The policy got other weights: continue from these, and reinitialise the layers that `reinit` selects."""
        if self.dqn.reinit:
            with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
                torch.manual_seed(self.seed)
                for layer in learning_layers(self.policy, self.dqn.fit):
                    for part in layer.modules():
                        if isinstance(part, nn.Linear):
                            part.reset_parameters()
        self._set_epsilon()
        self._copy()

    def state(self) -> dict[str, Arrays]:
        """The state of the optimiser and of the intrinsic reward, and the target."""
        target = {name: read(value).copy() for name, value in self.target.state_dict().items()}
        return {"optimiser": self.adam.state(), "target": target} | self.intrinsic.state()

    def rank_state(self) -> Arrays:
        """Counters and replay of this rank, and the state of its intrinsic reward."""
        counts = {f"counts.{name}": np.array(value) for name, value in asdict(self.counts).items()}
        replay = {f"replay.{name}": value for name, value in self.replay.state().items()}
        return counts | replay | self.intrinsic.rank_state()

    def restore(self, state: dict[str, Arrays], own: Arrays) -> None:
        if not own:
            raise ValueError("the checkpoint holds no replay of this rank: learner.n cannot change within a run of dqn")
        self.adam.restore(state["optimiser"])
        self.intrinsic.restore(state, own)
        self.target.load_state_dict({name: torch.from_numpy(value) for name, value in state["target"].items()})
        self.refresh()
        self.counts = Counts(**{name: own[f"counts.{name}"].item() for name in asdict(self.counts)})
        self.replay.restore(part_of(own, "replay."))
        self.remembered.forget()

    def _sum(self, number: float) -> float:
        """Over all ranks."""
        return self.group.mean([number])[0] * self.group.size

    def _set_epsilon(self) -> None:
        dqn, counts = self.dqn, self.counts
        share = 0.0 if counts.decay_from < 0 else min(1.0, (counts.seen - counts.decay_from) / dqn.decay_steps)
        self.epsilon = float(np.float32(dqn.epsilon_start + share * (dqn.epsilon_end - dqn.epsilon_start)))
        self.q.epsilon.fill_(self.epsilon)

    def _copy(self) -> None:
        self.target.load_state_dict(self.policy.state_dict())
        self.refresh()

    def refresh(self) -> None:
        """Policy or target have other weights, not by `_step`."""
        for each in self.copies:
            each.refresh()
        self.remembered.forget()

    # ---- a gradient step ----------------------------------------------------------------------------------------

    def _steps(self, n: int, rate: float, env_steps: int) -> dict[str, float]:
        beta = self.dqn.beta + (1 - self.dqn.beta) * min(1.0, env_steps / self.config.env_steps)
        # Priorities wait for the errors of the step before, intrinsic rewards learn from each step; pictures are large.
        alone = self.replay.alpha or self.intrinsic.term or any(f.kind == "pixels" for f in self.policy.fields.values())
        at_once = 1 if alone else max(1, MOST_DRAWN // self.size)
        reports = list[NDArray[np.float64] | Tensor]()
        while len(reports) < n:
            copied = self.copy_every - self.counts.updates % self.copy_every  # steps until the target changes
            steps = min(n - len(reports), at_once, copied)
            sample = self.sample(steps, beta)
            made = [*self.drawn(sample, steps)]  # one after the other: between products, code leaves the cache
            reports += [self._step(rate, sample.row, drawn) for drawn in made]
        means = dict(zip(REPORT, read_mean(reports).tolist(), strict=True))
        if means["losses/skipped"] == 1:
            raise FloatingPointError("no gradient of this update was finite; rewards or observations may not be")
        return means

    def sample(self, steps: int, beta: float) -> Sample:
        """What the next `steps` gradient steps learn from, one after the other, [steps * B]."""
        random = np.random.default_rng([self.seed, self.counts.updates, self.group.rank])
        return self.replay.sample(steps * self.size, random, self.config.discount, self.rewards, beta)

    def _step(self, rate: float, row: Rows, drawn: Drawn) -> NDArray[np.float64] | Tensor:
        """One gradient step of size `rate`. Returns the numbers that `REPORT` names.

        row: [B] in the replay, of what was drawn; only priorities need it.
        """
        if self.closed_form:
            away, means = self.closed_form(drawn, self.theirs(drawn))
            gradients: Sequence[Tensor] = self.written
        else:
            with arithmetic(self.half, self.device.type):
                loss, error, value = self.loss(drawn)
            mean = (drawn.numbers["weight"] * loss).mean()
            gradients = torch.autograd.grad(mean, self.moved, materialize_grads=True)
            means = torch.stack([mean.detach(), error.abs().mean(), value.mean()])
            away = loss if self.q.atoms > 1 else error
        norm, usable = optimiser_step(self.adam, gradients, self.group, self.config.gradient_clip, rate)
        if self.replay.alpha and (usable if self.adam.on_host else read(usable)):
            self.replay.prioritise(row, read(away))
        self.counts.updates += 1
        if self.counts.updates % self.copy_every == 0:
            self._copy()
        if not self.adam.on_host:
            return torch.stack([*means, norm, (~usable).float()])
        return np.array([*read(means), norm, not usable])

    def rewards(self, walk: Walk) -> NDArray[np.float32]:
        """Rewards of steps [B, n]: the weighted sum of columns, scaled and clipped, plus the unclipped columns.

        Two columns are not clipped: shaping, because clipping it could change the optimal policies, and the intrinsic
        reward, which is computed from the observations of each sample and already normalised.
        """
        weights, scale = self.weights, np.float32(self.config.reward_scale)
        clip = np.float32(math.inf if self.dqn.reward_clip is None else self.dqn.reward_clip)
        columns = {name: column for name, column in walk.rewards.items() if name != COLUMN}
        whole = {name: columns.pop(name) for name in (SHAPING,) if name in columns}
        worth: NDArray[np.float32] = np.clip(weigh(columns, weights) * scale, -clip, clip)
        return worth + weigh(whole | self.intrinsic.pay_walk(walk, self.replay), weights) * scale

    def drawn(self, sample: Sample, steps: int = 1) -> Iterator[Drawn]:
        """What each of the steps learns from."""

        def ahead(*following: Any) -> Tensor:
            with arithmetic(self.half):
                return self.remembered(*following)

        many = steps > 1 and self.remembered.by_row and self.device.type == "cpu"
        return drawn_by_step(
            sample, steps, self.policy, lambda text_id: self.replay.texts[text_id], ahead if many else None
        )

    def loss(self, drawn: Drawn) -> tuple[Tensor, Tensor, Tensor]:
        """For each of B rows: the loss, with gradient; the value's error and the value, without."""
        seen, own, numbers, q = drawn.seen, drawn.own, drawn.numbers, self.learning.q
        assert q is not None
        sizes = [*map(len, drawn.ids)]
        texts = self.learning.of_texts(drawn.texts, sizes)
        outputs = judge(self.learning, seen, slice(own), texts)
        chosen = outputs[numbers["now"], numbers["action"]]  # [B, atoms]
        reward, discount, place = numbers["reward"], numbers["discount"], numbers["place"]
        with torch.no_grad():
            theirs = self.theirs(drawn)
            if self.dqn.double:
                best = self.q.mean(outputs).argmax(-1)
                if drawn.others:  # otherwise every following one is known, and networks need a row
                    others = q.best(*self.learning.features(select(seen, slice(own, None)), texts))
                    best = torch.cat([best, others])
                best = best[numbers["after"]]
            else:
                best = self.q.mean(theirs).argmax(-1)[place]
            expected = theirs[place, best]
            target = reward + discount * self.q.mean(expected)
            value = self.q.mean(chosen.detach())
            if self.q.atoms > 1:
                aim = project(expected.softmax(-1), reward, discount, self.q.support)
        if self.q.atoms > 1:
            loss = -(aim * chosen.log_softmax(-1)).sum(-1)
        else:
            loss = nn.functional.smooth_l1_loss(chosen.squeeze(-1), target, reduction="none")
        return loss, value - target, value

    def theirs(self, drawn: Drawn) -> Tensor:
        """The target's outputs [n, A, atoms] for the n distinct observations that follow, without gradient."""
        if drawn.theirs is not None:
            return drawn.theirs
        seen, needed = drawn.seen, drawn.numbers["needed"]
        with arithmetic(self.half, self.device.type):
            if self.device.type == "cpu":
                return self.remembered(seen, needed, drawn.ids, drawn.keys)
            return judge(self.target, seen, needed, self.target.of_texts(drawn.texts, [*map(len, drawn.ids)]))


def judge(policy: Policy, seen: Mapping[str, Tensor], which: slice | Tensor, texts: Tensor) -> Tensor:
    """Outputs of the policy's head of action values for n of the inputs [U, ...]: [n, A, atoms]."""
    assert policy.q is not None
    outputs: Tensor = policy.q(*policy.features(select(seen, which), texts))
    return outputs


def select(seen: Mapping[str, Tensor], which: slice | Tensor) -> dict[str, Tensor]:
    """Some of the inputs [U, ...]."""
    return {name: value[which] for name, value in seen.items()}


def learning_layers(policy: Policy, fit: Literal["train_all", "linear", "critic"]) -> Sequence[nn.Module]:
    """The modules whose parameters the optimiser owns."""
    assert policy.q is not None
    if fit == "linear":
        return policy.q.last
    return [policy.q if fit == "critic" else policy]


def _folder(folder: Path | None, dqn: DQNConfig) -> Path | None:
    """Where a rank that may write to `folder` keeps its replay; None: in memory."""
    return folder if dqn.keep == "disk" else None
