"""Two runs of the same epochs, one of them killed at the worst moments, write the same epochs
(scenarios 5, 20, 21, 22, 23, 27)."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import answers
import crashing_node
import kinds
import pytest

import unbroken as ub
from unbroken.checkpoints.layers import Checkpoint

COUNT = 8
#: `joined` has two watermarks to be put back.  Every crash costs a start of a dozen queries; what
#: comes of a death after the commit is part of the suite that both engines pass.
CRASHES = [("sealed", "joined", 3)]


class CrashingCluster(ub.LocalCluster):
    """A local cluster whose nodes die at the crash points."""

    _node_module = "crashing_node"


@pytest.mark.timeout(900)
def test_a_run_that_dies_between_output_and_commit_writes_the_epochs_of_an_undisturbed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: dict[str, list[answers.Answer]]
):
    """Goal: determinism and restart for every kind of state, update and append, one and two inputs.
    p needs seal *and* commit; every start is a fork; watermarks survive; orphans don't matter; one
    micro-batch per epoch, both inputs in step.

    Method: the node's JVM is killed after sealing, with all fragments at work; the cluster starts
    it again; compare every epoch of every stream with an undisturbed run, by digest and rows (what
    it gave is kept in a file, which this run would not match if the code had changed since).  The
    two inputs of an epoch are closed one after the other, so that Spark polls in between.
    """
    monkeypatch.setenv("UNBROKEN_TEST_CRASHES", json.dumps(CRASHES))
    monkeypatch.setenv("UNBROKEN_TEST_MARKS", str(tmp_path))
    assert {point for point, _, _ in CRASHES} <= set(crashing_node.POINTS)
    fed = kinds.epochs(kinds.COUNT)
    with CrashingCluster(kinds.query, folder=tmp_path / "cluster") as cluster:
        streams = {name: cluster.follow(name) for name in kinds.query.sinks}
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
