"""Where the published data of Housekeep is, for tests that compare with it."""

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("CAIRN_HOUSEKEEP_DATA", "") or "missing")
DATA = FOLDER / "data.npy"
SCENES = tuple(sorted(FOLDER.glob("*_int.json.gz")))
needs_data = pytest.mark.skipif(
    not DATA.is_file() or not SCENES,
    reason="the published data of Housekeep is not here: set CAIRN_HOUSEKEEP_DATA to a folder with data.npy and "
    "<Scene>_int.json.gz of github.com/yashkant/housekeep",
)
