"""Invariants 4 and 12: tentative epochs are known as such, replaced in time, and said in time.

    4   every branch log     numbered without holes, named, nothing that is stable already
        every branch         says what its operator makes of what it was given
        whoever follows      one branch at a time, each number once, only what that branch has said
        every sink           is told what becomes of all that it heard
        in the end           no branch is left, and nothing is open
    12  every wait           not longer than 0.9 X and an epoch, not shorter where nobody waited yet

Waits are measured here: from the moment that an input came to the moment that it was given to the
engine, and what was waited upstream.  What a header tells of that is held against it.  A node that
was paused, or could not write, has not waited.  What a stable epoch has waited upstream counts as
far as whoever is missing has been silent meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbroken.epochs import GAP, TENTATIVE
from unbroken.policies.past import Marks
from unbroken.streams.flight import POLL_S
from unbroken.tentative.branch import MOMENT_PART, WAITING_PART
from unbroken.tentative.hearing import LEAD_EPOCHS
from unbroken.testing.checkers.converging import Converging
from unbroken.testing.disk import Path
from unbroken.testing.epochs import Epoch, difference, digest_of
from unbroken.testing.life import EPOCH_S
from unbroken.testing.operators import Batch, observe, step
from unbroken.testing.pasts import Past

#: What a message and a question more may take.
SLACK_S = 0.1
#: Whoever was disturbed may take so long to hear of a branch again.
DISTURBED_S = 6.0
#: Faults that only those two notice whose line it is.
PAIRS = ("cut", "cut one way", "slow")


class Tentative(Converging):
    """Looks at branches too; only for lives in which a fragment has a delay bound."""

    def __init__(self, sim: Any) -> None:
        super().__init__(sim)
        #: By stream and branch: what it has said, by number.
        self.said: dict[tuple[str, str], dict[int, Epoch]] = {}
        #: By stream, branch and number: how long it has waited, here and upstream.
        self._waited_s: dict[tuple[str, str, int], float] = {}
        #: By node, stream and number: how long a stable epoch was held up for want of input, here
        #: alone and altogether.
        self._held_up_s: dict[tuple[str, str, int], tuple[float, float, Any]] = {}
        #: By node and stream, what its newest stable epoch tells of that.
        self._told_s: dict[tuple[str, str], float] = {}
        #: Until when a node cannot be blamed for waiting.
        self._excused_s: dict[str, float] = {}
        #: What the operator alone would know after the newest epoch of a branch.
        self._alone: dict[int, tuple[dict[Any, Any], Marks, int]] = {}
        #: When a branch of each replica was seen last.
        self._spoke_s: dict[tuple[str, str], float] = {}
        #: Runs that have gone on without an input, before their first epoch.
        self._first: set[int] = set()
        #: What a sink has heard in its present life and not been told the end of.
        self._open: dict[str, dict[int, Epoch]] = {}
        drifts = any(fault.what == "drift" for fault in sim.life.faults)
        self._clocks = (1 / 1.1, 1 / 0.9) if drifts else (1.0, 1.0)
        #: Waits of branches, for those who want to know how long they were.
        self.waits_s: list[float] = []

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
        waited_s = self._waited_s[stream, branch, number] * self._clocks[1] + SLACK_S
        if epoch.header.waited_s > waited_s:
            self.break_(
                12, f"{number} of {branch} says that it has waited for {epoch.header.waited_s} s, "
                f"but that was {waited_s:.2f} s",
            )  # fmt: skip
        if number in folder.disk.logs.get(f"{folder.parent.parent}/output", {}):
            self.break_(4, f"{branch} says epoch {number} of {stream}, and the stable one is there")

    def _tells(self, node: str, header: Any) -> None:
        """Invariant 12: a stable epoch tells how long it was held up, no less and no more."""
        key = node, header.stream, header.number
        before_s = self._told_s.get((node, header.stream), 0.0)  # It cannot overtake.
        self._told_s[node, header.stream] = header.waited_s
        if key not in self._held_up_s:
            return
        here_s, total_s, replica = self._held_up_s.pop(key)
        if self._sim.shells[node].hosted.replicas.get(header.stream) is not replica:
            return  # It was copied from another node.
        least_s = here_s * self._clocks[0] - SLACK_S
        most_s = max(before_s, total_s * self._clocks[1]) + SLACK_S
        if not least_s <= header.waited_s <= most_s:
            self.break_(
                12, f"{header.number} of {header.stream} on {node} says that it was held up for "
                f"{header.waited_s} s, but that was {here_s:.2f} s here, {total_s:.2f} s in all",
            )  # fmt: skip

    def lost(self, who: str) -> None:
        """With a disk its terms are lost: they are counted from 1 again."""
        super().lost(who)
        for stream, branch in [each for each in self.said if each[1].endswith("@" + who)]:
            del self.said[stream, branch]

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
            said = self.said.get((epoch.header.stream, epoch.header.branch), {})
            nothing = epoch.kind == TENTATIVE and not epoch.header.branch and not epoch.rows
            if epoch.number != number:
                self.break_(2, f"branch {run.branch.name} is given {epoch.number}, not {number}")
            elif epoch.kind != TENTATIVE:
                self._same(epoch, f"branch {run.branch.name} is given")
            elif not nothing and epoch is not said.get(number):
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

    # How long anybody waits.

    def excuse(self, node: str) -> None:
        """Up to now it could not have gone on."""
        self._excused_s[node] = self._sim.world.now_s

    def _limit_s(self, bound_s: float, upstream_s: float) -> float:
        waits_s = WAITING_PART * bound_s * self._clocks[1]
        # Whoever waits for room in a log looks for it again after a while.
        room_s = POLL_S if self._sim.life.log_bytes_max else 0.0
        return max(waits_s, upstream_s) + MOMENT_PART * bound_s + EPOCH_S + SLACK_S + room_s

    def _measures(self, run: Any, inputs: Sequence[Epoch]) -> None:
        """A stable line is given an epoch: how long was it held up?"""
        node, number = run._process.name, run._after + 1
        replica = self._sim.shells[node].hosted.replicas.get(run._plan.name)
        if replica is None or replica.fragment.bound is None or replica.branch is not None:
            return
        came_s = {name: replica._inputs.came_s[name, number] for name in replica.fragment.inputs}
        complete_s, excused_s = max(came_s.values()), self._excused_s.get(node, 0.0)
        here_s = complete_s - max(min(came_s.values()), run.asked[1], excused_s)
        heard = replica._inputs.branches
        upstream_s = {  # It may have been heard on a branch first.
            name: self._waited_s.get((name, heard.get((name, number), ""), number), 0.0)
            for name in came_s
        }
        total_s = max(
            max(upstream_s[e.header.stream], e.header.waited_s)
            + complete_s - came_s[e.header.stream] for e in inputs
        )  # fmt: skip
        self._held_up_s[node, run._plan.name, number] = here_s, total_s, replica

    def _masked_s(self, waiting: Any, stream: str, number: int) -> float:
        """What a stable epoch was held up, as far as those that are missing are silent since."""
        came_s = waiting.came_s[stream, number]
        silent = [name for name in waiting._buffers if (name, number) not in waiting.came_s]
        heard_s = max(
            (max((at_s for (of, _), at_s in waiting.came_s.items() if of == name), default=came_s)
             for name in silent),
            default=came_s,
        )  # fmt: skip
        return min(self._tells_s(waiting, stream, number), float(max(0.0, came_s - heard_s)))

    @staticmethod
    def _tells_s(waiting: Any, stream: str, number: int) -> float:
        """What a stable epoch that is here tells of its waits."""
        epoch = waiting._buffers[stream].get(number)
        return 0.0 if epoch is None else float(epoch.header.waited_s)

    def _waits(self, run: Any, number: int, inputs: Sequence[Epoch]) -> None:
        """Invariant 12: an epoch is given to a branch."""
        now_s, stream, bound_s = self._sim.world.now_s, run._plan.name, self._bound_s(run)
        waiting = run.branch._inputs
        came_s, heard = waiting.came_s, waiting.branches
        upstream_s = {
            name: self._waited_s[name, heard[name, number], number]
            if (name, number) in heard and (name, heard[name, number], number) in self._waited_s
            else self._masked_s(waiting, name, number)
            for name in (epoch.header.stream for epoch in inputs)
            if (name, number) in came_s
        }
        total_s = max(
            (max(before, self._tells_s(waiting, name, number)) + now_s - came_s[name, number]
             for name, before in upstream_s.items()),
            default=0.0,
        )  # fmt: skip
        excused_s = self._excused_s.get(run._process.name, 0.0)
        asked_s = run.asked[1]
        if id(run) in self._first:  # It was ready while another branch spoke.
            asked_s = max(asked_s, self._spoke_s.get((run._process.name, stream), 0.0))
        blamed_s = max(
            (now_s - max(excused_s, asked_s) if excused_s > came_s[name, number]
             else before + now_s - max(came_s[name, number], asked_s)
             for name, before in upstream_s.items()),
            default=0.0,
        )  # fmt: skip
        self._waited_s[stream, run.branch.name, number] = total_s
        self.waits_s.append(total_s)
        most_s = self._limit_s(bound_s, max(upstream_s.values(), default=0.0))
        new = number > self._said_before(run)
        if new and blamed_s > most_s and not self._hindered(run._process.name):
            self.break_(
                12, f"epoch {number} of {stream} has waited {blamed_s:.2f} s, its bound is "
                f"{bound_s:g} s",
            )  # fmt: skip
        least_s = WAITING_PART * bound_s * self._clocks[0] - SLACK_S
        if id(run) in self._first and total_s < least_s:
            self.break_(
                12, f"{stream} goes on without an input after {total_s:.2f} s, its bound is "
                f"{bound_s:g} s",
            )  # fmt: skip
        self._first.discard(id(run))

    def _said_before(self, run: Any) -> int:
        """The newest epoch that an earlier branch of this replica has said: no new result."""
        stream, node, own = run._plan.name, run._process.name, run.branch.name
        said = (
            max(numbers) for (of, branch), numbers in self.said.items()
            if of == stream and branch != own and branch.endswith("@" + node) and numbers
        )  # fmt: skip
        return max(said, default=-1)

    def _bound_s(self, run: Any) -> float:
        return float(self.piece(run._plan.name).max_delay)

    def _hindered(self, node: str) -> bool:
        return bool(self._sim.disk(node).full or self._sim.world.process(node).paused)

    def status(self, node: str, fragments: dict[str, dict[str, Any]]) -> None:
        """Invariant 12: nobody waits for ever who should go on without what is missing."""
        super().status(node, fragments)
        if self._hindered(node):
            self.excuse(node)
            return
        for name, replica in self._sim.shells[node].hosted.replicas.items():
            run = replica.branch._run if replica.branch is not None else replica._run
            inputs = replica.branch._inputs if replica.branch is not None else replica._inputs
            if replica.fragment.bound is None or run is None or run.ended or inputs is None:
                continue
            if self._held(replica):
                self.excuse(node)
                continue
            if replica.branch is not None:
                # Up to now somebody spoke; a stable line that was ready meanwhile waits from here.
                self._spoke_s[node, name] = self._sim.world.now_s
            number, asked_s = run.asked
            asked_s = (
                asked_s if replica.branch else max(asked_s, self._spoke_s.get((node, name), 0.0))
            )
            came = [at for (_, n), at in inputs.came_s.items() if n == number]
            if not came or number < 1 or run._after + 1 != number or run._step != run._ask:
                continue
            waited_s = self._sim.world.now_s - max(
                min(came), asked_s, self._excused_s.get(node, 0.0)
            )
            if waited_s > self._limit_s(self._bound_s(run), 0.0):
                self.break_(
                    12, f"epoch {number} of {name} waits for {waited_s:.2f} s on {node}, its bound "
                    f"is {self._bound_s(run):g} s",
                )  # fmt: skip

    @staticmethod
    def _held(replica: Any) -> bool:
        """Whether a log is full: then nobody goes on, and says so."""
        branch = replica.branch
        return bool(replica.full or (branch and branch._said.bytes >= branch._bytes_max))

    # Who follows.

    def follows(self, both: Any, wanted: Any, epoch: Epoch) -> None:
        """Invariant 4: a consumer takes a tentative epoch."""
        stream, branch, number = epoch.header.stream, epoch.header.branch, epoch.number
        who = both._follower._consumer
        if branch != wanted.branch or epoch is not self.said.get((stream, branch), {}).get(number):
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
        if "the stable line cannot be started" in text:
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
