"""The view of a running command: a live table, plain lines, or a JSON line per second.

    a terminal      a table that is redrawn
    a pipe or file  a line when the state changes, and one every ten seconds
    --json          a reading per second on stdout (see meter.py); words go to stderr

The command itself runs in the main thread; the view only looks.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from unbroken.cli.meter import Look, Meter, Reading
from unbroken.errors import UnbrokenError

LOOK_S = 1.0
LINE_S = 10.0


class View:
    """Shows readings of `meter` while a `with` block runs."""

    def __init__(
        self,
        look: Look,
        meter: Meter,
        *,
        json_lines: bool,
        more: Callable[[], RenderableType] | None = None,
    ) -> None:
        """`more` is drawn below the tables, where there is a terminal."""
        self._look, self.meter, self._json, self._more = look, meter, json_lines, more
        self.console = Console(stderr=json_lines, highlight=False)
        self.state = "starting"
        self._began_s = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="view")
        live = not json_lines and self.console.is_terminal
        self._live = Live(console=self.console, refresh_per_second=4) if live else None
        self._said: tuple[str, float] = ("", 0.0)

    @property
    def is_live(self) -> bool:
        """Whether there is a terminal to draw on."""
        return self._live is not None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the view was made."""
        return time.monotonic() - self._began_s

    def say(self, text: str) -> None:
        """A line for people; above the table if there is one."""
        self.console.print(text, markup=False, soft_wrap=True)

    def __enter__(self) -> View:
        if self._live is not None:
            self._live.start()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(timeout=5.0)
        if self._live is not None:
            self._live.stop()

    def _run(self) -> None:
        while True:
            last = self._ended.wait(LOOK_S)
            try:
                status = self._look()
            except UnbrokenError:
                status = None  # Not there yet, or away; the command itself sees to that.
            reading = self.meter.read(status, self.state, self.elapsed_s)
            try:
                self._show(reading)
            except (OSError, ValueError):
                return  # Nobody reads us any more.
            if last:
                return

    def _show(self, reading: Reading) -> None:
        if self._json:
            print(json.dumps(reading), file=sys.stdout, flush=True)
        elif self._live is not None:
            shown = render(reading)
            self._live.update(Group(shown, self._more()) if self._more else shown)
        else:
            state, said_s = self._said
            if state != reading["state"] or reading["t"] - said_s >= LINE_S:
                self._said = (reading["state"], reading["t"])
                self.say(line(reading))


def line(reading: Reading) -> str:
    """A reading in one line.

    >>> line({"t": 3.0, "state": "starting", "sources": {}, "nodes": {}, "sinks": {}, "fragments":
    ...       {"alerts": {"nodes": ["node-1"], "wanted": 2}}})
    '    3 s  starting  |  alerts has 1 of 2 copies'
    """
    parts = [f"{reading['t']:5.0f} s  {reading['state']}"]
    parts += [
        f"{name} has {len(fragment['nodes'])} of {fragment['wanted']} copies"
        for name, fragment in reading["fragments"].items()
        if len(fragment["nodes"]) < fragment["wanted"]
    ]
    parts += [f"{name} sealed {source['epoch']}" for name, source in reading["sources"].items()]
    for name, node in reading["nodes"].items():
        done = ", ".join(f"{key} {_far(f)}" for key, f in node["fragments"].items())
        parts.append(f"{name} {done or node['state']}")
    parts += [
        f"sink {name} {sink['epoch']}{_lost(sink)}" for name, sink in reading["sinks"].items()
    ]
    return "  |  ".join(parts)


def _far(fragment: Reading) -> str:
    """How far a fragment is, in a few words.

    >>> _far({"epoch": 140, "tentative_to": 163}), _far({"epoch": 140, "tentative_to": None})
    ('140 (tentative to 163)', '140')
    """
    to = fragment["tentative_to"]
    return f"{fragment['epoch']}" + ("" if to is None else f" (tentative to {to})")


def render(reading: Reading, *, live: bool = True) -> Group:
    """A reading as tables for a terminal."""
    since = f"  {reading['state']}  {reading['t']:.0f} s" if live else ""
    title = Text(f"{reading['query']}{since}", style="bold")
    parts: list[RenderableType] = [title, _sources(reading, live=live)]
    parts += [_nodes(reading, live=live)]
    parts += [_fragments(reading)] if reading["fragments"] else []
    return Group(*parts, _sinks(reading)) if reading["sinks"] else Group(*parts)


def _sources(reading: Reading, *, live: bool) -> Table:
    table = _table("source", "epoch", "rows/s", "rows sent", "from", words=(0, 4))
    for name, source in reading["sources"].items():
        spoilt = sum(source[key] or 0 for key in ("bad_rows", "set_aside"))
        origin = source["file"] or ("waits for unbroken send" if live else "")
        table.add_row(
            name, str(source["epoch"]), _number(source["rows_per_s"]), _number(source["rows"]),
            f"{origin}{f', {spoilt:,} bad rows' if spoilt else ''}"
            f"{f', {given_up:,} rows given up' if (given_up := source['given_up']) else ''}"
            f"{f', full for good: {why}' if (why := source['standstill']) else ''}",
            style="red" if why else "",
        )  # fmt: skip
    return table


def _nodes(reading: Reading, *, live: bool) -> Table:
    """`live`: looked at more than once, so that it is known how fast they are."""
    table = _table(
        "node", "pid", "fragment", "epoch", "behind", "rows/s", "delay", "doing", words=(0, 2, 7)
    )
    for name, node in reading["nodes"].items():
        if not node["fragments"]:
            table.add_row(name, str(node["pid"]), "", "", "", "", "", node["state"])
        for key, fragment in node["fragments"].items():
            doing = fragment["doing"] if node["state"] == "running" else node["state"]
            style = "yellow" if fragment["tentative_to"] is not None else ""
            style = "red" if fragment["failed"] or node["state"] != "running" else style
            table.add_row(
                name, str(node["pid"]), key, str(fragment["epoch"]),
                str(fragment["behind"]),
                _number(fragment["rows_per_s"]), f"{fragment['delay_s']:.1f} s" if live else "",
                doing, style=style,
            )  # fmt: skip
    return table


def _fragments(reading: Reading) -> Table:
    table = _table("fragment", "policy", "copies", "survives", "repair", words=(0, 1, 4))
    for name, fragment in reading["fragments"].items():
        copies = f"{len(fragment['nodes'])} of {fragment['wanted']}"
        style = "red" if len(fragment["nodes"]) < fragment["wanted"] else ""
        table.add_row(
            name, fragment["policy"], copies, _failures(fragment["survives"]),
            "; ".join(filter(None, (*fragment["doing"], fragment.get("weakness")))), style=style,
        )  # fmt: skip
    return table


def _failures(count: int | None) -> str:
    if count is None:
        return "unknown"
    return f"{count} failure" if count == 1 else f"{count} failures"


def _sinks(reading: Reading) -> Table:
    table = _table("sink", "epoch", "rows", "delay", "directory", words=(0, 4))
    for name, sink in reading["sinks"].items():
        delay = "" if sink["delay_s"] is None else f"{sink['delay_s']:.2f} s"
        table.add_row(
            name, str(sink["epoch"]), _number(sink["rows"]), delay,
            f"{sink['folder']}{_lost(sink)}", style="red" if _lost(sink) else "",
        )  # fmt: skip
    return table


def _lost(sink: Reading) -> str:
    """What is lost, in a few words.

    >>> _lost({"lost": 7, "lost_rows": 1200}), _lost({"lost": 0, "lost_rows": 1})
    (', 7 epochs lost, 1,200 rows in', ', 1 row lost on the way')
    """
    epochs, rows = sink["lost"], sink["lost_rows"]
    rows_text = f", {rows:,} {'row' if rows == 1 else 'rows'}" if rows else ""
    if not epochs:
        return f"{rows_text} lost on the way" if rows else ""
    inside = f"{rows_text} in" if rows else ""
    return f", {epochs:,} {'epoch' if epochs == 1 else 'epochs'} lost{inside}"


def _table(*columns: str, words: tuple[int, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for place, column in enumerate(columns):
        right = place not in words
        table.add_column(column, justify="right" if right else "left", no_wrap=right)
    return table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"
