"""The published loop, until its agent unlocks so many achievements an episode in held-out worlds.

    learn `--every` seconds ──> play `--episodes` worlds it never learned in ──> enough? ──> seconds of learning

Time spent in held-out worlds is not counted. The peer is `ellm_loop` at its own sizes; its suggestions are free of
errors and cost no time, and the share of random actions falls to its end within the steps that the time allows.

Limit: as of `ellm_loop`.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import torch

from benchmarks.peers.common import arguments, report
from benchmarks.peers.ellm_loop import MINIBATCH, Loop, values
from benchmarks.peers.ellm_world import World
from envs.api import HELD_OUT_FIRST


@torch.no_grad()
def unlocked(loop: Loop, episodes: int) -> float:
    """Mean number of different achievements of an episode, over the first held-out worlds, by the best actions."""
    counts = []
    for seed in range(HELD_OUT_FIRST, HELD_OUT_FIRST + episodes):
        world, achieved, died = World(seed), set[str](), False
        while not (died or world.over):
            situation, state = world.look()
            suggested = loop.answers.get(situation) or world.sensible()
            goals = [goal for goal in suggested if goal not in achieved]
            rows = np.array([loop.texts.row(state), loop.texts.row("Your goal is: " + ". ".join(goals))])
            loop.texts.prepare(rows)
            state_code, goal_code = loop.texts(rows[:1]), loop.texts(rows[1:])
            event, died = world.act(int(values(loop.heads, loop.encoder(state_code, goal_code)).argmax()))
            loop.pay(event, goals, achieved)
        counts.append(sum(count > 0 for count in world.player.achievements.values()))
    return float(np.mean(counts))


def climb(loop: Loop, start: int, until: float, every: float, cap: float, episodes: int, batch: int) -> dict[str, Any]:
    """Play `start` steps without learning, then learn; both count.

    Returns:
        Whether it `reached` the goal, the `seconds` of that or of the whole, and the `curve`: seconds, env steps and
        achievements of each look.
    """
    spent, curve = 0.0, list[tuple[float, int, float]]()
    while spent < cap:
        begun = time.perf_counter()
        until_then = min(every * (len(curve) + 1), cap)
        while spent + time.perf_counter() - begun < until_then:
            loop.step(learn=loop.steps >= start, batch=batch)
        spent += time.perf_counter() - begun
        curve.append((spent, loop.steps, unlocked(loop, episodes)))
        if curve[-1][2] >= until:
            break
    return {"reached": curve[-1][2] >= until, "seconds": spent, "curve": curve}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--until", type=float, default=4.0, help="achievements an episode")
    parser.add_argument("--every", type=float, default=120.0, help="seconds of learning between two looks")
    parser.add_argument("--cap", type=float, default=2400.0, help="seconds of learning after which it counts as failed")
    parser.add_argument("--episodes", type=int, default=32, help="held-out worlds of a look")
    parser.add_argument("--start", type=int, default=5000, help="env steps before learning begins")
    parser.add_argument("--decay", type=int, default=250_000, help="env steps over which random actions become rare")
    parser.add_argument("--threads", type=int, default=1, help="torch threads; 0: one for each core")
    parser.add_argument("--bfloat16", action="store_true", help="multiply bfloat16 numbers, if the processor can")
    parser.set_defaults(minibatch=MINIBATCH)
    options = parser.parse_args()
    torch.set_num_threads(options.threads or len(os.sched_getaffinity(0)))
    from llm_service.embedding import Encoder as MiniLM
    from llm_service.embedding import minilm_folder

    loop = Loop(MiniLM(minilm_folder()).encode, options.seed, bfloat16=options.bfloat16, decay=options.decay)
    lengths = options.start, options.until, options.every, options.cap, options.episodes, options.minibatch
    report(climb(loop, *lengths))


if __name__ == "__main__":
    main()
