"""Whether what others have recorded is of a world's tasks: played again, the world must show and pay the same.

    Recording, no task named ──> played in all tasks side by side until one is left ──> its task
    Recordings, a task each ───> played side by side, from the first episode to the last ──> pieces of a store

Actions are the recorded ones, so nothing here is drawn by chance. What an episode pays may depend on those before it
(`rules=legacy` of dark rooms), so each env plays one task's episodes in their order.

Limit: a step of all files is one of as many envs; a hundred thousand take some ten seconds.
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
"""N envs of the world."""
NAMED = 5  # tasks that are named of those that a recording may be of


def task_of(recording: Recording, make: Make, tasks: NDArray[np.int64]) -> int:
    """Which of the tasks [T] a recording is of.

    Raises:
        RecordingError: of none, or nothing in it tells of which.
    """
    env, left, why = make(len(tasks)), np.ones(len(tasks), np.bool_), ""
    for number in range(len(recording.length)):
        told, _ = _play(env, tasks, [recording.episode(number)] * len(tasks))
        why = next((words for words, still in zip(told, left, strict=True) if still and words), why)
        left &= [not words for words in told]
        if not left.any():
            raise RecordingError(
                f"{recording.path} is of none of the {len(tasks)} training tasks of {env.env_spec.id}: in episode "
                f"{number} the last that was like it differs, where {why}; other options of env may have its task"
            )
        if left.sum() == 1:
            break
    if left.sum() > 1:
        some = ", ".join(map(str, tasks[left][:NAMED].tolist())) + (", ..." if left.sum() > NAMED else "")
        raise RecordingError(
            f"{recording.path} may be of {left.sum()} tasks of {env.env_spec.id} ({some}): nothing that it was paid "
            "tells which, so name the tasks of all files by --tasks"
        )
    return int(tasks[left][0])


def pieces_of(recordings: Sequence[Recording], make: Make, tasks: NDArray[np.int64]) -> list[Pieces]:
    """What a store says of the episodes of each recording, of tasks [N] which differ.

    Raises:
        RecordingError: one shows or pays something else than its task does.
    """
    ended: list[list[Episodes]] = [[] for _ in recordings]
    env = make(len(recordings))
    for number in range(max(len(recording.length) for recording in recordings)):
        last = [
            min(number, len(recording.length) - 1) for recording in recordings
        ]  # who is through goes on for company
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
    """Play an episode of each task by the actions of `lived`. Returns what is first different, in words, "" if nothing
    is; and the episodes that ended when they were to."""
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
    """Columns of N episodes side by side, [longest, N, ...]; 0 where one is over."""
    found = np.zeros((max(map(len, columns)), len(columns), *columns[0].shape[1:]), columns[0].dtype)
    for i, column in enumerate(columns):
        found[: len(column), i] = column
    return found
