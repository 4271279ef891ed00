"""What courses of measurements have in common: they offer rows, and wait for conditions.

a course ─ waits for ─▶ a condition, while what is measured and what is offered go well
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from unbroken.measure.contender import until
from unbroken.measure.offer import Offer

#: What becomes of a run: it came to its end, or not yet.
MEASURED, UNDER_WAY = "measured", "broken off"
#: What a status says may be so old.
STALE_S_MAX = 1.0


class Measured(Protocol):
    """What is measured."""

    def check(self) -> None:
        """Raises what has gone wrong with it."""


class Course:
    """Waits, and notices what goes wrong meanwhile.

    >>> from unbroken.measure.shapes import shape
    >>> offer = Offer(shape("union", "process", x_s=3.0, rate=300), print)
    >>> Course(offer, offer).until(lambda: offer.rows == 0, "nothing to be sent")
    """

    def __init__(self, measured: Measured, offer: Offer) -> None:
        self._measured, self._offer = measured, offer

    def until(self, condition: Callable[[], object], what: str, **limit: float) -> None:
        """Waits for `condition`; raises what goes wrong, or that it took too long."""
        until(condition, what, check=self.check, **limit)

    def check(self) -> None:
        """Raises what has gone wrong with what is measured, or with what is offered."""
        self._measured.check()
        self._offer.check()

    def sleep(self, length_s: float) -> None:
        """Lets time pass."""
        end_s = time.monotonic() + length_s
        self.until(lambda: time.monotonic() >= end_s, "the time to pass", limit_s=length_s + 60.0)
