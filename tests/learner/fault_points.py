"""Points at which a process that writes files may die, or another may step in: before each change to a folder.

    with interrupted(folder, at=7, by=action): ...      action(unsynced) runs before the 7th change, once
    with interrupted(folder, at=is_it, by=action): ...  or before the first of which is_it("open /the/path") is true

Changes are what opens a file for writing, makes, renames or removes something, or waits for the disk. `unsynced` are
the files whose content nobody has waited for yet: a machine that loses power may lose it (`lose`).
"""

import os
import sys
from contextlib import contextmanager
from pathlib import Path

_watch = None  # an audit hook cannot be taken off again


def _audit(event, args):
    if _watch is not None and event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"):
        _watch(event, args)


sys.addaudithook(_audit)


@contextmanager
def interrupted(folder, at, by):
    """Yields a list whose length, afterwards, is the number of changes; the entries name them."""
    global _watch
    changes, unsynced, real, inside = [], set(), os.fsync, str(folder)
    met = False

    def changed(what):
        global _watch
        nonlocal met
        changes.append(what)
        if not met and (at(what) if callable(at) else len(changes) == at + 1):
            met = True
            watch, _watch = _watch, None  # what is done now is not of this writer
            by(sorted(unsynced))
            _watch = watch

    def watch(event, args):
        if event == "open":
            path, _, flags = args
            if not isinstance(path, str | Path) or not flags & (os.O_WRONLY | os.O_RDWR):
                return
        path = str(args[0])
        if event in ("os.remove", "os.rmdir") and args[1] >= 0:  # relative to an open folder
            path = f"{os.readlink(f'/proc/self/fd/{args[1]}')}/{path}"
        if not path.startswith(f"{inside}/"):
            return
        changed(f"{event} {path}")
        if event == "open":
            unsynced.add(path)
        elif event == "os.rename":
            to = str(args[1])
            moved = {p for p in unsynced if p == path or p.startswith(f"{path}/")}
            unsynced.difference_update(moved)
            unsynced.update(to + p[len(path) :] for p in moved)

    def fsync(handle):
        path = os.readlink(f"/proc/self/fd/{handle}")
        changed(f"os.fsync {path}")
        real(handle)
        unsynced.discard(path)

    os.fsync, _watch = fsync, watch
    try:
        yield changes
    finally:
        os.fsync, _watch = real, None


def lose(unsynced):
    """What a power failure may do to content that was not waited for: half of it is gone."""
    for path in unsynced:
        if os.path.isfile(path):
            os.truncate(path, os.path.getsize(path) // 2)
