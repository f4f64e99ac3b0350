"""bk: both sides of every row answer alike, a difference is seen, programs are those that are said, rows are fixed."""

import numpy as np
import pytest

import envs
from benchmarks import bk
from benchmarks.bk import Programs
from benchmarks.measure import ROOT, DifferentOutputs, Options, OursFailed, OutOfTime
from benchmarks.peers import bk_labels, bk_loops, bk_matches, bk_play, bk_preference, bk_programs
from benchmarks.peers.bk_matches import Goals, Potentials, Preferences
from benchmarks.train import EXPERIMENT
from cluster.config.tree import compose
from learner import potentials
from learner.knowledge.goal_bank import GoalBank, digest
from llm_service.backends.scripted.script import Script
from llm_service.embedding import embed_one
from llm_service.sandbox.grammar import normalise
from llm_service.world import World


@pytest.fixture(scope="module")
def play():
    return bk_play.record(2, envs_=8, steps=12)


@pytest.fixture
def made(play, tmp_path, monkeypatch):
    monkeypatch.setattr(bk_matches, "LEAST_S", 0.01)
    return Potentials(play, tmp_path)


def test_windows_are_those_of_play(play):
    first, second = play.chunks
    assert len(first) == 8 * 12
    assert first.obs("image").shape == (96, 5, 7, 7, 3)
    led, done = first.actions[:, -1].reshape(12, 8), np.array(play.actions[12:24])  # one chunk came before
    assert (led >= 0).mean() > 0.8
    np.testing.assert_array_equal(led[led >= 0], done[led >= 0])
    assert not np.array_equal(first.now("image"), second.now("image"))


def test_segments_are_told_in_order_of_time(play):
    lines = bk_play.segment(play, player=3, begin=4, actions=2)
    names = play.env.env_spec.action_names
    assert lines == [
        play.told[4][3],
        f"You choose: {names[play.actions[4][3]]}",
        play.told[5][3],
        f"You choose: {names[play.actions[5][3]]}",
        play.told[6][3],
    ]
    drawn = bk_play.segments(play, 20, actions=3)
    assert len({tuple(lines) for lines in drawn}) == 20


def test_one_program_is_that_of_the_scripted_backend():
    rules = Script(World.model_validate(envs.knowledge("babyai")))._rules("view")[:3]
    lines = ["view = observations[-1]", *(line for line, _ in rules), f"return {' + '.join(term for _, term in rules)}"]
    body = "\n".join(f"    {line}" for line in lines)
    assert bk_programs.text_of(bk_programs.rules) == normalise(f"def potential(observations, actions):\n{body}")


@pytest.mark.parametrize("function", bk_programs.PROGRAMS, ids=lambda function: function.__name__)
def test_both_sides_run_one_program(made, function):
    match = Programs(made, function)
    values = match.ours.phi(made.play.chunks[0])
    assert np.ptp(values) > 0
    assert match.play_ours() > 0
    assert match.per_step_call()() > 0
    assert match.best in ("arrays", "lists")
    with pytest.raises(DifferentOutputs, match=f"values of {function.__name__}: at 5 "):
        match.check(np.where(np.arange(len(values)) == 5, values + 1e-3, values), values.tolist())


def test_the_function_sees_arrays_where_it_can(play):
    windows = play.chunks[0]
    assert set(bk_loops.forms(bk_programs.nearest, windows, "image")) == {"arrays", "lists"}
    assert set(bk_loops.forms(bk_programs.conduct, windows, "image")) == {"lists"}  # it compares views
    one, other = (form(bk_programs.approach, windows, "image") for form in bk_loops.FORMS.values())
    assert one == other


def test_labels_are_the_same_by_both_ways_and_a_difference_is_seen(play):
    match = bk_labels.Match(play, pairs=12, most=6, latency_s=0.02, pause_s=0.01)
    assert match.ours() > 0
    assert match.barrier() > 0
    assert {label["label"] for label in match.labels} >= {"first", "second"}
    match.labels[7] = {"label": "tie"}
    with pytest.raises(DifferentOutputs, match="label of pair 7"):
        match.barrier()


def test_more_calls_at_once_than_allowed_fail(play, monkeypatch):
    match = bk_labels.Match(play, pairs=4, most=4, latency_s=0.02, pause_s=0.0)
    config = match._config
    monkeypatch.setattr(match, "_config", lambda folder: config(folder).model_copy(update={"concurrency": 8}))
    match.most = 2
    with pytest.raises(OursFailed, match="4 pairs"):
        match.ours()


def test_preferences_are_the_same_however_windows_are_encoded(made, monkeypatch):
    match = Preferences(made)
    windows = made.play.chunks[0]
    assert np.ptp(match.ours.phi(windows)) > 0.1
    assert len(match.forms) == 3
    for form in (*match.forms.values(), match.unshared):
        assert match.run_of(form)() > 0
        np.testing.assert_allclose(form(windows), match.ours.phi(windows), atol=1e-4)
    unshared = bk_preference.unshared
    monkeypatch.setattr(bk_preference, "unshared", lambda *told: unshared(*told) + 1e-2)
    with pytest.raises(DifferentOutputs, match="phi, by our engine"):
        Preferences(made)


class Words:
    """An encoder that adds up a drawn vector for each word."""

    def encode(self, texts):
        def vector(text):
            words = text.lower().replace(".", "").split()
            total = sum(np.random.default_rng(list(word.encode())).normal(size=384) for word in words)
            return total / np.linalg.norm(total)

        return np.stack([vector(text) for text in texts]).astype(np.float32)


@pytest.fixture
def words(monkeypatch):
    """Instead of MiniLM, which takes 9 ms a text."""
    monkeypatch.setattr("llm_service.embedding._minilm", lambda device: Words())
    monkeypatch.setattr(bk_matches, "Encoder", lambda folder: Words())
    embed_one.cache_clear()
    yield
    embed_one.cache_clear()


def test_goals_are_the_same_encoded_anew_and_a_difference_is_seen(made, words):
    match = Goals(made, asked=20)
    assert (match.values > 0).any()
    assert match.two_encodes() > 0
    assert match.sentences_anew() > 0
    assert "were met before" in match.note
    assert match.look_up() > 0
    match.values = match.values.copy()
    match.values[np.flatnonzero(match.values > 0)[0]] += 0.01
    with pytest.raises(DifferentOutputs, match="phi by sentence: at"):
        match.sentences_anew()
    values = match.whole.phi(match.windows)
    assert (values > 0).any()
    match.whole.phi = lambda windows: np.where(values > 0, values + 0.01, values)
    with pytest.raises(DifferentOutputs, match="phi by caption: at"):
        match.two_encodes()


def test_only_rows_of_equal_outputs_may_be_the_headline_of_goals(made, words):
    rows = {row.id: row for row in bk.goal(Options(rounds=1), made).rows}
    assert {name: row.headline for name, row in rows.items()} == {
        "bk/goal/windows/sentences_anew": True,
        "bk/goal/windows/two_encodes": False,
        "bk/goal/caption/windows/two_encodes": False,
    }
    assert "the same phi" in rows["bk/goal/windows/sentences_anew"].note
    assert "another phi than ours" in rows["bk/goal/windows/two_encodes"].note
    assert "were all met before" in rows["bk/goal/caption/windows/two_encodes"].note


def test_goals_are_timed_on_play_that_is_new_each_time(made, words):
    match = Goals(made, asked=4)
    first = dict(match.counts)
    assert match.play_ours() > 0
    assert match.counts == first
    assert first["texts"] == 2 * sum(map(len, match.new))
    assert first["texts_new"] > 0


SPEEDS = {"code": 90.0, "goal": 70.0, "preference": 95.0}


@pytest.fixture
def said(made, monkeypatch):
    """The words of each run that `training` measures, as many env steps a second as said above; a potential that has
    none is out of time."""
    found = {}

    def speed(seconds, options, *words):
        potential = next((w.rpartition("=")[2] for w in words if w.startswith("method.shaping.potential=")), "none")
        found[potential] = words

        def run():
            if potential not in SPEEDS | {"none": 0.0}:
                raise OutOfTime("no time was left for it")
            return SPEEDS.get(potential, 100.0)

        return run

    monkeypatch.setattr(bk, "speed_of_ours", speed)
    program = made.folder / "program.py"
    program.write_text(bk_programs.text_of(bk_programs.nearest))
    made.says("code", program=program, shows="image")
    return found


def test_the_slowest_potential_is_the_row_of_training(made, said):
    rows = {row.id: row for row in bk.training(Options(rounds=1), made).rows}
    assert [row.case for row in rows.values() if row.headline] == ["training"]
    assert rows["bk/training/env_steps/ppo"].ratio == pytest.approx(0.7)
    assert "training/goal, the slowest of 3" in rows["bk/training/env_steps/ppo"].note
    assert "includes captions" in rows["bk/training/env_steps/ppo"].note
    assert "includes captions" in rows["bk/training/goal/env_steps/ppo"].note
    for name, steps in SPEEDS.items():
        assert rows[f"bk/training/{name}/env_steps/ppo"].ratio == pytest.approx(steps / 100)


def test_training_has_no_headline_unless_all_potentials_were_measured(made, said, monkeypatch):
    monkeypatch.delitem(SPEEDS, "goal")
    report = bk.training(Options(rounds=1), made)
    assert [row.case for row in report.rows] == ["training/code", "training/preference"]
    assert not any(row.headline for row in report.rows)
    skips = {skip.id: skip.reason for skip in report.skips}
    assert set(skips) == {"bk/training/env_steps/ppo", "bk/training/goal/env_steps/ppo"}
    assert "not known without training/goal" in skips["bk/training/env_steps/ppo"]


def test_runs_of_training_differ_in_the_potential_alone(made, said):
    bk.training(Options(rounds=1), made)
    assert set(said) == {"none", *bk.POTENTIALS}
    configs = {name: compose([EXPERIMENT, *words]) for name, words in said.items()}
    assert {name for name, config in configs.items() if config.env.captions} == {"goal"}
    for name, config in configs.items():
        assert config.method.shaping.potential == name
        assert (config.policy, config.actors, config.learner) == (
            configs["none"].policy,
            configs["none"].actors,
            configs["none"].learner,
        )
        spec = envs.make(bk_play.LEVEL, 1, seed=0, captions=config.env.captions).env_spec
        if name != "none":
            assert config.method.shaping.window == bk_play.WINDOW
            potentials.potential(name).check(config.method.shaping, spec)


def test_goals_have_their_bank_before_training_begins():
    bank = GoalBank.load(bk.GOALS)
    assert (bank.by, bank.source) == ("sentence", digest(bk.GOALS))  # else a run would make one


def test_the_fixed_rows(made, monkeypatch, play):
    monkeypatch.setattr(bk_play, "record", lambda chunks: play)
    report = bk.run(Options(rounds=1, quick=True, cases=("code", "preference")))
    rows = {row.id: row.headline for row in report.rows}
    assert rows.pop("bk/code/windows/per_step_call")
    assert rows.pop("bk/preference/windows/recomputed_windows")
    assert not rows.pop("bk/preference/unshared/windows/our_engine")
    assert set(rows) == {f"bk/code/{program.__name__}/windows/per_step_call" for program in bk_programs.PROGRAMS}
    assert not any(rows.values())
    whole = next(row for row in report.rows if row.case == "code")
    assert whole.ratio == np.median([row.ratio for row in report.rows if row.case.startswith("code/")])
    assert "the lowest is" in whole.note
    documented = (ROOT / "benchmarks" / "README.md").read_text()
    fixed = [
        "goal/windows/two_encodes",
        "goal/windows/sentences_anew",
        "goal/caption/windows/two_encodes",
        "labels/answers/barrier",
        "labels/64/answers/barrier",
        "training/env_steps/ppo",
        *(f"training/{name}/env_steps/ppo" for name in bk.POTENTIALS),
    ]
    assert all(f"`{name}`" in documented for name in (*(row.id for row in report.rows), *(f"bk/{x}" for x in fixed)))
