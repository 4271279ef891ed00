"""What a hole has cost: counted from headers, on the inputs and in earlier holes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from unbroken.epochs import Header
from unbroken.errors import Unreachable
from unbroken.node import lost
from unbroken.node.lost import Lost

PLAN: Any = SimpleNamespace(schema=pa.schema([("n", pa.int64())]), fingerprint="f")


class Book:
    """Streams of which some headers are known."""

    def __init__(self, **streams: dict[int, Header]) -> None:
        self._streams = streams

    def ask(self, stream: str, command: dict[str, Any]) -> Any:
        headers = self._streams[stream]
        if command["do"] == "extent":
            return {"first": 0, "next": max(headers) + 1}
        known = headers.get(command["number"])
        return None if known is None else known.to_json()


def rows(stream: str, *counts: int, first: int = 50, **fields: int) -> dict[int, Header]:
    return {
        first + n: Header(stream, first + n, rows=count, **fields) for n, count in enumerate(counts)
    }


def losses(book: Book, *inputs: str, before: tuple[int, int] = (0, 0), at_least: int = 0) -> Any:
    found: Any = Lost.asked(inputs, book, range(50, 53))  # type: ignore[arg-type]
    epochs = found.epochs("a", PLAN, before, at_least=max(at_least, found.rows))
    return [
        (e.number, e.kind, e.header.lost, e.header.gaps_total, e.header.lost_total) for e in epochs
    ]


def test_every_gap_has_its_own_rows_and_all_before_it():
    book = Book(s=rows("s", 3, 0, 7), t=rows("t", 1, 1, 1))
    assert losses(book, "s", "t", before=(4, 100)) == [
        (50, "gap", 4, 5, 104), (51, "gap", 1, 6, 105), (52, "gap", 8, 7, 113)
    ]  # fmt: skip


def test_what_the_inputs_have_lost_is_lost_here_too():
    """Two gap fragments in a row: the second gives up what the first one had given up."""
    inputs = rows("s", 0, 0, 7, gaps_total=2, lost_total=9)
    inputs[50] = Header("s", 50, kind="gap", lost=9, gaps_total=2, lost_total=9)
    assert losses(Book(s=inputs), "s") == [
        (50, "gap", 9, 3, 9), (51, "gap", 0, 4, 9), (52, "gap", 7, 5, 16)
    ]  # fmt: skip


def test_of_what_nobody_remembers_nothing_is_known_but_what_was_told_before_stays():
    """One who began to count died, and the keeper was started again since."""
    inputs = rows("s", 3, 4, 7)
    del inputs[50], inputs[51]
    assert losses(Book(s=inputs), "s") == [
        (50, "gap", 0, 1, 0), (51, "gap", 0, 2, 0), (52, "gap", 7, 3, 7)
    ]  # fmt: skip
    assert losses(Book(s=inputs), "s", at_least=14)[-1] == (52, "gap", 7, 3, 14)


def test_an_input_that_has_not_come_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lost, "QUIET_S_MAX", 0.0)
    with pytest.raises(Unreachable, match="epoch 52 of 's' has not come yet"):
        losses(Book(s=rows("s", 3, 4)), "s")
