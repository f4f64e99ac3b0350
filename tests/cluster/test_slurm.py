"""Jobs of SLURM without SLURM: rendered scripts are run by a real bash; its commands are stand-ins that take notes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from cluster.jobs.slurm import batch_script
from cluster.jobs.slurm.batch_script import Job
from cluster.jobs.slurm.config import SlurmConfig, limit_seconds
from cluster.jobs.slurm.requeue import allowed, delay
from cluster.runs.folder import RunFolder
from cluster.topology import topology

TOY = ["experiment=toy", "cluster=slurm", "run.name=a"]
BASE = compose(TOY)
SHAPES = {
    "one node": [],
    "all options": [
        *["cluster.slurm.partition='a,b'", "cluster.slurm.account=me", "cluster.slurm.qos=low", "cluster.slurm.gpus=4"],
        *["cluster.slurm.gpu_type=a100", "cluster.slurm.time=1-02:00:00", "cluster.slurm.memory=64G"],
        *["cluster.slurm.options=['--constraint=x']", "cluster.slurm.setup=['module load cuda', 'ulimit -n 4096']"],
        *["cluster.slurm.container='env A=1'", "cluster.slurm.signal_s=60", "cluster.slurm.requeue=false"],
    ],
    "nodes": ["cluster.slurm.nodes=4", "cluster.slurm.interface=ib0", "actors.n=30"],
    "symmetric": ["cluster.slurm.nodes=2", "cluster.slurm.mode=symmetric"],
    "heterogeneous": ["cluster.slurm.gpus=1", "cluster.slurm.actor_nodes=3", "cluster.slurm.actor_partition=cpu"],
}


def script(*words):
    config = compose([*TOY, *words])
    return batch_script.render(config, Job("cairn-a", [Path("/runs/a")], Path("/runs/a/job-%j.txt")))


def directives(text):
    """Groups of a job -> its options."""
    groups = [{}]
    for line in re.findall(r"^#SBATCH (.*)$", text, re.MULTILINE):
        if line == "hetjob":
            groups.append({})
        else:
            option, _, value = line.partition("=")
            assert option not in groups[-1]
            groups[-1][option] = value
    return groups


# ---- the script -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_every_script_is_one_that_bash_reads(shape, tmp_path):
    path = tmp_path / "job.sh"
    path.write_text(script(*SHAPES[shape]))
    assert subprocess.run(["bash", "-n", path], capture_output=True, text=True).stderr == ""
    lines = path.read_text().splitlines()
    first_command = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert not [line for line in lines[first_command:] if line.startswith("#SBATCH")], "sbatch stops at a command"
    assert "SRUN" not in path.read_text()
    if shutil.which("shellcheck"):
        # 2317: functions that only traps and other processes call; 1091: files of the cluster.
        words = ["shellcheck", "--severity=info", "--exclude=SC2317,SC1091", path]
        assert subprocess.run(words, capture_output=True, text=True).stdout == ""


def test_what_is_asked_for_is_what_the_configuration_says():
    (got,) = directives(script(*SHAPES["all options"]))
    assert (
        got.items()
        >= {
            "--partition": "a,b",
            "--account": "me",
            "--qos": "low",
            "--gpus-per-node": "a100:4",
            "--time": "1-02:00:00",
            "--mem": "64G",
            "--constraint": "x",
            "--signal": "B:USR2@60",
            "--open-mode": "append",
            "--no-requeue": "",
        }.items()
    )
    (plain,) = directives(script())
    assert "--requeue" in plain
    assert not {"--partition", "--account", "--qos", "--time", "--mem", "--gpus-per-node"} & set(plain)
    (exclusive,) = directives(script(*SHAPES["symmetric"]))
    assert "--exclusive" in exclusive  # symmetric-run ends any Ray of this user on a node
    assert "--exclusive" not in directives(script(*SHAPES["nodes"]))[0]


def test_actor_nodes_are_a_group_of_their_own_without_gpus():
    learners, actors = directives(script(*SHAPES["heterogeneous"]))
    assert (learners["--nodes"], learners["--gpus-per-node"]) == ("1", "1")
    assert (actors["--nodes"], actors["--partition"]) == ("3", "cpu")
    assert "--gpus-per-node" not in actors


def test_on_several_nodes_ray_is_never_without_its_token():
    for shape in ("nodes", "symmetric", "heterogeneous"):
        text = script(*SHAPES[shape])
        assert "export RAY_AUTH_MODE=token" in text
        assert "umask 077" in text.partition("/dev/urandom")[0].splitlines()[-1]
        assert "0.0.0.0" not in text


@settings(max_examples=200, deadline=None)
@given(
    actors=st.integers(1, 300),
    threads=st.integers(1, 16),
    nodes=st.integers(1, 5),
    actor_nodes=st.integers(0, 5),
    cpus=st.integers(0, 64),
    actor_cpus=st.integers(0, 64),
)
def test_every_role_finds_a_place(actors, threads, nodes, actor_nodes, cpus, actor_cpus):
    """Ray starts an actor where a slot is free: were there too few, the run would wait for ever."""
    asked = {"nodes": nodes, "cpus": cpus, "actor_nodes": actor_nodes, "actor_cpus": actor_cpus if actor_nodes else 0}
    parts = {"actors": {"n": actors}, "learner": {"threads": threads}, "cluster": {"slurm": SlurmConfig(**asked)}}
    changed = {name: getattr(BASE, name).model_copy(update=values) for name, values in parts.items()}
    config = BASE.model_copy(update=changed)
    got = batch_script.cores(config)
    first, node, actor_node = got.slots
    if nodes + actor_nodes > 1:
        assert first + (nodes - 1) * node + actor_nodes * actor_node >= actors
    computing = sum(role.count * role.threads for role in topology(config).roles if role.name != "actor")
    assert got.node == cpus or (cpus == 0 and got.node >= computing)
    if cpus == 0 and actor_cpus == 0:  # nobody asked for less: nothing is shared
        assert node <= got.node
        assert actor_node <= got.actor_node
        if nodes + actor_nodes == 1:
            assert got.node == computing + actors
        all_cpus = nodes * got.node + actor_nodes * got.actor_node
        assert all_cpus <= computing + actors + nodes * computing + actor_nodes, "far more than is computed with"


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("time=soon", "cluster.slurm.time: expected minutes, HH:MM:SS or D-HH:MM:SS, got 'soon'"),
        ("time=0", "cluster.slurm.time: expected minutes"),
        ("time=1:2:3:4", "cluster.slurm.time: expected minutes"),
        ("time=5", "cluster.slurm.time: 5 leaves no time before the signal, which comes 300 s before the end"),
        ("memory=lots", "cluster.slurm.memory: expected memory such as 64G, got 'lots'"),
        ("memory=0G", "cluster.slurm.memory: expected memory such as 64G"),
        ("memory=-5G", "cluster.slurm.memory: expected memory such as 64G"),
        ("partition='a b'", "cluster.slurm.partition: expected a name without spaces, got 'a b'"),
        ('account="a\nb"', "cluster.slurm.account: expected a name without spaces"),
        ("options=['constraint=x']", "cluster.slurm.options: expected options such as --constraint=a100"),
        ("options=['--a\nrm']", "cluster.slurm.options: expected options such as"),
        ("nodes=0", "cluster.slurm.nodes: input should be greater than or equal to 1, got 0"),
        ("gpus=-1", "cluster.slurm.gpus: input should be greater"),
        ("signal_s=0", "cluster.slurm.signal_s: input should be greater"),
        ("gpu_type=a100", "cluster.slurm.gpu_type is a100, but there are no GPUs"),
        ("actor_cpus=4", "cluster.slurm.actor_nodes is 0, but other keys describe actor nodes"),
        ("temporary=tmp", "cluster.slurm.temporary: expected an absolute path of 24 characters at most, got 'tmp'"),
        ("temporary=/scratch/of/a/user/that/is/long", "cluster.slurm.temporary: expected an absolute path"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(word, sentence):
    with pytest.raises(ConfigError) as raised:
        compose([*TOY, f"cluster.slurm.{word}"])
    assert str(raised.value).startswith(sentence)


def test_an_interface_cannot_be_chosen_for_symmetric_run():
    with pytest.raises(ConfigError, match=r"set cluster\.slurm\.mode=manual"):
        compose([*TOY, "cluster.slurm.mode=symmetric", "cluster.slurm.interface=ib0"])


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        *[("90", 5400), ("1:30", 90), ("01:00:00", 3600), ("2-0", 172800), ("1-1:30", 91800), ("1-0:0:1", 86401)],
        ("", None),
    ],
)
def test_time_is_read_as_slurm_reads_it(time, seconds):
    assert limit_seconds(time) == seconds


# ---- the script at work: a real bash, and a run that is a stand-in --------------------------------------------------

STAND_IN = r"""
if [ "$1" = -m ]; then exec {python} "$@"; fi
printf '%s\n' "$@" > {folder}/words
echo "$RAY_TMPDIR $(stat -c %a "$RAY_TMPDIR")" > {folder}/files
[ "$4" = end ] && exit "$5"
trap 'exit 3' TERM
touch {folder}/begun
sleep {starts}; rm -f "$3/STOP"; touch {folder}/listens  # a run forgets what was asked before it listens
until [ -e "$3/STOP" ]; do sleep 0.05; done
exit {ends}
"""


class Running:
    """A rendered script as SLURM would run it, in a folder of its own."""

    def __init__(self, commands, tmp_path, *words, run="r", starts=0.0, resumed=(), restarts=0, ends=3, counted=None):
        self.folder, self.run = tmp_path, tmp_path / run
        RunFolder.create(self.run)
        if counted:
            (self.run / "requeues.json").write_text(json.dumps(counted))
        body = STAND_IN.format(python=sys.executable, folder=tmp_path, starts=starts, ends=ends)
        python = commands("python", body)
        commands("scontrol", "true")
        config = compose([*TOY, *words, f"cluster.slurm.python={python}"])
        text = batch_script.render(config, Job("a", [self.run], tmp_path / "job-%j.txt", resumed))
        environment = os.environ | {"SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": str(restarts)}
        self.process = subprocess.Popen(
            ["bash", "-c", text], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def await_file(self, name):
        for _ in range(400):
            if (self.folder / name).exists():
                return
            time.sleep(0.05)
        pytest.fail(f"there is no {name}: {self.process.communicate()}")

    def end(self):
        self.printed = self.process.communicate(timeout=60)[0]
        return self.process.returncode


def requeues(commands):
    return [line for line in commands.called() if line.startswith("scontrol requeue")]


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4])
def test_the_job_ends_as_the_run_does(commands, tmp_path, code):
    running = Running(commands, tmp_path, resumed=["end", str(code)])
    assert running.end() == code
    assert requeues(commands) == []
    assert not (running.run / "STOP").exists()
    files, mode = (tmp_path / "files").read_text().split()
    assert re.fullmatch(r"/tmp/cairn-\w{6}", files), "nobody knows the name before, and sockets fit in"
    assert mode == "700"
    assert not Path(files).exists()


def test_a_job_without_a_folder_of_its_own_says_so_and_does_not_begin(commands, tmp_path):
    running = Running(commands, tmp_path, "cluster.slurm.temporary=/dev/null/x", resumed=["end", "0"])
    assert running.end() == 2
    assert running.printed.splitlines()[-1].startswith("error: cannot create this job's folder in /dev/null/x")
    assert not (tmp_path / "words").exists()


def test_the_place_of_its_folder_is_made_if_it_is_not_there(commands, tmp_path):
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # sockets must fit in
        running = Running(commands, tmp_path, f"cluster.slurm.temporary={short}/new", resumed=["end", "0"])
        assert running.end() == 0, running.printed
        assert (tmp_path / "files").read_text().startswith(f"{short}/new/cairn-")


@pytest.mark.parametrize("squatted", [False, True])
def test_on_every_node_ray_has_a_folder_that_nobody_else_made(tmp_path, squatted):
    """Each node makes its own, of a name that is drawn on the first; what is there already is not taken."""
    if squatted:
        (tmp_path / "drawn-1").mkdir(mode=0o777)
    code = f"node() {{{batch_script.OPTIONS}\n stat -c %a $RAY_TMPDIR; }}; temporary={tmp_path}/drawn; node"
    values = os.environ | {"SLURM_PROCID": "1", "nodes": "2", "slots_node": "3"}
    done = subprocess.run(["bash", "-c", code], env=values, capture_output=True, text=True)
    if squatted:
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.splitlines()[-1].startswith(f"error: cannot create {tmp_path}/drawn-1 on ")
    else:
        assert (done.returncode, done.stdout) == (0, "700\n")


@pytest.mark.parametrize("starts", [0.0, 2.0])
def test_a_warning_saves_the_run_and_queues_the_job_again_once(commands, tmp_path, starts):
    """Also a warning that comes while the run is starting, when it would forget the file."""
    running = Running(commands, tmp_path, starts=starts)
    running.await_file("begun" if starts else "listens")
    running.process.send_signal(signal.SIGUSR2)
    assert running.end() == 3
    assert requeues(commands) == ["scontrol requeue 77"]
    assert "SLURM will end this job: saving" in running.printed
    assert "is saved; job 77 is queued again, requeue 1" in running.printed
    assert not (running.run / "STOP").exists()


def test_two_warnings_are_one_requeue(commands, tmp_path):
    running = Running(commands, tmp_path, starts=1.0)
    running.await_file("begun")
    for _ in range(2):
        running.process.send_signal(signal.SIGUSR2)
        time.sleep(0.2)
    assert running.end() == 3
    assert requeues(commands) == ["scontrol requeue 77"]


def test_the_signal_that_comes_with_a_requeue_does_not_stop_the_next_start(commands, tmp_path):
    """SLURM ends the job that it queues again by TERM, which may come before the script is through."""
    running = Running(commands, tmp_path)
    commands("scontrol", "kill -TERM $PPID; sleep 0.2")
    running.await_file("listens")
    running.process.send_signal(signal.SIGUSR2)
    assert running.end() == 3
    assert requeues(commands) == ["scontrol requeue 77"]
    time.sleep(0.2)
    assert not (running.run / "STOP").exists()


def test_who_cancels_a_job_does_not_want_it_again(commands, tmp_path):
    running = Running(commands, tmp_path)
    running.await_file("listens")
    running.process.send_signal(signal.SIGTERM)
    assert running.end() == 3
    assert requeues(commands) == []


@pytest.mark.parametrize(("idle", "queued"), [(1, ["scontrol requeue 77"]), (0, [])])
def test_a_run_that_its_surroundings_ended_is_queued_again_while_it_gets_on(commands, tmp_path, idle, queued):
    running = Running(commands, tmp_path, f"cluster.slurm.idle_requeues={idle}", resumed=["end", "5"])
    assert running.end() == 5
    assert requeues(commands) == queued


def test_after_an_interruption_a_job_waits_longer_each_time(commands, tmp_path):
    """What failed needs time to come back, and nodes are not held meanwhile."""
    counted = {"requeues": 1, "idle": 0, "interrupted": 1, "start": ["77", "0"], "progress": {}}
    words = ["cluster.slurm.backoff_s=200", "cluster.slurm.interrupted_requeues=2"]
    running = Running(commands, tmp_path, *words, resumed=["end", "5"], restarts=1, counted=counted)
    assert running.end() == 5
    asked = [line for line in commands.called() if line.startswith("scontrol")]
    assert asked == ["scontrol requeue 77", "scontrol update jobid=77 starttime=now+400seconds"]
    assert "job 77 is queued again, requeue 2, and waits for 400 s at least" in running.printed


def test_a_job_that_is_interrupted_all_the_time_ends_though_it_gets_on(commands, tmp_path):
    counted = {"requeues": 2, "idle": 0, "interrupted": 2, "start": ["77", "1"], "progress": {}}
    words = ["cluster.slurm.interrupted_requeues=2"]
    running = Running(commands, tmp_path, *words, resumed=["end", "5"], restarts=2, counted=counted)
    assert running.end() == 5
    assert requeues(commands) == []
    assert "was interrupted in 3 starts in a row: job 77 is not queued again" in running.printed


@pytest.mark.parametrize(("refusals", "tries"), [(2, 3), (9, 4)])
def test_a_requeue_that_slurm_refuses_is_tried_again(commands, tmp_path, refusals, tries):
    """Its controller may be away for a moment; later each time, and not for ever."""
    commands("sleep", "exec /bin/sleep 0.01")
    running = Running(commands, tmp_path, resumed=["end", "5"])
    commands("scontrol", f'[ "$(grep -c "^scontrol requeue" {tmp_path}/called)" -gt {refusals} ] || exit 1')
    assert running.end() == 5
    assert requeues(commands) == ["scontrol requeue 77"] * tries
    pauses = [int(line.split()[1]) for line in commands.called() if line.startswith("sleep")]
    assert pauses == sorted(set(pauses))
    reason = json.loads((running.run / "requeues.json").read_text())["reason"]
    if tries > refusals:
        assert "job 77 is queued again, requeue 1" in reason
    else:
        assert reason.startswith("SLURM has refused to queue job 77 again")
        assert reason in running.printed


@pytest.mark.parametrize(("said", "code"), [("5", 5), ("", 5), ("0", 0)])
def test_where_ray_ended_before_the_run_could_the_surroundings_did(tmp_path, said, code):
    """`ray symmetric-run` runs the run: if Ray does not start, or its head is killed, nobody says how the run ended."""
    end = batch_script.SYMMETRIC.rpartition("\n{\n")[2]
    waits = "{\n" + end.replace("srun --wait=20 SRUN", "true") + '\nwait "$job"'
    if said:
        (tmp_path / "exit").write_text(said)
    assert subprocess.run(["bash", "-c", f"temporary={tmp_path}\n{waits}"]).returncode == code


def test_what_a_cancelled_job_loses_does_not_queue_it_again(commands, tmp_path):
    """scancel ends Ray's head too, so that the run may say that it is gone."""
    running = Running(commands, tmp_path, ends=5)
    running.await_file("listens")
    running.process.send_signal(signal.SIGTERM)
    assert running.end() == 5
    assert requeues(commands) == []


def test_requeueing_can_be_switched_off(commands, tmp_path):
    running = Running(commands, tmp_path, "cluster.slurm.requeue=false")
    running.await_file("listens")
    running.process.send_signal(signal.SIGUSR2)
    assert running.end() == 3
    assert requeues(commands) == []


def test_a_run_that_gets_no_further_is_not_queued_for_ever(commands, tmp_path):
    running = Running(commands, tmp_path, "cluster.slurm.idle_requeues=0")
    running.await_file("listens")
    running.process.send_signal(signal.SIGUSR2)
    assert running.end() == 3
    assert requeues(commands) == []
    assert "made no progress in 1 start: job 77 is not queued again" in running.printed


def test_names_and_words_arrive_as_they_are(commands, tmp_path):
    odd = ["end", "0", "policy.x='a b'", "$(touch harmed)", '"', "`touch harmed`", "a\\b", "*"]
    running = Running(commands, tmp_path, run="it's $HOME; `touch harmed`", resumed=odd)
    assert running.end() == 0
    words = (tmp_path / "words").read_text().splitlines()
    assert words[1:] == ["resume", str(running.run), *odd]
    assert not (tmp_path / "harmed").exists()


# ---- again, or not --------------------------------------------------------------------------------------------------


def test_once_a_start_and_while_it_gets_on(tmp_path):
    folder = RunFolder.create(tmp_path / "r")
    start = lambda n: {"SLURM_JOB_ID": "5", "SLURM_RESTART_COUNT": str(n)}  # noqa: E731
    (folder.checkpoints / "v00000007").mkdir()
    assert allowed(folder.path, 1, start(0))[0]
    assert not allowed(folder.path, 1, start(0))[0], "twice in one start"
    (folder.checkpoints / "v00000007-001").mkdir()  # saved again, no version further
    assert allowed(folder.path, 1, start(1))[0]
    yes, why = allowed(folder.path, 1, start(2))
    assert not yes
    assert "made no progress in 2 starts in a row" in why
    (folder.checkpoints / "v00000008").mkdir()
    assert allowed(folder.path, 1, start(3))[0]
    assert allowed(folder.path, 1, start(4))[0]
    (folder.stage("collect") / "shard-0.arrow").touch()
    assert allowed(folder.path, 1, start(5))[0]
    assert json.loads((folder.path / "requeues.json").read_text())["requeues"] == 5
    assert allowed(folder.path, 1, {"SLURM_JOB_ID": "6"})[0], "another job is another start"


def test_a_new_job_is_counted_anew(tmp_path):
    """Who resumes a run by a new job has put something right."""
    folder = RunFolder.create(tmp_path / "r")
    start = lambda job, n: {"SLURM_JOB_ID": job, "SLURM_RESTART_COUNT": str(n)}  # noqa: E731
    for n, expected in enumerate([True, True, False]):
        assert allowed(folder.path, 2, start("5", n), interruptions=9)[0] == expected
    assert allowed(folder.path, 2, start("6", 0), interruptions=9)[0]
    assert [allowed(folder.path, 9, start("7", n), interruptions=2)[0] for n in range(3)] == [True, True, False]


def test_a_start_that_slurm_ends_is_no_interruption(tmp_path):
    folder = RunFolder.create(tmp_path / "r")
    start = lambda n: {"SLURM_JOB_ID": "5", "SLURM_RESTART_COUNT": str(n)}  # noqa: E731
    asked = [1, 1, None, 1, 1]
    got = [allowed(folder.path, 9, start(n), limit)[0] for n, limit in enumerate(asked)]
    assert got == [True, False, True, True, False]
    assert [delay(n, 120) for n in (0, 1, 2, 3, 6, 1000)] == [0, 120, 240, 480, 3600, 3600]


def test_a_first_start_that_learned_nothing_is_no_progress(tmp_path):
    folder = RunFolder.create(tmp_path / "r")
    (folder.checkpoints / "v00000000").mkdir()
    assert not allowed(folder.path, 0, {"SLURM_JOB_ID": "5"})[0]


def test_a_search_and_answers_that_were_paid_for_are_progress(tmp_path):
    folder = RunFolder.create(tmp_path / "r")
    start = ({"SLURM_JOB_ID": str(number)} for number in range(9))
    (folder.stage("search") / "checkpoints-0" / "v00000010-a0001").mkdir(parents=True)
    assert allowed(folder.path, 0, next(start))[0]
    assert not allowed(folder.path, 0, next(start))[0]
    (folder.stage("search") / "checkpoints-0" / "v00000011-a0002").mkdir()
    assert allowed(folder.path, 0, next(start))[0]
    (folder.path / "llm").mkdir()
    (folder.path / "llm" / "journal.jsonl").write_text("{}\n")
    assert allowed(folder.path, 0, next(start))[0]
    assert not allowed(folder.path, 0, next(start))[0]
