"""Prompts: exact ones, tokens of pieces, shared beginnings, variants of training, words of the published tests."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

import envs
from envs.babyai.world import ACTION_NAMES
from learner.models.config import HISTORY as FIELD
from learner.models.config import PolicyConfig, remembered
from learner.models.language.prompt import WORDINGS, Prompt, PromptConfig, State, check_prompt
from learner.models.language.rewording import ACTIONS, REWORDINGS, TRAINING, rewording
from llm_service import tiny
from llm_service.scoring.tokens import Boundary

SENTENCES = tiny._sentences(tiny.CORPUS)
TWO = ("turn left", "turn right")
RED, KEY = "You see a red ball 1 step forward", "You carry a grey key. You see a wall 2 steps left"


def byte_level():
    """As GPT-2 and Llama 3 have it: words with the blank before them, a begin token."""
    return Boundary(tiny._wrapped(tiny._tokenizer(SENTENCES), f"{tiny.START} $A"), seq2seq=False)


def sentence_piece():
    """As T5 has it: every text begins with a mark for a blank, an end token."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES[:500], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return Boundary(PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>"), True)


BOUNDARIES = {"byte_level": byte_level(), "sentence_piece": sentence_piece()}
kinds = pytest.mark.parametrize("kind", BOUNDARIES)


def prompt(kind="byte_level", names=TWO, **options):
    return Prompt(PromptConfig(**options), names, BOUNDARIES[kind])


# ---- what is told ---------------------------------------------------------------------------------------------------


def test_the_prompt_of_an_episode_that_has_just_begun():
    assert prompt().text(State("go to the red ball", [RED], ["", "", "", ""])) == (
        "Actions: turn left, turn right. Task: go to the red ball. See: You see a red ball 1 step forward. Do:"
    )
    assert prompt(observations=1).text(State("", [RED])) == (
        "Actions: turn left, turn right. See: You see a red ball 1 step forward. Do:"
    )


def test_the_prompt_tells_what_was_seen_and_done_before_oldest_first():
    one = prompt().text(State("go to the red ball", [RED], ["", "", "You see nothing in front", "turn left"]))
    assert one == (
        "Actions: turn left, turn right. Task: go to the red ball. Saw: You see nothing in front. Did: turn left. "
        "See: You see a red ball 1 step forward. Do:"
    )
    two = prompt().text(
        State("go to the red ball", [RED], [KEY, "turn right", "You see nothing in front", "turn left"])
    )
    assert two == (
        "Actions: turn left, turn right. Task: go to the red ball. "
        "Saw: You carry a grey key. You see a wall 2 steps left. Did: turn right. "
        "Saw: You see nothing in front. Did: turn left. See: You see a red ball 1 step forward. Do:"
    )


def test_several_fields_are_told_one_after_the_other_and_a_state_may_have_actions_of_its_own():
    made = prompt(observation=["caption", "inventory"], observations=2)
    assert made.text(
        State("eat", ["You see a cow", ""], ["You see grass.", "You hold wood", "north"], ["north", "eat"])
    ) == ("Actions: north, eat. Task: eat. Saw: You see grass. You hold wood. Did: north. See: You see a cow. Do:")
    assert made.candidates(["north", "eat"]) == ("north", "eat")


@pytest.mark.parametrize(
    ("goal", "seen", "expected"),
    [  # states of which a newcomer knows the answer
        ("go to the green ball", "You see a green ball 3 steps forward", "Task: go to the green ball. See: "),
        ("pick up the green box", "You see a green box 2 steps right", "Task: pick up the green box. See: "),
        (
            "open the purple door",
            "You carry a purple key. You see a locked purple door 1 step forward",
            "Task: open the purple door. See: ",
        ),
    ],
)
def test_probes_of_the_six_actions(goal, seen, expected):
    actions = "Actions: turn left, turn right, go forward, pick up, drop, toggle. "
    assert prompt(names=ACTIONS).text(State(goal, [seen])) == f"{actions}{expected}{seen}. Do:"


def test_the_prompt_in_french():
    spec = envs.spec("babyai/GoToFrench", captions=True, actions=3)
    seen = "Tu vois une porte ouverte 1 pas devant"
    assert prompt(names=spec.action_names, language="fr").text(State("aller à la balle verte", [seen])) == (
        "Actions: tourner à gauche, tourner à droite, aller tout droit. Tâche: aller à la balle verte. "
        "Vue: Tu vois une porte ouverte 1 pas devant. À faire:"
    )


# ---- tokens ---------------------------------------------------------------------------------------------------------

words = st.lists(
    st.sampled_from(["you", "see", "a", "red", "12", "steps,", "left.", "Tür", "ouverte"]), min_size=1
).map(" ".join)
histories = st.lists(st.tuples(words, st.sampled_from(TWO)), max_size=3).map(
    lambda rows: [t for row in rows for t in row]
)


@kinds
@settings(max_examples=60, deadline=None)
@given(goal=words, seen=words, earlier=histories, variant=st.integers(0, Prompt.variants - 1))
def test_tokens_are_those_of_the_whole_text(kind, goal, seen, earlier, variant):
    made = prompt(kind)
    args = (State(goal, [seen], earlier), variant)
    text = made.text(*args)
    assert made.tokens(*args) == BOUNDARIES[kind].prompt(text)
    assert made.tokens(*args) == made.tokens(*args), "remembered pieces are the same pieces"
    assert not text[-1].isspace()


@kinds
@settings(max_examples=60, deadline=None)
@given(goal=words, a=st.tuples(words, histories), b=st.tuples(words, histories))
def test_states_of_one_mission_share_all_up_to_the_first_observation(kind, goal, a, b):
    made, boundary = prompt(kind), BOUNDARIES[kind]
    shared = boundary.prompt(made.text(State(goal, []))[: -len(" See: Do:")], special=False)
    start = len(boundary.prompt("a")) - len(boundary.prompt("a", special=False)) if kind == "byte_level" else 0
    for seen, earlier in (a, b):
        assert made.tokens(State(goal, [seen], earlier))[start:][: len(shared)] == shared


@kinds
def test_special_tokens_stand_where_the_model_expects_them(kind):
    tokens = prompt(kind).tokens(State("go", [RED]))
    special = set(BOUNDARIES[kind].tokenizer.all_special_ids)
    place = {"byte_level": 0, "sentence_piece": len(tokens) - 1}[kind]
    assert [i for i, token in enumerate(tokens) if token in special] == [place]


# ---- variants of training -------------------------------------------------------------------------------------------

STATES = [State(f"go to the red ball {i}", [RED], ["", ""]) for i in range(2000)]


def test_variants_follow_from_the_texts_alone_and_come_as_often_as_asked():
    one, other = (prompt(kind, paraphrase=0.5, synonyms=0.25) for kind in BOUNDARIES)
    found = [one.variant_of(state) for state in STATES]
    assert found == [other.variant_of(state) for state in reversed(STATES)][::-1]
    assert min(found) == 0
    assert max(found) < Prompt.variants
    count = len(WORDINGS["en"])
    assert abs(sum(v % count > 0 for v in found) / 2000 - 0.5) < 0.05
    assert abs(sum(v // count > 0 for v in found) / 2000 - 0.25) < 0.05
    assert {v % count for v in found} == set(range(count)), "every wording comes"
    assert len({v // count for v in found}) == 1 + len(TRAINING), "and all names"
    assert one.variant_of(State("go", [RED], ["", "turn left"])) != one.variant_of(
        State("go", [KEY], ["", "turn left"])
    )


def test_shares_of_0_and_1_are_never_and_always():
    count = len(WORDINGS["en"])
    assert {prompt().variant_of(state) for state in STATES} == {0}
    assert {prompt(synonyms=1.0).variant_of(state) % count for state in STATES} == {0}
    assert 0 not in {prompt(synonyms=1.0).variant_of(state) // count for state in STATES}
    always = prompt(paraphrase=1.0)
    assert {always.variant_of(state) for state in STATES} == set(range(1, count))
    always.varied = False
    assert {always.variant_of(state) for state in STATES} == {0}


def test_in_every_variant_actions_and_things_keep_apart():
    made = prompt(names=ACTION_NAMES["en"])
    colours, nouns = ("red", "green", "blue", "purple", "yellow", "grey"), ("key", "ball", "box", "door")
    things = [f"{colour} {noun}" for colour in colours for noun in nouns]
    for variant in range(Prompt.variants):
        names = made.candidates(variant=variant)
        assert len(set(names)) == len(names) == 7
        text = made.text(State("go", [KEY], [RED, "turn left"]), variant)
        assert f" {', '.join(names)}. " in text, "what is listed is what can be chosen"
        assert f": {names[0]}. " in text, "and what was done has the same name"
    for other in TRAINING:
        assert len({other.text(thing) for thing in things}) == len(things)
        assert not {word for thing in things for word in other.text(thing).split()} & {*colours, *nouns}
        assert not any(other.action(name) == name for name in ACTIONS)
        left, right = other.action("turn left"), other.action("turn right")
        assert left.replace("left", "right").replace("links", "rechts") == right
    assert len({tuple(other.words.items()) for other in TRAINING}) == 25, "24 mixtures, and German"


PUBLISHED = """rotate shift move ahead take release switch chair table car vermilion jade cyan violet golden silver
dax xolo afze faze jatu croh vurst gakul sil chaise voiture mauve dorée argent"""


def _words(texts):
    return {word for text in texts for word in re.findall(r"\w+", text.lower())}


def test_training_has_no_word_of_the_published_tests():
    tested = _words(t for r in REWORDINGS.values() for t in (*r.words.values(), *r.actions.values()))
    plain = _words(ACTIONS)
    assert tested >= _words([PUBLISHED]), "the tests are the published ones"
    trained = _words(t for r in TRAINING for t in (*r.words.values(), *r.actions.values()))
    headings = _words(heading for wording in WORDINGS["en"] for heading in wording)
    assert not (trained | headings) & (tested - plain)
    names = {name for r in REWORDINGS.values() for name in r.actions.values()}
    assert not names & {name for r in TRAINING for name in r.actions.values()}
    goals = {goal for r in REWORDINGS.values() for goal in r.goal.values()}
    assert not goals & {w.goal for wordings in WORDINGS.values() for w in wordings}


def test_languages_have_equally_many_wordings_none_of_them_twice():
    for wordings in WORDINGS.values():
        assert len(set(wordings)) == len(wordings) == len(WORDINGS["en"])
        assert all(heading.endswith(":") for wording in wordings for heading in wording)


# ---- words of the published tests -----------------------------------------------------------------------------------


def test_whole_words_are_replaced_and_no_others():
    assert rewording("colours").text("Tu vois une porte verte ouverte") == "Tu vois une porte jade ouverte"
    assert rewording("nouns").text("go to the red ball, the keyboard and a key") == (
        "go to the red table, the keyboard and a chair"
    )
    assert rewording("nouns").text("attraper la boîte bleue") == "attraper la voiture bleue"
    assert rewording("invented").text("put the grey key next to the red box") == "put the sil dax next to the faze afze"
    assert rewording("none").text("the red ball") == "the red ball"


@pytest.mark.parametrize("language", ["en", "fr"])
@pytest.mark.parametrize("name", REWORDINGS)
def test_no_two_sentences_of_a_world_become_one(name, language):
    env = envs.make("babyai/GoToLocal", 32, 1, language=language, fix_captions=True, captions=True)
    obs = env.begin()
    sentences = {
        s for ids in (obs["caption"], obs["mission"]) for text in env.texts.texts(ids) for s in text.split(". ")
    }
    reworded = {rewording(name).text(sentence) for sentence in sentences}
    assert len(reworded) == len(sentences) > 50
    assert (reworded != sentences) == bool(rewording(name).words)


def test_prompts_of_the_published_tests():
    state = State("go to the red ball", [RED], ["", "", "You see a grey key 1 step left", "turn left"])
    told = {name: prompt(reword=name).text(state) for name in REWORDINGS}
    assert told["none"] == prompt().text(state)
    assert told["invented"] == (
        "Actions: turn left, turn right. Task: go to the faze xolo. Saw: You see a sil dax 1 step left. "
        "Did: turn left. See: You see a faze xolo 1 step forward. Do:"
    )
    assert told["duty"] == told["none"].replace("Task:", "You have to:")
    assert told["rotate"] == told["none"].replace("turn", "rotate")
    assert told["shift"] == told["none"].replace("turn", "shift")
    assert told["french_actions"].startswith("Actions: tourner à gauche, tourner à droite. Task: go to the red ball.")
    assert "Did: tourner à gauche." in told["french_actions"]
    assert len(set(told.values())) == len(REWORDINGS)
    assert prompt(reword="rotate", names=ACTIONS).candidates() == (
        "rotate left", "rotate right", "move ahead", "take", "release", "switch",
    )  # fmt: skip
    assert prompt(reword="wish", language="fr").text(State("aller à la clef", [])) == (
        "Actions: turn left, turn right. Je veux que l'agent fasse: aller à la clef. Vue: À faire:"
    )


def test_french_names_of_actions_are_those_of_the_french_world():
    assert prompt(reword="french_actions", names=ACTION_NAMES["en"][:6]).candidates() == ACTION_NAMES["fr"][:6]
    assert ACTION_NAMES["en"][:6] == ACTIONS


# ---- configuration --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"reword": "colors"}, "policy.prompt.reword=colors is not known: did you mean colours?"),
        ({"observation": []}, "policy.prompt.observation is empty"),
        (
            {"observation": ["image"]},
            "tells the field 'image', which is no single text in babyai/GoToLocal: there are mis",
        ),
        (
            {"goal": "task"},
            "tells the field 'task', which is no single text in babyai/GoToLocal: there are mission, cap",
        ),
        ({"observations": 0}, "policy.prompt.observations must be at least 1"),
        ({"paraphrase": 1.5}, "policy.prompt.paraphrase is a share of states, between 0 and 1: got 1.5"),
    ],
)
def test_what_cannot_be_told_is_a_sentence(options, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        check_prompt(PromptConfig(**options), envs.spec("babyai/GoToLocal", captions=True))


def test_a_world_in_which_other_words_change_nothing_is_told_so():
    check_prompt(PromptConfig(reword="shift", synonyms=0.5), envs.spec("babyai/GoToLocal", captions=True))
    check_prompt(PromptConfig(reword="nouns"), envs.spec("babyai/GoToFrench", captions=True))
    with pytest.raises(ValueError, match="reword=shift changes nothing: babyai/GoToFrench has none"):
        check_prompt(PromptConfig(reword="shift"), envs.spec("babyai/GoToFrench", captions=True))
    with pytest.raises(ValueError, match="synonyms is for BabyAI in English"):
        check_prompt(PromptConfig(synonyms=0.5), envs.spec("babyai/GoToFrench", captions=True))
    with pytest.raises(ValueError, match=r"env.captions=true adds caption"):
        check_prompt(PromptConfig(), envs.spec("babyai/GoToLocal"))


def test_the_field_history_has_room_for_what_is_told():
    spec = envs.spec("babyai/GoToLocal", captions=True)
    config = PolicyConfig(network="language_model", prompt=PromptConfig(observations=3))
    assert remembered(config, spec).fields[FIELD].shape == (4,)
    assert remembered(config, spec).fields[FIELD].kind == "text"
    two = PolicyConfig(
        network="language_model", prompt=PromptConfig(observations=2, observation=["mission", "caption"])
    )
    assert remembered(two, spec).fields[FIELD].shape == (3,)
    assert remembered(PolicyConfig(network="film"), spec) is spec
    alone = PolicyConfig(network="language_model", prompt=PromptConfig(observations=1))
    assert FIELD not in remembered(alone, spec).fields
