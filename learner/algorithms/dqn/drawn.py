"""What a gradient step of DQN learns from: a part of a sample of the replay, each observation and each text once.

A sample of many gradient steps is deduplicated as a whole; for each step, what it needs is then numbered anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.algorithms.dqn.deduplicate import Ids, deduplicate, texts_of
from learner.models.policy import Policy
from learner.models.rows import Appearing
from learner.optim.device import send
from learner.store.replay import Sample

Ahead = Callable[[dict[str, Tensor], Tensor, Ids, list[bytes]], Tensor]
"""Takes the arguments of `Remembered`, and returns what it does."""


@dataclass
class Drawn:
    """What a gradient step learns from, B rows on the policy's device: U distinct observations; actions were taken in
    the first `own`."""

    seen: dict[str, Tensor]  # [U, ...] inputs; a text field holds rows of `texts`
    texts: Tensor | None  # prepared, field by field
    ids: Ids  # of these texts, on the host
    keys: list[bytes]  # of the distinct observations that follow, [needed]; none if they are not comparable
    theirs: Tensor | None  # the target's outputs for these, [needed, A, atoms], if they were computed ahead
    own: int  # the rest only follow an action, and need no gradient
    others: bool  # whether there are such
    numbers: dict[str, Tensor]  # [B] `now`, `after`: rows of `seen`; `place` of what follows in `needed`; the sample's

    def __len__(self) -> int:
        return len(next(iter(self.seen.values())))


def drawn_by_step(
    sample: Sample, steps: int, policy: Policy, text: Callable[[int], str], ahead: Ahead | None = None
) -> Iterator[Drawn]:
    """A sample of several gradient steps, step by step: each observation once, each text once, sent in one copy.

    text: the text of an id.
    ahead: computes the target's outputs for all that follows; the target may not change before the last step. Pictures
        are not comparable, so theirs are not.
    """
    unique_obs, rows, keys = deduplicate(policy.fields, [sample.obs, sample.following])
    obs, ids = texts_of(policy.text_fields, unique_obs)
    seen = policy.inputs({name: torch.from_numpy(value) for name, value in obs.items()})
    every_id = np.concatenate([*ids, np.zeros(0, np.int32)])
    texts = policy.prepare([text(i) for i in every_id.tolist()])
    theirs, following_at = None, np.zeros(0, np.int64)
    if ahead and keys:
        following, following_at = np.unique(rows[1]), np.zeros(len(keys), np.int64)
        following_at[following] = np.arange(len(following))
        theirs = ahead(seen, torch.from_numpy(following), ids, [keys[row] for row in following.tolist()])
    named, appearing = Appearing(len(every_id)), Appearing(len(next(iter(unique_obs.values()))))
    for step in np.split(np.arange(len(sample.row)), steps):
        distinct, (now, after) = appearing(rows[:, step])
        needed, place = appearing(after)
        # All observations of a single step are its own, in this order already.
        mine = dict(seen) if steps == 1 else {name: value[distinct] for name, value in seen.items()}
        used = list[NDArray[np.int64]]()
        for name in policy.text_fields:
            which, local = named(mine[name].numpy())
            mine[name] = torch.from_numpy(local + sum(map(len, used)))
            used.append(which)
        numbers = {"now": now, "after": after, "needed": needed, "place": place}
        numbers |= {name: getattr(sample, name)[step] for name in ("action", "reward", "discount", "weight")}
        given = {"seen": mine, "numbers": numbers, "texts": {}}
        if texts is not None:
            given["texts"]["texts"] = texts[np.concatenate(used)]
        there = send({(part, name): x for part, own in given.items() for name, x in own.items()}, policy.device)
        found = {part: {name: there[part, name] for name in own} for part, own in given.items()}
        own = int(now.max()) + 1
        yield Drawn(
            found["seen"],
            found["texts"].get("texts"),
            [every_id[which] for which in used],
            [keys[row] for row in distinct[needed].tolist()] if keys else [],
            None if theirs is None else theirs[torch.from_numpy(following_at[distinct[needed]])],
            own,
            int(after.max()) >= own,
            found["numbers"],
        )
