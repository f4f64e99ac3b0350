"""Shares of work, each played by one actor from its first part to its last.

    waiting ──an idle actor each──> play(share), about a second ──> how many parts are done ──> the same actor again

An actor's progress is only in its own memory. So only that actor can continue its share, and a share that was lost with
its actor starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol, TypeVar

from cluster.runs.stage import StageEngine


class Played(Protocol):
    """An actor's answer."""

    @property
    def number(self) -> int:
        """Parts of its share that are done."""
        ...


Share = TypeVar("Share", bound=Hashable)


def play(
    engine: StageEngine,
    setup: Any,
    role: type[Any],
    shares: Mapping[Share, int],
    parts: int,
    whole: frozenset[Share] = frozenset(),
    keep: Callable[[Share, Any], None] = lambda share, played: None,
) -> bool:
    """Play shares to the end. False if the run was asked to stop first.

    setup, role: of the actors, which have `play(share) -> Played`.
    shares: all shares, with the amount of work in each.
    parts: parts of each share.
    whole: shares that are finished already.
    keep: called with the result of a share's last part.
    """
    waiting = [share for share in shares if share not in whole]
    if not waiting:
        return True
    crew, left = engine.start_crew(setup, role, "actor"), len(waiting)
    done = {share: parts if share in whole else 0 for share in shares}
    while left and not engine.stop.reason:
        engine.given.look_after()
        for actor in crew.idle()[: len(waiting)]:
            share = waiting.pop(0)
            crew.give(actor, share, "play", share)
        found: list[tuple[int, Share, Any, Played | None]] = crew.collect([], timeout=0.5)[0]
        for actor, share, _, played in found:
            done[share] = played.number if played else 0
            if done[share] == parts:
                keep(share, played)
                left -= 1
            elif played and actor in crew.idle():
                crew.give(actor, share, "play", share)
            else:
                waiting.insert(0, share)
        part = sum(done[share] * much for share, much in shares.items()) / (parts * sum(shares.values()))
        engine.progress.line(f"{engine.stage.name}  {part:.0%}  actors {crew.alive}/{engine.config.actors.n}")
    crew.kill()
    return not left
