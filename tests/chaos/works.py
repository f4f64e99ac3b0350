"""The works that faults meet: how each begins and goes on, how far it is, and what must come out of it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from learner import checkpoint
from learner.store.archive import Archive
from llm_service.pipeline import ledger
from tests.chaos.wire import Outside

CONCURRENCY = 2
PRICED = ["llm.dollars_per_million_prompt_tokens=1000", "llm.dollars_per_million_completion_tokens=1000"]
ASKING = ["llm=openai", "llm.model=fake", "llm.api=completions", "llm.when_away=wait", "llm.limits.dollars=1000"]
ASKING += [*PRICED, f"llm.concurrency={CONCURRENCY}", "llm.retry.cap_s=0.5", "llm.retry.failures=1000"]
ASKING += ["llm.retry.attempts=50", "llm.retry.burst=1000"]
TOY = ["env=toy/Line", "actors.n=2", "actors.envs=4", "actors.steps=8", "evaluate.episodes=8", "evaluate.videos=0"]
EXACT = ["sync=true", "policy.hidden=16", "learner.env_steps=640", "evaluate.every=256"]
SEARCH = ["method=lgqd", "env=navigation", "env.length=40", "stages=[search]", "method.search.thresholds=[0.5]"]
SEARCH += ["method.search.generations=12", "method.search.offspring=16", "method.search.population=16"]
GLAM = ["experiment=glam_small", "policy.lm.folder=tiny-t5", "policy.lm.placement=server"]
GLAM += ["stages=[train]", "sync=true", "actors.n=2", "actors.envs=4", "actors.steps=5", "learner.minibatch=20"]
GLAM += ["learner.env_steps=160", "evaluate.every=0"]
ZERO_SHOT = [*TOY, "method=zero_shot", "evaluate.greedy=false"]
SLOW = ["env.step_seconds=0.01"]
WORDS = {
    "train": [*TOY, *EXACT, "method=ppo", "cluster=inline"],
    "search": [*SEARCH, "cluster=inline", "actors.n=1"],
    "ask": [*ZERO_SHOT, "cluster=inline", "env=babyai/GoToLocal", "evaluate.episodes=2"],  # toy has few questions
    "train on Ray": [*TOY, *EXACT, *SLOW, "method=ppo", "actors.restarts=1"],
    "search on Ray": [*SEARCH, "actors.n=2", "method.search.generations=40"],
    "ask on Ray": [*ZERO_SHOT, *SLOW, "evaluate.episodes=32"],
    "policy server": GLAM,
}
"""Words of `launch.py run`."""
QUESTIONS = 24
ROLES = {
    "actor": ("ray::RolloutActor", "ray::NoveltyEvaluator"),
    "learner": ("ray::Learner",),
    "service": ("ray::LanguageRole",),
    "policy server": ("ray::PolicyServer",),
}
"""Processes of roles on Ray, by their names."""


class Work:
    """One work in a folder.

    disk: all that it writes lies here: the run `a`, the service's `llm`.
    """

    def __init__(self, name: str, disk: Path, outside: Outside) -> None:
        self.name, self.disk, self._outside = name, disk, outside
        self.run = disk / "a"
        self.asks = name in ("label", "ask", "ask on Ray")
        self.money = {"label": disk / "labels", "ask": disk / "llm"}.get(name, self.run / "llm")
        if name == "label":
            lines = ({"question": f"is ball {i} red?", "context": [f"You see ball {i}"]} for i in range(QUESTIONS))
            self._inputs = disk.parent / "in.jsonl"
            self._inputs.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def command(self) -> list[str]:
        """What begins it, or goes on with it."""
        url = f"llm.base_url={self._outside.url}"
        if self.name == "label":
            files = ["yes_no", str(self._inputs), str(self.disk / "out.jsonl"), "env=toy/Line"]
            durable = ["llm.durable.claim_idle_s=1", "llm.durable.batch=4", "llm.durable.deliveries=50"]
            return ["launch.py", "llm", "label", *files, *ASKING, url, *durable, f"--folder={self.disk / 'labels'}"]
        if (self.run / "config.yaml").exists():
            return ["launch.py", "resume", str(self.run)]
        words = [*WORDS[self.name], f"run.folder={self.disk}", "run.name=a", "run.checkpoint_every_s=0.0001"]
        words += ["run.log_every_s=0.2"]
        if "inline" not in "".join(words):
            words += ["cluster=local", "cluster.dashboard=false"]
        if self.name == "ask":
            words += [f"llm.address=127.0.0.1:{self._outside.port}", "llm.when_away=wait"]
        elif self.asks:
            words += [*ASKING, url]
        return ["launch.py", "run", *words]

    def service(self) -> list[str] | None:
        """What starts the LLM service that stands beside it, if one does."""
        if self.name != "ask":
            return None
        words = [word.replace("llm.", "").replace("llm=", "name=") for word in ASKING]
        words = [word for word in words if not word.startswith("when_away")]
        listen = f"server.listen=127.0.0.1:{self._outside.target}"
        return ["service", *words, f"base_url={self._outside.url}", listen, "--folder", str(self.disk / "llm")]

    def progress(self) -> float:
        """How far it is: of what counts here, so many."""
        if self.asks:
            return float(len(lines(self.money / "journal.jsonl")))
        if "search" in self.name:
            place = self.run / "stages" / "search" / "checkpoints-0"
            return max((float(path.name[1:9]) for path in place.glob("v*")), default=0.0)
        try:
            return float(json.loads((self.run / "status.json").read_text()).get("env_steps", 0))
        except (OSError, ValueError):
            return 0.0

    def truth(self) -> dict[str, Any]:
        """What must be the same whatever happened on the way."""
        if self.name == "label":
            return {"answers": (self.disk / "out.jsonl").read_text()}
        found: dict[str, Any] = {}
        if "search" in self.name:
            found["counts"] = read(self.run / "stages" / "search" / "manifest.json")["counts"]
            found["archive"] = Archive.read(self.run / "stages" / "search" / "archive-0").digest()
        if (results := self.run / "stages" / "evaluate" / "results.json").exists():
            found["evaluated"] = {k: v for k, v in read(results).items() if k in ("success", "return", "by_kind")}
        if (saved := checkpoint.latest(self.run / "checkpoints")) is not None:
            counters = saved.record["counters"]
            kept = ("version", "env_steps", "episodes", "chunks", "dropped_chunks")
            found["counters"] = {name: counters[name] for name in kept}
            content = b"".join(k.encode() + v.tobytes() for k, v in sorted(saved.arrays["model"].items()))
            found["weights"] = hashlib.sha256(content).hexdigest()
            rows = [json.loads(line) for line in lines(self.run / "metrics.jsonl")]
            found["rows"] = [(row["version"], row["env_steps"]) for row in rows if row["kind"] == "train"]
        return found

    def trouble_with_money(self, chances: int, lost: set[str], ledger_lost: bool) -> list[str]:
        """What was paid twice, or is not in the books.

        chances: how often calls may have been under way when their service ended without writing down the answers.
        lost: keys of answers that were damaged on purpose: these are paid for again.
        ledger_lost: whether the ledger was.
        """
        billed = self._outside.billed()
        journal = [json.loads(line) for line in lines(self.money / "journal.jsonl")]
        times, found = Counter(line["key"] for line in journal), list[str]()
        if max(times.values(), default=0) > 1:
            found.append(f"an answer stands twice in the journal: {times.most_common(1)}")
        if set(billed) - lost != set(times) - lost:
            found.append(f"paid for {len(billed)}, written down {len(times)}")
        again = sum(n - 1 - (key in lost) for key, n in billed.items() if n > 1)
        if again > chances * CONCURRENCY:
            found.append(f"{again} calls were paid for again, where at most {chances * CONCURRENCY} were under way")
        book = ledger.read(self.money / "ledger.jsonl")
        if not ledger_lost and book.calls < billed.total():
            found.append(f"the ledger has {book.calls} calls, the provider {billed.total()}")
        if not ledger_lost and not lost and book.dollars < sum(line["dollars"] for line in journal) - 1e-9:
            found.append(f"the ledger has {book.dollars} dollars, the journal more")
        return found


def read(path: Path) -> dict[str, Any]:
    """A JSON file."""
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def lines(path: Path) -> list[bytes]:
    """The whole lines of a file; none if it is not there."""
    if not path.exists():
        return []
    with open(path, "rb") as file:
        return [line for line in file if line.endswith(b"\n")]
