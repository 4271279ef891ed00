"""`unbroken follow`: the epochs of a stream as they come.

Epochs that are lost are told as one line for a whole run of them, when the run has ended, except
those of which something was said tentatively:

    -- epochs 51 to 57 are lost (1,234 rows in)

While input is cut off, rows are marked as tentative; the stable epoch of the same number says later
what became of them:

    epoch 412  tentative  3 rows  (stable to 411, branch 2.1@node-3)
    epoch 412  stable  4 rows  (corrected: 0 rows withdrawn, 1 added)
    epoch 413  stable  2 rows  (confirmed)

Each row has a mark: `?` tentative, `-` withdrawn, `+` added.  Rows that were said and stay true are
not printed again.
"""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from unbroken.cli import arguments
from unbroken.client.cluster import connect
from unbroken.epochs import GAP, TENTATIVE, Epoch, Header, lost_since

#: Rows of one epoch that people are shown; --json has them all.
ROWS_SHOWN_MAX = 50
_STYLES = {"": "", "?": "yellow", "-": "red", "+": "green"}


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
    parser.add_argument("--stable", action="store_true",
                        help="leave out what is tentative (default: it is marked)")  # fmt: skip
    arguments.add_json(
        parser,
        "a JSON object per epoch: epoch, kind, rows, lost, lost_total, digest, event_us_min, "
        "event_us_max, data; branch and stable_to of tentative ones; replaces (a branch), "
        "confirmed, given_up, withdrawn and added of those that replace one",
    )


def run(given: argparse.Namespace) -> int:
    """Prints epochs until `--count` or Ctrl-C."""
    console = Console(highlight=False)
    epochs = connect(given.at).follow(given.stream, given.start, tentative=not given.stable)
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
            if epoch.kind == GAP and not epoch.given_up:
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
    told: dict[str, Any] = {
        "epoch": header.number, "kind": header.kind, "rows": header.rows,
        "lost": header.lost, "lost_total": header.lost_total, "digest": header.digest,
        "event_us_min": header.event_us_min, "event_us_max": header.event_us_max,
        "data": epoch.table.to_pylist(),
    }  # fmt: skip
    if epoch.kind == TENTATIVE:
        told |= {"branch": header.branch, "stable_to": header.stable_to}
    if epoch.replaces is not None:
        told |= {"confirmed": epoch.confirmed, "given_up": epoch.given_up}
        told["replaces"] = epoch.replaces.header.branch
        for name in ("withdrawn", "added"):
            rows = getattr(epoch.replaces, name)
            told[name] = None if rows is None else rows.to_pylist()
    return json.dumps(told, default=_plain)


def became(epoch: Epoch) -> str:
    """What is to be said of an epoch that is tentative, or replaces one that was.

    >>> import pyarrow as pa
    >>> from unbroken.tentative.correction import replacing
    >>> said = Epoch.of("alerts", 412, pa.table({"n": [1]}), kind=TENTATIVE, branch="2.1@node-3",
    ...                 stable_to=411)
    >>> became(said), became(replacing(Epoch.of("alerts", 412, pa.table({"n": [1, 2]})), said))
    ('stable to 411, branch 2.1@node-3', 'corrected: 0 rows withdrawn, 1 added')
    """
    if epoch.kind == TENTATIVE:
        return f"stable to {epoch.stable_to}, branch {epoch.header.branch}"
    if epoch.replaces is None:
        return ""
    if epoch.confirmed:
        return "confirmed"
    if epoch.given_up:
        return "given up: what was said is neither confirmed nor corrected"
    withdrawn, added = epoch.replaces.withdrawn, epoch.replaces.added
    if withdrawn is None or added is None:
        return "corrected"
    rows = f"{withdrawn.num_rows:,} row{'' if withdrawn.num_rows == 1 else 's'} withdrawn"
    return f"corrected: {rows}, {added.num_rows:,} added"


def _plain(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _print(console: Console, epoch: Epoch, rows_lost: int) -> None:
    rows = "1 row" if epoch.rows == 1 else f"{epoch.rows:,} rows"
    lost = f"  ({rows_lost:,} lost on the way)" if rows_lost else ""
    style = "yellow" if epoch.kind == TENTATIVE else ""
    more = f"  ({text})" if (text := became(epoch)) else ""
    line = f"[bold]epoch {epoch.number}[/bold]  {epoch.kind}  {rows}{lost}{more}"
    console.print(line, style=style)
    marked = [(mark, table) for mark, table in rows_of(epoch) if table.num_rows]
    if not marked:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("", *epoch.table.column_names) if marked[0][0] else epoch.table.column_names:
        table.add_column(name)
    for mark, part in marked:
        for row in part.slice(0, ROWS_SHOWN_MAX).to_pylist():
            cells = ["" if value is None else str(value) for value in row.values()]
            table.add_row(*([mark] if mark else []), *cells, style=_STYLES[mark])
    console.print(table, markup=False)
    more = sum(max(0, part.num_rows - ROWS_SHOWN_MAX) for _, part in marked)
    if more:
        console.print(f"… {more:,} more; --json prints all")


def rows_of(epoch: Epoch) -> list[tuple[str, pa.Table]]:
    """The rows to be printed, with their mark.

    >>> [(mark, rows.num_rows) for mark, rows in rows_of(Epoch.of("s", 1, pa.table({"n": [1]})))]
    [('', 1)]
    """
    if epoch.kind == TENTATIVE:
        return [("?", epoch.table)]
    if epoch.replaces is None:
        return [("", epoch.table)]
    withdrawn, added = epoch.replaces.withdrawn, epoch.replaces.added
    if withdrawn is None or added is None:  # Too much was said to remember it: all of it again.
        return [("", epoch.table)]
    return [("-", withdrawn), ("+", added)]
