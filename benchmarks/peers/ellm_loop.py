"""The published design of ELLM as one loop, rebuilt with our own code: one world, one process, all parts in sequence.

    caption ──> goals: by text from a cache, else a query that blocks ──> epsilon-greedy action ──> step
            ──> reward: cosine of the event's name and the goals ──> every 4th step, one update on 64 rows

Du et al. 2023 (arXiv 2302.06692): one env; goals of a situation are queried when they are needed; double dueling 3-step
DQN with uniform replay, whose target has its own heads but no encoder of its own. The state is one text, the goals are
another; embeddings are frozen and cached by text.

The published loop draws two pictures in each step, even when the state is words: the env's own of 64 x 64, and one of
512 x 512 for captioners that are off. With `--drawing` this loop does the same while it is measured; without it, it
draws only the pictures that it uses.

Left out, to the peer's advantage: frame stacks, a file for each episode and workers that read it back, caches rewritten
under a lock, logging. Better than published: replay rows in memory that point to texts, new texts of a minibatch
embedded together, fused Adam, no forward pass when the action is random, and questions of the first `start` steps
answered at once.

Limit: the sum of its parts, which wait for each other. Without latency the update is the largest; with latency, waiting
is.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.peers.common import arguments, report
from benchmarks.peers.ellm_memory import WIDTH, Embeddings, Encode, Replay
from benchmarks.peers.ellm_world import EVENTS, Payment, World
from learner.optim.precision import arithmetic, has_bfloat16

HIDDEN = 512  # of every layer
MINIBATCH, EVERY = 64, 4  # rows of an update, env steps between updates: 16 rows a step
LEARNING_RATE, TARGET_EVERY = 6.25e-5, 8000
CAPACITY, PIXEL_CAPACITY = 1_000_000, 50_000
EPSILON_END, DECAY_STEPS = 0.01, 1_000_000
WARM_UP_UPDATES = 10
LARGE = 512  # side of the unused picture
PARTS = ("env", "drawing", "caption", "goals", "policy", "reward", "replay", "embedding", "learner")


def heads() -> nn.ModuleList:
    """Value and advantage streams."""
    outputs = (1, len(EVENTS))
    return nn.ModuleList(nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, n)) for n in outputs)


def values(streams: nn.ModuleList, features: Tensor) -> Tensor:
    """Action values [B, 139] of features [B, 512]."""
    value, advantage = (stream(features) for stream in streams)
    result: Tensor = value + advantage - advantage.mean(-1, keepdim=True)
    return result


class Encoder(nn.Module):
    """Features [B, 512] of goals [B, 384] and states, which are texts [B, 384] or pictures uint8 [B, 64, 64, 3]."""

    def __init__(self, pixels: bool) -> None:
        super().__init__()
        self.pixels = pixels
        self.of_state: nn.Module = nn.Linear(WIDTH, HIDDEN)
        if pixels:  # Mnih et al. 2015
            layers = [nn.Conv2d(3, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1)]
            self.of_state = nn.Sequential(*layers, nn.ReLU(), nn.Flatten(), nn.Linear(64 * 4 * 4, HIDDEN))
        self.of_goals = nn.Linear(WIDTH, HIDDEN)
        self.fusion = nn.Linear(2 * HIDDEN, HIDDEN)

    def forward(self, states: Tensor, goals: Tensor) -> Tensor:
        if self.pixels:
            states = states.permute(0, 3, 1, 2).float().div_(255)
        return torch.relu(self.fusion(torch.cat([self.of_state(states), self.of_goals(goals)], -1)))


class Clock:
    """Seconds by part: each lap adds the time since the lap before."""

    def __init__(self) -> None:
        self.seconds, self.steps, self.asked, self.embedded = dict.fromkeys(PARTS, 0.0), 0, 0, 0
        self.began = self.last = time.perf_counter()

    def lap(self, part: str) -> None:
        now = time.perf_counter()
        self.seconds[part] += now - self.last
        self.last = now


class Loop:
    """The whole loop. `step` is one env step, with its share of learning."""

    def __init__(
        self,
        encode: Encode,
        seed: int = 0,
        *,
        pixels: bool = False,
        by_sentence: bool = False,
        bfloat16: bool = False,
        decay: int = DECAY_STEPS,
    ) -> None:
        torch.manual_seed(seed)
        self.decay = decay
        self.half = bfloat16 and has_bfloat16()
        self.random, self.pixels, self.drawing = np.random.default_rng(seed), pixels, False
        self.world, self.seed = World(seed), seed
        self.texts, self.pay = Embeddings(encode, by_sentence), Payment(encode)
        self.replay = Replay(PIXEL_CAPACITY if pixels else CAPACITY, pixels)
        self.encoder, self.heads, self.target = Encoder(pixels), heads(), heads()
        self.target.load_state_dict(self.heads.state_dict())
        own = [*self.encoder.parameters(), *self.heads.parameters()]
        self.optimiser = torch.optim.Adam(own, LEARNING_RATE, fused=True)
        self.answers: dict[str, tuple[str, ...]] = {}
        self.updates, self.steps = 0, 0
        self.clock = Clock()
        self.begin(0.0)

    def begin(self, latency_s: float) -> None:
        """Begin the next episode."""
        self.achieved: set[str] = set()
        self.world.begin(self.seed)
        self.seed += 1
        self.clock.lap("env")
        self.look(latency_s)

    def look(self, latency_s: float) -> None:
        """Observe the state and get its goals; a new question takes `latency_s`."""
        frame = self.world.picture() if self.pixels or self.drawing else None
        if self.drawing:
            self.world.picture(LARGE)
        self.clock.lap("drawing")
        situation, state = self.world.look()
        self.clock.lap("caption")
        if situation not in self.answers:
            if latency_s > 0:
                time.sleep(latency_s)
            self.answers[situation] = self.world.sensible()
            self.clock.asked += 1
        self.goals = [goal for goal in self.answers[situation] if goal not in self.achieved]
        self.clock.lap("goals")
        told = self.texts.row("Your goal is: " + ". ".join(self.goals))
        self.place = self.replay.observe(self.texts.row(state), told, frame if self.pixels else None)
        self.clock.lap("replay")

    def step(self, latency_s: float = 0.0, learn: bool = True, batch: int = MINIBATCH) -> None:
        """One env step; after every `batch` / 16 steps, one update of `batch` rows."""
        epsilon = max(EPSILON_END, 1 - (1 - EPSILON_END) * self.steps / self.decay)
        before, goals = self.place, self.goals
        action = int(self.random.integers(len(EVENTS))) if self.random.random() < epsilon else self.best()
        self.clock.lap("policy")
        event, died = self.world.act(action)
        ended = died or self.world.over
        self.clock.lap("env")
        reward = self.pay(event, goals, self.achieved)
        self.clock.lap("reward")
        self.look(latency_s)
        self.replay.add(before, action, reward, self.place, died, ended)
        self.clock.lap("replay")
        if ended:
            self.begin(latency_s)
        self.steps += 1
        self.clock.steps += 1
        if learn and self.steps % (batch * EVERY // MINIBATCH) == 0:
            self.update(batch)

    def inputs(self, places: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """The encoder's inputs for stored observations [B]."""
        self.clock.lap("learner")
        texts = self.replay.texts[places]
        used = texts[:, 1:] if self.pixels else texts
        self.clock.embedded += self.texts.prepare(used)
        self.clock.lap("embedding")
        goals = self.texts(texts[:, 1])
        return torch.from_numpy(self.replay.frames[places]) if self.pixels else self.texts(texts[:, 0]), goals

    @torch.no_grad()
    def best(self) -> int:
        """The action with the largest value."""
        return int(values(self.heads, self.encoder(*self.inputs(np.array([self.place])))).argmax())

    def update(self, batch: int = MINIBATCH) -> float:
        """One gradient step. Returns its loss."""
        index, number = self.replay.sample(batch, self.random)
        action, (reward, discount) = torch.from_numpy(index[:, 1:2]), torch.from_numpy(number).unbind(1)
        with arithmetic(self.half):
            loss = self.loss(index, action, reward, discount)
        self.optimiser.zero_grad()
        torch.autograd.backward(loss)
        self.optimiser.step()
        self.updates += 1
        if self.updates % TARGET_EVERY == 0:
            self.target.load_state_dict(self.heads.state_dict())
        self.clock.lap("learner")
        return loss.item()

    def loss(self, index: NDArray[np.int64], action: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
        """The scalar loss of rows `index` [B, 3] (before, action, after), actions [B, 1], rewards and discounts [B]."""
        # The pass with gradients comes first: autocast caches its bfloat16 weights, which need gradients.
        outputs = values(self.heads, self.encoder(*self.inputs(index[:, 0]))).float()
        with torch.no_grad():
            following = self.encoder(*self.inputs(index[:, 2]))
            favoured = values(self.heads, following).argmax(-1, keepdim=True)
            aim = reward + discount * values(self.target, following).gather(1, favoured).squeeze(1)
        chosen = outputs.gather(1, action).squeeze(1)
        return nn.functional.smooth_l1_loss(chosen, aim.float())


def measure(
    loop: Loop, seconds: float, start: int, latency_s: float, batch: int, drawing: bool = False
) -> dict[str, Any]:
    """Play `start` steps without learning, then `seconds` with it. Only the second part is measured."""
    for _ in range(start):
        loop.step(learn=False)
    read = loop.replay.texts[: loop.replay.observations, int(loop.pixels) :]  # with pictures, only the goals
    loop.texts.prepare(read)
    for _ in range(WARM_UP_UPDATES):
        loop.update(batch)
    clock = loop.clock = Clock()
    updates, loop.drawing = loop.updates, drawing
    while clock.last - clock.began < seconds:
        loop.step(latency_s, batch=batch)
    spent = clock.last - clock.began
    return {
        "steps_per_second": clock.steps / spent,
        "env_steps": clock.steps,
        "replayed_per_step": (loop.updates - updates) * batch / clock.steps,
        "asked": clock.asked,
        "embedded": clock.embedded,
        "shares": {part: used / spent for part, used in clock.seconds.items()},
    }


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--start", type=int, default=5000, help="env steps before learning and measuring begin")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds of a goal query")
    parser.add_argument("--threads", type=int, default=1, help="torch threads; 0: one for each core")
    parser.add_argument("--pixels", action="store_true", help="states are pictures")
    parser.add_argument("--drawing", action="store_true", help="draw two pictures in each step, as published")
    parser.add_argument("--by-sentence", action="store_true", help="embed and remember sentences instead of texts")
    parser.add_argument("--bfloat16", action="store_true", help="multiply bfloat16 numbers, if the processor can")
    parser.set_defaults(minibatch=MINIBATCH)
    options = parser.parse_args()
    torch.set_num_threads(options.threads or len(os.sched_getaffinity(0)))
    from llm_service.embedding import Encoder as MiniLM
    from llm_service.embedding import minilm_folder

    kind = {"pixels": options.pixels, "by_sentence": options.by_sentence, "bfloat16": options.bfloat16}
    loop = Loop(MiniLM(minilm_folder()).encode, options.seed, **kind)
    lengths = options.seconds, options.start, options.latency, options.minibatch
    report(measure(loop, *lengths, drawing=options.drawing))


if __name__ == "__main__":
    main()
