"""Rating behaviour in the browser: one page, and append-only files of ratings.

    browser ── GET state?rater=ana ──> the next trial, in an order of ana's own
            ── POST answer {rater, item, tenths} ──> appended, synced ──> the next trial
            ── POST undo {rater} ──> the last answer taken back, and shown again

It keeps no ratings in memory, so it can be killed at any time and continues at the next start. Limit: a few people at
once, on one file system.
"""

from __future__ import annotations

import sys
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from cluster.judge.loopback import Refused, Site, make_server
from cluster.judge.page import page
from cluster.report import deployed, house_plan
from cluster.report.deployed import Deployed
from cluster.runs.run_data import part
from learner.behaviours.ratings import RatingError, Ratings, scores, shuffled, waiting
from llm_service.errors import UsageError


class Judging(Site):
    """The trials to rate, and what each rater has done.

    count: number of trials, the same ones for everybody; trials that the language model judged come first.
    rater: the rater's name; "" lets the page ask.
    """

    def __init__(self, found: Deployed, count: int, rater: str = "") -> None:
        self.found, self.rater = found, rater
        rest = shuffled([item for number, item in enumerate(found.items) if number not in found.judged], "")
        self.items = [*(found.items[number] for number in found.judged), *rest][:count]
        self.trial = {item: number for number, item in enumerate(found.items)}

    def page(self, nonce: str) -> str:
        run = self.found.run
        told = part(run.config, "method", "judge").get("rubric")  # the criteria that the language model was given
        return page(run.name, self.rater, [str(word) for word in told] if isinstance(told, list) else [], nonce)

    def get(self, path: str, query: str) -> dict[str, Any]:
        if path != "state":
            raise Refused(HTTPStatus.NOT_FOUND, "there is nothing here")
        return self.state(parse_qs(query).get("rater", [""])[0])

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        rater = str(body.get("rater", ""))
        if path == "answer":
            return self.answer(rater, body.get("item"), body.get("tenths", "none"))
        if path == "undo":
            return self.undo(rater)
        raise Refused(HTTPStatus.NOT_FOUND, "there is nothing here")

    def state(self, rater: str, before: float | None = None) -> dict[str, Any]:
        """What the page shows to a rater; `before`: the score that was taken back.

        Raises:
            RatingError: this is not a valid name, or the rater's file is damaged.
        """
        answers = Ratings(self.found.ratings, rater).answers()
        left = waiting(shuffled(self.items, rater), answers)
        passed = {answer.item for answer in answers} & set(left)
        return {
            "done": len(self.items) - len(left),
            "of": len(self.items),
            "passed": len(passed),
            "undo": bool(answers),
            "before": None if before is None else round(10 * before),
            "item": self._shown(left[0]) if left else None,
        }

    def answer(self, rater: str, item: object, tenths: object) -> dict[str, Any]:
        """Save an answer.

        Raises:
            RatingError: the rater, the item or the score is not valid.
        """
        if item not in self.items:
            raise RatingError("this trial is not rated here: load the page again")
        if tenths is not None and not (type(tenths) is int and 0 <= tenths <= 10):
            raise RatingError("a score is 0 to 10 tenths, or null for later")
        Ratings(self.found.ratings, rater).give(str(item), None if tenths is None else tenths / 10)
        return self.state(rater)

    def undo(self, rater: str) -> dict[str, Any]:
        """Take the last answer back, and show its trial."""
        taken = Ratings(self.found.ratings, rater).take_back()
        return self.state(rater, taken.score if taken else None)

    def _shown(self, item: str) -> dict[str, str]:
        number, scene = self.trial[item], self.found.scene
        pose = self.found.pose[number]
        layers = [house_plan.way(scene, pose), house_plan.robot(scene, pose)]
        title = "where the robot drove in the furnished house"
        drawing = house_plan.drawing(scene, layers, title, house_plan.time_key(scene))
        return {"id": item, "text": self.found.trials[number].text, "drawing": drawing}


def serve(folder: Path, rater: str, port: int, count: int) -> None:
    """Serve at most `count` of a run's trials until Ctrl-C.

    rater: the rater's name; "" lets the page ask. port: 0 takes a free one.

    Raises:
        UsageError: nothing was deployed, the name is not valid, the port is taken, or there is nothing to rate.
    """
    if count < 1:
        raise UsageError(f"--trials is how many to rate, at least 1: got {count}")
    judging = Judging(deployed.read(folder), count, rater)
    if rater:
        judging.state(rater)
    server, address = make_server(judging, port)
    ratings = judging.found.ratings
    print(f"{len(judging.items)} trials to rate; open {address}\nratings go to {ratings}; Ctrl-C ends", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()
        people = {path.stem: len(scores(Ratings(ratings, path.stem).answers())) for path in ratings.glob("*.jsonl")}
        told = ", ".join(f"{who} {number}" for who, number in sorted(people.items())) or "none"
        print(f"\ntrials rated: {told}; to see them in the report: python launch.py report {folder}", file=sys.stderr)
