"""Attempts: how often the repair of a fragment failed, with whom, and when the next one may begin.

    failed      1 s   failed      2 s      failed           4 s            …    60 s at most
    ───×─────────────────×───────────────────×───────────────────────────────▶

* Nobody knows whose fault a failure was, so everybody who took part is asked later next time.
* It never gives up: what was wrong may be mended by people, and once a minute costs little.
* A success forgets all of it.

This module only counts.  It does no I/O; the caller passes in monotonic time.

>>> attempts = Attempts()
>>> attempts.failed("alerts", ["node-3", "node-2"], now_s=100.0)
>>> attempts.wait_s("alerts", now_s=100.5), attempts.failures("alerts", "node-3")
(0.5, 1)
>>> attempts.done("alerts"); attempts.wait_s("alerts", now_s=100.5)
0.0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

#: After a failure the fragment waits 1 s, 2 s, 4 s, … up to this.
RETRY_S_MAX = 60.0


class Attempts:
    """What failed since the last success, by fragment.

    >>> Attempts().failures("alerts")
    0
    """

    def __init__(self) -> None:
        self._total: Counter[str] = Counter()
        self._with: dict[str, Counter[str]] = {}
        self._not_before_s: dict[str, float] = {}

    def failed(self, fragment: str, nodes: Iterable[str], *, now_s: float) -> None:
        """A repair in which `nodes` took part came to nothing.

        >>> attempts = Attempts()
        >>> for _ in range(9): attempts.failed("alerts", [], now_s=0.0)
        >>> attempts.wait_s("alerts", now_s=0.0)
        60.0
        """
        self._total[fragment] += 1
        self._with.setdefault(fragment, Counter()).update(nodes)
        # The exponent has a limit of its own: floats end before patience does.
        wait_s = min(RETRY_S_MAX, 2.0 ** min(10, self._total[fragment] - 1))
        self._not_before_s[fragment] = now_s + wait_s

    def done(self, fragment: str) -> None:
        """A repair of `fragment` has succeeded."""
        self._total.pop(fragment, None)
        self._with.pop(fragment, None)
        self._not_before_s.pop(fragment, None)

    def failures(self, fragment: str, node: str | None = None) -> int:
        """How many failed: all of `fragment`, or those in which `node` took part."""
        if node is None:
            return self._total[fragment]
        return self._with.get(fragment, Counter[str]())[node]

    def wait_s(self, fragment: str, *, now_s: float) -> float:
        """How long to wait until the next attempt."""
        return max(0.0, self._not_before_s.get(fragment, now_s) - now_s)
