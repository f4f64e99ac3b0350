"""The engine of a label stage: a language model is asked once about an environment, for all later tasks.

    an EpisodeStore ──> segments.safetensors, captions.jsonl
    pairs of them   ──> label_preference ──> preferences.jsonl
    preferences     ──> write_potential, in rounds ──> programs.jsonl, program.py: the one with the best agreement
    situations      ──> suggest_goals ──> goals.jsonl, goals.safetensors, goals.json: their bank
                                                         results.json: counts, agreement, what it cost

The prompts mention no task. Samples and questions are a function of the episodes, the seed and the configuration, and
answers are in the service's journal and queue. So a stage that was killed starts again, asks the same, and pays only
for the rest.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import envs
from cluster.config import tree as configuration
from cluster.config.tree import Config
from cluster.roles.drawing import Topology
from cluster.runs.folder import RunError, assert_done
from cluster.runs.run_data import read_mapping
from cluster.runs.stage import Outcome, Run, StageEngine
from cluster.stages._shared.asking import ask_durably, costs
from learner.behaviours.agreement import spearman
from learner.knowledge import goal_bank
from learner.knowledge.captions import situation
from learner.knowledge.config import LabelConfig, told_fields
from learner.knowledge.draw import draw, pairs
from learner.knowledge.preferences import FILE as PREFERENCES
from learner.knowledge.preferences import Preferences
from learner.knowledge.programs import Candidate, Judge, best, halves, number
from learner.knowledge.segments import Segments
from learner.methods import Stage
from learner.potentials import shown, whole_numbers
from learner.store.episodes import ABOUT, EpisodeStore, StoreError, digest
from llm_service.records import Answer
from llm_service.sandbox.process import Sandbox

PROGRAMS, PROGRAM, RESULTS = "programs.jsonl", "program.py", "results.json"
MINUTES = "minutes.json"
"""The time of each attempt, by its number, because a killed attempt cannot add its time at the end."""
TASKS = {"preferences": "label_preference", "programs": "write_potential", "goals": "suggest_goals"}
CHANCE = 0.5
"""Agreement by chance."""


class Engine(StageEngine):
    """From episodes to a language model's labels."""

    by_name: ClassVar[bool] = True

    def __init__(self, run: Run, stage: Stage) -> None:
        super().__init__(run, stage)
        self._began = time.monotonic()
        self.settings = self.config.method.part(LabelConfig)

    @classmethod
    def asks(cls, config: Config, stage: Stage) -> bool:
        return True

    @classmethod
    def roles(cls, config: Config) -> Topology:
        label = config.method.part(LabelConfig)
        return Topology((), (("store", "controller", f"{label.segments:,} segments of episodes, to be asked about"),))

    def run(self) -> Outcome | None:
        """Ask.

        Raises:
            RunError: there are no episodes, no two different segments, or no useful answers.
            StoreError: the episodes are damaged, or hold no texts.
            BudgetExhausted, AwayTooLong: as `ask_durably`.
        """
        settings = self.settings
        place = self._place_of_episodes()
        store = EpisodeStore(place)
        try:
            told = told_fields(store.layout.fields, settings.captions, str(place))
        except ValueError as error:
            raise StoreError(str(error)) from None
        self._shown(store)  # a wrong name is reported before anything is paid for
        discount, seed = self.config.learner.discount, self.config.seed
        segments = draw(store, settings.segments, settings.window, discount, told, seed)
        if len(segments) < 2:
            raise RunError(f"{place} holds no two different segments: record more episodes, or more varied ones")
        self.progress.line(f"label  segments {len(segments):,} of {store.steps:,} steps")
        segments.save(self.place, self.folder.attempt)
        llm = self.config.llm
        results: dict[str, Any] = {"told_by": {"backend": llm.name, "model": getattr(llm.options, "model", "")}}
        results["segments"] = {"drawn": len(segments), "of_steps": store.steps, "told": told}
        steps = {"preferences": self._preferences, "programs": self._programs, "goals": self._goals}
        for name, step in steps.items():  # programs are chosen by preferences
            if name in settings.asks:
                found = step(segments, store)
                if found is None:
                    self._minutes()
                    return None
                results[name] = found
        if not any(results[name]["answered"] for name in settings.asks):
            raise RunError(
                "the language model gave no useful answer: see 'launch.py llm cost', or choose another model"
            )
        assert self.given.language is not None, "a stage that asks has a service"
        results["cost"] = costs(self.folder.path / "llm", TASKS.values())
        results["language_model"] = self.given.language.numbers()
        results["minutes"] = self._minutes()
        self.folder.write_json(self.place / RESULTS, results)
        counts = {name: results[name]["answered"] for name in settings.asks}
        return Outcome({"segments": len(segments)} | counts, inputs={"episodes": digest(place)}, lines=_told(results))

    def _place_of_episodes(self) -> Path:
        """The folder of a finished stage of this run, otherwise of the run that `from` names."""
        finished = sorted((self.folder.path / "stages").glob("*/manifest.json"))
        places = [path.parent for path in finished if path.parent != self.place]
        if (given := configuration.artifact(self.config, "from", self.config.from_)) is not None:
            assert_done(self.config.from_, given)
            places.append(given)
        for inside in (inside for place in places for inside in (place / "episodes", place)):
            if (inside / ABOUT).exists():
                return inside
        raise RunError(
            f"stage {self.stage.name} finds no episodes: run a stage that records some first, or name one, or a "
            "store, by from=run:NAME/stage"
        )

    # ---- questions -------------------------------------------------------------------------------------------------

    def _preferences(self, segments: Segments, store: EpisodeStore) -> dict[str, Any] | None:
        """Ask which of two segments is better."""
        chosen, captions = pairs(segments, self.settings.pairs, self.config.seed), segments.captions
        answers = self._ask("preferences", [{"first": captions[a], "second": captions[b]} for a, b in chosen.tolist()])
        if answers is None:
            return None
        lines: list[dict[str, Any]] = []
        for (first, second), answer in zip(chosen.tolist(), answers, strict=True):
            said = answer.value if answer.ok else _nothing(answer) | {"label": "failed", "probability": None}
            lines.append({"first": first, "second": second} | said)
        self._write_lines(PREFERENCES, lines)
        labels = [line["label"] for line in lines]
        judged = [line for line in lines if line["label"] != "failed"]
        return {
            "asked": len(lines),
            "answered": sum(line["probability"] is not None for line in lines),
            "failed": labels.count("failed"),
            "abstained": labels.count("abstain"),
            "ties": labels.count("tie"),
            "inconsistent": round(sum(not line["consistent"] for line in judged) / max(1, len(judged)), 4),
            "agreement_with_return": number(Preferences.load(self.place).agreement(segments.to_come)),
        }

    def _programs(self, segments: Segments, store: EpisodeStore) -> dict[str, Any] | None:
        """Ask for programs in rounds, and keep the best."""
        shown = self._shown(store)
        if not shown:
            return {
                "asked": 0,
                "answered": 0,
                "reason": "the episodes have no integer field that a program could read",
            }
        preferences = Preferences.load(self.place)
        chosen_by, held_out = halves(preferences, self.config.seed)
        candidates: list[Candidate] = []
        with Sandbox() as sandbox:
            judge = Judge(sandbox, segments, shown, chosen_by, self.config.seed)
            last = [""] * self.settings.candidates  # the program of each variant
            for turn in range(self.settings.rounds):
                found = self._round(turn, last, judge, store, shown)
                if found is None:
                    return None
                candidates += found
                last = [new.code or old for new, old in zip(found, last, strict=True)]
                top = best(candidates)
                agreement = f"{top.agreement:.2f}" if top else "none yet"
                self.progress.line(f"label  programs {len(candidates)}, best agreement {agreement}")
        self._write_lines(PROGRAMS, [candidate.dump() for candidate in candidates])
        written = [candidate for candidate in candidates if candidate.code]
        counts = {
            "asked": len(candidates),
            "answered": sum(candidate.valid for candidate in candidates),
            "failed": len(candidates) - len(written),
            "distinct": len({candidate.hash for candidate in written}),
            "shown": shown,
            "chosen": None,
        }
        self.folder.forget(self.place / PROGRAM)  # from an attempt with another configuration
        if (top := best(candidates)) is None:
            return counts
        self.folder.write(self.place / PROGRAM, top.code + "\n")
        told = {"hash": top.hash, "round": top.round, "variant": top.variant, "agreement_where_chosen": top.agreement}
        told |= {"agreement": number(held_out.agreement(top.values)), "chance": CHANCE, "pairs": held_out.decided}
        value = spearman(top.values.astype(np.float64), segments.to_come.astype(np.float64))
        return counts | {"chosen": told | {"spearman_with_return": number(value)}}

    def _round(
        self, turn: int, last: list[str], judge: Judge, store: EpisodeStore, shown: str
    ) -> list[Candidate] | None:
        """One more program for each variant; None if the run is asked to stop."""
        items = [
            {
                "window": self.settings.window,
                "shape": self._shape(store, shown),
                "actions": list(store.layout.actions),
                "previous": code,
                "evidence": judge.evidence(code, turn) if code else [],
                "variant": turn * len(last) + variant,
            }
            for variant, code in enumerate(last)
        ]
        answers = self._ask("programs", items)
        if answers is None:
            return None
        found = []
        for variant, answer in enumerate(answers):
            if answer.ok:
                found.append(judge.judge(variant, turn, answer.value["code"], answer.value["hash"]))
            else:
                found.append(Candidate(variant, turn, "", reason=answer.reason))
        return found

    def _goals(self, segments: Segments, store: EpisodeStore) -> dict[str, Any] | None:
        """Ask for goals in different situations, one by one."""
        seen: dict[tuple[str, ...], int] = {}
        for i, caption in enumerate(segments.captions):
            seen.setdefault(tuple(situation(caption)), i)
        chosen = list(seen.items())[: self.settings.goals]  # segments alternate between strata
        answers = self._ask("goals", [{"observation": list(sentences)} for sentences, _ in chosen])
        if answers is None:
            return None
        lines = [
            {"segment": i} | ({"goals": answer.value["goals"]} if answer.ok else {"goals": []} | _nothing(answer))
            for (_, i), answer in zip(chosen, answers, strict=True)
        ]
        self._write_lines(goal_bank.GOALS, lines)
        if any(line["goals"] for line in lines):
            goal_bank.build(self.place, attempt=self.folder.attempt)  # once here, not in every actor of every task
        return {
            "asked": len(lines),
            "answered": sum(bool(line["goals"]) for line in lines),
            "failed": sum(not answer.ok for answer in answers),
            "distinct": len({goal for line in lines for goal in line["goals"]}),
        }

    def _ask(self, name: str, items: list[dict[str, Any]]) -> list[Answer] | None:
        def tell(there: int) -> None:
            self._minutes()
            self.progress.line(f"label  {name} {there:,}/{len(items):,}")

        return ask_durably(self.given, TASKS[name], items, tell)

    def _minutes(self) -> float:
        """Time of all attempts so far; it is saved."""
        taken = read_mapping(self.place / MINUTES)
        taken[str(self.folder.number)] = (time.monotonic() - self._began) / 60
        self.folder.write_json(self.place / MINUTES, taken)
        return round(sum(taken.values()), 3)

    # ---- the input of programs -------------------------------------------------------------------------------------

    def _shown(self, store: EpisodeStore) -> str:
        """The integer field; "" if there is none."""
        fields, wanted = store.layout.fields, self.settings.shows
        found = shown(wanted, fields)
        if wanted and not found:
            there = ", ".join(whole_numbers(fields)) or "none"
            raise RunError(f"method.label.shows={wanted}: the episodes have no such integer field: {there}")
        return found

    def _shape(self, store: EpisodeStore, shown: str) -> str:
        """The description of one observation."""
        views: Mapping[str, str] = envs.knowledge(self.config.env.id).get("views", {})
        size = " by ".join(map(str, store.layout.fields[shown].shape)) or "one"
        return views.get(shown, f"{shown}: {size} integers")

    def _write_lines(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self.folder.write(self.place / name, "".join(f"{json.dumps(row)}\n" for row in rows))


def _nothing(answer: Answer) -> dict[str, Any]:
    return {"consistent": None, "reason": answer.reason}


def _told(results: Mapping[str, Any]) -> tuple[str, ...]:
    """The results, one line each."""
    lines = []
    if found := results.get("preferences"):
        lines.append(
            f"label: {found['answered']:,} of {found['asked']:,} pairs judged, {found['ties']:,} ties, "
            f"{100 * found['inconsistent']:.0f} % depended on the order"
        )
    if found := results.get("programs"):
        chosen = found.get("chosen")
        agreement = chosen and chosen["agreement"]
        says = "nothing to compare" if agreement is None else f"agrees with {100 * agreement:.0f} % of the other pairs"
        lines.append(
            f"label: {found['answered']} of {found['asked']} programs are valid; "
            + (f"the chosen one {says} (chance {100 * CHANCE:.0f} %)" if chosen else "none was chosen")
        )
    if found := results.get("goals"):
        lines.append(
            f"label: goals for {found['answered']:,} of {found['asked']:,} situations, {found['distinct']:,} distinct"
        )
    return tuple(lines)
