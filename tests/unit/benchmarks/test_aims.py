# SPDX-License-Identifier: Apache-2.0
"""That every aim which a load can say is understood: one that is not would never be missed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.aims import PULSAR, judged
from benchmarks.results import HOUSE, KEPT, last_measured

LIKE_AN_AIM = re.compile(r"^[≤≥] |^[\d.]+× →|^[\d.]+ \S+ → [\d.]|^[\d.]+ %$")
FIGURE = ("name", "value", "unit", "better", "aim")
TABLES_OF_WORDS = {
    # What prints a table and writes no rows: its aims are for whoever reads it.
    "admin.py",
    "bookie_adds.py",
    "bookie_isolation.py",
    "bookie_journal.py",
    "client.py",
}
MODULES = [path for path in sorted((HOUSE / "benchmarks").glob("*.py")) if path.name not in TABLES_OF_WORDS]


def words_of(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def figures_in(path: Path) -> Iterator[dict[str, ast.expr]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Figure":
            named = {each.arg: each.value for each in node.keywords if each.arg}
            yield {**dict(zip(FIGURE, node.args, strict=False)), **named}


def is_judged(aim: str, unit: str) -> bool:
    row = {"aim": aim, "unit": unit, "better": "less", "number": 1.0, "peers": {PULSAR: 1.0}, "unlike": []}
    return judged(row) is not None


UNITS = {unit for path in MODULES for figure in figures_in(path) if (unit := words_of(figure.get("unit"))) is not None}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_every_aim_in_the_loads_is_judged(path: Path) -> None:
    aims = {words for node in ast.walk(ast.parse(path.read_text())) if (words := words_of_aim(node)) is not None}
    unjudged = [aim for aim in sorted(aims) if not any(is_judged(aim, unit) for unit in UNITS)]
    assert unjudged == [], "in no unit that any figure has"
    pairs = {(words_of(figure.get("aim")), words_of(figure.get("unit"))) for figure in figures_in(path)}
    assert [(aim, unit) for aim, unit in pairs if aim and unit is not None and not is_judged(aim, unit)] == []


def words_of_aim(node: ast.AST) -> str | None:
    words = words_of(node) if isinstance(node, ast.expr) else None
    return words if words and LIKE_AN_AIM.search(words) and len(words) < 30 else None


def test_every_aim_of_the_page_is_judged() -> None:
    document = last_measured("peers", (KEPT,))
    assert document is not None
    aimed = {(row["aim"], row["unit"]) for row in document["rows"] if row["aim"]}
    assert len(aimed) > 10
    assert [(aim, unit) for aim, unit in sorted(aimed) if not is_judged(aim, unit)] == []
