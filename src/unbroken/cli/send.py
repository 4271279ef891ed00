"""`unbroken send`: the rows of a file into a source of a running cluster."""

from __future__ import annotations

import argparse
import uuid
from pathlib import Path
from typing import Any

from unbroken.cli import arguments
from unbroken.client import files
from unbroken.client.cluster import connect
from unbroken.client.slices import ByRows, pieces
from unbroken.errors import RowError, UnbrokenError

#: One send of rows: durable together.
SEND_ROWS = 20_000


def register(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = arguments.add_command(
        commands, "send", run, "send the rows of a file into a source",
        "  unbroken send connections trace.csv.gz\n"
        "  unbroken send lines poem.txt --bad-rows skip --close-epoch\n\n"
        "A send that was cut short can be repeated: rows that arrived are not sent again.",
    )  # fmt: skip
    parser.add_argument("stream", metavar="STREAM", help="a source of the query")
    parser.add_argument("file", type=Path, metavar="FILE",
                        help=".csv .tsv .jsonl .txt (also .gz) or .parquet")  # fmt: skip
    arguments.add_at(parser)
    arguments.add_bad_rows(parser)
    parser.add_argument("--again", action="store_true",
                        help="send all rows, also those that were sent before")  # fmt: skip
    parser.add_argument("--close-epoch", action="store_true",
                        help='seal the epoch afterwards (queries with epoch="manual")')  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """Sends what was not sent yet."""
    cluster = connect(given.at)
    if given.close_epoch and cluster.status()["epoch_s"] is not None:
        raise UnbrokenError(
            "the epochs of this query close by themselves: nothing was sent",
            hint="leave --close-epoch away",
        )
    name = f"send-{given.stream}-{given.file.name}"
    producer = cluster.producer(given.stream, name=uuid.uuid4().hex if given.again else name)
    known = producer.sequence - 1
    sent = aside = bad = 0
    try:
        chunks = files.read(given.file, producer.schema, bad_rows=given.bad_rows)
        for chunk in chunks:
            bad += len(chunk.bad)
            for piece in pieces([chunk], ByRows(SEND_ROWS), after=known):
                receipt = producer.send(piece.rows, sequence=piece.last_row)
                sent += receipt.rows
                aside += receipt.set_aside
    except RowError as error:
        raise RowError(
            f"{error.what} ({sent:,} rows before it were sent)", hint=error.hint
        ) from None
    words = [f"{sent:,} rows sent to {given.stream}"]
    if known >= 0:
        words.append(f"{known + 1:,} had been sent before (--again sends them once more)")
    if bad:
        words.append(f"{bad:,} bad rows left out")
    if aside:
        words.append(f"{aside:,} set aside: too far in the future")
    if given.close_epoch:
        words.append(f"epoch {producer.close_epoch()} closed")
    print(", ".join(words))
    return 0
