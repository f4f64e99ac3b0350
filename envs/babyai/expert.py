"""An expert for every level: Minigrid's planning bot, kept within bounds.

The bot plans on the true map and the level's own instruction, so it needs simulators, not observations. It fails in
three ways on some episodes: it replans for ever without proposing an action, it runs into a failed assertion, or it
walks in circles. Each of them is caught, counted, and answered with an action that does nothing.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np
from minigrid.utils.baby_ai_bot import BabyAIBot
from numpy.typing import NDArray

from envs.babyai.world import DONE, BabyAI

TURN_LEFT = 0
MOST_ROUNDS = 200
"""Rounds of planning for one action after which the bot counts as stuck."""


class BotStuck(RuntimeError):
    """The bot looked at its plan too often without proposing an action."""


class _Plan(list[Any]):
    """The bot's stack of subgoals. It is read once per round of replanning, so reading it bounds the rounds."""

    reads = 0

    def __getitem__(self, key: SupportsIndex | slice) -> Any:
        self.reads += 1
        if self.reads > MOST_ROUNDS:
            raise BotStuck(f"no action after {MOST_ROUNDS} rounds of planning")
        return super().__getitem__(key)


class _Follower:
    """The bot of one episode, and where in it the bot is."""

    def __init__(self, simulator: Any, started: int, step: int) -> None:
        self.started = started
        self.step = step  # the step that `action` is for
        self.stuck = ""  # why the bot gave up
        self.bot: Any = BabyAIBot(simulator)
        self.bot.stack = _Plan(self.bot.stack)
        self.action = self._plan(None)

    def proceed(self, taken: int) -> None:
        """The world took a step with `taken`, the bot's proposal or not."""
        self.step += 1
        self.action = self._plan(taken)

    def _plan(self, taken: int | None) -> int:
        if self.stuck:
            return DONE
        self.bot.stack.reads = 0
        try:
            return int(self.bot.replan(taken))
        except Exception as reason:  # the bot gives up by whatever line it falls over: assertions, None, lost boxes
            self.stuck = f"{type(reason).__name__}: {reason}"
            return DONE


class Expert:
    """Near-optimal actions for a `BabyAI` world; also corrects a world that is moved by someone else.

    Attributes:
        stuck: (global env index, episode, reason) of every episode that the bot gave up.
    """

    def __init__(self) -> None:
        self.stuck: list[tuple[int, int, str]] = []
        self._followers: dict[int, _Follower] = {}
        self._env: BabyAI | None = None

    def act(self, env: BabyAI) -> NDArray[np.int64]:
        """The next action of each env, int64 [N]; a stuck one does nothing, or turns where that is no action.

        Call it before every step. If steps were missed, the episode is planned anew from where it is.
        """
        if env is not self._env:
            self._env, self._followers = env, {}
        return np.array([self._act_one(env, i) for i in range(env.num_envs)], np.int64)

    def _act_one(self, env: BabyAI, i: int) -> int:
        started, step, taken = int(env.started[i]), *env.last_step(i)
        simulator = env.simulator(i)  # where it is a copy, this brings it up to date
        follower = self._followers.get(i)
        was_stuck = bool(follower and follower.stuck)
        if follower is None or follower.started != started or step not in (follower.step, follower.step + 1):
            follower = self._followers[i] = _Follower(simulator, started, step)
            was_stuck = False
        elif step == follower.step + 1:
            follower.proceed(taken)
        action = DONE if follower.stuck else follower.action
        possible = env.has_action(action)
        if not possible and action != DONE:
            follower.stuck = f"the world lacks action {action}"
        if follower.stuck and not was_stuck:
            self.stuck.append((int(env.env_index[i]), int(env.episode[i]), follower.stuck))
        if possible:
            return action
        return env.idle_action if env.idle_action is not None else TURN_LEFT
