"""A tentative branch: the query that was running goes on, with the inputs that are there.

    inputs ─▶ gate (without what is missing) ─▶ Spark, state in memory ─▶ seal ─▶ branch log

* It is the very query that ran: nothing is started, nothing is restored, so it is not late however
  large the state is (scenario 8).  Its checkpoint does not count any more: the fork that was parked
  does.
* A missing input's epoch is what that input says tentatively, or empty.  What comes of it later,
  when the branch is past that number, is dropped here: the stable line reads it for itself.  It may
  read faster, and what it has acked be trimmed before the branch has it: then that input stays
  missing here.
* An epoch is given to all of Spark's sources alike, as it was when it was released, also if the
  missing part comes between two of their questions.
* It acks nothing, ships nothing, and leaves nothing behind: unless it *converges*.  Then, when all
  inputs have what it has done, its own state is what goes on, and what it said is given up.
* It acks nothing until then, so the log of an input may be full of what it did without, and never
  reach what it has done.  If inputs are back and stand still for as long as the bound it does not
  converge any more: it is corrected, as others are, and the log is emptied by that.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import pyarrow as pa

from unbroken.engine.plan import Plan
from unbroken.engine.run import Run
from unbroken.engine.source import last_planned_ahead
from unbroken.epochs import TENTATIVE, Epoch, Header
from unbroken.errors import CheckpointLost, FenceError, FragmentFailed
from unbroken.gate import Gate
from unbroken.node.inputs import Waiting
from unbroken.node.parts import Parts, nth_slice
from unbroken.streams.branch_log import BranchLog
from unbroken.streams.flight import POLL_S
from unbroken.tentative.branch import LATE_S, Silence
from unbroken.tentative.correction import REPLACED, Correction, difference
from unbroken.tentative.turns import Stable, Turns

#: Tentative epochs of an input that wait for a branch.  More are dropped: the branch does without.
SAID_EPOCHS_MAX = 256
SAID_BYTES_MAX = 128 << 20
#: So many of its last epochs say how long the next one will take.
WORK_EPOCHS = 5


class Arrivals:
    """What comes in for one query: the gate is told, and when it came is noted."""

    def __init__(self, gate: Gate, silence: Silence) -> None:
        self.gate, self.silence = gate, silence
        #: What inputs have said tentatively, and nobody has used yet.
        self._said: dict[str, dict[int, Epoch]] = {}
        #: Whether its query has asked for anything yet.
        self.asked = False
        #: Told too, once the query is a branch.
        self.also: Callable[[str, int], None] | None = None

    def arrived(self, stream: str, number: int, waited_s: float = 0.0) -> None:
        """An epoch has come; in order, none skipped.  It was held up upstream for `waited_s`."""
        self.gate.offer(stream, number)
        self.silence.arrived(stream, number, now_s=time.monotonic(), waited_s=waited_s)
        self._said.get(stream, {}).pop(number, None)
        if self.also is not None:
            self.also(stream, number)

    def withdraw(self, stream: str) -> int | None:
        """What has come of `stream` and is not committed comes again: `Gate.withdraw`."""
        first = self.gate.withdraw(stream)
        if first is not None:
            self.silence.withdrawn(stream, first)
        return first

    def heard(self, stream: str, epoch: Epoch) -> None:
        """An input that is cut off itself goes on, tentatively.

        Only a branch can use it; a stable line may have to part when its branch has failed, and
        nobody says it again.
        """
        said = self._said.setdefault(stream, {})
        size = sum(each.header.bytes for each in said.values())
        if epoch.number > self.gate.released and (
            len(said) < SAID_EPOCHS_MAX and size < SAID_BYTES_MAX
        ):
            said[epoch.number] = epoch
            waited_s = epoch.header.waited_s
            self.silence.heard(stream, epoch.number, now_s=time.monotonic(), waited_s=waited_s)

    def said(self, stream: str, number: int) -> Epoch | None:
        """What `stream` says tentatively."""
        return self._said.get(stream, {}).get(number)

    def done(self, number: int) -> None:
        """Epoch `number` is done, and those before it."""
        self.silence.done(number)
        for said in self._said.values():
            for old in [each for each in said if each <= number]:
                del said[old]


class Branch:
    """One fragment's query from the moment that it goes on without all of its inputs."""

    def __init__(
        self,
        name: str,
        *,
        term: int,
        run: Run,
        plan: Plan,
        inputs: Waiting,
        arrivals: Arrivals,
        parts: Parts,
        said: BranchLog,
        changed: threading.Condition,
        stable: Callable[[], Stable | None],
        starting: Callable[[], bool],
        idle: Callable[[], None],
        healed: Callable[[], None],
        bytes_max: int,
        sealed: int,
        converges: bool = False,
    ) -> None:
        """`stable` tells how far the stable line is, None while it does not run, and `starting`
        whether its query is being started.  `idle` is called whenever this one has said something
        and has nothing to do; `healed` when all inputs have what the stable line needs to go on; if
        it `converges`, when they have all that it has done.  `sealed` is the newest epoch that is
        stable: whoever died between output and commit has one more than it goes on from.
        """
        self.name, self.term, self.parts = name, term, parts
        self._run, self._plan, self._inputs = run, plan, inputs
        self._arrivals = arrivals
        self._gate, self._silence = arrivals.gate, arrivals.silence
        self._said, self._changed = said, changed
        self._stable, self._starting, self._idle, self._healed = stable, starting, idle, healed
        self._turns = Turns(after=self._gate.committed)
        self._bytes_max, self.converges = bytes_max, converges
        #: If it converges: the stable headers of its inputs, by epoch.
        self._took: dict[int, dict[str, Header | None]] = {}
        #: How far all inputs were, and since when they have stood still there.
        self._stands = self._gate.committed, 0.0
        self._ended = False
        #: The epoch that Spark works on, as it was released.
        self._given: dict[str, Epoch] = {}
        self._missing: list[str] = []
        self._waited_s = 0.0
        #: When that was, and how long the last ones took from there until they were said.
        self._released_s, self._work_s = 0.0, deque[float](maxlen=WORK_EPOCHS)
        #: Held while an epoch is said or replaced: the stable one must come after.
        self._saying = threading.Lock()
        self.correction = Correction(name, after=self._gate.committed)
        self._replaced_to = max(self._gate.committed, sealed)
        #: What it does, in a sentence.
        self.sentence = ""
        said.begin(name, after=self._replaced_to)
        arrivals.also = self._came
        # A hole in an input must not begin behind what only the branch has (scenario 13).
        inputs.speak_for(lambda: self.correction.after + 1 if stable() is None else None)
        run.seal_with(self.seal)

    @property
    def newest(self) -> int:
        """The newest epoch that it works on or has done."""
        return self._gate.released

    @property
    def committed(self) -> int:
        """The newest epoch that Spark has committed on it."""
        return self._gate.committed

    @property
    def took(self) -> dict[int, dict[str, Header | None]]:
        """The stable headers of its inputs, of every epoch that it has committed."""
        return {number: self._took[number] for number in sorted(self._took)
                if number <= self.committed}  # fmt: skip

    def _came(self, stream: str, number: int) -> None:
        """Under `changed`: an epoch has come, perhaps one that the branch did without."""
        if number <= self._gate.released:
            if number in self._took:
                self._took[number][stream] = self._inputs.epoch(stream, number).header
            self._inputs.done(number)
        self._look_healed()

    def _look_healed(self) -> None:
        """Under `changed`: whether the stable line can go on."""
        if self.converges and self._gate.released > self.committed:
            return  # In the middle of an epoch: looked at again when it is committed.
        enough = self.committed if self.converges else self.correction.after + 1
        if self._gate.complete >= max(enough, self.correction.after + 1):
            self._healed()

    def _look_stands(self, now_s: float) -> None:
        """Under `changed`: whether what is missing will come although nothing is acked."""
        complete, (at, since_s) = self._gate.complete, self._stands
        if complete != at:
            self._stands = complete, now_s
        elif self.correction.after < complete < self.committed and (
            self.converges and now_s > since_s + self._silence.bound.delay_s_max
        ):
            self.converges = False
            self._took.clear()
            self._look_healed()

    def ask(self, stream: str, after: int, *, rows: bool) -> pa.Table | None:
        """Spark's question: what comes after `after` on `stream`?  None is "not yet"."""
        if after == self._gate.released and after != self._gate.committed:
            self._committed(after)
        deadline_s = time.monotonic() + POLL_S
        with self._changed:
            while not self._release(after, now_s := time.monotonic()):
                if self.committed > self.correction.after:
                    self._idle()
                self._look_stands(now_s)
                if now_s >= deadline_s:
                    return None
                due_s = self._due_s(after + 1)
                # One that is due and has to wait all the same is told when it may go on.
                until_s = min(deadline_s, due_s) if due_s and due_s > now_s else deadline_s
                self._changed.wait(max(0.001, until_s - now_s))
                if time.monotonic() > until_s + LATE_S:
                    self._silence.forgive(time.monotonic())
                    self._stands = self._stands[0], time.monotonic()
            epoch = self._given[stream]
        return last_planned_ahead(epoch.stamped() if rows else epoch.stamped().slice(0, 0))

    def _release(self, after: int, now_s: float) -> bool:
        """Whether the epoch after `after` is released, now or before."""
        error = self._inputs.error
        # What is gone the stable line has taken, faster than this branch: an input that is missing.
        if self._ended or (error is not None and not isinstance(error, CheckpointLost)):
            raise FenceError(f"branch {self.name} has ended", hint="the stable line goes on")
        number = after + 1
        if self._gate.released == number:
            return True
        stable = self._stable()
        if stable is not None and stable.at >= after:
            return False  # It has caught up: this branch is about to end.
        waited_s = self._silence.waited_s(number, now_s=now_s)
        late = waited_s > self._silence.bound.late_s
        if not self._turns.may_begin(number, stable, late=late):
            self.sentence = f"tentative to {after}: waits for the stable line, which must come near"
            return False
        if self._said.bytes >= self._bytes_max:
            self.sentence = f"the tentative log holds {self._said.bytes:,} bytes, its limit"
            return False
        missing = self._gate.missing
        if missing or (stable is not None and stable.is_near(number)):
            due_s = self._due_s(number)
            if due_s is None or now_s < due_s:
                return False
        # Also if nothing is missing any more: whoever reads it has that much less to wait.
        self._waited_s, self._released_s = waited_s, now_s
        self._turns.begins(stable)
        self._missing = self._silence.silent(number)
        self._given = {
            name: self._arrivals.said(name, number) or _nothing(name, number, schema)
            if name in missing
            else self._inputs.epoch(name, number)
            for name, schema in self._plan.inputs.items()
        }
        if self.converges and stable is None:
            self._took[number] = {
                name: None if name in missing else epoch.header
                for name, epoch in self._given.items()
            }
        self._gate.asked(after=after, incomplete=True)
        without = f" without {', '.join(self._missing)}" if self._missing else ""
        self.sentence = f"tentative from epoch {self.correction.after + 1} on: {number}{without}"
        return True

    def _due_s(self, number: int) -> float | None:
        stable = self._stable()
        near = stable is not None and stable.is_near(number)
        return self._silence.due_s(
            number, tentative=True, near=near, work_s=max(self._work_s, default=0.0),
            hurry=self._starting(),
        )  # fmt: skip

    def _committed(self, epoch: int) -> None:
        """Spark has done with `epoch`."""
        self._run.lift_watermarks(self._missing)
        if self.converges:
            self._run.save_watermarks(epoch)
        with self._changed:
            self._gate.commit(epoch)
            if self.converges:
                self._look_healed()
            self._inputs.done(epoch)
            self._arrivals.done(epoch)
            self._changed.notify_all()

    def slice(self, stream: str, index: int, count: int) -> pa.Table:
        """One of `count` equal slices of the released epoch, for an executor."""
        return nth_slice(self._given[stream].table, index, count)

    def seal(self, number: int, rows: pa.Table, digest: str) -> None:
        """Spark has made epoch `number`: said, unless the stable one is there already."""
        present = [e.header for name, e in self._given.items() if name not in self._missing]
        epoch = Epoch.of(
            self._said.stream, number, rows, digest=digest, event_time=self._plan.event_time,
            kind=TENTATIVE, branch=self.name, term=self.term, fingerprint=self._plan.fingerprint,
            sealed_us=min((header.sealed_us for header in present), default=0),
            lost=sum(header.lost for header in present), waited_s=round(self._waited_s, 3),
            stable_to=self._replaced_to,
        )  # fmt: skip
        with self._saying:
            if number > self._replaced_to and not self._ended:
                self._said.append(epoch)
                self.correction.said(epoch.header)
        self._work_s.append(time.monotonic() - self._released_s)

    def correct(self, epoch: Epoch) -> None:
        """The stable line has made `epoch`: what was said under its number is replaced."""
        with self._saying:
            if self._ended:
                return  # What it said is gone already.
            self._replaced_to = max(self._replaced_to, epoch.number)
            if self.correction.became(epoch.header) == REPLACED:
                said = self._said.read(self.name, epoch.number).table
                withdrawn, added = difference(said, epoch.table)
                self.correction.changed(withdrawn.num_rows + added.num_rows)
            self._said.replaced(epoch.number)

    def give_up(self, gaps: Sequence[Header]) -> None:
        """What was said under these numbers is not corrected: they are gaps."""
        with self._saying:
            for gap in gaps:
                self.correction.gives_up(gap)
            self._replaced_to = gaps[-1].number
            self._said.replaced(self._replaced_to)
            self._took.clear()

    def failure(self) -> FragmentFailed | None:
        """Why its query stopped, if it did by itself."""
        return None if self._ended else self._run.failure()

    def end(self) -> None:
        """It says nothing more; its query is refused from now on, and still has to be stopped."""
        with self._saying:
            self._ended = True
            self._said.end(self.name)
        with self._changed:  # Not both at once: what is given up is so under the other one first.
            self._changed.notify_all()

    def stop(self) -> None:
        """Ends its query, which may take a while."""
        self._inputs.stop()
        self._run.stop()


def _nothing(stream: str, number: int, schema: pa.Schema) -> Epoch:
    """What a branch takes for an epoch that is missing."""
    return Epoch.of(stream, number, schema.empty_table(), digest="", kind=TENTATIVE)
