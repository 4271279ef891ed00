"""The health of a replica: whether it goes on, and if not, why.

    started ─▶ asked ─▶ epoch after epoch ─▶ stopped
                 └─ failed: the user's code          people mend it
                 └─ stumbled: a busy machine         it is started again where it is
                 └─ lost: its inputs are gone        it is taken from another node, or rebuilt

* A query of an earlier term may still be there, an orphan; whatever it asks is refused.
* Who asks why it does not go on gets one answer: what it found out by itself comes first, because
  Spark's words are only the echo of that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from unbroken.engine.plan import Plan
from unbroken.engine.run import Run
from unbroken.errors import CheckpointLost, FenceError, UnbrokenError
from unbroken.gate import Gate
from unbroken.node.inputs import Waiting
from unbroken.node.oldest import OldestSession
from unbroken.node.room import Room
from unbroken.node.staged import Staged
from unbroken.query import Fragment
from unbroken.streams.flight import POLL_S
from unbroken.streams.log import EpochLog


class Health:
    """What a replica does, how far it is, and why it does not go on."""

    fragment: Fragment
    log: EpochLog
    #: What is computed and not shown yet; None if all is shown at once.
    staged: Staged | None
    _plan: Plan
    _log_bytes_max: int

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._run: Run | None = None
        self._gate: Gate | None = None
        self._inputs: Waiting | None = None
        #: Of an upstream-backup fragment with session windows: when the oldest of them starts.
        self._oldest: OldestSession | None = None
        #: Set when the held query has started, and asks whether it may go on.
        self._waits = threading.Event()
        #: Set with Spark's first question: its Python processes are there.
        self._asked = threading.Event()
        self._stopped = False
        #: Why it could not begin, if nothing on this node or another one can mend that.
        self._no_start: CheckpointLost | None = None
        self.given_up = False
        self.term = 0
        #: The first epoch that this term works on; None while it is held.
        self.first: int | None = None
        self.epochs_done = 0
        self.rows_in = 0
        self.rows_out = 0
        #: Seconds from the start of its query to the first question, and of work per epoch.
        self.start_s: float | None = None
        self.work_s: float | None = None
        self._since_s = time.monotonic()
        #: For whom its output log is kept, and why there will never be room in it; told by whoever
        #: serves it.
        self.holder: Callable[[], str] = lambda: "nobody"
        self.standstill: Callable[[], str] = lambda: ""
        #: Where a full output log gives up its oldest epochs; None: it waits.
        self.room: Room | None = None
        #: What the replica does, in a sentence.
        self.sentence = "starting"

    def wait_released(self, term: int) -> int | None:
        """The question of a query that has started: its first epoch, or None for "not yet"."""
        with self._changed:
            self._waits.set()
            self._changed.wait_for(lambda: self._stopped or self.first is not None, POLL_S)
            self._check_term(term)
            return self.first

    def stop(self) -> None:
        """Ends the replica on this node; its checkpoint and its log stay as they are."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._inputs is not None:
            self._inputs.stop()
        if self._oldest is not None:
            self._oldest.stop()
        if self._run is not None:
            self._run.stop()
        if self.staged is not None:
            self.staged.close()
        self.sentence = "stopped"

    def _check_term(self, term: int) -> None:
        if term != self.term or self._stopped:
            raise FenceError(
                f"{self.fragment.name!r}: a query of term {term} asks, but {self.term} runs",
                hint="an orphan of an earlier process; it should end",
            )

    def wait_asked(self, timeout_s: float) -> None:
        """Waits for Spark's first question, or until it is clear that none will come.

        One that has stumbled is started again by whoever waits here, when the others are started.
        """
        deadline = time.monotonic() + timeout_s
        while not self._asked.wait(0.1) and not (self.failed or self.stumbled):
            if time.monotonic() > deadline:
                return

    def _has_asked(self) -> None:
        """Spark's question has come."""
        if not self._asked.is_set():
            self.start_s = time.monotonic() - self._since_s
            self._asked.set()

    def _has_worked(self) -> None:
        """An epoch is done that was released at `_since_s`."""
        took_s = time.monotonic() - self._since_s
        # The last ten or so count: the first ones are slow, until Spark's code is compiled.
        self.work_s = took_s if self.work_s is None else 0.9 * self.work_s + 0.1 * took_s

    @property
    def committed(self) -> int:
        """The newest epoch that is sealed and in Spark's commit log; -1 for none."""
        return self._gate.committed if self._gate else -1

    @property
    def full(self) -> bool:
        """Whether its output log has reached its limit.

        The newest epoch always stays: alone it holds nobody back, however large it is.
        """
        return self.log.bytes >= self._log_bytes_max and self.log.next - self.log.first > 1

    @property
    def failed(self) -> str:
        """Why the replica does not go on; empty while it does."""
        failure = self._failure()
        return str(failure) if failure else ""

    @property
    def stumbled(self) -> str:
        """Why it stopped, if a new start may mend that; else ""."""
        run = self._run  # It may become a branch's meanwhile.
        if run is None or self._failed_by_itself is not None:
            return ""
        failure = run.failure()
        return failure.what if failure is not None and failure.passing else ""

    @property
    def lost(self) -> bool:
        """Whether it cannot go on from what it has: its inputs are gone."""
        return isinstance(self._failed_by_itself, CheckpointLost)

    @property
    def _failed_by_itself(self) -> UnbrokenError | None:
        inputs = self._inputs  # They may become a branch's meanwhile.
        return self._no_start or (inputs.error if inputs else None)

    def cannot_start(self, error: CheckpointLost) -> None:
        """What it needs is lost for good: it serves what is in its log, and says so."""
        self._no_start = error

    def give_up(self) -> None:
        """It has stumbled too often: that is a failure."""
        self.given_up = True

    def _failure(self) -> UnbrokenError | None:
        failed, run = self._failed_by_itself, self._run
        if failed is not None or run is None:
            return failed
        failure = run.failure()
        if failure is not None and failure.passing and not self.given_up:
            return None  # It is about to be started again.
        return failure

    def _stands_still(self) -> UnbrokenError | None:
        """Its log is full for good.  It is not stopped: nothing is lost by waiting."""
        why = self.standstill() if self.full else ""
        if not why:
            return None
        return UnbrokenError(
            f"fragment {self.fragment.name!r} stands still for good: its output log holds "
            f"{self.log.bytes:,} bytes, its limit, and {why}",
            hint="start it again with a higher log_bytes_max, or in a new folder protect the "
            "fragment that reads this one in another way",
        )

    def status(self) -> dict[str, Any]:
        """What `unbroken status` shows of the replica."""
        failure = self._failure() or self._stands_still()
        oldest, inputs = self._oldest, self._inputs
        trouble = oldest.trouble if oldest is not None else ""
        given_up = self.room.told if self.room is not None else ""
        sentence = "; ".join(filter(None, (self.sentence, trouble, given_up)))
        return {
            "inputs": self.fragment.inputs,
            "term": self.term,
            "epoch": self.committed,
            "epochs": self.epochs_done,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "start_s": self.start_s,
            "work_s": self.work_s,
            "held_back": max(0, self.staged.next - self.log.next) if self.staged else 0,
            "fingerprint": self._plan.fingerprint,
            "sentence": f"failed: {failure.what}" if failure else sentence,
            "failed": str(failure) if failure else "",
            "refused": inputs.refused if inputs else [],
        }
