"""A cluster under its epoch clock, seen from other processes while parts of it die and freeze."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import unbroken as ub
from unbroken.cli import measured
from unbroken.engine.source import PLANNER_ROWS_MAX

WAIT_S = 90.0

query = ub.Query("live", epoch="500ms")
numbers = query.source("numbers", "n BIGINT")


@query.fragment(numbers)
def doubled(numbers):
    return numbers.select("n", (F.col("n") * 2).alias("twice"))


@query.fragment(doubled)
def checked(doubled):
    return doubled.where("twice = 2 * n")


query.sink(checked)


def unbroken(*words: str) -> str:
    """Runs a command as a user would, in a process of its own."""
    command = [str(Path(sys.executable).parent / "unbroken"), *words]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def take_until(epochs: Iterator[ub.Epoch], wanted: set[int], got: list[int]) -> None:
    """Follows until all wanted rows are there; every epoch must be the next one."""
    deadline = time.monotonic() + WAIT_S
    while not wanted <= set(got):
        assert time.monotonic() < deadline, f"missing: {sorted(wanted - set(got))[:10]}"
        got += next(epochs).table["n"].to_pylist()


@pytest.mark.timeout(400)
def test_rows_arrive_once_although_the_keeper_is_killed_and_a_node_is_frozen(tmp_path: Path):
    """Goal: what `send` accepted arrives exactly once, whoever is killed or paused meanwhile, and
    other processes see the same cluster.

    Method: two nodes in a chain; kill -9 the keeper between sends, then a process of Spark's;
    pause and resume a node, send from another process; every number must come out once.
    """
    with ub.LocalCluster(query, nodes=2) as cluster:
        elsewhere = ub.connect(cluster.address)
        epochs = elsewhere.follow("checked")
        producer = elsewhere.producer("numbers")
        got: list[int] = []
        producer.send([{"n": n} for n in range(100)])
        take_until(epochs, set(range(100)), got)

        os.kill(cluster.pid("keeper"), signal.SIGKILL)
        producer.send([{"n": n} for n in range(100, 200)])  # Says it again until one is back.
        take_until(epochs, set(range(200)), got)

        # A Python process of Spark's is killed, as the kernel does when memory is short.
        killed = 0
        for process in psutil.Process(cluster.pid("node-2")).children(recursive=True):
            with contextlib.suppress(psutil.Error):  # Small ones of Spark's come and go.
                if "python_streaming_source_runner" in " ".join(process.cmdline()):
                    process.kill()
                    killed += 1
        assert killed
        producer.send([{"n": n} for n in range(200, 250)])
        take_until(epochs, set(range(250)), got)

        cluster.pause("node-1")
        producer.send([{"n": n} for n in range(250, 300)])
        cluster.resume("node-1")
        (tmp_path / "more.csv").write_text("n\n" + "\n".join(map(str, range(300, 400))))
        unbroken("send", "numbers", str(tmp_path / "more.csv"), "--at", cluster.address)
        take_until(epochs, set(range(400)), got)
        # So many that Spark's executors fetch them, where small epochs come with their offset.
        end = 400 + PLANNER_ROWS_MAX + 1
        receipt = producer.send(pa.table({"n": range(400, end)}))
        assert receipt.rows > PLANNER_ROWS_MAX, "all of them are in one epoch"
        take_until(epochs, set(range(end)), got)
        assert sorted(got) == list(range(end))

        status = json.loads(unbroken("status", "--json", "--at", cluster.address))
        assert set(status["nodes"]) == {"node-1", "node-2"}
        assert {n["state"] for n in status["nodes"].values()} == {"running"}
        numbers = measured.of(status, "doubled")
        assert numbers.work_s is not None
        assert 0 < numbers.work_s < WAIT_S
        assert numbers.start_s is not None
        assert measured.bytes_kept(status, ["numbers"], epochs=10) is not None
        told = unbroken("follow", "checked", "--json", "--count", "3", "--at", cluster.address)
        assert [json.loads(line)["epoch"] for line in told.splitlines()] == [0, 1, 2]
