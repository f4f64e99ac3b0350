"""What describers and judges are told and say: plans, synonyms, directions, ends, and recordings."""

import asyncio
import dataclasses
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import envs
from cluster import run as controller
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from cluster.runs.folder import RunError
from envs import navigation
from learner.behaviours import trials, words
from learner.behaviours.config import JudgeConfig
from learner.behaviours.table import Behaviours
from llm_service import tasks
from llm_service.backends import scripted
from llm_service.backends.scripted.sense import Sense
from llm_service.tasks._template import without_plan
from llm_service.world import World
from tests.cluster.test_lgqd import config, lines

SCENE = navigation.Scene(navigation.load())
STYLES = ("request", "instruction", "narrative")
FEW = ["method.search.generations=30", "method.merge.copies=0"]
FIRST = "[search,merge,annotate,describe]"


def drives(count=60):
    """Poses of robots whose wheels have random speeds, each for ten steps."""
    wheels = np.random.default_rng(3).uniform(-1, 4, (count, 40, 2)).round(1).astype(np.float32)
    return navigation.simulate(SCENE.house, None, np.repeat(wheels, 10, 1))["pose"]


def captions(pose, world=None, **options):
    """The questions and the scripted describer's replies."""
    world = world or World(**envs.knowledge("navigation"))
    module, symbols = tasks.task("caption_trajectory"), SCENE.symbols(pose)
    calls = []
    for n in range(len(pose)):
        told = words.told(SCENE, symbols, n)
        ways = words.headed(symbols.position[n]) if options.get("directions") else ["drive"] * (len(told) - 1)
        inputs = module.Inputs(observations=told, actions=ways, style=STYLES[n % 3], **options)
        calls += [dataclasses.replace(call, sample=n // 30) for call in module.calls(inputs, world)]
    replies = asyncio.run(scripted.make(scripted.Config(), world).answer(calls))
    return calls, [reply.text for reply in replies]


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    assert controller.run(config(folder, "plain", *FEW, f"stages={FIRST}")) == 0
    return folder / "plain"


def again(described, name, *more):
    """The texts of another run on the same annotations."""
    assert controller.run(config(described.parent, name, "from=run:plain/annotate", "stages=[describe]", *more)) == 0
    return lines(described.parent / name / "stages/describe/texts.jsonl")


def texts_of(run):
    return lines(run / "stages/describe/texts.jsonl")


def frames(names, text):
    """Every three successive words of a text that has no names of places, and no "the"."""
    words = re.sub(names, " ", text.lower().replace("the ", " "))
    found = re.findall(r"[a-z]+", words)
    return zip(found, found[1:], found[2:], strict=False)


def paraphrases():
    places = ["stove", "bed", "fan", "sofa"]
    return [trials.paraphrased(places[:n], number, {}) for n in (2, 3, 4) for number in range(4)]


# ---- prompts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["caption_trajectory", "judge_trajectory"])
def test_another_object_on_the_map_changes_the_prompt_and_nothing_else(name, tmp_path):
    module = tasks.task(name)
    asked = {"instruction": "go", "rubric": ["order"]} if name == "judge_trajectory" else {}
    inputs = module.Inputs(observations=[["You are on the red tile"]], actions=[], **asked)
    plan = navigation.load().as_json()
    plan["objects"][0] = {"name": "grand_piano", "x": 22, "y": 30}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    prompts = []
    for options in ({}, {"map": str(tmp_path / "plan.json")}):
        (call,) = module.calls(inputs, World(**envs.knowledge("navigation", options)))
        prompts.append(call)
    default, other = (call.turns[0][1].splitlines() for call in prompts)
    assert set(default) - set(other) == {"cactus: at (180, 67), on the white tile."}
    assert set(other) - set(default) == {"grand piano: at (22, 170), on the red tile."}
    assert prompts[0].turns[1] == prompts[1].turns[1]
    assert without_plan(prompts[0]) == without_plan(prompts[1]) != prompts[0]


def test_a_world_without_a_plan_is_asked_as_ever():
    (call,) = tasks.task("caption_trajectory").calls(
        tasks.task("caption_trajectory").Inputs(observations=[["a"]], actions=[]), World(**envs.knowledge("toy"))
    )
    assert "plan" not in call.turns[0][1]
    assert without_plan(call) == call


def test_a_judge_answers_questions_before_it_gives_points():
    module, questions = tasks.task("judge_trajectory"), JudgeConfig().questions
    told = {"observations": [["You are on the red tile"]], "actions": [], "instruction": "go", "rubric": ["order"]}
    world = World(**envs.knowledge("navigation"))
    (bare,), (asked,) = (module.calls(module.Inputs(**told, **more), world) for more in ({}, {"questions": questions}))
    assert bare.turns[0] == asked.turns[0]
    shown = asked.turns[1][1]
    assert [line[2:] for line in shown.splitlines() if line[2:] in questions] == questions
    assert shown.endswith("and then the JSON object:")
    assert bare.turns[1][1].endswith("\nJSON object:")
    assert asked.parameters.max_tokens > bare.parameters.max_tokens


# ---- the scripted describer ------------------------------------------------------------------------------------------


def test_without_options_texts_are_what_they_were_before_there_were_any():
    """Recorded with the describer that knew no plan, no synonyms and no directions: it said the same, to the letter."""
    _, said = captions(drives())
    assert hashlib.blake2b(json.dumps(said).encode(), digest_size=8).hexdigest() == "a4419076e219adf4"
    assert said[1] == "caption: Go to the stove, then go to the yellow tile, then go to the pink tile."


def test_other_words_are_of_the_map_and_mean_the_same_places():
    pose = drives()
    _, plain = captions(pose)
    _, said = captions(pose, synonyms=True)
    renamed = {name for name in SCENE.other_names for text in said if re.search(rf"\b{name}\b", text)}
    assert not renamed
    others = {other for names in SCENE.other_names.values() for other in names}
    assert len({other for other in others if any(other in text for text in said)}) > 5
    routes = words.visited(SCENE, pose)
    true = [
        sum(words.is_true(words.asked(SCENE, text), *told) for text, *told in zip(texts, *routes, strict=True))
        for texts in (plain, said)
    ]
    assert true[1] >= 0.8 * true[0] > 15


def test_turns_are_where_robots_turned():
    pose = drives(200)
    calls, said = captions(pose, directions=True)
    turned = [(call, text) for call, text in zip(calls, said, strict=True) if "turn " in text]
    assert {word for _, text in turned for word in ("left", "right") if f"turn {word}" in text} == {"left", "right"}
    assert len(turned) > 20
    east = ["stove", "table"]  # east along the south wall, then up to the statue: to the left
    for goal, word in (("statue", "left"), ("bed", "")):
        seen = [["You are on the pink tile"], *([f"You are at the {name}, on it"] for name in (*east, goal))]
        ways = ["drive east", "drive east", "drive north west" if word else "drive east"]
        inputs = tasks.task("caption_trajectory").Inputs(observations=seen, actions=ways, directions=True)
        world = World(**envs.knowledge("navigation"))
        backend = scripted.make(scripted.Config(errors=0, wrong=0, malformed=0), world)
        (reply,) = asyncio.run(backend.answer(tasks.task("caption_trajectory").calls(inputs, world)))
        assert ("turn left and go to the statue" in reply.text) == bool(word)
        assert ("turn" in reply.text) == bool(word)


@pytest.mark.parametrize("order", ["end first", "backwards"])
def test_places_are_named_in_the_order_that_is_asked_for(order):
    pose = drives()
    plain, said = captions(pose)[1], captions(pose, order=order)[1]
    routes = words.visited(SCENE, pose)

    def true(texts, order):
        told = [(words.asked(SCENE, text, order), *passed) for text, *passed in zip(texts, *routes, strict=True)]
        return [words.describes_route(places) and words.is_true(places, *passed) for places, *passed in told]

    kept = true(said, order)
    assert sum(kept) >= 0.8 * sum(true(plain, "forwards")) > 10
    assert sum(kept) > 2 * sum(true(said, "forwards"))  # as if they named places in the order of time
    shapes = {
        re.sub(rf"\b({'|'.join(SCENE.names)})\b", "X", text)
        for text, is_kept in zip(said, kept, strict=True)
        if is_kept
    }
    assert len(shapes) > 8
    alone = [text for text, before in zip(said, plain, strict=True) if len(words.asked(SCENE, before)) == 1]
    assert not [text for text in alone if "first" in text or "after" in text]  # one thing has no order


def test_a_language_model_is_told_in_which_order_to_name_places():
    module, world = tasks.task("caption_trajectory"), World(**envs.knowledge("navigation"))
    told = {"observations": [["You are on the red tile"]], "actions": []}
    prompts = {}
    for order in ("forwards", "end first", "backwards"):
        (call,) = module.calls(module.Inputs(**told, order=order), world)
        prompts[order] = call.turns[0][1], call.turns[1][1].splitlines()[0]
    assert len(set(prompts.values())) == 3
    assert "name last must be where the player is in the end" in prompts["forwards"][0]
    assert "name first must be where the player is in the end" in prompts["end first"][0]
    assert "from the last one back to the first" in prompts["backwards"][0]
    assert prompts["forwards"][1] == "Write an instruction to the player, in the imperative."


def test_no_text_that_is_learned_from_has_the_grammar_of_paraphrases(described):
    forms = [re.escape(form) for form in (*trials.PARAPHRASED, *trials.SHORT_PARAPHRASED)]
    patterns = [re.compile(re.sub(r"\\{\w+\\}", ".+", form), re.IGNORECASE) for form in forms]
    more = []
    for order in ("forwards", "end first", "backwards"):
        more += captions(drives(200), synonyms=True, directions=True, order=order)[1]
    said = [text["text"] for text in texts_of(described)] + [text.removeprefix("caption: ") for text in more]
    assert len(said) > 700
    names = rf"\b({'|'.join([*SCENE.names, 'tile'])})\b"
    learned, tested = ({three for text in texts for three in frames(names, text)} for texts in (said, paraphrases()))
    assert len(tested) > 40
    assert learned & tested == set()
    assert not [text for text in said if any(pattern.search(text) for pattern in patterns)]
    parts = ("in the end", "until", "becomes", "have been", "lies behind", "lie behind")
    assert not [text for text in said if any(part in text for part in parts)]


# ---- the stage -------------------------------------------------------------------------------------------------------


def test_options_of_the_stage_reach_the_texts(described):
    plain = texts_of(described)
    more = again(described, "more", "method.describe.synonyms=0.5", "method.describe.directions=1.0")
    names = {other for names in SCENE.other_names.values() for other in names}
    has = re.compile(rf"\b({'|'.join(names)})\b")
    assert not [text for text in plain if has.search(text["text"]) or "turn " in text["text"]]
    assert 0.15 < np.mean([bool(has.search(text["text"])) for text in more]) < 0.6
    assert any("turn " in text["text"] for text in more)
    assert [text["style"] for text in more if text["n"] == 0][:50] == [text["style"] for text in plain][:50]
    assert np.mean([t["true"] for t in more]) > 0.8 * np.mean([t["true"] for t in plain])


def test_the_end_of_a_behaviour_stands_in_its_text(described):
    ends = again(described, "ends", "method.describe.coordinates=true")
    table = Behaviours.load(described / "stages/merge")
    end = dict(zip(table.id.tolist(), table.descriptor.tolist(), strict=True))
    for text, before in zip(ends, texts_of(described), strict=True):
        x, y = end[text["id"]]
        tag = f" [x={round(x)}, y={round(y)}]"
        assert tag in text["text"]
        assert text | {"text": text["text"].replace(tag, "")} == before


class Speaker(BaseHTTPRequestHandler):
    """OpenAI's protocol: describes what the prompt tells, as a language model could."""

    asked = 0

    def do_GET(self):
        self._send({"object": "list", "data": [{"id": "stub", "object": "model"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked += 1
        system, user = (turn["content"] for turn in body["messages"][:2])
        assert "sofa: at (167, 180), on the blue tile." in system
        tiles = list(dict.fromkeys(re.findall(r"on the (\w+) tile", user)))
        last = re.findall(r"on the (\w+) tile", user)[-1]
        way = "".join(f"pass the {tile} tile, " for tile in tiles if tile != last)
        text = f"caption: {way}end up on the {last} tile."
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 500, "completion_tokens": 20, "total_tokens": 520}
        self._send({"id": "1", "object": "chat.completion", "model": "stub", "choices": [choice], "usage": usage})

    def _send(self, tree):
        content = json.dumps(tree).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def test_descriptions_of_a_language_model_are_recorded_and_replayed_without_it(described):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Speaker)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"llm.base_url=http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        recorded = again(described, "recorded", "llm=openai", "llm.model=stub", url)
    finally:
        server.shutdown()
        server.server_close()
    asked = Speaker.asked
    assert len(recorded) >= asked > 50  # equal behaviours are asked about once
    assert any(text["true"] for text in recorded)
    journal = described.parent / "recorded/llm/journal.jsonl"
    replayed = again(described, "replayed", "llm=replay", f"llm.replayed={journal}")
    assert replayed == recorded
    assert Speaker.asked == asked
    with pytest.raises(RunError, match=r"no behaviour could be described: .*has no answer to task caption_trajectory"):
        again(described, "unrecorded", "llm=replay", f"llm.replayed={journal}", "method.describe.synonyms=1")


def test_the_scripted_judge_understands_sentences_that_it_would_not_say():
    """Where robots can only go somewhere, places are enough to say where, by any of their names."""
    sense = Sense(World(**envs.knowledge("navigation")))
    told = (
        trials.reworded(["sofa", "file cabinet", "red tile"], 3),
        "Call at the Couch, the filing cabinet, a crimson tile",
    )
    for text in told:
        assert sorted(sense.named(text)) == ["go to the file cabinet", "go to the red tile", "go to the sofa"]
    assert sense.named("wait in the armchair") == ["go to the chair"]
    assert sense.named("nowhere") == []


@pytest.mark.parametrize(("one", "other"), [("request", "narrative"), ("end_first", "backwards")])
def test_shares_are_at_most_all_texts(one, other):
    with pytest.raises(ConfigError, match=f"{one} and .*{other} are shares: at most 1 together"):
        compose(["method=lgqd", "env=navigation", f"method.describe.{one}=0.5", f"method.describe.{other}=0.6"])
