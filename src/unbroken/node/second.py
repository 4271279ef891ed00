"""The second query of a replica whose input is cut off: its stable line, ready before it is needed.

    parted ─▶ the branch is idle ─▶ started ─▶ waits at the gate ┄┄ healed ─▶ goes on
                                       └─ it cannot be: started ───┘

* A start takes seconds: Python processes, a plan, the state.  Nobody needs them while the input is
  away, and everybody waits for them when it is back.  So the query starts from the parked fork as
  soon as the branch has nothing to do for a moment, and waits for input like any other.
* What fails early is made again when it is needed; only then it is a failure.
* A fragment that *converges* goes on from the state of its branch, which is known when all inputs
  are back: its second query starts then.
"""

from __future__ import annotations

import sys
import threading

from unbroken.checkpoints import fork
from unbroken.errors import DiskError, UnbrokenError
from unbroken.node.branch import Arrivals, Branch
from unbroken.node.health import Health
from unbroken.tentative.turns import Stable


class Second(Health):
    """Starts the stable line beside a branch, early if that is possible."""

    name: str
    branch: Branch | None
    _arrivals: Arrivals | None

    def __init__(self) -> None:
        super().__init__()
        #: What was said last about a partition, in a sentence.
        self.partition = ""
        #: Where the stable line starts; None once it has, and while there is no branch.
        self._parked: fork.Start | None = None
        #: Since the replica parted: whether it was started early, and has what it needs to go on.
        self._prepared = self._goes_on = False
        self._not_resumed: UnbrokenError | None = None
        #: Whether it has failed, when somebody looked last.
        self._fails = False

    # For the replica.

    def _resume(self, began: fork.Start) -> None:
        """Starts the stable line's query from the parked fork."""
        raise NotImplementedError

    def _no_room(self) -> str:
        """Why it does not go on although its input may be there."""
        raise NotImplementedError

    def _converged(self, parked: fork.Start) -> fork.Start:
        """Under `changed`: where the stable line goes on, `parked` unless the branch converges."""
        raise NotImplementedError

    def _stable_at(self) -> Stable | None:
        """How far the stable line is; None while it does not run, or will not any more."""
        if self._run is None or self._gate is None or self._fails:
            return None
        # Whoever has no room for its output gets on as little as one that lacks input.
        has = self.committed if self._no_room() else self._gate.complete
        return Stable(self.committed, has)

    def _is_starting(self) -> bool:
        """Whether its query is being started: until it asks for an epoch."""
        begun = self.branch is not None and self._parked is None
        return begun and not (self._arrivals is not None and self._arrivals.asked)

    def _prepare(self) -> None:
        """Under `changed`: the branch has nothing to do, so the stable line's query may start."""
        branch = self.branch
        # A branch that converges has the stable line go on from its own state, when it is healed.
        if branch is not None and not branch.converges and not self._prepared:
            self._prepared = True
            self._start_stable()

    def _healed(self) -> None:
        """All inputs have the next stable epoch, or the branch is gone: the stable line goes on."""
        with self._changed:
            if self._goes_on or self._stopped:
                return
            self._goes_on = True
            self._start_stable()
            self._tell(f"the stable line goes on after epoch {self.committed}")

    def _start_stable(self) -> None:
        """Under `changed`: starts the stable line's query, unless it has started."""
        parked, self._parked = self._parked, None
        if parked is None or self._stopped:
            return
        try:
            began = self._converged(parked)
        except DiskError as error:
            # The fork is made, and knows what the log still lacks: a new start writes that first.
            self._did_not_resume(error)
            return
        threading.Thread(
            target=self._try_resume, args=(began,), daemon=True,
            name=f"stable-{self.fragment.name}",
        ).start()  # fmt: skip

    def _try_resume(self, parked: fork.Start) -> None:
        try:
            self._resume(parked)
        except Exception as error:  # Of py4j too: whoever asks must hear of it.
            if self._starts_later(parked):
                print(f"{self.name}: its stable line is not started early: {error}", flush=True)
                return
            self._did_not_resume(error)
            return
        if self._stopped:
            self.stop()  # It ended meanwhile, and did not know of this query and its inputs.

    def _did_not_resume(self, error: Exception) -> None:
        self._not_resumed = UnbrokenError(f"the stable line cannot be started: {error}")
        print(self._not_resumed, file=sys.stderr, flush=True)

    def _starts_later(self, parked: fork.Start) -> bool:
        """Whether a start that failed came early: it is made again when the input is there."""
        with self._changed:
            if self._goes_on or self._stopped:
                return False
            run, self._run, self._parked = self._run, None, parked
        if run is not None:
            run.stop()
        return True

    def _tell(self, sentence: str) -> None:
        self.partition = sentence
        print(f"{self.name}: {sentence}", flush=True)

    @property
    def _failed_by_itself(self) -> UnbrokenError | None:
        return self._not_resumed or super()._failed_by_itself

    @property
    def stumbled(self) -> str:
        """Why it stopped, if a new start may mend that: the parked fork is still there; else ""."""
        return self._not_resumed.what if self._not_resumed else super().stumbled

    def _failure(self) -> UnbrokenError | None:
        failure = super()._failure()
        if failure is not None and not self._fails:
            with self._changed:  # A branch that waits for it waits in vain.
                self._fails = True
                self._changed.notify_all()
        self._fails = failure is not None
        if failure is self._not_resumed and not self.given_up:
            return None  # It is about to be started again.
        return failure
