"""Text encoders: from a mission or a caption to a code, of which a network makes features.

Texts are prepared once per unique text (`prepare`: strings to a tensor row) and encoded once per unique text of a
batch (`forward`); the caller gathers rows by index. Rows are prepared alone, so that a text's row does not depend on
its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from learner.models import word_windows
from learner.models.config import PolicyConfig
from learner.optim.precision import whole
from llm_service.embedding import MINILM_WIDTH, embed_one

PADDING = 0
UNKNOWN = 1
EMBEDDED = 32  # numbers of a word
PLACES = 64  # further words share the last
MOST_EMBEDDED = 100_000  # texts with cached embeddings, 0.2 GB; then the cache is cleared


class Words(nn.Module):
    """Texts as rows of words. An unknown word has a row of its own.

    words: the world's vocabulary.
    """

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__()
        self.row_of_word = {word: row for row, word in enumerate(sorted(words), start=2)}

    def prepare(self, texts: Sequence[str]) -> Tensor:
        """Texts -> int64 tokens [U, L], padded on the right to the longest of them."""
        rows = [
            [self.row_of_word.get(word, UNKNOWN) for word in text.lower().replace(",", " ").replace(".", " ").split()]
            for text in texts
        ]
        longest = max([1, *map(len, rows)])
        return torch.tensor([row + [PADDING] * (longest - len(row)) for row in rows], dtype=torch.int64)


class LearnedText(Words):
    """Words in their places, trained with the policy.

    Every word with its two neighbours -> Linear -> the largest of each feature over the text. A place is the distance
    from the beginning, so "the ball" first and "the ball" last can mean different things. Three times as fast as a GRU.

    width: size of the code.
    """

    def __init__(self, words: Sequence[str], width: int) -> None:
        super().__init__(words)
        self.embedding = nn.Embedding(len(self.row_of_word) + 2, EMBEDDED, padding_idx=PADDING)
        self.place = nn.Embedding(PLACES, EMBEDDED)
        self.window = nn.Linear(3 * EMBEDDED, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """int64 tokens [U, L] -> codes [U, width]."""
        if tokens.device.type == "cpu" and self.window.weight.dtype == torch.float32:
            window = self.window
            return word_windows.read(self.embedding.weight, self.place.weight, window.weight, window.bias, tokens)
        return self.plainly(tokens)

    def plainly(self, tokens: Tensor) -> Tensor:
        """`forward` by plain operations, on any device."""
        place = torch.arange(tokens.shape[1], device=tokens.device).clamp(max=PLACES - 1)
        silent = (tokens == PADDING).unsqueeze(-1)
        words = (self.embedding(tokens) + self.place(place)).masked_fill(silent, 0.0)
        beside = nn.functional.pad(words, (0, 0, 1, 1))
        windows = torch.cat([beside[:, :-2], beside[:, 1:-1], beside[:, 2:]], -1)
        features = torch.relu(self.window(windows)).masked_fill(silent, 0.0)
        return features.amax(1)


class GRUText(Words):
    """Words read one after the other, trained with the policy: relates words that are far apart in a long text.

    width: of a word's embedding, and of the code.
    """

    def __init__(self, words: Sequence[str], width: int) -> None:
        super().__init__(words)
        self.embedding = nn.Embedding(len(self.row_of_word) + 2, width, padding_idx=PADDING)
        self.gru = nn.GRU(width, width, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        """int64 tokens [U, L] -> codes [U, width], the state after the last word; of no words, after a padding."""
        length = (tokens != PADDING).sum(1).clamp(min=1)
        if tokens.device.type != "cpu":  # packing asks for the lengths
            with whole(tokens.device.type):  # autocast would make it float16, whose small gradients are 0
                states = self.gru(self.embedding(tokens).float())[0]
            return states.take_along_dim((length - 1)[:, None, None], 1).squeeze(1)  # type: ignore[no-any-return]
        packed = nn.utils.rnn.pack_padded_sequence(self.embedding(tokens), length, True, enforce_sorted=False)
        codes: Tensor = self.gru(packed)[1][0]
        return codes


class FrozenMiniLM(nn.Module):
    """MiniLM sentence embeddings (384, unit length, never trained) + a trained projection.

    width: size of the code. None: codes are the embeddings, and the network has a projection for each text field.
    """

    def __init__(self, width: int | None) -> None:
        super().__init__()
        self.projection = nn.Linear(MINILM_WIDTH, width) if width else None
        self._row_of: dict[str, int] = {}  # of `_embeddings`, which is no buffer: no checkpoint needs it
        self._embeddings = torch.zeros(64, MINILM_WIDTH)

    def prepare(self, texts: Sequence[str]) -> Tensor:
        """Texts -> float32 embeddings [U, 384], each computed once per process and alone."""
        if len(self._row_of) > MOST_EMBEDDED:
            self._row_of.clear()
        for text in texts:
            if text not in self._row_of:
                if len(self._row_of) == len(self._embeddings):
                    self._embeddings = torch.cat([self._embeddings, torch.zeros_like(self._embeddings)])
                self._embeddings[len(self._row_of)] = torch.from_numpy(embed_one(text).copy())
                self._row_of[text] = len(self._row_of)
        return self._embeddings[[self._row_of[text] for text in texts]]

    def forward(self, embeddings: Tensor) -> Tensor:
        """float32 [U, 384] -> codes [U, width]."""
        return embeddings if self.projection is None else torch.tanh(self.projection(embeddings))


def code_width(config: PolicyConfig) -> int:
    """Size of the codes that a network gets which publishes `of_texts`."""
    return MINILM_WIDTH if config.text == "minilm" else config.hidden
