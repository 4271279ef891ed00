"""Session windows under upstream backup: the oldest open session says where a successor begins."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import answers
import kinds
import pytest
from waiting import until

import unbroken as ub
from unbroken.streams.flight import Peer

query = ub.Query("sessions", epoch="manual")
left = query.source("left", "ts TIMESTAMP, k INT, v DOUBLE", event_time="ts")
sessions = query.fragment(left, policy=ub.Upstream())(kinds.sessions.function, name="sessions")


@query.fragment(sessions, policy=ub.Active(replicas=2))
def passed_on(sessions):
    """What its consumers see.  A sink of its own would owe its newest epochs to everybody."""
    return sessions.select("*")


query.sink(passed_on)


@pytest.mark.timeout(600)
def test_open_sessions_are_computed_again_from_the_first_row_of_the_oldest(
    tmp_path: Path, undisturbed: dict[str, list[answers.Answer]]
):
    """Goal: upstream backup of session windows is precise, and keeps no more than it must.

    Method: feed rows, some late, until sessions of the first epochs are closed and a source knows a
    seed that begins after them; feed on and kill the node, with sessions open that began before
    and end after it; compare with an undisturbed run, epoch by epoch and row by row.
    """
    fed = kinds.epochs(kinds.COUNT)["left"]
    with ub.LocalCluster(query, nodes=2, folder=tmp_path / "cluster") as cluster:
        producer = cluster.producer("left")
        stream = cluster.follow("passed_on")
        got: list[ub.Epoch] = []

        def feed(first: int, after: int) -> None:
            for rows in fed[first:after]:
                producer.send(rows)
                producer.close_epoch()

        def node() -> str:
            names: list[str] = cluster.status()["fragments"]["sessions"]["nodes"]
            return names[0] if names else ""

        def first_needed() -> int:
            with Peer(cluster.address) as peer:
                asked = {"do": "seed", "stream": "left", "consumer": f"sessions@{node()}"}
                return int(peer.act(asked)["need"] or 0)

        feed(0, 9)
        got += islice(stream, 9)
        until(node, "somebody runs the sessions")
        until(lambda: first_needed() > 0, "a reading of the state lets the source forget")
        feed(9, 12)
        cluster.kill(node())
        feed(12, kinds.COUNT)
        got += islice(stream, kinds.COUNT - 9)
        log = "".join(path.read_text() for path in cluster.folder.glob("*.log"))

    (first,) = [int(n) for n in re.findall(r"sessions is rebuilt from epoch (\d+) on", log)]
    assert 0 < first < 9, "sessions were open that had begun before the node was killed"
    assert [epoch.number for epoch in got] == list(range(kinds.COUNT))
    answers.check("sessions", got, undisturbed["sessions"])
    assert sum(epoch.rows for epoch in got[12:]) > 10, "there is something to compare"
