"""The goal bank and its potential: what is near to which goal, from where, and that keeping it changes no bit."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import envs
from actors import wrappers
from actors.wrappers import shaping
from cluster import run as controller
from cluster.config.tree import compose
from envs.text import TextTable, text_hash
from learner.knowledge import goal_bank
from learner.knowledge.goal_bank import GoalBank, build, in_order, split, units
from learner.knowledge.segments import Segments
from learner.models.config import fields_of
from learner.potentials import PotentialSetup, ShapingConfig, goal, potential
from learner.store.episodes import StoreError
from learner.windows import NO_ACTION, Trail, Windows
from llm_service.embedding import embed_one

ACTIONS = ("turn left", "turn right", "go forward")
ROOT = Path(__file__).resolve().parents[2]
ENV, OPTIONS = "babyai/GoToLocal", {"captions": True}
COMMON = {"a", "you", "see", "to", "the", "step", "steps", "choose"}


def of_words(text):
    """A planted encoder: texts are alike as far as they share words."""
    words = [w for w in text.lower().replace(".", " ").split() if w not in COMMON] or ["nothing"]
    total = sum(np.random.default_rng(abs(text_hash(word))).normal(size=384) for word in words)
    return (total / np.linalg.norm(total)).astype(np.float32)


@pytest.fixture(autouse=True)
def planted(monkeypatch):
    monkeypatch.setattr(goal, "embed_one", of_words)
    monkeypatch.setattr(goal_bank, "embed_one", of_words)


def leave(folder, asked):
    """A label stage's folder, of (caption, goals)."""
    folder.mkdir(exist_ok=True)
    (folder / "captions.jsonl").write_text("".join(f"{json.dumps(lines)}\n" for lines, _ in asked))
    told = [{"segment": i, "goals": goals} for i, (_, goals) in enumerate(asked)]
    (folder / "goals.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in told))
    return folder


def lines(*texts):
    """Observation, action, observation, ..."""
    return [text if i % 2 == 0 else f"You choose: {text}" for i, text in enumerate(texts)]


def made(folder, texts=None, fields=None, **options):
    chosen = ShapingConfig(potential="goal", goals=str(folder), **options)
    fields = fields or envs.spec(ENV, **OPTIONS).fields
    return potential("goal")(PotentialSetup(chosen, fields, 0, TextTable() if texts is None else texts, ACTIONS))


def windows_of(texts, *said):
    """Windows of texts, each observation, action, observation, ...; "" where nothing was yet."""
    seen = [[texts.intern(text) for text in row[::2]] for row in said]
    actions = [[ACTIONS.index(name) if name else NO_ACTION for name in row[1::2]] for row in said]
    return Windows.of({"caption": np.array(seen, np.int32)}, np.array(actions, np.int64).reshape(len(said), -1))


def things(where):
    return [f"You see a {colour} {kind} {where}" for colour, kind in (("red", "ball"), ("blue", "box"))]


@pytest.fixture
def folder(tmp_path):
    """Near the ball the ball was named, near the box the box, and where there is nothing, nothing."""
    asked = []
    for n in range(2, 6):
        ball, box = things(f"{n} steps forward")
        asked += [(lines(ball, "go forward", ball), ["go to the red ball"])]
        asked += [(lines(box, "go forward", box), ["go to the blue box"])]
        wall = f"You see a wall {n} steps left"
        asked += [(lines(wall, "turn left", wall), [])]
    return leave(tmp_path / "label", asked)


# ---- what it says ----------------------------------------------------------------------------------------------------


def test_a_step_to_what_would_be_set_out_for_here_is_worth_something_and_others_nothing(folder):
    texts = TextTable()
    ball, box = things("1 step forward")
    wall = "You see a wall 3 steps left"
    windows = windows_of(
        texts,
        (ball, "go forward", ball, "go forward", ball, "go forward", ball),
        (box, "go forward", box, "go forward", box, "go forward", box),
        (ball, "go forward", ball, "turn left", wall, "turn left", wall),
        (wall, "turn left", wall, "turn left", wall, "turn left", ball),
        (ball, "", ball, "", ball, "", ball),
        (wall, "", wall, "", wall, "", wall),
    )
    phi = made(folder, texts, goal_quantile=0.3).phi(windows)
    assert phi.dtype == np.float32
    assert (phi > 0).tolist() == [True, True, False, False, True, False]
    assert phi.max() <= 1
    expected = of_words(ball) * 2 + of_words("go forward")
    alike = expected @ of_words("go to the red ball") / np.linalg.norm(expected)
    assert phi[0] == pytest.approx(alike, abs=1e-6)


def test_goals_count_only_where_they_were_named(folder):
    """The same transition after another past: there its goal was not named."""
    texts = TextTable()
    ball, box = things("2 steps forward")
    both = f"{ball}. {box}"
    steps = [(past, "go forward") * 6 + (both, "turn left", both) for past in (ball, box)]
    phi = made(folder, texts, goal_quantile=0).phi(windows_of(texts, *steps))
    transition = 2 * (of_words(ball) + of_words(box)) + of_words("turn left")
    alike = [of_words(f"go to the {thing}") @ transition for thing in ("red ball", "blue box")]
    np.testing.assert_allclose(phi, alike / np.linalg.norm(transition), atol=1e-6)
    assert abs(phi[0] - phi[1]) > 1e-4


def test_texts_are_parted_as_the_bank_parts_them():
    told = lines("You see a wall 2 steps left. You see a key 1 step forward", "go forward", "You have 1 wood, 2 stone")
    assert in_order([*told[:2], "You see nothing", told[2]])[2] == "You see nothing. You have 1 wood, 2 stone"
    assert in_order(["Nothing is told", *told[1:]])[0] == ""
    texts = in_order(told)
    sentences = ["You see a wall 2 steps left", "You see a key 1 step forward", "go forward", "You have 1 wood"]
    assert units(texts, "sentence") == [*sentences, "2 stone"]
    assert units(texts, "caption") == [". ".join(texts)]
    assert split(texts) == (texts[:1], texts)
    assert split(["a"]) == (["a"], ["a"])
    assert split(list("oaoao")) == (["o", "a", "o"], ["o", "a", "o"])


@pytest.mark.parametrize("quantile", [0.0, 0.5, 0.9, 1.0])
def test_the_threshold_is_the_quantile_of_the_segments_own_cosines(folder, quantile):
    bank = GoalBank.of(folder)
    captions = [json.loads(line) for line in (folder / "captions.jsonl").read_text().splitlines()]
    phi = bank.phi_of_captions(captions, quantile)
    assert len(bank.cosines) == len(captions)
    assert made(folder, goal_quantile=quantile).threshold == np.float32(np.quantile(bank.cosines, quantile))
    np.testing.assert_allclose(phi, np.where(bank.cosines > bank.threshold(quantile), bank.cosines, 0), atol=1e-6)
    assert bank.report()["quantiles"]["0.5"] == pytest.approx(np.median(bank.cosines), abs=1e-4)


def test_goals_and_keys_that_are_equal_are_one(tmp_path):
    ball, box = things("2 steps forward")
    asked = [(lines(ball, "go forward", box), ["go to the red ball", "look around"])]
    asked += [(lines(box, "go forward", ball), ["go to red ball"])]  # the same sentences, the same words
    asked += [(lines(ball), ["go to the blue box"])]
    bank = GoalBank.of(leave(tmp_path, asked))
    assert bank.goal_texts == ["go to the red ball", "look around", "go to the blue box"]
    assert bank.merged == [("go to the red ball", "go to red ball")]
    assert bank.named.tolist() == [[True, True, False], [False, False, True]]
    whole = GoalBank.of(tmp_path, "caption")
    assert len(whole.keys) == 2  # of_words knows no order either


def test_agreement_is_the_rank_correlation_with_the_return_to_come(folder):
    bank = GoalBank.of(folder)
    captions = [json.loads(line) for line in (folder / "captions.jsonl").read_text().splitlines()]
    phi, n = bank.phi_of_captions(captions, 0.2), len(captions)
    whole = np.zeros(n, np.int64)
    segments = Segments({}, np.zeros((n, 1), np.int64), whole, whole, whole, phi**2, captions)
    assert bank.agreement(segments, 0.2) == pytest.approx(1)
    reverse = Segments({}, np.zeros((n, 1), np.int64), whole, whole, whole, -phi, captions)
    assert bank.agreement(reverse, 0.2) == pytest.approx(-1)


# ---- what was lived: the same by whatever way, to the bit where it is kept -------------------------------------------


def lived(length=4, steps=12, n=8):
    world, rng = envs.make(ENV, n, 1, **OPTIONS), np.random.default_rng(0)
    trail = Trail(["caption"], length, ["caption"], world.texts)
    trail.begin(world.begin())
    for _ in range(steps):
        actions = rng.integers(3, size=n)
        trail.add(actions, world.advance(actions))
    return world, trail.chunk()[0]


def captions_of(world, windows):
    """By definition: what was lived of each window, in words."""
    found = []
    for seen, done in zip(windows.obs("caption").tolist(), windows.actions.tolist(), strict=True):
        told = []
        for i, text in enumerate(seen):
            if i < len(done) and done[i] == NO_ACTION:
                continue
            told += [world.texts[text]] + [ACTIONS[done[i]] for _ in range(i < len(done))]
        found.append(lines(*told))
    return found


@pytest.fixture(scope="module")
def world():
    return lived()


@pytest.fixture
def asked(tmp_path, world):
    captions = captions_of(*world)[::3]
    seen = sorted({text.split(" step")[0] for told in captions for text in told[-1].split(". ")})
    return leave(tmp_path / "lived", [(told, [seen[i % len(seen)], "go forward"]) for i, told in enumerate(captions)])


def plainly(folder, captions, by, quantile):
    """As published: two texts encoded for each window, all else from scratch."""

    def vector(told):
        texts = [text.removeprefix("You choose: ") for text in told]
        parts = [". ".join(texts)] if by == "caption" else [s for text in texts for s in text.split(". ")]
        total = np.sum([of_words(part).astype(np.float64) for part in parts], 0)
        return total / np.linalg.norm(total)

    told = [json.loads(line) for line in (folder / "goals.jsonl").read_text().splitlines()]
    known = [json.loads(line) for line in (folder / "captions.jsonl").read_text().splitlines()]
    keys = np.stack([vector(line) for line in known])

    def closest(caption):
        past, transition = caption[:-2] or caption, vector(caption[-3:])
        alike = keys @ vector(past)
        third = np.sort(np.unique(alike.round(6)))[-3:].min()
        chosen = [goal for i in np.flatnonzero(alike.round(6) >= third) for goal in told[i]["goals"]]
        return max(of_words(goal) @ transition for goal in chosen)

    threshold = np.quantile([closest(caption) for caption in known], quantile)
    found = np.array([closest(caption) for caption in captions])
    return np.where(found > threshold, found, 0), np.abs(found - threshold) > 1e-6


@pytest.mark.parametrize("by", ["sentence", "caption"])
def test_what_is_kept_says_what_two_encodes_a_step_say(asked, world, by):
    texts = TextTable()
    windows, captions = world[1], captions_of(*world)
    made_of = made(asked, world[0].texts, goal_by=by, goal_quantile=0.6)
    expected, clear = plainly(asked, captions, by, 0.6)
    found = [made_of.phi(windows), made_of.phi(windows), made_of.bank.phi_of_captions(captions, 0.6)]
    for phi in found:
        np.testing.assert_allclose(phi[clear], expected[clear], atol=1e-6)
    np.testing.assert_array_equal(found[0], found[1])
    assert 0.2 < (expected > 0).mean() < 0.8
    assert clear.mean() > 0.95
    assert len(texts) == 0


def some(windows, index):
    return Windows(windows.rows, windows.index[index], windows.actions[index])


@pytest.mark.parametrize("by", ["sentence", "caption"])
def test_order_company_restarts_and_forgetting_change_no_bit(asked, world, by, monkeypatch):
    env, windows = world
    options = {"goal_by": by, "goal_quantile": 0.3}
    expected = made(asked, env.texts, **options).phi(windows)
    assert len(np.unique(expected)) > 20
    order = np.random.default_rng(3).permutation(len(windows))
    again = made(asked, env.texts, **options)
    for part in np.array_split(order, 11):
        np.testing.assert_array_equal(again.phi(some(windows, part)), expected[part])
    for name in ("MOST_UNITS", "MOST_SEEN", "MOST_STEPS"):
        monkeypatch.setattr(goal, name, 5)
    forgetful = made(asked, env.texts, **options)
    for part in np.array_split(order, 30):
        np.testing.assert_array_equal(forgetful.phi(some(windows, part)), expected[part])
    longest = max(len(part) for part in np.array_split(order, 30))
    assert max(len(forgetful._pasts), len(forgetful._transitions)) <= 5 + longest
    assert len(forgetful._row_of) <= 5 + 40
    elsewhere = TextTable()  # another process met other texts first
    ids = np.array([elsewhere.intern(env.texts[i]) for i in reversed(range(len(env.texts)))], np.int32)[::-1]
    moved = Windows({"caption": ids[windows.rows["caption"]]}, windows.index, windows.actions)
    np.testing.assert_array_equal(made(asked, elsewhere, **options).phi(moved), expected)


def test_many_goals_take_no_more_memory(asked, world, monkeypatch):
    env, windows = world
    roomy = made(asked, env.texts, goal_quantile=0)
    expected, row, goals = roomy.phi(windows), roomy._nothing.nbytes, len(roomy.bank.goals)
    monkeypatch.setattr(goal, "MOST_BYTES", 8 * row)
    small = made(asked, env.texts, goal_quantile=0)
    parts = np.array_split(np.arange(len(windows)), 30)
    for part in parts:
        np.testing.assert_array_equal(small.phi(some(windows, part)), expected[part])
    more = len(parts[0])  # a call's own are at hand together
    assert len(small._transitions) <= 8 * row // (4 * goals) + more
    assert len(small._seen) <= 8 + 2 * more
    assert len(small._row_of) <= 8 + 40


@pytest.mark.parametrize("length", [1, 2])
def test_short_windows_have_a_past_and_a_transition_too(asked, length):
    env, windows = lived(length)
    made_of = made(asked, env.texts, goal_quantile=0)
    expected = made_of.bank.phi_of_captions(captions_of(env, windows), 0)
    np.testing.assert_allclose(made_of.phi(windows), expected, atol=1e-6)
    assert (expected > 0).mean() > 0.5


def test_a_saved_bank_is_the_one_that_is_made_and_embeds_nothing(asked, world, monkeypatch):
    env, windows = world
    fresh = made(asked, env.texts)
    saved = build(asked)
    with monkeypatch.context() as patched:
        patched.setattr(goal_bank, "embed_one", None)
        loaded = made(asked, env.texts)
    np.testing.assert_array_equal(loaded.phi(windows), fresh.phi(windows))
    for name in ("keys", "goals", "named", "vectors", "cosines"):
        np.testing.assert_array_equal(getattr(loaded.bank, name), getattr(saved, name))
    assert json.loads((asked / "goals.json").read_text())["goals"] == len(saved.goals)


def test_a_bank_of_other_answers_is_not_used(asked):
    build(asked)
    source = GoalBank.of(asked).source
    with (asked / "goals.jsonl").open("a") as file:
        file.write(json.dumps({"segment": 0, "goals": ["open the yellow door"]}) + "\n")
    changed = GoalBank.of(asked)
    assert "open the yellow door" in changed.goal_texts
    assert changed.source != source
    assert goal.Goal.content(ShapingConfig(potential="goal", goals=str(asked))) == changed.source
    assert GoalBank.of(asked, "caption").by == "caption"


def test_it_counts_what_it_looked_up_and_what_was_new(asked, world):
    env, windows = world
    made_of = made(asked, env.texts)
    made_of.phi(windows)
    first = made_of.counts()
    assert first["texts"] == 2 * len(windows)
    assert 0 < first["texts_new"] < first["texts"]
    made_of.phi(windows)
    assert made_of.counts() == {"texts": 2 * len(windows), "texts_new": 0, "texts_embedded": 0}


# ---- what is refused, and a run --------------------------------------------------------------------------------------


def refused(world, **options):
    spec = envs.spec(world[0], **world[1])
    with pytest.raises(ValueError, match=r"method\.shaping") as told:
        potential("goal").check(ShapingConfig(potential="goal", **options), spec)
    assert "\n" not in str(told.value)
    return str(told.value)


def test_what_cannot_be_is_refused_in_a_sentence_that_says_what_to_set(folder, tmp_path):
    there = (ENV, OPTIONS)
    potential("goal").check(ShapingConfig(potential="goal", goals=str(folder)), envs.spec(ENV, **OPTIONS))
    assert "set method.shaping.goals=run:NAME/label" in refused(there)
    assert "name the folder of a label stage" in refused(there, goals=str(tmp_path))
    assert "name the folder of a label stage" in refused(there, goals="~nobody-of-that-name/label")
    none = leave(tmp_path / "none", [(lines("You see a wall"), [])])
    assert "names no goal at all" in refused(there, goals=str(none))
    (none / "goals.jsonl").write_text('{"segment": 99, "goals": ["a"]}\n')
    assert "run its stage again" in refused(there, goals=str(none))
    assert "set env.captions=true" in refused((ENV, {}), goals=str(folder))
    said = refused(("crafter/Text", {"observe": ["symbols", "view", "around"]}), goals=str(folder))
    assert "tells of another world, where one can 'go forward'" in said
    assert "crafter/Text" in said
    assert "shows no such text" in refused(there, goals=str(folder), goal_captions=["view"])
    with pytest.raises(ValueError, match="goal_quantile"):
        ShapingConfig(potential="goal", goal_quantile=1.5)


def test_the_bank_in_configs_is_that_of_the_goals_beside_it(monkeypatch):
    place = ROOT / "configs" / "knowledge" / "babyai" / "goals"
    monkeypatch.setattr(goal_bank, "embed_one", None)  # nothing is embedded
    bank = GoalBank.of(place)
    assert (bank.by, bank.source) == ("sentence", goal_bank.digest(place))
    assert len(bank.cosines) == 300
    potential("goal").check(ShapingConfig(potential="goal", goals=str(place)), envs.spec(ENV, **OPTIONS))


def test_files_that_cannot_be_used_say_so(folder, tmp_path):
    with pytest.raises(StoreError, match="names no goal at all"):
        GoalBank.of(leave(tmp_path / "none", [(lines("You see a wall"), [])]))
    build(folder)
    arrays = folder / "goals.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-1] + b"x")
    with pytest.raises(StoreError, match="run its stage again"):
        GoalBank.of(folder)
    (folder / "goals.json").unlink()
    (folder / "goals.jsonl").write_text('{"segment": 99, "goals": ["a"]}\n')
    with pytest.raises(StoreError, match="cannot be read"):
        GoalBank.of(folder)


def test_which_texts_are_compared():
    def read(world, options, **own):
        return goal._told(goal.GoalConfig(**own), envs.spec(world, **options).fields)

    assert read(ENV, OPTIONS) == ("caption",)
    crafter = {"observe": ["symbols", "view", "around"], "task": "gardening"}
    assert read("crafter/Text", crafter) == ("view", "around")
    assert read("crafter/Text", crafter, goal_captions=["around"]) == ("around",)
    assert read("crafter/Standard", {}) == ()


def test_several_texts_of_an_observation_are_one_after_the_other(folder):
    fields = envs.spec("crafter/Text", observe=["view", "items"]).fields
    texts = TextTable()
    ball, box = things("1 step forward")
    ids = np.array([[[texts.intern(ball), texts.intern(box)]]], np.int32)  # [1, K=1, F]
    both = Windows.of({"view": ids[..., 0], "items": ids[..., 1]}, np.zeros((1, 0), np.int64))
    made_of = made(folder, texts, fields, goal_quantile=0)
    assert made_of.fields == ("view", "items")
    expected = made_of.bank.phi_of_captions([[ball, box]], 0)
    np.testing.assert_allclose(made_of.phi(both), expected, atol=1e-6)


def test_a_run_is_paid_and_its_policy_sees_no_caption(asked, tmp_path):
    words = [f"env={ENV}", "env.captions=true", "cluster=inline", "actors.envs=4", "actors.steps=16"]
    words += ["policy.reads=[image,direction,mission]", "learner.minibatch=32", "evaluate.every=0"]
    words += ["evaluate.episodes=4", "evaluate.videos=0", "learner.env_steps=256", f"run.folder={tmp_path}/runs"]
    words += ["method.shaping.potential=goal", f"method.shaping.goals={asked}", "run.name=a"]
    config = compose(words)
    assert set(fields_of(config.policy, envs.spec(ENV, **OPTIONS))) == {"image", "direction", "mission"}
    assert controller.run(config) == 0
    rows = [json.loads(line) for line in (tmp_path / "runs/a/metrics.jsonl").read_text().splitlines()]
    asked_for, new = (sum(row.get(f"shaping/{name}", 0) for row in rows) for name in ("texts", "texts_new"))
    assert asked_for > new > 0


def test_successors_and_chunks_of_a_shaped_world_pay_the_same(asked):
    part = shaping.Config(
        shaping=ShapingConfig(potential="goal", goals=str(asked), goal_quantile=0.3, window=4), discount=0.9, seed=0
    )
    drawn = np.random.default_rng(0).integers(3, size=(24, 4))

    def paid(lengths, restarts):
        def world():
            return shaping.make(part, envs.make(ENV, 4, 3, **OPTIONS), wrappers.Setting("test"))

        env, found, actions = world(), [], iter(drawn)
        env.begin()
        for length in lengths:
            ended = np.stack([env.advance(next(actions)).terminated.copy() for _ in range(length)])
            chunk = SimpleNamespace(terminated=ended, rewards={})
            env.finish(chunk)
            found.append(chunk.rewards["shaping"])
            if restarts:
                state, env = env.state(), world()
                env.restore(state)
        return np.concatenate(found)

    one = paid([24], False)
    assert (one != 0).mean() > 0.3
    np.testing.assert_array_equal(one, paid([5, 1, 18], True))


@pytest.mark.slow
def test_minilm_finds_the_ball_nearer_to_the_goal_than_the_wall(folder, monkeypatch):
    for module in (goal, goal_bank):
        monkeypatch.setattr(module, "embed_one", embed_one)
    ball, box = things("1 step forward")
    wall = "You see a wall 1 step forward"
    captions = [lines(thing, "go forward", thing, "go forward", thing) for thing in (ball, box, wall)]
    phi = GoalBank.of(folder).phi_of_captions(captions, 0)
    assert phi[:2].min() > max(0.4, 2 * phi[2])
