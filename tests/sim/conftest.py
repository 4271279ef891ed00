"""The header of the report tells which seeds are fresh, so that a run can be repeated."""

from __future__ import annotations

from test_seeds import FIRST, FRESH


def pytest_report_header() -> str:
    """Printed before the first test, whether one fails or not."""
    return f"simulator: fresh seeds {FIRST} to {FIRST + FRESH - 1}"
