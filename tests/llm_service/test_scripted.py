"""The scripted backend is right by the world's rules, and wrong as often as it is told to be."""

import asyncio
import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import envs
from envs import registry
from llm_service import tasks
from llm_service.backends import module
from llm_service.backends.scripted.sense import Sense, Situation, Verdict
from llm_service.errors import Malformed, Unsupported, UsageError
from llm_service.records import Call, Parameters, Reply, canonical, digest
from llm_service.sandbox.interpreter import Program
from llm_service.world import NOWHERE, World

scripted = module("scripted")
WORLD = World(**envs.knowledge("babyai"))
SENSE = Sense(WORLD)
FAULTLESS = dict.fromkeys(scripted.RATES, 0.0)
SPLIT = dict.fromkeys(scripted.SUGGESTED)  # rates that follow from `errors`


def backend(world=WORLD, **options):
    return scripted.make(scripted.Config(**FAULTLESS | options), world)


def answered(model, calls):
    return asyncio.run(model.answer(calls))


def value(model, task, world=WORLD, **inputs):
    """What a caller of a task gets."""
    asked = tasks.task(task)
    checked = asked.Inputs(**inputs)
    calls = asked.calls(checked, world)
    replies = answered(model, calls)
    return asked.combine([asked.parse(r, checked, i, world) for i, r in enumerate(replies)], checked)


def walks(level, steps=40, number=4):
    """Captions and actions of random walks."""
    env = envs.make(f"babyai/{level}", number, seed=2, captions=True, max_steps=1000)
    generator = np.random.default_rng(1)
    observations, actions = [env.captions(env.begin())], []
    for _ in range(steps):
        chosen = generator.choice([0, 1, 2, 2, 2, 3, 4, 5], number)
        observations.append(env.captions(env.advance(chosen).obs))
        actions.append([env.env_spec.action_names[a] for a in chosen])
    return [([o[i] for o in observations], [a[i] for a in actions]) for i in range(number)]


WALKS = walks("MixedTrainLocal") + walks("UnlockToUnlock")
MOMENTS = [seen for observations, _ in WALKS for seen in observations]
QUESTIONS = [  # (task, inputs), of real episodes
    *(("suggest_goals", {"observation": seen}) for seen in MOMENTS),
    *(
        ("yes_no", {"question": f"Do you see a {c} ball?", "context": seen})
        for seen in MOMENTS[:9]
        for c in ("red", "blue")
    ),
    *(("label_preference", {"first": a, "second": b}) for a, b in zip(MOMENTS[:40], MOMENTS[40:80], strict=True)),
    *(
        ("caption_trajectory", {"observations": o[:20], "actions": a[:19], "style": style})
        for o, a in WALKS
        for style in ("request", "instruction", "narrative")
    ),
    *(
        ("write_potential", {"variant": n, "evidence": [{"caption": seen, "value": v} for seen in MOMENTS[:2]]})
        for n in range(40)
        for v in (0.5, "division")
    ),
    *(
        (
            "judge_trajectory",
            {
                "observations": o[:20],
                "actions": a[:20],
                "instruction": "open the red door",
                "rubric": ["speed", "done"],
            },
        )
        for o, a in WALKS
    ),
]


def within(count, number, share):
    """Is a count of `number` throws plausible for a probability `share`? Four and a half standard deviations."""
    return abs(count - number * share) <= 4.5 * math.sqrt(number * share * (1 - share)) + 0.5


# ---- right ---------------------------------------------------------------------------------------------------------


def test_every_reply_to_real_questions_is_of_the_task_s_grammar():
    model = backend(seed=3, wrong=0.2, early=0.2, done=0.2)
    for task, inputs in QUESTIONS:
        value(model, task, **inputs)


def test_senseless_goals_are_dropped_by_the_parser():
    """Where a reply holds nothing else, it is refused as a whole."""
    model, faultless = backend(senseless=0.5), backend()
    for task, inputs in QUESTIONS:
        try:
            found = value(model, task, **inputs)
        except Malformed:
            assert task == "suggest_goals"
        else:
            right = value(faultless, task, **inputs)
            assert task != "suggest_goals" or set(found["goals"]) <= set(right["goals"])


def test_senseless_goals_stay_in_free_answers():
    world = World(**envs.knowledge("crafter"))
    sense, seen = Sense(world), ["You see the cow, the grass and the tree. You face the tree", "You have some wood"]
    right = set(value(backend(world), "suggest_goals", world, observation=seen, limit=20)["goals"])
    told = [
        value(backend(world, senseless=0.5, seed=seed), "suggest_goals", world, observation=seen, free=True)
        for seed in range(20)
    ]
    found = [goal for answer in told for goal in answer["goals"]]
    senseless = [goal for goal in found if sense.verdict(goal, Situation(seen)) is Verdict.UNKNOWN]
    assert set(found) - set(senseless) <= right
    assert 0.3 < len(senseless) / len(found) < 0.7
    assert all(answer["dropped"] == 0 for answer in told)


@pytest.mark.parametrize("family", envs.families())
def test_it_answers_in_every_world_and_in_none(family):
    for world in (World(**envs.knowledge(family)), NOWHERE):
        model = backend(world, wrong=0.3, early=0.3, done=0.3)
        for task, inputs in QUESTIONS[:: len(QUESTIONS) // 40]:
            value(model, task, world, **inputs)
        asyncio.run(model.probe())


def test_without_errors_goals_are_those_that_make_sense_the_best_first():
    model = backend()
    seen = ["You see a red key 2 steps forward", "You see a locked red door 1 step left"]
    found = value(model, "suggest_goals", observation=seen)
    assert found == {"goals": ["pick up the red key", "go to the red key", "go to the red door"], "dropped": 0}
    held = value(model, "suggest_goals", observation=seen[1:], inventory=["You carry a red key"])["goals"]
    assert set(held) == {"open the red door", "unlock the red door", "go to the red door"}
    done = value(model, "suggest_goals", observation=seen, achieved=["go to the red key"], limit=1)["goals"]
    assert done == ["pick up the red key"]
    assert value(model, "suggest_goals", observation=["You see a wall 1 step forward"])["goals"] == []
    for here in MOMENTS:
        for goal in value(model, "suggest_goals", observation=here, limit=20)["goals"]:
            assert SENSE.verdict(goal, Situation(here)) is Verdict.SENSIBLE


def test_it_chooses_among_given_goals():
    given = ["open the blue door", "pick up a red key", "open the ball", "go to the red key"]
    seen = ["You see a red key 2 steps forward"]
    assert value(backend(), "suggest_goals", observation=seen, candidates=given)["goals"] == given[1::2]
    assert value(backend(NOWHERE), "suggest_goals", NOWHERE, observation=seen, candidates=given[:2])["goals"] == sorted(
        given[:2]
    )
    for rate, kept in (("early", given[0]), ("senseless", given[2])):
        found = value(backend(**{rate: 1.0}), "suggest_goals", observation=seen, candidates=given)["goals"]
        assert found == [kept]


@pytest.mark.parametrize(
    ("question", "context", "likely"),
    [
        ("Can a key be picked up?", [], True),
        ("Can a wall be picked up?", [], False),
        ("Does it make sense to pick up the red ball now?", ["You see a red ball 1 step left"], True),
        ("Does it make sense to pick up the red ball now?", ["You see a blue ball 1 step left"], False),
        ("Is the goal 'pick up the red ball' reached?", ["You carry a red ball"], True),
        ("Is the goal 'pick up the red ball' reached?", ["You see a red ball 1 step left"], False),
        ("Is the goal 'pick up the red ball' reached?", ["You carry a blue key"], False),
        ("Is there a red ball?", ["You see a red ball 1 step left"], True),
        ("Is there a red ball?", ["You see a red key 1 step left", "You see a blue ball 1 step left"], False),
    ],
)
def test_questions_are_answered(question, context, likely):
    found = value(backend(wrong=0.01), "yes_no", question=question, context=context)["probability"]
    assert found > 0.9 if likely else found < 0.1


def test_what_it_cannot_know_it_leaves_open():
    assert value(backend(), "yes_no", question="Is it Tuesday?")["probability"] == pytest.approx(0.5)


def test_the_better_of_two_is_preferred_in_either_order():
    better, worse = ["You see a red key 1 step forward", "You carry a red key"], ["You see a wall 1 step forward"]
    model = backend()
    assert value(model, "label_preference", first=better, second=worse)["label"] == "first"
    assert value(model, "label_preference", first=worse, second=better)["label"] == "second"
    assert value(model, "label_preference", first=["You wait"], second=["You sleep"])["label"] == "abstain"
    same = ["You carry a red key"], ["You carry a blue ball"]
    assert value(model, "label_preference", first=same[0], second=same[1])["label"] == "tie"
    wanted = {"criteria": ["pick up the blue ball"]}
    assert value(model, "label_preference", first=same[0], second=same[1], **wanted)["label"] == "second"


FAR, NEARER = "You see a grey ball 3 steps left and 2 steps forward", "You see a grey ball 2 steps left"
LEFT, AHEAD = "You choose: turn left", "You choose: go forward"


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ([FAR, AHEAD, NEARER], [NEARER, AHEAD, FAR]),  # near in the end
        ([f"You see a wall 3 steps forward. {NEARER}"], [f"You see a wall 3 steps forward. {FAR}"]),
        ([FAR, LEFT, "You see a grey ball 2 steps left and 3 steps forward"], [FAR, LEFT, FAR]),  # changes something
        ([FAR, LEFT, FAR], [FAR, LEFT, FAR, AHEAD, FAR]),
        ([FAR], ["You see a wall 2 steps forward"]),
        (["You wait", LEFT, "You sit"], ["You wait", LEFT, "You wait"]),
    ],
)
def test_of_two_segments_the_more_sensible_is_preferred(better, worse):
    model = backend()
    assert value(model, "label_preference", first=better, second=worse)["label"] == "first"
    assert value(model, "label_preference", first=worse, second=better)["label"] == "second"


def test_events_of_the_world_s_progress_count_if_they_changed_something():
    world = World(**envs.knowledge("crafter"))
    seen, event = "You see the tree 1 step left", "You choose: chop tree"
    did, missed, other = (
        [seen, event, f"{seen}. You have wood"],
        [seen, event, seen],
        [seen, LEFT, f"{seen}. You have wood"],
    )
    ask = backend(world)
    assert value(ask, "label_preference", world, first=did, second=other)["label"] == "first"
    assert value(ask, "label_preference", world, first=missed, second=other)["label"] == "second"
    near = ["You see the cow 1 step up, the tree 9 steps left"], ["You see the cow 5 steps up, the tree 9 steps left"]
    assert value(ask, "label_preference", world, first=near[0], second=near[1])["label"] == "first"


FETCH = {
    "observations": [
        ["You see a red key 2 steps forward"],
        ["You see a red key 1 step forward"],
        ["You carry a red key", "You see a closed blue door 2 steps forward"],
    ],
    "actions": ["go forward", "pick up"],
}


def test_captions_tell_what_was_reached():
    told = {
        s: value(backend(), "caption_trajectory", style=s, **FETCH)["caption"]
        for s in ("instruction", "request", "narrative")
    }
    then = "(, then|, and then|, after that) "
    assert re.fullmatch(f"Go to the red key{then}pick up the red key.", told["instruction"])
    assert re.fullmatch(rf"[A-Z][a-z ]* go to the red key{then}pick up the red key[.?]", told["request"])
    assert re.fullmatch(
        f"The player set out to go to the red key{then}to pick up the red key, and did.", told["narrative"]
    )


def test_captions_of_much_tell_the_end_and_some_of_the_way_in_order():
    colours = ["red", "green", "blue", "purple", "yellow", "grey"]
    seen = [[f"You see a {colour} key 3 steps forward" for colour in colours]]
    for i, colour in enumerate(colours):
        seen.append([f"You see a {colour} key 1 step forward", *seen[0][i + 1 :]])
    steps = {"observations": seen, "actions": ["go forward"] * 6}
    told = {value(backend(), "caption_trajectory", style=s, **steps)["caption"] for s in ("instruction", "request")}
    assert len(told) == 2
    for caption in told:
        found = re.findall(r"the (\w+) key", caption)
        assert len(found) == 4, caption
        assert found[-1] == "grey"
        assert found == sorted(found, key=colours.index)


def test_judgements_follow_what_was_reached():
    def points(instruction):
        found = value(backend(), "judge_trajectory", instruction=instruction, rubric=["goal", "speed"], **FETCH)
        assert all(abs(found["overall"] - score) <= 1 for score in found["scores"].values())
        return found["overall"]

    assert points("pick up a red key") == 10
    assert points("pick up the red key, then open the blue door") == 8
    assert points("open the blue door") == 6
    assert points("open the green door") == 0
    assert points("dance") == 5


EMPTY, WALL, DOOR, KEY = (WORLD.symbols["object"][name] for name in ("empty", "wall", "door", "key"))
TIES = [{"caption": ["turn left"], "value": 0.0}] * 2


def view(*things):
    """An image of empty cells and of things at (column, row)."""
    image = np.zeros((7, 7, 3), np.uint8)
    image[..., 0] = EMPTY
    for thing, column, row in things:
        image[column, row, 0] = thing
    return image


def judged(code, *windows):
    """What a program says of windows, each (views, actions)."""
    found = Program(code)(np.stack([np.stack(views) for views, _ in windows]), np.array([acts for _, acts in windows]))
    assert not found.faults
    return found.values


def standing(image):
    """A window in which nothing was done yet."""
    return [image] * 3, [-1] * 2


def test_potentials_hold_general_knowledge_of_the_world():
    """The one that knows all rules."""
    code = value(backend(), "write_potential", window=3, variant=2, evidence=TIES)["code"]
    far, near, ahead, beside, held, nothing, wall, wall_aside = judged(
        code,
        *(standing(view((KEY, *place))) for place in ((3, 0), (3, 4), (3, 5), (2, 6), (3, 6))),
        standing(view()),
        standing(view((WALL, 3, 5))),
        standing(view((WALL, 2, 5))),
    )
    assert wall < wall_aside == nothing < far < near < beside < ahead
    assert beside < held
    moved, idle, once = judged(
        code,
        ([view((DOOR, 3, 1)), view((DOOR, 3, 2)), view((DOOR, 3, 3))], [2, 2]),
        ([view((DOOR, 3, 3))] * 3, [2, 2]),
        ([view((DOOR, 3, 3))] * 3, [-1, 2]),
    )
    assert idle < once < moved


def test_potentials_know_more_in_later_variants_and_after_ties():
    differing = [{"caption": ["turn left"], "value": v} for v in (0.0, 0.1)]
    faulty = [{"caption": ["turn left"], "value": v} for v in (0.0, "division")]
    generator = np.random.default_rng(0)
    images = [view((KEY, *place), (WALL, *other)) for place, other in generator.integers(0, 7, (200, 2, 2)).tolist()]

    def distinct(variant, evidence):
        code = value(backend(), "write_potential", window=3, variant=variant, evidence=evidence)["code"]
        return len(set(judged(code, *(([i, i, j], [0, 6]) for i in images[:20] for j in (i, *images)))))

    plain = [distinct(variant, []) for variant in range(3)]
    assert plain == [distinct(variant, differing) for variant in range(3)] == sorted(set(plain))
    better = [distinct(variant, TIES) for variant in range(3)]
    assert better == [distinct(variant, faulty) for variant in range(3)]
    assert all(more > less for more, less in zip(better, plain, strict=True))


def test_mistaken_potentials_are_the_reverse_or_late_or_say_nothing():
    windows = [standing(view((KEY, 3, row))) for row in range(7)] + [([view((KEY, 3, 5)), *[view()] * 2], [0, 0])]
    right, wrong, late, senseless = (
        judged(value(backend(**{kind: 1.0} if kind else {}), "write_potential", window=3, variant=0)["code"], *windows)
        for kind in ("", "wrong", "early", "senseless")
    )
    assert np.array_equal(wrong, -right)
    assert np.array_equal(late[:7], right[:7])
    assert late[7] == right[5] > right[7]
    assert not senseless.any()


def test_potentials_of_real_walks_are_bounded_and_vary():
    env = envs.make("babyai/GoToLocal", 16, seed=3)
    generator = np.random.default_rng(4)
    images, acts = [env.begin()["image"]], []
    for _ in range(24):
        acts.append(generator.integers(0, 7, 16))
        images.append(env.advance(acts[-1]).obs["image"])
    windows = [
        ([image[i] for image in images[t : t + 5]], [act[i] for act in acts[t : t + 4]])
        for t in range(21)
        for i in range(16)
    ]
    for variant in range(3):
        for evidence in ([], TIES):
            values = judged(value(backend(), "write_potential", variant=variant, evidence=evidence)["code"], *windows)
            assert np.isfinite(values).all()
            assert np.abs(values).max() <= 1
            assert len(set(values)) > 1


@pytest.mark.parametrize("family", registry.families())
def test_potentials_of_every_world_are_programs_that_tell_effects(family):
    world = World(**envs.knowledge(family))
    shape = {"babyai": (7, 7, 3), "crafter": (9, 7, 3)}.get(family, ())
    still, moving = np.ones((2, 5, *shape), int)
    moving[1::2] = 0
    for variant in range(3):
        code = value(backend(world), "write_potential", world, variant=variant, evidence=TIES)["code"]
        idle, active, waiting = judged(code, (still, [1] * 4), (moving, [1] * 4), (still, [-1] * 4))
        if not (world.symbols and variant == 0):  # two rules only, of what is seen
            assert idle < min(active, waiting)


def test_a_raw_prompt_gets_the_nearest_sentence():
    reply = answered(backend(), [Call("generate", (("user", "what if I pick up the grey key"),))])[0]
    assert reply.text == "pick up the grey key"
    assert answered(backend(NOWHERE), [Call("generate", (("user", "hello"),))])[0].text == "I do not know."


def test_replies_end_as_a_model_s_would():
    prompt = (("user", "pick up the grey key"),)
    stopped, cut = answered(
        backend(),
        [
            Call("generate", prompt, parameters=Parameters(stop=("grey", ""))),
            Call("generate", prompt, parameters=Parameters(max_tokens=2)),
        ],
    )
    assert (stopped.text, cut.text) == ("pick up the ", "pick up ")
    assert cut.completion_tokens == 2


def test_scores_prefer_what_makes_sense_and_are_probabilities_less_a_cost_of_length():
    prompt = (("user", "You see a red ball 2 steps forward.\nYou should"),)
    options = ("pick up the red ball", "open the blue door", "pick up the green key")
    call = Call("score", prompt, options)
    scores = np.array(answered(backend(), [call])[0].scores)
    assert scores.argmax() == 0
    lengths = np.array([len(option) / 4 for option in options])
    assert np.exp(scores + 0.05 * lengths).sum() == pytest.approx(1)
    mean = answered(backend(), [Call("score", prompt, options, Parameters(normalise="tokens"))])[0].scores
    assert len(mean) == 3
    assert answered(backend(), [Call("score", prompt)])[0].scores == ()
    shuffled = answered(backend(), [Call("score", prompt, options[::-1])])[0].scores
    assert np.argmax(shuffled) == 2


# ---- equal questions, equal answers --------------------------------------------------------------------------------


def sample_calls():
    calls = []
    for task, inputs in QUESTIONS[::7]:
        asked = tasks.task(task)
        calls += asked.calls(asked.Inputs(**inputs), WORLD)
    calls += [Call("generate", (("user", f"a {n}"),), sample=n) for n in range(20)]
    return calls + [Call("score", (("user", f"{n}"),), ("go left", "go right")) for n in range(20)]


def fingerprint(replies):
    return digest(canonical([[r.text, list(r.scores), r.prompt_tokens, r.completion_tokens] for r in replies]))


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_an_answer_does_not_depend_on_the_batch(data):
    calls = sample_calls()
    model = backend(wrong=0.2, early=0.2, done=0.2, vague=0.2, senseless=0.2, malformed=0.2)
    alone = [model._reply(call) for call in calls]
    chosen = data.draw(st.lists(st.integers(0, len(calls) - 1), max_size=30))
    assert answered(model, [calls[i] for i in chosen]) == [alone[i] for i in chosen]


def test_an_answer_does_not_depend_on_the_process():
    code = """if 1:
        import importlib.util, sys
        spec = importlib.util.spec_from_file_location("asked", sys.argv[1])
        asked = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(asked)
        model = asked.backend(wrong=0.2, early=0.2, done=0.2, vague=0.2, senseless=0.2, malformed=0.2)
        print(model.model, asked.fingerprint(asked.answered(model, asked.sample_calls())))
    """
    model = backend(wrong=0.2, early=0.2, done=0.2, vague=0.2, senseless=0.2, malformed=0.2)
    here = f"{model.model} {fingerprint(answered(model, sample_calls()))}"
    environment = {"PYTHONHASHSEED": "1", "PYTHONPATH": ".", "PATH": ""}
    command = [sys.executable, "-c", code, __file__]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert found.stdout.strip() == here, found.stderr


def test_the_model_s_name_tells_what_answers_differently():
    assert backend().model == backend(latency_s=1.0, max_batch=3).model
    names = {backend().model, backend(seed=1).model, backend(wrong=0.5).model, backend(NOWHERE).model}
    assert len(names) == 4


def test_higher_rates_err_where_lower_ones_did():
    asked = [goal_question(n) for n in range(150)]
    right = [r.text for r in answered(backend(), asked)]
    wrong = []
    for rate in (0.1, 0.3, 0.6):
        replies = answered(backend(errors=rate, malformed=rate / 2, **SPLIT), asked)
        wrong.append({n for n, reply in enumerate(replies) if reply.text != right[n]})
    assert wrong[0] < wrong[1] < wrong[2]
    other = answered(backend(seed=1, errors=0.3, malformed=0.15, **SPLIT), asked)
    assert {n for n, reply in enumerate(other) if reply.text != right[n]} != wrong[1]


# ---- wrong as often as told ----------------------------------------------------------------------------------------


HERE = [
    "You see a red ball 2 steps forward",
    "You see a locked blue door 1 step left",
    "You see a closed grey door 1 step forward",
]


def goal_question(n):
    """A question about goals, another for every n; it has a sensible goal, and one for every kind of mistake."""
    seen = [
        *HERE[:2],
        f"You see a wall {n} steps right",
        *HERE[2:],
    ]
    asked = tasks.task("suggest_goals")
    return asked.calls(asked.Inputs(observation=seen, limit=1), WORLD)[0]


@pytest.mark.parametrize(
    ("rate", "verdicts"),
    [("early", {Verdict.EARLY}), ("done", {Verdict.DONE}), ("senseless", {Verdict.UNKNOWN})],
)
@pytest.mark.parametrize("share", [0.05, 0.4, 1.0])
def test_goals_are_spoiled_at_each_rate(rate, verdicts, share):
    number, counts = 400, 0
    for n, reply in enumerate(answered(backend(**{rate: share}), [goal_question(n) for n in range(number)])):
        seen = Situation(HERE)
        verdict = SENSE.verdict(reply.text.removeprefix("- "), seen)
        assert verdict in verdicts | {Verdict.SENSIBLE}, (n, reply.text)
        counts += verdict in verdicts
    assert within(counts, number, share)


def test_all_rates_hold_together():
    rates = {"early": 0.1, "done": 0.15, "senseless": 0.2, "malformed": 0.25}
    number = 1000
    counts = dict.fromkeys(rates, 0)
    seen = Situation(HERE)
    kinds = {Verdict.EARLY: "early", Verdict.DONE: "done", Verdict.UNKNOWN: "senseless"}
    for reply in answered(backend(**rates), [goal_question(n) for n in range(number)]):
        if not reply.text.startswith("- "):
            counts["malformed"] += 1
        elif kind := kinds.get(SENSE.verdict(reply.text[2:], seen)):
            counts[kind] += 1
    assert within(counts["malformed"], number, 0.25)
    for name in ("early", "done", "senseless"):
        assert within(counts[name], number, rates[name] * 0.75), counts


def test_what_is_malformed_is_refused_by_every_parser():
    model = backend(malformed=1.0)
    for task, inputs in QUESTIONS[::5]:
        if task != "yes_no":
            with pytest.raises(Malformed):
                value(model, task, **inputs)


def test_preferences_are_reversed_at_the_rate():
    asked = tasks.task("label_preference")
    calls = []
    for n in range(200):
        lines = asked.Inputs(first=[f"You carry a red key on day {n}"], second=["You see a wall 1 step forward"])
        calls += asked.calls(lines, WORLD)
    verdicts = [reply.text.rpartition(" ")[2] for reply in answered(backend(wrong=0.3, senseless=0.2), calls)]
    false = sum(verdict == ("second" if n % 2 == 0 else "first") for n, verdict in enumerate(verdicts))
    assert within(false, len(verdicts), 0.3)
    assert within(verdicts.count("unsure"), len(verdicts), 0.2)


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.25, 0.4])
def test_it_is_right_as_often_as_it_says(rate):
    """Yes/no answers: the mean of the stated confidence is the share of right answers, also among the surer half."""
    asked = tasks.task("yes_no")
    calls, truths = [], []
    for n in range(1200):
        truths.append(n % 3 == 0)
        question = f"Can a {'ball' if truths[-1] else 'wall'} be picked up on day {n}?"
        calls.append(asked.calls(asked.Inputs(question=question, calibrate=False), WORLD)[0])
    yes = np.exp([reply.scores[0] for reply in answered(backend(wrong=rate), calls)])
    right = (yes > 0.5) == truths
    sure = np.maximum(yes, 1 - yes)
    assert within((~right).sum(), len(right), rate)
    surer = sure >= np.median(sure)
    for chosen in (surer, ~surer):
        if chosen.any():
            assert within(right[chosen].sum(), chosen.sum(), sure[chosen].mean())


def test_judgements_are_turned_upside_down():
    asked = {"instruction": "pick up a red key", "rubric": ["goal"], **FETCH}
    assert value(backend(wrong=1.0), "judge_trajectory", **asked)["overall"] == 0
    assert (
        value(backend(wrong=1.0), "caption_trajectory", **FETCH)["caption"]
        != value(backend(), "caption_trajectory", **FETCH)["caption"]
    )


# ---- as a backend --------------------------------------------------------------------------------------------------


def test_a_batch_takes_its_modelled_time(monkeypatch):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    call = Call("generate", (("user", "x"),))
    answered(backend(latency_s=0.5, latency_per_item_s=0.25), [call] * 4)
    assert sum(slept) == pytest.approx(1.5)
    slept.clear()
    answered(backend(), [call] * 4)
    assert sum(slept) == 0


def test_it_says_what_it_cannot_do():
    model = backend()
    assert model.verbs == {"generate", "score"}
    assert isinstance(answered(model, [Call("embed", (("user", "x"),))])[0], Unsupported)
    assert not model.paid


def test_estimates_are_not_below_what_is_used():
    model = backend(dollars_per_million_prompt_tokens=1.0, dollars_per_million_completion_tokens=10.0)
    assert model.paid
    assert model.price(2_000_000, 1_000_000) == pytest.approx(12.0)
    for call in sample_calls():
        prompt, completion = model.estimate(call)
        reply = model._reply(call)
        assert isinstance(reply, Reply)
        assert 0 < reply.prompt_tokens <= prompt
        assert 0 < reply.completion_tokens <= completion


@pytest.mark.parametrize(
    "options",
    [
        {"wrong": 1.1},
        {"wrong": 0.5, "senseless": 0.6},
        {"errors": 1.1},
        {"errors": 0.8, "vague": 0.5},
        {"latency_s": -1.0},
        {"latency_s": math.inf},
        {"speed": 1},
    ],
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ValidationError):
        scripted.Config(**options)


def test_a_world_with_a_broken_pattern_is_refused():
    world = World(name="x", about="", actions=[], facts={"is {this} true": True})
    with pytest.raises(UsageError, match="slot 'this', which has no words"):
        backend(world)


def test_defaults_are_a_model_and_not_an_oracle():
    config = scripted.Config()
    assert all(0 < rate <= 0.05 for rate in config.rates().values())
    assert json.loads(config.model_dump_json())["latency_s"] == 0
