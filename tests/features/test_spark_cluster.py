"""A node whose Spark master is a real cluster: executors read and write epochs through its door."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import answers
import kinds
import pyspark
import pytest

import unbroken as ub

SPARK = Path(pyspark.__file__).parent
COUNT = 8


@pytest.fixture
def spark_master(tmp_path: Path) -> Iterator[str]:
    """A standalone master and a worker, from the pyspark package."""
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
    }
    log = tmp_path / "spark.log"
    started = []

    def start(*arguments: str) -> None:
        with open(log, "ab") as output:
            command = [str(SPARK / "bin" / "spark-class"), *arguments]
            started.append(
                subprocess.Popen(
                    command, env=environment, stdout=output, stderr=output, start_new_session=True
                )
            )

    def await_line(pattern: str) -> str:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = re.search(pattern, log.read_text()) if log.exists() else None
            if found:
                return found.group(1)
            time.sleep(0.1)
        raise AssertionError(f"no {pattern!r} in:\n{log.read_text()}")

    try:
        start("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0",
              "--webui-port", "0")  # fmt: skip
        url = await_line(r"Starting Spark master at (spark://\S+)")
        start("org.apache.spark.deploy.worker.Worker", url, "--cores", "2", "--memory", "2g",
              "--webui-port", "0")  # fmt: skip
        await_line(r"Successfully registered with (master)")
        yield url
    finally:
        for process in reversed(started):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.timeout(400)
def test_a_query_runs_on_a_standalone_spark_cluster(
    spark_master: str, undisturbed: dict[str, list[answers.Answer]]
):
    """Goal: `master="spark://…"` works as well as `local[2]`, epoch for epoch.

    Method: stateless, windowed and joined fragments; the epochs that `local[2]` gave, by digest
    and rows.
    """
    query = ub.Query("clustered", epoch="manual")
    left = query.source("left", "ts TIMESTAMP, k INT, v DOUBLE", event_time="ts")
    right = query.source("right", "ts TIMESTAMP, k INT, w STRING", event_time="ts")
    for function, inputs, mode in (
        (kinds.stateless, (left,), "append"),
        (kinds.windowed_update, (left,), "update"),
        (kinds.union_windows, (left, right), "append"),
    ):
        decorate = query.fragment(*inputs, output_mode=mode)
        query.sink(decorate(function.function, name=function.name))
    fed = kinds.epochs(COUNT)
    settings = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "1g"}
    clustered = ub.run(query, fed, master=spark_master, settings=settings)
    for name, epochs in clustered.items():
        answers.check(name, epochs, undisturbed[name][:COUNT])
        assert sum(e.rows for e in epochs) > 0, name
