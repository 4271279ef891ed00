"""The tentative end of a stream: what one replica says while some of its input is cut off.

    stable      … 410  411
    branch 3              412' 413' 414'        kept apart: no ack, shipment or repair knows them

* One branch at a time.  Its epochs are named by number *and* branch: another replica's, or those of
  a later branch, are other epochs (scenario 7).
* What the stable line has replaced goes.  When the branch ends all of it goes, and a process that
  starts finds nothing of it: a crash loses tentative results only.

>>> import tempfile, pyarrow as pa
>>> said = BranchLog(Path(tempfile.mkdtemp()) / "tentative", "alerts")
>>> said.begin("1.3@node-1", after=411)
>>> said.append(Epoch.of("alerts", 412, pa.table({"n": [1]}), kind="tentative"))
>>> branch, headers = said.news("", 0, wait_s=0)
>>> branch, [header.number for header in headers]
('1.3@node-1', [412])
>>> said.end("1.3@node-1"); said.news("1.3@node-1", 413, wait_s=0)
('', [])
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from unbroken.epochs import Epoch, Header
from unbroken.errors import Unreachable
from unbroken.streams.log import EpochLog


class BranchLog:
    """Tentative epochs of one replica, for whoever follows.  Safe for many threads."""

    def __init__(self, folder: Path, stream: str) -> None:
        self._folder, self.stream = folder, stream
        shutil.rmtree(folder, ignore_errors=True)
        self._changed = threading.Condition()
        self._log: EpochLog | None = None
        #: The branch that speaks; "" while none does.
        self.branch = ""

    def begin(self, branch: str, *, after: int) -> None:
        """`branch` speaks from now on, about what comes after epoch `after`."""
        log = EpochLog(self._folder_of(branch), self.stream)
        log.start_at(after + 1)
        with self._changed:
            self.branch, self._log = branch, log
            self._changed.notify_all()

    def append(self, epoch: Epoch) -> None:
        """The branch says an epoch."""
        assert self._log is not None, "a branch has begun"
        self._log.append(epoch)
        with self._changed:
            self._changed.notify_all()

    def news(self, branch: str, start: int, wait_s: float) -> tuple[str, list[Header]]:
        """Who speaks now, and headers from `start` on; waits a while for either to change.

        `branch` is the one that was heard last; of another one all headers are told.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self.branch != branch or (self._log is not None and self._log.next > start),
                wait_s,
            )
            if self._log is None:
                return "", []
            # What was trimmed is replaced already.
            first = max(self._log.first, start if self.branch == branch else 0)
            return self.branch, self._log.headers(first)

    def read(self, branch: str, number: int) -> Epoch:
        """An epoch of `branch`; Unreachable if it speaks no more, or has replaced it."""
        with self._changed:
            log = self._log if self.branch == branch else None
        if log is None or not log.first <= number < log.next:
            raise Unreachable(f"{self.stream}: epoch {number} of branch {branch} is not there")
        return log.read(number)

    def replaced(self, number: int) -> None:
        """The stable line has epoch `number`: what was said up to it need not be kept."""
        with self._changed:
            if self._log is not None:
                self._log.trim(number + 1)

    @property
    def bytes(self) -> int:
        """How many bytes of rows are kept."""
        return self._log.bytes if self._log is not None else 0

    def end(self, branch: str) -> None:
        """`branch` speaks no more; another one may speak by now."""
        with self._changed:
            if self.branch == branch:
                self.branch, self._log = "", None
                self._changed.notify_all()
        shutil.rmtree(self._folder_of(branch), ignore_errors=True)

    def _folder_of(self, branch: str) -> Path:
        return self._folder / branch.replace("@", "-")
