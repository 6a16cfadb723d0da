"""`docs/models.md`: its tables say what the registry and the rules say."""

from __future__ import annotations

from pathlib import Path

from models.graph.states import RULES
from models.registry import models
from server.models_command import row

DOCUMENT = Path(__file__).parents[2] / "docs" / "models.md"


def table(first: str) -> list[list[str]]:
    """Cells of the table whose head begins with `first`, head and rule left out."""
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = []
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_every_variant_stands_in_the_table_with_what_it_can_do() -> None:
    assert table("name") == [list(row(model).values()) for model in models().values()]


def test_every_kind_of_state_stands_in_the_table_with_its_rule() -> None:
    expected = [
        [
            kind.value,
            rule.lifetime.value,
            ", ".join(sorted(agreement.value for agreement in rule.agreements)) if rule.agreements else "never",
            ", ".join(sorted(placement.value for placement in rule.placements)),
            rule.danger,
        ]
        for kind, rule in RULES.items()
    ]
    assert table("state") == expected
