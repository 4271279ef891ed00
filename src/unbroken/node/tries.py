"""Tries: when a fragment that could not be started here may be tried again, and what was wrong.

    failed   at once   failed      2 s      failed          4 s          …    60 s at most
    ───×────────────────×────────────────────×──────────────────────────▶

* Control says anew with every beat what shall run.  What cannot succeed (its input is gone, the
  disk is full) would be tried four times a second; what failed by chance should not wait.
* Why it failed is kept until it succeeds, for `status`.

This module only counts.  It does no I/O; the caller passes in monotonic time.

>>> tries = Tries()
>>> tries.failed("alerts", "the disk is full", now_s=100.0); tries.may_begin("alerts", now_s=100.1)
True
>>> tries.failed("alerts", "the disk is full", now_s=100.2); tries.may_begin("alerts", now_s=101.9)
False
>>> tries.troubles
{'alerts': 'the disk is full'}
>>> tries.done("alerts", now_s=103.0); tries.troubles
{}
"""

from __future__ import annotations

from unbroken.control.attempts import Attempts


class Tries:
    """What could not be started on this node, by fragment.

    >>> Tries().may_begin("alerts", now_s=0.0)
    True
    """

    def __init__(self) -> None:
        self._attempts = Attempts()
        #: Why a fragment could not be started the last time, in a sentence.
        self.troubles: dict[str, str] = {}

    def may_begin(self, fragment: str, *, now_s: float) -> bool:
        """Whether it may be tried now."""
        # Whoever is called on to take over must not wait because of one bad moment.
        if self._attempts.failures(fragment) < 2:
            return True
        return self._attempts.wait_s(fragment, now_s=now_s) == 0.0

    def failed(self, fragment: str, why: str, *, now_s: float) -> None:
        """It could not be started."""
        self._attempts.failed(fragment, [], now_s=now_s)
        self.troubles[fragment] = why

    def done(self, fragment: str, *, now_s: float) -> None:
        """It was started, or is not wanted here any more."""
        self._attempts.done(fragment, "", [], now_s=now_s)
        self.troubles.pop(fragment, None)
