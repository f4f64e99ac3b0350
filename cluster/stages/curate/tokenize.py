"""The vocabulary of the training texts (`learner/behaviours/words.py`)."""

from __future__ import annotations

from cluster.runs.stage import Outcome
from cluster.stages._shared.lgqd import TOKENIZER, BehaviourStage
from learner.behaviours import words


def run(work: BehaviourStage) -> Outcome | None:
    settings, texts = work.method.tokenize, work.texts()
    table, rows = work.part("train")
    corpus = [text for number in table.id[rows].tolist() for text, _ in texts.get(number, [])]
    tokenizer = words.train_tokenizer(corpus, settings.size, settings.least)
    longest = max(map(len, words.encode(tokenizer, corpus, settings.longest)))
    work.folder.write(work.place / TOKENIZER, tokenizer.to_str())
    return Outcome({"entries": tokenizer.get_vocab_size(), "longest": longest})
