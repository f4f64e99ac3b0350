"""Tiny real models, trained here: a T5 and a Llama-like one in seconds, a T5 that reads in minutes; one tokenizer.

    python -m llm_service.tiny OUT [--corpus FILE]     ->  OUT/t5  OUT/llama     Hugging Face folders, safetensors

`folder("tiny-t5")` is the folder of such a model on this machine; it is created on first use.

    tiny-llama        predicts the next token                                              120 steps
    tiny-t5           completes a sentence from its first words                            120 steps
    tiny-t5-reader    ... if the whole sentence is in a text of some sentences before it 3,000 steps

All are trained on sentences of the environments. Expect no more of the first two than that real sentences score better
than shuffled ones. The reader uses its input: a sentence from the input is far more likely. An agent that can read this
much learns what to do from a third of the episodes. The same corpus gives the same bytes on the same machine and
library versions.
"""

# mypy: allow-untyped-calls
# Transformers says that it is typed; some of its functions are not.

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from llm_service.errors import UsageError

CORPUS = Path(__file__).parent / "corpus" / "worlds.txt"
PAD, START, END = "<pad>", "<s>", "</s>"  # token ids 0, 1, 2
SPECIAL: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
VOCABULARY = 1024
NAMES = ("tiny-t5", "tiny-llama", "tiny-t5-reader")
WIDTH = 64
PIECES = r" ?You see an?| ?\d steps? (?:left|right|forward)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""What a token may span: phrases of captions, otherwise a word, a number or signs."""
HEADINGS = "Actions: Task: Saw: Did: See: Do:"
"""Words of acting prompts, for the tokenizer: spelled in letters, they would be half of a prompt."""
STEPS = 120
READING_STEPS = 3000
"""Until about step 1,000 it predicts what is likely anywhere; after that, what is in the text."""
MOST_READ = 8  # sentences
BATCH = 32
RATE = 3e-3


def build(out: Path, corpus: Path | None = None, kinds: Sequence[str] = ("llama", "t5")) -> None:
    """Make `out/llama` and `out/t5`, replacing existing ones.

    Args:
        out: folder; created if missing.
        corpus: file with one sentence per line; None: the sentences of all environments.
        kinds: which of `llama`, `t5` and `t5-reader` to make.

    Raises:
        UsageError: the corpus cannot be read or has no sentences, or `out` cannot be written.
    """
    sentences = _sentences(corpus or CORPUS)
    try:
        out.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".tiny.", dir=out))
    except OSError as error:
        raise UsageError(f"cannot write to {out}: {error.strerror}") from None
    try:
        with _reproducible():
            tokens = _tokenizer(sentences)
            for name in kinds:
                model, tokenizer = _MAKERS[name](tokens, sentences)
                model.save_pretrained(work / name)
                tokenizer.save_pretrained(work / name)
        for name in kinds:
            _take_the_place(work / name, out / name)
    except OSError as error:
        raise UsageError(f"cannot write to {out}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def folder(name: str) -> Path:
    """The folder of a model of `NAMES`, trained on the environments' sentences, in this user's cache.

    Raises:
        UsageError: there is no such model, or the cache cannot be written.
    """
    if name not in NAMES:
        raise UsageError(f"there is no tiny model {name!r}: there are {' and '.join(NAMES)}")
    made_of = hashlib.blake2b(Path(__file__).read_bytes() + CORPUS.read_bytes(), digest_size=6).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cairn" / f"tiny-{made_of}"
    kind = name.removeprefix("tiny-")
    with _alone(cache):
        if not (cache / kind).is_dir():
            if kind == "t5-reader":
                print(f"{name} is trained once on this machine; learning to read takes some minutes", file=sys.stderr)
            build(cache, kinds=(kind,))
    return cache / kind


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """One process at a time: others wait until their model exists."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = open(cache / ".lock", "w")  # noqa: SIM115 # closed below
    except OSError as error:
        raise UsageError(f"cannot write to {cache}: {error.strerror}; set XDG_CACHE_HOME") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sentences(path: Path) -> list[str]:
    try:
        found = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise UsageError(f"cannot read the corpus {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"the corpus {path} is not UTF-8 text") from None
    if not any(" " in sentence for sentence in found):
        raise UsageError(f"the corpus {path} has no sentence of two or more words")
    return found


def _take_the_place(new: Path, old: Path) -> None:
    """Rename over a folder that may exist; the old one is deleted only after the new one exists."""
    aside = new.with_name(f"{new.name}.old")
    if old.exists():
        old.rename(aside)
    new.rename(old)


@contextmanager
def _reproducible() -> Iterator[None]:
    """One thread and our own random state; the caller's are restored afterwards."""
    import torch
    from transformers.utils import logging

    threads, parallel = torch.get_num_threads(), os.environ.get("TOKENIZERS_PARALLELISM")
    shows_bars = logging.is_progress_bar_enabled()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            yield
    finally:
        torch.set_num_threads(threads)
        if shows_bars:
            logging.enable_progress_bar()
        if parallel is None:
            del os.environ["TOKENIZERS_PARALLELISM"]
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = parallel


def _tokenizer(sentences: list[str]) -> Any:
    """Byte-level byte-pair encoding: any text has an encoding, and decodes to itself.

    A token may be a common phrase of captions, so that prompts of a tiny model are short. A colour and a noun stay two
    tokens, so that an unseen pair is not a new word.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = pre_tokenizers.Split(Regex(PIECES), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_of])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, START, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # A word may be at the start of a text or after a blank; both forms are learned.
    learned = [HEADINGS, *sentences]
    tokenizer.train_from_iterator([*learned, *(f" {sentence}" for sentence in learned)], trainer)
    return tokenizer


def _wrapped(tokenizer: Any, single: str) -> Any:
    """The tokenizer for `transformers`, with special tokens around one text as in `single`."""
    from tokenizers import Tokenizer, processors
    from transformers import PreTrainedTokenizerFast

    own = Tokenizer.from_str(tokenizer.to_str())
    own.post_processor = processors.TemplateProcessing(single=single, special_tokens=[(START, 1), (END, 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=own,
        pad_token=PAD,
        bos_token=START,
        eos_token=END,
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )


def _llama(tokens: Any, sentences: list[str]) -> tuple[Any, Any]:
    """Two layers, four query heads on two key-value heads; tokens <s> text, and </s> where it ends."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=tokens.get_vocab_size(),
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        **SPECIAL,
    )
    model = LlamaForCausalLM(config)

    def batch(generator: random.Random) -> dict[str, Any]:
        chosen = generator.choices(sentences, k=BATCH)
        ids, mask = _padded([[1, *tokens.encode(sentence).ids, 2] for sentence in chosen])
        return {"input_ids": ids, "attention_mask": mask, "labels": torch.where(mask == 1, ids, -100)}

    _train(model, batch, STEPS)
    return model, _wrapped(tokens, f"{START} $A")


def _t5(tokens: Any, sentences: list[str]) -> tuple[Any, Any]:
    """Trains to complete sentences."""

    def task(generator: random.Random) -> tuple[str, str]:
        words = generator.choice(sentences).split()
        cut = generator.randint(1, max(1, len(words) - 1))
        return " ".join(words[:cut]), " ".join(words[cut:])

    return _t5_of(tokens, task, STEPS)


def _reader(tokens: Any, sentences: list[str]) -> tuple[Any, Any]:
    """Trains to complete a sentence that is in the input, among others."""
    told = [sentence if sentence.endswith(".") else f"{sentence}." for sentence in sentences if " " in sentence]

    def task(generator: random.Random) -> tuple[str, str]:
        text = generator.sample(told, generator.randint(1, min(MOST_READ, len(told))))
        words = generator.choice(text).split()
        cut = generator.randint(1, len(words) - 1)
        return " ".join([*text, *words[:cut]]), " " + " ".join(words[cut:])

    return _t5_of(tokens, task, READING_STEPS)


def _t5_of(tokens: Any, task: Callable[[random.Random], tuple[str, str]], steps: int) -> tuple[Any, Any]:
    """Two encoder and two decoder layers; tokens text </s>, answers begin with <pad> and end with </s>."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=tokens.get_vocab_size(),
        d_model=WIDTH,
        d_kv=16,
        d_ff=2 * WIDTH,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        feed_forward_proj="gated-gelu",
        **SPECIAL | {"decoder_start_token_id": 0},
    )
    model = T5ForConditionalGeneration(config)

    def batch(generator: random.Random) -> dict[str, Any]:
        tasks = [task(generator) for _ in range(BATCH)]
        ids, mask = _padded([[*tokens.encode(given).ids, 2] for given, _ in tasks])
        answers, answered = _padded([[*tokens.encode(rest).ids, 2] for _, rest in tasks])
        return {"input_ids": ids, "attention_mask": mask, "labels": torch.where(answered == 1, answers, -100)}

    _train(model, batch, steps)
    return model, _wrapped(tokens, f"$A {END}")


def _padded(rows: list[list[int]]) -> tuple[Any, Any]:
    """Rows of ids -> ids and mask, int64 [N, longest], padded on the right with 0."""
    import torch

    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    return ids, torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])


def _train(model: Any, batch: Callable[[random.Random], dict[str, Any]], steps: int) -> None:
    """Some steps of AdamW with a learning rate that falls to zero."""
    import torch

    generator = random.Random(0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE)
    model.train()
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = RATE * (1 - step / steps)
        loss = model(**batch(generator)).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    model.eval()


_MAKERS: dict[str, Callable[[Any, list[str]], tuple[Any, Any]]] = {"llama": _llama, "t5": _t5, "t5-reader": _reader}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\n")


def main(arguments: list[str] | None = None) -> int:
    """The command. Exit code 2 and one sentence if it fails."""
    parser = _Parser(prog="python -m llm_service.tiny", description="Make two tiny real models.")
    parser.add_argument("out", type=Path, help="folder for t5/ and llama/")
    parser.add_argument("--corpus", type=Path, help="one sentence per line; default: the sentences of all environments")
    chosen = parser.parse_args(arguments)
    try:
        build(chosen.out, chosen.corpus)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
