"""A producer whose sends fail in the middle: every row is in the source once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from unbroken import schemas
from unbroken.client import producer as producers
from unbroken.client.producer import Producer
from unbroken.errors import BackpressureError, Unreachable
from unbroken.streams.flight import Door, Peer
from unbroken.streams.source_log import SourceLog

DDL = "n LONG"


class Entry:
    """The door of a source whose answers may be lost."""

    def __init__(self, folder: Path, door: Door) -> None:
        self.log = SourceLog(folder, "clicks", schemas.parse(DDL))
        self.loses_answers = False
        door.on_put("send", self._send)
        door.on_act("sequence", lambda command: self.log.sequence(command["producer"]))
        door.on_act("schema", lambda command: {"ddl": DDL, "event_time": None})
        door.on_act("extent", lambda command: {"next": self.log.open_number})

    def _send(self, command: dict[str, Any], table: pa.Table) -> dict[str, Any]:
        sent = command["producer"], int(command["sequence"])
        receipt = self.log.send(table, *sent, now_s=time.time(), wait_s=0.0)
        if self.loses_answers:
            raise Unreachable("the answer is lost on its way")
        return asdict(receipt)

    @property
    def rows(self) -> list[int]:
        return [n for table in self.log._rows for n in table.column("n").to_pylist()]


@pytest.fixture
def entry(tmp_path: Path) -> Iterator[tuple[Entry, Producer]]:
    with Door() as door, Peer(door.address) as peer:
        made = Entry(tmp_path, door)
        yield made, Producer(peer, "clicks", name="p")
        made.log._close_journal()


def numbers(*values: int) -> list[dict[str, int]]:
    return [{"n": value} for value in values]


def test_other_rows_after_a_send_that_nobody_answered_are_no_repetition(entry):
    source, producer = entry
    producer.send(numbers(1))
    source.loses_answers = True
    with pytest.raises(Unreachable):
        producer.send(numbers(2), timeout_s=0.0)
    source.loses_answers = False
    assert producer.send(numbers(3)).rows == 1
    assert producer.send(numbers(4)).rows == 1
    assert source.rows == [1, 2, 3, 4]


def test_the_same_rows_after_a_send_that_nobody_answered_are_one(entry):
    source, producer = entry
    source.loses_answers = True
    with pytest.raises(Unreachable):
        producer.send(numbers(1, 2), timeout_s=0.0)
    source.loses_answers = False
    assert producer.send(numbers(1, 2)).repeated
    assert not producer.send(numbers(1, 2)).repeated, "that was answered: these are more"
    assert source.rows == [1, 2, 1, 2]


def test_a_large_send_goes_on_where_the_source_was_full(entry, monkeypatch: pytest.MonkeyPatch):
    source, producer = entry
    monkeypatch.setattr(producers, "SEND_ROWS_MAX", 10)
    table = pa.table({"n": list(range(25))})
    source.log._log_bytes_max = 150
    with pytest.raises(BackpressureError, match="20 of 25 rows were taken, then: ") as caught:
        producer.send(table)
    assert "the same rows again" in caught.value.hint
    source.log._log_bytes_max = 10_000
    assert producer.send(table).rows == 5, "as many as were left"
    assert source.rows == list(range(25))
