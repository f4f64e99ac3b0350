"""Every promise of docs/security.md names tests, and every test that it names is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
PROMISES = PAGE.partition("## What we promise")[2].partition("\n## ")[0]
ROWS = [line for line in PROMISES.splitlines() if line.startswith("| ") and not line.startswith("| promise |")]
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def functions_of(path):
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:50])
def test_a_promise_is_held_by_tests_that_exist(row):
    _, promise, held, _ = row.split("|")
    named = NAMED.findall(held)
    assert promise.strip()
    assert named, "it names no test"
    assert re.sub(NAMED, "", held).strip(" ,") == "", "beside tests stands something else"
    for file, name in named:
        path = ROOT / "tests" / file
        assert path.is_file(), f"there is no {file}"
        assert name.startswith("test_")
        assert name in functions_of(path), f"{file} has no {name}"


def test_there_are_promises_and_no_test_is_named_elsewhere():
    assert len(ROWS) > 20
    assert len(NAMED.findall(PAGE)) == len(NAMED.findall(PROMISES))


def test_a_hole_is_reported_in_private_and_no_address_is_made_up():
    told = (ROOT / "SECURITY.md").read_text()
    assert "Report a vulnerability" in told
    assert "docs/security.md" in told
    assert not re.search(r"[\w.]+@[\w.]+\.\w+", told)
