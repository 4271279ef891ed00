"""Preparation: what a standby does in advance, so that a take-over takes a moment.

    settle ─▶ hold: the query starts, and waits ─▶ rehearse: another one like it runs for a while
              └ failed: again in 5 s, 10 s, 20 s, … up to five minutes

* None of this at once.  A standby is new because something has failed, and whoever has just taken
  over needs the processors more: a query that starts beside it doubles the time of its first epoch.
* What fails is tried again, less and less often: each attempt costs a start of Spark, next to
  others who work.  It never gives up: what was wrong may be mended, and that rarely is cheap.
* It is *rehearsed* only when epochs have run.  Where there is nothing to rehearse with it is not,
  but *prepared*: nothing is left that could be done now, and nobody should wait for more.
* It is in nobody's way: a take-over tells a rehearsal to stop, and does not wait until it has.

>>> pauses = Pauses()
>>> pauses.tried(now_s=0.0); pauses.tried(now_s=5.0); pauses.over(now_s=14.9), pauses.text
(False, 'tried 2 times, again in 10 s')
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from unbroken.errors import UnbrokenError
from unbroken.node.lines import PlanFor
from unbroken.node.replica import Replica

SETTLE_S = 5.0
SETTLE_S_MAX = 30.0
#: Between two attempts, doubled after each of them up to the other.
PAUSE_S = 5.0
PAUSE_S_MAX = 300.0
#: A query that was held for so long will not fail of what made it fail before.
HELD_S = 60.0


class Pauses:
    """How long to wait after each attempt in a row.

    >>> Pauses().over(now_s=0.0)
    True
    """

    def __init__(self) -> None:
        self._tries = 0
        self._until_s = float("-inf")

    def tried(self, *, now_s: float) -> None:
        """Once more, maybe in vain."""
        self._tries += 1
        self._until_s = now_s + self._pause_s

    def forget(self) -> None:
        """It went well.

        >>> pauses = Pauses(); pauses.tried(now_s=0.0); pauses.forget(); pauses.over(now_s=0.0)
        True
        """
        self._tries, self._until_s = 0, float("-inf")

    def over(self, *, now_s: float) -> bool:
        """Whether it may be tried now."""
        return now_s >= self._until_s

    @property
    def _pause_s(self) -> float:
        # The exponent has a limit of its own: floats end before patience does.
        return min(PAUSE_S_MAX, PAUSE_S * 2.0 ** min(10, self._tries - 1))

    @property
    def text(self) -> str:
        """When it is tried again, in words."""
        times = "time" if self._tries == 1 else "times"
        return f"tried {self._tries} {times}, again in {self._pause_s:.0f} s"


class Preparation:
    """Has `replica` hold its query, and rehearses it, in a thread of its own.

    `rehearse` gives the number of epochs that it ran; 0: there was nothing to rehearse with.  After
    `stop` nothing is begun any more; `busy` is held while the replica is changed.
    """

    def __init__(
        self,
        replica: Replica,
        plan: PlanFor,
        rehearse: Callable[[threading.Event], int],
        *,
        stop: threading.Event,
        busy: threading.Lock,
    ) -> None:
        self._replica = replica
        self._plan = plan
        self._rehearse = rehearse
        self._stop = stop
        self._busy = busy
        self.thread: threading.Thread | None = None
        self._settled = False
        self._holding = Pauses()
        self._held_s = 0.0
        self._rehearsing = Pauses()
        #: Whether its query has run for a while: whoever takes over after that is fast at once.
        self._rehearsed = False
        #: Whether there was nothing to rehearse with, the last time.
        self._nothing = False
        #: What came of the last attempt.
        self._sentence = "has not rehearsed yet"

    def look(self, *, now_s: float) -> None:
        """Begins what is to be done, if nothing is being done."""
        if self.thread is not None and self.thread.is_alive():
            return
        if self._replica.holding and now_s - self._held_s >= HELD_S:
            self._holding.forget()
        if self._hold_due(now_s) or (self._replica.holding and self._rehearsal_due(now_s)):
            name = f"prepare-{self._replica.name}"
            self.thread = threading.Thread(target=self._prepare, daemon=True, name=name)
            self.thread.start()

    def _hold_due(self, now_s: float) -> bool:
        return not self._replica.holding and self._holding.over(now_s=now_s)

    def _rehearsal_due(self, now_s: float) -> bool:
        return not self._rehearsed and self._rehearsing.over(now_s=now_s)

    def _prepare(self) -> None:
        if not self._settled:
            self._stop.wait(SETTLE_S)
            self._settled = True
        # A held query may fail at any time, and be held again: a busy machine is enough.
        if self._hold_due(time.monotonic()) and not self._hold_now():
            return
        if self._rehearsal_due(time.monotonic()):
            self._wait_quiet()
            self._rehearse_now()

    def _hold_now(self) -> bool:
        with self._busy:
            if self._stop.is_set():
                return False
            self._holding.tried(now_s=time.monotonic())
            try:
                self._replica.hold(self._plan)
            except Exception as error:
                self._say(f"cannot be held: {_words(error)}; {self._holding.text}", sys.stderr)
                return False
            self._held_s = time.monotonic()
        return True

    def _wait_quiet(self) -> None:
        """Others need the processors more: whoever catches up, or is starting."""
        deadline_s = time.monotonic() + SETTLE_S_MAX
        while os.getloadavg()[0] > 2 * (os.cpu_count() or 1) and time.monotonic() < deadline_s:
            if self._stop.wait(1.0):
                return

    def _rehearse_now(self) -> None:
        began_s = time.monotonic()
        try:
            epochs, why = self._rehearse(self._stop), "there was nothing to rehearse with"
        except Exception as error:  # Of Spark or py4j too: it is tried again, and not at once.
            epochs, why = 0, _words(error)
            self._nothing = False
        else:
            self._nothing = epochs == 0
        if self._stop.is_set():
            return  # Broken off: that says nothing.
        now_s = time.monotonic()
        self._rehearsed = epochs > 0
        if self._rehearsed:
            self._say(f"has rehearsed {epochs} epochs in {now_s - began_s:.1f} s", sys.stdout)
            return
        self._rehearsing.tried(now_s=now_s)
        out = sys.stdout if self._nothing else sys.stderr
        self._say(f"has not rehearsed: {why}; {self._rehearsing.text}", out)

    def _say(self, sentence: str, out: Any) -> None:
        self._sentence = sentence
        print(f"{self._replica.name} {sentence}", file=out, flush=True)

    def status(self) -> dict[str, Any]:
        """What `unbroken status` shows of it.

        `prepared`: its query is held, and has rehearsed unless there was nothing to rehearse with.
        """
        held = self._replica.holding
        return {
            "held": held,
            "rehearsed": self._rehearsed,
            "prepared": held and (self._rehearsed or self._nothing),
            "rehearsal": self._sentence,
        }


def _words(error: Exception) -> str:
    """What to say of an error: Spark's are long."""
    if isinstance(error, UnbrokenError):
        return error.what
    return f"{type(error).__name__} {error}".splitlines()[0][:200]
