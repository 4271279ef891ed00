"""Invariant 12: nobody waits for missing input longer than the bound, and says how long it was.

    every wait      not longer than 0.9 X and an epoch, not shorter where nobody waited yet
    every header    tells how long it was held up, no less and no more

Waits are measured here: from the moment that an input came to the moment that it was given to the
engine, and what was waited upstream.  What a header tells of that is held against it.  A node that
was paused, or could not write, has not waited.  What a stable epoch has waited upstream counts as
far as whoever is missing has been silent meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbroken.streams.flight import POLL_S
from unbroken.tentative.branch import MOMENT_PART, WAITING_PART
from unbroken.testing.checkers.converging import Converging
from unbroken.testing.epochs import Epoch
from unbroken.testing.life import EPOCH_S

#: What a message and a question more may take.
SLACK_S = 0.1


class Waits(Converging):
    """Measures; only for lives in which a fragment has a delay bound."""

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
        #: When a branch of each replica was seen last.
        self._spoke_s: dict[tuple[str, str], float] = {}
        #: Runs that have gone on without an input, before their first epoch.
        self._first: set[int] = set()
        drifts = any(fault.what == "drift" for fault in sim.life.faults)
        self._clocks = (1 / 1.1, 1 / 0.9) if drifts else (1.0, 1.0)
        #: Waits of branches, for those who want to know how long they were.
        self.waits_s: list[float] = []

    # What headers tell.

    def _tells_of_waits(self, epoch: Epoch) -> None:
        """A branch has said an epoch."""
        header = epoch.header
        waited_s = self._waited_s[header.stream, header.branch, header.number]
        most_s = waited_s * self._clocks[1] + SLACK_S
        if header.waited_s > most_s:
            self.break_(
                12, f"{header.number} of {header.branch} says that it has waited for "
                f"{header.waited_s} s, but that was {most_s:.2f} s",
            )  # fmt: skip

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
        replica = self._sim.shells[run._process.name].hosted.replicas.get(stream)
        if (
            new
            and blamed_s > most_s
            and not (self._hindered(run._process.name) or self._gives_way(replica))
        ):
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
            if self._held(replica) or self._gives_way(replica) or replica.silent_since:
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

    def _gives_way(self, replica: Any) -> bool:
        """Whether it is too slow for two lines, and corrects: then the branch waits for the other.

        New results are late for that, as told (`tentative.turns`).
        """
        if replica is None or replica.branch is None:
            return False
        stable = replica._stable_at()
        slow = self.slowness(replica.name.partition("@")[2]) > 1.0
        return bool(slow and stable is not None and stable.gets_on)

    @staticmethod
    def _held(replica: Any) -> bool:
        """Whether a log is full: then nobody goes on, and says so."""
        branch = replica.branch
        return bool(replica.full or (branch and branch._said.bytes >= branch._bytes_max))
