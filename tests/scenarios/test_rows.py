"""Every bad day of the list is lived through, or shown by a test that exists."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from lived import Lived, complaints
from rows import ROWS, Shown

from unbroken.testing.patches import patched

ROOT = Path(__file__).resolve().parents[2]
LIVED = [
    pytest.param(row, id=f"row {number}, {place}")
    for number, rows in ROWS.items()
    for place, row in enumerate(rows)
    if isinstance(row, Lived)
]


def test_no_row_is_missing():
    """Thirty rows, and each is shown somehow."""
    assert sorted(ROWS) == list(range(1, 31))
    assert all(ROWS.values())


@pytest.mark.parametrize("row", LIVED)
def test_the_day_happens_and_nothing_goes_wrong(row: Lived):
    """What is said shows that it happened; the checkers look at the rest."""
    wrong = complaints(row)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("row", [each for each in LIVED if each.values[0].without])
def test_without_its_rule_the_day_goes_another_way(row: Lived):
    """So that it is that rule which saved it."""
    with patched(row.without()):
        assert complaints(row)


def test_whoever_is_not_lived_says_why():
    """Or nobody would know whether it was forgotten."""
    silent = [
        number
        for number, rows in ROWS.items()
        if not any(isinstance(row, Lived) or row.because for row in rows)
    ]
    assert silent == []


def test_the_tests_that_are_named_exist():
    """A test that was renamed would leave its row to nobody."""
    missing = []
    for number, rows in ROWS.items():
        for name in [name for row in rows if isinstance(row, Shown) for name in row.tests]:
            file, _, function = name.partition("::")
            tree = ast.parse((ROOT / file).read_text())
            names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            if function not in names:
                missing.append(f"row {number}: {name}")
    assert missing == []
