"""How training went, of the first run: speed, lag and bottleneck, losses, what a language model thought right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cluster.report import plots
from cluster.report.outcome import Arms, metrics_figure
from cluster.report.page import count, grid, join, section, text
from cluster.runs.run_data import Run
from learner.models.language.probes import PROBES

SUBJECT, ORDER = "agents", 90


def panel(runs: Sequence[Run], groups: Arms) -> str:
    """The sections, as HTML; "" where nothing was recorded."""
    return join(*(of_part(runs[0], len(runs)) for of_part in (_throughput, _computing, _losses, _written, _probes)))


def _throughput(run: Run, of: int) -> str:
    rates = {"charts/SPS": "overall", "charts/SPS_sampling": "sampling", "charts/SPS_learning": "learning"}
    shares = {"time/env": "env", "time/policy": "policy", "time/learner": "learner"}
    lag, rho = {"policy/lag_mean": "mean", "policy/lag_max": "largest"}, {"policy/rho": "mean"}
    cut = {"policy/unfinished": "not learned from"}
    drawn = [
        metrics_figure([run], "sps", rates, "Env steps per second.", zero=True),
        metrics_figure([run], "shares", shares, "Share of time in each part.", percent=True),
        metrics_figure([run], "lag", lag, "Policy lag, versions.", zero=True),
        metrics_figure([run], "rho", rho, "Importance ratio, new policy to the one that acted.", zero=True),
        metrics_figure([run], "unfinished", cut, "Share of steps whose group had not ended.", percent=True),
    ]
    if not any(drawn):
        return ""
    parts = [grid("plots", drawn)]
    if run.speed:
        told = f"{count(run.env_steps)} env steps in {run.minutes:,.1f} minutes: {count(run.speed)} a second."
        parts.append(text(told))
    limits = Counter(str(row["bottleneck"]) for row in run.train if row.get("bottleneck"))
    if limits:
        shares_of = [f"{name} {100 * n / limits.total():.0f} %" for name, n in limits.most_common()]
        parts.append(text(f"What held the run back, by share of its rows: {', '.join(shares_of)}."))
    return section("Throughput and policy lag", *parts, _only(run, of))


def _computing(run: Run, of: int) -> str:
    """How fast a language model learns, and how busy and full the GPU is; "" where there is neither."""
    shares = {"gpu/use": "busy", "charts/mfu": "model FLOP utilisation"}
    drawn = [
        metrics_figure([run], "tokens", {"charts/tokens_per_second": "learner"}, "Tokens per second.", zero=True),
        metrics_figure([run], "gpu-use", shares, "Share of the GPU that is used.", percent=True),
        metrics_figure([run], "gpu-memory", {"gpu/memory": "taken"}, "Share of the GPU's memory.", percent=True),
    ]
    if not any(drawn):
        return ""
    note = "A language model's tokens are counted without padding. Busy: the share of a second before the end of an "
    note += "update in which the GPU computed anything. Utilisation: the share of its peak, over whole updates, that "
    note += "the model's own arithmetic took."
    return section("Learner's device", grid("plots", drawn), text(note), _only(run, of))


def _losses(run: Run, of: int) -> str:
    keys = list(dict.fromkeys(key for row in run.train for key in row if key.startswith("losses/")))
    drawn = []
    for key in keys:
        words = key.removeprefix("losses/").replace("_", " ")
        slug = "".join(c if c.isalnum() else "-" for c in key)
        drawn.append(metrics_figure([run], slug, {key: words}, words.capitalize(), size=plots.SMALL))
    if not any(drawn):
        return ""
    return section("Losses", grid("small", drawn), _only(run, of))


def _written(run: Run, of: int) -> str:
    """What a policy that writes its actions wrote; "" of other policies."""
    shares = {"policy/valid": "with an action", "policy/repeated": "repeated tokens"}
    drawn = [
        metrics_figure(
            [run], "answers", shares, "Share of answers with an action, and of repeated tokens.", percent=True
        ),
        metrics_figure([run], "answer-tokens", {"policy/answer_tokens": "mean"}, "Tokens of an answer.", zero=True),
    ]
    if not any(drawn):
        return ""
    note = (
        "Where an answer names no action, a random one is taken. A token counts as repeated if the three tokens that "
    )
    note += "it ends were in the answer before."
    return section("Written answers", grid("plots", drawn), text(note), _only(run, of))


def _probes(run: Run, of: int) -> str:
    """What a language model's policy thought right, state by state; "" of other policies."""
    drawn = []
    for name, state in PROBES.items():
        words = f"{state.mission}: {state.action}"
        keys = {f"probes/{name}": words}
        drawn.append(metrics_figure([run], f"probe-{name}", keys, words, percent=True, size=plots.SMALL))
    if not any(drawn):
        return ""
    note = text("The probability of the right action in a few states that were never played; each plot names both.")
    return section("Probes", grid("small", drawn), note, _only(run, of))


def _only(run: Run, of: int) -> str:
    return text(f"Shown for {run.name}, the first of {of} runs.") if of > 1 else ""
