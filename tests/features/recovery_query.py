"""A query for `test_recovery`, in a file of its own: `unbroken node` loads it by its path."""

from __future__ import annotations

import kinds
from pyspark.sql import functions as F

import unbroken as ub
from unbroken.policies import Policy

query = ub.Query("recovery", epoch="manual")
left = query.source("left", "ts TIMESTAMP, k INT, v DOUBLE", event_time="ts")
right = query.source("right", "ts TIMESTAMP, k INT, w STRING", event_time="ts")


def like(
    kind: ub.Fragment, *inputs: ub.Source | ub.Fragment, policy: Policy, state: str = "rocksdb"
) -> ub.Fragment:
    """The same fragment as in `kinds`, protected; where its state is must make no difference."""
    fragment = query.fragment(*inputs, output_mode=kind.output_mode, policy=policy, state=state)
    return fragment(kind.function, name=kind.name)


# Chains and a join of fragments with different policies, and one that may lose epochs.
stateless = like(kinds.stateless, left, policy=ub.Active(replicas=2))
query.sink(like(kinds.chained, stateless, policy=ub.Passive(interval="1s")))
query.sink(like(kinds.joined, left, right, policy=ub.Passive(interval="1s"), state="memory"))
windows = like(kinds.union_windows, left, right, policy=ub.Upstream())
query.sink(like(kinds.totals, windows, policy=ub.Active(replicas=2)))
query.sink(like(kinds.distinct, right, policy=ub.Gap()))


@query.fragment(left, policy=ub.Passive(interval="1s"))
def noisy(left):
    """Other rows every time it is computed: nobody may see two versions of an epoch."""
    return left.select("k", F.rand().alias("r"), F.expr("uuid()").alias("id"))


@query.fragment(noisy, policy=ub.Active(replicas=2))
def heard(noisy):
    """What two replicas got of it: they would diverge if they had got different versions."""
    return noisy.select("k", "r", "id")


query.sink(noisy)
query.sink(heard)
