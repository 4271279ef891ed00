"""A fragment whose output log is full gives up the oldest epochs, where its sources do."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import unbroken as ub
from unbroken.epochs import GAP, STABLE, Epoch
from unbroken.node.room import WAIT_S, Room
from unbroken.policies import Policy
from unbroken.streams.flight import Door
from unbroken.streams.follow import Follower
from unbroken.streams.log import EpochLog
from unbroken.streams.serve import StreamDoor
from unbroken.streams.served import Served

SCHEMA = pa.schema([("n", pa.int64())])
#: Room for ten epochs of ten rows.
LIMIT = 10 * 10 * 8


def append(log: EpochLog, epochs: range) -> None:
    for number in epochs:
        table = pa.table({"n": [number] * 10}, SCHEMA)
        log.append(Epoch.of("eastern", number, table, fingerprint="code", gaps_total=3))


def kinds(log: EpochLog) -> list[str]:
    return [header.kind for header in log.headers(log.first, most=log.next)]


def test_it_waits_once_for_whoever_lags_and_then_goes_on(tmp_path: Path):
    """The oldest become gaps, a tenth is free, and nobody waits again until somebody got on."""
    log = EpochLog(tmp_path, "eastern")
    room = Room(log, SCHEMA, bytes_max=LIMIT)
    append(log, range(9))
    assert room.look(now_s=0.0) == ""
    append(log, range(9, 11))
    assert room.look(now_s=100.0) == ""
    assert room.look(now_s=99.0 + WAIT_S) == "", "not at once"
    assert room.look(now_s=100.0 + WAIT_S) == "full; gave up epochs 0 to 1, 20 rows"
    assert kinds(log) == [GAP] * 2 + [STABLE] * 9
    append(log, range(11, 13))
    assert room.look(now_s=101.0 + WAIT_S) == "full; gave up epochs 2 to 3, 20 rows"
    assert (room.epochs, room.rows, room.told) == (4, 40, "gave up 4 epochs (40 rows)")
    log.trim(6)
    append(log, range(13, 17))
    assert room.look(now_s=102.0 + WAIT_S) == "", "somebody has got on: it waits once more"
    assert [header.kind for header in EpochLog(tmp_path, "eastern").headers(6)] == [STABLE] * 11


def test_whoever_was_cut_off_takes_gaps_and_rows_in_order(tmp_path: Path):
    """One copy has given up more than the other: nobody is refused, and each says what it is."""
    with Door() as one, Door() as other:
        for door, given_up in ((one, 4), (other, 2)):
            log = EpochLog(tmp_path / str(given_up), "eastern")
            append(log, range(8))
            StreamDoor(door).streams["eastern"] = Served(log, [], keep=0)
            for number in range(given_up):
                assert log.give_up(number, SCHEMA) == 10
        doors = {"eastern@node-1": one.address, "eastern@node-2": other.address}
        follower = Follower("eastern", 0, lambda: doors)
        taken = [follower.take(timeout_s=20.0) for _ in range(8)]
        follower.close()
    assert [epoch.number for epoch in taken] == list(range(8))
    assert [epoch.kind for epoch in taken[:2]] == [GAP] * 2
    assert [epoch.kind for epoch in taken[4:]] == [STABLE] * 4
    assert [epoch.header.lost for epoch in taken] == [10 if e.kind == GAP else 0 for e in taken]
    assert follower.refused == []


@pytest.mark.parametrize(
    ("when_full", "policy", "gives_up"),
    [
        ("give_up", None, True),
        ("give_up", ub.Active(), True),
        ("wait", None, False),
        ("give_up", ub.Upstream(), False),
    ],
)
def test_the_choice_is_made_at_the_sources(when_full: str, policy: Policy | None, gives_up: bool):
    """Of a fragment all of whose sources give up; not where state is rebuilt from what is kept."""
    query = ub.Query("shop")
    clicks = query.source("clicks", "page STRING", when_full=when_full)
    orders = query.source("orders", "page STRING")
    pages = query.fragment(clicks, policy=policy)(lambda clicks: clicks, name="pages")
    further = query.fragment(pages)(lambda pages: pages, name="further")
    both = query.fragment(pages, orders)(lambda pages, orders: pages, name="both")
    assert query.gives_up(pages.name) is query.gives_up(further.name) is gives_up
    assert not query.gives_up(both.name)
