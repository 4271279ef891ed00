"""What `explain` states is what is seen, cell by cell of the table class × policy, on real Spark.

The cells that are not here are in `test_recovery`.  One cluster lives for all tests of this file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import answers
import cells
import kinds
import pytest
from waiting import until

import unbroken as ub
from unbroken.policies import Active, Gap, Passive
from unbroken.policies.guarantee import Recovery, guarantee
from unbroken.policies.traits import OperatorClass
from unbroken.streams.flight import Peer

COUNT = kinds.COUNT
WHOLE = {
    name: fragment.policy.survives(fragment.policy.copies)
    for name, fragment in cells.query.fragments.items()
}
READ_AGAIN = [name for name, (_, p) in cells.CELLS.items() if isinstance(p, Active | Passive)]


class Lived:
    """A life of two nodes, both killed -9 one after the other while epochs come."""

    def __init__(self, folder: Path) -> None:
        self.fed = {"rows": cells.epochs(COUNT), "left": kinds.epochs(COUNT)["left"]}
        self.got: dict[str, list[ub.Epoch]] = {name: [] for name in cells.query.sinks}
        #: The fragments that lost something.
        self.hit: set[str] = set()
        self.sent = 0
        with ub.LocalCluster(cells.query, nodes=2, folder=folder) as self.cluster:
            self._producers = {name: self.cluster.producer(name) for name in self.fed}
            self._streams = {name: self.cluster.follow(name) for name in self.got}
            self._live()
            self.again = {n: list(islice(self.cluster.follow(n), COUNT)) for n in READ_AGAIN}
        self.log = "".join(path.read_text() for path in folder.glob("*.log"))

    def _live(self) -> None:
        """The one that runs the sessions is the last to die, when there is a seed for them."""
        self._feed(4)
        self._take()
        self._wait_whole()
        last = self._node_of_sessions()
        (other,) = set(self.cluster.nodes) - {last}
        self._kill(other, before=1, after=3)
        self.cluster.restart(other, wait=False)
        self._wait_whole()
        self._feed(1)
        self._take()
        until(lambda: self._first_needed() > 0, "a reading of the state lets the source forget")
        self.before_sessions_died = self.sent
        assert self._node_of_sessions() == last
        self._kill(last, before=3, after=COUNT - self.sent - 3)

    def _feed(self, count: int) -> None:
        for n in range(self.sent, self.sent + count):
            for name, producer in self._producers.items():
                producer.send(self.fed[name][n])
                producer.close_epoch()
        self.sent += count

    def _take(self) -> None:
        for name, stream in self._streams.items():
            self.got[name] += islice(stream, self.sent - len(self.got[name]))

    def _kill(self, node: str, *, before: int, after: int) -> None:
        """In the middle of epochs, with everything whole."""
        self.hit |= self._on(node)
        self._feed(before)
        self.cluster.kill(node)
        self._feed(after)
        self._take()

    def _protection(self) -> dict[str, dict[str, Any]]:
        told: dict[str, dict[str, Any]] = self.cluster.status()["fragments"]
        return told

    def _wait_whole(self) -> None:
        def whole() -> bool:
            return {n: told["survives"] for n, told in self._protection().items()} == WHOLE

        until(whole, "whole again by itself")

    def _on(self, node: str) -> set[str]:
        """Who loses something when `node` dies: the writer there, or one of the copies."""
        return {
            name
            for name, told in self._protection().items()
            if node in ([told["writer"]] if told["writer"] else told["nodes"])
        }

    def _node_of_sessions(self) -> str:
        (name,) = self._protection()["sessions"]["nodes"]
        return str(name)

    def _first_needed(self) -> int:
        """Where a successor of the sessions would begin, as the source knows."""
        consumer = f"sessions@{self._node_of_sessions()}"
        with Peer(self.cluster.address) as peer:
            told = peer.act({"do": "seed", "stream": "left", "consumer": consumer})
        return int(told["need"] or 0)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    return Lived(tmp_path_factory.mktemp("cells"))


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
def test_every_cell_keeps_its_promise_and_no_more_than_it_says_is_lost(lived: Lived):
    """Goal: what consumers see after a failure is what the table states, in each of its cells.

    Method: a fragment per cell on two nodes.  Both are killed -9 one after the other while epochs
    come, so that every fragment loses a copy or its writer at least once.  What came out is
    compared with a model; a hole splits it, and behind a hole everything begins from nothing.
    """
    fed, got = lived.fed["rows"], lived.got
    assert lived.sent == len(fed)
    assert lived.hit >= set(cells.CELLS), "each cell has lost something"
    stated = {name: guarantee(policy, each) for name, (each, policy) in cells.CELLS.items()}
    observed = {name: seen(each, got[name], fed) for name, (each, _) in cells.CELLS.items()}
    assert observed == {name: told.merging for name, told in stated.items() if told}
    # Who comes late gets the very same rows, also those that another run would draw differently.
    for name, epochs in lived.again.items():
        assert [e.digest for e in epochs] == [e.digest for e in got[name]], name
    for name, (_, policy) in cells.CELLS.items():
        assert sum(e.rows for e in got[name]) > 10, name
        assert isinstance(policy, Gap) or {e.kind for e in got[name]} == {"stable"}


@pytest.mark.timeout(600)
def test_open_sessions_are_computed_again_from_the_first_row_of_the_oldest(
    lived: Lived, undisturbed: dict[str, list[answers.Answer]]
):
    """Goal: upstream backup of session windows is precise, and keeps no more than it must.

    Method: feed rows, some late, until sessions of the first epochs are closed and a source knows a
    seed that begins after them; feed on and kill the node, with sessions open that began before
    and end after it; compare with an undisturbed run, epoch by epoch and row by row.
    """
    got, died = lived.got["passed_on"], lived.before_sessions_died
    (first,) = [int(n) for n in re.findall(r"sessions is rebuilt from epoch (\d+) on", lived.log)]
    assert 0 < first < died, "sessions were open that had begun before the node was killed"
    assert [epoch.number for epoch in got] == list(range(COUNT))
    answers.check("sessions", got, undisturbed["sessions"])
    assert sum(epoch.rows for epoch in got[died + 3 :]) > 10, "there is something to compare"
