"""A trace file, read as Arrow tables in the schema of a stream.

A file is text with a row on each line (CSV, TSV, JSON lines, plain text; `.gz` or not), or Parquet.
It comes as chunks, in the order of the file:

    rows of the file    0 1 2 3 | 4 x 6 7 | 8 9          x does not fit
    bad_rows="skip"     chunk     chunk     chunk        x is told in the chunk's `bad`
    bad_rows="raise"    chunk     4, then RowError       what was yielded before x stays good

* A row is a line.  A quoted CSV value cannot go on over a line end: otherwise one stray quote would
  swallow the rest of the file, and no line number after it could be trusted.
* Rows are counted from 0, bad ones included, so a number means the same row however it is read.
  Lines are counted from 1, as editors do.  Empty lines are no rows, except in plain text.
* Columns are matched by name, and those that the schema lacks are ignored.  A schema column that
  the file lacks is an error, bad_rows="skip" or not: no row of the file could be right.
* An unquoted empty CSV value is null; `""` is an empty text.  TSV has no quotes.
* A block of lines goes through Arrow at once.  Only a block that fails is halved until the bad
  lines are found.
* At most `chunk_rows` rows or BLOCK_BYTES_MAX and a line are in memory, however long the file is.

>>> import pathlib, tempfile
>>> from unbroken import schemas
>>> with tempfile.TemporaryDirectory() as folder:
...     path = pathlib.Path(folder, "trace.csv")
...     _ = path.write_text("port,src\\n80,a\\neighty,b\\n443,c\\n")
...     [chunk] = read(path, schemas.parse("src STRING, port INT"), bad_rows="skip")
>>> chunk.table.to_pylist()
[{'src': 'a', 'port': 80}, {'src': 'c', 'port': 443}]
>>> chunk.bad
[BadRow(row=1, why="line 3: column 'port': 'eighty' is not INT", text='eighty,b')]
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from unbroken.errors import RowError, SchemaError, UnbrokenError
from unbroken.schemas import TEXT_CHARS_MAX, BadRow, fit_or_set_aside, to_ddl

BLOCK_BYTES_MAX = 64 * 2**20
"""A block of lines ends here even if it has fewer than `chunk_rows` rows."""

_FORMATS = {
    ".csv": "csv", ".tsv": "tsv", ".txt": "txt", ".parquet": "parquet",
    ".jsonl": "json", ".ndjson": "json", ".json": "json",
}  # fmt: skip
_SKIP_HINT = "correct the file, or leave such rows out: --bad-rows skip"

Fitted: TypeAlias = "tuple[pa.Table, list[BadRow]]"
"""The rows of a block that fit, and those that do not, numbered from 0 within the block."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of a file.

    `first_row` is the number in the file of the table's first row; the rows of `bad` are numbers in
    the file too, and their `why` starts with the line.  If all rows are bad the table is empty.
    """

    table: pa.Table
    first_row: int
    bad: list[BadRow]


def read(
    path: Path | str,
    schema: pa.Schema,
    *,
    bad_rows: Literal["raise", "skip"] = "raise",
    chunk_rows: int = 50_000,
) -> Iterator[Chunk]:
    """The rows of a file, chunk by chunk; see the top of this module for the rules.

    >>> read("trace.pcap", pa.schema([]))
    Traceback (most recent call last):
    unbroken.errors.UnbrokenError: trace.pcap: unknown kind of file
      → it ends in one of .csv .tsv .txt .parquet .jsonl .ndjson .json; text also with .gz
    """
    path = Path(path)
    zipped = path.suffix.lower() == ".gz"
    form = _FORMATS.get(Path(path.stem if zipped else path.name).suffix.lower())
    if form is None or (zipped and form == "parquet"):
        known = " ".join(_FORMATS)
        raise UnbrokenError(
            f"{path}: unknown kind of file", hint=f"it ends in one of {known}; text also with .gz"
        )
    if not path.is_file():
        what = "this is a folder" if path.is_dir() else "no such file"
        raise UnbrokenError(f"{path}: {what}", hint=f"the path is relative to {Path.cwd()}")
    if bad_rows not in ("raise", "skip") or chunk_rows < 1:
        raise UnbrokenError(
            f"bad_rows={bad_rows!r}, chunk_rows={chunk_rows}",
            hint="bad_rows is 'raise' or 'skip', chunk_rows at least 1",
        )
    source = _Source(path, form, zipped, schema, chunk_rows, first_only=bad_rows == "raise")
    chunks = _parquet_chunks(source) if form == "parquet" else _text_chunks(source)
    return _until_bad(chunks, path) if bad_rows == "raise" else chunks


def _until_bad(chunks: Iterator[Chunk], path: Path) -> Iterator[Chunk]:
    """All rows before the first bad one, then the error."""
    for chunk in chunks:
        if not chunk.bad:
            yield chunk
            continue
        first = min(chunk.bad, key=lambda bad: bad.row)
        good = chunk.table.slice(0, max(0, first.row - chunk.first_row))
        if good.num_rows:
            yield replace(chunk, table=good, bad=[])
        raise RowError(f"{path}: {first.why}", hint=_SKIP_HINT)


@dataclass(frozen=True)
class _Source:
    path: Path
    form: str
    zipped: bool
    schema: pa.Schema
    chunk_rows: int
    first_only: bool
    """The reader stops at the first bad row, so a block need not be searched for a second one."""

    def fit(self, rows: pa.Table | list[dict[str, object]]) -> Fitted:
        return fit_or_set_aside(rows, self.schema, first_only=self.first_only)

    def check_columns(self, names: list[str], where: str, otherwise: str = "") -> None:
        for name in self.schema.names:
            if names.count(name) != 1:
                what = "two columns" if name in names else "no column"
                raise RowError(
                    f"{self.path}: {where} {what} {name!r}",
                    hint=f"the columns there are: {', '.join(names)}{otherwise}",
                )


class _Lines:
    """The lines of a text file with their numbers, taken in blocks."""

    def __init__(self, file: Iterable[bytes], keep_empty: bool) -> None:
        self.file, self.keep_empty, self.number = file, keep_empty, 0

    def take(self, count_max: int) -> tuple[list[bytes], list[int], str]:
        """The next lines, their numbers, and why no more can be read, if that is so."""
        lines, numbers, broken, size = list[bytes](), list[int](), "", 0
        try:
            for line in self.file:
                self.number += 1
                size += len(line)
                if self.number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")  # What Windows puts before UTF-8.
                line = line.rstrip(b"\r\n")
                if line or self.keep_empty:
                    lines.append(line)
                    numbers.append(self.number)
                if len(lines) >= count_max or (lines and size >= BLOCK_BYTES_MAX):
                    break
        except EOFError:
            broken = "the gzip file ends too early; it was cut off"
        except (gzip.BadGzipFile, zlib.error) as error:
            broken = f"the gzip file is damaged: {error}"
        return lines, numbers, broken


def _text_chunks(source: _Source) -> Iterator[Chunk]:
    with gzip.open(source.path) if source.zipped else source.path.open("rb") as file:
        lines = _Lines(file, keep_empty=source.form == "txt")
        if source.form == "txt":
            parse = _text_parser(source)
        elif source.form == "json":
            parse = _json_parser(source)
        else:
            parse = _csv_parser(source, lines)
        row, broken = 0, ""
        while not broken:
            block, numbers, broken = lines.take(source.chunk_rows)
            if not block and not broken:
                return
            table, found = parse(block, numbers) if block else (source.schema.empty_table(), [])
            bad = [
                BadRow(row + b.row, f"line {numbers[b.row]}: {b.why}", _shown(block[b.row]))
                for b in found
            ]
            if broken:
                why = f"line {lines.number + 1}: {broken}"
                bad.append(BadRow(row + len(block), why, ""))
            yield Chunk(table, _first_good(row, bad), bad)
            row += len(block)


def _first_good(row: int, bad: list[BadRow]) -> int:
    numbers = {b.row for b in bad}
    while row in numbers:
        row += 1
    return row


def _shown(line: bytes) -> str:
    return line.decode(errors="replace")[:TEXT_CHARS_MAX]


_Parse: TypeAlias = Callable[[list[bytes], list[int]], Fitted]


def _text_parser(source: _Source) -> _Parse:
    types = {field.name: field.type for field in source.schema}
    number = types.get("number", pa.int64())
    if (
        types.get("line") != pa.string()
        or not types.keys() <= {"line", "number"}
        or number not in (pa.int32(), pa.int64())
    ):
        raise SchemaError(
            f"{source.path}: plain text does not fit the schema {to_ddl(source.schema)}",
            hint="write: line STRING, or: line STRING, number BIGINT (the line's number, from 1)",
        )

    def parse(block: list[bytes], numbers: list[int]) -> Fitted:
        columns = {"line": pa.array(block, pa.binary()), "number": pa.array(numbers, pa.int64())}
        return source.fit(pa.table({name: columns[name] for name in types}))

    return parse


def _json_parser(source: _Source) -> _Parse:
    names = source.schema.names
    seen: dict[str, None] = {}
    checked = False

    def parse(block: list[bytes], numbers: list[int]) -> Fitted:
        nonlocal checked
        rows, places, broken = list[dict[str, object]](), list[int](), list[BadRow]()
        for place, line in enumerate(block):
            try:
                value = json.loads(line.decode())
            except (ValueError, RecursionError) as error:
                broken.append(BadRow(place, f"not JSON: {error}", ""))
                continue
            if type(value) is not dict:
                broken.append(BadRow(place, "not a JSON object with a row's columns", ""))
                continue
            if not checked:
                seen.update(dict.fromkeys(value))
            rows.append({name: value.get(name) for name in names})
            places.append(place)
        if rows and not checked:
            # JSON may leave out what is null, so one row tells little; a whole block tells a typo.
            source.check_columns(
                list(seen),
                f"the first {len(rows)} rows have",
                "; if the column is only rare, write it as null in the first row",
            )
            checked = True
        return _merged(source.fit(rows), places, broken)

    return parse


def _merged(fitted: Fitted, places: list[int], broken: list[BadRow]) -> Fitted:
    """Numbers the rows that did not fit by their places in the block, among the broken lines."""
    table, bad = fitted
    moved = [replace(b, row=places[b.row]) for b in bad]
    return table, sorted(moved + broken, key=lambda b: b.row)


def _csv_parser(source: _Source, lines: _Lines) -> _Parse:
    tabs = source.form == "tsv"
    delimiter, quote = ("\t", False) if tabs else (",", '"')
    header, _, damage = lines.take(1)
    if not header:
        raise RowError(
            f"{source.path}: {damage or 'the file is empty'}",
            hint="the first line of a CSV file names its columns",
        )
    text = header[0].decode(errors="replace")
    found = text.split("\t") if tabs else next(csv.reader([text]))
    names = [name.strip() for name in found]
    source.check_columns(names, "the header names")
    # Columns go by their place: names that the schema does not want may stand there twice.
    places = [str(place) for place in range(len(names))]
    wanted = [places[names.index(name)] for name in source.schema.names]
    own_line = delimiter.join("0" for _ in names).encode()
    convert = pa.csv.ConvertOptions(
        include_columns=wanted,
        column_types={place: pa.string() for place in wanted},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )

    def parse(block: list[bytes], numbers: list[int]) -> Fitted:
        ragged: dict[int, str] = {}

        def note(row: pa.csv.InvalidRow) -> str:
            counts = f"{row.actual_columns} values, the header has {row.expected_columns}"
            ragged[row.number - 1] = counts
            return "skip"

        # The line that we add ourselves is missed if a quote in the last line does not close.
        data = b"\n".join([*block, own_line])
        try:
            data.decode()  # Before Arrow sees it: `note` cannot be called with other bytes.
            table = pa.csv.read_csv(
                pa.BufferReader(data),
                pa.csv.ReadOptions(
                    use_threads=False, column_names=places, block_size=len(data) + 1
                ),
                pa.csv.ParseOptions(
                    delimiter=delimiter, quote_char=quote, invalid_row_handler=note
                ),
                convert,
            )
            # Arrow also ends rows at a lone \r, which could hide a row that a quote swallowed.
            whole = table.num_rows + len(ragged) == len(block) + 1 and b"\r" not in data
            why = "" if whole else "not one row: a quote that does not close, or a stray line end"
        except UnicodeDecodeError as error:
            why = f"not UTF-8: {error.reason}"
        except pa.ArrowInvalid as error:
            why = str(error)
        if why and len(block) == 1:
            return source.schema.empty_table(), [BadRow(0, why, "")]
        if why:
            half = len(block) // 2
            left, left_bad = parse(block[:half], numbers[:half])
            if left_bad and source.first_only:
                return left, left_bad
            right, right_bad = parse(block[half:], numbers[half:])
            moved = [replace(b, row=b.row + half) for b in right_bad]
            return pa.concat_tables([left, right]).combine_chunks(), left_bad + moved
        good = [place for place in range(len(block)) if place not in ragged]
        broken = [BadRow(place, counts, "") for place, counts in ragged.items()]
        table = table.slice(0, len(good)).rename_columns(source.schema.names)
        return _merged(source.fit(table), good, broken)

    return parse


def _parquet_chunks(source: _Source) -> Iterator[Chunk]:
    try:
        file = pa.parquet.ParquetFile(source.path, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise RowError(
            f"{source.path}: not a whole Parquet file: {error}",
            hint="write it again; a Parquet file that was cut off cannot be read at all",
        ) from error
    with file:
        names = source.schema.names
        source.check_columns(file.schema_arrow.names, "the file has")
        row = 0
        try:
            for batch in file.iter_batches(source.chunk_rows, columns=names):
                table, found = source.fit(batch)
                bad = [
                    replace(b, row=row + b.row, why=f"row {row + b.row}: {b.why}") for b in found
                ]
                yield Chunk(table, _first_good(row, bad), bad)
                row += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            why = f"row {row}: the file is damaged from here on: {error}"
            yield Chunk(source.schema.empty_table(), row, [BadRow(row, why, "")])
