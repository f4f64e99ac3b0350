"""A service under load for minutes: its memory levels off, its queues stay short, and nothing is lost.

SOAK_SECONDS=1800 python -m pytest tests/llm_service/test_soak.py -m slow       for half an hour; 300 by default
"""

import json
import os
import random
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import envs
from llm_service.client import connect
from llm_service.records import Ask, Parameters, Status
from tests.llm_service.processes import service

pytestmark = pytest.mark.slow
SECONDS = float(os.environ.get("SOAK_SECONDS", "300"))
CLIENTS = 8
PAUSE_S = 0.02  # of a client between two requests
BYTES_PER_NEW_ANSWER = 400
"""The journal's index has about 150 for each; beyond it nothing may grow, however fast the machine asks."""
FRESH = 0.1  # of the questions are new


def memory_of(pid):
    """MiB that a process has allocated: not the files that it maps, which it shares with others."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return int(fields["Anonymous"].split()[0]) / 1024


def talk(door, seed, stop, errors, keys):
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
            door.ask("suggest_goals", [{"observation": sentences} for sentences in captions]),
            door.score([f"prompt {label}"], ["left", "right"]),
            door.generate([f"text {label}"], parameters=Parameters(max_tokens=20)),
        ]
        if n % 20 == 0:
            door.embed([f"a text of {draw.randrange(50)} words"])
            found, statuses = door.accept(Ask("generate", (f"job {label}",), parameters=Parameters(max_tokens=20)))
            keys.update(zip(found, statuses, strict=True))
        for answers in batches:
            errors += [(a.status.name, a.reason) for a in answers if a.status not in (Status.OK, Status.MALFORMED)]
        time.sleep(PAUSE_S)


def test_memory_and_queues_are_bounded(tmp_path):
    world = tmp_path / "world.json"
    world.write_text(json.dumps(envs.knowledge("babyai")))
    words = ("latency_s=0.005", "latency_per_item_s=0.0002", "memory_mb=4", "redis.memory_mb=64", f"world={world}")
    samples, errors, keys, stop = [], [], {}, threading.Event()
    with service(tmp_path / "llm", *words) as running:
        doors = [connect(tmp_path / "llm", caller=f"client {i}") for i in range(CLIENTS)]
        threads = [threading.Thread(target=talk, args=(d, i, stop, errors, keys)) for i, d in enumerate(doors)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        while time.monotonic() - began < SECONDS and all(thread.is_alive() for thread in threads):
            time.sleep(min(5.0, SECONDS / 40))
            stats = doors[0].stats()
            samples.append((time.monotonic() - began, memory_of(running.process.pid), stats))
        alive = [thread.is_alive() for thread in threads]
        stop.set()
        for thread in threads:
            thread.join(60)
        jobs = doors[0].fetch(list(keys), wait_s=60)
        for door in doors:
            door.close()
        code, said = running.end()
    assert all(alive), "a client died"
    assert errors == []
    assert {a.status for a in jobs} <= {Status.OK, Status.MALFORMED}
    assert code == 0, said
    settled = [(t, mb) for t, mb, _ in samples if t > 0.3 * SECONDS]
    per_minute = np.polyfit(*np.array(settled).T, 1)[0] * 60
    journalled = [s["journal_lines"] for t, _, s in samples if t > 0.3 * SECONDS]
    per_answer = np.polyfit(journalled, [mb for _, mb in settled], 1)[0] * 2**20
    queue = max(s["waiting"] + s["in_flight"] for _, _, s in samples)
    waiting = max(s.get("jobs_waiting", 0) + s.get("jobs_taken", 0) for _, _, s in samples)
    answers = sum(v for k, v in samples[-1][2].items() if k.startswith("answers_"))
    calls, first, last = samples[-1][2]["calls"], settled[0][1], settled[-1][1]
    print(f"\n{SECONDS:.0f} s, {answers:,.0f} answers, {calls:,.0f} calls; at most {queue:.0f} in the queue")
    print(f"memory {first:.0f} to {last:.0f} MiB, {per_minute:+.2f} MiB/min, {per_answer:+.0f} bytes a new answer")
    print(f"at most {waiting:.0f} jobs")
    assert per_answer < BYTES_PER_NEW_ANSWER
    assert queue <= CLIENTS * 8
    assert waiting <= 200
