"""The engine of a judge stage: a language model rates some trials, and its ratings are compared with the rule.

episodes of a deploy stage, LLM ──> stages/<stage>/judgements.jsonl, results.json
"""

from __future__ import annotations

import numpy as np
import safetensors.numpy

from cluster.runs.folder import RunError
from cluster.runs.stage import Outcome
from cluster.stages._shared.asking import ask
from cluster.stages._shared.lgqd import EPISODES, BehaviourStage
from learner.behaviours import trials, words
from learner.behaviours.agreement import agreement

JUDGEMENTS = "judgements.jsonl"


class Engine(BehaviourStage):
    """From episodes to ratings."""

    def run(self) -> Outcome | None:
        settings, source = self.method.judge, self.given.artifact("deploy")
        asked = trials.load(self.given.artifact("split"))
        arrays = safetensors.numpy.load_file(source / EPISODES)
        chosen = np.random.default_rng([self.config.seed, 2]).permutation(len(asked))[: settings.trials]
        symbols = self.scene.symbols(arrays["pose"][chosen])
        items = []
        for row, trial in enumerate(chosen.tolist()):
            seen = words.told(self.scene, symbols, row, positions=True)
            item = {"observations": seen, "actions": [words.DRIVE] * (len(seen) - 1), "rubric": settings.rubric}
            items.append(item | {"questions": settings.questions, "instruction": asked[trial].text})
        lines, votes = [], []
        for vote in range(settings.votes):
            answers = ask(self.given, "judge_trajectory", items, sample=vote)
            if self.stop.reason:
                return None
            votes.append([answer.value["overall"] / 10 if answer.ok else np.nan for answer in answers])
            for trial, answer in zip(chosen.tolist(), answers, strict=True):
                said = answer.value if answer.ok else {"failed": answer.reason}
                lines.append({"trial": trial, "vote": vote} | said)
        self.write_lines(JUDGEMENTS, lines)
        told = ~np.isnan(votes).all(0)
        if not told.any():
            raise RunError(f"the language model judged nothing: {lines[0]['failed']}")
        opinion, rule = np.nanmean(np.array(votes)[:, told], 0), arrays["score"][chosen[told], 0].astype(np.float64)
        counts = {"judged": int(told.sum()), "of": len(chosen), "mean": float(opinion.mean())}
        found = agreement(opinion, rule, np.array([asked[trial].behaviour for trial in chosen[told].tolist()]))
        self.folder.write_json(self.place / "results.json", counts | {"with_rule": found})
        same = found["spearman"]["value"]
        words_of = "nothing to compare" if same is None else f"Spearman with the rule {same:.2f}"
        return Outcome(counts, lines=(f"judge: {told.sum()} of {len(chosen)} trials judged; {words_of}",))
