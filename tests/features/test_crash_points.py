"""A node that dies at the worst moments loses and repeats nothing (scenarios 5, 20, 21, 23, 27)."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import crashing_node
import kinds
import pytest

import unbroken as ub
from unbroken.checkpoints.layers import Checkpoint

COUNT = 11
#: One crash per point, each in another epoch; `joined` has two watermarks to be put back.
CRASHES = [(point, "joined", 3 * i + 2) for i, point in enumerate(("sealed", "committed", "noted"))]


class CrashingCluster(ub.LocalCluster):
    """A local cluster whose nodes die at the crash points."""

    _node_module = "crashing_node"


def two_watermarks() -> ub.Query:
    """Fragments that need every operator's watermark after a restart."""
    query = ub.Query("crashes", epoch="manual")
    left = query.source("left", "ts TIMESTAMP, k INT, v DOUBLE", event_time="ts")
    right = query.source("right", "ts TIMESTAMP, k INT, w STRING", event_time="ts")
    for kind in (kinds.joined, kinds.union_windows):
        query.sink(query.fragment(left, right)(kind.function, name=kind.name))
    return query


@pytest.mark.timeout(600)
def test_a_node_that_dies_between_output_and_commit_goes_on_without_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Goal: p needs seal *and* commit; every start is a fork; watermarks survive; orphans don't
    matter; one micro-batch per epoch, both inputs in step.

    Method: the node's Python kills itself after sealing, after Spark's commit, and after noting the
    watermarks; the cluster starts it again each time; compare with an undisturbed run.  The two
    inputs of an epoch are closed one after the other, so that Spark polls in between.
    """
    monkeypatch.setenv("UNBROKEN_TEST_CRASHES", json.dumps(CRASHES))
    monkeypatch.setenv("UNBROKEN_TEST_MARKS", str(tmp_path))
    assert {point for point, _, _ in CRASHES} <= set(crashing_node.POINTS)
    fed = kinds.epochs(COUNT, seed=3)
    undisturbed = ub.run(two_watermarks(), fed)
    with CrashingCluster(two_watermarks(), folder=tmp_path / "cluster") as cluster:
        streams = {name: cluster.follow(name) for name in ("joined", "union_windows")}
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
        assert [e.number for e in epochs] == list(range(COUNT))
        for mine, theirs in zip(epochs, undisturbed[name], strict=True):
            assert mine.table.to_pylist() == theirs.table.to_pylist(), f"{name} {mine.number}"
            assert mine.digest == theirs.digest, f"{name} {mine.number}"
        folder = tmp_path / "cluster" / "node-1" / "fragments" / name
        terms = [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
        commit = Checkpoint(folder / str(max(terms))).commits()[-1]
        assert commit.batch == commit.epoch, "one micro-batch per epoch, also after forks"
        assert status[name]["term"] == max(terms) == len(CRASHES) + 1
