"""What protection costs while nothing fails: rows per second and CPU, in turns, in one run.

    python bench/protection.py                 # count by key, 100,000 keys, about five minutes
    python bench/protection.py --quick

One cluster per policy, all of them up, one of them at work: epochs are sent as fast as they come
out, a few ahead.  CPU is that of keeper, control plane and all nodes, while the cluster is at work.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from workloads import DDL, WORKLOADS, rows

import unbroken as ub
from unbroken.measure.costs import cpu_s
from unbroken.policies import Policy, Restart

#: Policy and number of nodes; without protection there is one.
CONTENDERS: dict[str, tuple[Policy, int]] = {
    "restart": (Restart(), 1),
    "passive": (ub.Passive(interval="2s"), 2),
    "active": (ub.Active(replicas=2), 2),
}
ROWS = 5_000
AHEAD = 4


class Contender:
    """A cluster under one policy."""

    def __init__(self, name: str, workload: str) -> None:
        self.name = name
        policy, nodes = CONTENDERS[name]
        given = WORKLOADS[workload]
        query = ub.Query(f"protected-{name}", epoch="manual")
        source = query.source("input", DDL, event_time="ts")
        fragment = query.fragment(source, output_mode=given.mode, policy=policy)
        query.sink(fragment(given.transform, name="output"))
        self.cluster = ub.LocalCluster(query, nodes=nodes)
        self.cluster.start()
        self._producer = self.cluster.producer("input")
        self._results = self.cluster.follow("output")
        self._sent = self._came = 0

    def work(self, epochs: int) -> tuple[float, float]:
        """Rows per second, and CPU seconds per million rows."""
        pids = [self.cluster.pid(name) for name in ("keeper", "control", *self.cluster.nodes)]
        began_s, began_cpu_s, last = time.monotonic(), cpu_s(pids), self._sent + epochs
        while self._came < last:
            while self._sent < min(last, self._came + AHEAD):
                self._producer.send(rows(self._sent, ROWS))
                self._producer.close_epoch()
                self._sent += 1
            assert next(self._results).number == self._came
            self._came += 1
        took_s, took_cpu_s = time.monotonic() - began_s, cpu_s(pids) - began_cpu_s
        return epochs * ROWS / took_s, took_cpu_s * 1e6 / (epochs * ROWS)

    def standing(self) -> str:
        told = self.cluster.status()["fragments"]["output"]
        return f"{told['policy']}, survives {told['survives']}"


def main() -> None:
    """Prints medians, quartiles, and ratios to no protection."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="keyed")
    parser.add_argument("--quick", action="store_true", help="2 short turns instead of 5")
    given = parser.parse_args()
    turns, warm, per_turn = (2, 20, 20) if given.quick else (5, 60, 40)
    contenders: list[Contender] = []
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTENDERS}
    try:
        contenders = [Contender(name, given.workload) for name in CONTENDERS]
        for turn in range(turns + 1):
            for contender in contenders:
                told = contender.work(per_turn if turn else warm)
                if turn:
                    found[contender.name].append(told)
            print(f"turn {turn} of {turns}", file=sys.stderr)
        for contender in contenders:
            print(f"{contender.name:>8}: {contender.standing()}", file=sys.stderr)
    finally:
        for contender in contenders:
            contender.cluster.close()
    base = [statistics.median(each) for each in zip(*found["restart"], strict=True)]
    print(f"{given.workload}, {ROWS:,} rows per epoch, {turns} turns of {per_turn} epochs")
    for name, measured in found.items():
        speeds, costs = zip(*measured, strict=True)
        speed, cost = statistics.median(speeds), statistics.median(costs)
        print(
            f"{name:>8}: {speed:9,.0f} rows/s ({min(speeds):,.0f} to {max(speeds):,.0f}), "
            f"{cost:6.1f} CPU s per million rows ({min(costs):.1f} to {max(costs):.1f}); "
            f"{speed / base[0]:.2f} of the speed and {cost / base[1]:.2f} of the CPU of restart"
        )


if __name__ == "__main__":
    main()
