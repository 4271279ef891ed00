"""The answers of an undisturbed run, for all tests that compare with them."""

from __future__ import annotations

import answers
import pytest


@pytest.fixture(scope="session")
def undisturbed() -> dict[str, list[answers.Answer]]:
    """What every fragment of `kinds` makes of `kinds.epochs(kinds.COUNT)`, per stream."""
    return answers.read()
