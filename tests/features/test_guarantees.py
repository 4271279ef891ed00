"""What `explain` states is what is seen, cell by cell of the table class × policy, on real Spark.

The cells that are not here are in `test_recovery`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import cells
import pytest
from waiting import until

import unbroken as ub
from unbroken.policies import Active, Gap, Passive
from unbroken.policies.guarantee import Recovery, guarantee
from unbroken.policies.traits import OperatorClass

WHOLE = {name: policy.survives(policy.copies) for name, (_, policy) in cells.CELLS.items()}


def protection(cluster: ub.LocalCluster) -> dict[str, dict[str, Any]]:
    told: dict[str, dict[str, Any]] = cluster.status()["fragments"]
    return told


def wait_whole(cluster: ub.LocalCluster) -> None:
    def whole() -> bool:
        return {n: told["survives"] for n, told in protection(cluster).items()} == WHOLE

    until(whole, "whole again by itself")


def on(cluster: ub.LocalCluster, node: str) -> set[str]:
    """The fragments that lose something when `node` dies: their writer, or one of their copies."""
    return {
        name
        for name, told in protection(cluster).items()
        if node in ([told["writer"]] if told["writer"] else told["nodes"])
    }


def seen(each: OperatorClass, got: Sequence[ub.Epoch], fed: Sequence[Any]) -> Recovery:
    """The recovery that a consumer has seen, from nothing but its rows."""
    assert [epoch.number for epoch in got] == list(range(len(fed)))
    holes = [epoch.number for epoch in got if epoch.kind == "gap"]
    for number in holes:
        assert got[number].rows == 0
        assert got[number].header.lost == len(fed[number]), "exactly what was lost is told"
    starts = [0, *(number + 1 for number in holes)]
    for start, end in zip(starts, [*holes, len(fed)], strict=True):
        expected = cells.answer(each, fed[start:end])
        for epoch, rows in zip(got[start:end], expected, strict=True):
            if compared(epoch, each) != rows:
                return Recovery.DIVERGENT
    return Recovery.GAP if holes else Recovery.PRECISE


def compared(epoch: ub.Epoch, each: OperatorClass) -> list[tuple[Any, ...]]:
    columns = ["k", "v"] if each is OperatorClass.ARBITRARY else epoch.table.column_names
    return sorted(tuple(row[c] for c in columns) for row in epoch.table.to_pylist())


@pytest.mark.timeout(600)
def test_every_cell_keeps_its_promise_and_no_more_than_it_says_is_lost(tmp_path: Path):
    """Goal: what consumers see after a failure is what the table states, in each of its cells.

    Method: a fragment per cell on two nodes.  Both are killed -9 one after the other while epochs
    come, so that every fragment loses a copy or its writer at least once.  What came out is
    compared with a model; a hole splits it, and behind a hole everything begins from nothing.
    """
    fed = cells.epochs(16)
    hit: set[str] = set()
    with ub.LocalCluster(cells.query, nodes=2, folder=tmp_path) as cluster:
        producer = cluster.producer("rows")
        streams = {name: cluster.follow(name) for name in cells.CELLS}
        got: dict[str, list[ub.Epoch]] = {name: [] for name in streams}
        sent = 0

        def feed(count: int) -> None:
            nonlocal sent
            for rows in fed[sent : sent + count]:
                producer.send(rows)
                producer.close_epoch()
            sent += count

        def take() -> None:
            for name, stream in streams.items():
                got[name] += islice(stream, sent - len(got[name]))

        feed(4)
        take()
        for node in cluster.nodes:
            wait_whole(cluster)
            hit |= on(cluster, node)
            feed(1)
            cluster.kill(node)
            feed(3)
            take()
            cluster.restart(node, wait=False)
        feed(4)
        take()
        again = {
            name: list(islice(cluster.follow(name), sent))
            for name, (_, policy) in cells.CELLS.items()
            if isinstance(policy, Active | Passive)
        }
    assert sent == len(fed)
    assert hit == set(cells.CELLS), "each cell has lost something"
    stated = {name: guarantee(policy, each) for name, (each, policy) in cells.CELLS.items()}
    observed = {name: seen(each, got[name], fed) for name, (each, _) in cells.CELLS.items()}
    assert observed == {name: told.merging for name, told in stated.items() if told}
    # Who comes late gets the very same rows, also those that another run would draw differently.
    for name, epochs in again.items():
        assert [e.digest for e in epochs] == [e.digest for e in got[name]], name
    for name, (_, policy) in cells.CELLS.items():
        assert sum(e.rows for e in got[name]) > 10, name
        assert isinstance(policy, Gap) or {e.kind for e in got[name]} == {"stable"}
