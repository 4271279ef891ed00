"""A standby: holds what a fragment's writer ships, ready to go on in its place.

    writer ─ new layers, output ─▶ shipped/12, output log ─ ack: "need s + 1" ─▶ producers
                                        ▼ take-over: linked, released
             Spark query, started and held ─▶ speaks from s + 1

* It asks the writer, which answers when there is news and nothing else to do, at the latest when
  the interval is over.  What was taken is confirmed to the producers under the standby's own name:
  they keep what it would have to compute again (invariant 3).
* Its copy of the output log is served like the writer's.  So consumers are connected to it before
  anything happens, and after a take-over they simply hear more of it.
* The query waits in its session before it reads a checkpoint: taking over is linking some files and
  letting go.
* Then there is a *rehearsal* (see `rehearsal`, and `preparation` for when).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from unbroken.checkpoints import fork
from unbroken.checkpoints.known import Known
from unbroken.checkpoints.manifest import checksum
from unbroken.checkpoints.take import take
from unbroken.errors import UnbrokenError, Unreachable
from unbroken.node.book import BookReader
from unbroken.node.lines import PlanFor
from unbroken.node.preparation import Preparation
from unbroken.node.replica import Replica
from unbroken.streams.copy_log import extend_log
from unbroken.streams.flight import POLL_S, Command, Peer, checked_name
from unbroken.streams.needs import ACK_AGAIN_S, ack

#: Between two attempts at a writer that does not answer, or whose shipment cannot be taken.
RETRY_S = 0.2
TROUBLE_S = 1.0


class Patient:
    """A peer that is waited for without `busy`: one that is frozen must not hold up a take-over.

    What it answers after `stop` is of no use, and nothing that comes of it may be done any more.
    """

    def __init__(self, peer: Peer, busy: threading.Lock, stop: threading.Event) -> None:
        self._peer, self._busy, self._stop = peer, busy, stop
        self.address = peer.address

    def act(self, command: Command, **how: Any) -> Any:
        """As `Peer.act`, called with `busy`."""
        return self._without(self._peer.act, command, **how)

    def get(self, command: Command, **how: Any) -> Any:
        """As `Peer.get`, called with `busy`."""
        return self._without(self._peer.get, command, **how)

    def _without(self, call: Callable[..., Any], command: Command, **how: Any) -> Any:
        self._busy.release()
        try:
            answer = call(command, **how)
        finally:
            self._busy.acquire()
        if self._stop.is_set():
            raise Unreachable(f"{self.address} was waited for in vain: this standby has ended")
        return answer


class Standby:
    """Keeps up with the writer at `giver` until it is asked to take over, or to stop."""

    def __init__(
        self,
        replica: Replica,
        plan: PlanFor,
        *,
        rehearse: Callable[[threading.Event], int],
        book: BookReader,
        giver: str,
        interval_s: float,
        expect: Callable[[str], None] = lambda client: None,
        clients: Callable[[], Sequence[str]] = list,
    ) -> None:
        """`expect` is told the clients of the writer: its copy of the log is kept for them too.
        `clients` are those that have found this copy, perhaps before they could find the writer.
        """
        self.replica = replica
        self._expect, self._clients = expect, clients
        self._book = book
        #: The writer's door; "" while nobody writes.
        self.giver = giver
        self._interval_s = interval_s
        self._peer: Peer | None = None
        self._stop = threading.Event()
        #: Held while something is changed here: not while the writer is waited for.
        self._busy = threading.Lock()
        self._preparation = Preparation(replica, plan, rehearse, stop=self._stop, busy=self._busy)
        self._known = Known(checksum)
        # Not at once: a writer that has just taken over has something to catch up with.
        self._shipped_s = time.monotonic()
        self._acked, self._acked_s = -1, 0.0
        #: What producers may have trimmed already on this replica's word, if it once wrote.
        self._floor: int | None = None
        #: The newest term under which this replica has spoken to producers, in whatever part.
        self._spoke = 0
        #: Whether it could take over: it has all that was shipped, if anything was.
        self.ready = False
        #: The newest epoch that it holds.
        self.epoch = -1
        self.shipments = 0
        self.bytes = 0
        #: Why it does not keep up, in a sentence; empty while it does.
        self.trouble = ""

    def begin(self) -> None:
        """Starts the query that is held, and keeps up from now on."""
        name = f"hold-{self.replica.name}"
        threading.Thread(target=self._keep, daemon=True, name=name).start()

    def _keep(self) -> None:
        while not self._stop.is_set():
            giver = self.giver
            self._prepare()
            try:
                if giver:
                    with Peer(self._book.through(giver)) as self._peer:
                        while giver == self.giver and not self._stop.is_set():
                            self._prepare()
                            self._follow(self._peer)
            except Unreachable:
                pass  # Control will say who writes now.
            except UnbrokenError as error:
                self._in_trouble(str(error))
            self._stop.wait(TROUBLE_S if self.trouble else RETRY_S)

    def _prepare(self) -> None:
        if self.epoch >= 0 and self._floor is not None:  # It would be held under a term of before.
            self._preparation.look(now_s=time.monotonic())

    def _follow(self, peer: Peer) -> None:
        """Waits for news, and takes it."""
        wait_s = max(0.0, self._shipped_s + self._interval_s - time.monotonic())
        question = {
            "do": "shippable", "fragment": self.replica.fragment.name, "taker": self.replica.name,
            "after": self.epoch, "wait_s": wait_s,
            "clients": [] if self.shipments else list(self._clients()),
        }  # fmt: skip
        newest = peer.act(question, timeout_s=2 * POLL_S)
        if newest is None:
            return
        if newest > self.epoch:
            with self._busy:
                if not self._stop.is_set():
                    patient: Any = Patient(peer, self._busy, self._stop)
                    # Before anything is trimmed here: one that is away speaks to nobody.
                    stream = {"do": "consumers", "stream": self.replica.fragment.name}
                    for client in patient.act(stream):
                        self._expect(checked_name(client))
                    self._take(patient)
        self.trouble = ""
        # Without anything taken: it has nothing yet, and needs no more than that.
        self.ready = self.epoch + 1 >= self._trimmed() and (self.epoch >= 0 or newest < 0)
        self._shipped_s = time.monotonic()

    def _take(self, peer: Peer) -> None:
        replica = self.replica

        def copy_output(epoch: int) -> None:
            if replica.staged is None:
                extend_log(peer, replica.log, last=epoch)
            else:
                if not self.shipments:
                    # Made or taken in an earlier life, and never shown: the writer has drawn again.
                    # Not before, or the last copy would be gone if the writer died (scenario 16).
                    fork.forget_all(replica.folder)
                    replica.staged.forget()
                replica.staged.take(peer, epoch)

        shipped = take(
            peer, replica.fragment.name, replica.folder,
            with_watermarks=replica.notes_watermarks, before_seen=copy_output, known=self._known,
        )  # fmt: skip
        if self._stop.is_set():
            return  # It takes over, or leaves, since the last call.
        # What this node once made itself is superseded.
        fork.forget_terms(self.replica.folder, below=self.replica.term)
        self.epoch = shipped.epoch
        self.shipments += 1
        self.bytes += shipped.bytes_fetched

    def _trimmed(self) -> int:
        """The first epoch that producers keep for this replica.

        A former writer has told them that it needs nothing up to its own last epoch; it can take
        over again only when what it holds has got as far.
        """
        if self._floor is None:
            needs, terms = [], [0]
            for stream in self.replica.fragment.inputs:
                told = self._book.ask_all(stream, {"do": "seed", "consumer": self.replica.name})
                if not told:
                    raise Unreachable(f"nobody who serves {stream!r} answers")
                needs += [int(each["need"] or 0) for each in told]
                terms += [int(each["term"]) for each in told]
            # It may have lost what it had, or forgotten it: they believe no term of before.
            self._spoke = max(terms)
            fork.count_on(self.replica.folder, after=self._spoke)
            self._floor = max(needs)
        return self._floor

    def _in_trouble(self, why: str) -> None:
        if why != self.trouble:
            print(f"{self.replica.name} cannot be kept ready: {why}", file=sys.stderr, flush=True)
        self.trouble = why

    def acks(self) -> list[tuple[str, dict[str, Any]]]:
        """What to tell the producers, if there is news: they keep what is not held here."""
        epoch, now_s = self.epoch, time.monotonic()
        if self._floor is None:
            return []  # Under which term is not known yet.
        if epoch < 0 or (epoch == self._acked and now_s < self._acked_s + ACK_AGAIN_S):
            return []
        self._acked, self._acked_s = epoch, now_s
        term = max(self.replica.term, self._spoke)
        what = ack(self.replica.name, term, epoch, placed=self.replica.placed)
        return [(name, what) for name in self.replica.fragment.inputs]

    def end(self) -> None:
        """Takes no more shipments; one that is under way is broken off.

        A rehearsal is told to stop, and not waited for: Spark may take half a minute for it.  It
        shares neither name nor folder with the query that goes on.
        """
        self._stop.set()
        if self._peer is not None:
            self._peer.close()
        with self._busy:
            pass  # Nothing is being changed any more, and no query is being started.

    def status(self) -> dict[str, Any]:
        """What `unbroken status` shows of it."""
        return {
            "epoch": self.epoch, "from": self.giver, "shipments": self.shipments,
            "bytes": self.bytes, "ready": self.ready, "trouble": self.trouble,
            **self._preparation.status(),
        }  # fmt: skip
