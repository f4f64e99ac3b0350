"""Runs handed over to SLURM, looked up and stopped; its commands are stand-ins that take notes."""

import json
import re
import shlex
from pathlib import Path

import pytest

from cluster.cli.start import resume, run
from cluster.cli.status import print_logs, print_status, request_stop
from cluster.cli.sweep import sweep
from cluster.config.overrides import ConfigError
from cluster.config.sections import RunConfig
from cluster.config.tree import compose
from cluster.jobs import Queued
from cluster.jobs.slurm.commands import SlurmError, look_up, record
from cluster.jobs.slurm.requeue import allowed
from cluster.runs.folder import RunError, RunFolder
from llm_service.errors import UsageError

TOY = ["experiment=toy", "cluster=slurm", "run.name=a"]


def words_for(tmp_path, *words):
    return compose([*TOY, f"run.folder={tmp_path}/runs", *words])


def test_without_sbatch_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CAIRN_JOB", raising=False)
    with pytest.raises(SlurmError, match="there is no sbatch on PATH"):
        run(words_for(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_what_slurm_refuses_is_said_in_its_words_and_nothing_is_written(commands, tmp_path):
    commands("sbatch", 'echo "sbatch: error: invalid partition specified: gpuu" >&2; exit 1')
    with pytest.raises(SlurmError) as raised:
        run(words_for(tmp_path))
    assert str(raised.value) == "SLURM refuses the job: invalid partition specified: gpuu"
    assert not (tmp_path / "runs").exists()


def test_a_refusal_after_the_trial_leaves_nothing_behind(commands, tmp_path):
    commands("sbatch", '[ "$1" = --test-only ] || { echo "sbatch: error: limit of jobs" >&2; exit 1; }')
    with pytest.raises(SlurmError, match="limit of jobs"):
        run(words_for(tmp_path))
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_missing_artifact_is_found_before_anything_is_queued(accepts, tmp_path):
    with pytest.raises(RunError, match="stage evaluate needs weights"):
        run(words_for(tmp_path, "stages=[evaluate]"))
    assert accepts.called() == []
    assert not (tmp_path / "runs").exists()


def test_actors_elsewhere_cannot_reach_a_service_on_loopback(accepts, tmp_path):
    words = ["method=zero_shot", "env=babyai/GoToLocal", "cluster=slurm", f"run.folder={tmp_path}/runs"]
    with pytest.raises(SlurmError, match=r"cannot reach an LLM service on 127\.0\.0\.1"):
        run(compose([*words, "cluster.slurm.nodes=2"]))
    assert run(compose([*words, "run.name=one"])) == 0


def test_a_submitted_run_is_a_folder_with_its_job(accepts, tmp_path, capsys):
    assert run(words_for(tmp_path)) == 0
    folder = tmp_path / "runs" / "a"
    assert {"config.yaml", "manifest.json", "status.json", "job.sh", "slurm.json"} <= {p.name for p in folder.iterdir()}
    assert json.loads((folder / "slurm.json").read_text()) == {"job": "41", "output": f"{folder}/job-41.txt"}
    assert "submitted a as job 41" in capsys.readouterr().out
    with pytest.raises(RunError, match="run 'a' exists"):
        run(words_for(tmp_path))


def test_a_run_goes_on_by_a_new_job_unless_it_is_queued(accepts, tmp_path, capsys):
    run(words_for(tmp_path))
    folder = tmp_path / "runs" / "a"
    with pytest.raises(RunError, match="seed would make 'a' another experiment"):
        resume(folder, ["seed=5"], allow_change=False)
    accepts("sbatch", 'cat > last; [ "$1" = --test-only ] || echo "42;here"')
    assert resume(folder, ["learner.timeout_s=500"], allow_change=True) == 0
    assert json.loads((folder / "slurm.json").read_text())["job"] == "42"
    line = next(line for line in Path("last").read_text().splitlines() if line.startswith("resume()"))
    assert "learner.timeout_s=500 --allow-change" in line
    accepts("squeue", 'echo "42|PENDING|Priority"')
    with pytest.raises(RunError, match="run 'a' is job 42, PENDING: stop that first"):
        resume(folder, [], allow_change=False)


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("41|PENDING|Resources", "queued (Resources)"),
        ("41|RUNNING|None", "job running"),
        ("41+0|PENDING|Priority\n41+1|PENDING|None", "queued (Priority)"),
        ("414|RUNNING|None", "died (resumable)"),
        ("", "died (resumable)"),
    ],
)
def test_the_status_is_what_the_queue_says(accepts, tmp_path, capsys, line, state):
    run(words_for(tmp_path))
    accepts("squeue", f"printf '%s\\n' '{line}'" if line else "true")
    capsys.readouterr()
    print_status(tmp_path / "runs", "a")
    printed = capsys.readouterr().out
    assert state in printed
    assert f"job: 41, output {tmp_path}/runs/a/job-41.txt" in printed


def test_accounting_says_how_a_job_that_is_gone_has_ended(accepts, tmp_path, capsys):
    run(words_for(tmp_path))
    accepts("sacct", "printf 'OUT_OF_MEMORY\\nCOMPLETED\\n'")
    capsys.readouterr()
    print_status(tmp_path / "runs", "a")
    assert "job: 41 (OUT_OF_MEMORY), output" in capsys.readouterr().out
    accepts("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    print_status(tmp_path / "runs", "a")
    assert "job: 41, output" in capsys.readouterr().out


def test_the_status_says_why_a_job_is_queued_again_or_not(accepts, tmp_path, capsys):
    run(words_for(tmp_path))
    path = tmp_path / "runs" / "a"
    capsys.readouterr()
    for restarts, said in enumerate(["job 41 is queued again, requeue 1", "made no progress in 2 starts in a row"]):
        allowed(path, 1, {"SLURM_JOB_ID": "41", "SLURM_RESTART_COUNT": str(restarts)})
        print_status(tmp_path / "runs", "a")
        printed = capsys.readouterr().out
        assert "requeue: run a " in printed
        assert said in printed
    RunFolder(path).write_status(state="done")
    print_status(tmp_path / "runs", "a")
    assert "queued again" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["50%", 'a"b', "a\\b", "a\nb"])
def test_a_folder_that_sbatch_cannot_be_told_of_is_one_sentence(accepts, tmp_path, name):
    with pytest.raises(ConfigError, match="SLURM cannot use the folder"):
        run(words_for(tmp_path).model_copy(update={"run": RunConfig(name="a", folder=str(tmp_path / name))}))
    assert accepts.called() == []
    assert not (tmp_path / name).exists()


def test_a_queue_that_does_not_answer_is_said_and_the_rest_shown(accepts, tmp_path, capsys):
    run(words_for(tmp_path))
    accepts("squeue", 'echo "squeue: error: Unable to contact slurm controller" >&2; exit 1')
    capsys.readouterr()
    print_status(tmp_path / "runs", None)
    printed = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "SLURM does not answer: Unable to contact slurm controller" in printed
    assert "queued" in printed


def test_stopping_takes_out_of_the_queue_what_waits_and_asks_what_runs(accepts, tmp_path, capsys):
    run(words_for(tmp_path))
    folder = RunFolder(tmp_path / "runs" / "a")
    accepts("scancel", "true")
    accepts("squeue", 'echo "41|PENDING|Priority"')
    request_stop(folder.path)
    assert accepts.called()[-1] == "scancel 41"
    assert folder.read_status()["state"] == "stopped"
    accepts("squeue", 'echo "41|RUNNING|None"')
    request_stop(folder.path)
    assert accepts.called()[-1] == "scancel --signal=TERM --batch 41"  # it is starting
    assert (folder.path / "STOP").exists()
    folder.write_status(state="running")
    request_stop(folder.path)
    assert accepts.called()[-1].startswith("squeue")
    accepts("squeue", "true")
    with pytest.raises(RunError, match="is not running"):
        request_stop(folder.path)


def test_logs_are_the_jobs_own_until_the_run_writes_some(accepts, tmp_path, capsys):
    run(words_for(tmp_path))
    folder = tmp_path / "runs" / "a"
    with pytest.raises(RunError, match="has not written a log yet"):
        print_logs(folder, follow=False)
    (folder / "job-41.txt").write_text("no module of this name\n")
    capsys.readouterr()
    print_logs(folder, follow=True)  # and ends, for the job is not in the queue
    assert capsys.readouterr().out == "no module of this name\n"


def test_a_job_that_is_gone_is_no_job(accepts, tmp_path):
    accepts("squeue", "printf '%s\\n' '7_1|RUNNING|None' '7_2|PENDING|JobArrayTaskLimit' '9|RUNNING|None'")
    paths = []
    for job in ("7_1", "7_2", "8"):
        path = tmp_path / job
        path.mkdir()
        record(path, job, "")
        paths.append(path)
    found = look_up([*paths, tmp_path / "never"])
    assert found == {
        paths[0]: Queued("7_1", "RUNNING", ""),
        paths[1]: Queued("7_2", "PENDING", "JobArrayTaskLimit", waits=True),
    }


def test_a_job_begins_also_what_only_evaluates_weights_of_another_run(accepts, tmp_path, monkeypatch):
    """A job always resumes: the first time there is nothing but what `from` names."""
    small = [f"run.folder={tmp_path}/runs", "experiment=toy", "evaluate.episodes=8", "evaluate.every=0"]
    assert run(compose([*small, "cluster=inline", "run.name=t", "learner.env_steps=1000", "stages=[train]"])) == 0
    weights = tmp_path / "runs/t/stages/train"
    assert run(compose([*small, "cluster=slurm", "run.name=e", "stages=[evaluate]", f"from={weights}"])) == 0
    monkeypatch.setenv("CAIRN_JOB", "41")
    assert resume(tmp_path / "runs/e", ["cluster=inline"], allow_change=False) == 0
    assert json.loads((tmp_path / "runs/e/stages/evaluate/results.json").read_text())["success"]["n"] == 8


# ---- sweeps ---------------------------------------------------------------------------------------------------------


def test_a_sweep_is_one_array_and_again_what_is_left(accepts, tmp_path, capsys):
    accepts("sbatch", f'cat > {tmp_path}/last; [ "$1" = --test-only ] || echo 50')
    words = ["experiment=toy", "cluster=slurm", "run.name=s", f"run.folder={tmp_path}/runs", "seed=0..3"]
    assert sweep(words, jobs=2) == 0
    text = (tmp_path / "last").read_text()
    assert "#SBATCH --array=0-3%2\n" in text
    runs = tmp_path / "runs"
    names = [f"s-{i}-seed-{i}" for i in range(4)]
    assert shlex.split(re.search(r"members=\((.*?)\n\)", text, re.DOTALL)[1]) == [str(runs / name) for name in names]
    for i, state in enumerate(["done", "stopped", "crashed", "queued"]):
        RunFolder(runs / names[i]).write_status(state=state)
    accepts("squeue", 'echo "50_3|PENDING|Priority"')
    accepts("sbatch", f'cat > {tmp_path}/last; [ "$1" = --test-only ] || echo 51')
    assert sweep(words) == 0
    text = (tmp_path / "last").read_text()
    assert "#SBATCH --array=0-1\n" in text
    assert json.loads((runs / names[2] / "slurm.json").read_text())["job"] == "51_1"
    assert json.loads((runs / names[3] / "slurm.json").read_text())["job"] == "50_3"
    for name in names[:3]:
        RunFolder(runs / name).write_status(state="done")
    before = len(accepts.called())
    assert sweep(words) == 3  # one is in the queue
    assert [line for line in accepts.called()[before:] if "sbatch" in line] == []
    assert [m["exit_code"] for m in json.loads((runs / "s/sweep.json").read_text())["members"]] == [0, 0, 0, None]


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("cluster.slurm.nodes=1,2", "cluster.slurm.nodes cannot vary within a sweep on SLURM"),
        ("actors.n=2,4", "need different numbers of CPUs"),
    ],
)
def test_one_array_asks_the_same_for_all(accepts, tmp_path, word, sentence):
    with pytest.raises(ConfigError, match=sentence):
        sweep(["experiment=toy", "cluster=slurm", "run.name=s", f"run.folder={tmp_path}/runs", word])
    assert not (tmp_path / "runs").exists()


def test_a_joined_ray_has_a_token_and_answers(monkeypatch):
    from cluster.roles.joined import backend

    monkeypatch.setenv("CAIRN_RAY_ADDRESS", "127.0.0.1:1")
    config = compose(["experiment=toy", "cluster.start_timeout_s=0.5"])
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(UsageError, match="a Ray cluster without a token"):
        backend(config, Path("token"))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with pytest.raises(UsageError, match=r"does not answer on 127\.0\.0\.1:1, Connection refused") as raised:
        backend(config, Path("token"))
    assert raised.value.exit_code == 5, "a head that ended before the run came is no fault of who asked for the run"
