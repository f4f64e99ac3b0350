"""The engine of a calibrate stage: a language model answers questions that people have answered, and is compared.

envs.labels ──> questions, each once ──> stages/<stage>/answers.jsonl: the answer to each
                                                        results.json: agreement, controls, calibration, a threshold

Answers are in the service's journal and queue: a stage that was killed starts again, asks the same, and pays only for
the rest.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

import envs
from cluster.config.tree import Config
from cluster.metrics.answers import MEASURES, area, counts, intervals, measures, reliability, threshold
from cluster.metrics.statistics import Array, Estimate
from cluster.roles.drawing import Topology
from cluster.runs.folder import RunError
from cluster.runs.stage import Outcome, StageEngine
from cluster.stages._shared.asking import ask_durably, costs

TASK = "yes_no"
ANSWERS, RESULTS = "answers.jsonl", "results.json"
SHUFFLED = "shuffled answers"


class Engine(StageEngine):
    """From questions to a measure of how far answers can be trusted."""

    @classmethod
    def roles(cls, config: Config) -> Topology:
        return Topology((), (("people", "controller", f"answers to {len(chosen(config)[1]):,} questions"),))

    def run(self) -> Outcome | None:
        """Ask.

        Raises:
            RunError: nothing was answered.
            BudgetExhausted, AwayTooLong: as `ask_durably`.
        """
        people, asked = chosen(self.config)
        method, llm = self.config.method.model_dump(), self.config.llm
        of = f"{len(asked):,} of {len(people.questions):,} questions"
        self.progress.line(f"calibrate  {of}, each asked once")
        items = [{"question": people.questions[q], "calibrate": method["neutral"]} for q in asked.tolist()]

        def tell(there: int) -> None:
            self.progress.line(f"calibrate  {there:,} of {len(asked):,} answered")

        answers = ask_durably(self.given, TASK, items, tell)
        if answers is None:
            return None
        said = np.array([answer.value["probability"] if answer.ok else np.nan for answer in answers])
        rows = [
            {
                "question": item["question"],
                "people": bool(people.answers[q]),
                "probability": answer.value["probability"],
            }
            if answer.ok
            else {"question": item["question"], "people": bool(people.answers[q]), "failed": answer.reason}
            for item, q, answer in zip(items, asked.tolist(), answers, strict=True)
        ]
        self.folder.write(self.place / ANSWERS, "".join(f"{json.dumps(row)}\n" for row in rows))
        there = np.isfinite(said)
        if not there.any():
            raise RunError(f"the language model answered none of {len(asked):,} questions: {rows[0]['failed']}")
        assert self.given.language is not None, "a stage that asks has a service"
        results: dict[str, Any] = {"env": self.config.env.id, "labels": people.source}
        results["told_by"] = {"backend": llm.name, "model": getattr(llm.options, "model", "")}
        results["questions"] = {"all": len(people.questions), "asked": len(asked), "answered": int(there.sum())}
        results |= compared(people, asked[there], said[there], method, self.config.seed)
        results["cost"] = costs(self.folder.path / "llm", [TASK])
        results["language_model"] = self.given.language.numbers()
        self.folder.write_json(self.place / RESULTS, results)
        return Outcome({"asked": len(asked), "answered": int(there.sum())}, lines=tuple(lines(results)))


def chosen(config: Config) -> tuple[envs.Labels, NDArray[np.intp]]:
    """People's answers, and the indices of the questions to ask."""
    people = envs.labels(config.env.id, config.env.options)
    count: int = config.method.model_dump()["questions"] or len(people.questions)
    drawn = np.random.default_rng([config.seed, 5]).permutation(len(people.questions))[:count]
    return people, np.sort(drawn)


def compared(
    people: envs.Labels, asked: NDArray[np.intp], said: Array, method: dict[str, Any], seed: int
) -> dict[str, Any]:
    """Probabilities of yes [Q] compared with people's answers to questions `asked` [Q], for the results file."""
    labels, level = people.answers[asked], method["probability"]
    names, about = np.unique(people.groups[people.about][asked], return_inverse=True)
    yes = said > level
    found = counts(yes, labels, about)
    controls = {"always yes": np.ones(len(said), np.bool_), "always no": np.zeros(len(said), np.bool_)}
    controls |= {name: rule[asked] for name, rule in people.rules.items()}
    others = {name: counts(answers, labels, about) for name, answers in controls.items()}
    others[SHUFFLED] = counts(np.full(len(said), yes.mean()), labels, about)  # their mean, over all orders
    picture = reliability(said, labels, method["bins"])
    bins = zip(picture.edges[:-1], picture.edges[1:], picture.count, picture.said, picture.came, strict=True)
    return {
        "people_say_yes": float(labels.mean()),
        "says_yes": float(yes.mean()),
        "probability": level,
        "about": {"what": people.about, "count": len(names)},
        "agreement": {name: _between(value) for name, value in intervals(found).items()}
        | {"area": area_of(said, labels)},
        "controls": {name: _plain(other.sum(0)) for name, other in others.items()},
        "above_best": above(found, others),
        "groups": {
            group: {word: _plain(counts(yes[here], labels[here])[0]) for word, here in _parts(words[asked])}
            for group, words in people.groups.items()
            if group != people.about
        },
        "reliability": {
            "error": _number(picture.error),
            "bins": [
                {"from": float(low), "to": float(high), "count": int(n), "said": _number(mean), "came": _number(came)}
                for low, high, n, mean, came in bins
            ],
        },
        "threshold": fitted(people, asked, said, level, seed),
    }


def area_of(said: Array, labels: NDArray[np.bool_]) -> float | None:
    """`area` for JSON."""
    return _number(area(said, labels))


def above(found: Array, others: dict[str, Array]) -> dict[str, Any]:
    """How far accuracy and F1 are above those of the best control."""
    told = {}
    for measure in ("accuracy", "F1"):
        values = {name: float(measures(other.sum(0))[measure]) for name, other in others.items()}
        best = max(values, key=lambda name: np.nan_to_num(values[name], nan=-1.0))
        told[measure] = {"control": best} | _between(intervals(found, others[best])[measure])
    return told


def fitted(people: envs.Labels, asked: NDArray[np.intp], said: Array, level: float, seed: int) -> dict[str, Any] | None:
    """The threshold with the best F1 on some subjects, and the results of it and of `level` on the others; None if
    there is only one subject."""
    words = people.groups[people.about][asked]
    names = np.unique(words)
    if len(names) < 2:
        return None
    held_out, split = np.isin(words, sorted(people.held_out)), "published"
    if held_out.all() or not held_out.any():
        split = "half of them, by seed"
        half = np.random.default_rng([seed, 6]).permutation(names)[: (len(names) + 1) // 2]
        held_out = np.isin(words, half)
    labels = people.answers[asked]
    best = threshold(said[~held_out], labels[~held_out])
    told: dict[str, Any] = {"split": split, "probability": best}
    told["chosen_on"] = {"count": len(np.unique(words[~held_out])), "questions": int((~held_out).sum())}
    told["told_of"] = {"count": len(np.unique(words[held_out])), "questions": int(held_out.sum())}
    _, about = np.unique(words[held_out], return_inverse=True)
    cells = [counts(said[held_out] > at, labels[held_out], about) for at in (best, level)]
    for name, cell in zip(("chosen", "fixed"), cells, strict=True):
        told[name] = {measure: _between(value) for measure, value in intervals(cell).items()}
    told["chosen_above_fixed"] = {measure: _between(value) for measure, value in intervals(*cells).items()}
    return told


def lines(results: dict[str, Any]) -> list[str]:
    """Lines that a finished comparison prints."""
    questions, best, fit = results["questions"], results["above_best"]["F1"], results["threshold"]
    counted = f"{questions['answered']:,} of {questions['asked']:,} questions answered"
    found = [f"calibrate: {counted}; people are {results['labels']}"]
    found.append(f"{'':24}{''.join(f'{name:>11}' for name in MEASURES)}")
    rows = {"language model": {name: results["agreement"][name]["value"] for name in MEASURES}} | results["controls"]
    found += [f"{name:24}{''.join(_cell(row[measure]) for measure in MEASURES)}" for name, row in rows.items()]
    found.append(
        f"F1 above {best['control']}: {_spoken(best)}, over {results['about']['count']} {results['about']['what']}s"
    )
    if (error := results["reliability"]["error"]) is not None:
        found.append(f"expected calibration error {error:.3f}")
    if fit:
        others = f"{fit['told_of']['count']} other {results['about']['what']}s"
        scores = " and ".join(_spoken(fit[which]["F1"]) for which in ("chosen", "fixed"))
        found.append(
            f"threshold {fit['probability']:.3f} and {results['probability']:g}: F1 {scores} on {others} than it was "
            "chosen on"
        )
    return found


def _parts(words: NDArray[np.str_]) -> list[tuple[str, NDArray[np.bool_]]]:
    return [(str(word), words == word) for word in np.unique(words)]


def _plain(counted: Array) -> dict[str, Any]:
    """Measures of counts [4], with the number of questions and of people's yes answers."""
    hits, _, missed, _ = counted.tolist()
    found: dict[str, Any] = {"questions": round(counted.sum()), "people_say_yes": round(hits + missed)}
    return found | {name: _number(float(value)) for name, value in measures(counted).items()}


def _between(value: Estimate) -> dict[str, float | None]:
    return {name: _number(getattr(value, name)) for name in ("value", "low", "high")}


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _cell(value: float | None) -> str:
    return f"{'–' if value is None else f'{value:.3f}':>11}"


def _spoken(entry: dict[str, Any]) -> str:
    numbers = [entry[name] for name in ("value", "low", "high")]
    return "–" if None in numbers else "{:.3f} [{:.3f}, {:.3f}]".format(*numbers)
