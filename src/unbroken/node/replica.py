"""A replica: one running copy of a fragment, its checkpoint and its output log.

    inputs ─▶ gate ─▶ Spark ─▶ seal ─▶ output log ─▶ door
                        └─ commit, seen in its next question ─▶ ack

* It starts from a fork of the newest checkpoint in its folder; or *held*, its query waiting for a
  checkpoint that is still to come (`hold`); or from a *seed*, with empty state and the watermarks
  of that point, mute until it is past what its consumers have.
* What it tells producers and standbys is in `promises`.
* Output that must not be seen twice with other rows is *staged* first (see `staged`).
* A full output log holds the gate: pushing back is never silent, the sentence says who holds it.
* While input is cut off it may have a second query, a tentative branch (see `lines`).
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from unbroken.checkpoints import fork
from unbroken.engine.plan import Plan
from unbroken.engine.run import Run
from unbroken.engine.source import AHEAD
from unbroken.epochs import Epoch
from unbroken.errors import UnbrokenError
from unbroken.gate import Gate
from unbroken.node import checks
from unbroken.node.book import BookReader
from unbroken.node.inputs import Inputs, Waiting
from unbroken.node.lines import PlanFor
from unbroken.node.oldest import OldestSession, reader
from unbroken.node.parts import Parts, nth_slice
from unbroken.node.promises import Promises
from unbroken.node.staged import Staged
from unbroken.policies import Upstream
from unbroken.policies.guarantee import holds_output
from unbroken.policies.past import Seed
from unbroken.policies.sessions import SessionPast, past_of
from unbroken.policies.traits import OperatorClass
from unbroken.query import Fragment
from unbroken.streams.branch_log import BranchLog
from unbroken.streams.giving_up import consumed, is_given_up
from unbroken.streams.log import EpochLog, drop_torn_tail
from unbroken.streams.source_log import LOG_BYTES_MAX


class Replica(Promises):
    """Runs one fragment on this node.  `known` is what is known of its plan already."""

    def __init__(
        self,
        fragment: Fragment,
        folder: Path,
        book: BookReader,
        known: Plan,
        *,
        name: str,
        log_bytes_max: int = LOG_BYTES_MAX,
    ) -> None:
        super().__init__()
        self.fragment = fragment
        #: As producers know it.
        self.name = name
        if fork.rebooted(folder):
            drop_torn_tail(folder / "output")
            drop_torn_tail(folder / "staged")
        self.log = EpochLog(folder / "output", fragment.name)
        self.folder = folder
        last = self.log.last_header
        #: Epochs and rows that this fragment has given up, in holes of its own.
        self.losses = (last.gaps_here, last.lost_here) if last else (0, 0)
        if fragment.bound is not None:
            self.said = BranchLog(folder / "tentative", fragment.name)
        self._book = book
        self._log_bytes_max = log_bytes_max
        self._parts = Parts()
        self._plan = known
        self._held: fork.Start | None = None
        self.staged: Staged | None = None
        self._stage(committed=None)
        self._seed: Seed | None = None
        if isinstance(fragment.policy, Upstream):
            self._past = past_of(known.traits)
        #: Readers of several inputs ask at the same time; a commit is noted once.
        self._committing = threading.Lock()

    def _stage(self, *, committed: int | None) -> None:
        if holds_output(self.fragment.policy, self._plan.traits.operator_class):
            if self.staged is not None:
                self.staged.close()
            self.staged = Staged(self.folder / "staged", self.log, committed=committed)

    @property
    def notes_watermarks(self) -> bool:  # type: ignore[override]
        """Whether its checkpoint counts only with a note of every operator's watermark."""
        return self._plan.notes_watermarks

    def hold(self, plan: PlanFor) -> None:
        """Starts the Spark query in advance, if something was shipped: it waits until `start`."""
        self._held = fork.hold(self.folder, with_watermarks=self.notes_watermarks)
        if self._held is not None:
            self._start_query(plan, self._held)
            self.sentence = "held: waits to take over"

    @property
    def holding(self) -> bool:
        """Whether a query is held; it may have failed meanwhile."""
        run = self._run
        return self._held is not None and run is not None and run.failure() is None

    def wait_held(self, timeout_s: float) -> None:
        """Waits until the query that is held has started, or will not."""
        deadline_s = time.monotonic() + timeout_s
        while self.holding and not self._waits.wait(0.1) and time.monotonic() < deadline_s:
            pass

    def start(self, plan: PlanFor, *, seed: Seed | None = None) -> None:
        """Goes on from the newest checkpoint in its folder, or from a `seed` with empty state."""
        self._since_s = time.monotonic()
        if not self.holding:
            self._held = self._run = None
        if self._held is not None:
            began = fork.fill(self._held, self.folder, with_watermarks=self.notes_watermarks)
        elif seed is not None:
            began = fork.empty(self.folder)
        else:
            began = fork.start(self.folder, with_watermarks=self.notes_watermarks)
        self._seed = seed
        committed = seed.first - 1 if seed else -1 if began.epoch is None else began.epoch
        if began.epoch is None and seed is None:
            checks.would_be_the_same(self.fragment, self.folder, self.log, self.staged, began.lost)
            checks.inputs_reach_back(
                self.fragment, self.folder, self._book, began.lost, draws=self.staged is not None
            )
        self._stage(committed=committed)
        if began.epoch is not None:
            self._fill_hole()
            self._check_output(committed)
        if self._held is None:
            self._start_query(plan, began)
        checks.same_code(self.fragment, self.log, self._plan.fingerprint)
        self._go_on_after(committed, fresh=seed is None and began.epoch is None)
        self._read_oldest(began)

    def _go_on_after(self, committed: int, *, fresh: bool = False) -> None:
        """Everything is there: the query that was started is let go."""
        gate = Gate(self.fragment.inputs, committed=committed)
        inputs = self._waiting(committed + 1, gate)
        with self._changed:
            self._gate, self._inputs = gate, inputs
            assert self._run is not None
            self._run.go_on_from(None if fresh else committed)
            self.sentence = f"started as term {self.term} after epoch {committed}"
            self.first = committed + 1
            self._changed.notify_all()
        inputs.begin()

    def _resume(self, began: fork.Start) -> None:
        """The stable line's own query, beside the branch."""
        assert self._plan_for is not None
        assert began.epoch is not None
        # It goes on from a checkpoint: where it once began is of the past.
        self._restored, self._seed = False, None
        self._start_query(self._plan_for, began)
        if not self._stopped:  # That took a while; what it would ask for may be gone.
            self._go_on_after(began.epoch)
            self._read_oldest(began)

    def _read_oldest(self, began: fork.Start) -> None:
        if isinstance(self._past, SessionPast):
            read = reader(self._plan, began.checkpoint, self.folder / "reading")
            self._oldest = OldestSession(
                self.fragment.name, read, may_read=lambda: self.asking and not self.failed
            )

    def _waiting(self, first: int, gate: Gate) -> Waiting:
        arrived, listen = self._arrived(gate), dict[str, Any]()
        if self._arrivals is not None:
            listen = {
                "heard": self._arrivals.heard,
                "wait_s": self._arrivals.silence.bound.answer_s,
            }
        return Inputs(
            self.fragment.inputs, first, self._book, consumer=self.name, changed=self._changed,
            arrived=arrived, withdraw=(self._arrivals or gate).withdraw, **listen,
        )  # fmt: skip

    def _start_query(self, plan: PlanFor, began: fork.Start) -> None:
        self._plan_for = plan
        self.term = began.term
        self._plan = plan(began.term)
        self._run = Run(
            self.fragment.name, self._plan, self.fragment.output_mode, began, self._seal,
            self._parts.take, with_watermarks=self.notes_watermarks,
        )  # fmt: skip

    def _check_output(self, committed: int) -> None:
        checks.has_output(self.fragment, self.log, self.staged, committed)

    def ask(
        self, stream: str, after: int, term: int, *, rows: bool, ahead: bool = False
    ) -> pa.Table | None:
        """Spark's question: what comes after `after` on `stream`?  None is "not yet".

        `ahead`: whoever may plan ahead of the rows is told `AHEAD`, at once.
        """
        with self._changed:  # It parts under this, and another reader may find that it is time.
            branch = self.branch
            if branch is None or term != branch.term:
                branch = None
                self._check_term(term)
        if branch is not None:
            return branch.ask(stream, after, rows=rows)
        self._has_asked()
        with self._committing:
            if self._is_news(after, term):
                self._committed(after)
        if ahead and self._plans_ahead:
            return AHEAD
        with self._changed:
            number = self._wait_next(after, term)
            if self._failed_by_itself is not None:
                raise self._failed_by_itself
            if term != self.term:
                return None  # It has just become a branch: asked again, it is answered as such.
        if not number:
            return None
        assert self._inputs is not None
        epoch = self._inputs.epoch(stream, int(number) - 1)
        return epoch.stamped() if rows else epoch.stamped().slice(0, 0)

    def _is_news(self, after: int, term: int) -> bool:
        """Whether a question tells that `after` is committed, and no other has told it before."""
        with self._changed:
            assert self._gate is not None
            known = self._restored and after == self._gate.committed
            return term == self.term and after == self._gate.released and not known

    @property
    def _plans_ahead(self) -> bool:
        """Whether Spark may plan an epoch that has not come: its number alone is in the plan.

        Not if it may look at the clock, which for Spark stands still from there on.
        """
        return self._plan.traits.operator_class is not OperatorClass.ARBITRARY

    def _next(self, after: int) -> int | None:
        """The next epoch's number plus one (0 must be true), if it may be released."""
        assert self._gate is not None
        if self._failed_by_itself is not None:
            return 1
        if no_room := self._no_room():
            self.sentence = no_room
            return None
        number = self._gate.asked(after=after)
        if number is None:
            if not self._idle:
                self._idle = True
                self._changed.notify_all()
            self.sentence = f"waiting for epoch {after + 1} of {', '.join(self._gate.missing)}"
            return None
        self._idle = False
        self._since_s = time.monotonic()
        mute = " (mute)" if self._mute(number) else ""
        self.sentence = f"working on epoch {number}{mute}"
        return number + 1

    def _no_room(self) -> str:
        """Why no epoch is released although it may be complete; empty if that is not so."""
        if self.full:
            held = f"{self.log.bytes:,} bytes, its limit; it is kept for {self.holder()}"
            return f"waiting: the output log holds {held}"
        # What is shown goes to the log: both together must fit there.
        waits = self.staged.bytes if self.staged else 0
        if waits and self.log.bytes + waits >= self._log_bytes_max:
            return "waiting: no standby has confirmed the output, and no more can be kept"
        return ""

    def has_room(self) -> None:
        """Its log was full, and something of it is gone: whoever waits may go on."""
        with self._changed:
            self._changed.notify_all()

    def make_room(self) -> None:
        """Gives up the oldest epochs of a full log, if that is what the user wants."""
        if self.room is None or self._stopped:
            return
        told = self.room.look(now_s=time.monotonic())
        if told:
            print(f"{self.name}: {told}", flush=True)
            self.has_room()

    def _committed(self, epoch: int) -> None:
        """Batch `epoch` is in Spark's commit log: only now may anything be promised."""
        assert self._gate is not None
        assert self._inputs is not None
        assert self._run is not None
        if not self._restored:
            self._restore(self._run, epoch)
            self._restored = True
        if epoch == self._gate.committed:
            return  # Asked again after "not yet", or the other input's turn.
        self._has_worked()
        self._run.save_watermarks(epoch)
        marks = self._run.marks() if self._past is not None else None
        with self._changed:
            if self._past is not None and marks is not None:
                self._past.done(epoch, marks)
            self._gate.asked(after=epoch)
            self._inputs.done(epoch)
            if self._arrivals is not None:
                self._arrivals.done(epoch)
            self._changed.notify_all()
        self._look_at_branch()
        if self.epochs_done == 1 and self.branch is None:
            fork.forget_before(self.folder, self.term)

    def _restore(self, run: Run, epoch: int) -> None:
        """Puts watermarks back before the first epoch of this term."""
        if self._seed is None:
            run.restore_watermarks()
        elif self._seed.marks is not None:
            run.put_marks(self._seed.marks)
        if self._past is not None:
            marks = run.marks()
            with self._changed:  # Acks are made of it.
                self._past.began(epoch, marks)

    def slice(self, stream: str, number: int, index: int, count: int, term: int) -> pa.Table:
        """One of `count` equal slices of a released epoch, for an executor."""
        branch = self.branch
        if branch is not None and term == branch.term:
            return branch.slice(stream, index, count)
        self._check_term(term)
        assert self._inputs is not None
        return nth_slice(self._inputs.epoch(stream, number).table, index, count)

    def put_part(self, epoch: int, part: int, attempt: int, table: pa.Table, term: int) -> None:
        """An executor pushes a part of the epoch that Spark works on."""
        branch = self.branch
        if branch is not None and term == branch.term:
            branch.parts.put(epoch, part, attempt, table)
            return
        self._check_term(term)
        self._parts.put(epoch, part, attempt, table)

    @property
    def silent_since(self) -> Seed | None:
        """The seed that it began with, until it has committed an epoch that others may see."""
        seed = self._seed
        return seed if seed and self.committed < seed.speak else None

    def _mute(self, number: int) -> bool:
        """Whether consumers have this epoch already, and only the state of it is made again."""
        seed = self._seed
        return seed is not None and number < seed.speak

    def _seal(self, number: int, rows: pa.Table, digest: str) -> None:
        assert self._gate is not None
        assert self._inputs is not None
        if number != self._gate.released:
            raise UnbrokenError(f"Spark made epoch {number}, released was {self._gate.released}")
        inputs = [self._inputs.epoch(name, number) for name in self.fragment.inputs]
        self.epochs_done += 1
        self.rows_in += sum(e.rows for e in inputs)
        if self._mute(number):
            return
        if number >= self.log.next:  # Made again after a crash, it is counted already.
            self.losses = consumed(self.losses, [e.header for e in inputs])
        gaps, rows_lost = self.losses
        told = [e.header for e in inputs if not is_given_up(e.header)]
        epoch = Epoch.of(
            self.fragment.name, number, rows, digest=digest, event_time=self._plan.event_time,
            term=self.term, fingerprint=self._plan.fingerprint,
            sealed_us=min(e.header.sealed_us for e in inputs),
            lost=sum(e.header.lost for e in inputs),
            gaps_total=gaps + sum(header.gaps_total for header in told),
            lost_total=rows_lost + sum(header.lost_total for header in told),
            gaps_here=gaps, lost_here=rows_lost,
            waited_s=self._held_up_s(number, [e.header for e in inputs]),
        )  # fmt: skip
        (self.staged or self.log).append(epoch)
        self._correct(epoch)
        self.rows_out += epoch.rows

    @property
    def asking(self) -> bool:
        """Whether Spark has asked for an epoch: the replica works, and is past what was said."""
        return self._asked.is_set() and not self._mute(self.committed + 1)
