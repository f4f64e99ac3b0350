"""Where people say that things belong, and how far answers agree with them.

table               preferences by their name or file
Preferences         the answers of ten raters, and what is right in a house     (preferences)
published.read      those of people, from the published file, never unpickled   (published)
own.preferences     ours: affinities written by hand, raters simulated          (affinities, own)
episodes.read       published episodes                                          (episodes)
"""

from __future__ import annotations

from pathlib import Path

from envs.housekeep.people import own, published
from envs.housekeep.people.preferences import MAJORITY, RATERS, Preferences

__all__ = ["MAJORITY", "OWN", "RATERS", "Preferences", "table"]

OWN = "own"


def table(source: str | Path = OWN) -> Preferences:
    """Our own preferences, or those of a file: a published data.npy, or what `Preferences.save` wrote.

    Raises:
        ValueError: one sentence with the path: the file cannot be read or is another one.
    """
    if source == OWN:
        return own.preferences()
    return published.read(source) if Path(source).suffix == ".npy" else Preferences.load(source)
