"""What `max_delay` costs while nothing is cut: rows per second and CPU, in turns, in one run.

    python bench/bound.py                 # about five minutes
    python bench/bound.py --quick

Two clusters of one node, the same query with and without the bound, both of them up and one at
work: epochs are sent as fast as they come out, a few ahead.  Two inputs and two levels, so that
inputs are waited for and one fragment listens to what the other might say tentatively.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

from workloads import DDL, WORKLOADS, rows

import unbroken as ub
from unbroken.measure.costs import cpu_s

BOUNDS: dict[str, dict[str, Any]] = {"without": {}, "with": {"max_delay": "3s"}}
ROWS = 5_000
AHEAD = 4


def united(left: Any, right: Any) -> Any:
    """The first level."""
    return left.union(right)


class Contender:
    """A cluster with or without the bound."""

    def __init__(self, name: str) -> None:
        self.name = name
        bound, keyed = BOUNDS[name], WORKLOADS["keyed"]
        query = ub.Query(f"bound-{name}", epoch="manual")
        for side in ("left", "right"):
            query.source(side, DDL, event_time="ts")
        near = query.fragment("left", "right", **bound)(united, name="near")
        totals = query.fragment(near, output_mode=keyed.mode, **bound)
        query.sink(totals(keyed.transform, name="totals"))
        self.cluster = ub.LocalCluster(query)
        self.cluster.start()
        self._producers = [self.cluster.producer(side) for side in ("left", "right")]
        self._results = self.cluster.follow("totals")
        self._sent = self._came = 0

    def work(self, epochs: int) -> tuple[float, float]:
        """Rows per second, and CPU seconds per million rows."""
        pids = [self.cluster.pid(name) for name in ("keeper", "control", *self.cluster.nodes)]
        began_s, began_cpu_s, last = time.monotonic(), cpu_s(pids), self._sent + epochs
        while self._came < last:
            while self._sent < min(last, self._came + AHEAD):
                for side, producer in enumerate(self._producers):
                    producer.send(rows(2 * self._sent + side, ROWS // 2))
                    producer.close_epoch()
                self._sent += 1
            epoch = next(self._results)
            assert (epoch.kind, epoch.number) == ("stable", self._came), "nothing is cut"
            self._came += 1
        took_s, took_cpu_s = time.monotonic() - began_s, cpu_s(pids) - began_cpu_s
        return epochs * ROWS / took_s, took_cpu_s * 1e6 / (epochs * ROWS)


def main() -> None:
    """Prints medians, extremes, and the ratio of the two, turn by turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="4 short turns instead of 10")
    given = parser.parse_args()
    turns, warm, per_turn = (4, 20, 20) if given.quick else (10, 60, 40)
    contenders: list[Contender] = []
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in BOUNDS}
    try:
        contenders = [Contender(name) for name in BOUNDS]
        for turn in range(turns + 1):
            # Each is first as often as the other: a machine that gets busier favours the first.
            for contender in contenders if turn % 2 else contenders[::-1]:
                told = contender.work(per_turn if turn else warm)
                if turn:
                    found[contender.name].append(told)
            print(f"turn {turn} of {turns}", file=sys.stderr)
    finally:
        for contender in contenders:
            contender.cluster.close()
    print(f"{ROWS:,} rows per epoch, {turns} turns of {per_turn} epochs")
    for name, measured in found.items():
        speeds, costs = zip(*measured, strict=True)
        print(
            f"{name:>8}: {statistics.median(speeds):9,.0f} rows/s "
            f"({min(speeds):,.0f} to {max(speeds):,.0f}), {statistics.median(costs):6.1f} CPU s "
            f"per million rows ({min(costs):.1f} to {max(costs):.1f})"
        )
    # Of each turn the two are compared that ran one after the other.
    pairs = list(zip(found["with"], found["without"], strict=True))
    for what, i in (("speed", 0), ("CPU", 1)):
        ratios = sorted(a[i] / b[i] for a, b in pairs)
        print(f"with the bound: {statistics.median(ratios):.3f} of the {what} without "
              f"({ratios[0]:.3f} to {ratios[-1]:.3f})")  # fmt: skip


if __name__ == "__main__":
    main()
