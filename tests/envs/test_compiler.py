"""Machine code is kept under the name of its sources, and nothing else is touched."""

import os
import stat
import subprocess
import sys
import time

import pytest

PRINT = "from envs.compiler import folder; print(folder())"


def folder(root, code=PRINT):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(root), "PYTHONPATH": "."},
    )
    return done.stdout.strip(), done.stderr


def test_the_folder_of_these_sources_is_one_and_other_folders_stay(tmp_path):
    mine = tmp_path / "compiled-papers"
    recent = tmp_path / "cairn-compiled-0000"
    old = tmp_path / "cairn-compiled-1111"
    for path in (mine, recent, old):
        path.mkdir()
    long_ago = time.time() - 31 * 86_400
    os.utime(old, (long_ago, long_ago))
    first, _ = folder(tmp_path)
    assert first == folder(tmp_path)[0]
    assert mine.exists()
    assert recent.exists()
    assert not old.exists()


def test_code_is_kept_between_processes(tmp_path):
    use = "import numpy as np; from envs.native.random import draw; draw(np.zeros(1, np.uint64), 3)"
    folder(tmp_path, use)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")}
    assert kept
    folder(tmp_path, use)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")} == kept


def test_a_folder_that_cannot_be_written_is_a_sentence():
    _, error = folder("/proc/nowhere")
    assert "machine code cannot be kept in /proc/nowhere" in error
    assert "set NUMBA_CACHE_DIR" in error


def test_only_this_user_may_enter_the_folder(tmp_path):
    made, _ = folder(tmp_path, f"import os; os.umask(0); {PRINT}")
    assert stat.S_IMODE(os.stat(made).st_mode) == 0o700


@pytest.mark.parametrize("how", ["writable", "another's", "link"])
def test_a_folder_where_others_can_put_code_is_refused(tmp_path, how):
    made, _ = folder(tmp_path)
    code = PRINT
    if how == "writable":
        os.chmod(made, 0o770)
    elif how == "another's":
        code = f"import os; os.getuid = lambda: {os.getuid() + 1}; {PRINT}"
    else:
        os.rename(made, tmp_path / "elsewhere")
        os.symlink(tmp_path / "elsewhere", made)
    printed, error = folder(tmp_path, code)
    assert printed == ""
    last = error.strip().splitlines()[-1]
    assert last.startswith(f"OSError: machine code cannot be kept in {tmp_path} (")
    assert last.endswith("is not a folder that only this user can write to): set NUMBA_CACHE_DIR to a folder")
