"""The intrusion example with its known answer: every planted attacker, and nobody else.

>>> check = Intrusion(seed=7, seconds=60)
>>> check.verdict()["words"]
'0 of 3 attackers found, 0 false alarms'
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from unbroken.client.replay import Pace
from unbroken.demo.intrusion_trace import T0, WINDOW_S, Attacker, attackers, trace
from unbroken.epochs import Epoch

ROWS_PER_S = 500
#: An attack of which a window sees this much is above the query's thresholds.
SEEN_S_MIN = 5


class Intrusion:
    """Feeds `queries/intrusion.py` and judges its alerts."""

    source, result = "connections", "alerts"
    pace = Pace(epoch_s=1.0, speed=1.0)

    def __init__(self, seed: int, seconds: int) -> None:
        self._seed, self._seconds = seed, seconds
        self._planted = attackers(seed, seconds)
        #: (source, kind) to the time of its first alert.
        self._first_s: dict[tuple[str, str], float] = {}
        self._false: dict[tuple[str, str, int], float] = {}

    def tables(self) -> Iterator[pa.Table]:
        """One table per second."""
        return trace(self._seed, self._seconds, ROWS_PER_S)

    def take(self, epoch: Epoch, at_s: float) -> None:
        """Notes the alerts of an epoch."""
        for row in epoch.table.to_pylist():
            start_s = int((row["start"] - T0).total_seconds())
            found = row["src"], row["kind"]
            if any(_is(attacker, *found, start_s) for attacker in self._planted):
                self._first_s.setdefault(found, at_s)
            else:
                self._false.setdefault((*found, start_s), at_s)

    def verdict(self) -> dict[str, Any]:
        """Attackers planted and found, and false alarms."""
        rows = []
        missed = 0
        for attacker in self._planted:
            first_s = self._first_s.get((attacker.src, attacker.kind))
            cut_off = self._longest_s(attacker) < SEEN_S_MIN
            missed += first_s is None and not cut_off
            delay = None if first_s is None else f"{first_s - attacker.start_s:.1f} s"
            rows.append(
                {
                    "attacker": attacker.src,
                    "kind": attacker.kind,
                    "planted": f"{attacker.start_s} to {attacker.end_s} s",
                    "first_alert": ("cut off by the end" if cut_off else "MISSED")
                    if first_s is None
                    else f"{first_s:.1f} s",
                    "after_its_start": delay,
                }
            )
        for (src, kind, start_s), at_s in sorted(self._false.items()):
            rows.append(
                {
                    "attacker": src, "kind": kind, "planted": f"FALSE ALARM, window {start_s} s",
                    "first_alert": f"{at_s:.1f} s", "after_its_start": None,
                }
            )  # fmt: skip
        return {
            "right": not missed and not self._false,
            "words": f"{len(self._first_s)} of {len(self._planted)} attackers found, "
            f"{len(self._false)} false alarms",
            "rows": rows,
        }

    def _longest_s(self, attacker: Attacker) -> int:
        """The most seconds of the attack that one window sees."""
        end_s = min(attacker.end_s, self._seconds)
        starts = range(attacker.start_s // WINDOW_S * WINDOW_S, end_s, WINDOW_S)
        seen = (min(end_s, s + WINDOW_S) - max(attacker.start_s, s) for s in starts)
        return max(seen, default=0)


def _is(attacker: Attacker, src: str, kind: str, window_s: int) -> bool:
    active = window_s < attacker.end_s and window_s + WINDOW_S > attacker.start_s
    return (attacker.src, attacker.kind) == (src, kind) and active
