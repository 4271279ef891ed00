"""What a replica promises: acks to its producers, and what is shown once its standbys hold it.

    committed ─▶ ack         "processed up to 41; I may still ask for what comes from 38 on"
    shipped   ─▶ confirmed   ─▶ output that was held back is shown

* An ack leaves only after Spark has committed the epoch and its watermarks are noted (invariant 6).
* Of a fragment that is rebuilt from its input an ack says how far back that reaches, and carries
  what a successor must know: the seed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from unbroken.errors import Unreachable
from unbroken.node.lines import Lines
from unbroken.node.staged import Confirmed
from unbroken.policies import Gap
from unbroken.policies.past import Past
from unbroken.policies.sessions import SessionPast
from unbroken.streams.flight import POLL_S
from unbroken.streams.needs import ACK_AGAIN_S, ack


class Promises(Lines):
    """What others may rely on."""

    def __init__(self) -> None:
        super().__init__()
        #: The term of control's under which it is here.
        self.placed = 0
        #: What its standbys hold.
        self.confirmed = Confirmed()
        #: Of an upstream-backup fragment: what its state was made from.
        self._past: Past | None = None
        #: Whether watermarks are put back: until then its past has not begun.
        self._restored = False
        #: Whether there is nothing to do.
        self._idle = True
        self._acked, self._acked_s = -1, 0.0

    def acks(
        self, owed: int, clients: Sequence[str] = (), owed_to: str = ""
    ) -> list[tuple[str, dict[str, Any]]]:
        """What to tell the producers, if there is news, or none for long: (stream, ack).

        `owed` is the first epoch of the output that a consumer may still ask for.  A successor has
        to wait for the same `clients`, and hears of them from nobody else while they are away.
        `owed_to` is behind: for its sake more of the input may be needed again.
        """
        with self._changed:  # One moment of it: it may commit, or part, meanwhile.
            return self._acks(owed, clients, owed_to)

    def _acks(
        self, owed: int, clients: Sequence[str], owed_to: str
    ) -> list[tuple[str, dict[str, Any]]]:  # fmt: skip
        if self._gate is None:
            return []
        committed = self._gate.committed
        speak = min(owed, committed + 1)
        news, now_s = self._read_news(speak) or committed > self._acked, time.monotonic()
        if not news and (committed < 0 or now_s < self._acked_s + ACK_AGAIN_S):
            return []
        self._acked, self._acked_s = committed, now_s
        what = ack(self.name, self.term, self._acked, placed=self.placed)
        if isinstance(self.fragment.policy, Gap) and clients:
            what |= {"seed": {"clients": list(clients)}}
        if self._past is not None:
            seed = self._past.seed(speak)
            if seed is None:  # Not known: what was said before stays in force.
                what |= {"need": 0}
            else:
                told = {**seed.to_dict(), "clients": list(clients)}
                what |= {"need": seed.first, "seed": told}
            what |= {"owed_to": owed_to}
        return [(name, what) for name in self.fragment.inputs]

    def _read_news(self, speak: int) -> bool:
        """Whether more is known of its oldest session than was said, for the seed of `speak`."""
        # Until it is restored its past has not begun, and would forget what was read.
        if not self._restored or self._oldest is None or not isinstance(self._past, SessionPast):
            return False
        for reading in self._oldest.take():
            self._past.read(reading)
        return self._past.has_news(speak)

    def show(self) -> None:
        """Shows what was held back, as far as all who could take over have it."""
        if self.staged is not None and self.staged.show(self.confirmed.by_all):
            with self._changed:  # Whoever waits for room may have it now.
                self._changed.notify_all()

    def wait_shippable(self, taker: str, after: int, wait_s: float) -> int | None:
        """The newest commit, if it should be shipped now to `taker`, who holds `after`; or None.

        It should as soon as there is nothing else to do, and in any case when `wait_s` is over.
        """
        self.confirmed.holds(taker, after, now_s=time.monotonic())
        self.show()
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopped or (self._idle and self.committed > after),
                min(wait_s, POLL_S),
            )
            if self._stopped:
                # Not None, which asks for being asked again at once.
                raise Unreachable(f"{self.name} has ended", hint="another one may begin here")
            due = self._idle or wait_s <= POLL_S
            return self.committed if due else None
