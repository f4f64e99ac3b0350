"""A fitted robot is asked: what is said of its episodes is what they did, whatever is done about the target."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.behaviours.deploy import deploy
from actors.behaviours.ride import Sense
from cluster.cli.ask import drawing, telling
from cluster.cli.ask.robot import MOST, Question, Robot
from cluster.config.tree import as_yaml, compose
from learner.behaviours import words
from llm_service.errors import UsageError
from tests.cluster.asked_run import COUNT, LENGTH, LONGEST, write_asked

ROOT = Path(__file__).resolve().parents[2]
ASKED = "go to the fridge, then to the yellow tile"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_asked(tmp_path_factory.mktemp("runs") / "told")


@pytest.fixture(scope="module")
def robot(run: Path) -> Robot:
    return Robot(run)


@pytest.fixture(scope="module")
def forgetful(run: Path) -> Robot:
    """Its model was also fitted without targets, and its data are in another run."""
    name = write_asked(
        run.parent / "forgetful", "method.sequence.forget=0.3", stages="imitate", source="run:told/tokenize"
    )
    (name / "stages/imitate/model.safetensors").write_bytes((run / "stages/imitate/model.safetensors").read_bytes())
    return Robot(name)


def driven(robot: Robot, sentence: str, target: Any, samples: int, seed: int = 0, start: Any = None) -> Any:
    """Poses [S, T, 3] by the engine itself."""
    start = robot.house.start if start is None else start
    asked = words.encode(robot.tokenizer, [sentence], LONGEST), np.array([target], np.float32)
    found = deploy(
        robot.model,
        robot.house,
        *asked,
        np.array([start], np.float32),
        samples,
        LENGTH,
        stride=10,
        seed=seed,
        sense=Sense(start),
    )
    return found["pose"][0]


def read(robot: Robot, sentence: str) -> words.Description:
    return words.Description(sentence, tuple(words.asked(robot.scene, sentence)))


# ---- what is told is what happened -----------------------------------------------------------------------------------


def test_samples_are_grouped_by_the_places_of_the_sentence(robot: Robot) -> None:
    answer = robot.answer(Question(ASKED, (300.0, 450.0), 12, seed=3))
    np.testing.assert_array_equal(answer.pose, driven(robot, ASKED, (300, 450), 12, 3))
    assert answer.places == ["fridge", "yellow tile"]
    routes, last = words.visited(robot.scene, answer.pose)
    assert answer.obedience == [words.obeyed(answer.places, r, at) for r, at in zip(routes, last, strict=True)]
    assert sorted(sample for route in answer.routes for sample in route.samples) == list(range(12))
    assert [len(route.samples) for route in answer.routes] == sorted(
        (len(r.samples) for r in answer.routes), reverse=True
    )
    assert len({tuple(route.places) for route in answer.routes}) == len(answer.routes) > 1
    for route in answer.routes:
        assert sum(route.ends.values()) == len(route.samples)
        assert route.obedience == pytest.approx(np.mean([answer.obedience[s] for s in route.samples]))
        for sample in route.samples:
            own = [place for place in routes[sample] if place in ("fridge", "yellow tile")]
            assert [place for k, place in enumerate(own) if k == 0 or own[k - 1] != place] == route.places
            assert any(set(end.split(", ")) == last[sample] for end in route.ends)
    found = answer.as_json()
    assert found["obedience"] == pytest.approx(np.mean(answer.obedience))
    off = np.linalg.norm(answer.pose[:, -1, :2] - [300, 450], axis=1)
    assert found["distance"] == pytest.approx(np.median(off), abs=0.1)
    assert [sample["distance"] for sample in found["samples"]] == pytest.approx(off.tolist(), abs=0.1)


def test_places_may_be_named_in_another_order_than_they_are_asked_for(robot: Robot) -> None:
    """What is scored and looked up changes, not what the model reads: it is told no order."""
    backwards = "go to the yellow tile after the fridge"
    asked = [Question(backwards, (300.0, 450.0), 12, seed=3, order=order) for order in ("forwards", "backwards")]
    one, other = map(robot.answer, asked)
    np.testing.assert_array_equal(one.pose, other.pose)
    assert (one.places, other.places) == (["yellow tile", "fridge"], ["fridge", "yellow tile"])
    routes, last = words.visited(robot.scene, other.pose)
    assert other.obedience == [words.obeyed(other.places, r, at) for r, at in zip(routes, last, strict=True)]
    assert one.obedience != other.obedience
    known = robot.archive.by_text(read(robot, ASKED), 3, np.array([300, 450], np.float32))
    assert [near.likeness for near in other.by_text] == [near.likeness for near in known]


def test_words_outside_the_vocabulary_are_marked_where_they_are(robot: Robot) -> None:
    answer = robot.answer(Question("  Go to the Kitchen,\tthen\x07 to the frïdge; PLEASE!", samples=1))
    assert answer.sentence == "Go to the Kitchen, then to the frïdge; PLEASE!"
    assert answer.unknown == ["Kitchen", "PLEASE"]  # case and accents do not matter to the model
    assert "".join(piece for piece, _ in answer.pieces) == answer.sentence
    assert answer.places == []  # the rule that scores reads names as they are written
    assert answer.obedience == [0.0]
    assert "it names no place" in telling.told(answer)


def test_neighbours_are_of_what_was_learned_from(robot: Robot) -> None:
    answer = robot.answer(Question(ASKED, (300.0, 450.0), 2))
    ends = robot.table.descriptor[: COUNT - 20]  # the others are tests
    order = np.linalg.norm(ends - [300, 450], axis=1).argsort()[:3]
    assert [near.id for near in answer.by_end] == order.tolist()
    assert [near.distance for near in answer.by_end] == pytest.approx(
        np.linalg.norm(ends[order] - [300, 450], axis=1).tolist(), rel=1e-5
    )
    assert len(answer.by_text) == 3
    assert answer.by_text[0].likeness == max(robot.archive.likeness(read(robot, ASKED)).values()) > 0
    for near in (*answer.by_text, *answer.by_end):
        np.testing.assert_allclose(near.pose[-1, :2], robot.table.descriptor[near.id], atol=1e-3)
        assert near.end == pytest.approx(near.pose[-1, :2].tolist(), abs=0.06)


# ---- the target ------------------------------------------------------------------------------------------------------


def test_a_model_that_knows_no_sentence_without_a_target_gets_a_predicted_one(robot: Robot) -> None:
    answer = robot.answer(Question(ASKED, samples=4))
    place, alike = robot.archive.leads_to(read(robot, ASKED))
    assert (answer.target_is, answer.alike) == ("predicted", alike)
    assert answer.target == pytest.approx(place.tolist(), abs=0.06)
    np.testing.assert_array_equal(answer.pose, driven(robot, ASKED, answer.target, 4))
    assert "predicted" in telling.told(answer)
    with pytest.raises(UsageError, match="no text of the archive is like this sentence"):
        robot.answer(Question("xyzzy"))


def test_a_model_that_was_fitted_without_targets_now_and_then_is_told_none(forgetful: Robot) -> None:
    answer = forgetful.answer(Question(ASKED, samples=4))
    assert (answer.target, answer.target_is) == (None, "left out")
    np.testing.assert_array_equal(answer.pose, driven(forgetful, ASKED, (np.nan, np.nan), 4))
    assert np.isfinite(answer.pose).all()
    assert "left out" in telling.told(answer)
    best = answer.pose[int(np.argmax(answer.obedience)), -1, :2]
    assert answer.by_end[0].distance == pytest.approx(np.linalg.norm(np.array(answer.by_end[0].end) - best), abs=0.1)
    told = forgetful.answer(Question(ASKED, (300.0, 450.0), 4))
    assert told.target_is == "given"
    assert np.abs(told.pose - answer.pose).max() > 1
    assert forgetful.answer(Question("xyzzy", samples=1)).unknown == ["xyzzy"]


def test_a_model_without_targets_is_given_none(run: Path) -> None:
    words_ = "method.sequence.model.ablate=target"
    blind = Robot(write_asked(run.parent / "blind", words_, stages="imitate", source="run:told/tokenize"))
    answer = blind.answer(Question(ASKED, samples=2))
    assert answer.target_is == "left out"
    with pytest.raises(UsageError, match="fitted without targets"):
        blind.answer(Question(ASKED, (300.0, 450.0)))


def test_a_start_of_ones_own_is_known_to_the_robot(robot: Robot) -> None:
    answer = robot.answer(Question(ASKED, (300.0, 450.0), 2, (300.0, 525.0, 90.0)))
    pose = driven(robot, ASKED, (300, 450), 2, start=(300.0, 525.0, np.pi / 2))
    np.testing.assert_allclose(answer.pose, pose, atol=1e-3)
    assert answer.start == (300, 525, 90)


# ---- pictures --------------------------------------------------------------------------------------------------------


def test_the_picture_shows_every_sample_and_is_a_file_of_its_own(robot: Robot) -> None:
    answer = robot.answer(Question("go to the fridge & <script>alert(1)</script>", (300.0, 450.0), 6))
    root = ElementTree.fromstring(drawing.standalone(drawing.drawing(robot.scene, answer)))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "<script>" in root.attrib["aria-label"]
    assert not root.findall(".//{*}script")
    groups = root.findall(".//{*}g[@class='route']")
    assert [len(group.findall("{*}circle")) for group in groups[::-1]] == [len(r.samples) for r in answer.routes]
    for number, group in enumerate(groups[::-1]):
        assert {text.text for text in group.findall("{*}text")} == {str(number + 1)}
        for circle, sample in zip(group.findall("{*}circle"), answer.routes[number].samples, strict=True):
            end = answer.pose[sample, -1, :2] * robot.house.scale
            assert [float(circle.attrib[k]) for k in ("cx", "cy")] == pytest.approx(end.tolist(), abs=0.06)
    for near in answer.by_text:
        ElementTree.fromstring(drawing.thumbnail(robot.scene, near))


# ---- the verb --------------------------------------------------------------------------------------------------------


def launch(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "launch.py"), "ask", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_the_verb_answers_in_words_or_as_json_and_draws(run: Path, robot: Robot) -> None:
    words_ = [str(run), ASKED, "--target", "300,450", "--samples", "5", "--seed", "2", "--order", "end first"]
    done = launch(*words_, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    answer = robot.answer(Question(ASKED, (300.0, 450.0), 5, seed=2, order="end first"))
    assert found == json.loads(json.dumps(answer.as_json())) | {"picture": str(run / "ask.svg")}
    assert ElementTree.parse(run / "ask.svg").getroot().findall(".//{*}g[@class='route']")
    told = launch(*words_, "--picture", str(run.parent / "pictures" / "it.svg"))
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith(telling.told(answer))
    assert (run.parent / "pictures" / "it.svg").read_bytes() == (run / "ask.svg").read_bytes()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sentence": ""}, "the sentence is empty"),
        ({"sentence": " ?! \x00"}, "the sentence is empty"),
        ({"sentence": "go " * LONGEST}, "at most 64 are read.*say it shorter"),
        ({"samples": 0}, f"samples are 1 to {MOST}"),
        ({"samples": MOST + 1}, f"samples are 1 to {MOST}"),
        ({"seed": -1}, "a seed is 0 to"),
        ({"order": "sideways"}, "the order of places is one of forwards, end first, backwards: got 'sideways'"),
        ({"target": (-1.0, 50.0)}, r"target \(-1, 50\) is off the map: x is 0 to 600 and y 0 to 600"),
        ({"target": (50.0, 601.0)}, "off the map"),
        ({"target": (float("nan"), 50.0)}, "off the map"),
        ({"target": (float("inf"), 50.0)}, "off the map"),
        ({"target": (1.0, 1.0)}, r"target \(1, 1\) is in a wall"),
        ({"start": (1.0, 1.0, 0.0)}, r"start \(1, 1\) is in a wall"),
        ({"start": (60.0, 450.0, 1e9)}, "angle is -360 to 360"),
        ({"start": (60.0, 450.0, float("nan"))}, "angle is -360 to 360"),
    ],
)
def test_a_senseless_question_is_one_sentence(robot: Robot, change: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        robot.answer(Question(**({"sentence": ASKED} | change)))


@pytest.mark.parametrize(
    ("settings", "stages", "said"),
    [
        (["method.sequence.model.ablate=text"], "data,imitate", r"fitted without texts \(ablate=text\)"),
        (["method.sequence.model.ablate=both"], "data,imitate", r"fitted without texts \(ablate=both\)"),
        ([], "data", "has no fitted model: finish its stage imitate"),
        ([], "imitate", "stage tokenize is missing"),
        (["env.map=gone.json"], "data,imitate", "cannot read the map"),
    ],
)
def test_a_run_that_cannot_be_asked_is_one_sentence(tmp_path: Path, settings: Any, stages: str, said: str) -> None:
    folder = write_asked(tmp_path / "run", *[word for word in settings if "map" not in word], stages=stages)
    if settings and "map" in settings[0]:
        text = (folder / "config.yaml").read_text()
        (folder / "config.yaml").write_text(text.replace("map: ''", "map: gone.json"))
    with pytest.raises(UsageError, match=said):
        Robot(folder)


def test_other_settings_than_the_fit_had_are_one_sentence(run: Path) -> None:
    other = write_asked(run.parent / "wide", "method.sequence.model.width=32", stages="", source="run:told/imitate")
    with pytest.raises(UsageError, match="settings that it was fitted with"):
        Robot(other)


def test_another_methods_run_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/config.yaml").write_bytes(as_yaml(compose(["experiment=toy"])))
    with pytest.raises(UsageError, match="only runs of method=lgqd are asked in words"):
        Robot(tmp_path / "toy")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere", ASKED), "no run 'nowhere'"),
        (("RUN", ASKED, "--target", "4"), "--target is x,y in world units"),
        (("RUN", ASKED, "--target", "a,b"), "--target is x,y in world units"),
        (("RUN", ASKED, "--start", "1,2"), "--start is x,y,degrees in world units"),
    ],
)
def test_what_the_verb_does_not_understand_is_one_sentence(run: Path, arguments: tuple[str, ...], said: str) -> None:
    done = launch(*(str(run) if word == "RUN" else word for word in arguments))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
