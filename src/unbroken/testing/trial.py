"""Trying an engine by hand: a real replica that is fed, started, killed and forked on purpose.

    feed ─▶ Fed (a replica) ─▶ the engine of a rig ─▶ its log
                └─ dies between output and commit, or between commit and note

A `Rig` knows one engine; a `Trial` is one fragment in it.  What is tried is in `conformance`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from unbroken.errors import UnbrokenError
from unbroken.gate import Gate
from unbroken.node.replica import Replica
from unbroken.policies.past import Marks
from unbroken.streams.branch_log import BranchLog
from unbroken.tentative.branch import Bound, followed
from unbroken.testing.epochs import Rows
from unbroken.testing.operators import OPERATORS, Batch, observe, step, undisturbed

#: Where a replica can be made to die.
SEALED, COMMITTED = "sealed", "committed"


class Feed:
    """The epochs of all inputs, given by hand; whoever starts later finds the earlier ones."""

    def __init__(self, streams: Sequence[str]) -> None:
        self.epochs: dict[str, list[Any]] = {name: [] for name in streams}
        self.takers: list[Given] = []

    def give(self, stream: str, epoch: Any) -> None:
        """The next epoch of `stream` is there."""
        self.epochs[stream].append(epoch)
        for taker in self.takers:
            taker.come(stream)


class Given:
    """The inputs of one replica, from a feed; as `node.inputs.Waiting`."""

    def __init__(
        self, feed: Feed, first: int, changed: Any, arrived: Callable[[str, int], None]
    ) -> None:
        self._feed, self._changed, self._arrived = feed, changed, arrived
        self.error: UnbrokenError | None = None
        self.refused: list[str] = []
        self._next = dict.fromkeys(feed.epochs, first)
        feed.takers.append(self)
        for stream in feed.epochs:
            self.come(stream)

    def come(self, stream: str) -> None:
        """Offers what is there and was not offered yet."""
        with self._changed:
            while self._next[stream] < len(self._feed.epochs[stream]):
                self._next[stream] += 1
                self._arrived(stream, self._next[stream] - 1)
            self._changed.notify_all()

    def epoch(self, stream: str, number: int) -> Any:
        """An epoch that has arrived."""
        return self._feed.epochs[stream][number]

    def done(self, number: int) -> None:
        """It stays: another replica may read the same feed."""

    def speak_for(self, lacks: Callable[[], int | None]) -> None:
        """Nobody asks how far it is."""

    def begin(self) -> None:
        """What there is was offered already."""

    def stop(self) -> None:
        """Nothing more is offered to it."""
        if self in self._feed.takers:
            self._feed.takers.remove(self)


class _Young:
    """A book of streams that have all their epochs still."""

    def wait_for(self, stream: str, timeout_s: float) -> dict[str, int]:
        return {"first": 0, "next": 0}


class Fed(Replica):
    """A replica that is fed by hand, and dies once, at `dies`: a point and an epoch."""

    def __init__(
        self, fragment: Any, folder: Any, known: Any, feed: Feed, dies: tuple[str, int] | None
    ) -> None:
        super().__init__(fragment, folder, _Young(), known, name=f"{fragment.name}@node-1")  # type: ignore[arg-type]
        self._feed, self._dies = feed, dies

    def _waiting(self, first: int, gate: Gate) -> Any:
        return Given(self._feed, first, self._changed, self._arrived(gate))

    def bind(self, delay_s_max: float) -> None:
        """Before it runs: it goes on without an input that is missing for so long."""
        self.fragment = replace(self.fragment, bound=Bound(delay_s_max))
        self.said = BranchLog(self.folder / "tentative", self.fragment.name)

    def _check_output(self, committed: int) -> None:
        if self.log.next == self.log.first:
            self.log.start_at(committed + 1)  # A fork in a new place: only the state came along.

    def _seal(self, number: int, rows: Any, digest: str) -> None:
        super()._seal(number, rows, digest)
        self._die(SEALED, number)

    def _committed(self, epoch: int) -> None:
        assert self._gate is not None
        if epoch != self._gate.committed:
            self._die(COMMITTED, epoch)
        super()._committed(epoch)

    def _die(self, where: str, epoch: int) -> None:
        if self._dies == (where, epoch):
            raise UnbrokenError(f"dies: epoch {epoch} is {where}")


class Rig(ABC):
    """An engine, and what it takes to try it.  One fragment at a time has a feed: see `trial`."""

    @abstractmethod
    def replica(
        self, operator: str, inputs: Sequence[str], folder: str, feed: Feed,
        dies: tuple[str, int] | None,
    ) -> Fed:  # fmt: skip
        """A replica of a fragment that computes `operator`, in `folder`; it does not run yet."""

    @abstractmethod
    def start(self, replica: Fed, *, forked: bool = True) -> None:
        """Starts it; not `forked`: on the newest folder as it is, which nobody should ever do."""

    @abstractmethod
    def hold(self, replica: Fed) -> None:
        """Starts its query in advance, and waits until it waits."""

    @abstractmethod
    def fork(self, source: str, at: int, target: str) -> None:
        """Forks the newest checkpoint in `source` at epoch `at`; it is shipped to `target`."""

    def give(self, feed: Feed, stream: str, epoch: Any) -> None:
        """The next epoch of `stream` comes to whoever is fed."""
        feed.give(stream, epoch)

    @abstractmethod
    def epoch(self, stream: str, number: int, rows: Rows) -> Any:
        """Rows as an epoch of this engine."""

    @abstractmethod
    def rows(self, epoch: Any) -> Rows:
        """An epoch of this engine as rows, sorted."""

    @abstractmethod
    def commits(self, folder: str) -> list[int]:
        """The epochs of all batches that are in the commit log of the newest term in `folder`."""

    @abstractmethod
    def wait(self, until: Callable[[], object], what: str) -> None:
        """Waits, within a limit, for something to be true."""

    @abstractmethod
    def rest(self) -> None:
        """Waits so long that whatever comes by itself has come."""


class Trial:
    """One fragment and its feed, in a rig."""

    def __init__(self, rig: Rig, operator: str, inputs: int = 0) -> None:
        count = inputs or OPERATORS[operator].inputs[0]
        self.rig, self.operator = rig, operator
        self.inputs = ("left", "right")[:count]
        self.feed = Feed(self.inputs)
        self._fed: list[list[Rows]] = [[] for _ in self.inputs]

    def give(self, place: int, rows: Rows) -> None:
        """The next epoch of one input."""
        self._fed[place].append(rows)
        number = len(self._fed[place]) - 1
        stream = self.inputs[place]
        self.rig.give(self.feed, stream, self.rig.epoch(stream, number, rows))

    def give_all(self, *rows: Rows) -> None:
        """The next epoch of every input."""
        for place, each in enumerate(rows):
            self.give(place, each)

    @property
    def expected(self) -> list[Rows]:
        """What the operator alone makes of all that was given."""
        epochs = zip(*self._fed, strict=True)
        return [tuple(sorted(rows)) for rows in undisturbed(OPERATORS[self.operator], epochs)]

    def without(self, place: int, after: int) -> list[Rows]:
        """What the operator makes of it if one input is missing after epoch `after`, from there on.

        The watermark of that input follows the other one.
        """
        operator, names = OPERATORS[self.operator], [{name} for name in self.inputs]
        state: dict[Any, Any] = {}
        marks, late_ms, said = Marks(0, (None,) * operator.watermarks), 0, []
        for number in range(len(self._fed[1 - place])):
            missing = number > after
            rows = [() if missing and p == place else fed[number]
                    for p, fed in enumerate(self._fed)]  # fmt: skip
            state, out = step(operator, state, rows, Batch(late_ms, marks.current_ms))
            late_ms, marks = marks.current_ms, observe(marks, operator, rows)
            if missing:
                said.append(tuple(sorted(out)))
                lifted = followed(marks.operators, names, {self.inputs[place]})
                current_ms = min(mark or 0 for mark in lifted)
                marks = Marks(max(marks.current_ms, current_ms), tuple(lifted))
        return said

    def replica(self, folder: str, dies: tuple[str, int] | None = None) -> Fed:
        """A replica in `folder`; it does not run yet."""
        return self.rig.replica(self.operator, self.inputs, folder, self.feed, dies)

    def begin(self, folder: str, dies: tuple[str, int] | None = None) -> Fed:
        """A replica that goes on from the newest checkpoint in `folder`."""
        replica = self.replica(folder, dies)
        self.rig.start(replica)
        return replica

    def done(self, replica: Fed, epoch: int) -> None:
        """Waits until `epoch` is committed."""
        self.rig.wait(
            lambda: replica.committed >= epoch or replica.failed, f"epoch {epoch} is committed"
        )
        assert not replica.failed, replica.failed

    def dead(self, replica: Fed) -> None:
        """Waits until it has failed, and ends what is left of it."""
        self.rig.wait(lambda: replica.failed, "it fails")
        replica.stop()

    def said(self, replica: Fed) -> list[Rows]:
        """The output, from the first epoch in its log on."""
        return [
            self.rig.rows(replica.log.read(number))
            for number in range(replica.log.first, replica.log.next)
        ]
