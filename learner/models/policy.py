"""placeholder body follows"""

from __future__ import annotations

from typing import Literal

from envs.config import Part


class PolicyConfig(Part):
    """What the policy network looks like."""

    network: str = "film"
    """Module of `learner/models` that encodes observations: `film` (grid + mission), `mlp` (everything flattened)."""
    memory: Literal["none", "gru"] = "none"
    """`gru` gives the policy a recurrent state; `none` reacts to the current observation only."""
    hidden: int = 128
    """Width of the features, and of the recurrent state."""
    text: Literal["learned", "minilm"] = "learned"
    """How texts are encoded: tokens + GRU trained with the policy, or frozen MiniLM sentence embeddings + a projection."""
