"""Is every file of a folder whole? Then it parses, ends where it should, and has the hash that a manifest names."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow.parquet
import safetensors.numpy
import yaml

from learner import checkpoint
from learner.store.archive import Archive


def torn(folder: Path, but: Path | None = None) -> list[str]:
    """What is not whole, one sentence each. `but`: a file that was damaged on purpose, and what names its hash."""
    found = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path == but or path.name.startswith(".") or "redis" in path.parts:
            continue
        try:
            _read(path, but)
        except Exception as error:
            found.append(f"{path.relative_to(folder)}: {type(error).__name__}: {error}")
    return found


def _read(path: Path, but: Path | None) -> None:
    match path.suffix:
        case ".json":
            about = json.loads(path.read_bytes())
            if path.name == "manifest.json":
                _manifest(path.parent, about, but)
            elif path.name.startswith("archive"):
                Archive.read(path.parent).verify()
        case ".jsonl":
            content = path.read_bytes()
            assert not content or content.endswith(b"\n"), "its last line is cut"
            if ".damaged" not in path.suffixes:
                for line in content.splitlines():
                    json.loads(line)
        case ".yaml":
            assert isinstance(yaml.safe_load(path.read_text()), dict)
        case ".safetensors":
            safetensors.numpy.load_file(path)
        case ".parquet":
            pyarrow.parquet.read_table(path)
        case ".html":
            assert path.read_text().rstrip().endswith("</html>"), "its end is missing"
        case _ if path.name == "LATEST":
            assert checkpoint.NAME.fullmatch(path.read_text())


def _manifest(folder: Path, about: dict[str, object], but: Path | None) -> None:
    if but is not None and but.parent == folder:
        return
    if "sha256" in about:
        checkpoint.read(folder)
    files = about.get("files", {})
    assert isinstance(files, dict)
    for name, digest in files.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, f"{name} is not what it says"
