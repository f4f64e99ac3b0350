"""How actors find the LLM service, and how long they wait for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from llm_service.interface import LLMClient
from llm_service.records import Status

DEADLINE_S = 300.0
"""Seconds that a step may wait for its scores."""
PAUSE_S = 1.0
"""Seconds before an unavailable model is asked again."""
PASSING = (Status.AWAY, Status.BUSY)
"""Failures after which the same question may be answered."""

WhenAway = Literal["none", "cached", "wait", "stop"]


@dataclass(frozen=True)
class LanguageSetup:
    """How a player finds the service. Plain data, sent to actors."""

    service: str  # its address, or its folder, which holds address and token
    when_away: WhenAway

    @property
    def patience_s(self) -> float:
        """How long to keep asking while the model is unavailable, seconds."""
        return DEADLINE_S if self.when_away == "wait" else 0.0

    def client(self, caller: str, when_away: Literal["none", "wait", "stop"]) -> LLMClient:
        """A new connection."""
        from llm_service.client import connect  # needs gRPC, which other players do not need

        return connect(self.service, caller=caller, when_away=when_away, deadline=DEADLINE_S)
