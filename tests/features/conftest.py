"""The answers of an undisturbed run, computed once for all tests that compare with them."""

from __future__ import annotations

import kinds
import pytest

import unbroken as ub


@pytest.fixture(scope="session")
def undisturbed() -> dict[str, list[ub.Epoch]]:
    """What every fragment of `kinds` makes of `kinds.epochs(kinds.COUNT)`, per stream."""
    return ub.run(kinds.query, kinds.epochs(kinds.COUNT))
