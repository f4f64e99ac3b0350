"""What an archive alone does on trials: which of its behaviours is replayed, by arm. A transformer must do better.

    text_blind_replay   the behaviour that ends nearest to the target, whatever the text says
    text_aware_replay   of the behaviours whose own text is most like the trial's, the one that ends nearest: a lookup
    random              any
    text_blind_drive, text_aware_drive   the first two's routes, followed by the driver that teaches transformers: what
                        its way of driving and of knowing one's place is worth, without learning

A text about a route is worth learning from only if a model obeys it better than `text_blind_replay`, which reads
nothing, and `text_aware_replay`, which learns nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from learner.behaviours.trials import Trial
from learner.behaviours.words import likeness

DRIVEN = {"text_blind_replay": "text_blind_drive", "text_aware_replay": "text_aware_drive"}
"""Baselines whose routes are also driven."""
BASELINES = ("text_blind_replay", "text_aware_replay", "random", *DRIVEN.values())


def replayed(
    asked: Sequence[Trial],
    descriptor: NDArray[np.float32],
    texts: Sequence[Sequence[Sequence[str]]],
    seed: int,
) -> dict[str, NDArray[np.intp]]:
    """The behaviour, 0 to N - 1, that each replay takes on each of P trials: [P] each.

    descriptor: float32 [N, 2], where the archive's behaviours end, world units.
    texts: for each of the N the places of each of its texts; none: it has no text. At least one has a text.
    seed: of `random`, which draws one behaviour for each pair of trials, as noise is shared.
    """
    target = np.array([trial.target for trial in asked], np.float32)
    apart = np.linalg.norm(descriptor[None] - target[:, None], axis=-1)  # [P, N]
    behaviour, places, known = [], list[tuple[str, ...]](), dict[tuple[str, ...], int]()
    for row, own in enumerate(texts):
        for said in own:
            behaviour.append(row)
            places.append(tuple(said))
            known.setdefault(tuple(said), len(known))
    number = np.array([known[said] for said in places])
    looked_up = np.empty(len(asked), np.intp)
    alike: dict[tuple[str, ...], NDArray[np.intp]] = {}  # behaviours with the texts that are most like a request
    for p, trial in enumerate(asked):
        wanted = tuple(trial.wanted)
        if wanted not in alike:
            found = np.array([likeness(wanted, said) for said in known])
            alike[wanted] = np.array(behaviour, np.intp)[np.isin(number, np.flatnonzero(found == found.max()))]
        looked_up[p] = alike[wanted][apart[p, alike[wanted]].argmin()]
    drawn = [np.random.default_rng([seed, 3, trial.pair]).integers(len(descriptor)) for trial in asked]
    return {
        "text_blind_replay": apart.argmin(1),
        "text_aware_replay": looked_up,
        "random": np.array(drawn, np.intp),
    }
