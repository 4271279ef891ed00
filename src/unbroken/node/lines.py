"""The two lines of a replica while input is cut off: one is stable, the other tentative.

    stable      … 411 ┤ parked ············ healed ─▶ 412 413 … 431 ─▶ the fragment's query
                      │ fork                second query             ▲ caught up: the branch goes
    tentative         └ 412' 413' ········ 430' 431' ────────────────┘
                        the query that ran, state in memory

* An input that is silent for longer than the bound makes the replica park a fork of its checkpoint
  at the last stable epoch, and go on.  From then on "the replica" is the parked line: it acks, is
  shipped, repaired and restarted as of its last stable epoch, however far the branch is.
* When all inputs have the next stable epoch the second query goes on from the parked fork (see
  `second`).  The branch does too; should an input fall silent again it simply goes on longer.
* A fragment that *converges* parks once more when all inputs are back: the branch's own state goes
  on, and the epochs that it said become gaps.  First the fork, with their headers in it, then the
  gaps in the log: a process that dies in between completes its log from the fork (`_fill_hole`).
* A branch that fails is given up; the stable line starts at once, and may park again.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from unbroken.checkpoints import fork
from unbroken.checkpoints.links import remove
from unbroken.engine.plan import Plan
from unbroken.epochs import Epoch, Header
from unbroken.errors import UnbrokenError
from unbroken.gate import Gate
from unbroken.node.branch import Arrivals, Branch
from unbroken.node.inputs import Arrived
from unbroken.node.lost import Lost
from unbroken.node.parts import Parts
from unbroken.node.second import Second
from unbroken.policies.past import Seed
from unbroken.streams.branch_log import BranchLog
from unbroken.streams.flight import POLL_S
from unbroken.tentative.branch import LATE_S, Silence, branch_name, queued_s

#: Makes the plan for a term.
PlanFor = Callable[[int], Plan]


class Lines(Second):
    """Parks, goes on, and comes together again; only for fragments with a delay bound."""

    name: str
    placed: int
    folder: Path
    notes_watermarks: bool
    losses: tuple[int, int]
    _parts: Parts

    def __init__(self) -> None:
        super().__init__()
        #: The query that goes on without all of its inputs; None while all is well.
        self.branch: Branch | None = None
        #: What the branch says; None for a fragment that waits, however long.
        self.said: BranchLog | None = None
        self._plan_for: PlanFor | None = None
        self._arrivals: Arrivals | None = None
        #: When the last stable epoch was sealed at its source, and how long it was held up.
        self._held_up = 0, 0.0
        #: Not parked before this moment: it could not be the last time.
        self._park_again_s = float("-inf")

    # For the replica.

    def _next(self, after: int) -> int | None:
        raise NotImplementedError

    @property
    def silent_since(self) -> Seed | None:
        """The seed that it began with, until it has committed an epoch that others may see."""
        raise NotImplementedError

    def _arrived(self, gate: Gate) -> Arrived:
        """Who is told of what comes in for `gate`."""
        bound = self.fragment.bound
        if bound is None:
            return lambda stream, number, waited_s=0.0: gate.offer(stream, number)
        silence = Silence(self.fragment.inputs, bound, committed=gate.committed)
        self._arrivals = Arrivals(gate, silence)
        return self._arrivals.arrived

    def wait_released(self, term: int) -> int | None:
        """Spark starts its sources one after the other: one may have parted before the next is."""
        with self._changed:  # It parts under this, and whoever asks meanwhile is the branch's.
            branch = self.branch
            if branch is not None and term == branch.term:
                return branch.correction.after + 1
            return super().wait_released(term)

    def _held_up_s(self, number: int, inputs: Sequence[Header]) -> float:
        """How long stable epoch `number` was held up for want of input, here and upstream."""
        if self._arrivals is None:
            return max(header.waited_s for header in inputs)
        sealed_us = min(header.sealed_us for header in inputs)
        before_us, before_s = self._held_up
        held_s = max(
            self._arrivals.silence.masked_s(number), queued_s(before_s, sealed_us - before_us)
        )
        if self.branch is not None:
            held_s = 0.0  # Said before, or about to be caught up with: nobody waits for it.
        self._held_up = sealed_us, held_s
        return round(held_s, 3)

    def _wait_next(self, after: int, term: int) -> int | None:
        """Under `changed`: the next epoch's number plus one, or None; it may part meanwhile.

        It parts once, whoever of several readers finds that it is time; the others ask again.
        """
        if term != self.term:
            return None  # Another reader has parted: the branch answers this one.
        if self._arrivals is None:
            number: int | None = self._changed.wait_for(lambda: self._next(after), POLL_S)
            return number
        if not self._arrivals.asked:
            # Until Spark asks, nobody waits for anybody: it takes long to start.
            self._arrivals.asked = True
            self._arrivals.silence.forgive(time.monotonic())
        until_s = deadline_s = time.monotonic() + POLL_S
        while True:
            if term != self.term:
                return None  # Parted meanwhile: whom this one waits for is the branch's.
            if time.monotonic() > until_s + LATE_S:
                self._arrivals.silence.forgive(time.monotonic())
            number, now_s = self._next(after), time.monotonic()
            if self.branch is not None and self._gate is not None and self._gate.released > after:
                self._healed()  # Its own inputs may be there before those of the branch.
            if number or now_s >= deadline_s or self._stopped:
                return number
            due_s = self._due_s(after + 1)
            if due_s is not None and now_s >= due_s:
                self._part(after, now_s)
                return None
            until_s = min(deadline_s, due_s or deadline_s)
            self._changed.wait(max(0.001, until_s - now_s))

    def _due_s(self, number: int) -> float | None:
        """When it goes on without what is missing of epoch `number`; None: it waits."""
        assert self._arrivals is not None
        # Without a commit there is nothing to park; with a branch somebody goes on already.
        if number == 0 or self.branch is not None or self.full:
            return None
        # Who is rebuilt and has said nothing yet begins where no checkpoint tells.
        if self.silent_since is not None:
            return None
        # What is to be given back must be before: the branch would count it as missing for ever.
        if self._arrivals.gate.to_withdraw:
            return None
        due_s = self._arrivals.silence.due_s(number)
        return None if due_s is None else max(due_s, self._park_again_s)

    def _part(self, after: int, now_s: float) -> None:
        """Parks a fork after epoch `after`; the query that runs goes on as the branch."""
        assert self._arrivals is not None
        assert self._inputs is not None
        assert self._run is not None
        assert self.said is not None
        assert self.fragment.bound is not None
        sentence = self._arrivals.silence.sentence(after + 1, now_s=now_s)
        try:
            parked = fork.park(self.folder, self.term, with_watermarks=self.notes_watermarks)
        except UnbrokenError as error:
            # Nothing has changed: it waits, and tries again after the bound.  However long the
            # epoch has waited already: whoever tries at once tries without end.
            print(f"{self.name} cannot go on without its input: {error}", file=sys.stderr)
            self._park_again_s = now_s + (self._arrivals.silence.bound.wait_s or 0.0)
            return
        assert parked.epoch == after, "what is committed is what was acked"
        self.branch = Branch(
            branch_name(self.placed, self.term, self.name), term=self.term, run=self._run,
            plan=self._plan, inputs=self._inputs, arrivals=self._arrivals, parts=self._parts,
            said=self.said, changed=self._changed, stable=self._stable_at,
            starting=self._is_starting, idle=self._prepare, healed=self._healed,
            bytes_max=self._log_bytes_max, sealed=self.log.next - 1,
            converges=self.fragment.bound.converges,
        )  # fmt: skip
        self._parked, self._prepared, self._goes_on = parked, False, False
        self.term, self.first = parked.term, None
        self._held_up = 0, 0.0  # Nobody stands in a queue behind the last stable epoch any more.
        self._run = self._inputs = self._arrivals = None
        if self._oldest is not None:  # It would read the state of the branch.
            self._oldest.stop()
            self._oldest = None
        self._parts = Parts()
        self._gate = Gate(self.fragment.inputs, committed=after)
        self._tell(sentence)

    def _converged(self, parked: fork.Start) -> fork.Start:
        """Under `changed`: where the stable line goes on, `parked` unless the branch converges."""
        branch = self.branch
        if branch is None or branch.committed == parked.epoch:
            return parked
        if not branch.converges:
            if self.fragment.bound is not None and self.fragment.bound.converges:
                print(f"{self.name} corrects what it said: its input stands still", flush=True)
            return parked
        gaps = Lost(branch.took).epochs(self.fragment.name, self._plan, self.losses, at_least=0)
        try:
            later = fork.park_later(
                self.folder, branch.term, branch.committed, [gap.header.to_json() for gap in gaps],
                with_watermarks=self.notes_watermarks,
            )  # fmt: skip
        except UnbrokenError as error:
            print(f"{self.name} corrects what it said: {error}", file=sys.stderr, flush=True)
            return parked
        self._fill_hole()
        branch.give_up([gap.header for gap in gaps])
        self.term, self._gate = later.term, Gate(self.fragment.inputs, committed=branch.committed)
        remove(self.folder / str(parked.term))
        return later

    def _fill_hole(self) -> None:
        """Appends the gaps that the newest fork has with it, if the log has not got them yet."""
        if self.fragment.bound is None or not self.fragment.bound.converges:
            return
        for text in fork.hole_in(self.folder):
            header = Header.from_json(text)
            if header.number >= self.log.next:
                self.log.append(Epoch(header, self._plan.schema.empty_table()))
        last = self.log.last_header
        if last is not None:
            self.losses = last.gaps_here, last.lost_here

    def _correct(self, epoch: Epoch) -> None:
        """The stable line has sealed `epoch`."""
        branch = self.branch  # It may end meanwhile.
        if branch is not None:
            branch.correct(epoch)

    def _look_at_branch(self) -> None:
        """The branch goes when the stable line has caught up with it, or when it has failed."""
        branch = self.branch
        if branch is None:
            return
        failure = branch.failure()
        if failure is not None:
            self._end_branch(branch, f"{branch.correction.given_up}; {failure.what}")
            with self._changed:
                if self.branch is None:  # Its stable line may have parted again.
                    self._healed()
        elif self._run is not None and self.committed >= branch.newest:
            self._end_branch(branch, branch.correction.sentence)

    def _end_branch(self, branch: Branch, sentence: str) -> None:
        with self._changed:
            if self.branch is not branch:
                return  # Seen by two at once: a commit, and whoever looks at the status.
            self.branch = None
            self._tell(sentence)
        branch.end()
        threading.Thread(target=self._sweep, args=(branch,), daemon=True, name="sweep").start()

    def _sweep(self, branch: Branch) -> None:
        """What the branch has left behind goes when its query has ended."""
        branch.stop()
        # And what is older: the fork that was parked has at least that.  Not if this replica has
        # ended meanwhile: another one may count terms from 1 in this folder.
        if not self._stopped:
            fork.forget_terms(self.folder, below=branch.term + 1)

    def stop(self) -> None:
        """Ends both lines; what the branch has said is lost, and nothing else."""
        super().stop()
        with self._changed:
            branch, self.branch = self.branch, None
        if branch is not None:
            branch.end()
            branch.stop()

    def status(self) -> dict[str, Any]:
        """What `unbroken status` shows of it."""
        self._look_at_branch()
        told, branch = super().status(), self.branch
        if branch is not None and not told["failed"]:
            stable = f"stable to {self.committed}"
            goes_on = self._goes_on and self._run is not None
            correcting = f"; correcting: {told['sentence']}" if goes_on else ""
            told["sentence"] = f"{branch.sentence or self.partition}; {stable}{correcting}"
        return told | {
            "branch": branch.name if branch else "",
            "tentative_to": branch.correction.newest if branch else None,
            "partition": self.partition,
        }
