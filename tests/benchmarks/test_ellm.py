"""ellm: both sides play the same game, the peer is the loop that it says it is, rows and their ids, equal work."""

import hashlib
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks import ellm
from benchmarks.measure import OWN, ROOT, DifferentOutputs, Options, OursFailed, peer_python
from benchmarks.peers import ellm_climb, ellm_loop, ellm_world
from benchmarks.peers.ellm_memory import GAMMA, N_STEP, WIDTH, Embeddings, Replay
from benchmarks.peers.ellm_world import EVENTS, Payment
from cluster.config.tree import compose
from envs.crafter.rules import COMBINED
from learner.algorithms.dqn import DQNConfig
from learner.goals import GoalsConfig
from learner.optim.precision import arithmetic

IDS = {
    "ellm/text_with_llm_latency/minibatch_64/env_steps/published_loop": True,
    "ellm/text_with_llm_latency/minibatch_64/env_steps/published_loop_drawing": False,
    "ellm/text_with_llm_latency/minibatch_64/env_steps/published_loop_by_sentence": False,
    "ellm/text/minibatch_64/env_steps/published_loop": True,
    "ellm/text/minibatch_64/env_steps/published_loop_drawing": False,
    "ellm/text/minibatch_64/env_steps/published_loop_by_sentence": False,
    "ellm/text_with_llm_latency/minibatch_512/env_steps/published_loop": True,
    "ellm/text_with_llm_latency/minibatch_512/env_steps/published_loop_drawing": False,
    "ellm/text_with_llm_latency/minibatch_512/env_steps/published_loop_by_sentence": False,
    "ellm/text_with_llm_latency/minibatch_512/env_steps/published_loop_64": False,
    "ellm/text/minibatch_512/env_steps/published_loop": True,
    "ellm/text/minibatch_512/env_steps/published_loop_drawing": False,
    "ellm/text/minibatch_512/env_steps/published_loop_by_sentence": False,
    "ellm/text/minibatch_512/env_steps/published_loop_64": False,
    "ellm/text_with_llm_latency/minibatch_64/after_50000/env_steps/published_loop": False,
    "ellm/text_with_llm_latency/minibatch_64/after_50000/env_steps/published_loop_drawing": False,
    "ellm/pixels/minibatch_64/env_steps/published_loop": False,
    "ellm/pixels/minibatch_64/env_steps/published_loop_drawing": False,
    "ellm/to_4_achievements/wall/published_loop": True,
}
"""Rows, and whether they are headlines."""


def encode(texts):
    """Every text a direction of its own, in place of the language model."""
    seeds = [int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little") for text in texts]
    vectors = np.stack([np.random.default_rng(seed).normal(size=WIDTH) for seed in seeds]).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


# ---- the same game ---------------------------------------------------------------------------------------------------


def test_both_sides_play_the_same(monkeypatch):
    monkeypatch.setattr(ellm, "embed_one", lambda name: encode([name])[0])
    assert ellm.check(worlds=3, steps=120) > 120


def test_a_difference_fails(monkeypatch):
    monkeypatch.setattr(ellm, "embed_one", lambda name: encode([name])[0])
    monkeypatch.setattr(ellm_world, "FEELINGS", (("elated", "health"),))
    with pytest.raises(DifferentOutputs, match="state"):
        ellm.check(worlds=1, steps=60)


def test_events_are_the_139():
    assert [event.name for event in EVENTS] == list(COMBINED)
    assert EVENTS[COMBINED.index("mine stone")] == ellm_world.Event("mine stone", "stone", "stone", 5, "stone")
    assert EVENTS[COMBINED.index("drink tree")] == ellm_world.Event("drink tree", "tree", "", 0, "")


def test_a_goal_is_paid_once_by_either_of_its_names():
    pay, achieved = Payment(encode), set()
    assert pay("eat cow", ["drink water", "attack cow"], achieved) == pytest.approx(1.0)
    assert achieved == {"attack cow"}
    assert pay("attack cow", ["drink water"], achieved) == 0.0
    assert pay("chop tree", ["drink water"], achieved) == 0.0
    assert pay("", ["drink water"], achieved) == 0.0


# ---- the loop --------------------------------------------------------------------------------------------------------


def test_a_question_is_asked_once_for_a_situation_and_waited_for(monkeypatch):
    waited = []
    loop = ellm_loop.Loop(encode)
    monkeypatch.setattr(ellm_loop.time, "sleep", waited.append)
    loop.clock = ellm_loop.Clock()
    before = len(loop.answers)
    for _ in range(150):
        loop.step(0.2, learn=False)
    assert waited == [0.2] * (len(loop.answers) - before)
    assert loop.clock.asked == len(waited) > 0


def test_rows_of_the_replay_are_returns_of_three_steps():
    replay = Replay(8)
    places = [replay.observe(10 + k, 20 + k) for k in range(6)]
    for k, reward in enumerate((1.0, 0.0, 2.0, 4.0, 8.0)):
        replay.add(places[k], k, reward, places[k + 1], terminated=k == 4, ended=k == 4)
    assert replay.index[: replay.rows].tolist() == [[0, 0, 3], [1, 1, 4], [2, 2, 5], [3, 3, 5], [4, 4, 5]]
    expected = [1 + GAMMA**2 * 2, GAMMA * 2 + GAMMA**2 * 4, 2 + GAMMA * 4 + GAMMA**2 * 8, 4 + GAMMA * 8, 8]
    assert replay.number[: replay.rows, 0] == pytest.approx(expected)
    assert replay.number[: replay.rows, 1] == pytest.approx([GAMMA**3, GAMMA**3, 0, 0, 0])
    assert replay.texts[places].tolist() == [[10 + k, 20 + k] for k in range(6)]


def test_an_episode_that_is_cut_goes_on_in_the_values():
    replay = Replay(8)
    places = [replay.observe(0, 0) for _ in range(2)]
    replay.add(places[0], 1, 1.0, places[1], terminated=False, ended=True)
    assert replay.number[0].tolist() == pytest.approx([1.0, GAMMA])


def test_texts_are_embedded_once():
    asked = []

    def counted(texts):
        asked.extend(texts)
        return encode(texts)

    texts = Embeddings(counted)
    rows = np.array([texts.row("a. b"), texts.row("b"), texts.row("a. b")])
    assert rows.tolist() == [0, 1, 0]
    assert (texts.prepare(rows), texts.prepare(rows)) == (2, 0)
    assert asked == ["a. b", "b"]
    assert np.allclose(texts(rows), encode(["a. b", "b", "a. b"]))


def test_by_sentence_a_text_is_the_mean_of_its_sentences():
    texts = Embeddings(encode, by_sentence=True)
    rows = np.array([texts.row("a. b"), texts.row("b. c")])
    texts.prepare(rows)
    a, b, c = encode(["a", "b", "c"])
    assert np.allclose(texts(rows), [(a + b) / 2, (b + c) / 2], atol=1e-6)
    assert texts.sentences.texts == ["a", "b", "c"]


@pytest.mark.parametrize("pixels", [False, True])
def test_the_loop_learns_and_says_where_its_time_went(pixels, monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.setattr(ellm_loop, "WARM_UP_UPDATES", 1)
    loop = ellm_loop.Loop(encode, pixels=pixels)
    before = loop.heads[0][0].weight.detach().clone()
    answer = ellm_loop.measure(loop, 0.1, start=60, latency_s=0.0, batch=64)
    assert not torch.equal(before, loop.heads[0][0].weight)
    assert answer["replayed_per_step"] == pytest.approx(16, rel=0.5)  # of few steps
    assert sum(answer["shares"].values()) == pytest.approx(1.0, abs=0.01)
    assert answer["env_steps"] > 0


@pytest.mark.parametrize("drawing", [False, True])
def test_the_published_pictures_are_drawn_in_each_step_that_is_measured(drawing, monkeypatch):
    loop, sides = ellm_loop.Loop(encode), []
    monkeypatch.setattr(ellm_world.World, "picture", lambda world, side=64: sides.append(side))
    answer = ellm_loop.measure(loop, 0.1, start=60, latency_s=0.0, batch=64, drawing=drawing)
    assert answer["env_steps"] > 0
    assert sides[:2] == [64, 512] * drawing
    assert sides.count(64) == sides.count(512) == answer["env_steps"] * drawing


def test_a_picture_has_the_side_that_is_asked_for():
    world = ellm_world.World(0)
    assert [world.picture(side).shape for side in (64, 512)] == [(64, 64, 3), (512, 512, 3)]


def test_in_bfloat16_the_loop_learns_the_same_within_its_precision():
    """Emulated where the processor has none."""
    loop, learned = ellm_loop.Loop(encode), []
    for _ in range(60):
        loop.step(learn=False)
    index, number = loop.replay.sample(512, np.random.default_rng(0))
    action, discount = torch.from_numpy(index[:, 1:2]), torch.from_numpy(number)[:, 1]
    own = [*loop.encoder.parameters(), *loop.heads.parameters()]
    for half in (False, True):
        with arithmetic(half):  # rewards of 1: errors are larger than what is rounded
            loss = loop.loss(index, action, torch.ones(512), discount)
        gradients = torch.autograd.grad(loss, own)
        learned.append((loss.item(), torch.cat([each.ravel() for each in gradients])))
    (told, exact), (said, rounded) = learned
    assert told != said
    assert said == pytest.approx(told, rel=0.02)
    assert torch.cosine_similarity(exact, rounded, 0) > 0.99


def test_values_converge_on_what_is_paid():
    """A minibatch of one row whose episode ends is a regression on its reward."""
    torch.manual_seed(0)
    loop = ellm_loop.Loop(encode)
    for _ in range(3):
        loop.step(learn=False)
    loop.replay.rows = 0
    loop.replay.pending.clear()
    loop.replay.add(0, 7, 0.5, 1, terminated=True, ended=True)
    losses = [loop.update(8) for _ in range(80)]
    assert losses[-1] < 1e-3 < losses[0]
    values = ellm_loop.values(loop.heads, loop.encoder(*loop.inputs(np.array([0]))))
    assert values[0, 7].item() == pytest.approx(0.5, abs=0.02)


def test_the_peer_climbs_until_it_has_enough_and_looks_do_not_touch_its_game(monkeypatch):
    clock = itertools.count()  # a second passes between two glances at it
    monkeypatch.setattr(ellm_climb, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    loop = ellm_loop.Loop(encode, decay=100)
    before = [loop.world.steps, loop.steps, loop.replay.rows, sorted(loop.answers)]
    found = ellm_climb.unlocked(loop, 2)
    assert 0 <= found <= 22
    assert [loop.world.steps, loop.steps, loop.replay.rows, sorted(loop.answers)] == before
    assert found == ellm_climb.unlocked(loop, 2)
    told = ellm_climb.climb(loop, 20, 0.0, 50.0, 600.0, 1, 16)
    assert (told["reached"], len(told["curve"])) == (True, 1), "0 achievements are enough at once"
    told = ellm_climb.climb(loop, 20, 23.0, 50.0, 120.0, 1, 16)
    assert (told["reached"], len(told["curve"])) == (False, 3), "nobody has 23"
    assert told["seconds"] >= 120
    assert loop.updates > 0


# ---- the benchmark ---------------------------------------------------------------------------------------------------


def metrics(n, minibatch=64, per_step=16):
    """n updates of 128 env steps each, in 0.1 s."""
    return [
        {
            "kind": "train",
            "env_steps": 5000 + 128 * i,
            "wall_seconds": 10 + 0.1 * i,
            "replay/updates": 128 * i * per_step // minibatch,
            "time/env": 0.25,
            "time/learner": 0.75,
            "time/rare": 0.001,
        }
        for i in range(n)
    ]


@pytest.fixture
def no_processes(monkeypatch):
    """Neither side takes time; what was asked of both is kept."""
    asked = {"ours": [], "theirs": []}
    monkeypatch.setattr(ellm, "has_bfloat16", lambda: True)
    speeds = {"1": 32.0, "0": 64.0}  # by torch threads

    def run_ours(words, watch, timeout, kind="train"):
        asked["ours"].append(words)
        if kind == "evaluate":
            looks = [{"env_steps": 102_400, "episodic_return": 3.9 + int(words[1][-1]) / 100}]
            assert watch(looks) is None
            looks.append({"env_steps": 204_800, "episodic_return": 4.1})
            assert watch(looks) is None  # it has arrived, and is to be compared later too
            looks.append({"env_steps": 307_200, "episodic_return": 3.5})
            assert 0 < watch(looks) < 60
            return {"seed=1": 90.0, "seed=2": 30.0, "seed=3": 60.0, "seed=4": 100.0, "seed=5": 50.0}[words[1]]
        told = dict(word.split("=", 1) for word in words)
        speed = watch(metrics(400, int(told["learner.minibatch"])))
        return speed if int(told["learner.threads"]) == 1 else speed / 2

    def run_peer(family, script, words, timeout):
        if script == "ellm_climb":
            looks = [[1200.0, 90_000, 2.0], [2400.0, 110_000, 3.0]]
            return {"reached": False, "seconds": 1200.0 * 64 / 65, "curve": looks}
        asked["theirs"].append(words)
        shares = {"env": 0.2, "learner": 0.8}
        found = {
            "steps_per_second": speeds[words[words.index("--threads") + 1]],
            "replayed_per_step": 16.0,
            "env_steps": 900,
            "asked": 5,
            "embedded": 6,
        }
        found["steps_per_second"] += "--bfloat16" in words
        return found | {"shares": shares}

    monkeypatch.setattr(ellm, "check", lambda: None)
    monkeypatch.setattr(ellm, "run_ours", run_ours)
    monkeypatch.setattr(ellm, "run_peer", run_peer)
    return asked


def test_rows_and_what_is_said_of_them(no_processes):
    report = ellm.run(Options(rounds=2))
    assert {row.id: row.headline for row in report.rows} == IDS
    assert {round(row.ratio * 65 / 64, 6) for row in report.rows} == {20.0}
    note = report.rows[0].note
    assert "learner 75%, env 25%" in note
    assert "rare" not in note
    assert "learner 80%, env 20%" in note
    assert "in 900 steps 5 questions" in note
    assert "peer, torch threads one a core, bfloat16:" in note  # the best of four
    assert "env 25%, torch threads 1;" in note  # the better of two: halved with more
    ours, theirs, equal = report.rows[-1].note.split("; ")
    assert ours == "ours, seeds 1 to 5: 90 s, 30 s, 60 s, 100 s, 50 s"
    assert theirs == "peer: 2.0 after 1200 s: it did not get there"
    # Ours have 3.91, ..., 3.95; the peer 2.0 and 3.0: mean 2.5, variance 0.5, and t(1) is 12.7.
    assert equal == "ours ahead by +1.4 (+- 9.0) after 100,000 env steps"
    of_text = [words for words in no_processes["ours"] if words == ellm.SETTINGS["text/minibatch_64"].ours()]
    assert len(of_text) == 2  # both rounds; the other settings were tried once
    in_bfloat16 = ellm.SETTINGS["text/minibatch_64"].ours(1, "bfloat16")
    assert sum(words == in_bfloat16 for words in no_processes["ours"]) == 1


def test_after_equal_env_steps_the_looks_nearby_stand_for_the_peer():
    ours = [[(100_000, n), (300_000, n + 2)] for n in (1.0, 2.0, 3.0)]
    theirs = [(40_000, 9.0), (60_000, 1.0), (110_000, 2.0), (140_000, 3.0), (199_000, 2.5)]
    # Means 2 and 2, variances 1 of three values each; t(2) is 4.303. The last look is short of 200,000 steps.
    assert ellm.at_equal_steps(ours, theirs) == "; ours ahead by +0.0 (+- 5.0) after 100,000 env steps"
    assert round(4.303 * (1 / 3 + 1) ** 0.5, 1) == 5.0
    assert ellm.at_equal_steps(ours, theirs[:2]) == ""
    # A run that ended without a look, and one that did not come that far, say nothing.
    assert ellm.at_equal_steps([*ours, [], [(90_000, 9.0)]], theirs) == ellm.at_equal_steps(ours, theirs)


def test_a_processor_without_bfloat16_times_each_setting_of_the_peer_once(no_processes, monkeypatch):
    monkeypatch.setattr(ellm, "has_bfloat16", lambda: False)
    match = ellm.Match("text/minibatch_64", ellm.SETTINGS["text/minibatch_64"], Options())
    match._peer("published_loop")()
    assert [words[words.index("--threads") + 1] for words in no_processes["theirs"]] == ["1", "0"]
    assert not any("--bfloat16" in words for words in no_processes["theirs"])


def test_quick_is_the_headlines(no_processes):
    report = ellm.run(Options(quick=True, rounds=1))
    assert {row.id for row in report.rows} == {n for n, headline in IDS.items() if headline and "to_4" not in n}
    assert "ellm/to_4_achievements/wall/published_loop" in {skip.id for skip in report.skips}
    assert {words[words.index("--threads") + 1] for words in no_processes["theirs"]} == {"1"}
    assert len(no_processes["ours"]) == 2  # with latency: the speed without it is at least that
    assert "with latency" in next(row.note for row in report.rows if row.case == "text/minibatch_512")
    assert "ellm/pixels/minibatch_64/env_steps/published_loop" in {skip.id for skip in report.skips}


def test_another_number_of_replayed_rows_is_no_comparison():
    match = ellm.Match("text/minibatch_64", ellm.SETTINGS["text/minibatch_64"], Options())
    assert match._watch(metrics(5)) is None
    assert match._watch(metrics(400)) == pytest.approx(1280)
    with pytest.raises(OursFailed, match=r"8\.0 rows"):
        match._watch(metrics(400, per_step=8))


def test_what_is_played_before_learning_is_not_measured():
    filling = [{"env_steps": 128 * i, "wall_seconds": 0.001 * i, "replay/updates": 0} for i in range(40)]
    match = ellm.Match("text/minibatch_64", ellm.SETTINGS["text/minibatch_64"], Options())
    assert match._watch(filling) is None
    assert match._watch(filling + metrics(400)) == pytest.approx(1280)


@pytest.mark.parametrize("name", ellm.SETTINGS)
def test_both_sides_do_equal_work(name):
    setting = ellm.SETTINGS[name]
    config = compose(setting.ours())
    assert (config.method.name, config.learner.algorithm, config.env.id) == ("ellm", "dqn", "crafter/Text")
    assert config.learner.part(DQNConfig).samples_per_insert == ellm.PER_STEP == ellm_loop.MINIBATCH / ellm_loop.EVERY
    assert config.learner.minibatch == setting.minibatch
    assert config.learner.autocast == "none"
    assert config.learner.part(DQNConfig).n_step == N_STEP
    assert config.learner.part(DQNConfig).double
    assert (config.policy.head, config.policy.hidden, config.policy.text) == ("dueling", ellm_loop.HIDDEN, "minilm")
    assert config.method.part(GoalsConfig).threshold == ellm_world.THRESHOLD
    assert config.llm.options.latency_s == setting.latency_s
    assert config.llm.when_away == "cached"
    assert config.learner.part(DQNConfig).start_steps == setting.start
    assert config.learner.threads == config.learner.n == 1
    assert config.evaluate.every == 0
    words = setting.theirs()
    assert words[:4] == ["--start", str(setting.start), "--latency", str(setting.latency_s)]


def test_the_peer_lives_in_our_own_environment():
    assert peer_python(OWN) == Path(sys.executable)


@pytest.mark.parametrize("row_id", IDS)
def test_ids_are_documented(row_id):
    assert f"`{row_id}`" in (ROOT / "benchmarks" / "README.md").read_text()
