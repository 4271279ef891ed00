"""What else must be so at the end of a life of the list of bad days (`rows`), and who looks."""

from __future__ import annotations

from unbroken.testing import Checkers, Sim
from unbroken.testing.disk import Path
from unbroken.testing.engine import RERUN
from unbroken.testing.epochs import Epoch


def missed_numbers_are_empty(sim: Sim) -> bool:
    """The keeper was away from 5 to 11 s: of those epochs only the open one has rows."""
    return not any(sim.watch.contents["s1"][n].rows for n in range(55, 105))


def caught_up_one_by_one(sim: Sim) -> bool:
    """Fifty epochs waited for it, and the stream has them all, each under its own number."""
    return sorted(sim.watch.contents["a"])[:200] == list(range(200))


def heard_before_it_was_stable(sim: Sim) -> bool:
    """The sink heard tentative epochs, and each of them has been replaced."""
    replaced = [epoch for epoch in sim.sinks()[0].log._kept.values() if epoch.replaces]
    return any(epoch.replaces.header.node == "node-1" for epoch in replaced)


def nothing_waited_longer(sim: Sim) -> bool:
    """No epoch has waited for more than 0.9 X and an epoch, on all levels together."""
    return 1.7 < max(sim.watch.waits_s) < 0.9 * 2.0 + 0.1


def the_giver_went_on(sim: Sim) -> bool:
    """While layers travelled their giver made epochs, of which one in three is run twice."""
    return bool(sim.watch.went_on >= RERUN)


def windows_closed_meanwhile(sim: Sim) -> bool:
    """Between 7 and 10 s windows closed that end after the last row of what was missing."""
    said = [e for epochs in sim.watch.said.values() for n, e in epochs.items() if 70 <= n < 100]
    return len({row[0] for epoch in said for row in epoch.table if row[0] >= 5500}) >= 4


def node_2_was_refused(sim: Sim) -> bool:
    """The sink has refused what node-2 makes, and says why."""
    (sink,) = sim.sinks()
    why = "refused a from a@node-2: its code or settings are adds one, ours came from count-1"
    return sink.both.merge.refused == {"a@node-2": why}


class WithoutNode2(Checkers):
    """What node-2 makes is another stream, although it does not know it."""

    def appended(self, folder: Path, epoch: Epoch) -> None:
        """Looks at all logs but that one."""
        if folder.disk.name != "node-2":
            super().appended(folder, epoch)
