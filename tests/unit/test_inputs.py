"""What was read ahead of Spark is given back when one replica of an input stands alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from unbroken.epochs import GAP, Epoch
from unbroken.gate import Gate
from unbroken.node.inputs import Inputs
from unbroken.streams import follow, serve
from unbroken.streams.flight import Door
from unbroken.streams.log import EpochLog
from unbroken.streams.merge import Serving
from unbroken.streams.serve import StreamDoor
from unbroken.streams.served import Served

SCHEMA = pa.schema([("n", pa.int64())])
CONSUMER = "d@node-3"


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "POLL_S", 0.05)
    monkeypatch.setattr(follow, "WATCH_S", 0.05)


def until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


class Book:
    """Two streams: `a`, whose first replica is lost, and `c`, which is quiet at first."""

    def __init__(self, folder: Path) -> None:
        self.doors: list[Door] = []
        self.old, self.new = self._served(folder / "1", "a"), self._served(folder / "2", "a")
        self.c = self._served(folder / "3", "c")
        self.new.begins_later = True
        self.new.expect(CONSUMER)
        self.new.stand_alone(5)
        old, new, c = (door.address for door in self.doors)
        self.pages = {"a": Serving({"a@node-1": old}), "c": Serving({"c@node-2": c})}
        self._alone = Serving({"a@node-4": new}, alone=(5, "a@node-4"))

    def _served(self, folder: Path, stream: str) -> Served:
        self.doors.append(Door())
        served = Served(EpochLog(folder, stream), [], keep=600)
        StreamDoor(self.doors[-1]).streams[stream] = served
        return served

    def replicas(self, stream: str) -> Serving:
        return self.pages[stream]

    def stand_alone(self) -> None:
        """The second replica of `a` takes the place of the first, which still serves."""
        self.pages["a"] = self._alone


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    made = Book(tmp_path)
    yield made
    for door in made.doors:
        door.close()


class Reader:
    """Inputs and gate of a replica that has committed nothing."""

    def __init__(self, book: Any) -> None:
        self.changed, self.gate = threading.Condition(), Gate(["a", "c"], committed=-1)
        self.inputs = Inputs(
            ["a", "c"], 0, book, consumer=CONSUMER, changed=self.changed,
            arrived=lambda name, number, _waited_s: self.gate.offer(name, number),
            withdraw=self.gate.withdraw,
        )  # fmt: skip
        self.inputs.begin()

    def ask(self, after: int) -> int | None:
        """Spark's question, as `Replica` takes it."""
        with self.changed:
            number = self.gate.asked(after=after)
            self.inputs.done(after)
            return number

    def has(self, stream: str, number: int) -> bool:
        with self.changed:
            return self.gate._offered[stream] >= number


@pytest.fixture
def reader(book: Book) -> Iterator[Reader]:
    made = Reader(book)
    yield made
    made.inputs.stop()


def append(served: Served, first: int, last: int) -> None:
    for number in range(first, last + 1):
        served.log.append(Epoch.of(served.log.stream, number, pa.table({"n": [number]})))


def begin(book: Book, first: int, last: int) -> None:
    """The second replica of `a` has heard everybody, and begins with a hole."""
    book.new.begin(first, [Epoch.gap("a", n, SCHEMA, lost=1) for n in range(first, last + 1)])


def test_what_waits_for_another_input_is_given_back(book: Book, reader: Reader):
    """It would be gone with the process: it says what it has for good, and takes gaps instead."""
    append(book.old, 0, 9)
    until(lambda: reader.has("a", 3))
    book.stand_alone()
    until(lambda: book.new.hole() is not None)
    assert book.new.hole() == 0
    assert not reader.has("a", 0)
    begin(book, 0, 5)
    append(book.c, 0, 1)
    until(lambda: reader.has("a", 1) and reader.has("c", 1))
    assert reader.ask(-1) == 0
    assert reader.inputs.epoch("a", 0).kind == GAP
    assert reader.ask(0) == 1
    assert reader.inputs.error is None


def test_what_spark_works_on_is_waited_for(book: Book, reader: Reader):
    """Nothing is said of it until it is committed, and nothing more is released meanwhile."""
    append(book.old, 0, 9)
    append(book.c, 0, 9)
    until(lambda: reader.has("a", 2) and reader.has("c", 2))
    assert reader.ask(-1) == 0
    book.stand_alone()
    until(lambda: reader.gate.to_withdraw)
    assert book.new.hole() is None
    assert reader.ask(-1) == 0, "the other source gets the same one"
    assert reader.inputs.epoch("a", 0).rows == 1
    assert reader.ask(0) is None, "1 is there, and will not stay"
    until(lambda: book.new.hole() is not None)
    assert book.new.hole() == 1
    begin(book, 1, 4)
    until(lambda: reader.has("a", 1))
    assert reader.ask(0) == 1
    assert [reader.inputs.epoch(name, 1).kind for name in ("a", "c")] == [GAP, "stable"]


def test_a_branch_gives_nothing_back(book: Book, reader: Reader):
    """Its stable line lacks all of it anyway, and that is said."""
    append(book.old, 0, 9)
    until(lambda: reader.has("a", 3))
    reader.inputs.speak_for(lambda: 0)
    book.stand_alone()
    until(lambda: book.new.hole() is not None)
    assert book.new.hole() == 0
    assert reader.has("a", 3)
