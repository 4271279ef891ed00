"""The simulated engine does what Spark does: the suite that both pass (see tests/features too)."""

from __future__ import annotations

import pytest

from unbroken.testing.conformance import CHECKS
from unbroken.testing.rig import simulated_rig


@pytest.mark.parametrize("check", CHECKS)
def test_the_simulated_engine(check: str):
    """In several worlds: what comes when is another matter of chance in each."""
    for seed in range(5):
        with simulated_rig(seed) as rig:
            CHECKS[check](rig)
