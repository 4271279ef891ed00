"""How tentative branches are broken on purpose; as `broken`."""

from __future__ import annotations

from typing import Any

from unbroken.node.branch import Branch
from unbroken.node.lines import Lines
from unbroken.node.lost import Lost
from unbroken.node.replica import Replica
from unbroken.streams.branch_log import BranchLog
from unbroken.tentative.branch import Bound, Silence
from unbroken.tentative.hearing import Hearing, Wanted
from unbroken.tentative.turns import Stable
from unbroken.testing.branches import Both, BoundRun
from unbroken.testing.broken import Change
from unbroken.testing.checkpoints import Checkpoint
from unbroken.testing.epochs import Epoch
from unbroken.testing.tasks import block

#: What a large state takes to be restored.
RESTORE_S = 3.0


def mixed() -> list[Change]:
    """Whoever has the next number is heard, whichever branch was heard before."""

    def wanted(self: Hearing, *, stable_next: int) -> Wanted | None:
        self._next = max(self._next, stable_next)
        for replica, branch in self._branches.items():
            if self._next in branch.headers:
                return Wanted(replica, branch.name, self._next)
        return None

    return [(Hearing, "wanted", wanted)]


def stable_is_a_copy() -> list[Change]:
    """A stable epoch is dropped if a tentative one of its number came first."""
    came = Both._came

    def once(self: Both, epoch: Any) -> None:
        if epoch.number not in self.hearing.open:
            came(self, epoch)

    return [(Both, "_came", once)]


def branch_counts() -> list[Change]:
    """A restart goes on from the newest checkpoint, also if that is the branch's."""
    never = property(lambda self: False, lambda self, value: None)
    return [(Checkpoint, "branch", never)]


def acks_what_was_said() -> list[Change]:
    """Producers hear how far the branch is."""
    acks = Replica.acks

    def early(self: Replica, *told: Any) -> Any:
        gate, branch = self._gate, self.branch
        if gate is None or branch is None:
            return acks(self, *told)
        kept, gate.committed = gate.committed, branch.correction.newest
        try:
            return acks(self, *told)
        finally:
            gate.committed = kept

    return [(Replica, "acks", early)]


def waits_add_up() -> list[Change]:
    """Nobody looks how long an epoch has waited upstream."""
    heard = Silence.heard

    def without(self: Silence, stream: str, number: int, *, now_s: float, waited_s: float) -> None:
        heard(self, stream, number, now_s=now_s)

    return [(Silence, "heard", without)]


def masked_waits_add_up() -> list[Change]:
    """Nobody looks how long a stable epoch was held up."""
    arrived = Silence.arrived

    def without(self: Silence, stream: str, number: int, *, now_s: float, waited_s: float) -> None:
        arrived(self, stream, number, now_s=now_s)

    return [(Silence, "arrived", without)]


def masked_waits_untold() -> list[Change]:
    """A stable epoch does not tell how long it was held up."""
    return [(Lines, "_held_up_s", lambda self, number, inputs: 0.0)]


def not_lifted() -> list[Change]:
    """The watermark of an input that is missing stands still."""
    return [(BoundRun, "lift_watermarks", lambda self, missing: None)]


def never_ends() -> list[Change]:
    """A branch goes on although the stable line has caught up."""
    look = Lines._look_at_branch

    def only_failures(self: Lines) -> None:
        if self.branch is not None and self.branch.failure() is not None:
            look(self)

    return [(Lines, "_look_at_branch", only_failures)]


def waits_for_who_waits() -> list[Change]:
    """The stable line has to come nearer, also if a second cut keeps it from that."""
    return [(Stable, "gets_on", property(lambda self: True))]


def at_once() -> list[Change]:
    """Nobody waits for an input that is late."""
    return [(Bound, "wait_s", property(lambda self: 0.0))]


def never_parts() -> list[Change]:
    """A fragment waits for missing input, however long."""
    return [(Lines, "_due_s", lambda self, number: None)]


def unmarked_branch() -> list[Change]:
    """Consumers ask for the number of a tentative epoch alone, whoever speaks by now."""
    news = BranchLog.news

    def always(self: BranchLog, branch: str, start: int, wait_s: float) -> Any:
        told, headers = news(self, branch, start, wait_s)
        return (told and "the branch"), headers

    def read(self: BranchLog, branch: str, number: int) -> Any:
        return before(self, self.branch, number)

    before = BranchLog.read
    return [(BranchLog, "news", always), (BranchLog, "read", read)]


def forgets() -> list[Change]:
    """A consumer is not told what a stable epoch replaces."""
    return [(Hearing, "replaced", lambda self, epoch: epoch)]


def restored_first() -> list[Change]:
    """A branch is a fork that has to be restored before it can go on, as any other."""
    ask = Branch.ask

    def late(self: Any, stream: str, after: int, *, rows: bool) -> Any:
        if not hasattr(self, "restored"):
            self.restored = block(self._run._world, RESTORE_S)
        return ask(self, stream, after, rows=rows)

    return [(Branch, "ask", late)]


def stable_reads_on() -> list[Change]:
    """Whoever has nothing stable is given what is tentative."""
    hear = Both._rows

    def as_stable(self: Both, wanted: Wanted, said: Any) -> None:
        if said is not None and said.number == self.merge.next:
            self.merge.next += 1
            self._fetching = None
            self._taken(said)
        else:
            hear(self, wanted, said)

    return [(Both, "_rows", as_stable)]


def gaps_first() -> list[Change]:
    """The log has its gaps before the fork is there that tells of them."""
    converged = Lines._converged

    def early(self: Lines, parked: Any) -> Any:
        branch = self.branch
        if branch is not None and branch.converges and branch.committed > parked.epoch:
            lost = Lost(branch.took)
            for gap in lost.epochs(self.fragment.name, self._plan, self.losses, at_least=0):
                self.log.append(gap)
        return converged(self, parked)

    return [(Lines, "_converged", early)]


def said_is_stable() -> list[Change]:
    """What a branch has said is called stable when all inputs are back."""
    fill = Lines._fill_hole

    def as_said(self: Any) -> None:
        branch = self.branch
        if branch is not None:
            for number in range(self.log.next, branch.committed + 1):
                said = self.said.read(branch.name, number)
                self.log.append(Epoch.of(self.fragment.name, number, said.table))
        fill(self)

    return [(Lines, "_fill_hole", as_said)]


def not_completed() -> list[Change]:
    """Whoever starts again does not look for gaps that his log has not got yet."""
    fill = Lines._fill_hole

    def unless_it_starts(self: Any) -> None:
        if self.branch is not None:
            fill(self)

    return [(Lines, "_fill_hole", unless_it_starts)]


def forks_too_soon() -> list[Change]:
    """A branch gives up what it said as soon as its inputs have begun to come back."""

    def look(self: Any) -> None:
        if self._gate.released == self.committed and self._gate.complete > self.correction.after:
            self._healed()

    return [(Branch, "_look_healed", look)]
