"""`unbroken run` with real processes and real Spark: killed half way, the answer is the same.

Goal: whatever happens to the command, the same command again ends with every row counted once and
every epoch written once, on skewed real data.
Method: 137,237 network events and 45,305 lines of text; the command and its process group get
kill -9 when a sixth of the epochs is written; the second run's results are compared with the exact
answers, row by row.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

WAIT_S = 280.0
ROWS = 137_237
ROWS_PER_EPOCH = 1500
EPOCHS = 92

QUERY = '''
from pyspark.sql import functions as F
import unbroken as ub

query = ub.Query("net", epoch="1s")
events = query.source(
    "events", "ts TIMESTAMP, orig_h STRING, resp_h STRING, resp_p INT, service STRING", "ts"
)


@query.fragment(events, output_mode="update")
def activity(events):
    """What each source did in each ten seconds."""
    return (
        events.withWatermark("ts", "10 seconds")
        .groupBy("orig_h", F.window("ts", "10 seconds"))
        .agg(
            F.count("*").alias("attempts"),
            F.size(F.collect_set("service")).alias("services"),
            F.size(F.collect_set("resp_p")).alias("ports"),
            F.size(F.collect_set("resp_h")).alias("hosts"),
        )
        .withColumn("start", F.col("window.start"))
        .drop("window")
    )


lines = query.source("lines", "number BIGINT, line STRING")


@query.fragment(lines)
def words(lines):
    found = F.expr("regexp_extract_all(lower(line), '([a-z]+)', 1)")
    return lines.select(F.explode(found).alias("word"))


@query.fragment(words, output_mode="update")
def counts(words):
    return words.groupBy("word").count()


query.sink(activity)
query.sink(counts)
'''

Answer = dict[tuple[int, str], tuple[int, int, int, int]]


def expected(path: Path) -> Answer:
    with open(path) as file:
        return {
            (int(row["win_start"]), row["orig_h"]): (
                int(row["attempts"]), int(row["services"]), int(row["ports"]), int(row["hosts"]),
            )
            for row in csv.DictReader(file)
        }  # fmt: skip


def answer(folder: Path) -> Answer:
    """The newest update of each window, from all epochs in order."""
    found: Answer = {}
    for path in sorted(folder.glob("epoch-*.parquet")):
        for row in pq.read_table(path).to_pylist():
            start: datetime = row["start"]
            key = int(start.timestamp()), row["orig_h"]
            found[key] = row["attempts"], row["services"], row["ports"], row["hosts"]
    return found


def word_counts(folder: Path) -> dict[str, int]:
    """The newest count of each word."""
    found: dict[str, int] = {}
    for path in sorted(folder.glob("epoch-*.parquet")):
        table = pq.read_table(path)
        found.update(zip(table["word"].to_pylist(), table["count"].to_pylist(), strict=True))
    return found


def numbers(folder: Path) -> list[int]:
    return sorted(int(path.name[6:18]) for path in folder.glob("epoch-*.parquet"))


class Command:
    """The command in a process group of its own, its output in a file."""

    def __init__(self, folder: Path, trace: Path, text: Path) -> None:
        self.output = folder / f"output-{time.monotonic_ns()}.txt"
        words = [
            "run", "net.py", "--source", f"events={trace}", "--source", f"lines={text}",
            "--sink", "activity=out", "--sink", "counts=counts",
            "--rows-per-epoch", str(ROWS_PER_EPOCH), "--port", "0", "--master", "local[2]",
            "--json",
        ]  # fmt: skip
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "unbroken.cli.main", *words],
                cwd=folder, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    @property
    def text(self) -> str:
        return self.output.read_text()

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


def wait_for(condition: object, command: Command, what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    assert callable(condition)
    while not condition():
        assert command.process.poll() is None, f"ended before {what}:\n{command.text}"
        assert time.monotonic() < deadline, f"{what} took too long:\n{command.text}"
        time.sleep(0.05)


def working_in(folder: Path) -> list[str]:
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or [])
        if str(folder) in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(f"{process.pid}: {line[:200]}")
    return found


@pytest.mark.timeout(3 * WAIT_S)
def test_killed_half_way_and_run_again_gives_the_exact_answer(shared_data: Path, tmp_path: Path):
    trace = shared_data / "net" / "wrccdc2018_events.csv.gz"
    text = shared_data / "text" / "collected-works.txt"
    (tmp_path / "net.py").write_text(QUERY)
    out, counts = tmp_path / "out", tmp_path / "counts"
    first = Command(tmp_path, trace, text)
    try:
        wait_for(lambda: len(numbers(out)) >= EPOCHS // 6, first, "a sixth of the epochs")
    finally:
        first.kill()
    before = {number: pq.read_table(path) for number, path in epoch_files(out).items()}
    assert 0 < len(before) < EPOCHS
    # The replay stays 64 epochs ahead at most, so it was killed in the middle of the file.
    assert 0 < rows_sent(first) < ROWS

    second = Command(tmp_path, trace, text)
    try:
        second.process.wait(WAIT_S)
    finally:
        second.kill()
    assert second.process.returncode == 0, second.text
    assert "continuing in" in second.text
    assert numbers(out) == numbers(counts) == list(range(EPOCHS))
    for number, table in before.items():
        assert pq.read_table(out / f"epoch-{number:012d}.parquet").equals(table)
    assert answer(out) == expected(shared_data / "net" / "expected_tumbling10.csv")
    with open(shared_data / "text" / "expected_wordcount_total.tsv") as file:
        totals = {word: int(n) for word, n in csv.reader(file, delimiter="\t")}
    assert word_counts(counts) == totals
    assert working_in(tmp_path) == []

    readings = [json.loads(line) for line in second.text.splitlines() if line.startswith("{")]
    assert [r["state"] for r in readings[-2:]] == ["done", "summary"]
    assert readings[-1]["epochs"] == EPOCHS

    third = Command(tmp_path, trace, text)
    third.process.wait(30)
    assert third.process.returncode == 0
    assert third.text.startswith("nothing new: ")


def epoch_files(folder: Path) -> dict[int, Path]:
    return {number: folder / f"epoch-{number:012d}.parquet" for number in numbers(folder)}


def rows_sent(command: Command) -> int:
    readings = [json.loads(line) for line in command.text.splitlines() if line.startswith("{")]
    return sum(r["sources"].get("events", {}).get("rows") or 0 for r in readings[-1:])


def test_ctrl_c_ends_all_processes(shared_data: Path, tmp_path: Path):
    (tmp_path / "net.py").write_text(QUERY)
    table = pa.table(
        {"ts": [0.0], "orig_h": ["a"], "resp_h": ["b"], "resp_p": [1], "service": ["s"]}
    )
    pq.write_table(table, tmp_path / "one.parquet")
    (tmp_path / "one.txt").write_text("one line\n")
    command = Command(tmp_path, tmp_path / "one.parquet", tmp_path / "one.txt")
    try:
        wait_for(lambda: any("java" in text for text in working_in(tmp_path)), command, "Spark")
        command.process.send_signal(signal.SIGINT)
        assert command.process.wait(30) == 130, command.text
        assert working_in(tmp_path) == []
        assert "Traceback" not in command.text
    finally:
        command.kill()
