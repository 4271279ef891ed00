"""A query for `test_active`, in a file of its own: `unbroken node` loads it by its path."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

import unbroken as ub


def make(policy: Any = None) -> ub.Query:
    """Unbounded counts, and what a second fragment makes of them."""
    query = ub.Query("active", epoch="manual")
    numbers = query.source("numbers", "k BIGINT, v DOUBLE")

    @query.fragment(numbers, output_mode="update", policy=policy)
    def sums(numbers):
        return numbers.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("v"))

    @query.fragment(sums, policy=policy)
    def large(sums):
        return sums.where("n > 3").select("k", "n", (F.col("v") / F.col("n")).alias("mean"))

    query.sink(large)
    return query


query = make(ub.Active(replicas=2))
