"""Invariant 4: tentative epochs are known as such, and replaced in time.

    every branch log     numbered without holes, named, nothing that is stable already
    every branch         says what its operator makes of what it was given
    whoever follows      one branch at a time, each number once, only what that branch has said
    every sink           is told what becomes of all that it heard
    in the end           no branch is left, and nothing is open

How long anybody waits is looked at by `waits`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbroken.epochs import GAP, TENTATIVE
from unbroken.policies.past import Marks
from unbroken.tentative.hearing import LEAD_EPOCHS
from unbroken.testing.checkers.waits import Waits
from unbroken.testing.disk import Path
from unbroken.testing.epochs import Epoch, difference, digest_of
from unbroken.testing.operators import Batch, observe, step
from unbroken.testing.pasts import Past

#: Whoever was disturbed may take so long to hear of a branch again.
DISTURBED_S = 6.0
#: Faults that only those two notice whose line it is.
PAIRS = ("cut", "cut one way", "slow")


class Tentative(Waits):
    """Looks at branches too; only for lives in which a fragment has a delay bound."""

    def __init__(self, sim: Any) -> None:
        super().__init__(sim)
        #: What the operator alone would know after the newest epoch of a branch.
        self._alone: dict[int, tuple[dict[Any, Any], Marks, int]] = {}
        #: What a sink has heard in its present life and not been told the end of.
        self._open: dict[str, dict[int, Epoch]] = {}
        #: Said by branches whose disk is lost: whoever has heard it may still go on with it.
        self._once: list[Epoch] = []

    # What branches say.

    def appended(self, folder: Path, epoch: Epoch) -> None:
        """Invariant 4: what is tentative lies in the log of a branch, and nowhere else."""
        apart = folder.parent.name == "tentative"
        if apart != (epoch.kind == TENTATIVE):
            self.break_(4, f"{folder} has epoch {epoch.number}, which is {epoch.kind}")
        elif apart:
            self._says(folder, epoch)
        else:
            self._tells(folder.disk.name, epoch.header)
            super().appended(folder, epoch)

    def _says(self, folder: Path, epoch: Epoch) -> None:
        stream, branch, number = epoch.header.stream, epoch.header.branch, epoch.number
        said = self.said.setdefault((stream, branch), {})
        next_number = max(said, default=number - 1) + 1
        if not branch.endswith("@" + folder.disk.name) or number != next_number:
            self.break_(4, f"{folder} says {number} of {branch!r}, and not {next_number}")
        said[number] = epoch
        self._tells_of_waits(epoch)
        if number in folder.disk.logs.get(f"{folder.parent.parent}/output", {}):
            self.break_(4, f"{branch} says epoch {number} of {stream}, and the stable one is there")

    def lost(self, who: str) -> None:
        """With a disk its terms are lost: they are counted from 1 again."""
        super().lost(who)
        for stream, branch in [each for each in self.said if each[1].endswith("@" + who)]:
            self._once += self.said.pop((stream, branch)).values()

    def _was_said(self, epoch: Epoch) -> bool:
        """Whether a branch has said this very epoch, also if its disk is lost by now."""
        said = self.said.get((epoch.header.stream, epoch.header.branch), {})
        return any(epoch is each for each in (said.get(epoch.number), *self._once))

    def trimmed(self, folder: Path, stream: str, gone: range) -> None:
        """What is replaced goes; stable epochs are looked at as ever."""
        if folder.parent.name != "tentative":
            super().trimmed(folder, stream, gone)

    def parked(self, folder: Path, epoch: int) -> None:
        """A fork is parked: its process may be meant to die there."""
        process = self._sim.world.process(folder.disk.name)
        self._sim.faults.point(process, "parked", folder.name, epoch)

    def parted(self, run: Any) -> None:
        """A query goes on as a branch."""
        self._sim.keep.append(run)
        self._first.add(id(run))
        super().parted(run)
        self._alone[id(run)] = run._state, run._marks, run._late_ms

    def reads(self, run: Any, inputs: Sequence[Epoch]) -> None:
        """What an engine is given; a branch may be given what is tentative, or nothing."""
        if run.branch is None:
            super().reads(run, inputs)
            self._measures(run, inputs)
            if any(epoch.kind == TENTATIVE for epoch in inputs):
                self.break_(4, f"the stable line of {run._plan.name} is given what is tentative")
            return
        number = run._after + 1
        for epoch in inputs:
            nothing = epoch.kind == TENTATIVE and not epoch.header.branch and not epoch.rows
            if epoch.number != number:
                self.break_(2, f"branch {run.branch.name} is given {epoch.number}, not {number}")
            elif epoch.kind != TENTATIVE:
                self._same(epoch, f"branch {run.branch.name} is given")
            elif not nothing and not self._was_said(epoch):
                self.break_(4, f"branch {run.branch.name} is given {number} of nobody's branch")
        self._waits(run, number, inputs)

    def seals(self, run: Any, past: Past, digest: str) -> None:
        """Invariant 4: a branch says what its operator makes of what it was given.

        An input that is missing holds nobody back: its watermark follows the lowest one that is
        there, from the next epoch on.
        """
        if run.branch is None:
            super().seals(run, past, digest)
            return
        operator, (state, marks, late_ms) = run._plan.operator, self._alone[id(run)]
        if operator.name == "draw":
            return
        rows = [tuple(epoch.table) for epoch in past.inputs]
        state, out = step(operator, state, rows, Batch(late_ms, marks.current_ms))
        late_ms, marks = marks.current_ms, observe(marks, operator, rows)
        committed_ms = marks.current_ms
        if operator.watermarks > 1:
            marks = _lifted(marks, past.inputs)
        self._alone[id(run)] = state, marks, late_ms
        # Spark commits its watermark before those of missing inputs are lifted.
        self.knows(run, past.number, (state, Marks(committed_ms, marks.operators), late_ms))
        if digest_of(out) != digest:
            self.break_(
                4, f"branch {run.branch.name} of {run._plan.name} says something else as epoch "
                f"{past.number} than its operator makes of what is there: {out}",
            )  # fmt: skip

    # Who follows.

    def follows(self, both: Any, wanted: Any, epoch: Epoch) -> None:
        """Invariant 4: a consumer takes a tentative epoch."""
        stream, branch, number = epoch.header.stream, epoch.header.branch, epoch.number
        who = both._follower._consumer
        if branch != wanted.branch or not self._was_said(epoch):
            self.break_(4, f"{who} takes {number} of {branch!r}, which that has not said")
        if number < both.merge.next:
            self.break_(4, f"{who} takes {number} of {branch}, and has the stable one")
        before, last = both.newest
        both.newest = branch, number
        if number <= last:
            self.break_(4, f"{who} takes {number} of {branch} after {last} of {before}")
        if before not in ("", branch) and not self._may_leave(both, stream, before, branch, number):
            self.break_(
                4, f"{who} takes {number} of {branch}, and {before} that it followed still speaks"
            )

    def _may_leave(self, both: Any, stream: str, before: str, branch: str, number: int) -> bool:
        """Whether a branch is over, cannot be heard, or has fallen far behind."""
        node = before.partition("@")[2]
        shell = self._sim.shells.get(node)
        if shell is None or not self._sim.world.process(node).alive:
            return True
        replica = shell.hosted.replicas.get(stream)
        if replica is None or replica.said.branch != before:
            return True
        ahead = max(self.said[stream, branch], default=0) - number >= LEAD_EPOCHS
        ends, now_s = {both._process.name, node}, self._sim.world.now_s
        disturbed = any(
            fault.at_s <= now_s <= fault.at_s + fault.for_s + DISTURBED_S
            and (
                ends == {fault.who, fault.other} if fault.what in PAIRS
                else fault.who == "network" or fault.who in ends
            )
            for fault in self._sim.life.faults
        )  # fmt: skip
        return ahead or disturbed

    def hears(self, sink: Any, epoch: Epoch) -> None:
        """A sink shows a tentative epoch."""
        self._open.setdefault(self._life_of(sink), {})[epoch.number] = epoch

    def _life_of(self, sink: Any) -> str:
        return f"{sink.name}-{sink._process.life}"

    def wrote(self, sink: Any, epoch: Epoch) -> None:
        """Invariant 4: a stable epoch says what it replaces, and that is what was heard."""
        if epoch.kind == TENTATIVE:
            self.break_(4, f"{sink.name} writes {epoch.number} of {epoch.header.branch} as final")
            return
        super().wrote(sink, epoch)
        heard = self._open.get(self._life_of(sink), {}).pop(epoch.number, None)
        told = epoch.replaces
        if (heard is None) != (told is None):
            self.break_(
                4, f"{sink.name} heard {heard and heard.header.branch} of {epoch.number}, and is "
                f"told that it replaces {told and told.header.branch}",
            )  # fmt: skip
        elif heard is not None:
            changed: tuple[Any, Any] = None, None  # Given up: nobody will ever know.
            if epoch.kind != GAP:
                changed = difference(tuple(heard.table), tuple(epoch.table))
            if told.header is not heard.header or (told.withdrawn, told.added) != changed:
                self.break_(4, f"{sink.name} is told something else about {epoch.number} than it "
                               f"heard of {heard.header.branch}")  # fmt: skip

    def unsettled(self) -> list[str]:
        """Invariant 4, when faults are over: branches that go on, and what is open."""
        left = [
            f"branch {replica.branch.name} of {name} goes on"
            for node in self._sim.nodes
            if self._sim.world.process(node).alive and node in self._sim.shells
            for name, replica in self._sim.shells[node].hosted.replicas.items()
            if replica.branch is not None and not self.excused(name)
        ]
        for sink in self._sim.sinks():
            still = [n for n in self._open.get(self._life_of(sink), {}) if n < sink.next]
            left += [f"{sink.name} was not told the end of {still}"] if still else []
        return left

    def heard(self, text: str) -> None:
        """A stable line that cannot start has met something that nobody expected."""
        super().heard(text)
        if "the stable line cannot be started" in text and "no space left" not in text:
            self.break_(11, text)


def _lifted(marks: Marks, inputs: Sequence[Epoch]) -> Marks:
    """Scenario 9, in the words of the design."""
    own = list(marks.operators)
    absent = [epoch.kind == TENTATIVE and not epoch.header.branch for epoch in inputs]
    present = [mark for mark, gone in zip(own, absent, strict=True) if not gone]
    if all(absent) or not any(absent) or None in present:
        return marks
    lowest = min(mark for mark in present if mark is not None)
    own = [max(lowest, mark or 0) if gone else mark for mark, gone in zip(own, absent, strict=True)]
    return Marks(max(marks.current_ms, min(mark or 0 for mark in own)), tuple(own))
