"""Clusters that work in turns: all of them up, one at work, epochs sent as fast as they come out.

CPU is that of keeper, control plane and all nodes, while the cluster is at work.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping

from workloads import rows

import unbroken as ub
from unbroken.measure.costs import cpu_s

ROWS = 5_000
#: Epochs that are sent before the first of them is out.
AHEAD = 4
#: Rows per second, and CPU seconds per million rows.
Told = tuple[float, float]


class Contender:
    """A cluster whose sources share the rows of every epoch."""

    def __init__(self, name: str, query: ub.Query, nodes: int = 1) -> None:
        self.name = name
        self.cluster = ub.LocalCluster(query, nodes=nodes)
        self.cluster.start()
        self._producers = [self.cluster.producer(source) for source in query.sources]
        self._results = self.cluster.follow(query.sinks[0])
        self._sent = self._came = 0

    def work(self, epochs: int) -> Told:
        """Sends so many epochs, and waits for their results."""
        pids = [self.cluster.pid(name) for name in ("keeper", "control", *self.cluster.nodes)]
        began_s, began_cpu_s, last = time.monotonic(), cpu_s(pids), self._sent + epochs
        inputs = len(self._producers)
        while self._came < last:
            while self._sent < min(last, self._came + AHEAD):
                for side, producer in enumerate(self._producers):
                    producer.send(rows(inputs * self._sent + side, ROWS // inputs))
                    producer.close_epoch()
                self._sent += 1
            epoch = next(self._results)
            assert (epoch.kind, epoch.number) == ("stable", self._came), "nothing fails here"
            self._came += 1
        took_s, took_cpu_s = time.monotonic() - began_s, cpu_s(pids) - began_cpu_s
        return epochs * ROWS / took_s, took_cpu_s * 1e6 / (epochs * ROWS)


def take_turns(
    makers: Mapping[str, Callable[[], Contender]], turns: int, warm: int, per_turn: int
) -> dict[str, list[Told]]:
    """What each did in each turn, after `warm` epochs that are not counted."""
    contenders: list[Contender] = []
    found: dict[str, list[Told]] = {name: [] for name in makers}
    try:
        for make in makers.values():
            contenders.append(make())
        for turn in range(turns + 1):
            # Each is first as often as the others: a machine that gets busier favours the first.
            for contender in contenders if turn % 2 else contenders[::-1]:
                told = contender.work(per_turn if turn else warm)
                if turn:
                    found[contender.name].append(told)
            print(f"turn {turn} of {turns}", file=sys.stderr)
        for contender in contenders:
            for name, each in contender.cluster.status()["fragments"].items():
                said = f"{name} is {each['policy']}, survives {each['survives']}"
                print(f"{contender.name:>8}: {said}", file=sys.stderr)
    finally:
        for contender in contenders:
            contender.cluster.close()
    return found


def tell(found: Mapping[str, list[Told]], base: str) -> None:
    """Prints medians and extremes, and ratios to `base`, turn by turn."""
    for name, measured in found.items():
        speeds, costs = zip(*measured, strict=True)
        print(
            f"{name:>8}: {statistics.median(speeds):9,.0f} rows/s "
            f"({min(speeds):,.0f} to {max(speeds):,.0f}), {statistics.median(costs):6.1f} CPU s "
            f"per million rows ({min(costs):.1f} to {max(costs):.1f})"
        )
    for name in found:
        # Of each turn the two are compared that ran close to each other.
        pairs = list(zip(found[name], found[base], strict=True))
        for what, i in (("speed", 0), ("CPU", 1)) if name != base else ():
            ratios = sorted(a[i] / b[i] for a, b in pairs)
            print(
                f"{name}: {statistics.median(ratios):.3f} of the {what} of {base} "
                f"({ratios[0]:.3f} to {ratios[-1]:.3f})"
            )
