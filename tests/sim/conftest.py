"""The report tells which seeds are fresh before anything runs, so that a run can be repeated."""

from __future__ import annotations

from test_seeds import FIRST, FRESH


def pytest_report_collectionfinish() -> str:
    """Printed whether a test fails or not."""
    return f"simulator: fresh seeds {FIRST} to {FIRST + FRESH - 1}" if FRESH else ""
