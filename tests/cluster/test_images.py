"""The images, the scripts in them, and what is served beside a run; to build images needs Docker, and is not done."""

import ast
import base64
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import yaml

from cluster.config.tree import compose
from cluster.jobs.kubernetes import language_model
from llm_service.client import Tls, connect
from llm_service.durable import redis_server

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
IMAGES = ["cpu", "gpu", "llm"]
SCRIPTS = sorted(DOCKER.glob("*.sh"))
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
SPOKEN = {"yaml": "pyyaml", "google": "protobuf", "prometheus_client": "prometheus-client", "grpc": "grpcio"}
"""What is imported under another name than it is installed by."""
DIGEST = "@sha256:[0-9a-f]{64}"
TEXT = {"capture_output": True, "text": True}


def instructions(image):
    """(word, rest) of every instruction of the last stage, and all `FROM` lines."""
    text = re.sub(r"\\\n", " ", (DOCKER / f"{image}.Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    bases = [line.split()[1] for line in lines if line.startswith("FROM")]
    last = max(i for i, line in enumerate(lines) if line.startswith("FROM"))
    return [tuple(line.split(maxsplit=1)) for line in lines[last:]], bases


def pins(path):
    """Versions by name, also of a wheel that is named by its address."""
    text = re.sub(r"(?m)^(\w+) @ \S+/\1-([\d.]+)%2Bcpu-\S+", r"\1==\2", path.read_text())
    return dict(re.findall(r"^([\w.-]+?)(?:\[\w+\])?==(\S+)", text.lower().replace("_", "-"), re.MULTILINE))


@pytest.mark.parametrize("image", IMAGES)
def test_hadolint_finds_nothing(image):
    hadolint = shutil.which("hadolint", path=PATH)
    done = subprocess.run([hadolint, DOCKER / f"{image}.Dockerfile"], **TEXT)
    assert done.returncode == 0, done.stdout


def test_hadolint_finds_something(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM python:latest\nRUN cd /tmp\n")
    done = subprocess.run(
        [shutil.which("hadolint", path=PATH), tmp_path / "Dockerfile"], capture_output=True, text=True
    )
    assert "DL3007" in done.stdout


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_is_pinned_watched_and_of_no_root(image):
    last, bases = instructions(image)
    words = dict(last)
    assert all(re.fullmatch(rf"[a-z/]+:\d+\.\d+\.\d+-[\w-]+{DIGEST}", base) for base in bases)
    assert words["USER"] == "10001:10001"
    assert words["WORKDIR"] == "/opt/cairn"
    assert re.search(r'CMD \["/opt/cairn/docker/(alive|healthy)\.sh"', words["HEALTHCHECK"])
    ignored = (DOCKER / f"{image}.Dockerfile.dockerignore").read_text().splitlines()
    assert ignored[0] == "*"  # nothing comes along by chance: what does is named
    for word, rest in last:
        if word == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert any(source == line[1:] or source.startswith(f"{line[1:]}/") for line in ignored), source
    text = (DOCKER / f"{image}.Dockerfile").read_text()
    assert f"docker/{image}.lock" in text
    assert not re.search(r"(?i)(password|token|secret|api_key)\s*=", text)


@pytest.mark.parametrize("image", IMAGES)
def test_a_lock_has_every_package_as_required(image):
    required, locked = pins(ROOT / "requirements.txt"), pins(DOCKER / f"{image}.lock")
    asked = required if image != "llm" else {line.lower(): "" for line in lines_of(DOCKER / "llm.in")}
    assert set(asked) <= set(locked)
    assert {name: locked[name] for name in asked} == {name: required[name] for name in asked}
    gpu = [name for name in locked if name.startswith("nvidia-")]
    assert bool(gpu) == (image != "cpu")
    assert all("+" not in version for version in locked.values())


@pytest.mark.parametrize("lock", ["build", *IMAGES])
def test_every_package_of_a_lock_has_its_hashes_and_none_is_from_a_second_index(lock):
    entries = re.split(r"\n(?! )", (DOCKER / f"{lock}.lock").read_text().strip())[1:]
    assert entries
    for entry in entries:
        first, *hashes = entry.split(" \\\n")
        assert hashes, first
        assert all(re.fullmatch(r" +--hash=sha256:[0-9a-f]{64}", line) for line in hashes), first
        assert "==" in first or first.startswith("torch @ https://download.pytorch.org/whl/cpu/"), first
    assert pins(DOCKER / "build.lock").items() <= pins(DOCKER / "gpu.lock").items()


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_installs_nothing_without_a_hash(image):
    """What is built from source brings its builder along in a lock, since pip would fetch another without a hash."""
    text = re.sub(r"\\\n", " ", (DOCKER / f"{image}.Dockerfile").read_text())
    installs = re.findall(r"pip install [^&\n]*", text)
    assert installs
    for words in map(str.split, installs):
        assert {"--require-hashes", "--no-deps"} <= set(words)
        assert not {word for word in words if "index" in word or "find-links" in word}
        assert {"/tmp/build.lock", "--no-build-isolation", "--only-binary"} & set(words)


def test_pip_refuses_what_differs_from_its_hash(tmp_path):
    """The option that images rely on, with a wheel that has been exchanged."""
    wheel = tmp_path / "one-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("one.py", "")
        made.writestr("one-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: one\nVersion: 1.0\n")
        made.writestr("one-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr("one-1.0.dist-info/RECORD", "")
    lock = tmp_path / "lock"
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--find-links", tmp_path, "--target", tmp_path / "to"]
    for digest, code in ((hashlib.sha256(wheel.read_bytes()).hexdigest(), 0), ("0" * 64, 1)):
        lock.write_text(f"one==1.0 --hash=sha256:{digest}\n")
        done = subprocess.run([*pip, "--no-deps", "--require-hashes", "-r", lock], **TEXT)
        assert done.returncode == code, done.stderr
    assert "DO NOT MATCH THE HASHES" in done.stderr


def lines_of(path):
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def test_the_llm_image_has_what_its_service_imports():
    own = {line.lower() for line in lines_of(DOCKER / "llm.in")}
    wanted = set()
    compiler = ROOT / "llm_service" / "sandbox" / "compiler"  # written programs run where actors do
    for path in (ROOT / "llm_service").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())) if path.parent != compiler else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            wanted |= {name.split(".")[0] for name in names}
    foreign = {name for name in wanted if name not in sys.stdlib_module_names and name != "llm_service"}
    through_others = {"jinja2", "httpx2"}  # transformers' and openai's own
    assert {SPOKEN.get(name, name) for name in foreign} - through_others <= own
    assert through_others <= set(pins(DOCKER / "llm.lock"))


# ---- scripts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_can_be_run_and_read(script):
    assert os.access(script, os.X_OK)
    shell = script.read_text().splitlines()[0].removeprefix("#!")
    assert subprocess.run([shell, "-n", script]).returncode == 0
    assert script.read_text().splitlines()[1].startswith(f"# {script.name}")


@pytest.fixture
def launched(tmp_path):
    """A copy of run.sh whose launch.py notes its words and ends with the code in `code`, once it may."""
    (tmp_path / "docker").mkdir()
    shutil.copy(DOCKER / "run.sh", tmp_path / "docker")
    (tmp_path / "launch.py").write_text(
        "import json, os, pathlib, signal, sys, time\n"
        "here = pathlib.Path(__file__).parent\n"
        "signal.signal(signal.SIGTERM, lambda *_: (here / 'code').write_text('3'))\n"
        "told = {k: v for k, v in os.environ.items() if k in ('CAIRN_JOB', 'CAIRN_RAY_ADDRESS', 'RAY_ADDRESS')}\n"
        "(here / 'words').write_text(json.dumps([sys.argv[1:], told]))\n"
        "while not (here / 'code').exists(): time.sleep(0.05)\n"
        "sys.exit(int((here / 'code').read_text()))\n"
    )
    (tmp_path / "given").write_text("experiment=toy\nllm.model='a b \"c\"'\n")

    def start(code=None, **environment):
        (tmp_path / "words").unlink(missing_ok=True)
        (tmp_path / "code").unlink(missing_ok=True)
        if code is not None:
            (tmp_path / "code").write_text(str(code))
        return subprocess.Popen(
            [tmp_path / "docker" / "run.sh", tmp_path / "runs" / "one", tmp_path / "given"],
            env={**os.environ, "PATH": PATH, **environment},
            stdout=subprocess.PIPE,
            text=True,
        )

    return tmp_path, start


def test_a_job_begins_its_run_and_goes_on_with_it(launched):
    folder, start = launched
    run = folder / "runs" / "one"
    (run / "checkpoints").mkdir(parents=True)  # of an attempt that was killed before it wrote anything
    assert start(0, RAY_ADDRESS="10.0.0.1:6379").wait(20) == 0
    words, told = yaml.safe_load((folder / "words").read_text())
    assert words == ["run", "experiment=toy", "llm.model='a b \"c\"'"]
    assert told == {"CAIRN_JOB": "kubernetes", "CAIRN_RAY_ADDRESS": "10.0.0.1:6379"}
    assert not run.exists()
    run.mkdir()
    (run / "config.yaml").touch()
    assert start(0).wait(20) == 0
    assert yaml.safe_load((folder / "words").read_text())[0] == ["resume", str(run)]


@pytest.mark.parametrize(
    ("code", "preempted", "ends"), [(0, False, 0), (1, False, 1), (3, False, 0), (3, True, 3), (4, 0, 4), (5, 0, 5)]
)
def test_only_what_should_be_tried_again_fails(launched, code, preempted, ends):
    """A stop by people is the end of the job; one by a dying pod is not."""
    folder, start = launched
    run = folder / "runs" / "one"
    run.mkdir(parents=True)
    (run / "config.yaml").touch()
    (run / "PREEMPTED").touch()  # of an earlier attempt
    process = start()
    wait_for((folder / "words").exists)
    assert not (run / "PREEMPTED").exists()
    if preempted:
        (run / "PREEMPTED").touch()
    (folder / "code").write_text(str(code))
    assert process.wait(20) == ends


@pytest.mark.parametrize(
    ("trouble", "ends"),
    [
        ("cluster.roles.backend Interrupted", 5),  # no room for roles, Ray's head lost
        ("llm_service.errors AwayTooLong", 5),
        ("llm_service.errors BudgetExhausted", 4),
    ],
)
def test_what_the_surroundings_ended_fails_and_is_tried_again(launched, trouble, ends):
    """Kubernetes must not be told that all is well: the run is not done, and nobody has asked it to stop."""
    folder, start = launched
    module, _, name = trouble.partition(" ")
    (folder / "launch.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        f"from cluster.cli.terminal import guard\nfrom {module} import {name}\n"
        f"def engine(): raise {name}('why')\n"
        "guard(engine)\n"
    )
    process = start()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == ends
    assert "stopped as asked" not in out


def test_a_signal_reaches_the_run_and_is_waited_for(launched):
    folder, start = launched
    process = start()
    wait_for((folder / "words").exists)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "stopped as asked" in out


def wait_for(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


def test_draining_asks_the_runs_that_run_and_waits_for_them(tmp_path):
    for name, state in {"on": "running", "off": "done"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "status.json").write_text(f'{{\n "state": "{state}",\n "pid": 7\n}}')
    process = subprocess.Popen([DOCKER / "drain.sh", "60", tmp_path / "on", tmp_path / "off", tmp_path / "none"])
    wait_for((tmp_path / "on" / "STOP").exists)
    assert process.poll() is None  # it waits
    (tmp_path / "on" / "STOP").unlink()  # as the controller does when it has saved
    assert process.wait(20) == 0
    assert (tmp_path / "on" / "PREEMPTED").exists()
    assert sorted(p.name for p in (tmp_path / "off").iterdir()) == ["status.json"]
    assert not (tmp_path / "none").exists()
    assert subprocess.run([DOCKER / "drain.sh", "1", tmp_path / "on"], timeout=20).returncode == 0  # and not for ever


def test_a_run_that_has_written_nothing_for_long_is_not_well(tmp_path):
    host = os.uname().nodename
    status = tmp_path / "one" / "status.json"
    status.parent.mkdir()

    def well(state, minutes, on=host):
        status.write_text(f'{{\n "state": "{state}",\n "host": "{on}"\n}}')
        os.utime(status, (time.time() - 60 * minutes,) * 2)
        return (
            subprocess.run([DOCKER / "alive.sh", "15"], env={**os.environ, "CAIRN_RUNS": str(tmp_path)}).returncode == 0
        )

    assert well("running", 1)
    assert not well("running", 20)
    assert well("done", 20)
    assert well("running", 20, on="another")


# ---- what is served -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secrets(tmp_path_factory):
    """The Secrets of secrets.sh as files, by the Secret's name."""
    room, folder = tmp_path_factory.mktemp("room"), tmp_path_factory.mktemp("secrets")
    drawn = {"env": {**os.environ, "TMPDIR": str(room)}, "check": True}
    done = subprocess.run([DOCKER / "secrets.sh", "default"], **drawn, **TEXT)
    assert list(room.iterdir()) == []  # the authority's key is forgotten
    for thing in yaml.safe_load_all(done.stdout):
        assert thing["kind"] == "Secret"
        (folder / thing["metadata"]["name"]).mkdir()
        for key, value in thing["data"].items():
            (folder / thing["metadata"]["name"] / key).write_bytes(base64.b64decode(value))
    return folder


def test_secrets_are_drawn_and_fit_each_other(secrets):
    again = subprocess.run([DOCKER / "secrets.sh", "default"], check=True, **TEXT).stdout
    tls = secrets / "cairn-llm-tls"
    values = [
        (secrets / name).read_text() for name in ("cairn-ray/auth_token", "cairn-llm/token", "cairn-redis/password")
    ]
    assert len(set(values)) == 3
    for value in values:
        assert re.fullmatch(r"[0-9a-f]{64}", value)
        assert base64.b64encode(value.encode()).decode() not in again
    for host in ("one-llm.default.svc", "localhost"):
        check = ["openssl", "verify", "-CAfile", tls / "ca.crt", "-verify_hostname", host, tls / "tls.crt"]
        assert subprocess.run(check, capture_output=True).returncode == 0, host
    check = ["openssl", "verify", "-CAfile", tls / "ca.crt", "-verify_hostname", "one.other.svc", tls / "tls.crt"]
    assert subprocess.run(check, capture_output=True).returncode != 0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def started():
    """Starts processes that end with the test."""
    running = []

    def start(*command, **options):
        running.append(subprocess.Popen([str(word) for word in command], **options))
        return running[-1]

    yield start
    for process in running:
        process.terminate()
    for process in running:
        process.wait(30)


def test_the_llm_service_works_with_its_redis_as_the_manifest_has_them(tmp_path, secrets, started):
    """Its words, its Redis's settings, Secrets and probe, with real processes; only places are others."""
    config = compose(["env=babyai/GoToLocal", "method=zero_shot", "cluster=kubernetes", "run.name=one"])
    port, redis_port = free_port(), free_port()
    stateful = language_model.redis(config)[0]["spec"]["template"]["spec"]["containers"][0]
    (tmp_path / "data").mkdir()
    places = {"/data": tmp_path / "data", "/etc/redis/users.acl": secrets / "cairn-redis" / "users.acl"}
    settings = [str(places.get(word, word)) for word in stateful["args"]]
    started(redis_server.find_binary(), *settings, "--port", redis_port, stdout=subprocess.DEVNULL)
    deployment = language_model.service(config)[0]["spec"]["template"]["spec"]["containers"][0]
    (tmp_path / "world.json").write_text(language_model.world(config))
    given = " \n".join([*deployment["command"][1:], *deployment["args"]])
    for there, here in {
        "/etc/cairn/tls": secrets / "cairn-llm-tls",
        "/etc/cairn/files": tmp_path,
        "/runs": tmp_path,
        "one-redis.default.svc:6379": f"127.0.0.1:{redis_port}",
        "0.0.0.0:50051": f"0.0.0.0:{port}",
    }.items():
        assert there in given
        given = given.replace(there, str(here))
    token, password = ((secrets / name).read_text() for name in ("cairn-llm/token", "cairn-redis/password"))
    environment = {**os.environ, "PATH": PATH, "CAIRN_LLM_TOKEN": token, "CAIRN_REDIS_PASSWORD": password}
    wait_for(lambda: answers(redis_port))
    service = started(sys.executable, *given.split(" \n"), cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert service.stdout.readline().startswith(f"ready on 0.0.0.0:{port}")
    ca = secrets / "cairn-llm-tls" / "ca.crt"
    probe = [DOCKER / "healthy.sh", f"localhost:{port}", ca]
    assert subprocess.run(probe, env=environment, **TEXT).stdout == "healthy\n"
    stranger = {**environment, "CAIRN_LLM_TOKEN": "another"}
    for words in ([], ["alive"]):
        assert subprocess.run([*probe, *words], env=environment).returncode == 0
        assert subprocess.run([*probe, *words], env=stranger, capture_output=True).returncode != 0
    with connect(f"localhost:{port}", token=token, tls=Tls(ca=str(ca))) as client:
        keys, _ = client.submit("yes_no", [{"question": "is it red?"}])  # by Redis
        assert client.fetch(keys, wait_s=30)[0].ok
    cli = shutil.which("redis-cli", path=PATH)
    for user in ([], ["--user", "cairn", "--pass", "wrong"]):
        said = subprocess.run([cli, "-p", str(redis_port), *user, "dbsize"], **TEXT)
        assert re.search("NOAUTH|WRONGPASS", said.stdout + said.stderr)
    for refused in (["flushall"], ["script", "load", "return 1"], ["evalsha", "0" * 40, "0"]):
        said = subprocess.run([cli, "-p", str(redis_port), "--user", "cairn", "--pass", password, *refused], **TEXT)
        assert "NOPERM" in said.stdout + said.stderr, refused


@pytest.mark.parametrize(
    ("answers", "ready", "alive"),
    [
        ("health=lambda: (True, ''), stats=lambda: {'calls': 1.0}", 0, 0),
        ("health=lambda: (False, 'the model is away'), stats=lambda: {'calls': 1.0}", 1, 0),
        ("health=lambda: (False, 'no answer'), stats=lambda: 1 / 0", 1, 1),
    ],
)
def test_a_service_whose_model_is_away_lives(tmp_path, answers, ready, alive):
    """A port that is open says neither; to start the pod again would bring no model back."""
    (tmp_path / "docker").mkdir()
    shutil.copy(DOCKER / "healthy.sh", tmp_path / "docker")
    (tmp_path / "llm_service").mkdir()
    (tmp_path / "llm_service" / "client.py").write_text(
        "import contextlib, types\n"
        "Tls = dict\n"
        f"connect = lambda *_, **__: contextlib.nullcontext(types.SimpleNamespace({answers}))\n"
    )
    for words, code in (([], ready), (["alive"], alive)):
        done = subprocess.run([tmp_path / "docker" / "healthy.sh", "x:1", "ca", *words], env={"PATH": PATH}, **TEXT)
        assert done.returncode == code, done


def test_compose_is_locked_up_and_heard_by_this_machine_only():
    drawn = subprocess.run([DOCKER / "secrets.sh", "env"], check=True, **TEXT).stdout
    given = set(re.findall(r"(?m)^(\w+)=[0-9a-f]{64}$", drawn))
    assert set(re.findall(r"(?<!\$)\$\{(\w+)", (DOCKER / "compose.yaml").read_text())) == given
    assert ".env" in (DOCKER / ".gitignore").read_text().split()
    for name, service in COMPOSE["services"].items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert re.fullmatch(rf"cairn:cpu|[\w/]+:v?\d+\.\d+\.\d+(-\w+)?{DIGEST}", service["image"]), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        assert name == "redis" or service["network_mode"] == "service:redis"
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (DOCKER / source).exists(), volume
    config = compose(COMPOSE["configs"]["words"]["content"].split())
    assert (config.run.folder, config.run.name) == ("/runs", "toy")
    run = COMPOSE["services"]["run"]
    assert run["entrypoint"] == ["/opt/cairn/docker/run.sh", "/runs/toy", run["configs"][0]["target"]]
    for path in [DOCKER / "prometheus.yaml", *(DOCKER / "grafana").rglob("*.yaml")]:
        assert yaml.safe_load(path.read_text()), path


def test_composes_redis_knows_one_user(tmp_path, started):
    """Its start as a shell does it, on another port and in other folders."""
    port, password = free_port(), "a-password"
    script = COMPOSE["services"]["redis"]["entrypoint"][-1].replace("$$", "$")
    script = script.replace("/tmp/", f"{tmp_path}/").replace("/data", str(tmp_path)).rstrip() + f" --port {port}"
    path = f"{redis_server.find_binary().parent}{os.pathsep}{PATH}"
    started("sh", "-c", script, env={"PATH": path, "PASSWORD": password}, stdout=subprocess.DEVNULL)
    wait_for(lambda: answers(port))
    cli = shutil.which("redis-cli", path=path)
    said = subprocess.run([cli, "-p", str(port), "ping"], **TEXT)
    assert "NOAUTH" in said.stdout
    known = {**os.environ, "REDISCLI_AUTH": password}
    assert subprocess.run([cli, "-p", str(port), "--user", "cairn", "ping"], env=known, **TEXT).stdout == "PONG\n"
    script = subprocess.run([cli, "-p", str(port), "--user", "cairn", "script", "flush"], env=known, **TEXT)
    assert "NOPERM" in script.stdout + script.stderr
    info = subprocess.run([cli, "-p", str(port), "--user", "cairn", "info"], env=known, **TEXT).stdout
    assert "aof_enabled:1" in info
