"""Planted secrets: whatever a run does, however it ends, whatever a provider repeats, they are nowhere to be read."""

import base64
import contextlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from llm_service.durable.redis_server import find_binary
from tests.llm_service.processes import free_port, provider, until

ROOT = Path(__file__).resolve().parents[2]
SECRETS = {
    "OPENAI_API_KEY": "sk-Planted+key/8f3a1c==0001",
    "CAIRN_LLM_TOKEN": "Planted+token/8f3a1c==0002",
    "PLANTED_PASSWORD": "Planted+password/8f3a1c==03",
    "PLANTED_HEADER": "Planted+header/8f3a1c==0004",
}
PLAYS = ["method=zero_shot", "env=toy/Line", "evaluate.episodes=16", "evaluate.videos=0", "actors.n=1"]
HOSTED = ["llm=openai", "llm.model=faulty", "llm.api=completions", "llm.header_env={x-planted: PLANTED_HEADER}"]
HOSTED += ["llm.when_away=stop", "llm.retry.base_s=0.01", "actors.backoff_s=0.01"]
PATCHED = """
import runpy, sys
import envs.toy
import llm_service.backends.openai as hosted

def crash(self, *_):
    raise RuntimeError("planted crash")

if sys.argv.pop(1) == "world":
    envs.toy.Line._step_one = crash
else:
    hosted.OpenAI._complete = crash
sys.argv[0] = "launch.py"
runpy.run_path("launch.py", run_name="__main__")
"""


def forms(secret):
    """A secret as it is, and as it would travel: in addresses, in base64 wherever it begins, as hexadecimal digits."""
    plain = secret.encode()
    found = {plain, plain.hex().encode(), quote(secret, safe="").encode(), quote_plus(secret).encode()}
    for coded in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):  # bytes of something else in the first group: what depends on them is left out
            found.add(coded(b"x" * before + plain)[4 if before else 0 : -4])
    return found


FORMS = {name: forms(secret) for name, secret in SECRETS.items()}


def leaks(*places):
    """(variable, where) for every planted value in these files, folders and outputs, names of files among them."""
    held = []
    for place in places:
        if isinstance(place, Path):
            files = [path for path in [place, *place.rglob("*")] if path.is_file() and not path.is_symlink()]
            held += [(path, bytes(path) + b"\n" + path.read_bytes()) for path in files]
        else:
            held.append(("output", place.encode()))
    assert held
    return [(name, where) for where, data in held for name, some in FORMS.items() if any(one in data for one in some)]


def environment(**more):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "CAIRN_"))}
    return {**clean, **SECRETS, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **more}


def launch(*words, command=("launch.py",), **more):
    """A command of Cairn with the planted environment. Returns exit code and all that it printed."""
    done = subprocess.run(
        [sys.executable, *command, *map(str, words)],
        cwd=ROOT,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    return done.returncode, done.stdout


@pytest.fixture
def answer(monkeypatch, capfd):
    """As `launch`, of commands that start nothing: in this process, which has loaded all that they need."""

    def run(*words):
        for name, value in environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["launch.py", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / "launch.py"), run_name="__main__")
        return ended.value.code, "".join(capfd.readouterr())

    return run


def test_every_form_of_a_secret_would_be_found(tmp_path):
    """Else the tests below could not fail."""
    key = SECRETS["OPENAI_API_KEY"]
    for number, text in enumerate(
        [
            f"Authorization: Bearer {key}",
            f"https://host/v1?key={quote(key, safe='')}",
            base64.b64encode(f"user:{key}".encode()).decode(),
            base64.urlsafe_b64encode(f"a:{key}:b".encode()).decode(),
            base64.b64encode(f"me:{key}".encode()).decode(),
            repr(key.encode().hex()),
        ]
    ):
        path = tmp_path / f"{number}" / "file"
        path.parent.mkdir()
        path.write_bytes(b"\0\xff" + text.encode())
        assert leaks(path.parent) == [("OPENAI_API_KEY", path)], text
    path.with_name(key.replace("/", "%2F")).touch()
    assert len(leaks(tmp_path)) == 6  # a name is not found in that form, but in this:
    path.with_name(quote(key, safe="")).touch()
    assert len(leaks(tmp_path)) == 7


@pytest.mark.parametrize(
    ("script", "code"), [(["429:0", "500", "ok"], 0), (["unauthorized"], 5), (["404"], 2), (["garbage", "ok"], 0)]
)
def test_a_provider_that_repeats_the_key_gives_nothing_away(tmp_path, script, code):
    with provider(0, "--script", *script) as fake:
        words = [*PLAYS, *HOSTED, "cluster=inline", f"llm.base_url={fake.first}"]
        done, printed = launch("run", *words, f"run.folder={tmp_path}", "run.name=a")
        assert done == code, printed
        assert (tmp_path / "a" / "llm" / "journal.jsonl").exists()
        assert not leaks(tmp_path, printed)


@pytest.mark.parametrize("where", ["world", "model"])
def test_a_traceback_gives_nothing_away(tmp_path, where):
    with provider(0) as fake:
        words = [*PLAYS, *HOSTED, "cluster=inline", f"llm.base_url={fake.first}"]
        words += [f"run.folder={tmp_path}", "run.name=a"]
        done, printed = launch(where, "run", *words, command=("-c", PATCHED))
        assert done not in (0, 2), printed
        said = {"world": "planted crash", "model": "RuntimeError"}[where]
        assert said in printed + "".join(p.read_text() for p in (tmp_path / "a").glob("error.txt"))
        assert not leaks(tmp_path, printed)


@pytest.mark.parametrize(
    "words",
    [
        ["llm.redis.url=redis://:{secret}@127.0.0.1:6379/0"],
        ['llm.redis.url="redis://127.0.0.1:6379/0?password={secret}"'],
        ["llm.base_url=https://user:{secret}@127.0.0.1/v1"],
        ['llm.base_url="https://127.0.0.1/v1?key={secret}"', "--cfg"],
        ["llm.headers={{Authorization: Bearer {secret}}}"],
        ["llm.headers.X-Auth={secret}", "--cfg"],
        ["llm.body.api_key={secret}"],
    ],
)
def test_a_secret_in_a_word_is_refused_and_not_repeated(tmp_path, answer, words):
    secret = "Planted-8f3a1c-0005"
    given = [word.format(secret=secret) for word in words]
    done, printed = answer("run", *PLAYS, *HOSTED, *given, f"run.folder={tmp_path}", "run.name=a")
    assert done == 2, printed
    assert secret not in printed
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ["cluster=slurm"],
        ["cluster=slurm", "cluster.slurm.nodes=2"],
        [
            "experiment=quickstart",
            "cluster=kubernetes",
            "cluster.kubernetes.image=registry.example/cairn:1.0",
            "llm.limits.tokens=1000",
        ],
        ["cluster=local"],
    ],
)
def test_what_is_handed_over_names_secrets_and_holds_none(tmp_path, answer, words):
    hosted = [
        *([] if "experiment=quickstart" in words else PLAYS),
        *HOSTED,
        "llm.base_url=https://models.example/v1",
        "llm.redis.password_env=PLANTED_PASSWORD",
    ]
    where = [] if "cluster=kubernetes" in words else [f"run.folder={tmp_path}"]  # there it is a claim
    for how in ("--dry-run", "--cfg"):
        done, printed = answer("run", *hosted, *words, *where, "run.name=a", how)
        assert done == 0, printed
        assert len(printed) > 100
        assert not leaks(printed)
    assert not list(tmp_path.iterdir())


@contextlib.contextmanager
def redis(folder):
    """A Redis with the planted password, which is in a file of its own. Yields its URL and the folder of its data."""
    port, data = free_port(), folder / "data"
    data.mkdir()
    lines = [f"port {port}", "bind 127.0.0.1", f"dir {data}", "appendonly yes", "maxmemory-policy volatile-lru"]
    (folder / "redis.conf").write_text("\n".join([*lines, f"requirepass {SECRETS['PLANTED_PASSWORD']}", ""]))
    with subprocess.Popen([find_binary(), folder / "redis.conf"], stdout=subprocess.PIPE, text=True) as running:
        try:
            assert any("ready to accept" in line.lower() for line in running.stdout)
            yield f"redis://127.0.0.1:{port}/0", data
        finally:
            running.kill()


@pytest.mark.slow
def test_a_run_on_ray_with_all_secrets_leaves_none_of_them(tmp_path):
    """In its folder, what it prints, Ray's logs, Redis's data, and the command lines of processes."""
    session = Path(tempfile.mkdtemp(prefix="r-", dir="/tmp"))  # sockets have short paths
    (tmp_path / "redis").mkdir()
    with provider(0, "--script", "429:0", "500", "ok") as fake, redis(tmp_path / "redis") as (url, data):
        words = [*PLAYS, *HOSTED, f"llm.base_url={fake.first}", f"llm.redis.url={url}"]
        words += ["llm.redis.password_env=PLANTED_PASSWORD", f"run.folder={tmp_path / 'runs'}", "run.name=a"]
        with open(tmp_path / "printed", "w") as printed:
            running = subprocess.Popen(
                [sys.executable, "launch.py", "run", *words],
                cwd=ROOT,
                env=environment(RAY_TMPDIR=str(session)),
                stdout=printed,
                stderr=subprocess.STDOUT,
            )
            try:
                shown = _command_lines(running)
                assert running.wait(10) == 0, (tmp_path / "printed").read_text()
            finally:
                running.kill()
        path = tmp_path / "runs" / "a"
        assert "gcs_server" in shown
        assert "llm/journal.jsonl" in {str(file.relative_to(path)) for file in path.rglob("*")}
        assert list(session.glob("ray/session_*/logs/gcs_server*"))
        assert any(file.stat().st_size for file in data.rglob("*.aof"))
        said = [
            launch(*verb)[1] for verb in (("report", path), ("status", path), ("logs", path), ("llm", "cost", path))
        ]
        assert (path / "report.html").exists()
        assert not leaks(path, session, data, tmp_path / "printed", shown, *said)
        assert until(
            lambda: not list(path.rglob("token"))
        )  # of Ray and of the service: gone with the run, or never made
    shutil.rmtree(session)


def _command_lines(running):
    """Of all processes while one runs."""
    seen = set()
    while running.poll() is None:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                seen.add(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        time.sleep(0.2)
    return "\n".join(line for line in seen if not re.search(r"PLANTED|redis\.conf", line))
