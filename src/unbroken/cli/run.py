"""`unbroken run`: a query on a cluster of this machine, from files to directories."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unbroken.cli import arguments
from unbroken.cli.folder import RunFolder
from unbroken.cli.load import load
from unbroken.cli.meter import Meter
from unbroken.cli.pace import choose
from unbroken.cli.view import View
from unbroken.client.progress import Progress, Status
from unbroken.client.replay import Pace, Replay, Trace
from unbroken.client.sinks import DirectorySink, SinkThread
from unbroken.control.detector import TIMINGS
from unbroken.local import LocalCluster
from unbroken.query import Query


def register(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = arguments.add_command(
        commands, "run", run, "run a query on this machine, from files to directories",
        "  unbroken run intrusion.py --nodes 3 --source connections=trace.csv --sink alerts=out/\n"
        "  unbroken run intrusion.py --source connections=trace.csv.gz --speed 10\n"
        "  unbroken run intrusion.py         # rows come from: unbroken send connections FILE\n\n"
        "The same command again goes on where the last one stopped, however it stopped.",
    )  # fmt: skip
    parser.add_argument("file", type=Path, metavar="FILE.py", help="a Python file with one query")
    parser.add_argument(
        "--source", action="append", default=[], type=arguments.named_path, metavar="NAME=FILE",
        help="feed a source from a file: .csv .tsv .jsonl .txt (also .gz) or .parquet; a source "
        "without one waits for unbroken send",
    )  # fmt: skip
    parser.add_argument(
        "--sink", action="append", default=[], type=arguments.named_path, metavar="NAME=DIR",
        help="write the epochs of a sink as Parquet files, each exactly once",
    )  # fmt: skip
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument(
        "--speed", metavar="FACTOR|max",
        help="replay files by event time, this many times as fast as it happened; max: epochs are "
        "cut by event time and follow each other at once (default: max)",
    )  # fmt: skip
    pace.add_argument(
        "--rows-per-epoch", type=arguments.positive, metavar="N",
        help="cut files into epochs of N rows, as fast as it goes",
    )  # fmt: skip
    parser.add_argument("--nodes", type=arguments.positive, default=1, metavar="N",
                        help="how many Spark nodes (default: %(default)s)")  # fmt: skip
    parser.add_argument("--strict", action="store_true",
                        help="refuse to start with fewer nodes than a policy asks for")  # fmt: skip
    arguments.add_bad_rows(parser)
    parser.add_argument("--dir", type=Path, metavar="DIR",
                        help="logs and checkpoints (default: .unbroken/<query name>)")  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1", metavar="H",
                        help="address to listen at (default: %(default)s)")  # fmt: skip
    parser.add_argument("--port", type=int, default=arguments.PORT, metavar="P",
                        help="port to listen at, 0 for any (default: %(default)s)")  # fmt: skip
    parser.add_argument("--master", default="local[2]", metavar="M",
                        help="Spark master of each node (default: %(default)s)")  # fmt: skip
    parser.add_argument("--memory", default="1g", metavar="SIZE",
                        help="memory of each node's JVM (default: %(default)s)")  # fmt: skip
    parser.add_argument("--timing", choices=tuple(TIMINGS), default="local",
                        help="patience with silent nodes (default: %(default)s)")  # fmt: skip
    parser.add_argument("--cables", action="store_true",
                        help="streams go through cables: unbroken cut pulls one")  # fmt: skip
    arguments.add_json(parser, "a JSON line per second on stdout instead of the live view")


def run(given: argparse.Namespace) -> int:
    """Runs the query until its files are done, or until Ctrl-C."""
    query = load(given.file)
    traces = _traces(query, given)
    sinks = arguments.paths(given.sink, query.sinks, query.name, "sink")
    pace = choose(query, traces, speed=given.speed, rows_per_epoch=given.rows_per_epoch)
    for trace in traces:
        trace.first_us()
    folder = RunFolder(given.dir or Path(".unbroken") / query.name, query, given.nodes)
    with folder:
        folder.check_files(traces)
        directories = [DirectorySink(path, query.name, name) for name, path in sinks.items()]
        if traces and len(traces) == len(query.sources) and folder.nothing_new(traces, directories):
            print(f"nothing new: all rows were sent and all results written in {folder.path}")
            return 0
        cluster = LocalCluster(
            query, given.nodes, folder=folder.path, host=given.host, port=given.port,
            manual=not pace.clock, master=given.master, memory=given.memory, timing=given.timing,
            strict=given.strict, cables=given.cables,
        )  # fmt: skip
        again = folder.used
        folder.save(traces, None)
        meter = Meter(query.name, {trace.source.name: trace for trace in traces})
        view = View(cluster.status, meter, json_lines=given.json)
        try:
            # The view ends first, so that its last reading is that of a living cluster.
            with contextlib.closing(cluster), view:
                for warning in cluster.warnings:
                    view.say(f"warning: {warning}")
                cluster.start()
                job = _Job(query, cluster, folder, traces, directories, pace, view)
                last = job.run(again=again)
        except KeyboardInterrupt:
            view.say("stopped; the same command goes on from here")
            raise
        summary = job.summary(last)
        if given.json:
            print(json.dumps({"state": "summary", **summary}), flush=True)
        view.say(_words(summary, traces, query))
        return 0


def _traces(query: Query, given: argparse.Namespace) -> list[Trace]:
    paths = arguments.paths(given.source, list(query.sources), query.name, "source")
    return [Trace(query.sources[n], path, given.bad_rows) for n, path in paths.items()]


class _Job:
    """One run on a started cluster."""

    def __init__(
        self,
        query: Query,
        cluster: LocalCluster,
        folder: RunFolder,
        traces: list[Trace],
        sinks: list[DirectorySink],
        pace: Pace,
        view: View,
    ) -> None:
        self._query, self._cluster, self._folder = query, cluster, folder
        self._traces, self._pace, self._view = traces, pace, view
        self._sinks = [SinkThread(cluster, sink) for sink in sinks]
        self._progress = Progress(self._look)
        self._rows_before = sum(sink.rows for sink in sinks)

    def run(self, *, again: bool) -> int:
        """Sends, finishes and waits; tells the number after the last epoch."""
        self._view.meter.sinks = self._sinks
        for sink in self._sinks:
            sink.start()
        status = self._progress.wait(lambda status: True)
        next_epoch = max(told["next"] for told in status["sources"].values())
        base = self._folder.base(self._traces, self._pace, next_epoch)
        self._folder.save(self._traces, None)
        replay = Replay(self._cluster, self._traces, self._pace, self._progress, base)
        if again:
            self._view.say(self._continuing(replay, next_epoch))
        self._view.state = "running"
        replay.run()
        if len(self._traces) < len(self._query.sources):
            self._serve()
        self._view.state = "finishing"
        last = self._cluster.finish()
        self._progress.wait(lambda status: self._reached(status, last))
        self._folder.save(self._traces, last)
        self._view.state = "done"
        return last

    def _look(self) -> Status:
        """The status, unless something has ended that will not come back."""
        self._cluster.raise_start_error()
        for sink in self._sinks:
            sink.check()
        return self._cluster.status()

    def _serve(self) -> None:
        waiting = [n for n in self._query.sources if n not in {t.source.name for t in self._traces}]
        self._view.say(
            f"listening at {self._cluster.address} for rows of {', '.join(waiting)}: "
            f"unbroken send {waiting[0]} FILE; Ctrl-C ends"
        )
        # A quiet source is no fault: what is watched here are failures.
        Progress(self._look, stall_s_max=math.inf).wait(lambda status: False)

    def _reached(self, status: Status, last: int) -> bool:
        """Whether every sink has every epoch below `last`."""
        written = {sink.sink.stream for sink in self._sinks}
        served = {name: told["next"] for name, told in status["sources"].items()}
        for node in status["nodes"].values():
            for name, fragment in node["fragments"].items():
                served[name] = max(served.get(name, 0), fragment["output"]["next"])
        rest = [name for name in self._query.sinks if name not in written]
        return all(served.get(name, 0) >= last for name in rest) and all(
            sink.wait(last, 0.0) for sink in self._sinks
        )

    def _continuing(self, replay: Replay, next_epoch: int) -> str:
        parts = [f"continuing in {self._folder.path} at epoch {next_epoch}"]
        parts += [f"{name} after {replay.rows_known(name):,} rows" for name in replay.producers]
        parts += [f"sink {s.sink.stream} after {s.next:,} epochs" for s in self._sinks]
        return ", ".join(parts)

    def summary(self, epochs: int) -> dict[str, Any]:
        """What was done, for the last words."""
        rows_out = sum(sink.sink.rows for sink in self._sinks) - self._rows_before
        return {
            "epochs": epochs,
            "rows_in": sum(trace.rows_sent for trace in self._traces),
            "rows_out": rows_out,
            "bad_rows": sum(trace.bad for trace in self._traces),
            "set_aside": sum(trace.set_aside for trace in self._traces),
            "seconds": round(self._view.elapsed_s, 1),
            "sinks": {sink.sink.stream: str(sink.sink.folder) for sink in self._sinks},
        }


def _words(summary: Mapping[str, Any], traces: list[Trace], query: Query) -> str:
    lines = [
        f"done: {summary['epochs']:,} epochs, {summary['rows_in']:,} rows in, "
        f"{summary['rows_out']:,} rows out, {summary['seconds']:.1f} s"
    ]
    for trace in traces:
        if trace.bad:
            lines.append(f"  {trace.bad:,} bad rows in {trace.path} were left out; the first:")
            lines += [f"    {row.why}" for row in trace.bad_shown]
        if trace.set_aside:
            lines.append(f"  {trace.set_aside:,} rows of {trace.path} lie too far in the future")
    for name in query.sinks:
        where = summary["sinks"].get(name)
        lines.append(f"  {name}: {where}" if where else f"  {name}: --sink {name}=DIR writes it")
    return "\n".join(lines)
