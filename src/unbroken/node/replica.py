"""A replica: one running copy of a fragment, its checkpoint and its output log.

    followers ─▶ buffers ─▶ gate ─▶ Spark ─▶ seal ─▶ output log ─▶ door
                                      └─ commit, seen in its next question ─▶ ack

* Bodies wait in a bounded buffer until the gate lets them through.
* An ack leaves only after Spark has committed the epoch and its watermarks are noted (invariant 6).
* A full output log holds the gate: pushing back is never silent, the sentence says who holds it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from unbroken.checkpoints import fork
from unbroken.engine.plan import Plan
from unbroken.engine.run import Run
from unbroken.epochs import Epoch
from unbroken.errors import (
    CheckpointLost,
    DefinitionError,
    EpochGone,
    FenceError,
    UnbrokenError,
)
from unbroken.gate import Gate
from unbroken.node.book import BookReader
from unbroken.query import Fragment
from unbroken.streams.flight import POLL_S
from unbroken.streams.follow import Follower
from unbroken.streams.log import EpochLog, drop_torn_tail
from unbroken.streams.source_log import LOG_BYTES_MAX

#: Epochs fetched ahead of Spark, per input.
AHEAD_EPOCHS = 4
AHEAD_BYTES_MAX = 128 << 20
#: How long a producer on another node may take to start.
START_S_MAX = 240.0


class Replica:
    """Runs one fragment on this node."""

    def __init__(
        self,
        fragment: Fragment,
        folder: Path,
        book: BookReader,
        *,
        name: str,
        log_bytes_max: int = LOG_BYTES_MAX,
    ) -> None:
        self.fragment = fragment
        #: As producers know it.
        self.name = name
        if fork.rebooted(folder):
            drop_torn_tail(folder / "output")
        self.log = EpochLog(folder / "output", fragment.name)
        self._folder = folder
        self._book = book
        self._log_bytes_max = log_bytes_max
        self._changed = threading.Condition()
        self._buffers: dict[str, dict[int, Epoch]] = {name: {} for name in fragment.inputs}
        self._parts: dict[tuple[int, int, int], pa.Table] = {}
        self._run: Run | None = None
        self._gate: Gate | None = None
        self._followers: list[Follower] = []
        self._plan: Plan | None = None
        self._restored = False
        #: Set with Spark's first question: its Python processes are there.
        self._asked = threading.Event()
        self._stopped = False
        self.given_up = False
        self._acked = -1
        self._error: UnbrokenError | None = None
        self.term = 0
        #: The first epoch that this term works on.
        self.first = 0
        self.epochs_done = 0
        self.rows_in = 0
        self.rows_out = 0
        #: What the replica does, in a sentence.
        self.sentence = "starting"

    def start(self, plan: Callable[[int], Plan], *, watermarks: int) -> None:
        """Forks the newest checkpoint and starts the Spark query; `plan` is made for a term."""
        began = fork.start(self._folder, with_watermarks=watermarks > 1)
        self.term = began.term
        committed = -1 if began.epoch is None else began.epoch
        self.first = committed + 1
        if began.epoch is None:
            self._check_inputs_reach_back(began.lost)
        elif self.log.next <= committed:
            raise CheckpointLost(
                f"fragment {self.fragment.name!r}: its checkpoint is at epoch {committed}, but its "
                f"output log ends before {self.log.next}",
                hint=f"restore {self.log.folder}, or start the query in a new folder",
            )
        self.sentence = f"started as term {self.term} after epoch {committed}"
        self._gate = Gate(self.fragment.inputs, committed=committed)
        self._plan = plan(self.term)
        self._check_same_code(self._plan.fingerprint)
        for name in self.fragment.inputs:
            follower = Follower(name, committed + 1, partial(self._book.replicas, name))
            self._followers.append(follower)
            threading.Thread(
                target=self._fill, args=(name, follower), daemon=True, name=f"fill-{name}"
            ).start()
        run = Run(
            self.fragment.name, self._plan, self.fragment.output_mode, began, self._seal,
            self._take_parts,
        )  # fmt: skip
        with self._changed:
            self._run = run
            self._changed.notify_all()

    def stop(self) -> None:
        """Ends the replica on this node; its checkpoint and its log stay as they are."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for follower in self._followers:
            follower.close()
        if self._run is not None:
            self._run.stop()
        self.sentence = "stopped"

    def _check_same_code(self, fingerprint: str) -> None:
        """State made by other code, or with other settings, is not ours to go on from."""
        last = self.log.last_header
        if last is not None and last.fingerprint != fingerprint:
            raise DefinitionError(
                f"{self.fragment.where}: fragment {self.fragment.name!r} or a setting was changed "
                f"since it made epoch {last.number}",
                hint="its results would not go with those before: start the changed query in a "
                "new folder, or change it back",
            )

    def _check_inputs_reach_back(self, lost: str) -> None:
        for name in self.fragment.inputs:
            first = self._book.wait_for(name, START_S_MAX)["first"]
            if first > 0:
                raise CheckpointLost(
                    f"fragment {self.fragment.name!r} has no checkpoint to go on from"
                    f"{f' ({lost})' if lost else ''}, and its input {name!r} begins at epoch "
                    f"{first}",
                    hint="its state cannot be computed again on this node: restore the folder "
                    f"{self._folder}, or start the query in a new folder",
                )

    def _fill(self, name: str, follower: Follower) -> None:
        """Keeps the buffer of one input filled, a few epochs ahead of Spark."""
        assert self._gate is not None
        buffer = self._buffers[name]
        try:
            while not self._stopped:
                epoch = follower.take(timeout_s=POLL_S)
                if epoch is None:
                    continue
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped or self._has_room(buffer))
                    buffer[epoch.number] = epoch
                    self._gate.offer(name, epoch.number)
                    self._changed.notify_all()
        except UnbrokenError as error:
            if isinstance(error, EpochGone):
                error = CheckpointLost(error.what, hint=f"fragment {self.fragment.name!r} needs it")
            with self._changed:
                self._error = error
                self._changed.notify_all()

    @staticmethod
    def _has_room(buffer: dict[int, Epoch]) -> bool:
        waiting = sum(epoch.header.bytes for epoch in buffer.values())
        return not buffer or (len(buffer) < AHEAD_EPOCHS and waiting < AHEAD_BYTES_MAX)

    def ask(self, stream: str, after: int, term: int, *, rows: bool) -> pa.Table | None:
        """Spark's question: what comes after `after` on `stream`?  None is "not yet"."""
        self._check_term(term)
        assert self._gate is not None
        self._asked.set()
        if after == self._gate.released:
            self._committed(after)
        with self._changed:
            number = self._changed.wait_for(lambda: self._next(after), POLL_S)
            if self._error is not None:
                raise self._error
            if not number:
                return None
            epoch = self._buffers[stream][int(number) - 1]
        return epoch.stamped() if rows else epoch.stamped().slice(0, 0)

    def _next(self, after: int) -> int | None:
        """The next epoch's number plus one (0 must be true), if it may be released."""
        assert self._gate is not None
        if self._error is not None:
            return 1
        if self.log.bytes >= self._log_bytes_max:
            self.sentence = f"waiting: the output log holds {self.log.bytes:,} bytes, its limit"
            return None
        number = self._gate.asked(after=after)
        if number is None:
            self.sentence = f"waiting for epoch {after + 1} of {', '.join(self._gate.missing)}"
            return None
        self.sentence = f"working on epoch {number}"
        return number + 1

    def _committed(self, epoch: int) -> None:
        """Batch `epoch` is in Spark's commit log: only now may anything be promised."""
        assert self._gate is not None
        run = self._run_started()
        if not self._restored:
            run.restore_watermarks()
            self._restored = True
        if epoch == self._gate.committed:
            return  # Asked again after "not yet", or the other input's turn.
        run.save_watermarks(epoch)
        with self._changed:
            self._gate.asked(after=epoch)
            for buffer in self._buffers.values():
                buffer.pop(epoch, None)
            self._changed.notify_all()
        if self.epochs_done == 1:
            fork.forget_before(self._folder, self.term)

    def _run_started(self) -> Run:
        with self._changed:
            assert self._changed.wait_for(lambda: self._run is not None, 60)
        assert self._run is not None
        return self._run

    def slice(self, stream: str, number: int, index: int, count: int, term: int) -> pa.Table:
        """One of `count` equal slices of a released epoch, for an executor."""
        self._check_term(term)
        with self._changed:
            table = self._buffers[stream][number].table
        first, after = (table.num_rows * i // count for i in (index, index + 1))
        return table.slice(first, after - first)

    def put_part(self, epoch: int, part: int, attempt: int, table: pa.Table, term: int) -> None:
        """An executor pushes a part of the epoch that Spark works on."""
        self._check_term(term)
        with self._changed:
            self._parts[epoch, part, attempt] = table

    def _take_parts(self, epoch: int, counted: list[tuple[int, int]]) -> list[pa.Table]:
        """The parts that count; what other attempts pushed is forgotten."""
        with self._changed:
            taken = [self._parts[epoch, part, attempt] for part, attempt in counted]
            self._parts.clear()
            return taken

    def _check_term(self, term: int) -> None:
        if term != self.term:
            raise FenceError(
                f"{self.fragment.name!r}: a query of term {term} asks, but {self.term} runs",
                hint="an orphan of an earlier process; it should end",
            )

    def _seal(self, number: int, rows: pa.Table, digest: str) -> None:
        assert self._plan is not None
        assert self._gate is not None
        if number != self._gate.released:
            raise UnbrokenError(f"Spark made epoch {number}, released was {self._gate.released}")
        with self._changed:
            inputs = [self._buffers[name][number] for name in self.fragment.inputs]
        epoch = Epoch.of(
            self.fragment.name, number, rows, digest=digest, event_time=self._plan.event_time,
            term=self.term, fingerprint=self._plan.fingerprint,
            sealed_us=min(e.header.sealed_us for e in inputs),
        )  # fmt: skip
        self.log.append(epoch)
        self.epochs_done += 1
        self.rows_in += sum(e.rows for e in inputs)
        self.rows_out += epoch.rows

    def acks(self) -> list[tuple[str, dict[str, Any]]]:
        """What to tell the producers, if there is news: (stream, ack)."""
        if self._gate is None or self._gate.committed <= self._acked:
            return []
        self._acked = self._gate.committed
        ack = {
            "do": "ack", "consumer": self.name, "term": self.term,
            "processed": self._acked, "need": self._acked + 1,
        }  # fmt: skip
        return [(name, ack) for name in self.fragment.inputs]

    @property
    def asking(self) -> bool:
        """Whether Spark has asked for an epoch: the replica works."""
        return self._asked.is_set()

    def wait_asked(self, timeout_s: float) -> None:
        """Waits for Spark's first question, or until it is clear that none will come."""
        deadline = time.monotonic() + timeout_s
        while not self._asked.wait(0.1) and not self.failed:
            if time.monotonic() > deadline:
                return

    @property
    def committed(self) -> int:
        """The newest epoch that is sealed and in Spark's commit log; -1 for none."""
        return self._gate.committed if self._gate else -1

    @property
    def failed(self) -> str:
        """Why the replica does not go on; empty while it does."""
        failure = self._failure()
        return str(failure) if failure else ""

    @property
    def stumbled(self) -> bool:
        """Whether it stopped for a reason that a new start may mend."""
        return self._error is None and self._run is not None and self._run.stumbled

    def give_up(self) -> None:
        """It has stumbled too often: that is a failure."""
        self.given_up = True

    def _failure(self) -> UnbrokenError | None:
        if self._error is not None or self._run is None:
            return self._error
        failure = self._run.failure()
        if failure is not None and self._run.stumbled and not self.given_up:
            return None  # It is about to be started again.
        return failure

    def status(self) -> dict[str, Any]:
        """What `unbroken status` shows of the replica."""
        failure = self._failure()
        return {
            "inputs": self.fragment.inputs,
            "term": self.term,
            "epoch": self.committed,
            "epochs": self.epochs_done,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "fingerprint": self._plan.fingerprint if self._plan else "",
            "sentence": f"failed: {failure.what}" if failure else self.sentence,
            "failed": str(failure) if failure else "",
            "refused": [text for follower in self._followers for text in follower.refused],
        }
