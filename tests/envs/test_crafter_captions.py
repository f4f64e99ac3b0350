"""The sentences of Crafter say what is so: against a slow description that shares nothing with the fast one."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envs
from envs.crafter import captions as fast
from envs.crafter.rules import (
    ARROW,
    COW,
    FURNACE,
    GRASS,
    ITEMS,
    LAVA,
    MATERIALS,
    NAMED,
    OBJECTS,
    PATH,
    PLANT,
    PLAYER,
    RIPE,
    SAND,
    STONE,
    TABLE,
    TREE,
    ZOMBIE,
)
from envs.text import TextTable
from tests.envs.test_crafter_rules import Stage

TEXTS = ["view", "items", "feelings", "around"]
POSSESSIONS = ITEMS[4:]


# ---- the slow description --------------------------------------------------------------------------------------------


def name_of(material, thing):
    if thing:
        return {"player": None, "arrow": None}.get(OBJECTS[thing], OBJECTS[thing])
    return {"nothing": None, "sand": None, "table": "crafting table"}.get(MATERIALS[material], MATERIALS[material])


def in_words(texts):
    texts = list(texts)
    return "nothing" if not texts else texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " and " + texts[-1]


def view_of(symbols, ahead):
    names = {name_of(*cell[:2]) for column in symbols.tolist() for cell in column} - {None}
    text = "You see " + in_words("the " + name for name in sorted(names))
    front = None if ahead[1] == 0 and MATERIALS[ahead[0]] in ("path", "lava") else name_of(*ahead)
    return text + (f". You face the {front}" if front else "")


def item_name(item):
    return "plant" if item == "sapling" else item.replace("_", " ")


def items_of(inventory):
    held = sorted(item_name(item) for item, n in zip(ITEMS, inventory, strict=True) if n and item in POSSESSIONS)
    determiner = {"plant": "a", "diamond": "a"}
    for name in ("wood", "stone", "iron"):
        for tool in ("pickaxe", "sword"):
            determiner[f"{name} {tool}"] = "an" if name == "iron" else "a"
    return "You have " + in_words(f"{determiner.get(name, 'some')} {name}" for name in held)


def feelings_of(inventory):
    words = ("hurt", "hungry", "thirsty", "sleepy")
    felt = in_words(word for word, n in zip(words, inventory, strict=False) if n < 9)
    return f"You feel {'fine' if felt == 'nothing' else felt}"


def situation_of(symbols, ahead, inventory):
    sleepy = ". You feel sleepy" if inventory[3] < 9 else ""
    return f"{view_of(symbols, ahead)}. {items_of(inventory)}{sleepy}"


def check_around(text, symbols, ahead, inventory, sleeping):
    """Its numbers are right, and it leaves nothing out; which of two equally near things it tells is its own affair."""
    sentences = text.split(". ")
    cells = {}
    for column, line in np.ndindex(9, 7):
        name = name_of(*symbols[column, line, :2].tolist())
        cells.setdefault(name, []).append((column - 4, line - 3))
    cells.pop(None, None)
    told = re.findall(r"the ([a-z ]+?) (\d+) steps? (left|right|up|down)(?: and (up|down))?(?:, |$)", sentences[0])
    assert {name for name, *_ in told} == set(cells)
    assert len(told) == len(cells)
    assert sentences[0].startswith("You see nothing") == (not cells)
    distances = [int(steps) for _, steps, *_ in told]
    assert distances == sorted(distances)
    for name, steps, *ways in told:
        nearest = min(abs(dx) + abs(dy) for dx, dy in cells[name])
        fits = [
            (dx, dy)
            for dx, dy in cells[name]
            if abs(dx) + abs(dy) == nearest
            and {"left": dx < 0, "right": dx > 0, "up": dy < 0, "down": dy > 0}
            == {way: way in ways for way in ("left", "right", "up", "down")}
        ]
        assert int(steps) == nearest
        assert fits
    assert f"You see {view_of(symbols, ahead)}".count("You face") == text.count("You face")
    health, food, drink, energy = inventory[:4].tolist()
    assert f"Your health is {health}, food {food}, drink {drink} and energy {energy}" in sentences
    held = sorted((item_name(i), n) for i, n in zip(ITEMS, inventory.tolist(), strict=True) if n and i in POSSESSIONS)
    assert "You have " + in_words(f"{n} {name}" for name, n in held) in sentences
    assert ("You are asleep" in sentences) == bool(sleeping)


# ---- equal in play and on any symbols --------------------------------------------------------------------------------


def check(env, obs):
    text = {name: env.texts.texts(obs[name]) for name in TEXTS}
    situations = env.texts.texts(env.situations())
    for i in range(env.num_envs):
        symbols, ahead, inventory = env.symbols[i], env.ahead[i].tolist(), env.inventory[i]
        assert text["view"][i] == view_of(symbols, ahead)
        assert text["items"][i] == items_of(inventory)
        assert text["feelings"][i] == feelings_of(inventory)
        assert situations[i] == situation_of(symbols, ahead, inventory)
        check_around(text["around"][i], symbols, ahead, inventory, env.sleeping[i])


@pytest.mark.parametrize("engine", ["native", "crafter"])
def test_captions_in_play_are_those_of_the_slow_description(engine):
    env = envs.make("crafter/Named", 6, seed=2, engine=engine, observe=TEXTS, length=150)
    check(env, env.begin())
    generator = np.random.default_rng(3)
    for _ in range(200):  # over an end
        check(env, env.advance(generator.integers(0, len(NAMED), 6)).obs)
    assert len(env.texts) > 400


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), rare=st.floats(0, 1))
def test_captions_of_any_symbols_are_those_of_the_slow_description(seed, rare):
    generator = np.random.default_rng(seed)
    symbols = np.zeros((5, 9, 7, 3), np.uint8)
    symbols[..., 0] = generator.integers(0, len(MATERIALS), symbols.shape[:-1]) * (generator.random() < rare)
    things = generator.integers(0, len(OBJECTS), symbols.shape[:-1]) * (generator.random(symbols.shape[:-1]) < rare / 9)
    symbols[..., 1] = np.where(things == PLAYER, 0, things)
    symbols[:, 4, 3] = (SAND, PLAYER, 1)
    ahead = symbols[:, 5, 3, :2].astype(np.int16)
    inventory = (generator.integers(0, 10, (5, 16)) * (generator.random((5, 16)) < 0.5)).astype(np.int16)
    sleeping = generator.random(5) < 0.5
    texts = TextTable()
    captions = fast.Captions(texts)
    for _ in range(2):  # new, and known
        view, items = captions.view(symbols, ahead), captions.items(inventory)
        feelings, situation = captions.feelings(inventory), captions.situation(symbols, ahead, inventory)
        around = captions.around(symbols, ahead, inventory, sleeping)
        for i in range(5):
            assert texts[view[i]] == view_of(symbols[i], ahead[i].tolist())
            assert texts[items[i]] == items_of(inventory[i])
            assert texts[feelings[i]] == feelings_of(inventory[i])
            assert texts[situation[i]] == situation_of(symbols[i], ahead[i].tolist(), inventory[i])
            check_around(texts[around[i]], symbols[i], ahead[i].tolist(), inventory[i], sleeping[i])
    known = len(texts)
    captions.situation(symbols, ahead, inventory)
    assert len(texts) == known


# ---- what stands in them ---------------------------------------------------------------------------------------------


def texts_of(stage):
    return {name: stage.env.texts[int(stage.env._observe(slice(None))[name][0])] for name in TEXTS}


def test_an_example_in_full():
    stage = Stage(observe=TEXTS).put(TREE).put(GRASS, -COW, at=(-3, 2)).put(TABLE, at=(0, -2))
    stage.hold(wood=3, sapling=1, wood_pickaxe=1, iron_sword=1, drink=6, energy=8)
    assert texts_of(stage) == {
        "view": "You see the cow, the crafting table and the tree. You face the tree",
        "items": "You have an iron sword, a plant, some wood and a wood pickaxe",
        "feelings": "You feel thirsty and sleepy",
        "around": "You see the tree 1 step right, the crafting table 2 steps up, the cow 5 steps left and down. "
        "You face the tree. Your health is 9, food 9, drink 6 and energy 8. "
        "You have 1 iron sword, 1 plant, 3 wood and 1 wood pickaxe",
    }
    assert stage.env.texts[int(stage.env.situations()[0])] == (
        "You see the cow, the crafting table and the tree. You face the tree. "
        "You have an iron sword, a plant, some wood and a wood pickaxe. You feel sleepy"
    )


def test_who_has_and_sees_nothing_is_told_so():
    assert texts_of(Stage(observe=TEXTS)) == {
        "view": "You see nothing",
        "items": "You have nothing",
        "feelings": "You feel fine",
        "around": "You see nothing. Your health is 9, food 9, drink 9 and energy 9. You have nothing",
    }


@pytest.mark.parametrize("front", [PATH, SAND, LAVA])
def test_ground_that_nothing_is_done_to_is_not_faced(front):
    assert "You face" not in texts_of(Stage(observe=TEXTS).put(front))["view"]
    assert "You face the zombie" in texts_of(Stage(observe=TEXTS).put(front, -ZOMBIE))["view"]


def test_paths_and_lava_are_seen_but_not_sand_players_and_arrows():
    stage = Stage(observe=TEXTS).put(PATH, at=(2, 0)).put(LAVA, at=(3, 0))
    stage.env.symbols[0, 0, 0] = (GRASS, ARROW, 2)
    assert texts_of(stage)["view"] == "You see the lava and the path"


def test_ripe_plants_are_told_from_others():
    stage = Stage(observe=TEXTS).put(GRASS, -PLANT).put(GRASS, -RIPE, at=(0, 2))
    assert texts_of(stage)["view"] == "You see the plant and the ripe plant. You face the plant"


def test_situations_are_the_same_whatever_the_counts_and_places():
    one = Stage().put(STONE).put(TREE, at=(0, 2)).put(FURNACE, at=(2, 2)).hold(wood=1, energy=8, food=2)
    other = Stage().put(STONE).put(TREE, at=(-3, 0)).put(TREE, at=(3, 1)).put(FURNACE, at=(2, 0))
    other.hold(wood=7, energy=2, health=5)
    said = [stage.env.texts[int(stage.env.situations()[0])] for stage in (one, other)]
    assert said[0] == said[1]
    assert other.hold(energy=9).env.situations()[0] != other.hold(energy=2).env.situations()[0]


def test_captions_of_observations_are_their_sentences_dense_or_not():
    env = envs.make("crafter/Text", 3)
    dense = env.begin()
    sentences = env.captions(dense)
    assert env.captions(env._public(dense)) == sentences
    for i, told in enumerate(sentences):
        joined = ". ".join(env.texts[int(dense[name][i])] for name in ("view", "items", "feelings"))
        assert ". ".join(told) == joined
    assert env.env_spec.captioned
    blind = envs.make("crafter/Standard", 1, observe=["counts"])
    assert not blind.env_spec.captioned
    with pytest.raises(LookupError, match="observes no text"):
        blind.captions(blind.begin())


@pytest.mark.parametrize("task", [None, "plant row", "mine diamond", "chop grass with wood pickaxe"])
def test_every_word_is_of_the_vocabulary(task):
    options = {"observe": TEXTS, "task": task} | ({"subgoals": "shown"} if task else {})
    words = set(envs.spec("crafter/Text", **options).words)
    env = envs.make("crafter/Text", 1, **options)
    names = set(env._pursuit.names) if task else set()
    everything = [fast.say_view((1 << fast.UNNAMED) - 1, k) for k in range(fast.UNNAMED + 1)]
    everything += [fast.say_items(bits) for bits in range(1 << len(POSSESSIONS))]
    everything += [fast.say_feelings(bits) for bits in range(16)]
    for text in (*everything, *names):
        assert set(text.lower().replace(",", " ").replace(".", " ").split()) <= words


def test_what_is_observed_is_what_was_asked_for():
    env = envs.make("crafter/Standard", 2, observe=["symbols", "counts", "pixels"])
    obs = env.begin()
    assert list(obs) == ["symbols", "counts", "pixels"]
    assert obs["symbols"].shape == (2, 9, 7, 3)
    assert np.array_equal(obs["counts"], env.inventory.astype(np.float32) / np.float32(9))
    assert obs["pixels"].shape == (2, 64, 64, 3)
    assert env.frame(1).shape == (126, 126, 3)  # for people: the same picture in squares of 14 pixels, not 7
    assert obs["pixels"][1, :49, :63].mean() == pytest.approx(env.frame(1)[:98].mean(), abs=2)
    assert list(envs.make("crafter/Text", 1).begin()) == ["view", "items", "feelings"]
    assert list(envs.make("crafter/Standard", 1).begin()) == ["pixels"]
    assert list(envs.make("crafter/Named", 1, observe=["counts"], task="sleep").begin()) == ["counts", "mission"]
