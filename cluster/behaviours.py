"""Stages between an archive and a transformer: verbs on what lies in `stages/`, each an artifact of its own.

    merge     archives            ──> stages/merge/       an EpisodeStore, behaviours.safetensors
    annotate  the store           ──> stages/annotate/    annotations.jsonl: route and eleven moments of each
    describe  annotations, LLM    ──> stages/describe/    texts.jsonl
    split     texts, behaviours   ──> stages/split/       parts.safetensors, trials.jsonl
    cluster   the training part   ──> stages/cluster/     centres.safetensors
    tokenize  its texts           ──> stages/tokenize/    tokenizer.json

A stage reads what this run has, and what it has not from the run that `from` names. Descriptions are paid for once: the
service's journal has those that a killed stage had asked for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from actors.language import PASSING, PAUSE_S, LanguageSetup
from cluster.config import Config
from cluster.folder import RunError, RunFolder, finished_stage
from cluster.progress import Progress
from cluster.stop import Stop
from envs import navigation
from learner.behaviours import trials, words
from learner.behaviours.clusters import centres
from learner.behaviours.gather import gather, nearby
from learner.behaviours.table import PARTS, Behaviours, split
from learner.behaviours.trials import Trial, reworded, rivals
from learner.hashing import uniform
from learner.sequences import Sequences
from learner.store.archive import Archive
from learner.store.episodes import EpisodeStore, forget_unfinished
from learner.store.owned import index_of
from llm_service.errors import AwayTooLong, BudgetExhausted
from llm_service.records import Answer, Status

BLOCK = 512
"""Trajectories whose scenes are looked at together."""
ANNOTATIONS, TEXTS, PARTS_FILE, CENTRES, TOKENIZER = (
    "annotations.jsonl",
    "texts.jsonl",
    "parts.safetensors",
    "centres.safetensors",
    "tokenizer.json",
)


@dataclass
class Curation:
    """What the stages of a run work with. Each method is a stage: it returns counts, None if it was asked to stop."""

    config: Config
    folder: RunFolder
    progress: Progress
    stop: Stop
    look_after: Callable[[], None]
    language: LanguageSetup | None = None

    def __post_init__(self) -> None:
        self.method: Any = self.config.method
        options = self.config.env.options
        self.house = navigation.load(options["map"] or navigation.HOUSE)
        self.scene = navigation.Scene(self.house)
        self.length: int = options["length"]

    def source(self, stage: str) -> Path:
        """The folder of a finished stage: this run's, else that of the run that `from` names.

        Raises:
            RunError: neither has it.
        """
        if found := finished_stage(self.folder.path, self.config.from_, stage):
            return found
        raise RunError(
            f"stage {stage} is not there: add it to stages, or set from=run:NAME/{stage} of a run that has it"
        )

    # ---- verbs -----------------------------------------------------------------------------------------------------

    def merge(self, folder: Path) -> dict[str, Any] | None:
        """One store of all archives."""
        given = [Path(name) for name in self.method.merge.archives]
        places = given if given and "search" not in self._stages() else [self.source("search"), *given]
        kind = "grid-*" if self.method.merge.take == "elites" else "archive-*"
        found = [p for place in places for p in ([place] if index_of(place) else sorted(place.glob(kind)))]
        if not found:
            grid = ", searched with method.search.cells" if kind == "grid-*" else ""
            raise RunError(f"there is no {kind} in {', '.join(map(str, places))}: name folders of search stages{grid}")
        archives = [Archive.read(place) for place in found]
        forget_unfinished(folder, self.folder.attempt)
        total = sum(map(len, archives)) * (1 + self.method.merge.copies)
        about = {"archives": [archive.digest() for archive in archives], "map": self.config.env.options["map"]}
        table = gather(
            archives,
            self.house,
            self.length,
            self.method.merge,
            self.config.seed,
            folder,
            about,
            lambda done: self.progress.line(f"merge  behaviours {done:,}/{total:,}"),
            self.folder.attempt,
        )
        forget_unfinished(folder, self.folder.attempt)
        groups = len(np.unique(table.group))
        self.progress.note(f"merge: {len(table):,} distinct behaviours of {total:,}, in {groups:,} groups")
        return {"behaviours": len(table), "of": total, "groups": groups}

    def annotate(self, folder: Path) -> dict[str, Any] | None:
        """What each behaviour passes."""
        lines, count = [], 0
        for ids, pose in self.trajectories():
            symbols, routes = self.scene.symbols(pose), self.scene.route(pose, again=True)
            for row, number in enumerate(ids.tolist()):
                line = {"id": number, "route": routes[row], "told": words.told(self.scene, symbols, row)}
                lines.append(json.dumps(line | {"moments": self.scene.annotation(symbols, row)}))
            count += len(ids)
            self.progress.line(f"annotate  behaviours {count:,}")
            if self.stop.reason:
                return None
        self.folder.write(folder / ANNOTATIONS, "".join(f"{line}\n" for line in lines))
        return {"behaviours": count}

    def describe(self, folder: Path) -> dict[str, Any] | None:
        """Texts of each behaviour, by a language model."""
        settings = self.method.describe
        annotations = list(_lines(self.source("annotate") / ANNOTATIONS))
        questions = [(line, n) for line in annotations for n in range(settings.texts)]
        texts: list[dict[str, Any]] = []
        failed = untrue = 0
        for begin in range(0, len(questions), settings.batch):
            part = questions[begin : begin + settings.batch]
            for answer, (line, n), style in zip(*self._describe(part), strict=True):
                failed += not answer.ok
                if not answer.ok:
                    continue
                text = answer.value["caption"]
                true = words.is_true(self.scene, text, line["route"])
                untrue += not true
                texts.append({"id": line["id"], "n": n, "style": style, "text": text, "true": true})
            self.progress.line(f"describe  texts {begin + len(part):,}/{len(questions):,}  failed {failed:,}")
            self.look_after()
            if self.stop.reason:
                return None
        if len(texts) == untrue:
            raise RunError("no behaviour could be described: see 'launch.py llm cost', or choose another model")
        self.folder.write(folder / TEXTS, "".join(f"{json.dumps(text)}\n" for text in texts))
        self.progress.note(
            f"describe: {len(texts):,} texts of {len(annotations):,} behaviours, {failed:,} failed, "
            f"{untrue:,} say what was not done and are left out"
        )
        return {"texts": len(texts), "failed": failed, "untrue": untrue}

    def split(self, folder: Path) -> dict[str, Any] | None:
        """Which groups are learned from, and the trials of those that are not."""
        settings = self.method.split
        table = Behaviours.load(self.source("merge"))
        texts = self.texts()
        part = split(table.group, (1 - settings.validation - settings.test, settings.validation, settings.test))
        self.folder.write(folder / PARTS_FILE, safetensors.numpy.save({"part": part}))
        frozen = self._trials(table, np.flatnonzero(part == PARTS.index("test")), texts)
        trials.save(frozen, folder, self.folder.attempt)
        counts = {name: int((part == number).sum()) for number, name in enumerate(PARTS)}
        self.progress.note(f"split: {counts['train']:,} behaviours to learn from, {len(frozen):,} trials")
        return counts | {"trials": len(frozen)}

    def cluster(self, folder: Path) -> dict[str, Any] | None:
        """Centres of each wheel's speed."""
        table, rows = self.part("train")
        settings, store = self.method.sequence, EpisodeStore(self.source("merge"))
        nothing = [[np.zeros(1, np.int32)]] * len(rows)  # texts do not matter here
        sequences = Sequences(store, rows, nothing, table.descriptor[rows], settings.stride)
        blocks = (np.arange(begin, min(begin + BLOCK, len(rows))) for begin in range(0, len(rows), BLOCK))
        actions = np.concatenate([sequences.read(block).actions for block in blocks])
        found = {f"{d}": centres(actions[:, d], count) for d, count in enumerate(settings.clusters)}
        self.folder.write(folder / CENTRES, safetensors.numpy.save(found))
        return {"actions": len(actions)} | {f"centres_{d}": value.tolist() for d, value in found.items()}

    def tokenize(self, folder: Path) -> dict[str, Any] | None:
        """The vocabulary of the texts that are learned from."""
        settings, texts = self.method.tokenize, self.texts()
        table, rows = self.part("train")
        corpus = [text for number in table.id[rows].tolist() for text in texts.get(number, [])]
        tokenizer = words.train_tokenizer(corpus, settings.size, settings.least)
        longest = max(map(len, words.encode(tokenizer, corpus, settings.longest)))
        self.folder.write(folder / TOKENIZER, tokenizer.to_str())
        return {"entries": tokenizer.get_vocab_size(), "longest": longest}

    # ---- what they share -------------------------------------------------------------------------------------------

    def trajectories(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Ids [N] and poses [N, T, 3] of all behaviours, in blocks."""
        table = Behaviours.load(self.source("merge"))
        for begin in range(0, len(table), BLOCK):
            rows = slice(begin, begin + BLOCK)
            yield (
                table.id[rows],
                navigation.rollout(self.house, table.start[rows], table.weights[rows], self.length)["pose"],
            )

    def texts(self) -> dict[int, list[str]]:
        """The true texts of each behaviour, by its id."""
        found: dict[int, list[str]] = {}
        for line in _lines(self.source("describe") / TEXTS):
            if line["true"]:
                found.setdefault(line["id"], []).append(line["text"])
        return found

    def part(self, name: str) -> tuple[Behaviours, NDArray[np.int64]]:
        """All behaviours, and the rows of a part of them."""
        table = Behaviours.load(self.source("merge"))
        part = safetensors.numpy.load_file(self.source("split") / PARTS_FILE)["part"]
        return table, np.flatnonzero(part == PARTS.index(name))

    def ask(self, task: str, items: list[dict[str, Any]], sample: int = 0) -> list[Answer]:
        """Answers of a language model. Those that are away or late are asked again, as long as some of them come.

        If the run is asked to stop, some may have no answer.

        Raises:
            BudgetExhausted: no more may be spent.
            AwayTooLong: for as long as the run will wait, no answer came.
        """
        assert self.language is not None, "a stage that asks has a service"
        with self.language.door(task, "wait") as door:
            answers = door.ask(task, items, sample=sample)
            fewest, ends = len(items) + 1, 0.0
            while (missing := _without_answer(answers)) and not self.stop.reason:
                if len(missing) < fewest:
                    fewest, ends = len(missing), time.monotonic() + self.language.patience_s
                elif time.monotonic() > ends:
                    raise AwayTooLong(f"the language model gave no answer: {answers[missing[0]].reason}")
                self.look_after()
                time.sleep(PAUSE_S)
                again = door.ask(task, [items[i] for i in missing], sample=sample)
                for i, answer in zip(missing, again, strict=True):
                    answers[i] = answer
        for answer in answers:
            if answer.status is Status.BUDGET:
                raise BudgetExhausted(f"the language model may not be asked any more: {answer.reason}")
        return answers

    def _stages(self) -> list[str]:
        return self.config.stages or ["search"]

    def _describe(self, part: list[tuple[dict[str, Any], int]]) -> tuple[list[Answer], list[Any], list[str]]:
        """Answers, questions and styles, those of one sample after the other."""
        settings = self.method.describe
        asked: list[tuple[dict[str, Any], int]] = []
        answers: list[Answer] = []
        styles: list[str] = []
        for n in range(settings.texts):
            own = [question for question in part if question[1] == n]
            if not own:
                continue
            draw = uniform(np.array([line["id"] for line, _ in own]) * 16 + n)
            bounds = [settings.request, settings.request + settings.narrative]
            chosen = [("request", "narrative", "instruction")[i] for i in np.searchsorted(bounds, draw, side="right")]
            items = [
                {"observations": line["told"], "actions": [words.DRIVE] * (len(line["told"]) - 1), "style": style}
                for (line, _), style in zip(own, chosen, strict=True)
            ]
            answers += self.ask("caption_trajectory", items, sample=n)
            asked, styles = asked + own, styles + chosen
        return answers, asked, styles

    def _trials(self, table: Behaviours, rows: NDArray[np.int64], texts: dict[int, list[str]]) -> list[Trial]:
        settings, generator = self.method.split, np.random.default_rng([self.config.seed, 1])
        told = {row: texts[int(table.id[row])][0] for row in rows.tolist() if int(table.id[row]) in texts}
        rows = np.array([row for row in rows.tolist() if row in told], np.int64)
        if not len(rows):
            raise RunError("no described behaviour is held out: raise method.split.test, or search longer")
        wanted = [words.asked(self.scene, told[row]) for row in rows.tolist()]
        plain = generator.permutation(len(rows))[: settings.plain].tolist()
        pairs = rivals(table.descriptor[rows], wanted, table.group[rows], settings.near, settings.how, generator)
        chosen = [(i, i, "plain") for i in plain] + [(i, pair[0], "how") for pair in pairs for i in pair]
        ids = table.id[rows]
        starts = nearby(self.house, ids, self.config.seed + 1, settings.distance, settings.degrees)
        result = []
        for number, (own, end, kind) in enumerate(chosen):
            for wording in ("described", "reworded"):
                text = told[int(rows[own])] if wording == "described" else reworded(wanted[own], number)
                for begins, start in (("map", self.house.start), ("nearby", starts[own].tolist())):
                    target = table.descriptor[rows[end]].tolist()
                    trial = Trial(text, wanted[own], target, list(start), int(ids[own]), kind, wording, begins)
                    result.append(trial)
        return result


def _without_answer(answers: list[Answer]) -> list[int]:
    """Which may have one if they are asked again."""
    return [i for i, answer in enumerate(answers) if answer.status in (*PASSING, Status.EXPIRED)]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a JSON lines file.

    Raises:
        RunError: one is damaged.
    """
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                yield json.loads(line)
            except ValueError:
                raise RunError(f"{path} is damaged in line {number}: run its stage again") from None
