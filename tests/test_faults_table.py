"""Every fault in docs/faults.md names tests, and those tests exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "faults.md"
NODE = re.compile(r"`(tests/[^`]+)`")


def _rows(section: str) -> list[str]:
    """The rows of the table under a heading, without its head."""
    _, _, after = TABLE.read_text(encoding="utf-8").partition(f"## {section}\n")
    lines = [line for line in after.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return lines[2:]


KEPT_OUT = _rows("Kept out")
NODES = sorted({node for row in KEPT_OUT for node in NODE.findall(row)})


@functools.cache
def _tests(path: Path) -> frozenset[str]:
    """The tests of a module, as they stand behind "::" in a node id."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            methods = [one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
            found |= {f"{node.name}::{name}" for name in methods}
    return frozenset(name for name in found if name.split("::")[-1].startswith("test_"))


def test_there_is_a_table() -> None:
    assert len(KEPT_OUT) > 20
    assert _rows("Not here yet")


@pytest.mark.parametrize("row", KEPT_OUT, ids=lambda row: row.split("|")[1].strip()[:60])
def test_each_fault_has_its_symptom_its_remedy_and_a_test(row: str) -> None:
    _, symptom, remedy, tests, _ = row.split("|")
    assert len(symptom.strip()) > 20
    assert len(remedy.strip()) > 20
    assert NODE.findall(tests)
    assert NODE.sub("", tests).replace("<br>", "").strip() == ""


@pytest.mark.parametrize("node", NODES)
def test_each_test_that_is_named_exists(node: str) -> None:
    path, _, name = node.partition("::")
    assert (ROOT / path).is_file(), f"{path} is not there"
    assert name in _tests(ROOT / path), f"{path} has no {name}; rename it in {TABLE.relative_to(ROOT)} too"


def test_no_test_is_named_where_nothing_exists_yet() -> None:
    assert not [row for row in _rows("Not here yet") if NODE.search(row)]
