"""Waiting for a condition, with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_S = 150.0


def until(condition: Callable[[], object], what: str | Callable[[], object]) -> None:
    """Waits until `condition` holds; fails with `what` if that takes too long."""
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(what if isinstance(what, str) else what())
        time.sleep(0.05)
