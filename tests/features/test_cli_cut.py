"""`unbroken run --cables`, and `unbroken cut` and `heal` from other processes: real Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from waiting import WAIT_S, until

from unbroken.streams.ports import free_port

QUERY = """
import unbroken as ub

query = ub.Query("sites", epoch="2s")
east = query.source("east", "k INT")
west = query.source("west", "k INT")


@query.fragment(west)
def western(west):
    return west.where("k > 0")


@query.fragment(east, western, max_delay="2s")
def both(east, western):
    return east.union(western)


query.sink(both)
"""
UNBROKEN = (sys.executable, "-m", "unbroken.cli.main")


class Shell:
    """Commands in a folder of their own, and a cluster to talk to."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._running = folder, list[subprocess.Popen[bytes]]()
        self._at = f"grpc://127.0.0.1:{(port := free_port('127.0.0.1'))}"
        (folder / "sites.py").write_text(QUERY)
        words = ("run", "sites.py", "--nodes", "2", "--cables", "--port", str(port))
        self.cluster = self.start("run.txt", *words)

    def start(self, output: str, *words: str) -> subprocess.Popen[bytes]:
        """In the background, its words in a file."""
        with open(self.folder / output, "wb") as file:
            made = subprocess.Popen(
                [*UNBROKEN, *words], cwd=self.folder, stdout=file, stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        self._running.append(made)
        return made

    def at(self, *words: str) -> str:
        """What a command says to the cluster that runs."""
        done = subprocess.run(
            [*UNBROKEN, *words, "--at", self._at], cwd=self.folder, capture_output=True, text=True,
            timeout=WAIT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def follow(self, stream: str) -> None:
        self.start("follow.txt", "follow", stream, "--json", "--at", self._at)

    def followed(self) -> list[dict[str, Any]]:
        text = (self.folder / "follow.txt").read_text()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [epoch for epoch in self.followed() if epoch["kind"] == kind]

    def end(self) -> None:
        for process in reversed(self._running):
            process.send_signal(signal.SIGINT)
            process.wait(WAIT_S)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cable_is_pulled_and_put_back_from_another_terminal(tmp_path: Path):
    """A user's day: run, look, cut, look, heal, look.

    Goal: what `cut` and `heal` do reaches the processes of the cluster, `follow` marks what is
    tentative, and `status` says it in sentences.
    Method: the commands themselves, each a process; epochs pass by the clock.
    """
    shell = Shell(tmp_path)
    try:
        until(lambda: "listening at" in (tmp_path / "run.txt").read_text(), "it has started")
        shell.follow("both")
        until(lambda: len(shell.of("stable")) >= 3, "epochs pass")
        (tmp_path / "rows.csv").write_text("k\n1\n2\n")
        assert shell.at("cut", "node-1", "node-2") == (
            "node-1 and node-2 are cut off from each other\n"
        )
        until(lambda: shell.of("tentative"), "results go on")
        told = shell.at("status")
        assert "tentative from epoch" in " ".join(told.split())
        assert told.endswith("node-1 and node-2 are cut off from each other, until unbroken heal\n")
        assert shell.at("send", "west", "rows.csv").startswith("2 rows sent")
        assert shell.at("send", "east", "rows.csv").startswith("2 rows sent")
        until(lambda: any(e["data"] for e in shell.of("tentative")), "and see the eastern rows")
        assert shell.at("heal") == "not any more: node-1 and node-2 are cut off from each other\n"
        said = {epoch["epoch"] for epoch in shell.of("tentative")}
        until(lambda: said <= {e["epoch"] for e in shell.of("stable")}, "all of it is replaced")
        until(lambda: "stable again" in " ".join(shell.at("status").split()), "and status says so")
    finally:
        shell.end()
    assert shell.cluster.returncode == 130
    stable = shell.of("stable")
    assert [epoch["epoch"] for epoch in stable] == list(range(len(stable)))
    assert sorted(row["k"] for epoch in stable for row in epoch["data"]) == [1, 1, 2, 2]
    corrected = [epoch for epoch in stable if epoch.get("confirmed") is False]
    assert [row["k"] for epoch in corrected for row in epoch["added"]] == [1, 2]
    assert not any(epoch["withdrawn"] for epoch in corrected)
