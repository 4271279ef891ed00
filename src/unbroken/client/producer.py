"""A producer: sends rows into a source, each exactly once.

* Every send carries the producer's name and a sequence number; if the answer is lost, the same send
  goes out again and is a no-op at the source (scenario 12).
* Rows are checked against the schema before anything is sent.  When `send` returns, they are on the
  source's disk.
* A send that failed may have been taken all the same, or the first pieces of a large one.  The same
  rows sent again go on where that stopped, under the same numbers; other rows get a new number, or
  they would be taken for a repetition and dropped.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from unbroken import schemas
from unbroken.errors import UnbrokenError, Unreachable
from unbroken.streams.flight import Peer
from unbroken.streams.source_log import Receipt

#: One send is cut into pieces of this size, so that no message is too large.
SEND_ROWS_MAX = 100_000
RETRY_S = 0.1


class Producer:
    """Sends rows to one source; made by `cluster.producer(name)`."""

    def __init__(self, entry: Peer, stream: str, *, name: str | None = None) -> None:
        self._peer = entry
        self.stream = stream
        self.name = name or uuid.uuid4().hex
        told = entry.act({"do": "schema", "stream": stream})
        self.schema = schemas.parse(told["ddl"])
        self.event_time: str | None = told["event_time"]
        #: The next sequence; a named producer goes on where it stopped.
        self.sequence: int = 1 + entry.act(
            {"do": "sequence", "stream": stream, "producer": self.name}
        )
        #: A send of which nobody knows whether it was taken: its rows, and how many surely were.
        self._unfinished: tuple[pa.Table, int] | None = None
        #: The epoch that takes rows, as far as this producer knows.
        self._open: int = entry.act({"do": "extent", "stream": stream})["next"]

    def send(
        self,
        rows: pa.Table | pa.RecordBatch | list[dict[str, Any]],
        *,
        timeout_s: float = 60.0,
        sequence: int | None = None,
    ) -> Receipt:
        """Sends rows into the open epoch; they are durable when this returns.

        If it fails, send the same rows again: what was taken of them is not taken twice.
        """
        table = schemas.fit(rows, self.schema)
        if sequence is not None:
            return self._send(table, sequence, timeout_s)
        receipt = Receipt(-1, 0, 0, repeated=False)
        for at in range(self._begin(table), max(1, table.num_rows), SEND_ROWS_MAX):
            self._unfinished = table, at
            try:
                part = self._send(table.slice(at, SEND_ROWS_MAX), self.sequence, timeout_s)
            except UnbrokenError as error:
                if not at:
                    raise
                raise type(error)(
                    f"{at:,} of {table.num_rows:,} rows were taken, then: {error.what}",
                    hint="send the same rows again: it goes on behind those",
                ) from error
            receipt = Receipt(
                part.epoch, receipt.rows + part.rows, receipt.set_aside + part.set_aside,
                repeated=receipt.repeated or part.repeated,
            )  # fmt: skip
        self._unfinished = None
        return receipt

    def _begin(self, table: pa.Table) -> int:
        """Where a send begins: behind what was taken of the same rows, if they are sent again."""
        if self._unfinished is None:
            return 0
        before, at = self._unfinished
        if before.equals(table):
            return at
        self.sequence += 1  # Whatever became of the one before, this is another one.
        return 0

    def _send(self, table: pa.Table, sequence: int, timeout_s: float) -> Receipt:
        command = {
            "do": "send", "stream": self.stream, "producer": self.name, "sequence": sequence,
        }  # fmt: skip
        receipt = Receipt(**self._until_answered(lambda: self._peer.put(command, table), timeout_s))
        self.sequence = sequence + 1
        self._open = max(self._open, receipt.epoch)
        return receipt

    @staticmethod
    def _until_answered(call: Callable[[], Any], timeout_s: float) -> Any:
        """Says the same again while nobody answers: it is a no-op if it was heard before."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return call()
            except Unreachable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_S)

    def close_epoch(self, *, timeout_s: float = 60.0) -> int:
        """Seals this source's current epoch and tells its number (`epoch="manual"` only)."""
        number = self._open
        # The number makes it safe to say twice, when the first answer was lost.
        command = {"do": "close", "stream": self.stream, "number": number}
        self._until_answered(lambda: self._peer.act(command), timeout_s)
        self._open = number + 1
        return number
