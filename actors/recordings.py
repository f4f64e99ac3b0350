"""Checks that imported recordings belong to an environment's tasks: replaying them must give the same observations and
rewards.

    Recording without a task ──> played in all tasks at once until one is left ──> its task
    Recordings with tasks ─────> played at once, from the first episode to the last ──> pieces of a store

Actions are the recorded ones, so nothing here is random. An episode's rewards may depend on earlier episodes
(`rules=legacy` of dark rooms), so each env plays one task's episodes in order.

Limit: a step of all files is a step of as many envs; a hundred thousand steps take some ten seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.api import Episodes, VectorEnv
from learner.store.pieces import WHOLE, Pieces, Steps
from learner.store.recordings import CLOSE, Recording, RecordingError

Make = Callable[[int], VectorEnv]
"""A function that makes N envs."""
NAMED = 5  # number of possible tasks that a message names


def task_of(recording: Recording, make: Make, tasks: NDArray[np.int64]) -> int:
    """The task, of tasks [T], of a recording.

    Raises:
        RecordingError: it is none of them, or nothing in it distinguishes several.
    """
    env, left, why = make(len(tasks)), np.ones(len(tasks), np.bool_), ""
    for number in range(len(recording.length)):
        told, _ = _play(env, tasks, [recording.episode(number)] * len(tasks))
        why = next((words for words, still in zip(told, left, strict=True) if still and words), why)
        left &= [not words for words in told]
        if not left.any():
            raise RecordingError(
                f"{recording.path} belongs to none of the {len(tasks)} training tasks of {env.env_spec.id}: in episode "
                f"{number} the last matching task differs: {why}; other options of env may have its task"
            )
        if left.sum() == 1:
            break
    if left.sum() > 1:
        some = ", ".join(map(str, tasks[left][:NAMED].tolist())) + (", ..." if left.sum() > NAMED else "")
        raise RecordingError(
            f"{recording.path} may belong to {left.sum()} tasks of {env.env_spec.id} ({some}): its rewards do not "
            "distinguish them, so name the tasks of all files with --tasks"
        )
    return int(tasks[left][0])


def pieces_of(recordings: Sequence[Recording], make: Make, tasks: NDArray[np.int64]) -> list[Pieces]:
    """The pieces of a store for each recording, of different tasks [N].

    Raises:
        RecordingError: observations or rewards of one differ from its task.
    """
    ended: list[list[Episodes]] = [[] for _ in recordings]
    env = make(len(recordings))
    for number in range(max(len(recording.length) for recording in recordings)):
        last = [
            min(number, len(recording.length) - 1) for recording in recordings
        ]  # finished envs play on with the others
        lived = [recording.episode(k) for recording, k in zip(recordings, last, strict=True)]
        told, episodes = _play(env, tasks, lived)
        for i, (recording, words) in enumerate(zip(recordings, told, strict=True)):
            if number < len(recording.length):
                if words:
                    raise RecordingError(
                        f"{recording.path} is not of task {tasks[i]} of {env.env_spec.id}: in episode {number}, {words}"
                    )
                ended[i].append(episodes.take(episodes.env == i))
    found = []
    for task, parts in zip(tasks.tolist(), ended, strict=True):
        of = Episodes.concatenate(parts)
        columns: dict[str, NDArray[Any]] = {name: getattr(of, name) for name in WHOLE}
        columns |= {"env": np.full(len(of), task, np.int32), "task": np.full(len(of), task)}
        found.append(Pieces.of(columns | {"source": of.length.cumsum(dtype=np.int64)}))
    return found


def _play(env: VectorEnv, tasks: NDArray[np.int64], lived: Sequence[Steps]) -> tuple[list[str], Episodes]:
    """Play an episode of each task with the actions of `lived`. Returns the first difference, in words, "" if there is
    none; and the episodes that ended on time."""
    length = np.array([len(each.reward) for each in lived])
    obs, shown, paid, ends, ended = env.begin(tasks), [], [], [], []
    action = _padded([each.action for each in lived])
    for step in range(int(length.max())):
        shown.append({name: column.copy() for name, column in obs.items()})
        transition = env.advance(action[step])
        over = length - 1 == step
        paid.append(transition.reward.copy())
        ends.append(transition.terminated | transition.truncated)
        ended.append(transition.episodes.take(over[transition.final_index]))
        obs = transition.obs
    inside = np.arange(len(action))[:, None] < length
    pairs = {name: (_padded([each.obs[name] for each in lived]), np.stack([o[name] for o in shown])) for name in obs}
    pairs["reward"] = _padded([each.reward for each in lived]), np.stack(paid)
    pairs["end"] = np.arange(len(action))[:, None] == length - 1, np.stack(ends)
    told = [""] * len(lived)
    differ = {n: inside & (abs(a - b * 1.0) > CLOSE).reshape(*inside.shape, -1).any(2) for n, (a, b) in pairs.items()}
    steps = np.any(list(differ.values()), 0)
    for i in np.flatnonzero(steps.any(0)).tolist():
        step = int(steps[:, i].argmax())
        name = next(name for name, where in differ.items() if where[step, i])
        ours, theirs = (np.asarray(column[step, i]).tolist() for column in (pairs[name][1], pairs[name][0]))
        told[i] = f"{name} of step {step} is {theirs}, but the task's is {ours}"
    return told, Episodes.concatenate(ended)


def _padded(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Columns of N episodes, [longest, N, ...]; 0 after the end of one."""
    found = np.zeros((max(map(len, columns)), len(columns), *columns[0].shape[1:]), columns[0].dtype)
    for i, column in enumerate(columns):
        found[: len(column), i] = column
    return found
