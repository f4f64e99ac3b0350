"""placeholder body follows"""

from __future__ import annotations

from envs.config import Part


class ActorsConfig(Part):
    """The rollout actors."""

    n: int = 2
    """How many."""
    envs: int = 32
    """Envs of each actor; they are stepped together."""
    steps: int = 64
    """Steps T of a chunk."""
    restarts: int = 5
    """How often one actor may be restarted within `restart_window_s` before it is quarantined."""
    restart_window_s: float = 600.0
    """Seconds over which restarts are counted."""
    backoff_s: float = 0.5
    """Wait before the first restart; doubles with each further one in the window, at most 30 s."""
    timeout_s: float = 300.0
    """A rollout that takes longer is taken for hung: the actor is killed and restarted."""
