"""Two runs of the same epochs, one of them killed in the middle, write the same epochs."""

from __future__ import annotations

from itertools import islice

import kinds

import unbroken as ub

COUNT = 7
KILL_AFTER = 3


def feed(cluster: ub.LocalCluster, fed: dict, numbers: range) -> None:
    producers = {name: cluster.producer(name) for name in fed}
    for n in numbers:
        for name, producer in producers.items():
            producer.send(fed[name][n])
            producer.close_epoch()


def test_a_killed_and_restarted_run_writes_the_epochs_of_an_undisturbed_one():
    """Goal: determinism and restart for every kind of state, update and append, one and two inputs.

    Method: run twice over the same epochs; kill -9 the second run's node in the middle, with work
    under way, and start it again; compare every epoch of every stream by digest and rows.
    """
    fed = kinds.epochs(COUNT)
    undisturbed = ub.run(kinds.query, fed)
    with ub.LocalCluster(kinds.query) as cluster:
        streams = {name: cluster.follow(name) for name in kinds.query.sinks}
        feed(cluster, fed, range(KILL_AFTER + 1))
        slowest = {name: [next(stream)] for name, stream in streams.items()}
        for name, stream in streams.items():
            slowest[name] += islice(stream, KILL_AFTER - 2)
        cluster.kill("node-1")
        feed(cluster, fed, range(KILL_AFTER + 1, COUNT))
        cluster.restart("node-1")
        for name, stream in streams.items():
            slowest[name] += islice(stream, COUNT - len(slowest[name]))
        terms = {n: f["term"] for n, f in cluster.status()["nodes"]["node-1"]["fragments"].items()}
    assert set(terms.values()) == {2}
    for name, epochs in slowest.items():
        assert [e.number for e in epochs] == list(range(COUNT)), name
        for mine, theirs in zip(epochs, undisturbed[name], strict=True):
            where = f"{name} epoch {mine.number}"
            assert mine.table.to_pylist() == theirs.table.to_pylist(), where
            assert mine.digest == theirs.digest, where
    # The data must have made every fragment speak, or equality would mean little.
    quiet = [name for name, epochs in undisturbed.items() if not sum(e.rows for e in epochs)]
    assert not quiet
