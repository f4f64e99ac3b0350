"""Episodes that are drawn, whole or in pieces, and stores of them."""

import numpy as np

from envs.api import Episodes, Field
from envs.text import text_hash
from learner.files import Attempt
from learner.store.episodes import EpisodeStore, EpisodeWriter, Layout, Steps

FIELDS = {
    "image": Field("grid", (3, 2, 3)),
    "position": Field("category", size=300),
    "mission": Field("text"),
    "told": Field("text", (2,)),
    "speed": Field("vector", (4,)),
}
LAYOUT = Layout(FIELDS, ("left", "right", "stay"))
WORDS = [f"text {i}" for i in range(40)]
TEXTS = {text_hash(word): word for word in WORDS}
HASHES = np.array(list(TEXTS))


def made(seed, lengths, layout=LAYOUT):
    """Episodes of these lengths, their steps and all texts, drawn."""
    random, n, total = np.random.default_rng(seed), len(lengths), int(sum(lengths))
    episodes = Episodes(
        env=np.arange(n, dtype=np.int32),
        episode=np.zeros(n, np.int64),
        seed=random.integers(0, 2**40, n),
        length=np.array(lengths, np.int32),
        total=random.random(n, np.float32),
        success=random.random(n) < 0.5,
        kind=random.integers(0, 5, n).astype(np.int16),
        away=np.zeros(n, np.int32),
        counts=np.zeros((n, 0), np.int32),
    )
    obs = {}
    for name, field in layout.fields.items():
        if field.kind == "text":
            obs[name] = random.choice(HASHES, (total, *field.shape))
        elif field.kind == "vector":
            obs[name] = random.random((total, *field.shape), np.float32)
        else:
            obs[name] = random.integers(0, 200, (total, *field.shape)).astype(field.dtype)
    shape = (total, *layout.action_shape)
    action = random.integers(0, 3, total) if layout.actions else random.random(shape, np.float32)
    return episodes, Steps(obs, action, random.random(total, np.float32)), TEXTS


def write(folder, parts, layout=LAYOUT):
    writer = EpisodeWriter(folder, layout, {"env": "made"})
    for name, part in parts.items():
        writer.write(name, *part)
    return EpisodeStore(folder)


def in_pieces(seed, lengths, cuts, layout=LAYOUT):
    """Episodes as `made` gives them, cut into pieces after the steps `cuts` of all; rows of pieces, and their steps."""
    episodes, steps, _ = made(seed, lengths, layout)
    ends = np.cumsum(lengths)
    stops = sorted({*ends.tolist(), *(cut for cut in cuts if 0 < cut < ends[-1])})
    rows = []
    for start, stop in zip([0, *stops], stops, strict=False):
        e = int(np.searchsorted(ends, start, side="right"))
        of = {name: getattr(episodes, name)[e] for name in ("seed", "total", "success", "kind")}
        over = stop == ends[e]
        row = {name: value if over else 0 for name, value in of.items()}
        place = {"env": e % 3, "episode": e // 3, "first": start - (ends[e] - lengths[e])}
        when = {"source": 7 * e if over else 0, "task": e % 4 if over else 0}
        rows.append(row | place | when | {"length": stop - start, "ended": over})
    return rows, steps, [slice(a, b) for a, b in zip([0, *stops], stops, strict=False)]


def both(folder, count=2):
    """Attempts at one run, and a writer of each."""
    attempts = [Attempt.begin(folder.parent / "run" / "checkpoints") for _ in range(count)]
    return attempts, [EpisodeWriter(folder, LAYOUT, {"env": "made"}, attempt) for attempt in attempts]
