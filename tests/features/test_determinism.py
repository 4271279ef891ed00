"""Two runs of the same epochs, one of them killed at the worst moments, write the same epochs
(scenarios 5, 20, 21, 22, 23, 27)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import answers
import crashing_node
import kinds
import pytest
from kinds_rig import KindsRig

import unbroken as ub
from unbroken.checkpoints.layers import Checkpoint

COUNT = 8
DIES = 3
#: `joined` has two watermarks to be put back.  Every crash costs a start of all queries; what
#: comes of a death after the commit is part of the suite that both engines pass.
CRASHES = [("sealed", "joined", DIES)]

#: Few, because all are started anew with their node; every kind dies in a session that stays.
query = ub.Query("crashing", epoch="manual")
left = query.source("left", "ts TIMESTAMP, k INT, v DOUBLE", event_time="ts")
right = query.source("right", "ts TIMESTAMP, k INT, w STRING", event_time="ts")
joined = query.fragment(left, right)(kinds.joined.function, name="joined")
stateless = query.fragment(left)(kinds.stateless.function, name="stateless")
chained = query.fragment(stateless, output_mode="update")(kinds.chained.function, name="chained")
for fragment in (joined, stateless, chained):
    query.sink(fragment)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KindsRig]:
    """One session for all kinds."""
    made = KindsRig(tmp_path_factory.mktemp("kinds"))
    yield made
    made.close()


@pytest.mark.parametrize("kind", kinds.query.fragments)
def test_every_kind_that_dies_between_output_and_commit_goes_on_with_the_same_epochs(
    rig: KindsRig, undisturbed: dict[str, list[answers.Answer]], kind: str
):
    """Goal: determinism and restart for every kind of state, update and append, one and two inputs.
    p needs seal *and* commit; every start is a fork; watermarks survive; one micro-batch per epoch.

    Method: a replica of each kind dies when it has sealed an epoch, and its successor goes on from
    what is committed; compare every epoch with an undisturbed run, by digest and rows (what it gave
    is kept in a file, which this run would not match if the code had changed since).
    """
    got = rig.epochs(kind, COUNT, DIES)
    assert [e.number for e in got] == list(range(COUNT))
    answers.check(kind, got, undisturbed[kind][:COUNT])
    # The data must have made it speak, or equality would mean little.
    assert sum(e.rows for e in got)


class CrashingCluster(ub.LocalCluster):
    """A local cluster whose nodes die at the crash points."""

    _node_module = "crashing_node"


@pytest.mark.timeout(900)
# All kinds are slow: the test above has each of them restart, this one with few of them processes
# that die.
@pytest.mark.parametrize(
    "query", [query, pytest.param(kinds.query, marks=pytest.mark.slow)], ids=["few", "all"]
)
def test_a_run_that_dies_between_output_and_commit_writes_the_epochs_of_an_undisturbed_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: dict[str, list[answers.Answer]],
    query: ub.Query,
):
    """Goal: the same with real processes.  p needs seal *and* commit; every start is a fork;
    watermarks survive; orphans don't matter; one micro-batch per epoch, both inputs in step.

    Method: the node's JVM is killed after sealing, with all fragments at work; the cluster starts
    it again; compare every epoch of every stream with an undisturbed run, by digest and rows.  The
    two inputs of an epoch are closed one after the other, so that Spark polls in between.
    """
    monkeypatch.setenv("UNBROKEN_TEST_CRASHES", json.dumps(CRASHES))
    monkeypatch.setenv("UNBROKEN_TEST_MARKS", str(tmp_path))
    assert {point for point, _, _ in CRASHES} <= set(crashing_node.POINTS)
    fed = kinds.epochs(kinds.COUNT)
    with CrashingCluster(query, folder=tmp_path / "cluster") as cluster:
        streams = {name: cluster.follow(name) for name in query.sinks}
        producers = {name: cluster.producer(name) for name in fed}
        got: dict[str, list[ub.Epoch]] = {name: [] for name in streams}
        for n in range(COUNT):
            for name, producer in producers.items():
                producer.send(fed[name][n])
                producer.close_epoch()
            if n % 3 == 0:  # Sometimes Spark waits for input, sometimes input for Spark.
                for name, stream in streams.items():
                    got[name] += islice(stream, n + 1 - len(got[name]))
        for name, stream in streams.items():
            got[name] += islice(stream, COUNT - len(got[name]))
        status = cluster.status()["nodes"]["node-1"]["fragments"]
    died = sorted(path.name for path in tmp_path.iterdir() if path.is_file())
    assert died == sorted(f"{point}-{name}-{epoch}" for point, name, epoch in CRASHES)
    for name, epochs in got.items():
        assert [e.number for e in epochs] == list(range(COUNT)), name
        answers.check(name, epochs, undisturbed[name][:COUNT])
        folder = tmp_path / "cluster" / "node-1" / "fragments" / name
        terms = [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
        commit = Checkpoint(folder / str(max(terms))).commits()[-1]
        assert commit.batch == commit.epoch, "one micro-batch per epoch, also after forks"
        # A busy machine may have made it start more often than it was killed.
        assert status[name]["term"] == max(terms) >= len(CRASHES) + 1
    # The data must have made every fragment speak, or equality would mean little.
    quiet = [name for name, epochs in got.items() if not sum(e.rows for e in epochs)]
    assert not quiet
