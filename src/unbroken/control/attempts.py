"""Attempts: how often the repair of a fragment failed, with whom, and when the next one may begin.

    failed      1 s   failed      2 s      failed           4 s            …    60 s at most
    ───×─────────────────×───────────────────×───────────────────────────────▶
    live   lost   8 s    live   lost     16 s    live  ── for a minute: proven ──▶  counted anew

* Nobody knows whose fault a failure was, so everybody who took part is asked later next time.
* It never gives up: what was wrong may be mended by people, and once a minute costs little.
* A success forgets all of it; but a replica that is lost before it is *proven* was none, and the
  count goes on where it was.  Otherwise one that comes up and breaks would be repaired for ever
  without a pause, each time at the price of a copy and a start of Spark.
* A node that dies says nothing about a fragment: nothing is counted.

This module only counts.  It does no I/O; the caller passes in monotonic time.

>>> attempts = Attempts()
>>> attempts.failed("alerts", ["node-3", "node-2"], now_s=100.0)
>>> attempts.wait_s("alerts", now_s=100.5), attempts.failures("alerts", "node-3")
(0.5, 1)
>>> attempts.done("alerts", "node-3", ["node-3", "node-2"], now_s=101.0)
>>> attempts.wait_s("alerts", now_s=101.0), attempts.failures("alerts")
(0.0, 0)
>>> attempts.lost("alerts", "node-3", now_s=103.0); attempts.wait_s("alerts", now_s=103.0)
2.0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

#: After a failure the fragment waits 1 s, 2 s, 4 s, … up to this.
RETRY_S_MAX = 60.0
#: A replica that was live for so long is proven.  As long as the longest pause: whoever is lost
#: later and repaired at once is not repaired more often than one that fails again and again.
PROVEN_S = RETRY_S_MAX


class _Unproven(NamedTuple):
    """A success that may turn out to be none, and what was counted before it."""

    live_s: float
    took_part: Sequence[str]
    failures: int
    failures_with: Counter[str]


class Attempts:
    """What failed since the last success, by fragment.

    >>> Attempts().failures("alerts")
    0
    """

    def __init__(self) -> None:
        self._total: Counter[str] = Counter()
        self._with: dict[str, Counter[str]] = {}
        self._not_before_s: dict[str, float] = {}
        #: By fragment and node.
        self._unproven: dict[tuple[str, str], _Unproven] = {}

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

    def done(self, fragment: str, node: str, nodes: Sequence[str], *, now_s: float) -> None:
        """A repair in which `nodes` took part has succeeded: the replica on `node` is live."""
        self._unproven[fragment, node] = _Unproven(
            now_s, nodes, self._total.pop(fragment, 0), self._with.pop(fragment, Counter())
        )
        self._not_before_s.pop(fragment, None)

    def lost(self, fragment: str, node: str, *, now_s: float) -> None:
        """A replica that was live is of no use any more, although its node is up.

        >>> attempts = Attempts(); attempts.done("alerts", "node-3", ["node-3"], now_s=0.0)
        >>> attempts.lost("alerts", "node-3", now_s=PROVEN_S); attempts.failures("alerts")
        0
        """
        success = self._unproven.pop((fragment, node), None)
        if success is None or now_s - success.live_s >= PROVEN_S:
            return
        # Another one may have failed or been lost meanwhile: the longer count goes on.
        self._total[fragment] = max(self._total[fragment], success.failures)
        self._with[fragment] = self._with.get(fragment, Counter()) | success.failures_with
        self.failed(fragment, success.took_part, now_s=now_s)

    def failures(self, fragment: str, node: str | None = None) -> int:
        """How many failed: all of `fragment`, or those in which `node` took part."""
        if node is None:
            return self._total[fragment]
        return self._with.get(fragment, Counter[str]())[node]

    def wait_s(self, fragment: str, *, now_s: float) -> float:
        """How long to wait until the next attempt."""
        return max(0.0, self._not_before_s.get(fragment, now_s) - now_s)
