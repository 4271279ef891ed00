"""What is known and not mended goes wrong as it is told; mended, it leaves the list."""

from __future__ import annotations

import pytest
from known import KNOWN

from unbroken.testing import random_life, simulate


@pytest.mark.parametrize("seed", KNOWN)
@pytest.mark.xfail(strict=True, reason="known and not mended: docs/simulator.md")
def test_a_life_that_is_known_to_go_wrong(seed: int):
    assert simulate(random_life(seed)).violation is None
