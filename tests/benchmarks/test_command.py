"""`python -m benchmarks`: names, cases, the table, the file of rows; and the ids that are fixed."""

import json
import types

import pytest

from benchmarks import __main__ as command
from benchmarks.measure import ROOT, Case, DifferentOutputs, Options, Report, Skip, make_row

IDS = [
    "babyai/GoToLocal/native/symbolic/minigrid",
    "babyai/GoToLocal/native/text/minigrid_text",
    "babyai/GoToLocal/native/text/minigrid_text_once",
    "babyai/GoToLocal/exact/symbolic/minigrid",
    "rollout/GoToLocal/env_steps/gymnasium_sync",
    "scoring/t5/unique/sequences/repeat",
    "scoring/t5/unique/sequences/encode_once",
    "scoring/gpt2/unique/sequences/repeat",
    "scoring/gpt2/unique/sequences/encode_once",
    "llm/mixed_stream/answers/one_call",
    "llm/mixed_stream/answers/batch_only",
    "navigation/generation/evaluations/stock",
    "deploy/argmax/actions/recompute",
    "sequence/half_filled/tokens/padded_bf16",
    "sequence/half_filled/tokens/padded_fp32",
    "search_scaling/2_workers/evaluations/one_worker",
    "search_scaling/16_with_latency/evaluations/ideal",
    "llm/hit/memory/per_second_at_p50/redis_get",
    "llm/hit/grpc/per_second_at_p50/redis_get",
    "llm/rpc/batched/prompts/one_prompt",
    "train/stock/env_steps/sb3",
    "train/stock/env_steps/rllib",
    "train/stock/env_steps/rllib_impala",
    "train/stock/env_steps/sample_factory",
    "train/stock_4096/env_steps/sb3",
    "train/stock_4096/env_steps/rllib",
    "train/stock_4096/env_steps/sample_factory",
    "train/our_env/env_steps/sb3",
    "train/our_env/env_steps/rllib",
    "train/to_90_percent/wall/sb3",
]


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """A benchmark module `fake` in place of the real ones; calls of its `run` are kept."""
    module = types.SimpleNamespace(CASES=("case",), asked=[], report=Report(), QUICK_SECONDS=7.0, QUICK_ROUNDS=2)

    def run(options):
        module.asked.append(options)
        if isinstance(module.report, Exception):
            raise module.report
        return module.report

    module.run = run
    case = Case("fake", "case", "env_steps", frozenset({"peer"}), notes={"peer": "a remark"})
    module.report.rows.append(make_row(case, "peer", [4.0], [2.0], [0.1]))
    module.report.skips.append(Skip("fake", "case", "env_steps", "absent", "no wheel"))
    monkeypatch.setattr(command, "names", lambda: ["fake"])
    monkeypatch.setattr(command.importlib, "import_module", lambda name: module)
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    return module


def test_benchmarks_are_found_by_name():
    assert {"babyai", "rollout", "scoring", "llm", "train"} <= set(command.names())
    assert not {"measure", "setup", "peers", "__main__"} & set(command.names())


def test_cases_can_be_named():
    assert command.select(["train/stock", "train/our_env", "rollout"]) == {
        "train": ("stock", "our_env"),
        "rollout": (),
    }
    assert command.select(["train/stock", "train"]) == {"train": ()}
    assert Options(cases=("stock",)).wants("stock")
    assert not Options(cases=("stock",)).wants("our_env")
    assert Options().wants("our_env")


def test_a_case_may_hold_a_slash():
    assert command.select(["rollout/GoToLocal/dense"]) == {"rollout": ("GoToLocal/dense",)}


def test_unknown_name_is_usage_with_a_suggestion(capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(["trian"])
    assert stopped.value.code == 2
    assert "did you mean train?" in capsys.readouterr().err


def test_unknown_case_is_usage(capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(["train/stick"])
    assert stopped.value.code == 2
    assert "stock" in capsys.readouterr().err


def test_table_reasons_notes_and_file(fake, tmp_path, capsys):
    file = tmp_path / "rows.json"
    assert command.main(["fake", "--json", str(file)]) == 0
    out = capsys.readouterr().out
    for said in ("2.00", "2.00..2.00", "peer 2", "a remark", "skipped fake/case/env_steps/absent: no wheel", "load"):
        assert said in out
    rows = json.loads(file.read_text())
    assert [row["ratio"] for row in rows] == [2.0]
    assert json.loads((tmp_path / "results" / "fake.json").read_text())["rows"] == rows


def test_quick_means_the_modules_own_limits_and_keeps_no_results(fake, tmp_path):
    assert command.main(["fake", "--quick"]) == 0
    (options,) = fake.asked
    assert options.quick
    assert options.rounds == 2
    assert 0.0 < options.seconds_left <= 7.0
    assert not (tmp_path / "results").exists()


def test_at_least_five_rounds_unless_told(fake):
    command.main(["fake"])
    command.main(["fake", "--rounds", "9"])
    assert [options.rounds for options in fake.asked] == [5, 9]
    assert fake.asked[0].seconds_left == float("inf")


def test_a_failed_benchmark_is_exit_code_1(fake, capsys):
    fake.report = DifferentOutputs("step 3 image: differs")
    assert command.main(["fake"]) == 1
    assert "step 3 image" in capsys.readouterr().err


@pytest.mark.parametrize("row_id", IDS)
def test_fixed_ids_are_documented(row_id):
    assert f"`{row_id}`" in (ROOT / "benchmarks" / "README.md").read_text()
