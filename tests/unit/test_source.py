"""How Spark's readers get their rows: with the offset, or slice by slice; no Spark is started."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from unbroken.engine.source import (
    AHEAD,
    PLANNER_ROWS_MAX,
    READ_BY_EXECUTORS,
    READ_BY_PLANNER,
    SLICE_ROWS,
    EpochSource,
    last_planned_ahead,
)
from unbroken.epochs import Epoch
from unbroken.errors import MisalignedBatch, Unreachable
from unbroken.node.parts import nth_slice
from unbroken.streams.flight import Door, Peer

SIZES = [3, PLANNER_ROWS_MAX, PLANNER_ROWS_MAX + 1, SLICE_ROWS + 1, 0]


class Replica:
    """The epochs of `SIZES`, behind a real door."""

    def __init__(self, door: Door) -> None:
        self.epochs = [
            Epoch.of("numbers", number, pa.table({"n": range(size)}))
            for number, size in enumerate(SIZES)
        ]
        #: How many rows left with an offset.
        self.sent: list[int] = []
        #: Whether Spark may plan ahead.
        self.ahead = False
        self.asked_ahead: list[bool] = []
        #: Whether it has become a branch.
        self.parted = False
        door.on_act("held", lambda command: 0)
        door.on_get("gate", self._gate)
        door.on_get("slice", self._slice)

    def _gate(self, command: dict[str, Any]) -> pa.Table:
        self.asked_ahead.append(command["ahead"])
        if command["ahead"] and self.ahead:
            return AHEAD
        table = self.epochs[command["after"] + 1].stamped()
        table = table if table.num_rows <= command["rows"] else table.slice(0, 0)
        self.sent.append(table.num_rows)
        return last_planned_ahead(table) if self.parted else table

    def _slice(self, command: dict[str, Any]) -> pa.Table:
        table = self.epochs[command["number"]].table
        return nth_slice(table, command["index"], command["count"])


@pytest.fixture
def replica() -> Iterator[tuple[Replica, str]]:
    with Door() as door:
        yield Replica(door), door.address


def reader_of(address: str, kind: str) -> Any:
    options = {"door": address, "fragment": "f", "input": "numbers", "term": "1", "reader": kind}
    return EpochSource(options).streamReader(None)  # type: ignore[arg-type]


def rows_of(reader: Any, start: dict[str, int], end: dict[str, int]) -> tuple[list[int], int]:
    """What Spark gets, as Spark asks for it; and how many executors it takes, 0 for none."""
    slices = reader.partitions(start, end)
    at_hand = reader.getCache(start, end) if hasattr(reader, "getCache") else None
    batches = list(at_hand) if at_hand is not None else []
    if at_hand is None:
        # Readers travel to the executors.
        there = pickle.loads(pickle.dumps(reader))
        batches = [batch for part in slices for batch in there.read(part)]
    return [n for batch in batches for n in batch.column(0).to_pylist()], (
        0 if at_hand is not None else len(slices)
    )


@pytest.mark.parametrize(
    ("kind", "by_executors", "sent"),
    [
        (READ_BY_PLANNER, [0, 0, 1, 2, 0], [3, PLANNER_ROWS_MAX, 0, 0, 0]),
        (READ_BY_EXECUTORS, [1, 1, 1, 2, 1], [0, 0, 0, 0, 0]),
    ],
)
def test_every_row_comes_once_whoever_reads_it(
    replica: tuple[Replica, str], kind: str, by_executors: list[int], sent: list[int]
):
    """Small epochs come with their offset on one machine; large ones never do."""
    served, address = replica
    reader = reader_of(address, kind)
    start = reader.initialOffset()
    for size, executors in zip(SIZES, by_executors, strict=True):
        end = reader.latestOffset(start, None)
        assert end == {"epoch": start["epoch"] + 1}
        assert rows_of(reader, start, end) == (list(range(size)), executors)
        start = end
    assert served.sent == sent
    assert served.asked_ahead == [True, False, False, False, False], "asked once"


@pytest.mark.parametrize("kind", [READ_BY_PLANNER, READ_BY_EXECUTORS])
def test_a_batch_that_the_gate_did_not_release_is_refused(replica: tuple[Replica, str], kind: str):
    """Scenario 5: Spark repeats a planned batch before it asks for anything."""
    reader = reader_of(replica[1], kind)
    with pytest.raises(MisalignedBatch, match="behind the gate's back"):
        reader.partitions({"epoch": 6}, {"epoch": 7})


@pytest.mark.parametrize("kind", [READ_BY_PLANNER, READ_BY_EXECUTORS])
def test_a_node_that_was_frozen_is_asked_again_and_one_that_is_gone_is_not(
    kind: str, monkeypatch: pytest.MonkeyPatch
):
    """Found: after 20 s of SIGSTOP every query of a node had failed, for people to mend."""
    door = Door()
    try:
        Replica(door)
        silent = ["gate", "slice"]
        get = Peer.get

        def late(peer: Peer, command: dict[str, Any], **how: Any) -> Any:
            if command["do"] in silent:
                silent.remove(command["do"])
                raise Unreachable("no answer: Deadline Exceeded")
            return get(peer, command, **how)

        monkeypatch.setattr(Peer, "get", late)
        reader, start = reader_of(door.address, kind), {"epoch": 1}
        end = reader.latestOffset(start, None)
        assert rows_of(reader, start, end)[0] == list(range(SIZES[2]))
        assert silent == []
    finally:
        door.shutdown()
    with pytest.raises(Unreachable, match="no answer"):
        reader.latestOffset(end, None)


@pytest.mark.parametrize("kind", [READ_BY_PLANNER, READ_BY_EXECUTORS])
def test_an_epoch_is_told_of_before_its_rows_come(replica: tuple[Replica, str], kind: str):
    """Spark plans it meanwhile, and waits where it needs the rows; once, however often it asks."""
    served, address = replica
    served.ahead = True
    reader = reader_of(address, kind)
    start = reader.initialOffset()
    for size in SIZES[:3]:
        end = reader.latestOffset(start, None)
        assert end == {"epoch": start["epoch"] + 1}
        for _ in range(2):
            assert rows_of(reader, start, end)[0] == list(range(size))
        start = end
    assert served.asked_ahead == [True, False, False, False], "asked once"


def test_what_spark_was_told_of_before_is_not_repeated(replica: tuple[Replica, str]):
    """Scenario 5, when the newest offset was told of and its epoch has not come."""
    served, address = replica
    served.ahead = True
    reader = reader_of(address, READ_BY_PLANNER)
    start = reader.initialOffset()
    first = reader.latestOffset(start, None)
    reader.partitions(start, first)
    second = reader.latestOffset(first, None)
    for behind in [(start, first), (start, second), (first, {"epoch": 7})]:
        with pytest.raises(MisalignedBatch, match="behind the gate's back"):
            reader.partitions(*behind)
    reader.partitions(first, second)


@pytest.mark.parametrize("kind", [READ_BY_PLANNER, READ_BY_EXECUTORS])
def test_a_query_that_becomes_a_branch_plans_nothing_ahead_any_more(
    replica: tuple[Replica, str], kind: str
):
    """Its watermarks are lifted after every epoch, before the next one is planned."""
    served, address = replica
    served.ahead = True
    reader = reader_of(address, kind)
    start = reader.initialOffset()
    for parted in (False, False, True, True):
        served.parted = parted
        asked = len(served.asked_ahead)
        end = reader.latestOffset(start, None)
        if start["epoch"] == 2:  # The epoch before it was a branch's.
            assert served.asked_ahead[asked:] == [False]
            assert reader._coming is None, "it was waited for"
        else:
            assert reader._coming is not None
        assert rows_of(reader, start, end)[0] == list(range(SIZES[end["epoch"]]))
        start = end
