"""Output that is held back: computed, but shown only when the standby has it too.

    seal ─▶ staged 56 57 58 ─ the standby holds 57, with its layers ─▶ log 56 57 ─▶ consumers

A fragment that computes something else each time (`rand`, the current time) must not be seen twice
with different rows (scenario 6).  So an epoch is shown only when whoever may have to take over has
it, together with the state that belongs to it.  What was not shown may be computed again, because
nobody saw it.

* Control says who could take over: who is live, and who is gone and may come back.  All of them
  must have an epoch, and whoever else has asked for it and may become one of them meanwhile: a
  node's word is not enough, it may have been replaced.
* Only the writer knows all that, so it shows first; a standby shows what the writer has shown.
* Without a standby nothing is shown: computing goes on until the log's limit.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path

from unbroken.epochs import Epoch
from unbroken.streams.copy_log import extend_log
from unbroken.streams.flight import Peer
from unbroken.streams.log import EpochLog, number_of

#: After a fragment's name: what is not shown yet, for its standby.
STAGED = "~staged"


class Confirmed:
    """How far those are who could take over: what all of them hold may be shown.

    >>> confirmed = Confirmed()
    >>> confirmed.holds("ids@node-2", 57, now_s=0.0); confirmed.by_all
    -1
    >>> confirmed.agree(["ids@node-2"], [], ["ids@node-2", "ids@node-3"], asked_s=0.5)
    >>> confirmed.by_all
    57
    >>> confirmed.holds("ids@node-3", 12, now_s=1.0); confirmed.by_all
    12
    >>> confirmed.agree(["ids@node-2"], ["ids@node-1"], ["ids@node-2", "ids@node-1"], asked_s=1.5)
    >>> confirmed.by_all
    -1
    """

    def __init__(self) -> None:
        self._live: frozenset[str] = frozenset()
        self._gone: frozenset[str] = frozenset()
        self._epochs: dict[str, int] = {}
        self._first_s: dict[str, float] = {}
        self._lock = threading.Lock()

    def holds(self, standby: str, epoch: int, *, now_s: float) -> None:
        """`standby` could go on after `epoch`."""
        with self._lock:
            self._epochs[standby] = epoch
            self._first_s.setdefault(standby, now_s)

    def agree(
        self,
        live: Collection[str],
        gone: Collection[str],
        placed: Collection[str],
        *,
        asked_s: float,
    ) -> None:
        """Control's word, asked for at `asked_s`: who could take over now, who could should it come
        back when nobody else is left, and who has a place at all.

        Whoever has none is forgotten; unless it came after the question, and the answer could not
        know of it.
        """
        with self._lock:
            self._live, self._gone = frozenset(live), frozenset(gone)
            for standby in self._epochs.keys() - set(placed):
                if self._first_s[standby] < asked_s:
                    del self._epochs[standby], self._first_s[standby]

    @property
    def by_all(self) -> int:
        """The newest epoch that nobody would compute again; -1 for none."""
        with self._lock:
            if not self._live:
                return -1
            could = self._live | self._gone | self._epochs.keys()
            return min(self._epochs.get(name, -1) for name in could)


class Staged:
    """The output of one replica that is not shown yet, in front of its `log`.

    >>> import tempfile, pyarrow as pa
    >>> folder = Path(tempfile.mkdtemp())
    >>> log = EpochLog(folder / "output", "ids")
    >>> staged = Staged(folder / "staged", log, committed=-1)
    >>> for number in (0, 1):
    ...     staged.append(Epoch.of("ids", number, pa.table({"n": [number]})))
    >>> log.next, staged.show(0), log.next
    (0, True, 1)
    """

    def __init__(self, folder: Path, log: EpochLog, *, committed: int | None) -> None:
        """`committed`: what is newer than that will be computed again, with other rows.

        None: nothing is computed here, it is taken from the writer.
        """
        self._shown = log
        #: Control's word and a standby's question both may show something.
        self._showing = threading.Lock()
        self._closed = False
        for path in sorted(folder.glob("*.arrow"), reverse=True):
            if committed is not None and number_of(path) > committed:
                path.unlink()  # The newest first: a crash in between leaves no hole.
        self.log = EpochLog(folder, log.stream + STAGED)
        if committed is not None and self.log.first == self.log.next:
            self.log.start_at(committed + 1)

    @property
    def next(self) -> int:
        """The number that the next epoch will have."""
        return self.log.next

    @property
    def bytes(self) -> int:
        """How many bytes of rows wait to be shown."""
        return sum(header.bytes for header in self.log.held(self._shown.next))

    def append(self, epoch: Epoch) -> None:
        """Keeps an epoch until it may be shown."""
        self.log.append(epoch.with_header(stream=self.log.stream))

    def show(self, epoch: int) -> bool:
        """Shows all up to `epoch`, which whoever could take over has; tells if that is news."""
        with self._showing:
            if self._closed:
                return False
            before = self._shown.next
            for number in range(self._shown.next, min(epoch + 1, self.log.next)):
                shown = self.log.read(number).with_header(stream=self._shown.stream)
                if self._shown.first == self._shown.next:
                    self._shown.start_at(number)
                self._shown.append(shown)
            self.log.trim(self._shown.next)
            return self._shown.next > before

    def close(self) -> None:
        """Shows nothing more: whoever is started again has logs of its own in these folders."""
        with self._showing:
            self._closed = True

    def take(self, peer: Peer, epoch: int) -> None:
        """Takes what the writer at `peer` has not shown yet, up to `epoch`, and what it has shown.

        In this order: what it shows in between is in its log then.
        """
        extend_log(peer, self.log, last=epoch)
        extent = peer.act({"do": "extent", "stream": self._shown.stream})
        if extent["next"] > max(extent["first"], self._shown.next):
            extend_log(peer, self._shown, last=extent["next"] - 1)
        self.log.trim(self._shown.next)

    def forget(self) -> None:
        """Nothing of it counts any more: another writer has computed these epochs anew."""
        for path in sorted(self.log.folder.glob("*.arrow"), reverse=True):
            path.unlink()
        self.log = EpochLog(self.log.folder, self.log.stream)
