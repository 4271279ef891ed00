"""What is wrong is told before Spark starts: one `error:` line, the way out, an exit code."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pyarrow as pa
import pytest
from rich.console import Console

from unbroken.cli import folder as folders
from unbroken.cli.folder import RunFolder
from unbroken.cli.main import main
from unbroken.cli.meter import Meter
from unbroken.cli.view import line, render
from unbroken.client.replay import Pace, Trace
from unbroken.client.sinks import DirectorySink
from unbroken.epochs import Epoch
from unbroken.errors import DefinitionError, UnbrokenError
from unbroken.local import LocalCluster
from unbroken.query import Query

QUERY = """
import unbroken as ub
query = ub.Query("shop", epoch="1s")
clicks = query.source("clicks", "ts TIMESTAMP, page STRING", event_time="ts")
query.sink(clicks)
"""
WAIT_S = 60.0


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_cluster(self: LocalCluster) -> None:
        pytest.fail("a cluster was started")

    monkeypatch.setattr(LocalCluster, "start", no_cluster)
    monkeypatch.chdir(tmp_path)
    # The command sets signal handlers; the test run keeps its own.
    monkeypatch.setattr("unbroken.cli.main._end_on_sigterm", lambda: None)
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    Path("shop.py").write_text(QUERY)
    Path("trace.csv").write_text("ts,page\n1000,home\n")


def fails(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> str:
    assert main(arguments) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert "  → " in told.err
    assert "Traceback" not in told.err
    return told.err


RUN = ("run", "shop.py", "--source", "clicks=trace.csv")


@pytest.mark.parametrize(
    ("code", "arguments", "what"),
    [
        (2, ("run", "nowhere.py"), "nowhere.py: no such file"),
        (2, (*RUN, "--source", "klicks=trace.csv"), "no source 'klicks'"),
        (2, (*RUN, "--source", "clicks=other.csv"), "two paths for the source 'clicks'"),
        (2, (*RUN, "--sink", "pages=out"), "no sink 'pages'"),
        (2, (*RUN, "--speed", "fast"), "--speed fast"),
        (1, ("run", "shop.py", "--source", "clicks=no.csv"), "no.csv: no such file"),
        (1, ("run", "shop.py", "--source", "clicks=shop.py"), "shop.py: unknown kind of file"),
        (1, (*RUN, "--sink", "clicks=trace.csv"), "a file of that name is there"),
        (1, (*RUN, "--dir", "trace.csv"), "trace.csv is a file"),
        (1, (*RUN, "--dir", "trace.csv/x"), "Not a directory"),
        (1, ("status", "--at", "grpc://127.0.0.1:1"), "no answer from grpc://127.0.0.1:1"),
        (1, ("follow", "x", "--at", "grpc://127.0.0.1:1"), "no answer from"),
        (1, ("send", "x", "trace.csv", "--at", "nonsense"), "is not an address"),
        (1, ("cut", "node-1", "node-2", "--at", "grpc://127.0.0.1:1"), "no answer from"),
        (1, ("heal", "--at", "grpc://127.0.0.1:1"), "no answer from"),
        (2, ("explain", "nowhere.py"), "no such file"),
    ],
)
def test_errors_are_told_with_the_way_out(
    capsys: pytest.CaptureFixture[str], code: int, arguments: tuple[str, ...], what: str
):
    assert what in fails(capsys, code, *arguments)


def test_a_bad_first_row_and_a_missing_column_are_told(capsys: pytest.CaptureFixture[str]):
    Path("bad.csv").write_text("ts,page\nnever,home\n")
    assert "line 2" in fails(capsys, 1, "run", "shop.py", "--source", "clicks=bad.csv")
    Path("other.csv").write_text("when,page\n1,home\n")
    told = fails(capsys, 1, "run", "shop.py", "--source", "clicks=other.csv")
    assert "no column 'ts'" in told


def test_a_port_in_use_is_told(capsys: pytest.CaptureFixture[str]):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"127.0.0.1:{port}" in fails(capsys, 1, *RUN, "--port", port)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_told(capsys: pytest.CaptureFixture[str]):
    Path("locked").mkdir(mode=0o500)
    assert "cannot write" in fails(capsys, 1, *RUN, "--sink", "clicks=locked/out")


def test_the_directory_of_another_stream_is_told(capsys: pytest.CaptureFixture[str]):
    DirectorySink("out", "other", "clicks").write(Epoch.of("clicks", 0, pa.table({"n": [1]})))
    assert "holds the stream" in fails(capsys, 1, *RUN, "--sink", "clicks=out")


def test_arguments_that_make_no_sense_are_told_by_the_parser(capsys: pytest.CaptureFixture[str]):
    for arguments in (["run"], [], ["run", "shop.py", "--nodes", "0"], [*RUN, "--sink", "out"]):
        with pytest.raises(SystemExit) as left:
            main(arguments)
        assert left.value.code == 2
    assert "'out' is not NAME=PATH" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", ["run", "follow", "send", "status", "explain", "demo", "cut", "slow", "heal"]
)
def test_every_command_has_help_with_examples(capsys: pytest.CaptureFixture[str], command: str):
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert f"examples:\n  unbroken {command}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("unbroken 0.")


@pytest.fixture
def query() -> Query:
    made = Query("shop")
    made.sink(made.source("clicks", "ts TIMESTAMP, page STRING", event_time="ts"))
    return made


def test_two_runs_in_one_folder_are_refused(tmp_path: Path, query: Query):
    with RunFolder(tmp_path / "d", query, 1), pytest.raises(UnbrokenError, match="another run"):
        RunFolder(tmp_path / "d", query, 1).__enter__()
    with RunFolder(tmp_path / "d", query, 1):
        pass


def test_processes_of_a_killed_run_are_waited_for(
    tmp_path: Path, query: Query, monkeypatch: pytest.MonkeyPatch
):
    words = ["-c", "import sys; sys.stdin.read()", "unbroken.node.loop", str(tmp_path)]
    left = subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE)
    try:
        monkeypatch.setattr(folders, "LEAVE_S_MAX", 0.3)
        with pytest.raises(UnbrokenError, match=str(left.pid)):
            RunFolder(tmp_path, query, 1).__enter__()
        assert left.stdin is not None
        left.stdin.close()
        monkeypatch.setattr(folders, "LEAVE_S_MAX", WAIT_S)
        with RunFolder(tmp_path, query, 1):
            assert left.poll() is not None or psutil.Process(left.pid).status() == "zombie"
    finally:
        left.kill()
        left.wait(WAIT_S)


def test_a_folder_is_used_by_one_query_with_one_number_of_nodes(tmp_path: Path, query: Query):
    with RunFolder(tmp_path, query, 3) as folder:
        folder.save([], None)
    with pytest.raises(DefinitionError, match="made with 3 nodes"):
        RunFolder(tmp_path, query, 2).__enter__()
    with pytest.raises(DefinitionError, match="belongs to the query 'shop'"):
        RunFolder(tmp_path, Query("other"), 3).__enter__()


def test_a_file_that_grew_is_taken_on_and_another_of_its_name_is_refused(
    tmp_path: Path, query: Query
):
    path = Path("trace.csv")
    trace = Trace(query.sources["clicks"], path)
    with RunFolder(tmp_path / "d", query, 1) as folder:
        folder.save([trace], 7)
        assert folder.nothing_new([trace], [])
        path.write_text(path.read_text() + "1001,basket\n")
        assert not folder.nothing_new([trace], [])
        folder.check_files([trace])
        path.write_text("ts,page\n2000,other\n3000,rows\n")
        with pytest.raises(UnbrokenError, match="not the file of this name"):
            folder.check_files([trace])


def test_files_that_are_cut_alike_keep_their_base(tmp_path: Path, query: Query):
    trace = Trace(query.sources["clicks"], Path("trace.csv"))
    pace = Pace(epoch_s=1.0)
    with RunFolder(tmp_path / "d", query, 1) as folder:
        assert folder.base([trace], pace, 0) == 0
        folder.save([trace], None)
    with RunFolder(tmp_path / "d", query, 1) as folder:
        assert folder.base([trace], pace, 40) == 0
        assert folder.base([trace], Pace(rows=10), 40) == 40


def test_when_all_was_done_the_command_says_so_and_ends(capsys: pytest.CaptureFixture[str]):
    # The file of another test may be loaded under the same name; here it is the same content.
    shop = Query("shop")
    trace = Trace(shop.source("clicks", "ts TIMESTAMP, page STRING", "ts"), Path("trace.csv"))
    with RunFolder(Path(".unbroken/shop"), shop, 1) as folder:
        folder.save([trace], 0)
    assert main(RUN) == 0
    assert capsys.readouterr().out.startswith("nothing new: ")


STATUS = {
    "fragments": {
        "pages": {
            "policy": "active, 2 copies",
            "wanted": 2,
            "nodes": ["node-1"],
            "survives": 0,
            "doing": ["pages: node-3 catches up"],
        },
    },
    "query": "shop",
    "sources": {
        "clicks": {
            "next": 5,
            "open_rows": 1,
            "set_aside": 0,
            "standstill": "",
            "consumers": {},
            "given_up": {"epochs": 2, "rows": 1234},
        }
    },
    "nodes": {
        "node-1": {
            "state": "running",
            "pid": 7,
            "fragments": {
                "pages": {
                    "epoch": 2,
                    "rows_in": 10,
                    "rows_out": 4,
                    "sentence": "working on epoch 3",
                    "failed": "",
                }
            },
        }
    },
}


def test_a_reading_has_the_documented_keys():
    meter = Meter("shop")
    meter.read({**STATUS, "sources": {}}, "starting", 0.0)
    meter.read(STATUS, "running", 1.0)
    reading = meter.read(STATUS, "running", 3.0)
    assert set(reading) == {"t", "state", "query", "sources", "nodes", "fragments", "sinks"}
    assert set(reading["sources"]["clicks"]) == {
        "epoch", "rows_per_s", "rows", "open_rows", "set_aside", "given_up", "bad_rows", "file",
        "standstill",
    }  # fmt: skip
    pages = reading["nodes"]["node-1"]["fragments"]["pages"]
    assert set(pages) == {
        "epoch", "behind", "delay_s", "rows_in", "rows_out", "rows_per_s", "doing", "failed",
        "tentative_to",
    }  # fmt: skip
    assert reading["sources"]["clicks"]["given_up"] == 1234
    assert (pages["behind"], pages["delay_s"], pages["rows_per_s"]) == (2, 2.0, 0.0)
    assert json.loads(json.dumps(reading)) == reading
    assert "node-1 pages 2" in line(reading)
    assert "pages has 1 of 2 copies" in line(reading)
    assert render(reading)


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ({"tentative_to": None, "partition": ""}, "working on epoch 3"),
        (
            {"tentative_to": 431, "sentence": "tentative from epoch 412 on: 431 without western; "
             "stable to 411", "partition": "going tentative: western silent for 2.7 s"},
            "tentative from epoch 412 on: 431 without western; stable to 411",
        ),
        (
            {"tentative_to": None, "partition": "stable again: confirmed epochs 412 to 431"},
            "working on epoch 3; stable again: confirmed epochs 412 to 431",
        ),
    ],
)  # fmt: skip
def test_status_says_what_a_partition_does_to_a_fragment(told: dict[str, object], shown: str):
    node = STATUS["nodes"]["node-1"]  # type: ignore[index]
    pages = {**node["fragments"]["pages"], **told}
    status = {**STATUS, "nodes": {"node-1": {**node, "fragments": {"pages": pages}}}}
    reading = Meter("shop").read(status, "running", 1.0)
    assert reading["nodes"]["node-1"]["fragments"]["pages"]["doing"] == shown
    console = Console(width=200, record=True, file=io.StringIO(), force_terminal=True)
    console.print(render(reading))
    text = console.export_text(styles=True)
    assert shown in text
    assert ("[33m" in text) == (told["tentative_to"] is not None), "yellow while it is tentative"


def test_lost_epochs_are_seen_at_their_sink():
    sink = SimpleNamespace(stream="pages", rows=4, lost=7, lost_rows=30, folder="out")
    meter = Meter("shop")
    meter.sinks = [SimpleNamespace(sink=sink, next=9, delay_s=None)]  # type: ignore[list-item]
    reading = meter.read(STATUS, "running", 1.0)
    assert set(reading["sinks"]["pages"]) == {
        "epoch", "rows", "lost", "lost_rows", "delay_s", "folder"
    }  # fmt: skip
    assert "sink pages 8, 7 epochs lost, 30 rows in" in line(reading)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render(reading))
    assert "out, 7 epochs lost, 30 rows in" in console.export_text()


def test_a_node_that_starts_spark_is_not_called_silent():
    def told(state: str) -> dict[str, object]:
        node = {"state": state, "pid": 1, "fragments": {}}
        return {"sources": {}, "nodes": {"n": node}, "fragments": {}}

    meter = Meter("shop")
    states = ["starting Spark", "silent for 9 s", "running", "silent for 9 s"]
    shown = [meter.read(told(s), "", 0.0)["nodes"]["n"]["state"] for s in states]
    assert shown == ["starting Spark", "starting Spark", "running", "silent for 9 s"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_ends_a_command_cleanly(number: int, code: int):
    """A query file that takes long stands for everything that may be under way."""
    Path("slow.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(60)\n")
    command = subprocess.Popen(
        [sys.executable, "-m", "unbroken.cli.main", "run", "slow.py"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert command.stdout is not None
        assert command.stdout.readline() == "here\n"
        began_s = time.monotonic()
        command.send_signal(number)
        _, told = command.communicate(timeout=WAIT_S)
        assert (command.returncode, told) == (code, "")
        assert time.monotonic() - began_s < 20
    finally:
        command.kill()
        command.wait(WAIT_S)
