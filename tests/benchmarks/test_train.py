"""train: the steady rate, the cases and their ids, equal work on all sides. No system is started."""

import json

import gymnasium
import numpy as np
import pytest

from benchmarks import setup, train
from benchmarks.measure import Options, OursFailed, OutOfTime, PeerFailed, child_environment
from benchmarks.peers import common
from cluster.config.tree import compose
from learner.algorithms.ppo import PPOConfig


def rows(n, rate=1000.0, first=2.0):
    """n updates of 2048 steps: the first is slow, as a start is."""
    return [
        {"kind": "train", "env_steps": 2048 * (i + 1), "wall_seconds": first + 2048 * i / rate, "episodes": 40 * i}
        for i in range(n)
    ]


def test_steady_rate_leaves_the_start_out():
    assert train.steady(rows(20, rate=1000.0, first=300.0), seconds=10.0) == pytest.approx(1000.0)


def test_steady_rate_waits_for_the_window_and_for_enough_updates():
    assert train.steady(rows(5), seconds=1.0) is None
    assert train.steady(rows(8), seconds=100.0) is None
    assert train.steady([], seconds=1.0) is None


def test_success_needs_a_full_window():
    assert not train.solved([])
    assert not train.solved([{"episodes": 255, "charts/success_rate": 0.95}])
    assert not train.solved([{"episodes": 500, "charts/success_rate": 0.89}])
    assert train.solved([{"episodes": 256, "charts/success_rate": 0.90}])


def test_a_row_that_is_half_written_is_not_read(tmp_path):
    file = tmp_path / "metrics.jsonl"
    assert train.rows_of(file) == []
    whole = [json.dumps({"kind": kind, "env_steps": 1}) for kind in ("train", "evaluate", "train")]
    file.write_text("\n".join(whole) + '\n{"kind": "tra')
    assert len(train.rows_of(file)) == 2


def test_a_peer_goes_on_with_its_best_setting():
    calls, notes = [], []

    def setting(name, value):
        return lambda: calls.append(name) or value

    run = train.better_of({"slow": setting("slow", 1.0), "fast": setting("fast", 2.0)}, notes.append)
    assert [run(), run()] == [2.0, 2.0]
    assert calls == ["slow", "fast", "fast"]
    assert notes == ["fast"]


@pytest.fixture
def no_processes(monkeypatch):
    """Ours takes no time and peers answer at once; what was asked of peers is kept."""
    asked = []

    def run_peer(family, script, words, timeout):
        asked.append((family, script, words))
        if family == "rllib":
            raise PeerFailed("no environment .bench/rllib: run make setup-bench")
        return {"steps_per_second": 100.0, "seconds": 60.0, "reached": True}

    monkeypatch.setattr(train, "run_peer", run_peer)
    monkeypatch.setattr(train, "run_ours", lambda words, watch, timeout: 500.0)
    return asked


def test_rows_and_reasons(no_processes):
    report = train.run(Options(rounds=2))
    assert {row.id: row.headline for row in report.rows} == {
        "train/stock/env_steps/sb3": True,
        "train/stock/env_steps/sample_factory": True,
        "train/stock_4096/env_steps/sb3": False,
        "train/stock_4096/env_steps/sample_factory": False,
        "train/our_env/env_steps/sb3": True,
        "train/to_90_percent/wall/sb3": True,
    }
    assert {row.ratio for row in report.rows if row.metric == "env_steps"} == {5.0}
    reasons = {skip.id: skip.reason for skip in report.skips}
    assert "setup-bench" in reasons["train/stock/env_steps/rllib"]
    assert "setup-bench" in reasons["train/stock/env_steps/rllib_impala"]
    assert "gymnasium below 1.0" in reasons["train/our_env/env_steps/sample_factory"]


def test_quick_leaves_out_what_is_long(no_processes):
    report = train.run(Options(quick=True, rounds=1))
    assert "train/to_90_percent/wall/sb3" in {skip.id for skip in report.skips}
    assert not any("subproc" in words for _, _, words in no_processes)


def test_only_the_cases_asked_for(no_processes):
    train.run(Options(rounds=1, cases=("our_env",)))
    assert {words[words.index("--env") + 1] for _, _, words in no_processes} == {"ours"}


def test_who_does_not_learn_counts_with_the_cap(no_processes, monkeypatch):
    def never(words, watch, timeout):
        raise OutOfTime("no")

    monkeypatch.setattr(train, "run_ours", never)
    (row,) = train.to_90_percent(Options(rounds=1)).rows
    assert (row.ours, row.peer_value) == (train.CAP, 60.0)
    assert row.ratio == pytest.approx(60.0 / train.CAP)
    assert "ours did not get there" in row.note


def test_ours_ending_by_itself_fails_with_its_last_words(monkeypatch, tmp_path):
    (tmp_path / "launch.py").write_text("raise SystemExit('error: no such experiment')")
    monkeypatch.setattr(train, "ROOT", tmp_path)
    with pytest.raises(OursFailed, match="no such experiment"):
        train.run_ours([], lambda rows: None, timeout=30.0)


def test_ours_and_peers_do_equal_work():
    config = compose(["experiment=bench_train"])
    assert config.actors.n * config.actors.envs == common.ENVS
    assert config.actors.steps == common.ROLLOUT
    assert config.learner.minibatch == common.MINIBATCH
    assert config.learner.part(PPOConfig).epochs == common.EPOCHS
    assert config.learner.threads == 1
    assert config.learner.learning_rate == 3e-4
    assert (config.policy.network, config.policy.hidden, config.policy.reads) == ("mlp", common.HIDDEN, ["image"])
    assert config.env.id == common.OUR_ID
    assert config.evaluate.every == 0
    assert (train.WARM_UP_UPDATES, train.LEAST_UPDATES) == (common.WARM_UP_UPDATES, common.LEAST_UPDATES)


def test_every_process_has_one_thread_and_no_gpu():
    environment = child_environment()
    assert environment["OMP_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == "1"
    assert environment["CUDA_VISIBLE_DEVICES"] == ""


def test_the_flattened_view_of_peers_is_what_our_network_sees():
    image = np.random.default_rng(0).integers(0, 11, (5, 7, 7, 3), np.uint8)
    flat = common.flat(image)
    assert flat.dtype == np.float32
    assert np.array_equal(flat, image.reshape(5, 147) / np.float32(10.0))


def test_both_envs_of_a_peer_have_the_same_face():
    stock, ours = common.Flat(common.stock_env()), common.Flat(common.our_env())
    for seed in (3, 4):
        assert np.array_equal(stock.reset(seed=seed)[0], ours.reset(seed=seed)[0])
        for action in (2, 1, 2, 0, 5):
            a, b = stock.step(action), ours.step(action)
            assert np.array_equal(a[0], b[0])
            assert a[1:4] == b[1:4]
    assert isinstance(stock.action_space, gymnasium.spaces.Discrete)
    assert stock.action_space.n == ours.action_space.n == 7


def test_meter_counts_between_updates_after_the_warm_up(monkeypatch):
    clock = iter([0.0, 1.0, 2.0, 10.0, 12.0, 14.0, 16.0])
    monkeypatch.setattr(common.time, "perf_counter", lambda: next(clock))
    meter = common.Meter(seconds=4.0)
    assert [meter.tick(100 * i) for i in range(1, 8)] == [False] * 6 + [True]
    assert meter.result() == {"env_steps": 300, "seconds": 6.0, "steps_per_second": 50.0, "updates": 3}


def test_a_meter_without_a_window_says_so():
    with pytest.raises(RuntimeError, match="warm-up"):
        common.Meter(1.0).result()


# ---- environments of the peers ---------------------------------------------------------------------------------------


def test_every_family_pins_torch_in_its_own_resolve():
    assert setup.families() == ["faiss", "pyribs", "rllib", "sample_factory", "sb3"]
    for family in setup.families():
        lines = (setup.REQUIREMENTS / f"{family}.txt").read_text().splitlines()
        pins = [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]
        assert family in ("faiss", "pyribs") or "torch==2.13.0" in pins  # the others would resolve their own
        assert all("==" in pin for pin in pins)


def test_unknown_family_is_usage(capsys):
    assert setup.main(["sb4"]) == 2
    assert "sb3" in capsys.readouterr().out


def test_what_is_up_to_date_is_left_alone_and_failures_are_reported(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(setup, "ENVIRONMENTS", tmp_path)
    (tmp_path / "sb3").mkdir()
    (tmp_path / "sb3" / "requirements.txt").write_text((setup.REQUIREMENTS / "sb3.txt").read_text())
    monkeypatch.setattr(setup, "build", lambda family: "no wheel" if family == "rllib" else None)
    assert setup.main([]) == 1
    out = capsys.readouterr().out
    assert "sb3: up to date" in out
    assert "rllib: not installed, its rows will be skipped: no wheel" in out
    assert "sample_factory: ready" in out
