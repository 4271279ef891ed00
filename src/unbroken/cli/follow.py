"""`unbroken follow`: the epochs of a stream as they come.

Epochs that are lost are told as one line for a whole run of them, when the run has ended:

    -- epochs 51 to 57 are lost (1,234 rows in)
"""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from rich.console import Console
from rich.table import Table

from unbroken.cli import arguments
from unbroken.client.cluster import connect
from unbroken.epochs import GAP, Epoch, Header, lost_since

#: Rows of one epoch that people are shown; --json has them all.
ROWS_SHOWN_MAX = 50


def register(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = arguments.add_command(
        commands, "follow", run, "print the epochs of a stream as they come",
        "  unbroken follow alerts\n"
        "  unbroken follow alerts --start 100 --count 10 --json\n"
        "  unbroken follow alerts --at grpc://127.0.0.1:4716",
    )  # fmt: skip
    parser.add_argument("stream", metavar="STREAM", help="a source, or a fragment's output")
    arguments.add_at(parser)
    parser.add_argument("--start", type=int, metavar="N",
                        help="the first epoch (default: the oldest that is kept)")  # fmt: skip
    parser.add_argument("--count", type=arguments.positive, metavar="N",
                        help="end after N epochs (default: never)")  # fmt: skip
    arguments.add_json(
        parser,
        "a JSON object per epoch: epoch, kind, rows, lost, lost_total, digest, event_us_min, "
        "event_us_max, data",
    )


def run(given: argparse.Namespace) -> int:
    """Prints epochs until `--count` or Ctrl-C."""
    console = Console(highlight=False)
    epochs = connect(given.at).follow(given.stream, given.start)
    taken = islice(epochs, given.count)
    if given.json:
        for epoch in taken:
            print(as_json(epoch), flush=True)
        return 0
    before: Header | None = None
    for each in in_runs(taken):
        if isinstance(each, Epoch):
            _print(console, each, lost_since(before, each.header))
            before = each.header
        else:
            console.print(lost(each))
            before = each[-1]
    return 0


def in_runs(epochs: Iterable[Epoch]) -> Iterator[Epoch | list[Header]]:
    """The epochs one by one, except that lost ones come together, as the headers of a run."""
    run: list[Header] = []
    try:
        for epoch in epochs:
            if epoch.kind == GAP:
                run.append(epoch.header)
                continue
            if run:
                yield run
                run = []
            yield epoch
    except KeyboardInterrupt:
        if run:
            yield run
        raise
    if run:
        yield run


def lost(run: list[Header]) -> str:
    """A run of lost epochs in one line.

    >>> lost([Header("alerts", n, kind=GAP, lost=600) for n in (51, 52)])
    '-- epochs 51 to 52 are lost (1,200 rows in)'
    >>> lost([Header("alerts", 9, kind=GAP)])
    '-- epoch 9 is lost'
    """
    first, last = run[0].number, run[-1].number
    which = f"epoch {first} is" if first == last else f"epochs {first} to {last} are"
    rows = sum(header.lost for header in run)
    known = f" ({rows:,} {'row' if rows == 1 else 'rows'} in)" if rows else ""
    return f"-- {which} lost{known}"


def as_json(epoch: Epoch) -> str:
    """An epoch in one line.

    >>> import pyarrow as pa
    >>> json.loads(as_json(Epoch.of("clicks", 3, pa.table({"n": [1]}))))["data"]
    [{'n': 1}]
    """
    header = epoch.header
    return json.dumps(
        {
            "epoch": header.number, "kind": header.kind, "rows": header.rows,
            "lost": header.lost, "lost_total": header.lost_total, "digest": header.digest,
            "event_us_min": header.event_us_min, "event_us_max": header.event_us_max,
            "data": epoch.table.to_pylist(),
        },
        default=_plain,
    )  # fmt: skip


def _plain(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _print(console: Console, epoch: Epoch, rows_lost: int) -> None:
    rows = "1 row" if epoch.rows == 1 else f"{epoch.rows:,} rows"
    told = f"  ({rows_lost:,} lost on the way)" if rows_lost else ""
    console.print(f"[bold]epoch {epoch.number}[/bold]  {epoch.kind}  {rows}{told}")
    if not epoch.rows:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in epoch.table.column_names:
        table.add_column(name)
    for row in epoch.table.slice(0, ROWS_SHOWN_MAX).to_pylist():
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    console.print(table, markup=False)
    if epoch.rows > ROWS_SHOWN_MAX:
        console.print(f"… {epoch.rows - ROWS_SHOWN_MAX:,} more; --json prints all")
