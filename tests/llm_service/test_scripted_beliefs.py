"""What the scripted model holds to be so against a world's facts: at two rates, the same questions whenever asked."""

import asyncio

import numpy as np
import pytest
from pydantic import ValidationError

import envs
from envs.housekeep import home
from envs.housekeep.knowledge import PREMISE
from envs.housekeep.names import NAMES, OBJECTS
from envs.housekeep.people import table
from envs.housekeep.people.preferences import PLACE_NAMES
from llm_service import tasks
from llm_service.backends import module
from llm_service.backends.scripted.manual import known, text
from llm_service.records import digest
from llm_service.world import World

scripted = module("scripted")
FAULTLESS = dict.fromkeys(scripted.RATES, 0.0)
HOME = World(**envs.knowledge("housekeep/Task1"))
NUMBERS = World(
    name="numbers",
    about="Numbers.",
    actions=[],
    facts={f"Is {n} small?": n < 1000 for n in range(2000)},
)
SMALL = np.arange(2000) < 1000


def probabilities(world, questions, context=(), **options):
    """Of yes, by a model with these options."""
    model = scripted.make(scripted.Config(**FAULTLESS | options), world)
    asked = tasks.task("yes_no")
    inputs = [asked.Inputs(question=question, context=list(context), calibrate=False) for question in questions]
    replies = asyncio.run(model.answer([call for each in inputs for call in asked.calls(each, world)]))
    return np.exp([reply.scores[0] for reply in replies])


def erring(**options):
    """Which numbers it takes for what they are not."""
    return (probabilities(NUMBERS, NUMBERS.facts, **options) > 0.5) != SMALL


def test_each_kind_of_fact_is_misbelieved_at_its_own_rate():
    for false_yes, false_no in ((0.1, 0.0), (0.0, 0.3), (0.2, 0.5), (1.0, 1.0)):
        wrong = erring(false_yes=false_yes, false_no=false_no)
        for among, rate in ((~SMALL, false_yes), (SMALL, false_no)):
            assert abs(wrong[among].sum() - 1000 * rate) <= 4.5 * np.sqrt(1000 * rate * (1 - rate)), (rate, wrong.sum())


@pytest.mark.parametrize("wrong", [0.0, 0.2])
def test_higher_rates_err_where_lower_ones_did_and_elsewhere_too(wrong):
    before = erring(wrong=wrong)
    for rate in (0.1, 0.3, 0.6):
        now = erring(wrong=wrong, false_yes=rate, false_no=rate / 2)
        assert (now & before).sum() == before.sum() < now.sum()
        before = now


def test_another_seed_errs_elsewhere():
    one, other = erring(false_yes=0.3, seed=1), erring(false_yes=0.3, seed=2)
    assert 0 < (one & other).sum() < min(one.sum(), other.sum())


def test_a_belief_hangs_on_the_words_of_its_question_alone():
    """Another description of the world and another context change the prompt, not what is believed."""
    elsewhere = NUMBERS.model_copy(update={"about": "Numbers, told in other words.", "actions": ["count"]})
    options = {"false_yes": 0.3, "false_no": 0.3}
    plain = probabilities(NUMBERS, NUMBERS.facts, **options)
    assert ((plain > 0.5) != SMALL).any()
    assert np.array_equal(plain, probabilities(elsewhere, NUMBERS.facts, ["It rains"], **options))


def test_facts_with_slots_err_by_each_question():
    world = World(
        name="things",
        about="",
        actions=[],
        slots={"thing": [f"thing {n}" for n in range(300)]},
        facts={"Is {thing}?": False},
    )
    yes = probabilities(world, [f"Is thing {n}?" for n in range(300)], false_yes=0.5) > 0.5
    assert 100 < yes.sum() < 200


def test_what_no_fact_answers_is_not_touched():
    questions = ["Do you see a red ball?", "Is it Tuesday?"]
    world = World(**envs.knowledge("babyai"))
    context = ["You see a red ball 2 steps forward"]
    plain = probabilities(world, questions, context)
    assert plain.tolist() == pytest.approx([1, 0.5], abs=1e-3)
    assert np.array_equal(plain, probabilities(world, questions, context, false_yes=1.0, false_no=1.0))


def test_false_beliefs_are_held_as_surely_as_right_ones():
    sure = probabilities(NUMBERS, NUMBERS.facts, wrong=0.1)
    false = probabilities(NUMBERS, NUMBERS.facts, wrong=0.1, false_yes=1.0, false_no=1.0)
    assert np.allclose(np.maximum(sure, 1 - sure), np.maximum(false, 1 - false))


def test_answers_that_were_paid_for_before_there_were_beliefs_stay_valid():
    """The name is part of each answer's key: at the defaults it is the one that it was."""
    default = scripted.make(scripted.Config(), HOME)
    said = '{"done":0.02,"early":0.02,"malformed":0.02,"seed":0,"senseless":0.02,"vague":0.02,"wrong":0.03}'
    assert default.model == f"scripted-{digest(said, scripted.RULES, HOME.rules(), text(known(HOME)))[:12]}"
    others = [{}, {"false_yes": 0.1}, {"false_no": 0.1}, {"false_yes": 0.1, "false_no": 0.1}, {"false_yes": 0.2}]
    assert len({scripted.make(scripted.Config(**options), HOME).model for options in others}) == len(others)


@pytest.mark.parametrize("options", [{"false_yes": -0.1}, {"false_no": 1.5}])
def test_rates_are_shares(options):
    with pytest.raises(ValidationError):
        scripted.Config(**options)


def test_it_errs_where_people_disagree_as_often_as_they_do():
    """At 1 as one of them, at a half half as often, and never where they agree; at 0 it errs nowhere."""
    shares = np.where(np.arange(2000) % 4 == 0, 0.4, np.where(np.arange(2000) % 4 == 1, 0.1, 0.0))
    divided = NUMBERS.model_copy(
        update={"dissent": {question: share for question, share in zip(NUMBERS.facts, shares, strict=True) if share}}
    )
    for dissent in (1.0, 0.5, 0.0):
        wrong = (probabilities(divided, NUMBERS.facts, dissent=dissent) > 0.5) != SMALL
        for share in (0.4, 0.1):
            assert abs(wrong[shares == share].mean() - dissent * share) < 0.06
        assert not wrong[shares == 0].any()
    assert (erring(dissent=1.0) == erring()).all()  # nobody has said where people disagree


def test_what_people_disagree_on_names_no_other_model_where_nobody_says():
    """A world without dissent has the model that it had; one with it another model, and the same keys of questions."""
    divided = NUMBERS.model_copy(update={"dissent": {"Is 3 small?": 0.2}})
    assert divided.digest == NUMBERS.digest
    assert divided.rules() != NUMBERS.rules()
    assert "dissent" not in NUMBERS.rules()


def test_houses_say_where_people_disagree():
    """The minority of ten raters, of each pair that some but not all of them call right."""
    people, facts, shares = table(), HOME.facts, HOME.dissent
    asked = {PREMISE.format(object=thing, place=place) for thing in home.TASKS["Task1"] for place in home.places()}
    assert shares.keys() <= asked
    for thing in home.TASKS["Task1"]:
        for column, name in enumerate(PLACE_NAMES.tolist()):
            question = PREMISE.format(object=thing, place=NAMES[name])
            yes = int(people.positive[OBJECTS.index(thing), column])
            if question in asked:
                against = 10 - yes if facts.get(question, False) else min(yes, 5)
                assert shares.get(question, 0.0) == pytest.approx(against / 10)
