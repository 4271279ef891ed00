"""`unbroken chaos`, as a user runs it: a short while under fire, on real Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

QUERY = """
import unbroken as ub
from pyspark.sql import functions as F

query = ub.Query("shop", epoch="500ms")
sales = query.source("sales", "ts TIMESTAMP, item STRING, price INT", event_time="ts")


@query.fragment(sales, output_mode="update", policy=ub.Active(replicas=2))
def turnover(sales):
    return sales.where("price > 2").groupBy("item").agg(F.sum("price").alias("total"))


query.sink(turnover)
"""
#: Its first hit is a kill of a node, early, and the node is away until the fire is over.
SEED = 14


@pytest.mark.timeout(400)
def test_a_cluster_under_fire_gives_the_rows_of_an_undisturbed_run(tmp_path: Path):
    (tmp_path / "shop.py").write_text(QUERY)
    command = [sys.executable, "-m", "unbroken.cli.main", "chaos", "shop.py", "--for", "5s"]
    options = ["--nodes", "2", "--rate", "200", "--seed", str(SEED), "--bound", "10m", "--json"]
    ended = subprocess.run(
        [*command, *options],
        cwd=tmp_path, capture_output=True, text=True, timeout=380, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["differences"] == {"turnover": {"lost": 0, "repeated": 0, "wrong": 0}}
    assert told["hits"][0]["kind"] == "kill"
    assert told["hits"][0]["process"].startswith("node-")
    assert told["epochs"] >= 5
    assert told["missing"] == 0
    # A bound that no machine misses: how late epochs are is for benchmarks to say.
    assert told["within"] == told["epochs"]
    assert told["rows"] > 1000
