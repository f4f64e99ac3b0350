"""Crafter's public board: the score of a run beside published ones, and the success rates that it is made of.

The score is over all training episodes, as the board has it (`cluster.stages._shared.achievements`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cluster.metrics.statistics import Estimate, over_seeds, spread_name
from cluster.report import plots
from cluster.report.outcome import Arms, largest
from cluster.report.page import count, figure, percent, rate, section, table, text
from cluster.runs.run_data import Run, estimate, number, part, seeds

SUBJECT, ORDER = "agents", 12
WORLD, FAMILY, STEPS, HERE = "crafter/Standard", "crafter/", 1_000_000, "this page"


class Published(NamedTuple):
    """A score that others report, in [0, 100], and what its agent sees and learns from."""

    name: str
    score: float
    sees: str
    source: str


PUBLISHED = (
    Published("human experts", 50.5, "pictures", "Hafner 2021, arXiv 2109.06780"),
    Published("SPRING", 27.3, "captions, and the game's paper; no training", "Wu et al. 2023, arXiv 2305.15486"),
    Published(
        "DLLM", 26.4, "pictures and captions", "Liu et al. 2024, World Models with Hints of Large Language Models for "
        "Goal Achieving"
    ),
    Published("Achievement Distillation", 21.8, "pictures", "Moon et al. 2023, arXiv 2307.03486"),
    Published("Curious Replay", 19.4, "pictures", "Kauvar et al. 2023, arXiv 2306.15934"),
    Published("PPO, tuned", 15.6, "pictures", "Moon et al. 2023, arXiv 2307.03486"),
    Published("DreamerV3", 14.5, "pictures", "Hafner et al. 2023, arXiv 2301.04104"),
    Published("PPO", 4.6, "pictures", "Hafner 2021, arXiv 2109.06780"),
    Published("random actions", 1.6, "nothing", "Hafner 2021, arXiv 2109.06780"),
)  # fmt: skip

PRIVILEGED = (
    "Captions are privileged information: they are written from the state of the game, not from the picture. SPRING "
    "and DLLM are told them, so their scores are of an easier task than those of agents that see pictures alone."
)
MEANING = (
    f"Score: exp(mean of ln(1 + success rate in percent)) - 1 over 22 achievements, each a share of all training "
    f"episodes in the first {STEPS:,} env steps, with Crafter's own rules and rewards."
)


def panel(runs: Sequence[Run], groups: Arms) -> str:
    """The section, as HTML; "" where no run trained in the board's world."""
    arms = {arm or "this run": [run for run in group if _score(run) is not None] for arm, group in groups.items()}
    arms = {arm: group for arm, group in arms.items() if group}
    if not arms:
        return ""
    ours = {arm: over_seeds([_estimate(run) for run in group]) for arm, group in arms.items()}
    published = {p.name: Estimate(p.score / 100, p.score / 100, p.score / 100) for p in PUBLISHED}
    found = published | ours
    names = sorted(found, key=lambda name: -found[name].value)
    about = {p.name: (p.sees, p.source) for p in PUBLISHED} | {arm: (_sees(g[0]), HERE) for arm, g in arms.items()}
    caption = "Crafter's score, in percent, of published agents and of this page's runs."
    bars = [("published", [published.get(name) for name in names]), (HERE, [ours.get(name) for name in names])]
    most = largest(arms)
    apart = {arm: "; ".join(_differences(group)) for arm, group in arms.items()}
    notes = [f"What sets {arm} apart from the board: {words}." for arm, words in apart.items() if words]
    return section(
        "Crafter's board",
        figure(plots.bars("board", names, bars, title=caption), caption),
        table(["agent", "score", "sees", "source"], [(n, _shown(found[n], len(most)), *about[n]) for n in names]),
        text(MEANING + (f" Brackets: {spread_name(seeds(most))}." if len(most) > 1 else "")),
        *map(text, notes),
        text(PRIVILEGED),
        text(f"Success rates of {most[0].name}:") if len(runs) > 1 else "",
        _achievements(most[0]),
    )


def _score(run: Run) -> float | None:
    """Of all training episodes until now, in [0, 100]."""
    if part(run.config, "env").get("id") != WORLD:
        return None
    return next((s for row in reversed(run.train) if (s := number(row.get(f"{FAMILY}score"))) is not None), None)


def _estimate(run: Run) -> Estimate:
    """The score as a share; one run has no interval."""
    value = (_score(run) or 0.0) / 100
    return Estimate(value, value, value, 1)


def _shown(found: Estimate, runs: int) -> str:
    value, low, high = (100 * x for x in (found.value, found.low, found.high))
    return f"{value:.1f} [{low:.1f}, {high:.1f}]" if runs > 1 and low < high else f"{value:.1f}"


def _sees(run: Run) -> str:
    observed = part(run.config, "env").get("observe") or ["pixels"]
    seen = ["pictures" if name == "pixels" else str(name) for name in observed]
    goals = part(run.config, "method", "goals")
    if goals.get("source", "none") != "none" and goals.get("told"):
        seen.append("goals")
    return " and ".join(seen)


def _differences(runs: Sequence[Run]) -> Iterator[str]:
    """What sets runs of one setting apart from those of the board, in words."""
    run = runs[0]
    env, goals = part(run.config, "env"), part(run.config, "method", "goals")
    steps = [r.env_steps or 0 for r in runs]
    if any(abs(n / STEPS - 1) > 0.01 for n in steps):  # the last update may go beyond
        yield f"{count(min(steps))} env steps were learned from, where the board has {count(STEPS)}"
    plain = {"damage": None, "table_wood": None, "length": None, "reward": None, "task": None, "dying": True}
    for key, value in plain.items():
        if env.get(key, value) != value:
            yield f"env.{key}={env[key]} is another rule than the board's"
    read = "; the agent reads them, also after training" if goals.get("told") else ""
    if goals.get("source") in ("model", "choice"):
        yield f"in training, a language model was told captions and suggested goals, which were rewarded{read}"
    elif goals.get("source", "none") != "none":
        yield f"in training, goals were rewarded that the game itself knows ({goals['source']}){read}"


def _achievements(run: Run) -> str:
    """The success rates of one run: in its training episodes, and in held-out ones if those were played."""
    held_out = part(run.results, "achievements", "rates")
    rows = []
    for key, value in run.train[-1].items():
        if key.startswith(FAMILY) and key != f"{FAMILY}score" and (share := number(value)) is not None:
            name = key.removeprefix(FAMILY)
            rows.append((name.replace("_", " "), percent(share), rate(estimate(held_out.get(name)))))
    rows.sort(key=lambda row: row[0])
    return table(["achievement", "training episodes", "held-out episodes"], rows, dense=True)
