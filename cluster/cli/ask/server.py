"""Asking a robot in the browser: one page, and a model that is loaded once.

    browser ── POST ask {sentence, order, samples, target: [x, y] or null, seed} ──> what it did, in words and pictures

Nothing is stored. Questions are answered one after the other, so several browsers share the processor in turn.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from cluster.cli.ask import drawing, telling
from cluster.cli.ask.page import page
from cluster.cli.ask.robot import MOST, Answer, Neighbour, Question, Robot
from cluster.judge.loopback import Refused, Site, make_server
from cluster.report import house_plan
from llm_service.errors import UsageError


class Asking(Site):
    """A robot that is asked."""

    def __init__(self, robot: Robot) -> None:
        self.robot, self._one_at_a_time = robot, threading.Lock()

    def page(self, nonce: str) -> str:
        robot = self.robot
        without = "the model acts on the text alone" if robot.reads_alone else "one is predicted from the archive"
        plan = house_plan.drawing(robot.scene, [], "the furnished house")
        told = without if robot.sees_targets else ""
        return page(robot.name, plan, robot.scene.places, robot.house.scale, told, MOST, nonce)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path != "ask":
            raise Refused(HTTPStatus.NOT_FOUND, "there is nothing here")
        asked = question(body)
        with self._one_at_a_time:
            return self._shown(self.robot.answer(asked))

    def _shown(self, answer: Answer) -> dict[str, Any]:
        found = answer.as_json()
        for number, route in enumerate(answer.routes):
            found["routes"][number] |= {
                "colour": drawing.colour(number),
                "told": telling.route(answer, route),
                "ended": telling.ends(route),
            }
        return found | {
            "pieces": answer.pieces,
            "told": telling.summary(answer),
            "about_places": telling.places(answer),
            "about_target": telling.target(answer),
            "drawing": drawing.drawing(self.robot.scene, answer),
            "by_text": self._drawn(found["by_text"], answer.by_text),
            "by_end": self._drawn(found["by_end"], answer.by_end),
        }

    def _drawn(self, plain: list[dict[str, Any]], neighbours: Sequence[Neighbour]) -> list[dict[str, Any]]:
        scene = self.robot.scene
        return [
            one | {"drawing": drawing.thumbnail(scene, neighbour)}
            for one, neighbour in zip(plain, neighbours, strict=True)
        ]


def question(body: dict[str, Any]) -> Question:
    """What a page sends.

    Raises:
        UsageError: a value is missing or of another type.
    """
    sentence, samples, seed, target = (body.get(name) for name in ("sentence", "samples", "seed", "target"))
    order = body.get("order", "forwards")
    if not isinstance(sentence, str) or not isinstance(order, str):
        raise UsageError("the sentence and the order of its places are texts")
    if type(samples) is not int or type(seed) is not int:
        raise UsageError(f"samples, 1 to {MOST}, and seed are whole numbers")
    if target is None:
        return Question(sentence, None, samples, None, seed, order)
    if not (isinstance(target, list) and len(target) == 2 and all(type(value) in (int, float) for value in target)):
        raise UsageError("a target is two numbers, x and y")
    try:
        return Question(sentence, (float(target[0]), float(target[1])), samples, None, seed, order)
    except OverflowError:
        raise UsageError("a target is two numbers, x and y, on the map") from None


def serve(folder: Path, port: int) -> None:
    """Serve a run's robot until Ctrl-C. port: 0 takes a free one.

    Raises:
        UsageError: the run has no robot that can be asked, or the port is taken.
    """
    robot = Robot(folder)
    server, address = make_server(Asking(robot), port)
    robot.warm_up()
    print(f"ask {robot.name}: open {address}\nCtrl-C ends", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()
