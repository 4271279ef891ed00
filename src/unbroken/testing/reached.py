"""What happened in a life, by name: how it recovered, and into which situations it came.

    take-over, rebuild, repair, correction       ways to recover, each counted when it has succeeded
    control dies while a repair is under way     situations: whether a life by chance has them is
    death between output and commit, …           counted, not hoped for

* A process that is started again is no recovery, only a beginning of one: it is counted apart.
* What is counted follows from the records, the disks and what was said, as for the checkers.

>>> reached = Reached(); reached[TAKE_OVER] += 2; reached[GAP] += 1
>>> reached.recoveries, reached.text
(2, '2 take-overs, 0 rebuilds, 0 repairs, 0 corrections')
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from unbroken.control.intentions import Intention, Step

RECOVERIES = TAKE_OVER, REBUILD, REPAIR, CORRECTION = (
    "take-over", "rebuild", "repair", "correction",
)  # fmt: skip
SITUATIONS = GAP, BEYOND, CONTROL_DIES, TWO_REPAIRS, BEFORE_COMMIT = (
    "gap", "beyond what its policy survives", "control dies while a repair is under way",
    "two repairs are open at once", "death between output and commit",
)  # fmt: skip
_CORRECTED = ": stable again: corrected"


class Reached(Counter[str]):
    """How often each of them was there."""

    @property
    def recoveries(self) -> int:
        """How often a fragment was brought back, in whatever way."""
        return sum(self[kind] for kind in RECOVERIES)

    @property
    def text(self) -> str:
        """The recoveries, for people."""
        return ", ".join(f"{self[kind]:,} {kind}s" for kind in RECOVERIES)

    def recorded(self, records: Any, intention: Intention) -> None:
        """A step of a repair is on record."""
        if intention.step is Step.LIVE:
            self[REBUILD if intention.rebuilds else REPAIR] += 1
        elif intention.step is Step.EXPECT:
            self[TWO_REPAIRS] += len(_repairs(records)) > 1

    def died(self, sim: Any, name: str) -> None:
        """A process has just died."""
        shell = sim.shells.get(name)
        if name == "control":
            self[CONTROL_DIES] += bool(_repairs(sim.records))
        elif shell is not None and name in sim.nodes:
            replicas = shell.hosted.replicas.values()
            self[BEFORE_COMMIT] += any(
                replica.first is not None and _sealed(replica) > replica.committed >= 0
                for replica in replicas
            )

    def over(self, sim: Any) -> None:
        """The life is over."""
        self[BEYOND] += len(sim.watch.beyond)
        self[CORRECTION] += sum(_CORRECTED in line.text for line in sim.world.story)


def _repairs(records: Any) -> list[Intention]:
    return [each for each in records.unfinished() if each.step is not Step.RELEASE]


def _sealed(replica: Any) -> int:
    """The newest epoch that a replica has made, shown or not."""
    staged = replica.staged.next if replica.staged is not None else 0
    return int(max(replica.log.next, staged)) - 1
