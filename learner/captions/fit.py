"""Fitting a captioner, as a role: each gradient step learns from states that were just passed.

Step k is a function of (seed, k) and of the steps before it: nothing is saved in between, and an interrupted fit starts
again, with the same result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from envs.api import CELLS
from learner.captions.about import PICTURE, CaptionerShape
from learner.captions.accuracy import Accuracy
from learner.captions.captioner import Captioner
from learner.captions.config import CaptionerConfig
from learner.captions.frames import Recent, Wanderers
from learner.captions.network import CaptionNetwork
from learner.models.weights import Weights, get_weights
from learner.optim.adam import Adam, optimiser_step, side_by_side
from learner.optim.collective import Group
from learner.optim.device import settle
from learner.parts import step_size

EVERY = 4
"""Gradient steps from one step of the players to the next: many players, since those of one world see much alike."""


@dataclass(frozen=True)
class CaptionerSetup:
    """Everything that the role needs to build itself again."""

    captioner: CaptionerConfig
    env_id: str
    options: dict[str, Any]
    seed: int
    threads: int = 1


class CaptionerFitter:
    """A role. Methods are called by the controller, one at a time."""

    def __init__(self, setup: CaptionerSetup) -> None:
        torch.set_num_threads(setup.threads)
        self.setup, config = setup, setup.captioner
        self._players = Wanderers(setup.env_id, setup.options, config.players, setup.seed)
        spec = self._players.env.env_spec
        self.shape = CaptionerShape(
            facts=[(kind.name, kind.group, kind.size, kind.anywhere) for kind in spec.facts],
            events=[*self._players.events],
            cells=spec.fields[CELLS].shape[0],
            side=spec.fields[PICTURE].shape[0],
            width=config.width,
            hidden=config.hidden,
        )
        with torch.random.fork_rng([]):
            torch.manual_seed(setup.seed)
            self.network = CaptionNetwork(self.shape)
        parameters, self._gradient = side_by_side([*self.network.parameters()])
        settle(parameters.device, True)
        self._adam, self._recent, self.step = Adam(parameters), Recent(config.recent), 0

    def ready(self) -> dict[str, int]:
        """Counts, once the role is built."""
        return {"parameters": self._gradient.numel(), "steps": self.setup.captioner.steps}

    def fit(self, steps: int) -> list[list[float]]:
        """Take this many gradient steps, or the remaining ones. Returns the losses of facts and of events, nats, and
        the gradient's norm, of each.

        Raises:
            FloatingPointError: a gradient was not finite.
        """
        return [self._fit_one() for _ in range(min(steps, self.setup.captioner.steps - self.step))]

    def _fit_one(self) -> list[float]:
        config, random = self.setup.captioner, np.random.default_rng([self.setup.seed, self.step])
        if self.step % EVERY == 0:
            self._recent.add(self._players.step())
        steps = self._recent.sample(config.batch, random)
        self._gradient.zero_()
        before, after = (self.network(torch.from_numpy(pictures)) for pictures in (steps.before, steps.after))
        of_facts = self.network.loss(after, torch.from_numpy(steps.cells), torch.from_numpy(steps.facts))
        of_events = cross_entropy(self.network.event_logits(before.codes, after.codes), torch.from_numpy(steps.event))
        (of_facts + of_events).backward()  # type: ignore[no-untyped-call]
        rate = step_size(self.step, config.steps, config.learning_rate, config.warmup)
        norm, usable = optimiser_step(self._adam, [self._gradient], Group(), config.gradient_clip, rate)
        if not usable:
            raise FloatingPointError(f"the gradient of step {self.step} is not finite: lower method.learning_rate")
        self.step += 1
        return [float(of_facts.detach()), float(of_events.detach()), float(norm)]

    def result(self) -> tuple[CaptionerShape, Weights]:
        """The network's shape, and copies of its arrays."""
        return self.shape, get_weights(self.network)

    def measure(self, episodes: int, options: dict[str, Any]) -> dict[str, Any]:
        """Accuracy in held-out episodes of an environment with these options, see `measured`."""
        return measured(Captioner(*self.result()), self.setup.env_id, options, episodes)


def measured(captioner: Captioner, env_id: str, options: dict[str, Any], episodes: int) -> dict[str, Any]:
    """Accuracy of a captioner in held-out episodes of an environment with these options, as `Accuracy.table`."""
    players = Wanderers(env_id, options, episodes, 0, held_out=True)
    counts = Accuracy(players.env, captioner.shape.events)
    while (rows := players.playing).any():
        steps = players.step().take(rows)
        (_, before), (said, after) = captioner.states(steps.before), captioner.states(steps.after)
        counts.add(steps.facts, steps.event, said, captioner.events(before, after))
    return counts.table()
