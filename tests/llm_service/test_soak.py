"""A service under load for minutes, with runs beside it: its memory levels off, its queues stay short, it keeps no
descriptors, and nothing is lost.

python -m pytest -s tests/llm_service/test_soak.py --soak-minutes=30       for half an hour; 5 by default
"""

import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import envs
from llm_service.client import connect
from llm_service.records import Ask, Parameters, Status
from tests.llm_service.processes import ENVIRONMENT, ROOT, service

pytestmark = pytest.mark.slow
CLIENTS = 8
PAUSE_S = 0.02  # of a client between two requests
BYTES_PER_NEW_ANSWER = 400
"""The journal's index has about 150 for each; beyond it nothing may grow, however fast the machine asks."""
FRESH = 0.1  # of the questions are new
MARK_S = 300.0
"""Numbers are printed so often."""
SETTLED = 0.5
"""Share of the time after which memory counts: caches have to fill first, and on a busy machine that takes minutes."""
SPARE_DESCRIPTORS = 24
"""Connections come and go with the runs beside it; a service that keeps them would soon pass this."""


def memory_of(pid):
    """MiB that a process has allocated: not the files that it maps, which it shares with others."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return int(fields["Anonymous"].split()[0]) / 1024


def descriptors_of(pid):
    """How many files and sockets a process holds open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def play(folder, service_folder, stop, codes):
    """Runs that ask the service, one after the other, as processes of their own."""
    words = ["method=zero_shot", "env=babyai/GoToLocal", "cluster=inline", "evaluate.videos=0", "evaluate.episodes=256"]
    words += ["evaluate.greedy=false", f"llm.address={service_folder}", f"run.folder={folder}"]
    while not stop.is_set():
        command = [sys.executable, "launch.py", "run", *words, f"run.name=run{len(codes)}", f"seed={len(codes)}"]
        ran = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        codes.append(ran.stderr if ran.returncode else 0)


def talk(client, seed, stop, errors, keys):
    """One client: goals, judgements, scores, embeddings and jobs, mostly asked before."""
    draw = random.Random(seed)
    env = envs.make("babyai/GoToLocal", 4, seed)
    obs = env.begin()
    n = 0
    while not stop.is_set():
        n += 1
        obs = env.advance(np.array([draw.randrange(3) for _ in range(4)])).obs
        captions = env.captions(obs)
        label = f"{seed} {n}" if draw.random() < FRESH else str(draw.randrange(500))
        batches = [
            client.ask("suggest_goals", [{"observation": sentences} for sentences in captions]),
            client.score([f"prompt {label}"], ["left", "right"]),
            client.generate([f"text {label}"], parameters=Parameters(max_tokens=20)),
        ]
        if n % 20 == 0:
            client.embed([f"a text of {draw.randrange(50)} words"])
            found, statuses = client.accept(Ask("generate", (f"job {label}",), parameters=Parameters(max_tokens=20)))
            keys.update(zip(found, statuses, strict=True))
        for answers in batches:
            errors += [(a.status.name, a.reason) for a in answers if a.status not in (Status.OK, Status.MALFORMED)]
        time.sleep(PAUSE_S)


def told(seconds, pid, stats):
    """One line of numbers."""
    return (
        f"{seconds / 60:5.1f} min  {memory_of(pid):6.1f} MiB  {descriptors_of(pid):4d} descriptors  "
        f"{stats['calls']:9,.0f} calls  {stats['journal_lines']:9,.0f} answers kept"
    )


def test_memory_and_queues_are_bounded(tmp_path, request):
    length = 60 * request.config.getoption("--soak-minutes")
    world = tmp_path / "world.json"
    world.write_text(json.dumps(envs.knowledge("babyai")))
    words = ("latency_s=0.005", "latency_per_item_s=0.0002", "memory_mb=4", "redis.memory_mb=64", f"world={world}")
    samples, errors, keys, codes, stop = [], [], {}, [], threading.Event()
    with service(tmp_path / "llm", *words) as running:
        pid = running.process.pid
        clients = [connect(tmp_path / "llm", caller=f"client {i}") for i in range(CLIENTS)]
        threads = [threading.Thread(target=talk, args=(d, i, stop, errors, keys)) for i, d in enumerate(clients)]
        threads.append(threading.Thread(target=play, args=(tmp_path / "runs", tmp_path / "llm", stop, codes)))
        began = marked = time.monotonic()
        for thread in threads:
            thread.start()
        while time.monotonic() - began < length and all(thread.is_alive() for thread in threads):
            time.sleep(min(5.0, length / 40))
            stats, now = clients[0].stats(), time.monotonic()
            samples.append((now - began, memory_of(pid), stats, descriptors_of(pid)))
            if now - marked >= MARK_S or len(samples) == 1:
                marked = now
                print(f"\n{told(now - began, pid, stats)}", flush=True)
        alive = [thread.is_alive() for thread in threads]
        stop.set()
        for thread in threads:
            thread.join(300)
        jobs = clients[0].fetch(list(keys), wait_s=60)
        print(f"\n{told(time.monotonic() - began, pid, clients[0].stats())}")
        for client in clients:
            client.close()
        code, said = running.end()
    assert all(alive), "a client died"
    assert errors == []
    assert set(codes) == {0}, codes
    assert {a.status for a in jobs} <= {Status.OK, Status.MALFORMED}
    assert code == 0, said
    settled = [(t, mb) for t, mb, *_ in samples if t > SETTLED * length]
    per_minute = np.polyfit(*np.array(settled).T, 1)[0] * 60
    journalled = [s["journal_lines"] for t, _, s, _ in samples if t > SETTLED * length]
    per_answer = np.polyfit(journalled, [mb for _, mb in settled], 1)[0] * 2**20
    queue = max(s["waiting"] + s["in_flight"] for _, _, s, _ in samples)
    waiting = max(s.get("jobs_waiting", 0) + s.get("jobs_taken", 0) for _, _, s, _ in samples)
    answers = sum(v for k, v in samples[-1][2].items() if k.startswith("answers_"))
    calls, first, last = samples[-1][2]["calls"], settled[0][1], settled[-1][1]
    early, late = (max(n for t, _, _, n in samples if (t > SETTLED * length) is half) for half in (False, True))
    print(f"{length:.0f} s, {answers:,.0f} answers, {calls:,.0f} calls; at most {queue:.0f} in the queue")
    print(f"memory {first:.0f} to {last:.0f} MiB, {per_minute:+.2f} MiB/min, {per_answer:+.0f} bytes a new answer")
    print(f"at most {waiting:.0f} jobs; descriptors at most {early}, then {late}; {len(codes)} runs beside it")
    assert per_answer < BYTES_PER_NEW_ANSWER
    assert late <= early + SPARE_DESCRIPTORS
    assert queue <= CLIENTS * 8 + 256  # a run asks about all its environments at once
    assert waiting <= 200
