"""Random numbers of the scripted model: a function of its seed and the question, the same in any process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llm_service.records import digest


class Chance:
    """Random numbers that are a function of a question, the same wherever and whenever it is asked."""

    def __init__(self, seed: int, question: str, rates: Mapping[str, float]) -> None:
        self._seed, self._question = seed, f"{seed} {question}"
        self.rates = rates
        self._picks = 0

    def share(self, purpose: str) -> float:
        """Uniform in [0, 1), for one purpose."""
        return int(digest(self._question, purpose)[:13], 16) / 16**13

    def misbelieves(self, question: str, fact: bool, dissent: float = 0.0) -> bool:
        """Whether a fact is misjudged. Depends only on the question's words, whatever the call.

        dissent: the share of people who disagree with the fact, in [0, 1].
        """
        share = int(digest(f"{self._seed} belief", question)[:13], 16) / 16**13
        return share < self.rates["false_no" if fact else "false_yes"] + self.rates["dissent"] * dissent

    def malformed(self) -> bool:
        """Whether the whole reply is outside the grammar."""
        return self.share("malformed") < self.rates["malformed"]

    def mistake(self, purpose: str, kinds: Sequence[str]) -> str:
        """The kind of mistake that is made; "" if none."""
        left = self.share(purpose)
        for kind in kinds:
            if left < self.rates[kind]:
                return kind
            left -= self.rates[kind]
        return ""

    def pick(self, options: Sequence[str]) -> str:
        """One of some texts; each pick uses a new random number."""
        self._picks += 1
        return options[int(self.share(f"pick {self._picks}") * len(options))]
