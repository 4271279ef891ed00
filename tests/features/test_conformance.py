"""Spark does what the simulated engine does: the suite that both pass (see tests/sim too)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from spark_rig import SparkRig

from unbroken.testing.conformance import CHECKS


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkRig]:
    """One session for all of it: starting one takes longer than most checks."""
    made = SparkRig(tmp_path_factory.mktemp("rig"))
    yield made
    made.close()


@pytest.mark.parametrize("check", CHECKS)
def test_spark(rig: SparkRig, check: str):
    """Each check in a folder of its own."""
    CHECKS[check](rig)
