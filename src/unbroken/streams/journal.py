"""The open epoch of a source: on disk before `send` returns, whole or not at all.

    open-000000000012.journal    [size|crc|rows of send 1][size|crc|rows of send 2][torn…

* Each send is one frame, synced before the answer leaves: a row whose send returned is never lost.
* A torn last frame (the process died while writing) is cut off when the journal is read again; its
  send never returned, so its producer sends it again.
* A disk that fills up in the middle of a frame leaves the journal as it was before that frame.
* After a power cut a file may end in zeros: they are no frame.

>>> import tempfile
>>> journal = Journal(Path(tempfile.mkdtemp()) / "open-0.journal")
>>> journal.append(pa.table({"n": [1, 2]}), "alice", 7)
>>> [(frame.producer, frame.sequence, frame.table.num_rows) for frame in journal.frames()]
[('alice', 7, 2)]
>>> journal.close()
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from unbroken.streams import disk

_FRAME = struct.Struct("<II")
_KEY = b"unbroken.send"


@dataclass(frozen=True)
class Frame:
    """The rows of one send."""

    producer: str
    sequence: int
    table: pa.Table


class Journal:
    """The sends of one open epoch, in the order in which they came."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Invariant: everything below it is whole and synced.
        self._size = sum(_FRAME.size + len(body) for body in self._bodies())
        with disk.disk_errors(path):
            self._file = self._reopened()
            disk.sync_folder(path.parent)

    def _reopened(self) -> BinaryIO:
        """The file, cut off behind its last whole frame."""
        file = open(self.path, "ab")  # noqa: SIM115 - closed by close()
        try:
            file.truncate(self._size)
        except OSError:
            file.close()
            raise
        return file

    def append(self, table: pa.Table, producer: str, sequence: int) -> None:
        """Writes one send and waits for the disk."""
        note = json.dumps([producer, sequence]).encode()
        stamped = table.replace_schema_metadata({_KEY: note})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, stamped.schema) as writer:
            writer.write_table(stamped)
        body = sink.getvalue()
        with disk.disk_errors(self.path):
            if self._file.closed:
                self._file = self._reopened()
            try:
                self._file.write(_FRAME.pack(len(body), zlib.crc32(body)))
                self._file.write(body)
                self._file.flush()
                os.fsync(self._file.fileno())
            except OSError:
                # A new handle: this one may still hold unwritten bytes in its buffer.  Should the
                # cut fail as well, it stays closed, and the next append tries again.
                with contextlib.suppress(OSError):
                    self._file.close()
                self._file = self._reopened()
                raise
        self._size += _FRAME.size + len(body)

    def frames(self) -> Iterator[Frame]:
        """All whole frames, oldest first."""
        for body in self._bodies():
            table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
            producer, sequence = json.loads(table.schema.metadata[_KEY])
            yield Frame(producer, sequence, table.replace_schema_metadata(None))

    def _bodies(self) -> Iterator[bytes]:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        at = 0
        while at + _FRAME.size <= len(data):
            size, checksum = _FRAME.unpack_from(data, at)
            body = data[at + _FRAME.size : at + _FRAME.size + size]
            if size == 0 or len(body) < size or zlib.crc32(body) != checksum:
                return
            yield body
            at += _FRAME.size + size

    def close(self) -> None:
        """Closes the file; what was appended stays."""
        self._file.close()

    def remove(self) -> None:
        """The epoch is sealed and synced elsewhere: the journal may go."""
        self.close()
        self.path.unlink(missing_ok=True)
